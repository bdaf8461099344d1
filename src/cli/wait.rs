//! `kloop wait`: waits for a condition of objects.

use super::cluster::deadline::{Deadline, timed_out_on};
use super::cluster::server_watch::{self, WatchBounds, WatchedObjects};
use super::cluster::targets::{self, Scope, Target, TargetFlags, Targets};
use super::command_line::flags::PrintFlags;
use super::{CliResult, CommandContext, Failure};
use crate::apiserver::read::ListSelection;
use crate::apiserver::rules::names::key_of;
use crate::apiserver::watch::EventKind;
use crate::go::jsonpath::{self, JsonPathTemplate};
use crate::kinds::Kind;
use crate::object::selector::FieldSelector;
use crate::object::{Key, Object, Status, time};
use jiff::SignedDuration;
use serde_json::Value;
use std::ops::ControlFlow;
use std::time::Duration;

/// Wait for a specific condition on one or many resources.
///
/// The command takes multiple resources and waits until the specified condition is seen in the Status field of every given
/// resource. Alternatively, the command can wait for the given set of resources to be created or deleted by providing the
/// "create" or "delete" keyword as the value to the --for flag.
///
/// A successful message will be printed to stdout indicating when the specified condition has been met.
#[derive(clap::Args)]
#[command(
    // As in kubectl, this verb alone reads folders with their subfolders.
    mut_arg("recursive", |flag| flag.default_value("true")),
    override_usage = "([-f FILENAME] | resource.group/resource.name | resource.group [(-l label | --all)]) [--for=create|--for=delete|--for condition=available|--for=jsonpath='{}'[=value]]",
    after_help = "\
# Wait for the pod \"busybox1\" to contain the status condition of type \"Ready\"
kloop wait --for=condition=Ready pod/busybox1

# The default value of status condition is true; you can wait for other targets after an equal delimiter
kloop wait --for=condition=Ready=false pod/busybox1

# Wait for the pod \"busybox1\" to contain the status phase to be \"Running\"
kloop wait --for=jsonpath='{.status.phase}'=Running pod/busybox1

# Wait for the service \"loadbalancer\" to have ingress
kloop wait --for=jsonpath='{.status.loadBalancer.ingress}' service/loadbalancer

# Wait for the secret \"busybox1\" to be created, with a timeout of 30s
kloop wait --for=create secret/busybox1 --timeout=30s

# Wait for the pod \"busybox1\" to be deleted, with a timeout of 60s, after having issued the \"delete\" command
kloop wait --for=delete pod/busybox1 --timeout=60s"
)]
pub struct Args {
    #[command(flatten)]
    which: TargetFlags,
    #[command(flatten)]
    print: PrintFlags,
    /// The condition to wait on: [create|delete|condition=condition-name[=condition-value]|jsonpath='{JSONPath expression}'=[JSONPath
    /// value]].
    #[arg(long = "for", value_name = "CONDITION")]
    condition: Vec<String>,
    /// The length of time to wait before giving up. Zero means check once and don't wait, negative means wait for a week.
    #[arg(long, default_value = "30s", value_name = "DURATION", allow_hyphen_values = true, value_parser = time::parse_duration)]
    timeout: SignedDuration,
    /// Select all resources in the namespace of the specified resource types.
    #[arg(long)]
    all: bool,
    /// If present, list the requested object(s) across all namespaces. Namespace in current context is ignored even if specified
    /// with --namespace.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// If true, check the objects of the files as they are written, once, and do NOT read the cluster.
    #[arg(long)]
    local: bool,
}

/// Condition to wait for.
#[derive(Debug)]
enum Condition {
    /// The object exists.
    Create,
    /// The object is deleted.
    Delete,
    /// The object has a condition of this type and status.
    Has { kind: String, status: String },
    /// A path has a value, or this value.
    Path { path: JsonPathTemplate, value: Option<String> },
}

