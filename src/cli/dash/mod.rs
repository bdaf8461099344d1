//! `kloop dash`: the cluster on one screen, live.
//!
//! Knows: the terminal, the state's changes, and the commands that keys lead to. [`model`] and [`view`] are pure.
//! Never: writes to the state itself; it runs the verbs. Start reading at [`run`].

mod commands;
mod model;
mod session;
mod terminal;
#[cfg(test)]
mod tests;
mod view;
mod waker;
mod web;

use super::{CliResult, CommandContext, Failure};
use std::io::IsTerminal;

/// Show the cluster live, in the terminal or in a browser.
///
/// Workloads are a tree down to their processes, failing ones first. Other panes show events, and loops with their queues. The screen
/// changes with the cluster. Keys: arrows move, Enter opens, l logs, d describe, y yaml, w why, e events, x exec,
/// r restart, s scale, D delete, p plan, L loops, / search, ? help, q quit. Each change is made by the verb of that name.
#[derive(clap::Args)]
#[command(
    override_usage = "[-n NAMESPACE | --web [--port=PORT]]",
    after_help = "\
# Show everything
kloop dash

# Only the namespace shop
kloop dash -n shop

# As a page in the browser
kloop dash --web"
)]
pub struct Args {
    /// Show it as a page in the browser: prints the address, with the token in its fragment, and serves it until it is interrupted.
    #[arg(long)]
    web: bool,
    /// With --web: the port of this machine on which to serve. Set to 0 to pick a random port.
    #[arg(long, default_value_t = 0, value_name = "PORT", requires = "web")]
    port: u16,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    if !args.web && !has_terminal() {
        return Err(Failure::plain(
            "kloop dash needs a terminal; without one: kloop get all, kloop why, kloop events --watch, kloop dash --web",
        ));
    }
    if args.web && context.client().is_some() {
        return Err(Failure::plain(
            "kloop dash --web shows the cluster of a state file only\nhint: kloop dash shows the server's cluster in the terminal",
        ));
    }
    context.require_existing()?;
    if args.web { web::serve_page(args.port, context) } else { session::show(context) }
}

fn has_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}
