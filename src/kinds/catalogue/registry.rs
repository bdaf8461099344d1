//! The kinds that a cluster serves: built-in ones and custom resources.
//!
//! Registries form layers: a transaction, a dry run or a command puts a layer over the cluster's registry. Definitions
//! that it registers there are dropped with the layer, unless the cluster's registry merges them after the commit.
//! Never: opens a store. The owner of a registry may set a source of stored definitions, which is read at the first
//! look-up of a kind that is not built in, since definitions may be large and few commands need them. Start reading at
//! [`KindRegistry`].

use super::super::{ALL, Kind, custom, find_by_name, fits_kind};
use crate::object::{IgnorePoison, Resource, Str};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, RwLock};

/// Returns the stored texts of definitions.
pub type DefinitionSource = Box<dyn FnOnce() -> Vec<String> + Send>;

/// The kinds of a layer by resource; `None` for a deleted definition.
type Known = BTreeMap<&'static str, Option<&'static Kind>>;

/// A handle to the kinds of one cluster; clones share their content.
#[derive(Clone, Default)]
pub struct KindRegistry(Arc<Layer>);

#[derive(Default)]
struct Layer {
    base: Option<KindRegistry>,
    known: RwLock<Known>,
    /// The source of stored definitions, until it is read.
    source: Mutex<Option<DefinitionSource>>,
    /// The revisions at which definitions were last read, by uid.
    seen: Mutex<HashMap<Str, u64>>,
}

impl std::fmt::Debug for KindRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KindRegistry").finish_non_exhaustive()
    }
}

impl KindRegistry {
    /// Creates a registry that reads definitions from a source at the first look-up of a kind that is not built in.
    pub fn with_source(source: DefinitionSource) -> KindRegistry {
        let layer = Layer { source: Mutex::new(Some(source)), ..Layer::default() };
        KindRegistry(Arc::new(layer))
    }

    /// Creates a layer over this registry, which includes its kinds but does not change it.
    pub fn layer(&self) -> KindRegistry {
        KindRegistry(Arc::new(Layer { base: Some(self.clone()), ..Layer::default() }))
    }

