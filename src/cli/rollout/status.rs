//! `kloop rollout status`: prints a rollout's progress until it is complete.

use super::{group_kind, required};
use crate::apiserver::rules::names::key_of;
use crate::cli::cluster::control_plane;
use crate::cli::cluster::deadline::Deadline;
use crate::cli::cluster::targets::{self, Target, TargetFlags};
use crate::cli::command_line::flags;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds::deployment;
use crate::object::{Object, time};
use jiff::SignedDuration;

/// Show the status of the rollout.
///
/// By default 'rollout status' will watch the status of the latest rollout until it's done. If you don't want to wait for the
/// rollout to finish then you can use --watch=false. Note that if a new rollout starts in-between, then 'rollout status' will
/// continue watching the latest revision. If you want to pin to a specific revision and abort if it is rolled over by another
/// revision, use --revision=N where N is the revision you need to watch for.
#[derive(clap::Args)]
#[command(
    override_usage = "(TYPE NAME | TYPE/NAME)",
    after_help = "\
# Watch the rollout status of a deployment
kloop rollout status deployment/nginx"
)]
pub struct Args {
    #[command(flatten)]
    which: TargetFlags,
    /// Watch the status of the rollout until it's done.
    #[arg(short, long, default_value_t = true)]
    watch: bool,
    /// Pin to a specific revision for showing its status. Defaults to 0 (last revision).
    #[arg(long, default_value_t = 0, value_name = "REVISION", allow_negative_numbers = true)]
    revision: i64,
    /// The length of time to wait before ending watch, zero means never.
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = time::parse_duration)]
    timeout: SignedDuration,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    if args.revision < 0 {
        return Err(Failure::plain(format!("revision must be a positive integer: {}", args.revision)));
    }
    let timeout = flags::nonzero(args.timeout);
    required(&args.which)?;
    let (found, mut failures) = targets::find(context, &args.which.scope())?;
    if found.is_empty() && failures.is_empty() {
        let text = format!("No resources found in {} namespace.", context.namespace());
        return control_plane::print_nothing_found(context, &text);
    }
    for target in &found {
        let deadline = Deadline::with_control_plane(context, timeout)?;
        if let Err(failure) = follow(&args, context, target, &deadline) {
            failures.push(failure);
        }
    }
    Failure::from_failures(failures)
}

/// Prints each new state of a rollout until it is complete.
fn follow(args: &Args, context: &mut CommandContext, target: &Target, deadline: &Deadline) -> CliResult {
    let key = key_of(target.kind, &target.object);
    let mut printed = 0;
    loop {
        let now = context.read_view(|txn| txn.get(&key))?;
        let Some(object) = now.filter(|object| object.uid() == target.object.uid()) else {
            return Err(Failure::plain("object has been deleted"));
        };
        if object.revision() != printed {
            printed = object.revision();
            let RolloutStage { sentence, done } = stage(target, &object, args.revision)?;
            context.print_line(&sentence)?;
            if done || !args.watch {
                return Ok(());
            }
        }
        deadline.wait_or_fail()?;
    }
}

/// Progress of a rollout.
#[derive(Debug, PartialEq, Eq)]
struct RolloutStage {
    sentence: String,
    done: bool,
}

fn waiting(sentence: impl Into<String>) -> CliResult<RolloutStage> {
    Ok(RolloutStage { sentence: sentence.into(), done: false })
}

fn done(sentence: impl Into<String>) -> CliResult<RolloutStage> {
    Ok(RolloutStage { sentence: sentence.into(), done: true })
}

fn stage(target: &Target, object: &Object, revision: i64) -> CliResult<RolloutStage> {
    match target.kind.resource.0 {
        "deployments.apps" => deployment(object, revision),
        "daemonsets.apps" => rolling_only(object).and_then(|()| daemon_set(object)),
        "statefulsets.apps" => rolling_only(object).and_then(|()| stateful_set(object)),
        _ => {
            let kind = group_kind(target);
            Err(Failure::plain(format!("no status viewer has been implemented for {kind}")))
        }
    }
}

fn rolling_only(object: &Object) -> CliResult {
    match object.text(&["spec", "updateStrategy", "type"]) {
        None | Some("RollingUpdate") => Ok(()),
        Some(_) => Err(Failure::plain("rollout status is only available for RollingUpdate strategy type")),
    }
}

fn status(object: &Object, field: &str) -> i64 {
    object.int(&["status", field]).unwrap_or(0)
}

fn deployment(object: &Object, revision: i64) -> CliResult<RolloutStage> {
    let name = object.name();
    if revision > 0 {
        let running = object.annotation(deployment::REVISION).and_then(|text| text.parse().ok());
        let running = running.unwrap_or(0);
        if running != revision {
            let text = format!("desired revision ({revision}) is different from the running revision ({running})");
            return Err(Failure::plain(text));
        }
    }
    if object.generation() > status(object, "observedGeneration") {
        return waiting("Waiting for deployment spec update to be observed...");
    }
    if object.condition("Progressing").is_some_and(|condition| condition["reason"] == deployment::DEADLINE_EXCEEDED) {
        return Err(Failure::plain(format!("deployment {name:?} exceeded its progress deadline")));
    }
    let (desired, updated) = (object.int(&["spec", "replicas"]).unwrap_or(1), status(object, "updatedReplicas"));
    let (all, available) = (status(object, "replicas"), status(object, "availableReplicas"));
    let head = format!("Waiting for deployment {name:?} rollout to finish:");
    if updated < desired {
        return waiting(format!("{head} {updated} out of {desired} new replicas have been updated..."));
    }
    if all > updated {
        return waiting(format!("{head} {} old replicas are pending termination...", all - updated));
    }
    if available < updated {
        return waiting(format!("{head} {available} of {updated} updated replicas are available..."));
    }
    done(format!("deployment {name:?} successfully rolled out"))
}

