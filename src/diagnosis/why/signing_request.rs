//! CertificateSigningRequests: whether they are approved, and signed.

use super::dry_run::with_dry_run;
use super::{CauseLink, ControlPlaneState, ConvergenceState};
use crate::controllers::certificates::is_issued;
use crate::world::{Row, World};

/// Prefix of the signers that the control plane has.
const BUILT_IN_SIGNERS: &str = "kubernetes.io/";

/// The link of a request: controllers approve only those of kubelets, so most wait for a user.
pub fn link(world: &mut World, row: &Row, plane: &ControlPlaneState) -> CauseLink {
    let request = row.object();
    let link = CauseLink { wanted: "approved or denied".into(), seen: "Pending".into(), ..CauseLink::from_row(row) };
    let name = &row.key.name;
    if let Some(failed) = request.true_condition("Failed") {
        let error = failed["message"].as_str().map(str::to_owned);
        let next = format!("correct the request, and create it again: kloop delete csr {name}");
        return CauseLink { wanted: "Issued".into(), seen: "Failed".into(), error, ..link }.stuck(next);
    }
    if request.has_condition("Denied") {
        return CauseLink { seen: "Denied".into(), ..link };
    }
    let is_approved = request.has_condition("Approved");
    if is_approved && is_issued(&request) {
        return CauseLink { seen: "Approved,Issued".into(), ..link };
    }
    let (wanted, seen) = if is_approved { ("Issued", "Approved") } else { ("approved or denied", "Pending") };
    let state = ConvergenceState::Converging;
    let link = with_dry_run(world, row, CauseLink { wanted: wanted.into(), seen: seen.into(), state, ..link }, plane);
    let is_due = link.seen.contains("; due: ");
    let signer = request.text(&["spec", "signerName"]).unwrap_or_default();
    let is_foreign = !signer.starts_with(BUILT_IN_SIGNERS);
    match is_approved {
        // The loop that would wake for it deletes old requests.
        false => CauseLink { wake: None, ..link }
            .stuck_if(!is_due, || format!("kloop certificate approve {name}, or: kloop certificate deny {name}")),
        true => link.stuck_if(is_foreign, || format!("run the signer {signer}, which writes status.certificate")),
    }
}
