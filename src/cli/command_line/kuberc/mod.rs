//! `kloop kuberc`: the user's preferences, which give commands other names and flags other values.
//!
//! Knows: kubectl's file and its words. Start reading at [`apply`] for command lines, at [`run`] for the verb.

mod preferences;
mod rewrite;

use super::flags::PrintFlags;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::client::PluginPolicy;
use crate::object::{io_error_text, yaml};
use clap::Subcommand;
use preferences::{AllowedPlugin, CommandAlias, CommandDefaults, FlagDefault, Preferences};
use serde_json::json;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Manage user preferences (kuberc) file.
///
/// The kuberc file allows you to customize your kloop experience: other names for commands, and other values for their flags. It is
/// kubectl's: ~/.kube/kuberc, or the file of --kuberc or $KUBERC.
#[derive(clap::Args)]
#[command(
    override_usage = "SUBCOMMAND",
    after_help = "\
# View the current kuberc configuration
kloop kuberc view

# Set a default value for a command flag
kloop kuberc set --section defaults --command get --option output=wide"
)]
pub struct Args {
    #[command(subcommand)]
    verb: KubercVerb,
}

#[derive(Subcommand)]
enum KubercVerb {
    Set(SetArgs),
    View(ViewArgs),
}

/// Display the current kuberc configuration.
#[derive(clap::Args)]
#[command(
    override_usage = "[flags]",
    after_help = "\
# View kuberc configuration in YAML format (default)
kloop kuberc view

# View kuberc configuration in JSON format
kloop kuberc view --output json"
)]
struct ViewArgs {
    #[command(flatten)]
    print: PrintFlags,
}

/// Set values in the kuberc configuration.
///
/// Use --section to specify whether to set defaults, aliases or the policy for credential plugins.
#[derive(clap::Args)]
#[command(
    override_usage = "--section (defaults|aliases|credentialplugin) [--command COMMAND]",
    after_help = "\
# Set default output format for 'get' command
kloop kuberc set --section defaults --command get --option output=wide

# Create an alias 'getn' for 'get' command with prepended 'nodes' resource
kloop kuberc set --section aliases --name getn --command get --prependarg nodes --option output=wide

# Set the credential plugin policy and allowlist
kloop kuberc set --section credentialplugin --policy Allowlist --allowlist-entry command=cloud-credential-helper"
)]
struct SetArgs {
    /// Section to modify: 'defaults', 'aliases', or 'credentialplugin'.
    #[arg(long, required = true, value_name = "SECTION")]
    section: String,
    /// Command to configure (e.g., 'get', 'create', 'set env').
    #[arg(long, default_value = "", value_name = "COMMAND")]
    command: String,
    /// Alias name (required for --section=aliases).
    #[arg(long, default_value = "", value_name = "NAME")]
    name: String,
    /// Plugin policy to use for exec credential plugins, must be one of 'AllowAll', 'DenyAll' or 'Allowlist'.
    #[arg(long, default_value = "", value_name = "POLICY")]
    policy: String,
    /// Flag option in the form flag=value (can be specified multiple times).
    #[arg(long, value_name = "FLAG=VALUE")]
    option: Vec<String>,
    /// Argument to prepend to the command (can be specified multiple times, for aliases only).
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    prependarg: Vec<String>,
    /// Argument to append to the command (can be specified multiple times, for aliases only).
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    appendarg: Vec<String>,
    /// Allowlist entry in the form field=value (can be specified multiple times).
    #[arg(long, value_name = "FIELD=VALUE")]
    allowlist_entry: Vec<String>,
    /// Allow overwriting existing entries.
    #[arg(long)]
    overwrite: bool,
}

/// Applies the user's preferences to a command line. Returns it with the policy for credential plugins.
pub fn apply(line: Vec<OsString>) -> CliResult<(Vec<OsString>, PluginPolicy)> {
    match preferences::load(&line)? {
        Some(preferences) => {
            let policy = preferences.plugin_policy()?;
            Ok((rewrite::rewrite(line, &preferences, &super::grammar::command())?, policy))
        }
        None => Ok((line, PluginPolicy::default())),
    }
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let Some((path, is_explicit)) = preferences::find_file(context.globals.kuberc())? else {
        return Err(Failure::plain("KUBERC is disabled via KUBERC=off environment variable"));
    };
    match args.verb {
        KubercVerb::Set(args) => set(&args, &path, context),
        KubercVerb::View(args) => view(&args, &path, is_explicit, context),
    }
}

/// Reads the file; `None` if it does not exist or is empty.
fn read(path: &Path) -> CliResult<Option<Preferences>> {
    let problem = |why: String| Failure::plain(format!("error parsing kuberc file: {why}"));
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::plain(format!("error reading kuberc file: {}", io_error_text(error)))),
    };
    let documents = yaml::documents(&text).map_err(|error| problem(error.to_string()))?;
    let Some(document) = documents.into_iter().next().filter(|document| !document.value.is_null()) else {
        return Ok(None);
    };
    preferences::decode(&document.value).0.map(Some).map_err(|error| problem(error.message))
}

fn view(args: &ViewArgs, path: &Path, is_explicit: bool, context: &mut CommandContext) -> CliResult {
    if !path.exists() {
        let text = format!("kuberc file not found at {}", path.display());
        return if is_explicit { Err(Failure::plain(text)) } else { context.print_line(&text) };
    }
    let preferences = read(path)?.unwrap_or_default();
    let print = args.print.with_output(args.print.output.clone().or_else(|| Some("yaml".to_owned())));
    let Some(mut printer) = print.answer_printer()? else { return Ok(()) };
    context.print(&printer.object(&json!(preferences))?)
}

