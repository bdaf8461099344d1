//! `kloop set selector`: sets the pod selector of a Service.

use super::{ObjectEdit, SetFlags, SetVerbText};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::Selector;
use crate::object::selector::SelectorOp;
use serde_json::{Map, Value};

/// Set the selector on a resource (Services only).
#[derive(clap::Args)]
#[command(
    override_usage = "(-f FILENAME | TYPE NAME) EXPRESSIONS",
    after_help = "\
# Let the service my-svc select the pods with environment=qa and tier=front
kloop set selector service my-svc 'environment=qa,tier=front'"
)]
pub struct Args {
    /// TYPE NAME or TYPE/NAME, then the selector, such as 'app=web,tier=front'.
    words: Vec<String>,
    #[command(flatten)]
    setting: SetFlags,
    /// If non-empty, the selectors update will only succeed if this is the current resource-version for the object.
    #[arg(long, default_value = "", value_name = "VERSION")]
    resource_version: String,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let at = args.words.iter().position(|word| word.contains('=')).unwrap_or(args.words.len());
    let (resources, selector) = args.words.split_at(at);
    let [selector] = selector else {
        return Err(Failure::plain("one selector is required, such as 'app=web,tier=front'"));
    };
    let pairs = pairs(selector)?;
    let words = SetVerbText { updated: "selector", patched: "selector", prints_unchanged: true };
    args.setting.update(context, resources, words, |_, target| {
        let (kind, pairs, wanted) = (target.kind, pairs.clone(), args.resource_version.clone());
        let edit: ObjectEdit = Box::new(move |object| {
            if kind.resource != "services" {
                return Err(Failure::plain(format!("selector for {} is not supported", kind.kind)));
            }
            let version = object.text(&["metadata", "resourceVersion"]).unwrap_or_default();
            if !wanted.is_empty() && wanted != version {
                return Err(Failure::plain(format!("Expected resource version to be {wanted}, was {version}")));
            }
            object.set(&["spec", "selector"], pairs.clone());
            Ok(())
        });
        Ok(edit)
    })
}

/// Parses a selector. Services select only by equality.
fn pairs(text: &str) -> CliResult<Map<String, Value>> {
    let selector = Selector::parse(text).map_err(|error| Failure::plain(error.to_string()))?;
    let mut pairs = Map::new();
    for requirement in selector.requirements() {
        match (requirement.op, &requirement.values[..]) {
            (SelectorOp::In | SelectorOp::Equals, [value]) => {
                pairs.insert(requirement.key.clone(), value.as_str().into());
            }
            _ => return Err(Failure::plain(format!("{text}: a Service selects by KEY=VALUE only"))),
        }
    }
    Ok(pairs)
}
