//! Checks the global flags: invalid values, identities, and verbs that need a state file.

use super::program_name::is_kubectl_verb;
use super::{flags, server_verbs};
use crate::apiserver::authorization::{AccessRequest, AccessedResource, check_access};
use crate::cli::cluster::contexts::{ServerEntries, USER};
use crate::cli::cluster::rest;
use crate::cli::{CliResult, CommandContext, Failure, Globals};
use crate::client::{RequestLog, ServerConfig};
use crate::joined_node;
use crate::object::time;
use std::path::Path;
use std::time::Duration;

/// The verbs of kloop's own that show objects of all kinds, and that change objects only through the API.
const ALL_READERS: [&str; 5] = ["history", "plan", "ps", "undo", "why"];

/// The verbs of kloop's own that do nothing but read and write objects through the API, which checks each.
const API_ONLY: [&str; 5] = ["dns", "image", "import", "open", "url"];

/// The verbs that may run on the copy of a joined node: they do not change it, or have their own rules for it.
const COPY_VERBS: [&str; 38] = [
    "api-resources",
    "api-versions",
    "attach",
    "auth",
    "backup",
    "cluster-info",
    "completion",
    "config",
    "cp",
    "dash",
    "describe",
    "diff",
    "dns",
    "down",
    "events",
    "exec",
    "explain",
    "get",
    "help",
    "history",
    "import",
    "kuberc",
    "kustomize",
    "logs",
    "node",
    "open",
    "options",
    "plan",
    "plugin",
    "port-forward",
    "ps",
    "reconcile",
    "state",
    "top",
    "tour",
    "url",
    "version",
    "why",
];

/// Verbs that run without a cluster, also where the flags or the current context choose none.
const WITHOUT_CLUSTER: [&str; 8] = ["completion", "help", "import", "kuberc", "kustomize", "options", "plugin", "tour"];

impl Globals {
    /// Returns the time limit of a request; `None` means no limit. A number without a unit is seconds.
    pub fn request_timeout(&self) -> CliResult<Option<Duration>> {
        let text = self.request_timeout.as_str();
        if text.is_empty() {
            return Ok(None);
        }
        if let Ok(seconds) = text.parse() {
            return Ok(Some(Duration::from_secs(seconds)).filter(|timeout| !timeout.is_zero()));
        }
        time::parse_duration(text).map(flags::nonzero).map_err(|_| {
            Failure::plain(
                "Invalid timeout value. Timeout must be a single integer in seconds, or an integer followed by a corresponding time \
                 unit (e.g. 1s | 2m | 3h)",
            )
        })
    }
}

/// Refuses invalid values and clusters that do not exist.
pub fn check(context: &mut CommandContext, verb: &str) -> CliResult {
    let globals = context.globals.clone();
    globals.request_timeout()?;
    check_level(globals.v.as_deref())?;
    if verb == "config" {
        // Its flags are values to store.
        return Ok(());
    }
    if let Some(file) = globals.kubeconfig.as_deref().filter(|file| verb != "serve" && *file != Path::new(""))
        && !file.exists()
    {
        return Err(Failure::plain(format!("stat {}: no such file or directory", file.display())));
    }
    // `debug` has a flag of the same name.
    if verb != "debug" {
        globals.debugging.check().map_err(Failure::plain)?;
    }
    if let Some(failure) = context.take_missing_cluster().filter(|_| !WITHOUT_CLUSTER.contains(&verb)) {
        return Err(failure);
    }
    if let Some(entries) = context.take_server().filter(|_| !WITHOUT_CLUSTER.contains(&verb))
        && !is_served_here(&entries, context)?
    {
        let config = server_config(&entries, context)?;
        server_verbs::check(verb, &config)?;
        check_impersonation(&globals)?;
        return context.connect(config);
    }
    check_identity(context, verb)?;
    check_copy(context, verb)?;
    if ALL_READERS.contains(&verb) && context.is_impersonating() {
        check_reads_all(context)?;
    }
    Ok(())
}

