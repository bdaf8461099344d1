//! `kloop plugin`, and plugins: programs `kloop-NAME` and `kubectl-NAME` on the PATH that answer commands which kloop does not know.

use super::{CliResult, CommandContext, Failure, help::VerbGroups};
use crate::client::standard_error;
use crate::object::io_error_text;
use crate::runtime::image::programs::may_execute;
use clap::Subcommand;
use itertools::Itertools;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Provides utilities for interacting with plugins.
///
/// Plugins are programs on the PATH whose names begin with "kloop-" or "kubectl-". The program kloop-foo-bar answers "kloop foo bar"; a
/// dash in a word is an underscore in the name.
#[derive(clap::Args)]
#[command(override_usage = "[flags]")]
pub struct Args {
    #[command(subcommand)]
    verb: PluginVerb,
}

#[derive(Subcommand)]
enum PluginVerb {
    List(ListArgs),
}

/// List all visible plugin executables on a user's PATH.
#[derive(clap::Args)]
#[command(
    override_usage = "[flags]",
    after_help = "\
# List all available plugins
kloop plugin list

# List only binary names of available plugins without paths
kloop plugin list --name-only"
)]
struct ListArgs {
    /// If true, display only the binary name of each plugin, rather than its full path.
    #[arg(long)]
    name_only: bool,
}

/// Beginnings of names of plugins, in the order in which they are tried.
const PREFIXES: [&str; 2] = ["kloop-", "kubectl-"];

/// Runs the verb. `verbs`: kloop's own, which no plugin can replace.
pub fn run(args: Args, verbs: VerbGroups, context: &mut CommandContext) -> CliResult {
    let PluginVerb::List(args) = args.verb;
    let (mut found, mut warnings) = (Vec::new(), Vec::new());
    for folder in folders() {
        match plugins_in(&folder) {
            Ok(plugins) => found.extend(plugins),
            Err(error) => {
                let (folder, error) = (folder.display().to_string(), io_error_text(error));
                standard_error::print_line(format_args!(
                    "Unable to read directory {folder:?} from your PATH: {error}. Skipping..."
                ));
            }
        }
    }
    if found.is_empty() {
        return Err(Failure::plain("unable to find any kloop plugins in your PATH"));
    }
    context.print("The following compatible plugins are available:\n\n")?;
    for (place, path) in found.iter().enumerate() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        context.print_line(&if args.name_only { name.clone() } else { path.display().to_string() })?;
        for warning in warnings_about(path, &name, verbs, &found[..place]) {
            context.print_notice(&format!("  - warning: {warning}"));
            warnings.push(warning);
        }
    }
    match warnings.len() {
        0 => Ok(()),
        1 => Err(Failure::plain("one plugin warning was found")),
        count => Err(Failure::plain(format!("{count} plugin warnings were found"))),
    }
}

fn folders() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).filter(|folder| !folder.as_os_str().is_empty()).unique().collect()
}

fn plugins_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    let is_named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    found.retain(|path| is_named(path) && !path.is_dir());
    found.sort();
    Ok(found)
}

fn warnings_about(path: &Path, name: &str, verbs: VerbGroups, earlier: &[PathBuf]) -> Vec<String> {
    let mut warnings = Vec::new();
    let word = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or_default();
    let verb = word.split('-').next().unwrap_or_default();
    if verbs.iter().any(|(_, verbs)| verbs.contains(&verb)) {
        warnings.push(format!("{name} overwrites existing command: \"kloop {}\"", word.replace('-', " ")));
    }
    if !is_executable(path) {
        warnings.push(format!("{} identified as a kloop plugin, but it is not executable", path.display()));
    } else if let Some(other) = earlier.iter().find(|other| other.file_name() == path.file_name()) {
        let (path, other) = (path.display(), other.display());
        warnings.push(format!("{path} is overshadowed by a similarly named plugin: {other}"));
    }
    warnings
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && may_execute(path)
}

/// Replaces this process by the plugin for these words. Returns the error if that fails, and `None` if there is no such plugin.
pub fn replace_with_plugin(words: &[OsString]) -> Option<Failure> {
    let names: Vec<String> = words.iter().map_while(name_part).collect();
    if names.is_empty() {
        let is_flag = |word: &&OsString| word.to_string_lossy().starts_with('-');
        let flag = words.first().filter(is_flag)?;
        // The flag's value may equal the plugin's name.
        let rest: Vec<OsString> = words.iter().skip_while(is_flag).cloned().collect();
        let is_meant = (0..rest.len().min(2)).any(|place| find(&rest[place..]).is_some());
        let text = format!("flags cannot be placed before plugin name: {}", flag.to_string_lossy());
        return is_meant.then(|| Failure::plain(text));
    }
    let (program, count) = find(words)?;
    let error = Command::new(&program).args(&words[count..]).exec();
    Some(Failure::plain(format!("cannot run {}: {}", program.display(), io_error_text(error))))
}

/// A word in the form that plugin names use; `None` for a flag.
fn name_part(word: &OsString) -> Option<String> {
    let text = word.to_str().filter(|text| !text.starts_with('-') && !text.is_empty() && !text.contains('/'))?;
    Some(text.replace('-', "_"))
}

/// Whether the words are for a plugin that is a subcommand of `create`. A plugin takes no built-in subcommand over.
pub fn extends_create(words: &[OsString]) -> bool {
    let is_plugin =
        words.first().is_some_and(|word| word == "create") && find(words).is_some_and(|(_, count)| count > 1);
    is_plugin && words.get(1).is_some_and(|word| !is_subcommand_of_create(word))
}

fn is_subcommand_of_create(word: &OsStr) -> bool {
    let grammar = super::command_line::grammar::command();
    grammar.find_subcommand("create").is_some_and(|create| create.find_subcommand(word).is_some())
}

/// Finds the plugin with the longest name that the words begin with, and how many words that are.
fn find(words: &[OsString]) -> Option<(PathBuf, usize)> {
    let names: Vec<String> = words.iter().map_while(name_part).collect();
    let program = |name: &str| PREFIXES.iter().find_map(|prefix| find_in_path(&format!("{prefix}{name}")));
    (1..=names.len()).rev().find_map(|count| Some((program(&names[..count].join("-"))?, count)))
}

/// Finds a program in the folders of PATH.
pub fn find_in_path(program: &str) -> Option<PathBuf> {
    folders().into_iter().map(|folder| folder.join(program)).find(|path| is_executable(path))
}

/// The words of this process's command line, without the program.
pub fn command_words() -> Vec<OsString> {
    env::args_os().skip(1).collect()
}
