//! Chooses the state file or the server of a command: from the flags, `$KLOOP_STATE`, and the file of contexts.
//!
//! A flag has precedence over `$KLOOP_STATE`, and that over the current context. In a pod of kloop, the pod's cluster is used if nothing
//! else names one. Start reading at [`choose`].

use super::in_cluster::{self, PodCluster};
use super::{ConfigFile, Entries, Location, ServerEntries, USER};
use crate::cli::cluster::context_settings;
use crate::cli::command_line::program_name::is_kubectl_verb;
use crate::cli::{CliResult, Failure, Globals};
use crate::serve::kubeconfig;
use crate::store;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Verbs that define their own `--user`.
const WITH_OWN_USER: [&str; 4] = ["create", "image", "kubeconfig", "set"];

/// Fields of a user entry that a server would check, and a state file cannot.
const CREDENTIALS: [&str; 10] = [
    "auth-provider",
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    "exec",
    "password",
    "token",
    "tokenFile",
    "username",
];

/// The cluster of a command.
#[derive(Debug, Default, PartialEq)]
pub struct ClusterChoice {
    /// The state file.
    pub state: PathBuf,
    /// The name of the context in the file of contexts, if that has chosen.
    pub context: Option<String>,
    /// The namespace of that context.
    pub namespace: Option<String>,
    /// The entry of its user, for a state file.
    pub user: Map<String, Value>,
    /// The server that is used in place of the state file.
    pub server: Option<ServerEntries>,
}

impl ClusterChoice {
    /// Returns the choice of a state file without a context.
    pub fn without_context(state: PathBuf) -> ClusterChoice {
        ClusterChoice { state, ..ClusterChoice::default() }
    }
}

/// Returns the state file that a flag names: `--state`, or `--server` with a path.
fn state_in_flag(globals: &Globals) -> Option<PathBuf> {
    globals.state.clone().or_else(|| match Location::parse(globals.server.as_deref()?, Path::new("")) {
        Location::File(path) => Some(path),
        Location::Etcd(address) => Some(address.into()),
        _ => None,
    })
}

/// Whether `--server` is the address of a server.
fn names_server(globals: &Globals) -> bool {
    let location = |server: &str| Location::parse(server, Path::new(""));
    globals
        .server
        .as_deref()
        .is_some_and(|server| matches!(location(server), Location::Server(_) | Location::Unknown(_)))
}

/// Returns the state file that `--state` or `$KLOOP_STATE` names.
pub fn own_state(globals: &Globals) -> Option<PathBuf> {
    let variable = || std::env::var_os("KLOOP_STATE").filter(|path| !path.is_empty()).map(PathBuf::from);
    globals.state.clone().or_else(variable)
}

/// Returns the file of a state: that of a state on etcd is its replica on this machine.
fn state_file(state: PathBuf) -> CliResult<PathBuf> {
    match state.to_str().filter(|text| store::is_etcd(text)) {
        Some(address) => Ok(store::prepare_replica(address)?),
        None => Ok(state),
    }
}