fn daemon_set(object: &Object) -> CliResult<RolloutStage> {
    if object.generation() > status(object, "observedGeneration") {
        return waiting("Waiting for daemon set spec update to be observed...");
    }
    let name = object.name();
    let (desired, updated) = (status(object, "desiredNumberScheduled"), status(object, "updatedNumberScheduled"));
    let available = status(object, "numberAvailable");
    let head = format!("Waiting for daemon set {name:?} rollout to finish:");
    if updated < desired {
        return waiting(format!("{head} {updated} out of {desired} new pods have been updated..."));
    }
    if available < desired {
        return waiting(format!("{head} {available} of {desired} updated pods are available..."));
    }
    done(format!("daemon set {name:?} successfully rolled out"))
}

fn stateful_set(object: &Object) -> CliResult<RolloutStage> {
    let observed = status(object, "observedGeneration");
    if observed == 0 || object.generation() > observed {
        return waiting("Waiting for statefulset spec update to be observed...");
    }
    let (desired, ready) = (object.int(&["spec", "replicas"]).unwrap_or(1), status(object, "readyReplicas"));
    if ready < desired {
        return waiting(format!("Waiting for {} pods to be ready...", desired - ready));
    }
    let updated = status(object, "updatedReplicas");
    if let Some(rolling) = object.value_at(&["spec", "updateStrategy", "rollingUpdate"]) {
        let partition = rolling["partition"].as_i64().unwrap_or(0);
        if updated < desired - partition {
            return waiting(format!(
                "Waiting for partitioned roll out to finish: {updated} out of {} new pods have been updated...",
                desired - partition
            ));
        }
        return done(format!("partitioned roll out complete: {updated} new pods have been updated..."));
    }
    let text = |field: &str| object.text(&["status", field]).unwrap_or_default().to_owned();
    let (update, current) = (text("updateRevision"), text("currentRevision"));
    if update != current {
        return waiting(format!(
            "waiting for statefulset rolling update to complete {updated} pods at revision {update}..."
        ));
    }
    let count = status(object, "currentReplicas");
    done(format!("statefulset rolling update complete {count} pods at revision {current}..."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn object(spec: Value, status: Value) -> Object {
        Object(json!({"metadata": {"name": "web", "generation": 2}, "spec": spec, "status": status}))
    }

    #[test]
    fn deployment_progress_is_described() {
        let head = "Waiting for deployment \"web\" rollout to finish:";
        for (status, expected, is_done) in [
            (
                json!({"observedGeneration": 1}),
                "Waiting for deployment spec update to be observed...".to_owned(),
                false,
            ),
            (
                json!({"observedGeneration": 2, "updatedReplicas": 1, "replicas": 3}),
                format!("{head} 1 out of 3 new replicas have been updated..."),
                false,
            ),
            (
                json!({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 4}),
                format!("{head} 1 old replicas are pending termination..."),
                false,
            ),
            (
                json!({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 3, "availableReplicas": 2}),
                format!("{head} 2 of 3 updated replicas are available..."),
                false,
            ),
            (
                json!({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 3, "availableReplicas": 3}),
                "deployment \"web\" successfully rolled out".to_owned(),
                true,
            ),
        ] {
            let stage = deployment(&object(json!({"replicas": 3}), status), 0).unwrap();
            assert_eq!((stage.sentence, stage.done), (expected, is_done));
        }
        let late = json!({"observedGeneration": 2, "conditions": [{"type": "Progressing", "reason": "ProgressDeadlineExceeded"}]});
        let error = deployment(&object(json!({}), late), 0).unwrap_err();
        assert_eq!(error.to_string(), "error: deployment \"web\" exceeded its progress deadline");
        let error = deployment(&object(json!({}), json!({})), 7).unwrap_err().to_string();
        assert_eq!(error, "error: desired revision (7) is different from the running revision (0)");
    }

    #[test]
    fn stateful_set_progress_is_described() {
        let rolling =
            |partition: i64| json!({"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": partition}}});
        let status = |ready: i64, updated: i64| json!({"observedGeneration": 2, "readyReplicas": ready, "updatedReplicas": updated});
        for (spec, status, expected) in [
            (rolling(0), json!({}), "Waiting for statefulset spec update to be observed..."),
            (rolling(0), status(1, 0), "Waiting for 2 pods to be ready..."),
            (
                rolling(1),
                status(3, 1),
                "Waiting for partitioned roll out to finish: 1 out of 2 new pods have been updated...",
            ),
            (rolling(1), status(3, 2), "partitioned roll out complete: 2 new pods have been updated..."),
        ] {
            assert_eq!(stateful_set(&object(spec, status)).unwrap().sentence, expected);
        }
        let on_delete = object(json!({"updateStrategy": {"type": "OnDelete"}}), json!({}));
        assert!(rolling_only(&on_delete).is_err());
    }

    #[test]
    fn daemon_set_progress_is_described() {
        let status = |updated: i64, available: i64| {
            json!({"observedGeneration": 2, "desiredNumberScheduled": 3,
                "updatedNumberScheduled": updated, "numberAvailable": available})
        };
        for (status, expected) in [
            (
                status(1, 3),
                "Waiting for daemon set \"web\" rollout to finish: 1 out of 3 new pods have been updated...",
            ),
            (status(3, 1), "Waiting for daemon set \"web\" rollout to finish: 1 of 3 updated pods are available..."),
            (status(3, 3), "daemon set \"web\" successfully rolled out"),
        ] {
            assert_eq!(daemon_set(&object(json!({}), status)).unwrap().sentence, expected);
        }
    }
}
