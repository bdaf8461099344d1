//! `kloop set selector`: sets the pod selector of a Service.

use super::{ObjectEdit, SetFlags, SetVerbText};
use crate::cli::cluster::targets::{self, Targets};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::selector::SelectorOp;
use crate::object::{Selector, Status};
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
    // As in kubectl, the last word is the selector.
    let Some((selector, resources)) = args.words.split_last() else {
        return Err(Failure::plain("one selector is required"));
    };
    args.setting.require_resources(resources)?;
    if let Targets::Lists(_) = targets::parse(context.kinds(), resources)?
        && !args.setting.scope.all
        && !args.setting.scope.select.is_set()
        && args.setting.scope.files.is_empty()
    {
        return Err(Failure::plain("resource(s) were provided, but no name was specified"));
    }
    let pairs = pairs(selector)?;
    let words = SetVerbText { updated: "selector", patched: "", prints_unchanged: true };
    args.setting.update(context, resources, words, |_, target| {
        let (kind, pairs, wanted) = (target.kind, pairs.clone(), args.resource_version.clone());
        let edit: ObjectEdit = Box::new(move |object| {
            if kind.resource != "services" {
                return Err(Failure::plain("setting a selector is only supported for Services"));
            }
            let version = object.text(&["metadata", "resourceVersion"]).unwrap_or_default();
            if !wanted.is_empty() && wanted != version {
                return Err(Status::modified(kind.resource, object.name()).into());
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
            (SelectorOp::Equals | SelectorOp::DoubleEquals, [value]) => {
                pairs.insert(requirement.key.clone(), value.as_str().into());
            }
            (SelectorOp::NotEquals, _) => {
                return Err(Failure::plain("\"!=\" is not a valid label selector operator"));
            }
            (op, values) => {
                let expression = format!("{{{} {op:?} [{}]}}", requirement.key, values.join(" "));
                return Err(Failure::plain(format!("match expression [{expression}] not supported on this object")));
            }
        }
    }
    Ok(pairs)
}
