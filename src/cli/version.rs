//! `kloop version`.

use super::flags::PrintFlags;
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
    if let Some(mut printer) = args.print.answer_printer()? {
        let version = json!({"gitVersion": KUBERNETES, "major": "1", "minor": "36", "platform": "linux/amd64", "kloop": kloop_version});
        let mut body = json!({"clientVersion": version, "kustomizeVersion": kustomize::VERSION});
        if !args.client {
            body["serverVersion"] = version;
        }
        return context.print(&printer.object(&body)?);
    }
    context.print_line(&format!("Client Version: {KUBERNETES} ({kloop_version})"))?;
    context.print_line(&format!("Kustomize Version: {}", kustomize::VERSION))?;
    if args.client { Ok(()) } else { context.print_line(&format!("Server Version: {KUBERNETES} ({kloop_version})")) }
}
