//! Writes manual pages from the grammar of the command line: `kloop.1` and one page for each
//! command.

use crate::cli::command_line::grammar;
use crate::cli::{CliResult, CommandContext, Failure};
use anyhow::Context as _;
use clap::Command;
use clap_mangen::Man;
use std::path::Path;

/// Prints `kloop.1`, or writes all pages into `folder` and prints its name. Fails when the folder
/// cannot be created or written.
pub fn write(folder: Option<&Path>, context: &mut CommandContext) -> CliResult {
    let Some(folder) = folder else {
        let mut page = Vec::new();
        Man::new(grammar::command()).render(&mut page).context("cannot render the manual page")?;
        let page = String::from_utf8(page).map_err(|error| Failure::plain(error.to_string()))?;
        return context.print(&page);
    };
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let written = clap_mangen::generate_to(without_help(grammar::command()), folder);
    written.with_context(|| format!("cannot write manual pages into {}", folder.display()))?;
    context.print(&format!("manual pages written to {}\n", folder.display()))
}

/// The grammar without the `help` command that clap adds to commands with subcommands: it needs no
/// page.
fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}