const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// Runs the verb.
pub fn run(mut args: Args, context: &mut CommandContext) -> CliResult {
    args.which.files.recursive &= args.which.files.kustomize.is_empty();
    let condition = match &args.condition[..] {
        [] => return Err(Failure::plain("unrecognized condition: []")),
        conditions => conditions.iter().map(|text| Condition::parse(text)).collect::<CliResult<Vec<_>>>()?,
    };
    let timeout = if args.timeout.is_negative() { WEEK } else { args.timeout.unsigned_abs() };
    if args.local {
        return check_files(&args, context, &condition);
    }
    let deadline = Deadline::with_control_plane(context, Some(timeout))?;
    let waiting = WaitState { args: &args, deadline, once: timeout.is_zero() };
    for condition in &condition {
        waiting.run(context, condition)?;
    }
    Ok(())
}

impl Condition {
    fn parse(text: &str) -> CliResult<Condition> {
        let lower = text.to_lowercase();
        if let Some(rest) = text.strip_prefix("condition=") {
            let (kind, status) = rest.split_once('=').unwrap_or((rest, "true"));
            return Ok(Condition::Has { kind: kind.into(), status: status.into() });
        }
        if let Some(rest) = text.strip_prefix("jsonpath=") {
            return Condition::parse_path(rest);
        }
        match lower.as_str() {
            "create" => Ok(Condition::Create),
            "delete" => Ok(Condition::Delete),
            _ => Err(Failure::plain(format!("unrecognized condition: {text:?}"))),
        }
    }

    fn parse_path(text: &str) -> CliResult<Condition> {
        let form = "jsonpath wait format must be --for=jsonpath='{.status.readyReplicas}'=3 or --for=jsonpath='{.status.readyReplicas}'";
        let (path, value) = match &split(text)[..] {
            [path] => (path.clone(), None),
            [path, value] => (path.clone(), Some(value.trim_matches(['\'', '"']).to_owned())),
            _ => return Err(Failure::plain(form)),
        };
        if value.as_deref() == Some("") {
            let text =
                "jsonpath wait has to have a value after equal sign, like --for=jsonpath='{.status.readyReplicas}'=3";
            return Err(Failure::plain(text));
        }
        let path = jsonpath::relaxed(path.trim_matches(['\'', '"']))?;
        Ok(Condition::Path { path: JsonPathTemplate::parse(&path)?, value })
    }

    /// Whether an existing object meets the condition.
    fn is_met_by(&self, object: &Object) -> CliResult<bool> {
        match self {
            Condition::Create => Ok(true),
            Condition::Delete => Ok(false),
            Condition::Has { kind, status } => Ok(has_condition(object, kind, status)),
            Condition::Path { path, value } => has_value_at(object, path, value.as_deref()),
        }
    }
}

/// Splits at equal signs outside brackets and braces.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0_usize);
    for letter in text.chars() {
        match letter {
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match parts.last_mut() {
            Some(part) if letter != '=' || depth > 0 => part.push(letter),
            _ => parts.push(String::new()),
        }
    }
    parts
}

/// Whether the object has the condition for its current generation.
fn has_condition(object: &Object, kind: &str, status: &str) -> bool {
    let conditions = object.items(&["status", "conditions"]);
    let same = |condition: &&Value| condition["type"].as_str().is_some_and(|name| name.eq_ignore_ascii_case(kind));
    let Some(condition) = conditions.iter().find(same) else { return false };
    let observed = condition["observedGeneration"].as_i64().or_else(|| object.int(&["status", "observedGeneration"]));
    let is_current = observed.is_none_or(|observed| observed >= object.generation());
    is_current && condition["status"].as_str().is_some_and(|actual| actual.eq_ignore_ascii_case(status))
}

fn has_value_at(object: &Object, path: &JsonPathTemplate, wanted: Option<&str>) -> CliResult<bool> {
    let results = path.results(&object.0)?;
    let found = match &results[..] {
        [] => return Ok(false),
        [found] => found,
        _ => return Err(Failure::plain("given jsonpath expression matches more than one list")),
    };
    let value = match &found[..] {
        [] => return Ok(false),
        [value] => value,
        _ => return Err(Failure::plain("given jsonpath expression matches more than one value")),
    };
    let Some(wanted) = wanted else { return Ok(true) };
    let actual = match value.as_ref() {
        Value::String(text) => text.clone(),
        Value::Object(_) | Value::Array(_) => {
            return Err(Failure::plain("jsonpath leads to a nested object or list which is not supported"));
        }
        other => other.to_string(),
    };
    Ok(actual.trim() == wanted.trim())
}

