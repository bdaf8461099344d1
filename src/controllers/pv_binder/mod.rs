//! Binds claims to volumes, and keeps claims, volumes and VolumeAttributesClasses in use from deletion.
//!
//! Makes separate plans for claims and volumes, each of which writes its own status. Never: creates volumes; users and
//! [`volume_provisioner`](super::volume_provisioner) do. Start reading at [`binding::bind`].

mod binding;
mod protection;
#[cfg(test)]
mod tests;
mod volume_phase;

use crate::object::{Key, Resource};
use crate::world::storage::{self, CLAIMS, VOLUMES};
use crate::world::{Loop, Plan, Row, World};
use protection::{ATTRIBUTES_CLASSES, deleted_classes};

/// The loop of claims and volumes.
pub const LOOP: Loop = Loop { name: "persistentvolume-controller", root: CLAIMS, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        ATTRIBUTES_CLASSES => vec![row.key.clone()],
        CLAIMS => {
            let spec = row.field("spec");
            let volume = spec["volumeName"].as_str().map(|name| Key::new(Resource(VOLUMES), "", name));
            volume.into_iter().chain([row.key.clone()]).chain(deleted_classes(world)).collect()
        }
        VOLUMES => {
            let claims = world.list(CLAIMS).filter(|claim| may_bind(claim, &row.key.name));
            claims.map(|claim| claim.key.clone()).chain([row.key.clone()]).chain(deleted_classes(world)).collect()
        }
        "pods" => {
            let claims = storage::used_by(world, row);
            claims
                .filter(|claim| claim.is_deleting() || storage::is_open(claim))
                .map(|claim| claim.key.clone())
                .collect()
        }
        storage::CLASSES => {
            let open = world.list(CLAIMS).filter(|claim| storage::is_open(claim));
            open.map(|claim| claim.key.clone()).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether a change of a volume concerns a claim: the claim is bound to this volume or to none.
fn may_bind(claim: &Row, volume: &str) -> bool {
    // There may be very many claims, nearly all of them bound to others, so that none is decoded.
    let names = |volume: &str| claim.mentions(&format!("\"volumeName\":\"{volume}\""));
    names(volume) || names("") || !claim.mentions("\"volumeName\"")
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key) else { return plan };
    let object = row.object();
    match key.resource.0 {
        CLAIMS if row.is_deleting() => protection::release_claim(world, row, object, &mut plan),
        CLAIMS => binding::bind(world, row, object, &mut plan),
        ATTRIBUTES_CLASSES => protection::release_class(world, row, object, &mut plan),
        _ => volume_phase::sync_volume(world, row, object, &mut plan),
    }
    plan
}
