//! `kloop annotate`.

use super::{Flags, Mark};
use crate::cli::pairs::{self, Pairs};
use crate::cli::{Context, Failure, Outcome};

/// Update the annotations on a resource.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    flags: Flags,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut Context) -> Outcome {
    let mark = Mark { noun: "annotation", field: "annotations", parse, taken, done: |_, _| "annotated" };
    super::run(&args.flags, context, &mark)
}

fn parse(words: &[String]) -> Outcome<Pairs> {
    let parsed = pairs::parse(words, "annotation", true)?;
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

fn taken(taken: &[(&str, &str)]) -> String {
    let texts: Vec<String> =
        taken.iter().map(|(key, value)| format!("'{key}' already has a value ({value})")).collect();
    format!("--overwrite is false but found the following declared annotation(s): {}", texts.join("; "))
}