/// A wait, with the deadline that all objects share.
struct WaitState<'a> {
    args: &'a Args,
    deadline: Deadline,
    once: bool,
}

impl WaitState<'_> {
    fn run(&self, context: &mut CommandContext, condition: &Condition) -> CliResult {
        let (found, failures) = match condition {
            Condition::Create => (self.wait_for_creation(context)?, Vec::new()),
            _ => self.find(context)?,
        };
        let mut failures: Vec<Failure> = match condition {
            Condition::Delete
                if failures.iter().all(Failure::is_not_found) && !failures.is_empty() && found.is_empty() =>
            {
                return Ok(());
            }
            Condition::Delete => failures.into_iter().filter(|failure| !failure.is_not_found()).collect(),
            _ => failures,
        };
        if found.is_empty() && failures.is_empty() && !matches!(condition, Condition::Delete) {
            return Err(Failure::plain("no matching resources found"));
        }
        for target in &found {
            match self.wait_for_object(context, condition, target) {
                Ok(object) => {
                    let line = format!("{} condition met", context.name_of(target.kind, &object));
                    self.args.print.result(context, &object, &line)?;
                }
                Err(failure) => failures.push(failure),
            }
        }
        Failure::from_failures(failures)
    }

    fn find(&self, context: &mut CommandContext) -> CliResult<(Vec<Target>, Vec<Failure>)> {
        let args = self.args;
        let scope = Scope { all: args.all, all_namespaces: args.all_namespaces, ..args.which.scope() };
        targets::find(context, &scope)
    }

    /// Returns the objects once all of them exist.
    fn wait_for_creation(&self, context: &mut CommandContext) -> CliResult<Vec<Target>> {
        if let Targets::Lists(kinds) = targets::parse(context.kinds(), &self.args.which.words)?
            && kinds.is_empty()
            && self.args.which.files.is_empty()
        {
            return Err(targets::no_resources());
        }
        loop {
            let (found, failures) = self.find(context)?;
            if !found.is_empty() && failures.is_empty() {
                return Ok(found);
            }
            if !failures.iter().all(Failure::is_not_found) {
                return Err(Failure::Many(failures));
            }
            self.deadline.wait_or_fail()?;
        }
    }

    /// Waits for one object. Returns its current or, if deleted, its last version.
    fn wait_for_object(
        &self,
        context: &mut CommandContext,
        condition: &Condition,
        target: &Target,
    ) -> CliResult<Object> {
        let Target { kind, object } = target;
        let key = key_of(kind, object);
        if context.client().is_some() && !self.once {
            return self.watch_object(context, condition, target);
        }
        loop {
            match context.read_view(|txn| txn.get(&key))? {
                None => return handle_missing(condition, kind, &key, object),
                // For a deletion, an object of the same name with another UID counts as deleted.
                Some(now) if matches!(condition, Condition::Delete) && now.uid() != object.uid() => return Ok(now),
                Some(now) if condition.is_met_by(&now)? => return Ok(now),
                Some(_) => {}
            }
            let name = format!("{}/{}", kind.resource.plural(), object.name());
            if self.once {
                return Err(Failure::plain(format!("condition not met for {name}")));
            }
            if !self.deadline.wait() {
                return Err(timed_out_on(target.kind, target.object.name()));
            }
        }
    }

    /// Like [`WaitState::wait_for_object`], by a watch of a server.
    fn watch_object(&self, context: &mut CommandContext, condition: &Condition, target: &Target) -> CliResult<Object> {
        let Target { kind, object } = target;
        let (kind, key) = (*kind, key_of(kind, object));
        let selection = ListSelection {
            fields: FieldSelector::parse(&format!("metadata.name={}", key.name)).ok(),
            ..ListSelection::default()
        };
        let namespace = kind.namespaced.then(|| key.namespace.to_string());
        let watched = WatchedObjects { kind, namespace, selection };
        let bounds = WatchBounds { until: self.deadline.end(), ..WatchBounds::default() };
        let mut outcome = None;
        server_watch::run(&watched, &bounds, context, &mut |_, event, objects| {
            outcome = match objects.last().filter(|_| event != EventKind::Deleted) {
                None => Some(handle_missing(condition, kind, &key, object)),
                Some(now) if matches!(condition, Condition::Delete) && now.uid() != object.uid() => {
                    Some(Ok(now.clone()))
                }
                Some(now) => condition.is_met_by(now).map(|is_met| is_met.then(|| now.clone())).transpose(),
            };
            Ok(if outcome.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        outcome.unwrap_or_else(|| Err(timed_out_on(target.kind, target.object.name())))
    }
}

/// Checks the objects of files as they are written.
fn check_files(args: &Args, context: &mut CommandContext, conditions: &[Condition]) -> CliResult {
    let scope = Scope { local: true, ..args.which.scope() };
    let (found, mut failures) = targets::find(context, &scope)?;
    for Target { kind, object } in &found {
        let mut is_met = true;
        for condition in conditions {
            is_met &= condition.is_met_by(object)?;
        }
        if is_met {
            let line = format!("{} condition met", context.name_of(kind, object));
            args.print.result(context, object, &line)?;
        } else {
            let name = format!("{}/{}", kind.resource.plural(), object.name());
            failures.push(Failure::plain(format!("condition not met for {name}")));
        }
    }
    Failure::from_failures(failures)
}

fn handle_missing(condition: &Condition, kind: &Kind, key: &Key, last: &Object) -> CliResult<Object> {
    match condition {
        Condition::Delete => Ok(last.clone()),
        _ => Err(Status::not_found(kind.resource, &key.name).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn is_met_by(condition: &str, object: Value) -> bool {
        Condition::parse(condition).unwrap().is_met_by(&Object(object)).unwrap()
    }

    #[test]
    fn conditions_are_compared_without_case() {
        let object = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        for (condition, expected) in [
            ("condition=Ready", true),
            ("condition=ready=true", true),
            ("condition=Ready=False", false),
            ("condition=Other", false),
        ] {
            assert_eq!(is_met_by(condition, object.clone()), expected, "{condition}");
        }
    }

    #[test]
    fn condition_of_an_older_generation_does_not_count() {
        let object = |observed: Value| {
            json!({"metadata": {"generation": 2}, "status": {
                "observedGeneration": observed, "conditions": [{"type": "Available", "status": "True"}]}})
        };
        assert!(!is_met_by("condition=Available", object(json!(1))));
        assert!(is_met_by("condition=Available", object(json!(2))));
        assert!(is_met_by("condition=Available", object(json!(null))));
    }

    #[test]
    fn jsonpath_conditions_compare_values() {
        let object = json!({"status": {"phase": "Running", "n": 3, "items": [{"type": "a=b", "v": "x"}], "map": {}}});
        for (condition, expected) in [
            ("jsonpath={.status.phase}=Running", true),
            ("jsonpath=.status.phase=Running", true),
            ("jsonpath='{.status.phase}'='Running'", true),
            ("jsonpath={.status.phase}=Failed", false),
            ("jsonpath={.status.n}=3", true),
            ("jsonpath={.status.phase}", true),
            ("jsonpath={.status.none}", false),
            ("jsonpath={.status.items[?(@.type==\"a=b\")].v}=x", true),
        ] {
            assert_eq!(is_met_by(condition, object.clone()), expected, "{condition}");
        }
        let nested = Condition::parse("jsonpath={.status.map}=1").unwrap().is_met_by(&Object(object));
        assert!(nested.is_err());
    }

    #[test]
    fn malformed_conditions_are_refused() {
        for (condition, expected) in [
            ("bogus", "error: unrecognized condition: \"bogus\""),
            (
                "jsonpath={.status.phase",
                "error: unexpected path string, expected a 'name1.name2' or '.name1.name2' or '{name1.name2}' or '{.name1.name2}'",
            ),
            (
                "jsonpath={.a}=",
                "error: jsonpath wait has to have a value after equal sign, like --for=jsonpath='{.status.readyReplicas}'=3",
            ),
        ] {
            assert_eq!(Condition::parse(condition).unwrap_err().to_string(), expected);
        }
    }
}