fn set(args: &SetArgs, path: &Path, context: &mut CommandContext) -> CliResult {
    check(args)?;
    let mut preferences = read(path)?.unwrap_or_else(Preferences::new);
    let options = args.option.iter().map(|option| parse_option(option)).collect::<CliResult<Vec<FlagDefault>>>()?;
    match args.section.as_str() {
        "defaults" => set_defaults(args, &mut preferences, options)?,
        "aliases" => set_alias(args, &mut preferences, options)?,
        _ => {
            if args.policy == ALLOWLIST {
                preferences.credential_plugin_allowlist = Some(allowed_plugins(&args.allowlist_entry)?);
            }
            preferences.credential_plugin_policy.clone_from(&args.policy);
        }
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, yaml::to_yaml(&json!(preferences)))
        .map_err(|error| Failure::plain(format!("failed to write kuberc file: {}", io_error_text(error))))?;
    context.print_line(&format!("Updated {}", path.display()))
}

/// The policy with a list of plugins that may run.
const ALLOWLIST: &str = "Allowlist";

/// Refuses flags that do not fit each other.
fn check(args: &SetArgs) -> CliResult {
    let (section, has_entries) = (args.section.as_str(), !args.allowlist_entry.is_empty());
    let wrong = match section {
        "defaults" | "aliases" | "credentialplugin" => match () {
            () if section == "aliases" && args.name.is_empty() => "--name is required when --section=aliases",
            () if section == "defaults" && !args.name.is_empty() => {
                "--name should not be specified when --section=defaults"
            }
            () if section == "defaults" && !(args.prependarg.is_empty() && args.appendarg.is_empty()) => {
                "--prependarg and --appendarg are only valid for --section=aliases"
            }
            () if section != "credentialplugin" && args.command.is_empty() => {
                "--command is required when --section=aliases or --section=defaults"
            }
            () if section != "credentialplugin" => "",
            () if args.policy.is_empty() => "--policy is required when --section=credentialplugin",
            () if !["AllowAll", "DenyAll", ALLOWLIST].contains(&args.policy.as_str()) => {
                let policy = &args.policy;
                let text = format!(" --policy must be  \"AllowAll\", \"DenyAll\", or \"Allowlist\", got: {policy}");
                return Err(Failure::plain(text));
            }
            () if args.policy == ALLOWLIST && !has_entries => {
                "--allowlist-entry is required when --section=credentialplugin and --policy=Allowlist"
            }
            () if args.policy != ALLOWLIST && has_entries => {
                "--allowlist-entry may only be used when --section=credentialplugin and --policy=Allowlist"
            }
            () => "",
        },
        other => {
            return Err(Failure::plain(format!(
                "--section must be \"defaults\", \"aliases\", or \"credentialplugin\", got: {other}"
            )));
        }
    };
    if wrong.is_empty() { Ok(()) } else { Err(Failure::plain(wrong)) }
}

fn parse_option(option: &str) -> CliResult<FlagDefault> {
    let wrong = || Failure::plain(format!("invalid option format {option:?}, expected flag=value"));
    let (name, value) = option.split_once('=').ok_or_else(wrong)?;
    Ok(FlagDefault { name: name.trim_start_matches('-').to_owned(), default: value.to_owned() })
}

fn set_defaults(args: &SetArgs, preferences: &mut Preferences, options: Vec<FlagDefault>) -> CliResult {
    let command = args.command.clone();
    match preferences.defaults.iter_mut().find(|known| known.command == command) {
        Some(_) if !args.overwrite => {
            let text = format!("defaults for command {command:?} already exist, use --overwrite to replace");
            return Err(Failure::plain(text));
        }
        Some(known) => replace_given(&mut known.options, options),
        None => preferences.defaults.push(CommandDefaults { command, options }),
    }
    Ok(())
}

fn set_alias(args: &SetArgs, preferences: &mut Preferences, options: Vec<FlagDefault>) -> CliResult {
    let (name, command) = (args.name.clone(), args.command.clone());
    let (prepend_args, append_args) = (args.prependarg.clone(), args.appendarg.clone());
    match preferences.aliases.iter_mut().find(|known| known.name == name) {
        Some(_) if !args.overwrite => {
            return Err(Failure::plain(format!("alias {name:?} already exists, use --overwrite to replace")));
        }
        Some(known) => {
            known.command = command;
            replace_given(&mut known.options, options);
            replace_given(&mut known.prepend_args, prepend_args);
            replace_given(&mut known.append_args, append_args);
        }
        None => preferences.aliases.push(CommandAlias { name, command, prepend_args, append_args, options }),
    }
    Ok(())
}

/// Replaces a list by that of a flag, if the flag is given.
fn replace_given<T>(known: &mut Vec<T>, given: Vec<T>) {
    if !given.is_empty() {
        *known = given;
    }
}

fn allowed_plugins(entries: &[String]) -> CliResult<Vec<AllowedPlugin>> {
    let (mut plugins, mut failures) = (Vec::new(), Vec::new());
    for pair in entries.iter().flat_map(|entry| entry.split(',')) {
        let problem = match pair.split_once('=') {
            None => format!("improperly formatted allowlist entry: {pair:?}"),
            Some(("name", _)) => "allowlist entry field \"name\" is deprecated, use \"command\" instead".to_owned(),
            Some(("command", command)) if command.trim().is_empty() => {
                "empty value in allowlist entry for field \"command\"".to_owned()
            }
            Some(("command", command)) => {
                plugins.push(AllowedPlugin { command: command.to_owned() });
                continue;
            }
            Some((field, _)) => format!("unrecognized allowlist entry field: {field:?}"),
        };
        failures.push(Failure::plain(problem));
    }
    Failure::from_failures(failures).map(|()| plugins)
}
