//! Builds of images: orders them for running containers, and writes their progress to the status of the Image object and to events, of
//! the object and of the pods that wait for the build or continue with the previous one.

use super::pod::{AttemptState, LocalPod, PodContainer};
use super::{image, start};
use crate::kinds::image::RESOURCE;
use crate::object::{Key, Object, Resource, Str, Time, time};
use crate::world::facts::BuildStage;
use crate::world::{Effect, EventType, Phase, Plan, Row, World};
use jiff::SignedDuration;
use serde_json::{Value, json};

/// Maximum number of pods that get an event about one build.
const MAX_PODS_WITH_EVENT: usize = 20;

/// Brings the status of an Image object up to date with its last build; true when that changes it.
pub fn update_status(world: &World, object: &mut Object, plan: &mut Plan) -> bool {
    let old = object.value_at(&["status", "build"]).cloned().unwrap_or_default();
    let stage = world.facts.builds.get(object.name()).map(|built| &built.stage);
    let new = match stage {
        Some(BuildStage::Running { since }) => json!({"state": "Building", "startedAt": seconds(*since)}),
        Some(BuildStage::Ended { since: Some(since), at, output, error }) => {
            ended(*since, *at, output, error.as_deref().map(reason))
        }
        // Another control plane began the build, and no report of its end came.
        None | Some(BuildStage::Ordered) if old["state"] == "Building" => {
            json!({"state": "Interrupted", "startedAt": old["startedAt"]})
        }
        _ => return false,
    };
    if new == old {
        return false;
    }
    object.set(&["status", "build"], new);
    stage.into_iter().for_each(|stage| events(world, object, stage, plan));
    true
}

fn seconds(at: Time) -> String {
    time::rfc3339(at)
}

fn ended(since: Time, at: Time, output: &str, error: Option<&str>) -> Value {
    let state = if error.is_some() { "Failed" } else { "Succeeded" };
    let mut build = json!({"state": state, "startedAt": seconds(since), "finishedAt": seconds(at)});
    for (field, text) in [("message", error.unwrap_or_default()), ("output", output)] {
        if !text.is_empty() {
            build[field] = text.into();
        }
    }
    build
}

/// Why it failed, without its output.
fn reason(error: &str) -> &str {
    error.split(":\n").next().unwrap_or(error)
}

/// The error for pods that run the previous build. The output of the build is last, because events are often shown on one line.
fn truncate_error(error: &str) -> String {
    let how = reason(error);
    format!("{how}; the previous build keeps running{}", &error[how.len()..])
}

fn events(world: &World, object: &Object, stage: &BuildStage, plan: &mut Plan) {
    let name = object.name();
    let (kind, word, of_image, of_pod) = match stage {
        BuildStage::Running { .. } => {
            (EventType::Normal, "Building", "Building".to_owned(), format!("Building Image {name:?}"))
        }
        BuildStage::Ended { since: Some(since), at, error: None, .. } => {
            let millis = at.duration_since(*since).as_millis() as i64;
            let took = time::format_duration(SignedDuration::from_millis(millis));
            let text = format!("Successfully built in {took}");
            (EventType::Normal, "Built", text, format!("Successfully built Image {name:?} in {took}"))
        }
        BuildStage::Ended { error: Some(error), .. } => {
            (EventType::Warning, "ErrImageBuild", error.clone(), truncate_error(error))
        }
        _ => return,
    };
    let Some(row) = world.get(&Key::new(Resource(RESOURCE), "", name)) else { return };
    plan.event(row, kind, word, of_image);
    // A pod that waits for a failed build reports it itself.
    let concerned = |pod: &&Row| match (stage, pod.pod().map(|pod| pod.phase)) {
        (BuildStage::Ended { error: Some(_), .. }, phase) => phase == Some(Phase::Running),
        (_, phase) => phase.is_some_and(|phase| !phase.is_terminal()),
    };
    for pod in image::users(world, name).filter(concerned).take(MAX_PODS_WITH_EVENT) {
        plan.event(pod, kind, word, &*of_pod);
    }
}

/// Orders builds of images with changed files. Running containers continue until a build succeeds.
pub fn order_builds(pod: &LocalPod, ip: &Str, plan: &mut Plan) {
    let running = |member: &&PodContainer| matches!(member.state, AttemptState::Running { .. });
    for member in pod.members.iter().filter(running).filter(|member| image::with_new_sources(pod, member).is_some()) {
        let Some(inputs) = image::unbuilt(pod, member).and_then(|image| Some(image.build?.inputs)) else { continue };
        let mut orders = plan.effects.iter();
        let known = pod.world.facts.builds.values().any(|built| built.inputs == inputs)
            || orders.any(|effect| matches!(effect, Effect::Build { image } if image.build.as_ref().is_some_and(|build| build.inputs == inputs)));
        // With the variables of the container, as its start would bring it.
        let image = start::build(pod, member, member.attempt + 1, ip).ok().and_then(|start| start.requested_image);
        if let Some(image) = image.filter(|_| !known) {
            plan.effects.push(Effect::Build { image: Box::new(image) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::truncate_error;

    #[test]
    fn kept_output_of_a_build_precedes_new_output() {
        for (error, expected) in [
            ("\"make\" exited with code 3:\nno", "\"make\" exited with code 3; the previous build keeps running:\nno"),
            ("it took too long", "it took too long; the previous build keeps running"),
        ] {
            assert_eq!(truncate_error(error), expected);
        }
    }
}
