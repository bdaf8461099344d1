//! The contexts of `kloop config`: list, choose, make, change, rename and delete them.

use super::entries::DeleteArgs;
use super::loaded::{LoadedConfig, put, unexpected};
use crate::cli::cluster::context_settings;
use crate::cli::cluster::contexts::{ConfigFile, absolute_server};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds;
use crate::show::columns;

/// Describe one or many contexts.
#[derive(clap::Args)]
#[command(
    override_usage = "[(-o|--output=)name)]",
    after_help = "\
# List all the contexts
kloop config get-contexts

# Describe one context
kloop config get-contexts shop"
)]
pub struct GetContextsArgs {
    /// Names of contexts; all if none is given.
    contexts: Vec<String>,
    /// When using the default output format, don't print headers.
    #[arg(long)]
    no_headers: bool,
    /// Output format. One of: (name).
    #[arg(short, long, value_name = "FORMAT", default_value = "")]
    output: String,
}

/// Rename a context from the kubeconfig file: scripts that name a context then mean this one.
#[derive(clap::Args)]
#[command(
    override_usage = "CONTEXT_NAME NEW_NAME",
    after_help = "\
# Let scripts that say \"--context kind-dev\" mean this cluster
kloop config rename-context default kind-dev"
)]
pub struct RenameContextArgs {
    /// The context's name and the new one.
    contexts: Vec<String>,
}

/// Set a context entry in kubeconfig.
///
/// Specifying a name that already exists will merge new fields on top of existing values for those fields. With --state, the
/// context gets a cluster entry for that file.
#[derive(clap::Args)]
#[command(
    override_usage = "[NAME | --current] [--state=FILE] [--cluster=cluster_nickname] [--user=user_nickname] \
                      [--namespace=namespace]",
    after_help = "\
# Make the context \"shop\" for a state file, and use it from now on
kloop config set-context shop --state ~/shop/state.db
kloop config use-context shop

# Use the namespace \"backend\" when none is asked for
kloop config set-context --current --namespace=backend

# A second context of the same cluster, with the rights of ann
kloop config set users.ann.as ann
kloop config set-context shop-ann --cluster=shop --user=ann"
)]
pub struct SetContextArgs {
    /// The context's name, or --current.
    contexts: Vec<String>,
    /// Modify the current context.
    #[arg(long)]
    current: bool,
    /// cluster for the context entry in kubeconfig
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// user for the context entry in kubeconfig
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// namespace for the context entry in kubeconfig
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
}

/// Set the current-context in a kubeconfig file: the one that commands use without --context.
#[derive(clap::Args)]
#[command(
    override_usage = "CONTEXT_NAME",
    after_help = "\
# Use the context for the shop cluster
kloop config use-context shop"
)]
pub struct UseContextArgs {
    /// The context's name.
    contexts: Vec<String>,
}

/// Prints the name of the current context.
pub fn print_current(config: &LoadedConfig, context: &mut CommandContext) -> CliResult {
    match config.current() {
        "" => Err(Failure::plain("current-context is not set")),
        current => context.print_line(current),
    }
}

/// Prints the contexts as a table, or their names.
pub fn print_all(args: &GetContextsArgs, config: &LoadedConfig, context: &mut CommandContext) -> CliResult {
    if !matches!(args.output.as_str(), "" | "name") {
        return Err(Failure::plain(format!("output must be one of '' or 'name': {}", args.output)));
    }
    let merged = config.merged(context);
    let unknown = args.contexts.iter().filter(|name| !merged.contexts.contains_key(*name));
    let failures: Vec<Failure> = unknown.map(|name| Failure::plain(format!("context {name} not found"))).collect();
    let wanted = |name: &&String| args.contexts.is_empty() || args.contexts.contains(name);
    let names: Vec<&String> = merged.contexts.keys().filter(wanted).collect();
    let text = if args.output == "name" {
        names.iter().map(|name| format!("{name}\n")).collect()
    } else {
        let head = if args.no_headers { "" } else { "CURRENT\tNAME\tCLUSTER\tAUTHINFO\tNAMESPACE\n" };
        let rows = names.iter().map(|name| {
            let mark = if **name == merged.current { "*" } else { " " };
            let [cluster, user, namespace] =
                ["cluster", "user", "namespace"].map(|field| ConfigFile::text(&merged.contexts[*name], field));
            format!("{mark}\t{name}\t{cluster}\t{user}\t{namespace}\n")
        });
        columns::align(&format!("{head}{}", rows.collect::<String>()), columns::TABLE)
    };
    if !names.is_empty() || failures.is_empty() {
        context.print(&text)?;
    }
    Failure::from_failures(failures)
}

