//! `kloop tour`: a walk through the control loops on a small application, each step typed by the user.
//!
//! Knows: the tour has a cluster of its own in a temporary folder, which is removed at the end. Never: touches the user's cluster, or runs
//! another program than kloop. Start reading at [`run`]; the steps are in [`steps`].

mod steps;

use super::up::planes;
use super::{CliResult, CommandContext, Failure, Globals};
use crate::runtime;
use colored::Colorize;
use std::io::{BufRead, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use steps::{STEPS, TourStep};

/// Walk through the control loops on a small application, step by step.
///
/// Each step explains a loop and names a command. An empty line runs the command, "skip" skips it, and "quit" ends the tour.
/// Other commands of kloop can be tried in between. The tour has a cluster of its own, which is removed at the end.
#[derive(clap::Args)]
#[command(
    override_usage = "",
    after_help = "\
# Take the tour
kloop tour"
)]
pub struct Args {}

/// The manifest of the tour's application.
const MANIFEST: &str = include_str!("web.yaml");

/// Longest wait for the end of the tour's control plane.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// The user's choice after a step.
#[derive(PartialEq, Eq)]
enum NextStep {
    Continue,
    Quit,
}

/// Runs the verb.
pub fn run(_: Args, context: &mut CommandContext) -> CliResult {
    let folder = make_folder()?;
    let done = take_tour(&folder, context);
    drop(std::fs::remove_dir_all(&folder));
    done
}

/// Makes a folder that only the user can open.
fn make_folder() -> CliResult<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let path = std::env::temp_dir().join(format!("kloop-tour-{:08x}", crate::apiserver::api::random() as u32));
    std::fs::DirBuilder::new().mode(0o700).create(&path)?;
    std::fs::write(path.join("web.yaml"), MANIFEST)?;
    Ok(path)
}

fn take_tour(folder: &Path, context: &mut CommandContext) -> CliResult {
    let request_timeout = context.globals.request_timeout.clone();
    let globals = Globals { state: Some(folder.join("state.db")), request_timeout, ..Globals::default() };
    let mut own = CommandContext::new(globals, "tour");
    own.name_writer("tour");
    planes::start_detached(&mut own)?;
    let home = own.api()?.store().home().to_owned();
    let done = take_steps(folder, context);
    if let Some(plane) = planes::find_detached(&home)
        && !planes::stop_detached(&home, plane, STOP_TIMEOUT)
    {
        return Err(Failure::plain(format!("the tour's control plane does not end (pid {})", plane.pid)));
    }
    done
}

fn take_steps(folder: &Path, context: &mut CommandContext) -> CliResult {
    let count = STEPS.len();
    for (number, step) in STEPS.iter().enumerate() {
        let heading = format!("{}/{count}  {}", number + 1, step.heading);
        context.print_styled(&format!("\n{}\n\n{}\n", heading.bold(), step.text))?;
        if take_step(step, folder, context)? == NextStep::Quit {
            break;
        }
    }
    context.print_line(
        "\nThe tour is over, and its cluster is removed. To go on: kloop up in a folder of manifests, kloop help.",
    )
}

/// Asks for commands until the step's own was run or skipped.
fn take_step(step: &TourStep, folder: &Path, context: &mut CommandContext) -> CliResult<NextStep> {
    let input = std::io::stdin();
    loop {
        context.print_styled(&format!("\n  type: {}\n$ ", step.command.cyan()))?;
        let mut line = String::new();
        if input.lock().read_line(&mut line)? == 0 {
            context.print_line("")?;
            return Ok(NextStep::Quit);
        }
        if !input.is_terminal() {
            // Input from a pipe is not echoed by a terminal.
            context.print(&line)?;
        }
        let typed = match line.trim() {
            "" => {
                context.print_line(step.command)?;
                step.command
            }
            "skip" | "s" => return Ok(NextStep::Continue),
            "quit" | "q" | "exit" => return Ok(NextStep::Quit),
            typed => typed,
        };
        run_command(typed, folder, context)?;
        if typed == step.command {
            return Ok(NextStep::Continue);
        }
    }
}

/// Runs a command of kloop in the tour's cluster. Nothing else is run: the tour is not a shell.
fn run_command(line: &str, folder: &Path, context: &mut CommandContext) -> CliResult {
    let mut words = line.split_whitespace();
    if !matches!(words.next(), Some("kloop" | "kubectl")) {
        context.print_notice("the tour runs commands of kloop; an empty line types the one above, quit ends the tour");
        return Ok(());
    }
    let mut command = Command::new(runtime::THIS);
    command.args(words).current_dir(folder).env("KLOOP_STATE", folder.join("state.db"));
    command.status()?;
    Ok(())
}