    /// Registers a definition by its stored text, and keeps the existing kind of an unchanged one. `None` when the
    /// definition has no served version, or its names conflict with another's.
    pub fn register(&self, definition: &str) -> Option<&'static Kind> {
        self.read_source();
        self.insert(definition)
    }

    fn insert(&self, definition: &str) -> Option<&'static Kind> {
        let learnt = custom::read_definition(definition)?;
        let resource = learnt.resource();
        let kind = match self.find(resource.0) {
            Some(kind) if learnt.is_declared_by(kind) => Some(kind),
            _ => learnt.into_kind(),
        };
        self.write().insert(resource.0, kind);
        kind
    }

    /// Removes the kind of a deleted definition, by the definition's name.
    pub fn unregister(&self, definition: &str) {
        let gone: Vec<&Kind> = self.custom_kinds().into_iter().filter(|kind| kind.is_declared_by(definition)).collect();
        self.write().extend(gone.iter().map(|kind| (kind.resource.0, None)));
    }

    /// Records that a definition was read at a revision. Returns false when the last read was at the same revision.
    pub fn is_changed(&self, uid: &Str, revision: u64) -> bool {
        let mut seen = self.0.seen.lock().ignore_poison();
        seen.insert(uid.clone(), revision) != Some(revision)
    }

    /// Merges the kinds that were registered and removed in a layer of this registry.
    pub fn merge(&self, layer: &KindRegistry) {
        if Arc::ptr_eq(&self.0, &layer.0) {
            return;
        }
        if let Some(base) = &layer.0.base {
            self.merge(base);
        }
        let learnt = layer.0.known.read().ignore_poison().clone();
        self.write().extend(learnt);
    }

    /// The custom kinds, ordered by resource.
    pub fn custom_kinds(&self) -> Vec<&'static Kind> {
        self.known().into_values().flatten().collect()
    }

    /// Every kind: the built-in ones, then the custom ones by their resource.
    pub fn all(&self) -> impl Iterator<Item = &'static Kind> + use<> {
        ALL.iter().copied().chain(self.custom_kinds())
    }

    /// The kind of an object by its `apiVersion` and `kind`.
    pub fn by_kind(&self, api_version: &str, kind: &str) -> Option<&'static Kind> {
        super::super::by_kind(api_version, kind)
            .or_else(|| self.custom_kinds().into_iter().find(|known| fits_kind(known, api_version, kind)))
            .map(|kind| kind.in_version(api_version))
    }

    /// The kind of a resource such as `deployments.apps`.
    pub fn by_resource(&self, resource: Resource) -> Option<&'static Kind> {
        super::super::by_resource(resource).or_else(|| self.custom(resource.0))
    }

    /// Finds a kind by a user's text: plural, singular, short name or kind in any case, optionally with `.group` or
    /// `.version.group`.
    pub fn by_name(&self, name: &str) -> Option<&'static Kind> {
        super::super::by_name(name).or_else(|| find_by_name(&self.custom_kinds_by_group(), name))
    }

    /// The kinds with this short name that another kind takes precedence over.
    pub fn hidden_by_short_name(&self, name: &str) -> Vec<&'static Kind> {
        let Some(found) = self.by_name(name).filter(|kind| kind.short.contains(&name)) else { return Vec::new() };
        let all = ALL.iter().copied().chain(self.custom_kinds_by_group());
        all.filter(|kind| kind.short.contains(&name) && kind.resource != found.resource).collect()
    }

    /// The custom kinds in the order in which the API server lists their groups.
    fn custom_kinds_by_group(&self) -> Vec<&'static Kind> {
        let mut kinds = self.custom_kinds();
        kinds.sort_by_key(|kind| kind.resource.group());
        kinds
    }

    fn custom(&self, resource: &str) -> Option<&'static Kind> {
        self.read_source();
        self.find(resource)
    }

    fn find(&self, resource: &str) -> Option<&'static Kind> {
        let known = self.0.known.read().ignore_poison().get(resource).copied();
        known.unwrap_or_else(|| self.0.base.as_ref()?.custom(resource))
    }

    /// All custom kinds; kinds of this layer take precedence over kinds of lower layers.
    fn known(&self) -> Known {
        self.read_source();
        let mut known = self.0.base.as_ref().map(KindRegistry::known).unwrap_or_default();
        known.extend(self.0.known.read().ignore_poison().iter().map(|(name, kind)| (*name, *kind)));
        known
    }

    /// Reads the source once; concurrent callers wait.
    fn read_source(&self) {
        let mut source = self.0.source.lock().ignore_poison();
        for text in source.take().into_iter().flat_map(|source| source()) {
            self.insert(&text);
        }
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Known> {
        self.0.known.write().ignore_poison()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn definition(generation: i64, versions: Value) -> String {
        json!({
            "metadata": {"name": "boats.learnt.dev", "uid": "u", "generation": generation},
            "spec": {"group": "learnt.dev", "scope": "Namespaced", "versions": versions,
                "names": {"plural": "boats", "kind": "Boat", "shortNames": ["bt"], "categories": ["fleet"]}},
        })
        .to_string()
    }

    fn served(name: &str) -> Value {
        json!([{"name": name, "served": true}])
    }

    #[test]
    fn definition_is_registered_once_changed_and_removed() {
        let kinds = KindRegistry::default();
        let versions = json!([{"name": "v1beta1", "served": true}, {"name": "v1", "served": true}, {"name": "v2", "served": false}]);
        let text = definition(1, versions.clone());
        let kind = kinds.register(&text).expect("a kind");
        assert_eq!(
            (kind.api_version(), kind.also, kind.singular()),
            ("learnt.dev/v1".into(), &["learnt.dev/v1beta1"][..], "boat".into())
        );
        assert!(std::ptr::eq(kinds.register(&text).expect("a kind"), kind), "an unchanged definition keeps its kind");
        let other = kinds.register(&definition(2, versions)).expect("a kind");
        assert!(!std::ptr::eq(other, kind));
        assert!(kinds.by_name("boats.learnt.dev").is_some_and(|known| std::ptr::eq(known, other)));
        assert!(kinds.by_kind("learnt.dev/v1beta1", "Boat").is_some_and(|known| std::ptr::eq(known, other)));
        kinds.unregister("boats.learnt.dev");
        assert!(kinds.by_name("bt").is_none() && kinds.all().all(|kind| kind.custom.is_none()));
        assert!(kinds.register(&definition(3, json!([{"name": "v1", "served": false}]))).is_none());
    }

    #[test]
    fn versions_have_subresources_of_their_own() {
        let kinds = KindRegistry::default();
        let scale = |path: &str| json!({"specReplicasPath": path, "statusReplicasPath": ".status.n"});
        let versions = json!([
            {"name": "v1", "served": true, "subresources": {"status": {}, "scale": scale(".spec.n")}},
            {"name": "v1beta1", "served": true},
            {"name": "v1alpha1", "served": true, "subresources": {"scale": scale(".spec.crew")}},
        ]);
        let kind = kinds.register(&definition(1, versions)).expect("a kind");
        let shown = |version: &str| {
            let kind = kinds.by_kind(&format!("learnt.dev/{version}"), "Boat").expect("a kind");
            (kind.status, kind.scale, kind.replicas().0.last().copied())
        };
        assert_eq!(shown("v1"), (true, true, Some("n")));
        assert_eq!(shown("v1beta1"), (false, false, Some("replicas")));
        assert_eq!(shown("v1alpha1"), (false, true, Some("crew")));
        assert!(kind.custom.expect("custom").has_scale() && kind.api_version() == "learnt.dev/v1");
    }

    #[test]
    fn layer_does_not_change_its_base() {
        let cluster = KindRegistry::default();
        let first = cluster.layer();
        assert!(first.register(&definition(1, served("v1"))).is_some());
        let second = first.layer();
        assert!(second.by_name("boats").is_some() && cluster.by_name("boats").is_none());
        second.unregister("boats.learnt.dev");
        assert!(second.by_name("boats").is_none() && first.by_name("boats").is_some());
        cluster.merge(&first);
        assert!(cluster.by_name("boats").is_some());
        cluster.merge(&second);
        assert!(cluster.by_name("boats").is_none());
    }

    #[test]
    fn source_is_read_for_a_kind_that_is_not_built_in() {
        let (asked, answers) = std::sync::mpsc::channel();
        let kinds = KindRegistry::with_source(Box::new(move || {
            asked.send(()).unwrap();
            vec![definition(1, served("v1"))]
        }));
        assert!(kinds.by_name("pods").is_some() && answers.try_recv().is_err());
        assert!(kinds.by_resource(Resource("boats.learnt.dev")).is_some() && answers.try_recv().is_ok());
        assert!(kinds.by_name("boats").is_some() && answers.try_recv().is_err(), "they are read once");
    }
}