/// Makes or changes a context.
pub fn set(args: &SetContextArgs, config: &LoadedConfig, context: &mut CommandContext) -> CliResult {
    let name = match &args.contexts[..] {
        [] if !args.current => return Err(Failure::plain("you must specify a non-empty context name or --current")),
        [] if config.current().is_empty() => return Err(Failure::plain("no current context is set")),
        [] => config.current().to_owned(),
        [_] if args.current => return Err(Failure::plain("you cannot specify both a context name and --current")),
        [name] if name.is_empty() => {
            return Err(Failure::plain("you must specify a non-empty context name or --current"));
        }
        [name] => name.clone(),
        several => return Err(unexpected(several)),
    };
    check_namespace(args.namespace.as_deref())?;
    // A name with --state makes an entry for that file.
    let state = context.globals.state.clone().filter(|_| !args.current);
    if let Some(own) = config.own(&name).filter(|_| state.is_none()) {
        if args.cluster.as_ref().is_some_and(|cluster| *cluster != name) || args.user.is_some() {
            return Err(config.refuse_own(&format!("set the cluster or the user of context {name:?}"), own));
        }
        if let Some(namespace) = &args.namespace {
            context.set_default_namespace(namespace)?;
        }
        return context.print_line(&format!("Context {name:?} modified."));
    }
    check_name(&name)?;
    let server = state.map(|state| absolute_server(&format!("file://{}", state.display())));
    let cluster = args.cluster.clone().or_else(|| server.as_ref().map(|_| name.clone()));
    let is_new = config.change(|file| {
        if let (Some(server), Some(cluster)) = (&server, &cluster) {
            put(file.clusters.entry(cluster.clone()).or_default(), "server", Some(server));
        }
        let is_new = !file.contexts.contains_key(&name);
        let entry = file.contexts.entry(name.clone()).or_default();
        put(entry, "cluster", cluster.as_deref());
        put(entry, "user", args.user.as_deref());
        put(entry, "namespace", args.namespace.as_deref());
        Ok(is_new)
    })?;
    context.print_line(&format!("Context {name:?} {}.", if is_new { "created" } else { "modified" }))
}

/// Refuses a namespace that cannot exist.
pub fn check_namespace(namespace: Option<&str>) -> CliResult {
    let namespace = namespace.unwrap_or_default();
    let problems = if namespace.is_empty() { Vec::new() } else { kinds::shared::names::label(namespace) };
    match problems.first() {
        Some(problem) => Err(Failure::plain(format!("invalid namespace {namespace:?}: {problem}"))),
        None => Ok(()),
    }
}

fn check_name(name: &str) -> CliResult {
    if context_settings::is_name(name) {
        return Ok(());
    }
    Err(Failure::plain(format!(
        "invalid context name {name:?}: it is one line of at most {} bytes",
        context_settings::MAX_NAME_LENGTH
    )))
}

/// Renames a context.
pub fn rename(args: &RenameContextArgs, config: &LoadedConfig, context: &mut CommandContext) -> CliResult {
    let [old, new] = &args.contexts[..] else { return Err(unexpected(&args.contexts)) };
    if new.is_empty() {
        return Err(Failure::plain("You must specify a new non-empty context name"));
    }
    check_name(new)?;
    let path = config.path();
    if !config.has_context(old) {
        return Err(Failure::plain(format!("cannot rename the context {old:?}, it's not in {path}")));
    }
    if config.has_context(new) {
        let problem = format!("cannot rename the context {old:?}, the context {new:?} already exists in {path}");
        return Err(Failure::plain(problem));
    }
    let is_own = config.own(old).is_some();
    if is_own {
        context.rename_context(new)?;
    }
    if !is_own || (config.file.current == *old && !config.is_fixed) {
        config.change(|file| {
            if let Some(entry) = file.contexts.remove(old).filter(|_| !is_own) {
                file.contexts.insert(new.clone(), entry);
            }
            if file.current == *old {
                file.current = new.clone();
            }
            Ok(())
        })?;
    }
    context.print_line(&format!("Context {old:?} renamed to {new:?}."))
}

/// Deletes a context.
pub fn delete(args: &DeleteArgs, config: &LoadedConfig, context: &mut CommandContext) -> CliResult {
    let name = args.name()?;
    if let Some(own) = config.own(name) {
        return Err(config.refuse_own(&format!("delete context {name}"), own));
    }
    if !config.file.contexts.contains_key(name) {
        return Err(Failure::plain(format!("cannot delete context {name}, not in {}", config.path())));
    }
    if config.current() == name {
        context.print_notice(
            "warning: this removed your active context, use \"kloop config use-context\" to select a different one",
        );
    }
    config.change(|file| {
        file.contexts.remove(name);
        Ok(())
    })?;
    context.print_line(&format!("deleted context {name} from {}", config.path()))
}

/// Makes a context the current one.
pub fn choose(args: &UseContextArgs, config: &LoadedConfig, context: &mut CommandContext) -> CliResult {
    let [name] = &args.contexts[..] else { return Err(unexpected(&args.contexts)) };
    if name.is_empty() {
        return Err(Failure::plain("empty context names are not allowed"));
    }
    if !config.has_context(name) {
        return Err(Failure::plain(format!(
            "no context exists with the name: {name:?}\nhint: kloop config set-context {name} --state FILE makes one for the state file FILE"
        )));
    }
    set_current(name, config, context)?;
    context.print_line(&format!("Switched to context {name:?}."))
}

/// Stores the name of the current context. Says so where it has no effect yet.
pub fn set_current(name: &str, config: &LoadedConfig, context: &mut CommandContext) -> CliResult {
    if config.current() == name {
        return Ok(());
    }
    config.change(|file| {
        name.clone_into(&mut file.current);
        Ok(())
    })?;
    if config.is_fixed {
        let what = if context.globals.state.is_some() { "--state" } else { "KLOOP_STATE" };
        context.print_notice(&format!("hint: {what} wins over the current context: commands use {name:?} without it"));
    }
    Ok(())
}
