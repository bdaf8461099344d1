//! `kloop version`.

use super::cluster::rest;
use super::command_line::flags::PrintFlags;
use super::{CliResult, CommandContext};
use crate::kustomize;
use crate::serve::KUBERNETES;
use serde_json::json;

/// Print the client and server version information for the current context.
#[derive(clap::Args)]
#[command(
    override_usage = "[--client] [-o|--output=yaml|json]",
    after_help = "\
# Print the client and server versions for the current context
kloop version"
)]
pub struct Args {
    /// If true, shows client version only (no server required).
    #[arg(long)]
    client: bool,
    #[command(flatten)]
    print: PrintFlags,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let kloop_version = concat!("kloop ", env!("CARGO_PKG_VERSION"));
    let own = json!({"gitVersion": KUBERNETES, "major": "1", "minor": "36", "platform": "linux/amd64", "kloop": kloop_version});
    let server = match context.client() {
        Some(_) if args.client => None,
        Some(_) => Some(rest::read_document(context, "/version", "application/json")?),
        None => Some(own.clone()).filter(|_| !args.client),
    };
    if let Some(mut printer) = args.print.answer_printer()? {
        let mut body = json!({"clientVersion": own, "kustomizeVersion": kustomize::VERSION});
        if let Some(server) = server {
            body["serverVersion"] = server;
        }
        return context.print(&printer.object(&body)?);
    }
    let own_line = concat!("kloop Version: ", env!("CARGO_PKG_VERSION"));
    context.print_line(&format!("Client Version: {KUBERNETES}"))?;
    context.print_line(&format!("Kustomize Version: {}", kustomize::VERSION))?;
    let Some(server) = server else { return context.print_line(own_line) };
    let text = |field: &str| server[field].as_str().unwrap_or_default();
    let minor = text("minor").trim_end_matches('+').parse::<i64>();
    let skew = minor.ok().filter(|minor| text("major") == "1" && (minor - MINOR).abs() > 1);
    context.print_line(&format!("Server Version: {}", text("gitVersion")))?;
    context.print_line(own_line)?;
    if let Some(minor) = skew {
        context.print_notice(&format!(
            "WARNING: version difference between client (1.{MINOR}) and server (1.{minor}) exceeds the supported minor version skew of +/-1"
        ));
    }
    Ok(())
}

/// The minor version of the Kubernetes that kloop is a client of.
const MINOR: i64 = 36;
