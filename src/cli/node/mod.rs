//! Verbs about nodes: cordon, uncordon, taint, drain.
//!
//! Knows: how they find nodes, and what cordoning is. Start reading at [`cordon`](mod@cordon).

pub mod cordon;
pub mod drain;
pub mod taint;

use super::change::change;
use super::flags::DryRun;
use super::targets::{self, Target};
use super::{Context, Failure, Outcome};
use crate::apiserver::read::{self, Wanted};
use crate::object::selector::Selector;
use crate::object::{Key, Object};

/// The nodes of these names, or of a selector.
fn find(
    context: &mut Context,
    verb: &str,
    names: &[String],
    selector: Option<&str>,
) -> Outcome<(Vec<Target>, Vec<Failure>)> {
    let kind = targets::kind("nodes")?;
    match (names, selector) {
        ([], None) => {
            return Err(Failure::Usage(verb.into(), format!("USAGE: {verb} NODE [flags]")));
        }
        ([_, ..], Some(_)) => {
            return Err(Failure::plain("error: cannot specify both a node name and a --selector option"));
        }
        ([], Some(selector)) => {
            let labels = Selector::parse(selector).map_err(|error| Failure::plain(error.to_string()))?;
            let wanted = Wanted { labels: Some(labels), fields: None };
            let nodes = context.look(|ledger| read::list(ledger, kind, None, &wanted))?;
            return Ok((nodes.into_iter().map(|object| Target { kind, object }).collect(), Vec::new()));
        }
        _ => {}
    }
    let (mut found, mut failures) = (Vec::new(), Vec::new());
    for name in names {
        let name = name.strip_prefix("node/").or(name.strip_prefix("nodes/")).unwrap_or(name);
        match context.look(|ledger| read::get(ledger, &Key::new(kind.resource, "", name))) {
            Ok(object) => found.push(Target { kind, object }),
            Err(failure) => failures.push(failure),
        }
    }
    Ok((found, failures))
}

fn is_cordoned(node: &Object) -> bool {
    node.at(&["spec", "unschedulable"]).is_some_and(|value| value == true)
}

/// Makes a node refuse new pods, or take them again; says what was done.
fn cordon_one(context: &mut Context, target: &Target, cordon: bool, dry_run: DryRun) -> Outcome {
    let reply = change(context, target, dry_run, |node| {
        if is_cordoned(node) != cordon {
            if cordon {
                node.set(&["spec", "unschedulable"], true);
            } else {
                node.unset(&["spec", "unschedulable"]);
            }
        }
        Ok(())
    })?;
    let already = if reply.changed { "" } else { "already " };
    let word = if cordon { "cordoned" } else { "uncordoned" };
    context.say(&format!("node/{} {already}{word}{}", reply.object.name(), dry_run.suffix()))
}
