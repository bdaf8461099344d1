//! Signs approved requests to the signers of Kubernetes (`pkg/controller/certificates/signer`).
//!
//! Never: signs a request that is not approved, or one of another signer. Start reading at [`plan`].

use super::{ROOT, add_condition, is_issued, parse_request, signers, usages};
use crate::object::Key;
use crate::world::{CertificateOrder, Loop, Plan, Row, World, WriteVerb};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The loop, by the name of Kubernetes' controller.
pub const LOOP: Loop =
    Loop { name: "certificatesigningrequest-signing-controller", root: ROOT, concerns, plan, ..Loop::BASE };

/// Lifetime of certificates in seconds, and the shortest one that can be requested.
const LIFETIME: i64 = 365 * 24 * 3600;
const SHORTEST: i64 = 600;

fn concerns(_: &World, row: &Row) -> Vec<Key> {
    if row.key.resource == ROOT { vec![row.key.clone()] } else { Vec::new() }
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    // Simulations have no signer.
    let Some(signer) = &world.settings.certificate_signer else { return plan };
    let Some(row) = world.get(key).filter(|row| !row.is_deleting()) else { return plan };
    let mut request = row.object();
    if !request.has_condition("Approved") || request.has_condition("Failed") || is_issued(&request) {
        return plan;
    }
    let name = request.text(&["spec", "signerName"]).unwrap_or_default();
    let usages = usages(&request);
    let parsed = match parse_request(&request) {
        Ok(parsed) => parsed,
        Err(why) => {
            plan.wait(format!("the certificate request cannot be read: {why}"));
            return plan;
        }
    };
    let seconds = request.int(&["spec", "expirationSeconds"]).unwrap_or(LIFETIME).clamp(SHORTEST, LIFETIME);
    let order = CertificateOrder { request: &parsed, usages: &usages, seconds, now: world.now };
    let signed = match signers::check(name, &parsed, &usages) {
        None => return plan,
        Some(checked) => checked
            .map_err(|why| ("SignerValidationFailure", why))
            .and_then(|()| signer.sign(&order).map_err(|why| ("SigningError", why))),
    };
    match signed {
        Ok(certificate) => {
            request.set(&["status", "certificate"], STANDARD.encode(certificate));
            plan.write(WriteVerb::Status(request), "the request is approved");
        }
        Err((reason, message)) => {
            add_condition(&mut request, "Failed", reason, &message, world.now);
            plan.write(WriteVerb::Status(request), message);
        }
    }
    plan
}
