//! `kloop config view`: the contexts in the form of a kubeconfig.

use super::loaded::LoadedConfig;
use crate::cli::cluster::contexts::{ConfigFile, Entries};
use crate::cli::command_line::flags::PrintFlags;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::io_error_text;
use crate::show::print::{ObjectPrinter, OutputFormat};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::fs;

/// Display merged kubeconfig settings or a specified kubeconfig file.
///
/// You can use --output jsonpath={...} to extract specific values using a jsonpath expression.
#[derive(clap::Args)]
#[command(after_help = "\
# Show the contexts
kloop config view

# Get the default namespace
kloop config view --minify -o jsonpath='{..namespace}'

# Show a kubeconfig of kubectl's
kloop config view --kubeconfig ~/.kube/config")]
pub struct ConfigViewArgs {
    #[command(flatten)]
    print: PrintFlags,
    /// Remove all information not used by current-context from the output.
    #[arg(long)]
    minify: bool,
    /// Display raw byte data and sensitive data.
    #[arg(long)]
    raw: bool,
    /// Flatten the resulting kubeconfig file into self-contained output (useful for creating portable kubeconfig files).
    #[arg(long)]
    flatten: bool,
    /// Merge the full hierarchy of kubeconfig files: there is only one.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    merge: Option<bool>,
}

/// Prints the contexts.
pub fn print(args: &ConfigViewArgs, config: &LoadedConfig, context: &mut CommandContext) -> CliResult {
    if args.merge == Some(false) && context.globals.kubeconfig.is_none() {
        return Err(Failure::plain("if merge==false a precise file must be specified"));
    }
    let mut merged = config.merged(context);
    if args.minify {
        if let Some(name) = context.globals.context.as_ref().filter(|name| !name.is_empty()) {
            merged.current.clone_from(name);
        }
        minify(&mut merged)?;
    }
    match () {
        () if args.flatten => flatten(&mut merged)?,
        () if args.raw => {}
        () => redact(&mut merged),
    }
    let format = args.print.format(false, false)?.unwrap_or(OutputFormat::Yaml);
    let text = ObjectPrinter::new(format, true).object(&merged.to_value())?;
    context.print(&text)
}

/// Leaves the entries that the current context uses.
fn minify(config: &mut ConfigFile) -> CliResult {
    if config.current.is_empty() {
        return Err(Failure::plain("current-context must exist in order to minify"));
    }
    let Some(entry) = config.contexts.get(&config.current).cloned() else {
        return Err(Failure::plain(format!("cannot locate context {}", config.current)));
    };
    let keep = |entries: &mut Entries, what: &str, name: &str| match entries.remove_entry(name) {
        _ if name.is_empty() => {
            entries.clear();
            Ok(())
        }
        Some((name, entry)) => {
            *entries = [(name, entry)].into();
            Ok(())
        }
        None => Err(Failure::plain(format!("cannot locate {what} {name}"))),
    };
    config.contexts = [(config.current.clone(), entry.clone())].into();
    keep(&mut config.clusters, "cluster", ConfigFile::text(&entry, "cluster"))?;
    keep(&mut config.users, "user", ConfigFile::text(&entry, "user"))
}

/// Hides secrets, and leaves out long contents.
fn redact(config: &mut ConfigFile) {
    let hidden = [
        ("certificate-authority-data", "DATA+OMITTED"),
        ("client-certificate-data", "DATA+OMITTED"),
        ("client-key-data", "DATA+OMITTED"),
        ("password", "REDACTED"),
        ("token", "REDACTED"),
    ];
    for entry in config.clusters.values_mut().chain(config.users.values_mut()) {
        for (field, text) in hidden {
            if let Some(value) = entry.get_mut(field).filter(|value| !value.is_null() && **value != "") {
                *value = Value::from(text);
            }
        }
    }
}

/// Puts the contents of files in place of their paths.
fn flatten(config: &mut ConfigFile) -> CliResult {
    let folder = config.folder();
    for entry in config.clusters.values_mut().chain(config.users.values_mut()) {
        for field in ["certificate-authority", "client-certificate", "client-key"] {
            let Some(path) = entry.remove(field).and_then(|path| Some(folder.join(path.as_str()?))) else { continue };
            let read = fs::read(&path)
                .map_err(|error| Failure::plain(format!("open {}: {}", path.display(), io_error_text(error))))?;
            entry.insert(format!("{field}-data"), STANDARD.encode(read).into());
        }
    }
    Ok(())
}