/// Chooses the cluster. `config` names entries with the flags, so that they choose nothing there.
pub fn choose(globals: &Globals, verb: &str) -> CliResult<ClusterChoice> {
    if verb == "config" {
        return Ok(ClusterChoice::without_context(own_state(globals).unwrap_or_else(store::default_path)));
    }
    // `kloop serve` writes the file.
    let file = globals.kubeconfig.as_deref().filter(|file| verb != "serve" && !file.as_os_str().is_empty());
    let flag = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let mut asked = AskedNames {
        context: flag(&globals.context),
        cluster: flag(&globals.cluster),
        user: flag(&globals.user).filter(|_| !WITH_OWN_USER.contains(&verb)),
        // A file in a flag wins over the variable.
        own: state_in_flag(globals)
            .or_else(|| own_state(globals).filter(|_| file.is_none()))
            .map(state_file)
            .transpose()?,
        is_fixed: state_in_flag(globals).is_some(),
        names_server: names_server(globals),
    };
    if asked.is_fixed && asked.names_server {
        return Err(Failure::plain("--state names a file, and --server a server\nhint: leave one of the flags out"));
    }
    let path = ConfigFile::find_path(file);
    if asked.has_aliases() {
        asked.drop_aliases(&ConfigFile::load(&path)?);
    }
    if let Some(state) = &asked.own
        && asked.context.iter().chain(&asked.cluster).all(|name| is_name_of(state, name))
    {
        (asked.context, asked.cluster) = (None, None);
        if asked.user.is_none() {
            let server = asked.names_server.then(ServerEntries::default);
            return Ok(ClusterChoice { server, ..ClusterChoice::without_context(state.clone()) });
        }
    }
    let read = ConfigFile::load(&path)?;
    if let Some(file) = file.filter(|_| asked.own.is_none() && asked.context.is_none() && asked.cluster.is_none())
        && read.current.is_empty()
        && !asked.names_server
    {
        let problem =
            format!("{} has no current context\nhint: name one of its contexts with --context", file.display());
        return Err(Failure::plain(problem));
    }
    // kloop's own verbs make a state, also in a pod.
    if is_kubectl_verb(verb)
        && asked.names_nothing()
        && read.current.is_empty()
        && !store::default_path().exists()
        && let Some(PodCluster { server, namespace }) = in_cluster::find_pod_cluster()
    {
        let server = Some(server);
        return Ok(ClusterChoice { server, namespace, ..ClusterChoice::without_context(store::default_path()) });
    }
    asked.resolve(&read)
}

/// Whether a command without flags opens this state file, in a terminal without this one's variables.
pub fn is_found_without_flags(state: &Path) -> bool {
    let chosen = choose(&Globals::default(), "");
    std::env::var_os("KLOOP_STATE").is_none() && chosen.is_ok_and(|chosen| is_same_path(&chosen.state, state))
}

/// Whether a state file has this name without an entry in the file of contexts.
fn is_name_of(state: &Path, name: &str) -> bool {
    name == context_settings::context_name(state) || name == context_settings::usual_name(state)
}

/// The names in flags, and the state file of `--state` or `$KLOOP_STATE`.
struct AskedNames {
    context: Option<String>,
    cluster: Option<String>,
    user: Option<String>,
    own: Option<PathBuf>,
    /// Whether no context may choose another state file: a flag names it.
    is_fixed: bool,
    /// Whether a flag names a server.
    names_server: bool,
}

/// The place of a cluster.
enum ClusterPlace {
    /// A state file.
    State(PathBuf),
    /// A server, with the entry of its cluster.
    Server(Map<String, Value>),
}

impl AskedNames {
    /// Whether no flag and no variable names a cluster or a user.
    fn names_nothing(&self) -> bool {
        let names = [&self.context, &self.cluster, &self.user];
        self.own.is_none() && names.iter().all(|name| name.is_none()) && !self.names_server
    }

    /// Whether an asked name is an alias for the command's own cluster or user: scripts use the names of the kubeconfigs of `kloop serve`.
    fn has_aliases(&self) -> bool {
        let is_own = |name: &String| name == kubeconfig::NAME;
        self.context.iter().chain(&self.cluster).any(is_own) || self.user.as_deref().is_some_and(is_alias_of_user)
    }

    /// Drops the aliases. A name with an entry in the file is none.
    fn drop_aliases(&mut self, file: &ConfigFile) {
        let is_entry = |entries: &Entries, name: &String| name != kubeconfig::NAME || entries.contains_key(name);
        self.context.take_if(|name| !is_entry(&file.contexts, name));
        self.cluster.take_if(|name| !is_entry(&file.clusters, name));
        self.user.take_if(|name| is_alias_of_user(name) && !file.users.contains_key(name));
    }

