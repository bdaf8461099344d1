//! Nodes: whether they answer.

use super::{CauseLink, name};
use crate::controllers::node_lifecycle;
use crate::reconcile::node::{RUNTIME, STOPPED, logged_capabilities};
use crate::world::Row;

/// The link of a node.
pub fn link(row: &Row) -> CauseLink {
    let object = row.object();
    let ready = object.condition("Ready");
    let is_ready = ready.is_some_and(|one| one["status"] == "True");
    let text = |field: &str| ready.and_then(|one| one[field].as_str()).unwrap_or_default().to_owned();
    let seen = match ready {
        None => "it has never reported".to_owned(),
        Some(_) if is_ready => "Ready".to_owned(),
        Some(_) => format!("not ready: {}: {}", text("reason"), text("message").trim_end_matches('.')),
    };
    let cordoned = object.value_at(&["spec", "unschedulable"]).is_some_and(|value| value == true);
    let seen = if cordoned { format!("{seen}, takes no new pods (cordoned)") } else { seen };
    let seen = logged_capabilities(&object).fold(seen, |seen, lack| format!("{seen}; {lack}"));
    let link = CauseLink { wanted: "Ready".into(), seen, ..CauseLink::from_row(row) };
    let link = CauseLink { by: node_lifecycle::LOOP.name, ..link };
    let me = name(&row.key);
    if object.annotation(STOPPED).is_some() {
        let seen = format!("{}, stopped by hand", link.seen);
        return CauseLink { seen, ..link }.stuck(format!("kloop node start {}", row.key.name));
    }
    link.stuck_if(!is_ready, || match object.annotation(RUNTIME) {
        Some(_) => format!("see why: kloop describe {me}"),
        None => format!("start its kubelet, or remove it: kloop node remove {}", row.key.name),
    })
}
