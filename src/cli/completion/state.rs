//! Reads names from the cluster's state file for completion. Never creates the file.

use super::conditions;
use crate::apiserver::{Api, custom};
use crate::cli::Globals;
use crate::cli::cluster::context_settings::{context_name, default_namespace};
use crate::cli::cluster::contexts::{self, ClusterChoice, ConfigFile, Entries, USER};
use crate::kinds::catalogue::schemas::KindSchemas;
use crate::kinds::custom::DEFINITIONS;
use crate::kinds::image::recipe;
use crate::kinds::{self, Kind, KindRegistry};
use crate::object::{Key, Object, Resource};
use crate::show::explain::field_names;
use crate::store::{OpenMode, default_path};
use clap::ArgMatches;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The most objects whose conditions are read for one completion.
const MAX_READ: usize = 100;

/// Types with a pod template, or with containers.
const WITH_TEMPLATES: [&str; 7] =
    ["cronjobs", "daemonsets", "deployments", "jobs", "pods", "replicasets", "statefulsets"];

/// Options and arguments before the cursor.
#[derive(Default)]
pub struct CompletionState {
    globals: Globals,
    cluster: ClusterChoice,
    namespace: Option<String>,
    words: Vec<String>,
}

impl CompletionState {
    /// Reads the state file's path, the namespace and the names before the cursor from the
    /// innermost verb's matches.
    pub fn from_matches(matches: Option<&ArgMatches>) -> CompletionState {
        let Some(matches) = matches else { return CompletionState::default() };
        let words = matches.try_get_many::<String>("words").ok().flatten();
        let text = |name: &str| matches.try_get_one::<String>(name).ok().flatten().cloned();
        let path = |name: &str| matches.try_get_one::<PathBuf>(name).ok().flatten().cloned();
        let globals = Globals {
            state: path("state"),
            kubeconfig: path("kubeconfig"),
            context: text("context"),
            ..Globals::default()
        };
        let unknown = |_| ClusterChoice::without_context(default_path());
        CompletionState {
            cluster: contexts::choose(&globals, "").unwrap_or_else(unknown),
            globals,
            namespace: matches.try_get_one::<String>("namespace").ok().flatten().cloned(),
            words: words.into_iter().flatten().cloned().collect(),
        }
    }

    /// Completes TYPE, then names; or TYPE/NAME.
    pub fn targets(&self, word: &str) -> Vec<String> {
        if word.contains('/') || self.words.iter().any(|word| word.contains('/')) {
            return self.pairs(word);
        }
        match self.words.split_first() {
            None => types(&self.kinds(), word),
            Some((types, named)) => {
                let mut names: Vec<String> = types.split(',').flat_map(|name| self.names(name)).collect();
                names.retain(|name| !named.contains(name));
                names
            }
        }
    }

    /// Completes TYPE/NAME in one word.
    pub fn targets_with_type(&self, word: &str) -> Vec<String> {
        self.pairs(word)
    }

    /// Completes TYPE, then names, or TYPE/NAME, of some types only.
    pub fn targets_of(&self, kinds: &[&str], word: &str) -> Vec<String> {
        match (word.contains('/'), self.words.is_empty()) {
            (false, true) => kinds.iter().map(|kind| (*kind).to_owned()).collect(),
            _ => self.targets(word),
        }
    }

    /// Completes TYPE/NAME of workloads, then `CONTAINER=`.
    pub fn template_targets(&self, word: &str) -> Vec<String> {
        let Some(first) = self.words.first() else {
            return match word.contains('/') {
                true => self.pairs(word),
                false => WITH_TEMPLATES.iter().map(|kind| format!("{kind}/")).collect(),
            };
        };
        let (name, object) = match first.split_once('/') {
            Some(pair) => pair,
            None if self.words.len() > 1 => (first.as_str(), self.words[1].as_str()),
            None => return self.names(first),
        };
        let Some(kind) = self.kinds().by_name(name) else { return Vec::new() };
        let namespace = self.namespace();
        let key = Key::new(kind.resource, if kind.namespaced { &namespace } else { "" }, object);
        let found = self.open().and_then(|api| api.read_view(|txn| crate::apiserver::read::get(txn, &key)).ok());
        let Some(found) = found else { return Vec::new() };
        let containers = [&["spec", "template", "spec", "containers"][..], &["spec", "containers"]];
        let containers = containers.into_iter().flat_map(|path| found.items(path));
        containers.filter_map(|container| Some(format!("{}=", container["name"].as_str()?))).collect()
    }

    /// Completes the object of `url` and `open`: the name of a Service, or TYPE/NAME.
    pub fn addressed(&self, word: &str) -> Vec<String> {
        if word.contains('/') {
            return self.pairs(word);
        }
        let types = ["ingresses/", "pods/", "services/"].into_iter().map(str::to_owned);
        self.names("services").into_iter().chain(types).collect()
    }

