//! `kloop annotate`.

use super::{MarkFlags, MarkKind};
use crate::cli::manifests::key_changes::{self, KeyChanges};
use crate::cli::{CliResult, CommandContext, Failure};

/// Update the annotations on a resource.
///
/// All Kubernetes objects support the ability to store additional data with the object as annotations. Annotations are key/value
/// pairs that can be larger than labels and include arbitrary string values such as structured JSON. Tools and system extensions
/// may use annotations to store their own data.
#[derive(clap::Args)]
#[command(
    override_usage = "[--overwrite] (-f FILENAME | TYPE NAME) KEY_1=VAL_1 ... KEY_N=VAL_N [--resource-version=version]",
    after_help = "\
# Update pod 'foo' with the annotation 'description' and the value 'my frontend'
kloop annotate pods foo description='my frontend'

# Update a pod identified by type and name in \"pod.json\"
kloop annotate -f pod.json description='my frontend'

# Update pod 'foo' with the annotation 'description' and the value 'my frontend running nginx', overwriting any existing value
kloop annotate --overwrite pods foo description='my frontend running nginx'

# Update pod 'foo' by removing an annotation named 'description' if it exists; does not require the --overwrite flag
kloop annotate pods foo description-"
)]
pub struct Args {
    #[command(flatten)]
    flags: MarkFlags,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let mark = MarkKind { noun: "annotation", field: "annotations", parse, conflict_error, done: |_, _| "annotated" };
    super::run(&args.flags, context, &mark)
}

fn parse(words: &[String]) -> CliResult<KeyChanges> {
    let parsed = key_changes::parse(words, "annotation", true)?;
    let both: Vec<&str> =
        parsed.remove.iter().filter(|key| parsed.set.iter().any(|(set, _)| set == *key)).map(String::as_str).collect();
    if both.is_empty() {
        return Ok(parsed);
    }
    Err(Failure::plain(format!(
        "can not both modify and remove the following annotation(s) in the same command: {}",
        both.join(", ")
    )))
}

fn conflict_error(conflicts: &[(&str, &str)]) -> String {
    let texts: Vec<String> =
        conflicts.iter().map(|(key, value)| format!("'{key}' already has a value ({value})")).collect();
    format!("--overwrite is false but found the following declared annotation(s): {}", texts.join("; "))
}
