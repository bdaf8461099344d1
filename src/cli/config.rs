//! `kloop config`: contexts, the names of state files with a namespace and a user.
//!
//! Each subcommand reads [`LoadedConfig`], and changes the file of contexts as kubectl changes a kubeconfig. A state file that is
//! used without a context is a context itself, whose name and namespace are stored in the state's folder.
//! Never: opens the state; reads only these settings.

mod context_entries;
mod credentials;
mod entries;
mod loaded;
mod property;
mod view;

use super::{CliResult, CommandContext};
use clap::Subcommand;
use loaded::LoadedConfig;

/// Show and change the contexts: state files with a default namespace.
///
/// The contexts are in the file of --kubeconfig, else of $KLOOP_CONFIG, else ~/.config/kloop/config. It has the form of a
/// kubeconfig; the server of a cluster is the path of a state file. The file of kubectl's own contexts (~/.kube/config) is for
/// servers, and is not read.
#[derive(clap::Args)]
#[command(override_usage = "SUBCOMMAND")]
pub struct Args {
    #[command(subcommand)]
    verb: ConfigVerb,
}

#[derive(Subcommand)]
enum ConfigVerb {
    /// Display the current-context.
    #[command(after_help = "\
# Display the current-context
kloop config current-context")]
    CurrentContext,
    /// Delete the specified cluster from the kubeconfig. Its state file stays.
    #[command(
        override_usage = "NAME",
        after_help = "\
# Delete the shop cluster
kloop config delete-cluster shop"
    )]
    DeleteCluster(entries::DeleteArgs),
    /// Delete the specified context from the kubeconfig.
    #[command(
        override_usage = "NAME",
        after_help = "\
# Delete the context for the shop cluster
kloop config delete-context shop"
    )]
    DeleteContext(entries::DeleteArgs),
    /// Delete the specified user from the kubeconfig.
    #[command(
        override_usage = "NAME",
        after_help = "\
# Delete the user ann
kloop config delete-user ann"
    )]
    DeleteUser(entries::DeleteArgs),
    GetClusters(entries::GetClustersArgs),
    GetContexts(context_entries::GetContextsArgs),
    GetUsers(entries::GetUsersArgs),
    RenameContext(context_entries::RenameContextArgs),
    Set(property::SetArgs),
    SetCluster(entries::SetClusterArgs),
    SetContext(context_entries::SetContextArgs),
    SetCredentials(credentials::SetCredentialsArgs),
    Unset(property::UnsetArgs),
    #[command(visible_alias = "use")]
    UseContext(context_entries::UseContextArgs),
    View(view::ConfigViewArgs),
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let config = LoadedConfig::load(&context.globals)?;
    match args.verb {
        ConfigVerb::CurrentContext => context_entries::print_current(&config, context),
        ConfigVerb::DeleteCluster(args) => entries::delete_cluster(&args, &config, context),
        ConfigVerb::DeleteContext(args) => context_entries::delete(&args, &config, context),
        ConfigVerb::DeleteUser(args) => entries::delete_user(&args, &config, context),
        ConfigVerb::GetClusters(_) => entries::print_names(&config.merged(context).clusters, context),
        ConfigVerb::GetContexts(args) => context_entries::print_all(&args, &config, context),
        ConfigVerb::GetUsers(_) => entries::print_names(&config.merged(context).users, context),
        ConfigVerb::RenameContext(args) => context_entries::rename(&args, &config, context),
        ConfigVerb::Set(args) => property::set(&args, &config, context),
        ConfigVerb::SetCluster(args) => entries::set_cluster(&args, &config, context),
        ConfigVerb::SetContext(args) => context_entries::set(&args, &config, context),
        ConfigVerb::SetCredentials(args) => credentials::set(&args, &config, context),
        ConfigVerb::Unset(args) => property::unset(&args, &config, context),
        ConfigVerb::UseContext(args) => context_entries::choose(&args, &config, context),
        ConfigVerb::View(args) => view::print(&args, &config, context),
    }
}
