//! `kloop cluster-info`: the address of the control plane, and a dump of the cluster.

mod dump;

use super::cluster::rest;
use super::{CliResult, CommandContext};
use clap::Subcommand;
use colored::Colorize;

/// Display addresses of the control plane and services with label kubernetes.io/cluster-service=true.
///
/// Without a server, the address is the cluster's file. To further debug and diagnose cluster problems, use 'kloop cluster-info dump'.
#[derive(clap::Args)]
#[command(
    override_usage = "[flags]",
    after_help = "\
# Print the address of the control plane and cluster services
kloop cluster-info"
)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<ClusterInfoVerb>,
    /// Ignored, as kubectl does.
    #[arg(hide = true)]
    _surplus: Vec<String>,
}

#[derive(Subcommand)]
enum ClusterInfoVerb {
    Dump(dump::Args),
}

const SERVICES: &str = "/api/v1/namespaces/kube-system/services?labelSelector=kubernetes.io%2Fcluster-service%3Dtrue";

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    if let Some(ClusterInfoVerb::Dump(args)) = args.verb {
        return dump::run(&args, context);
    }
    let address = rest::address(context)?;
    print_line(context, "Kubernetes control plane", &address)?;
    let services = rest::read_document(context, SERVICES, "")?;
    for service in services["items"].as_array().into_iter().flatten() {
        let name = service["metadata"]["name"].as_str().unwrap_or_default();
        let port = service["spec"]["ports"][0]["name"].as_str().filter(|port| !port.is_empty());
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        let link = format!("{address}/api/v1/namespaces/kube-system/services/{name}{port}/proxy");
        let shown = service["metadata"]["labels"]["kubernetes.io/name"].as_str().unwrap_or(name);
        print_line(context, shown, &link)?;
    }
    context.print("\nTo further debug and diagnose cluster problems, use 'kloop cluster-info dump'.\n")
}

fn print_line(context: &mut CommandContext, name: &str, address: &str) -> CliResult {
    let escaped = |text: &str| crate::show::escape::text(text).to_string();
    let line = format!("{} is running at {}\n", escaped(name).green(), escaped(address).yellow());
    context.print_styled(&line)
}
