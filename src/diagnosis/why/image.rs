//! Image objects: whether their build succeeded. A failed build does not affect running containers.

use super::dry_run::with_dry_run;
use super::last_activity::last_event_with_reason;
use super::{CauseLink, ControlPlaneState, ConvergenceState, name};
use crate::kinds::image::RESOURCE;
use crate::kubelet::image;
use crate::world::facts::BuildStage;
use crate::world::{Row, World};
use std::collections::BTreeSet;

/// The link of an Image object.
pub fn link(world: &mut World, row: &Row, plane: &ControlPlaneState) -> CauseLink {
    let link = CauseLink { wanted: "exists".into(), seen: "exists".into(), ..CauseLink::from_row(row) };
    let link = with_dry_run(world, row, link, plane);
    let Some((how, last)) = failure(world, row) else { return link };
    let seen = format!("its last build failed: {how}");
    let me = name(&row.key);
    CauseLink { wanted: "built".into(), seen, error: last, ..link }.stuck(format!(
        "correct its sources, or spec.build of {me} (kloop describe {me}); the previous build keeps running"
    ))
}

/// The images of a pod's containers whose last build has failed.
pub fn links(world: &mut World, pod: &Row, plane: &ControlPlaneState) -> Vec<CauseLink> {
    if pod.is_deleting() || pod.pod().is_none_or(|fields| fields.phase.is_terminal()) {
        return Vec::new();
    }
    let body = pod.body();
    let images = body.containers().filter_map(|container| image::find_settings(world, container["image"].as_str()?));
    let names: BTreeSet<String> = images.map(|image| image.name().to_owned()).collect();
    let rows: Vec<_> = names.iter().filter_map(|name| world.find(RESOURCE, "", name).cloned()).collect();
    let links = rows.iter().map(|row| link(world, row, plane));
    links.filter(|link| link.state == ConvergenceState::Stuck).collect()
}

/// Returns the failure of the last build, and the last line of its output.
fn failure(world: &World, row: &Row) -> Option<(String, Option<String>)> {
    let object = row.object();
    object.value_at(&["spec", "build"])?;
    let stage = world.facts.builds.get(&*row.key.name).map(|built| &built.stage);
    if matches!(stage, Some(BuildStage::Ended { error: None, .. })) {
        return None;
    }
    let last = |text: &str| text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned);
    let build = ["status", "build"];
    if object.value_at(&build).is_some() {
        let text = |field: &str| object.text(&[build[0], build[1], field]).unwrap_or_default();
        return (text("state") == "Failed").then(|| (text("message").to_owned(), last(text("output"))));
    }
    let failed = last_event_with_reason(world, row, "ErrImageBuild")?;
    let is_over = last_event_with_reason(world, row, "Built").is_some_and(|built| built.at >= failed.at);
    let (how, output) = failed.message.split_once(":\n").unwrap_or((&failed.message, ""));
    (!is_over).then(|| (how.to_owned(), last(output)))
}