    /// Completes the verb of `auth can-i`, then the type.
    pub fn access(&self, word: &str) -> Vec<String> {
        match self.words.is_empty() {
            true => {
                crate::cli::command_line::access_verbs::RESOURCE_VERBS.iter().map(|verb| (*verb).to_owned()).collect()
            }
            false if word.contains('/') => self.pairs(word),
            false => self.types(),
        }
    }

    /// Returns the objects of a type, as `TYPE/NAME`.
    pub fn named_with_type(&self, name: &str) -> Vec<String> {
        self.names(name).into_iter().map(|known| format!("{name}/{known}")).collect()
    }

    /// Returns the API groups of the cluster's kinds.
    pub fn groups(&self) -> Vec<String> {
        let groups: BTreeSet<String> = self.kinds().all().map(|kind| kind.resource.group().to_owned()).collect();
        groups.into_iter().filter(|group| !group.is_empty()).collect()
    }

    /// Returns the names of contexts.
    pub fn contexts(&self) -> Vec<String> {
        self.entries(|file| &file.contexts, &self.own_name())
    }

    /// Returns the names of clusters.
    pub fn clusters(&self) -> Vec<String> {
        self.entries(|file| &file.clusters, &self.own_name())
    }

    /// Returns the names of users.
    pub fn users(&self) -> Vec<String> {
        self.entries(|file| &file.users, USER)
    }

    /// Returns the names of entries, and the name that needs no entry.
    fn entries(&self, list: fn(&ConfigFile) -> &Entries, own: &str) -> Vec<String> {
        let path = ConfigFile::find_path(self.globals.kubeconfig.as_deref());
        let file = ConfigFile::load(&path).unwrap_or_default();
        let names: BTreeSet<&str> = list(&file).keys().map(String::as_str).chain([own]).collect();
        names.into_iter().map(str::to_owned).collect()
    }

    /// Returns the name of the context of the state file that is used without one.
    fn own_name(&self) -> String {
        context_name(&contexts::own_state(&self.globals).unwrap_or_else(default_path))
    }

    /// Completes names of pods, or TYPE/NAME; then the containers of the named pod.
    pub fn pods(&self, word: &str) -> Vec<String> {
        match (word.contains('/'), self.words.is_empty()) {
            (true, _) => self.pairs(word),
            (_, true) => self.names("pods"),
            (_, false) => self.containers(),
        }
    }

    /// Completes types.
    pub fn types(&self) -> Vec<String> {
        self.kinds().all().map(|kind| kind.resource.plural().to_owned()).collect()
    }

    /// Completes types, and fields after a dot: `pods.spec.containers`.
    pub fn fields(&self, word: &str) -> Vec<String> {
        let Some((above, _)) = word.rsplit_once('.') else { return self.types() };
        let mut parts = above.split('.');
        let name = parts.next().unwrap_or_default();
        let path: Vec<&str> = parts.collect();
        self.fields_below(name, &path).into_iter().map(|field| format!("{above}.{field}")).collect()
    }

    /// Completes the conditions of `wait --for`: those that objects of the named kind can have.
    pub fn conditions(&self, word: &str) -> Vec<String> {
        let first = self.words.first().map(|word| word.split('/').next().unwrap_or(word));
        if let Some(path) = word.strip_prefix("jsonpath=.")
            && let Some(name) = first
        {
            let above = path.rsplit_once('.').map_or("", |(above, _)| above);
            let below: Vec<&str> = above.split('.').filter(|field| !field.is_empty()).collect();
            let prefix = format!("jsonpath={}", below.iter().map(|field| format!(".{field}")).collect::<String>());
            return self.fields_below(name, &below).into_iter().map(|field| format!("{prefix}.{field}")).collect();
        }
        let named = match first.map(|name| self.kinds().by_name(name)) {
            None => conditions::all_types(),
            Some(None) => BTreeSet::new(),
            Some(Some(kind)) => conditions::types_of_kind(kind.resource.0)
                .map(str::to_owned)
                .chain(self.conditions_seen(kind))
                .collect(),
        };
        let named = named.into_iter().map(|name| format!("condition={name}"));
        ["create", "delete", "jsonpath=."].into_iter().map(str::to_owned).chain(named).collect()
    }

    /// Returns the conditions that the cluster's objects of a kind have.
    fn conditions_seen(&self, kind: &Kind) -> Vec<String> {
        let namespace = kind.namespaced.then(|| self.namespace());
        let Some(api) = self.open() else { return Vec::new() };
        let found = api.read(|snapshot| snapshot.list(kind.resource, namespace.as_deref())).unwrap_or_default();
        let objects = found.into_iter().take(MAX_READ).filter_map(|stored| serde_json::from_str(&stored.body).ok());
        let names = |object: Object| -> Vec<String> {
            let conditions = object.items(&["status", "conditions"]).iter();
            conditions.filter_map(|condition| condition["type"].as_str()).map(str::to_owned).collect()
        };
        objects.map(Object).flat_map(names).collect()
    }