    fn resolve(&self, file: &ConfigFile) -> CliResult<ClusterChoice> {
        let state = self.own.clone().unwrap_or_else(store::default_path);
        let current = Some(file.current.as_str()).filter(|name| self.own.is_none() && !name.is_empty());
        let name = self.context.as_deref().or(current);
        let entry = name.and_then(|name| file.contexts.get(name));
        if let (Some(name), None) = (name, entry)
            && !is_name_of(&state, name)
        {
            return Err(self.missing_context(name, &state, file));
        }
        let context = name.filter(|_| entry.is_some()).map(str::to_owned);
        let field = |field: &str| entry.map(|entry| ConfigFile::text(entry, field)).filter(|text| !text.is_empty());
        let cluster = self.cluster.as_deref().or_else(|| field("cluster"));
        let place = match (cluster, &context) {
            (Some(cluster), _) => self.place_of_cluster(cluster, context.as_deref(), &state, file)?,
            (None, None) => ClusterPlace::State(state.clone()),
            (None, Some(context)) => {
                return Err(Failure::plain(format!(
                    "context {context:?} has no cluster\nhint: kloop config set-context {context} --state FILE gives it the state file FILE"
                )));
            }
        };
        let user = self.user.as_deref().or_else(|| field("user"));
        let namespace = field("namespace").map(str::to_owned);
        match place {
            ClusterPlace::Server(cluster) if !self.is_fixed => {
                let user = user_entry(user, self.user.is_some(), context.as_deref(), file)?;
                let server = Some(ServerEntries { cluster, user, folder: file.folder() });
                Ok(ClusterChoice { namespace, state, context, server, user: Map::new() })
            }
            // A server in a flag has nothing to do with a context that is chosen without one.
            ClusterPlace::State(_) if self.names_server && self.context.is_none() && self.cluster.is_none() => {
                let user = self.user.as_deref();
                let user = user_entry(user, self.user.is_some(), None, file)?;
                let server = Some(ServerEntries { user, folder: file.folder(), ..ServerEntries::default() });
                Ok(ClusterChoice { server, ..ClusterChoice::without_context(state) })
            }
            place => {
                let chosen = self.check_place(place, &state)?;
                let user = user_entry(user, self.user.is_some(), context.as_deref(), file)?;
                check_user_of_state(self.user.as_deref().or_else(|| field("user")), &user)?;
                Ok(ClusterChoice { user, namespace, state: chosen, context, server: None })
            }
        }
    }

    /// Refuses a context of another place than that which a flag names. Returns the state file.
    fn check_place(&self, place: ClusterPlace, state: &Path) -> CliResult<PathBuf> {
        let contradiction = |flag: &str, one: &str, other: &str| {
            let hint = "hint: leave one of the flags out";
            Err(Failure::plain(format!("{flag} names {one}, but the context names {other}\n{hint}")))
        };
        let own = || format!("the file {}", state.display());
        match place {
            ClusterPlace::Server(cluster) => contradiction("--state", &own(), ConfigFile::text(&cluster, "server")),
            ClusterPlace::State(chosen) if self.names_server => {
                contradiction("--server", "a server", &format!("the file {}", chosen.display()))
            }
            ClusterPlace::State(chosen) if self.is_fixed && !is_same_path(&chosen, state) => {
                contradiction("--state", &own(), &chosen.display().to_string())
            }
            ClusterPlace::State(chosen) => Ok(chosen),
        }
    }

    /// Returns the place of a cluster entry. `own`: the state file without an entry.
    fn place_of_cluster(
        &self,
        name: &str,
        context: Option<&str>,
        own: &Path,
        file: &ConfigFile,
    ) -> CliResult<ClusterPlace> {
        let Some(entry) = file.clusters.get(name) else {
            return match context {
                _ if is_name_of(own, name) => Ok(ClusterPlace::State(own.to_owned())),
                Some(context) if self.cluster.is_none() => Err(Failure::Bare(format!(
                    "Error in configuration: cluster {name:?} was not found for context {context:?}"
                ))),
                _ => Err(not_known("cluster", name, own, file)),
            };
        };
        let what = context.map_or_else(|| format!("cluster {name:?}"), |context| format!("context {context:?}"));
        let problem = match Location::parse(ConfigFile::text(entry, "server"), &file.folder()) {
            Location::File(path) => return Ok(ClusterPlace::State(path)),
            Location::Etcd(address) => return state_file(address.into()).map(ClusterPlace::State),
            Location::Server(_) => return Ok(ClusterPlace::Server(entry.clone())),
            Location::Unknown(server) => {
                format!("{what} has the server {server}, which is neither a file nor an address of HTTP")
            }
            Location::Missing if self.names_server => return Ok(ClusterPlace::Server(entry.clone())),
            Location::Missing => format!(
                "{what} has no server\nhint: kloop config set-cluster {name} --server=FILE gives it the state file FILE"
            ),
        };
        Err(Failure::plain(problem))
    }

