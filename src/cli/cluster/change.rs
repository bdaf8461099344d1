//! Reads an object, changes it and writes it back, in one transaction.

use super::change_cause;
use super::targets::Target;
use crate::apiserver::apply::three_way;
use crate::apiserver::authorization::check_verb;
use crate::apiserver::patch::{PatchType, patch, patched};
use crate::apiserver::rules::names::key_of;
use crate::apiserver::scale::scale;
use crate::apiserver::update::{UpdatePart, write_update};
use crate::apiserver::{ApiResult, FieldValidation, Transaction, WriteOptions, WriteReply, read};
use crate::cli::command_line::dry_run::DryRun;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds::Kind;
use crate::kinds::catalogue::merge_rules;
use crate::object::{Key, Object, Reason, Status};
use serde_json::{Value, json};

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

/// Changes a part of the current object.
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
        context.record(&mut object);
        let changed = object != target.object;
        return Ok(WriteReply { object: object.into(), warnings: Vec::new(), changed });
    }
    let key = key_of(target.kind, &target.object);
    let options = context.options(FieldValidation::Warn, dry_run);
    options.check_manager("PatchOptions")?;
    let (mut failed, cause) = (None, context.change_cause.clone().filter(|_| part != UpdatePart::Scale));
    let done = context.api()?.write(options.dry_run, |txn| {
        check_verb(txn, "patch", part.subresource(), &key)?;
        let old = read::get(txn, &key)?;
        let mut object = old.clone();
        if let Err(failure) = edit(&mut object) {
            failed = Some(failure);
            return Err(Status::new(Reason::BadRequest, "the edit failed"));
        }
        change_cause::record(cause.as_deref(), &mut object);
        match txn.is_remote() {
            true => patch_difference(txn, target.kind, &old, &object, part, &options),
            false => write_update(txn, target.kind, &object, part, &options),
        }
    });
    if let Some(failure) = failed {
        return Err(failure);
    }
    let reply = done.map_err(Failure::from)?;
    context.warn(&reply.warnings);
    Ok(reply)
}

/// Sends an edit as a patch, as kubectl does: others may change other fields in the meantime.
fn patch_difference(
    txn: &mut dyn Transaction,
    kind: &Kind,
    old: &Object,
    new: &Object,
    part: UpdatePart,
    options: &WriteOptions,
) -> ApiResult<WriteReply> {
    if old == new {
        return Ok(WriteReply::unchanged(old.clone(), Vec::new()));
    }
    let merges = merge_rules::schema_for(old.api_version(), kind.kind).is_some() && part != UpdatePart::Scale;
    let language = if merges { PatchType::Strategic } else { PatchType::Merge };
    let change = match part {
        // The body of this subresource is a Scale for every kind.
        UpdatePart::Scale => json!({"spec": {"replicas": new.int(&kind.replicas().0)}}),
        _ => three_way(kind, Some(&old.0), new, old, true)?,
    };
    let options = WriteOptions { api_version: Some(old.api_version().to_owned()), ..options.clone() };
    patch(txn, kind, &key_of(kind, old), language, &change, part, &options)
}

/// Patches the Scale of an object. The answer has the Scale.
pub fn patch_scale(
    context: &mut CommandContext,
    (kind, key): (&'static Kind, &Key),
    (language, change): (PatchType, &Value),
    options: &WriteOptions,
) -> CliResult<WriteReply> {
    let reply = context.api()?.write(options.dry_run, |txn| {
        if txn.is_remote() {
            return patch(txn, kind, key, language, change, UpdatePart::Scale, options);
        }
        let stored = read::exact(txn, key)?;
        // A Scale has no lists, for which the two languages would differ.
        let language = if language == PatchType::Json { language } else { PatchType::Merge };
        let wanted = patched(kind, &scale(kind, &stored), language, change)?;
        let mut change = Object(json!({}));
        change.set(&kind.replicas().0, wanted["spec"]["replicas"].clone());
        let reply = patch(txn, kind, key, PatchType::Merge, &change.0, UpdatePart::Scale, options)?;
        Ok(WriteReply { object: scale(kind, &reply.object).into(), ..reply })
    });
    Ok(reply?)
}
