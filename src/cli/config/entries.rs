//! The clusters, users and contexts of `kloop config`: one of each, which follow from the state file.

use super::USER;
use crate::cli::{CliResult, CommandContext, Failure};

/// Display clusters defined in the kubeconfig.
#[derive(clap::Args)]
#[command(after_help = "\
# List the only cluster
kloop config get-clusters")]
pub struct GetClustersArgs {}

/// Display users defined in the kubeconfig.
#[derive(clap::Args)]
#[command(after_help = "\
# List the only user
kloop config get-users")]
pub struct GetUsersArgs {}

/// Set a cluster entry: refused, because the cluster is a file. Choose another with --state or $KLOOP_STATE.
#[derive(clap::Args)]
#[command(
    override_usage = "NAME",
    after_help = "\
# Be told where the cluster comes from
kloop config set-cluster e2e --server=https://1.2.3.4"
)]
pub struct SetClusterArgs {
    /// The cluster's name, and kubectl's flags.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "NAME")]
    words: Vec<String>,
}

/// Set a user entry: refused, because who can open the cluster's file is its administrator.
#[derive(clap::Args)]
#[command(
    override_usage = "NAME",
    after_help = "\
# Be told who the user is
kloop config set-credentials cluster-admin --token=bearer"
)]
pub struct SetCredentialsArgs {
    /// The user's name, and kubectl's flags.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "NAME")]
    words: Vec<String>,
}

/// Delete the specified entry: refused for the only one there is.
#[derive(clap::Args)]
#[command(
    override_usage = "NAME",
    after_help = "\
# Be told how a cluster is deleted
kloop config delete-cluster minikube"
)]
pub struct DeleteArgs {
    /// The name of the entry.
    names: Vec<String>,
}

/// Prints a heading and the only name below it.
pub fn print_names(context: &mut CommandContext, name: &str) -> CliResult {
    context.print(&format!("NAME\n{name}\n"))
}

/// Refuses to set a cluster.
pub fn set_cluster(args: &SetClusterArgs, context: &CommandContext) -> CliResult {
    let state = context.state();
    let why = format!("the cluster is the file {}; name another file with --state or KLOOP_STATE", state.display());
    set("cluster", &args.words, &why)
}

/// Refuses to set a user.
pub fn set_credentials(args: &SetCredentialsArgs, context: &CommandContext) -> CliResult {
    let state = context.state();
    let why = format!("the only user is {USER:?}: who can open the file {} is its administrator", state.display());
    set("user", &args.words, &why)
}

fn set(what: &str, words: &[String], why: &str) -> CliResult {
    match words {
        [name, ..] if !name.starts_with('-') => Err(Failure::plain(format!("cannot set {what} {name:?}: {why}"))),
        _ => Err(Failure::plain(format!("Unexpected args: [{}]", words.join(" ")))),
    }
}

/// Refuses to delete an entry. `own`: the name of the only one.
pub fn delete(what: &str, args: &DeleteArgs, own: &str, context: &CommandContext) -> CliResult {
    let [name] = &args.names[..] else {
        return Err(Failure::plain(format!("Unexpected args: [{}]", args.names.join(" "))));
    };
    let state = context.state();
    let folder = state.parent().unwrap_or(&state);
    if name != own {
        return Err(Failure::plain(format!("cannot delete {what} {name}, not in {}", state.display())));
    }
    Err(Failure::plain(format!(
        "cannot delete {what} {name}: it is the file {}; to end the cluster, stop its control plane and remove the \
         folder {}",
        state.display(),
        folder.display()
    )))
}