    fn missing_context(&self, name: &str, state: &Path, file: &ConfigFile) -> Failure {
        if self.context.is_some() {
            return not_known("context", name, state, file);
        }
        Failure::Bare(format!(
            "Error in configuration: context was not found for specified context: {name}\nhint: kloop config use-context NAME chooses \
             another, kloop config get-contexts lists them"
        ))
    }
}

/// Whether two paths name one file.
fn is_same_path(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_default();
    real(one) == real(other)
}

/// Whether a user without an entry is the user of a state file.
fn is_alias_of_user(name: &str) -> bool {
    [USER, kubeconfig::NAME].contains(&name)
}

/// Returns the entry of a user.
fn user_entry(
    name: Option<&str>,
    is_asked: bool,
    context: Option<&str>,
    file: &ConfigFile,
) -> CliResult<Map<String, Value>> {
    let Some(name) = name else { return Ok(Map::new()) };
    let Some(entry) = file.users.get(name) else {
        return match context {
            _ if is_alias_of_user(name) => Ok(Map::new()),
            Some(context) if !is_asked => Err(Failure::Bare(format!(
                "Error in configuration: user {name:?} was not found for context {context:?}"
            ))),
            _ => Err(Failure::plain(format!(
                "auth info {name:?} does not exist\nhint: the user of a state file is {USER:?}: leave the flag out"
            ))),
        };
    };
    let exec = entry.get("exec").filter(|exec| exec["apiVersion"] == EXEC_V1 && !exec["interactiveMode"].is_string());
    if exec.is_some() {
        let text = format!("interactiveMode must be specified for {name} to use exec authentication plugin");
        return Err(Failure::plain(text));
    }
    Ok(entry.clone())
}

/// The version of credential plugins from which on they have to say whether they use the terminal.
const EXEC_V1: &str = "client.authentication.k8s.io/v1";

/// Refuses credentials for a state file, so that a command never runs with more rights than asked for.
fn check_user_of_state(name: Option<&str>, entry: &Map<String, Value>) -> CliResult {
    match CREDENTIALS.iter().find(|field| entry.contains_key(**field)) {
        Some(field) => Err(Failure::plain(format!(
            "user {:?} has a {field}, which a state file cannot check: everyone who can open the file has all rights\nhint: choose the \
             user {USER:?} (--user={USER}), or act with the rights of another with --as",
            name.unwrap_or_default()
        ))),
        None => Ok(()),
    }
}