    /// Returns the names of the fields below a path of a kind.
    fn fields_below(&self, name: &str, path: &[&str]) -> Vec<String> {
        let Some(kind) = self.kinds().by_name(name) else { return Vec::new() };
        let schemas = KindSchemas::built_in();
        if let Some(declared) = &kind.custom {
            let key = Key::new(DEFINITIONS, "", &declared.definition);
            let found = self.open().and_then(|api| api.read_view(|txn| crate::apiserver::read::exact(txn, &key)).ok());
            let schema = found.and_then(|definition| schemas.custom(&definition.0, None));
            return schema.map(|(_, schema)| field_names(&schemas, &schema, path)).unwrap_or_default();
        }
        schemas
            .kind(&kind.api_version(), kind.kind)
            .map(|schema| field_names(&schemas, schema, path))
            .unwrap_or_default()
    }

    /// Returns the cluster's kinds.
    fn kinds(&self) -> KindRegistry {
        custom::kinds_in(&self.cluster.state)
    }

    fn pairs(&self, word: &str) -> Vec<String> {
        let Some((name, _)) = word.split_once('/') else {
            let kinds = self.kinds();
            let plural = kinds.all().map(|kind| kind.resource.plural()).collect::<BTreeSet<&str>>();
            return plural.into_iter().map(|name| format!("{name}/")).collect();
        };
        self.names(name).into_iter().map(|known| format!("{name}/{known}")).collect()
    }

    /// Returns the names of a type's objects in the selected namespace.
    pub fn names(&self, name: &str) -> Vec<String> {
        let Some(kind) = self.kinds().by_name(name) else { return Vec::new() };
        self.keys(kind).into_iter().map(|key| key.name.to_string()).collect()
    }

    /// Returns the names of all namespaces.
    pub fn namespaces(&self) -> Vec<String> {
        self.names("namespaces")
    }

    /// Returns the images of pods and kloop's built-in images.
    pub fn images(&self) -> Vec<String> {
        let pods = self.open().and_then(|api| {
            let (kind, wanted) = (&kinds::pod::KIND, Default::default());
            api.read_view(|txn| crate::apiserver::read::list(txn, kind, None, &wanted)).ok()
        });
        let pods = pods.unwrap_or_default();
        let containers = pods.iter().flat_map(|pod| pod.items(&["spec", "containers"]));
        let used = containers.filter_map(|container| container["image"].as_str()).map(str::to_owned);
        let mut images: Vec<String> =
            used.chain(recipe::builtin_recipes().iter().map(|known| known.name.to_owned())).collect();
        images.sort();
        images.dedup();
        images
    }

    /// Returns the container names of the named pod.
    pub fn containers(&self) -> Vec<String> {
        let Some(word) = self.words.first() else { return Vec::new() };
        let name = word.rsplit('/').next().unwrap_or(word);
        let key = Key::new(Resource("pods"), &self.namespace(), name);
        let found = self.open().and_then(|api| api.read_view(|txn| crate::apiserver::read::get(txn, &key)).ok());
        let names = |pod: &Object, list: &str| -> Vec<String> {
            let containers = pod.value_at(&["spec", list]).and_then(|list| list.as_array()).into_iter().flatten();
            containers.filter_map(|container| container["name"].as_str()).map(str::to_owned).collect()
        };
        found.map(|pod| [names(&pod, "containers"), names(&pod, "initContainers")].concat()).unwrap_or_default()
    }

    fn keys(&self, kind: &Kind) -> Vec<Key> {
        let namespace = kind.namespaced.then(|| self.namespace());
        let Some(api) = self.open() else { return Vec::new() };
        let found = api.read(|snapshot| snapshot.list(kind.resource, namespace.as_deref())).unwrap_or_default();
        found.into_iter().map(|stored| stored.key).collect()
    }

    fn namespace(&self) -> String {
        let requested = self.namespace.clone().filter(|name| !name.is_empty());
        let of_context = || self.cluster.namespace.clone();
        requested.or_else(of_context).unwrap_or_else(|| default_namespace(&self.cluster.state))
    }

    fn open(&self) -> Option<Api> {
        Api::open(&self.cluster.state, OpenMode::Existing, "kloop").ok()
    }
}

/// Completes `pods` or `deployments`; after a comma, the next type.
fn types(kinds: &KindRegistry, word: &str) -> Vec<String> {
    let (first, last) = word.rsplit_once(',').map_or(("", word), |(first, last)| (&word[..=first.len()], last));
    let mut names: Vec<&str> = kinds.all().map(|kind| kind.resource.plural()).collect();
    names.extend(kinds.all().flat_map(|kind| kind.categories));
    let qualified = kinds.all().filter(|kind| !kind.resource.group().is_empty()).map(|kind| kind.resource.0);
    // After a dot, names with their group.
    names.extend(qualified.filter(|_| last.contains('.')));
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(|name| format!("{first}{name}")).collect()
}
