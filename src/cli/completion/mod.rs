//! `kloop completion`: scripts that complete kloop's command lines in a shell.
//!
//! The scripts in `completions/` ask [`mod@answer`] for the words, some of which are names from the
//! state file.
//! `kloop completion man` makes manual pages from the same grammar.

mod answer;
mod conditions;
mod man;
mod state;
mod values;

pub use answer::answer;

use super::{CliResult, CommandContext, Failure};
use std::path::Path;

/// The shells and their scripts.
const SCRIPTS: [(&str, &str); 3] = [
    ("bash", include_str!("../../../completions/kloop.bash")),
    ("zsh", include_str!("../../../completions/_kloop")),
    ("fish", include_str!("../../../completions/kloop.fish")),
];

/// Output shell completion code for the specified shell (bash, zsh or fish).
///
/// With `man` instead of a shell, prints the manual page kloop.1, or writes the pages of all
/// commands into a folder.
#[derive(clap::Args)]
#[command(
    override_usage = "(SHELL | man [FOLDER])",
    after_help = "\
# Load the kloop completion code for bash into the current shell
source <(kloop completion bash)

# Load the kloop completion code for zsh into the current shell
source <(kloop completion zsh)

# Load the kloop completion code for fish into the current shell
kloop completion fish | source

# Write manual pages where man finds them
kloop completion man ~/.local/share/man/man1"
)]
pub struct Args {
    /// bash, zsh or fish; or man and a folder.
    shells: Vec<String>,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let wrong = |text: String| Failure::Usage("completion".into(), text);
    let shell = match &args.shells[..] {
        [word] if word == "man" => return man::write(None, context),
        [word, folder] if word == "man" => return man::write(Some(Path::new(folder)), context),
        [shell] => shell,
        [] => return Err(wrong("Shell not specified.".into())),
        _ => return Err(wrong("Too many arguments. Expected only the shell type.".into())),
    };
    let script = SCRIPTS.iter().find(|(known, _)| known == shell).map(|(_, script)| *script);
    let script = script.ok_or_else(|| wrong(format!("Unsupported shell type {shell:?}.")))?;
    // A link with the name kubectl completes that name.
    match is_called_kubectl() {
        true => context.print(&script.replace("kloop", KUBECTL)),
        false => context.print(script),
    }
}

/// The name of the client that kloop can stand in for.
const KUBECTL: &str = "kubectl";

/// Whether the program was called by the name kubectl.
fn is_called_kubectl() -> bool {
    let program = std::env::args_os().next().unwrap_or_default();
    Path::new(&program).file_name().is_some_and(|name| name == KUBECTL)
}