/// Returns the configuration of a client with the flags and preferences of the command.
pub fn server_config(entries: &ServerEntries, context: &CommandContext) -> CliResult<ServerConfig> {
    let mut config = entries.config(&context.globals)?;
    config.credentials.restrict_plugin(&context.plugin_policy, reads_stdin());
    config.log = RequestLog::at_level(level(context.globals.v.as_deref()));
    Ok(config)
}

/// Refuses changes of the copy of a joined node, which its server would undo, or never hear of.
fn check_copy(context: &CommandContext, verb: &str) -> CliResult {
    let state = context.state();
    if COPY_VERBS.contains(&verb) || !joined_node::is_copy(&state) {
        return Ok(());
    }
    let (node, server) = joined_node::known_membership(&state).map_err(Failure::plain)?.unwrap_or_default();
    Err(Failure::plain(format!(
        "\"kloop {verb}\" may change objects, and {} is the copy of the node {node}: its objects are those of {server}\nhint: give the \
         command that server (kloop help servers)",
        state.display()
    )))
}

/// Whether a server in a flag is that of the command's own state file, which then is opened without it: a command for another cluster is
/// not run on this one.
fn is_served_here(entries: &ServerEntries, context: &mut CommandContext) -> CliResult<bool> {
    let globals = &context.globals;
    let has_more =
        [&globals.token, &globals.context, &globals.cluster, &globals.user].iter().any(|flag| flag.is_some());
    let server = globals.server.clone().unwrap_or_default();
    if has_more || globals.kubeconfig.is_some() || *entries != ServerEntries::default() || server.is_empty() {
        return Ok(false);
    }
    // A state file that cannot be opened serves nothing.
    let has_state = context.existing().is_ok_and(|api| api.is_some());
    Ok(has_state && rest::address(context)? == server.trim_end_matches('/'))
}

/// Refuses --token and --as where they cannot be enforced, so that a command never runs with more rights than asked for.
fn check_identity(context: &CommandContext, verb: &str) -> CliResult {
    let globals = &context.globals;
    let is_set = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    // `kloop node join` shows it to the server.
    let flag = if is_set(&globals.username) { "--username" } else { "--token" };
    if is_set(&globals.username) || is_set(&globals.token) && verb != "node" {
        return Err(Failure::plain(format!(
            "{flag} is not supported: the cluster is a file, and everyone who can open it has all rights\nhint: leave the flag out, or name \
             the server that takes it with --server",
        )));
    }
    check_impersonation(globals)?;
    let user = globals.as_user.as_deref().filter(|user| !user.is_empty());
    if context.is_impersonating() && !is_kubectl_verb(verb) && !ALL_READERS.contains(&verb) && !API_ONLY.contains(&verb)
    {
        return Err(Failure::plain(format!(
            "{} is not supported by \"kloop {verb}\": it acts on this machine or on the whole state file, which the rights of a \
             user do not cover\nhint: {}: everyone who can open the state file has all rights",
            if user.is_some() { "--as" } else { "the context's user" },
            if user.is_some() { "leave the flag out".into() } else { format!("add --user={USER}") }
        )));
    }
    Ok(())
}

/// Refuses groups or a uid without a user.
fn check_impersonation(globals: &Globals) -> CliResult {
    let is_set = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    let has_more = !globals.as_group.is_empty() || !globals.as_user_extra.is_empty() || is_set(&globals.as_uid);
    if !is_set(&globals.as_user) && has_more {
        return Err(Failure::plain(format!(
            "requesting uid, groups or user-extra for {USER} without impersonating a user"
        )));
    }
    Ok(())
}

/// Refuses a user who may not list objects of all kinds.
fn check_reads_all(context: &mut CommandContext) -> CliResult {
    let user = context.user();
    let everything =
        AccessedResource { group: "*".to_owned(), resource: "*".to_owned(), ..AccessedResource::default() };
    let request = AccessRequest::for_resource("list", everything);
    context.read_view(|txn| check_access(txn, &user, &request).map(drop))?;
    Ok(())
}