/// The error for the name of a context or cluster in a flag, with a remedy.
fn not_known(what: &str, name: &str, state: &Path, file: &ConfigFile) -> Failure {
    let own = context_settings::context_name(state);
    let remedy = match file.contexts.is_empty() {
        true => format!(
            "the cluster is the file {}, its {what} is {own:?}: leave the flag out, \"kloop config rename-context {own} {name}\" gives it \
             that name, or name another file with --state",
            state.display()
        ),
        false => format!("kloop config get-{what}s lists all"),
    };
    match what {
        "context" => Failure::Bare(format!(
            "Error in configuration: context was not found for specified context: {name}\nhint: {remedy}"
        )),
        _ => Failure::plain(format!("no server found for {what} {name:?}\nhint: {remedy}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
current-context: shop
clusters:
- {name: shop, cluster: {server: 'file:///a/shop.db'}}
- {name: prod, cluster: {server: 'https://10.0.0.1:6443'}}
- {name: odd, cluster: {server: 'ftp://a'}}
contexts:
- {name: shop, context: {cluster: shop, namespace: blue}}
- {name: ann, context: {cluster: shop, user: ann}}
- {name: bob, context: {cluster: shop, user: bob}}
- {name: prod, context: {cluster: prod}}
- {name: odd, context: {cluster: odd}}
- {name: bare, context: {}}
- {name: lost, context: {cluster: gone}}
- {name: nobody, context: {cluster: shop, user: gone}}
users:
- {name: ann, user: {as: ann}}
- {name: bob, user: {token: x}}
";

    /// Chooses with flags, `--state` or not. The environment has no part in it.
    fn chosen(state: Option<&str>, is_fixed: bool, flags: [&str; 3]) -> Result<ClusterChoice, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, FILE).unwrap();
        let [context, cluster, user] = flags.map(|flag| Some(flag.to_owned()).filter(|flag| !flag.is_empty()));
        let own = state.map(PathBuf::from);
        let asked = AskedNames { context, cluster, user, own, is_fixed, names_server: false };
        asked.resolve(&ConfigFile::load(&path).unwrap()).map_err(|failure| failure.to_string())
    }

    #[test]
    fn context_chooses_state_file_namespace_and_user() {
        let shop = ClusterChoice {
            state: "/a/shop.db".into(),
            context: Some("shop".into()),
            namespace: Some("blue".into()),
            ..ClusterChoice::default()
        };
        assert_eq!(chosen(None, false, ["", "", ""]).as_ref(), Ok(&shop), "the current context");
        assert_eq!(
            chosen(Some("/b/x.db"), false, ["shop", "", ""]).as_ref(),
            Ok(&shop),
            "a flag wins over the variable"
        );
        assert_eq!(chosen(Some("/a/shop.db"), true, ["shop", "", ""]).as_ref(), Ok(&shop));
        let plain = ClusterChoice::without_context("/b/x.db".into());
        assert_eq!(
            chosen(Some("/b/x.db"), false, ["", "", ""]),
            Ok(plain),
            "the variable wins over the current context"
        );
        assert_eq!(chosen(None, false, ["ann", "", ""]).unwrap().user["as"], "ann");
        assert_eq!(chosen(Some("/b/x.db"), false, ["", "shop", ""]).unwrap().state, Path::new("/a/shop.db"));
        assert_eq!(chosen(None, false, ["bob", "", "ann"]).unwrap().user["as"], "ann");
    }

    #[test]
    fn context_chooses_a_server_with_the_credentials_of_its_user() {
        let prod = chosen(None, false, ["prod", "", "bob"]).unwrap();
        let server = prod.server.unwrap();
        assert_eq!(server.cluster["server"], "https://10.0.0.1:6443");
        assert_eq!((server.user["token"].as_str(), prod.user.is_empty()), (Some("x"), true));
        assert!(chosen(None, false, ["", "prod", ""]).unwrap().server.is_some());
        let error = chosen(Some("/b/x.db"), true, ["prod", "", ""]).unwrap_err();
        assert!(error.contains("--state names the file /b/x.db, but the context names https://10.0.0.1"), "{error}");
    }

    #[test]
    fn context_that_leads_nowhere_is_refused() {
        for (flags, problem) in [
            (["odd", "", ""], "error: context \"odd\" has the server ftp://a, which is neither"),
            (
                ["bare", "", ""],
                "error: context \"bare\" has no cluster\nhint: kloop config set-context bare --state FILE",
            ),
            (["lost", "", ""], "Error in configuration: cluster \"gone\" was not found for context \"lost\""),
            (["nobody", "", ""], "Error in configuration: user \"gone\" was not found for context \"nobody\""),
            (["bob", "", ""], "error: user \"bob\" has a token, which a state file cannot check"),
            (
                ["sea", "", ""],
                "Error in configuration: context was not found for specified context: sea\nhint: kloop config get-contexts lists",
            ),
            (["", "sea", ""], "error: no server found for cluster \"sea\"\nhint: kloop config get-clusters lists"),
            (["", "", "sea"], "error: auth info \"sea\" does not exist"),
        ] {
            let error = chosen(None, false, flags).unwrap_err();
            assert!(error.starts_with(problem), "{flags:?}: {error}");
        }
        let error = chosen(Some("/b/x.db"), true, ["shop", "", ""]).unwrap_err();
        assert!(
            error.starts_with("error: --state names the file /b/x.db, but the context names /a/shop.db\n"),
            "{error}"
        );
    }
}
