//! `kloop label`.

use super::{Flags, Mark};
use crate::cli::pairs::{self, Pairs};
use crate::cli::{Context, Failure, Outcome};
use crate::object::label;

/// Update the labels on a resource.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    flags: Flags,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut Context) -> Outcome {
    let mark = Mark { noun: "label", field: "labels", parse, taken, done };
    super::run(&args.flags, context, &mark)
}

fn parse(words: &[String]) -> Outcome<Pairs> {
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
    let parsed = pairs::parse(words, "label", true)?;
    if parsed.set.iter().any(|(key, _)| parsed.remove.contains(key)) {
        return Err(Failure::plain("can not both modify and remove a label in the same command"));
    }
    Ok(parsed)
}

fn taken(taken: &[(&str, &str)]) -> String {
    let texts: Vec<String> = taken
        .iter()
        .map(|(key, value)| format!("'{key}' already has a value ({value}), and --overwrite is false"))
        .collect();
    match &texts[..] {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

fn done(pairs: &Pairs, changed: bool) -> &'static str {
    match (changed, pairs.set.is_empty(), pairs.remove.is_empty()) {
        (false, _, _) => "not labeled",
        (true, true, _) => "unlabeled",
        (true, false, true) => "labeled",
        (true, false, false) => "modified",
    }
}
