//! `kloop apply --server-side`: merges by field ownership instead of the last-applied annotation.

use super::ApplyFailure;
use crate::apiserver::apply::Applied;
use crate::apiserver::apply_patch::{apply_as_kubectl, apply_patch};
use crate::apiserver::update::UpdatePart;
use crate::apiserver::{Transaction, WriteOptions};
use crate::cli::command_line::dry_run::DryRun;
use crate::cli::manifests::files::Manifest;
use crate::cli::{CliResult, Failure};
use crate::kinds::Kind;
use crate::managed_fields::apply::{ApplyManager, KUBECTL};
use crate::object::{Object, Reason, Status};

/// Flags of server-side apply.
#[derive(clap::Args)]
pub struct ServerSide {
    /// If true, apply runs in the server instead of the client.
    #[arg(long)]
    pub server_side: bool,
    /// If true, server-side apply will force the changes against conflicts.
    #[arg(long)]
    pub force_conflicts: bool,
    /// If specified, apply will operate on the subresource of the requested object: status or resize. Only allowed when using
    /// --server-side.
    #[arg(long, default_value = "", value_name = "NAME")]
    subresource: String,
}

/// kubectl's text about conflicts and their remedies.
const RESOLVE: &str = "\
Please review the fields above--they currently have other managers. Here
are the ways you can resolve this warning:
* If you intend to manage all of these fields, please re-run the apply
  command with the `--force-conflicts` flag.
* If you do not intend to manage all of the fields, please edit your
  manifest to remove references to the fields that should keep their
  current managers.
* You may co-own fields by updating your manifest to match the existing
  value; in this case, you'll become the manager if the other manager(s)
  stop managing the field (remove it from their configuration).
See https://kubernetes.io/docs/reference/using-api/server-side-apply/#conflicts";

impl ServerSide {
    /// Refuses flags that exclude each other.
    pub fn check(&self, dry_run: DryRun, force: bool) -> CliResult {
        let wrong = match (self.server_side, self.force_conflicts) {
            (false, true) => "--force-conflicts only works with --server-side",
            (false, _) if !self.subresource.is_empty() => "--subresource only works with --server-side",
            (true, _) if dry_run == DryRun::Client => {
                "--dry-run=client doesn't work with --server-side (did you mean --dry-run=server instead?)"
            }
            (true, _) if force => "--force cannot be used with --server-side",
            _ => return Ok(()),
        };
        Err(Failure::plain(wrong))
    }

    /// Returns the field manager of a server-side apply.
    pub fn applier(&self, asked: Option<&str>) -> Option<ServerSideApplier> {
        let manager = asked.unwrap_or(KUBECTL).to_owned();
        let subresource = self.subresource.clone();
        self.server_side.then_some(ServerSideApplier { manager, force: self.force_conflicts, subresource })
    }
}

/// Field manager and options of a server-side apply.
pub struct ServerSideApplier {
    manager: String,
    force: bool,
    subresource: String,
}

impl ServerSideApplier {
    /// Applies one manifest.
    pub fn apply(
        &self,
        txn: &mut dyn Transaction,
        manifest: &Manifest,
        kind: &Kind,
        object: &Object,
        options: &WriteOptions,
    ) -> Result<Applied, ApplyFailure> {
        let applier = ApplyManager { name: &self.manager, force: self.force };
        let unknown = || Status::unknown_resource();
        let part = UpdatePart::find(kind, &self.subresource).ok_or_else(unknown);
        let done = match part.map_err(|status| ApplyFailure::Failed(refused(status, manifest)))? {
            UpdatePart::Main => apply_as_kubectl(txn, kind, object, applier, options),
            part => apply_patch(txn, kind, object, applier, part, options),
        };
        done.map_err(|status| ApplyFailure::Failed(refused(status, manifest)))
    }
}

/// Adds kubectl's advice to a refusal.
fn refused(status: Status, manifest: &Manifest) -> Failure {
    let is_of_managers = status.causes.iter().any(|cause| cause.reason == "FieldManagerConflict");
    if status.reason == Reason::Conflict && is_of_managers {
        return Failure::plain(format!("{status}\n{RESOLVE}"));
    }
    let hints = manifest.hints(&status);
    Failure::Api { status, doing: String::new(), hints }
}
