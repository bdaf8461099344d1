//! Reads an object, changes it and writes it back, in one transaction.

use super::dry_run::DryRun;
use super::targets::Target;
use super::{CliResult, CommandContext, Failure};
use crate::apiserver::authorization::check_verb;
use crate::apiserver::rules::names::key_of;
use crate::apiserver::update::{UpdatePart, write_update};
use crate::apiserver::{FieldValidation, WriteReply, read};
use crate::object::{Object, Reason, Status};

/// Changes the current version of an object. Errors name kubectl's `PatchOptions`, because kubectl
/// sends a patch for this. With `--dry-run=client`, changes the copy in `target` and writes
/// nothing.
pub fn change(
    context: &mut CommandContext,
    target: &Target,
    dry_run: DryRun,
    edit: impl FnMut(&mut Object) -> CliResult,
) -> CliResult<WriteReply> {
    change_part(context, target, UpdatePart::Main, dry_run, edit)
}

/// Changes a part of the object as it stands now.
pub fn change_part(
    context: &mut CommandContext,
    target: &Target,
    part: UpdatePart,
    dry_run: DryRun,
    mut edit: impl FnMut(&mut Object) -> CliResult,
) -> CliResult<WriteReply> {
    if dry_run == DryRun::Client {
        let mut object = target.object.clone();
        edit(&mut object)?;
        let changed = object != target.object;
        return Ok(WriteReply { object: object.into(), warnings: Vec::new(), changed });
    }
    let key = key_of(target.kind, &target.object);
    let options = context.options(FieldValidation::Warn, dry_run);
    options.check_manager("PatchOptions")?;
    let mut failed = None;
    let done = context.api()?.write(options.dry_run, |txn| {
        check_verb(txn, "patch", part.subresource(), &key)?;
        let mut object = read::get(txn, &key)?;
        if let Err(failure) = edit(&mut object) {
            failed = Some(failure);
            return Err(Status::new(Reason::BadRequest, "the edit failed"));
        }
        write_update(txn, target.kind, &object, part, &options)
    });
    if let Some(failure) = failed {
        return Err(failure);
    }
    let reply = done.map_err(Failure::from)?;
    context.warn(&reply.warnings);
    Ok(reply)
}