/// Whether the command line reads standard input.
fn reads_stdin() -> bool {
    let mut words = std::env::args_os().take_while(|word| word != "--");
    words.any(|word| ["-", "-f-", "--filename=-"].iter().any(|input| word == *input))
}

/// Returns the level of `-v`; 0 for a boolean.
fn level(text: Option<&str>) -> u8 {
    let level: i32 = text.and_then(|text| text.parse().ok()).unwrap_or_default();
    u8::try_from(level.max(0)).unwrap_or(u8::MAX)
}

/// Accepts a number, or a boolean, because `-v` is a switch for some verbs.
fn check_level(text: Option<&str>) -> CliResult {
    let is_known = |text: &str| text.parse::<i32>().is_ok() || matches!(text, "true" | "false");
    match text.filter(|text| !is_known(text)) {
        None => Ok(()),
        Some(text) => Err(Failure::plain(format!(
            "invalid argument {text:?} for \"-v, --v\" flag: strconv.ParseInt: parsing {text:?}: invalid syntax"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(verb: &str, set: impl FnOnce(&mut Globals)) -> Result<(), String> {
        let state = Some("/nowhere/shop/state.db".into());
        let mut globals = Globals { state, request_timeout: "0".into(), ..Globals::default() };
        set(&mut globals);
        check(&mut CommandContext::new(globals, verb), verb).map_err(|failure| failure.to_string())
    }

    #[test]
    fn names_of_other_clusters_are_refused() {
        for name in ["shop", "kloop", ""] {
            assert_eq!(checked("get", |globals| globals.context = Some(name.into())), Ok(()));
        }
        let text = checked("get", |globals| globals.context = Some("prod".into())).unwrap_err();
        assert!(
            text.starts_with("Error in configuration: context was not found for specified context: prod\nhint: the cluster is the file /nowhere/shop"),
            "{text}"
        );
        assert!(checked("get", |globals| globals.cluster = Some("prod".into())).is_err());
        assert!(checked("get", |globals| globals.user = Some("jane".into())).is_err());
        assert_eq!(checked("image", |globals| globals.user = Some("1000".into())), Ok(()), "a flag of the verb's own");
    }

    #[test]
    fn verbs_that_act_on_the_machine_refuse_another_user() {
        let as_user = |verb: &str| checked(verb, |globals| globals.as_user = Some("ann".into()));
        for verb in ["get", "url", "dns", "image", "open", "import"] {
            assert_eq!(as_user(verb), Ok(()), "{verb}");
        }
        for verb in ["up", "down", "reconcile", "backup", "state", "node", "dash", "kubeconfig"] {
            let text = as_user(verb).unwrap_err();
            assert!(text.contains(&format!("--as is not supported by \"kloop {verb}\"")), "{text}");
        }
    }

    #[test]
    fn levels_and_timeouts_are_those_of_kubectl() {
        let level = |text: &str| checked("get", |globals| globals.v = Some(text.into()));
        assert_eq!((level("6"), level("true")), (Ok(()), Ok(())));
        let text = level("x").unwrap_err();
        assert_eq!(
            text,
            "error: invalid argument \"x\" for \"-v, --v\" flag: strconv.ParseInt: parsing \"x\": invalid syntax"
        );
        let timeout = |text: &str| checked("get", |globals| globals.request_timeout = text.into());
        assert_eq!([timeout("5"), timeout("5s"), timeout("0"), timeout("")], [const { Ok(()) }; 4]);
        assert!(timeout("soon").unwrap_err().starts_with("error: Invalid timeout value."));
    }

    #[test]
    fn missing_kubeconfig_is_refused() {
        let text = checked("get", |globals| globals.kubeconfig = Some("/nowhere/config".into()));
        assert_eq!(text.unwrap_err(), "error: stat /nowhere/config: no such file or directory");
        assert_eq!(checked("serve", |globals| globals.kubeconfig = Some("/nowhere/config".into())), Ok(()));
    }
}
