//! `kloop label`.

use super::{MarkFlags, MarkKind};
use crate::cli::manifests::key_changes::{self, KeyChanges};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::label;

/// Update the labels on a resource.
///
/// A label key and value must begin with a letter or number, and may contain letters, numbers, hyphens, dots, and underscores, up
/// to 63 characters each. Optionally, the key can begin with a DNS subdomain prefix and a single '/', like example.com/my-app.
///
/// If --overwrite is true, then existing labels can be overwritten, otherwise attempting to overwrite a label will result in an
/// error. If --resource-version is specified, then updates will use this resource version, otherwise the existing
/// resource-version will be used.
#[derive(clap::Args)]
#[command(
    override_usage = "[--overwrite] (-f FILENAME | TYPE NAME) KEY_1=VAL_1 ... KEY_N=VAL_N [--resource-version=version]",
    after_help = "\
# Update pod 'foo' with the label 'unhealthy' and the value 'true'
kloop label pods foo unhealthy=true

# Update pod 'foo' with the label 'status' and the value 'unhealthy', overwriting any existing value
kloop label --overwrite pods foo status=unhealthy

# Update all pods in the namespace
kloop label pods --all status=unhealthy

# Update pod 'foo' only if the resource is unchanged from version 1
kloop label pods foo status=unhealthy --resource-version=1

# Update pod 'foo' by removing a label named 'bar' if it exists; does not require the --overwrite flag
kloop label pods foo bar-"
)]
pub struct Args {
    #[command(flatten)]
    flags: MarkFlags,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let mark = MarkKind { noun: "label", field: "labels", parse, conflict_error, done };
    super::run(&args.flags, context, &mark)
}

fn parse(words: &[String]) -> CliResult<KeyChanges> {
    for word in words {
        let Some((_, value)) = word.split_once('=') else { continue };
        if value.contains('=') {
            return Err(Failure::plain(format!("invalid label spec: {word}")));
        }
        let problems = label::value_problems(value);
        if !problems.is_empty() {
            return Err(Failure::plain(format!("invalid label value: {word:?}: {}", problems.join(";"))));
        }
    }
    let parsed = key_changes::parse(words, "label", true)?;
    if parsed.set.iter().any(|(key, _)| parsed.remove.contains(key)) {
        return Err(Failure::plain("can not both modify and remove a label in the same command"));
    }
    Ok(parsed)
}

fn conflict_error(conflicts: &[(&str, &str)]) -> String {
    let texts: Vec<String> = conflicts
        .iter()
        .map(|(key, value)| format!("'{key}' already has a value ({value}), and --overwrite is false"))
        .collect();
    match &texts[..] {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

fn done(pairs: &KeyChanges, changed: bool) -> &'static str {
    match (changed, pairs.set.is_empty(), pairs.remove.is_empty()) {
        (false, _, _) => "not labeled",
        (true, true, _) => "unlabeled",
        (true, false, true) => "labeled",
        (true, false, false) => "modified",
    }
}
