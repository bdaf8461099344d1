//! How the builds of images go, as it stands in the status of the Image object and is told by events: of the object, and of the pods that
//! wait for it or go on with what was built before.

use super::image;
use crate::kinds::image::RESOURCE;
use crate::object::{Key, Object, Resource, Time, time};
use crate::world::facts::BuildStage;
use crate::world::{EventType, Phase, Plan, Row, World};
use jiff::SignedDuration;
use serde_json::{Value, json};

/// More pods than these are not told of one build.
const MOST: usize = 20;

/// Brings the status of an Image object up to date with its last build; true when that changes it.
pub fn tell(world: &World, object: &mut Object, plan: &mut Plan) -> bool {
    let old = object.at(&["status", "build"]).cloned().unwrap_or_default();
    let stage = world.facts.builds.get(object.name()).map(|built| &built.stage);
    let new = match stage {
        Some(BuildStage::Running { since }) => json!({"state": "Building", "startedAt": seconds(*since)}),
        Some(BuildStage::Ended { since: Some(since), at, output, error }) => {
            ended(*since, *at, output, error.as_deref().map(reason))
        }
        // Another control plane has begun it, and its end was not seen.
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
    let mut told = json!({"state": state, "startedAt": seconds(since), "finishedAt": seconds(at)});
    for (field, text) in [("message", error.unwrap_or_default()), ("output", output)] {
        if !text.is_empty() {
            told[field] = text.into();
        }
    }
    told
}

/// Why it failed, without the lines that it has written.
fn reason(error: &str) -> &str {
    error.split(":\n").next().unwrap_or(error)
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
            let kept = format!("{error}\nWhat was built before goes on running");
            (EventType::Warning, "ErrImageBuild", error.clone(), kept)
        }
        _ => return,
    };
    let Some(row) = world.get(&Key::new(Resource(RESOURCE), "", name)) else { return };
    plan.event(row, kind, word, of_image);
    // Who waits for a build that has failed says so itself.
    let concerned = |pod: &&Row| match (stage, pod.pod().map(|pod| pod.phase)) {
        (BuildStage::Ended { error: Some(_), .. }, phase) => phase == Some(Phase::Running),
        (_, phase) => phase.is_some_and(|phase| !phase.is_terminal()),
    };
    for pod in image::users(world, name).filter(concerned).take(MOST) {
        plan.event(pod, kind, word, &*of_pod);
    }
}
