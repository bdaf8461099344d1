//! `kloop apply --force`: deletes an object that cannot be changed to match its manifest, and
//! creates it again.

use super::Args;
use crate::apiserver::WriteOptions;
use crate::apiserver::apply::{Applied, ApplyOutcome};
use crate::apiserver::create::create;
use crate::apiserver::delete::{DeleteOptions, delete};
use crate::cli::cluster::deadline::Deadline;
use crate::cli::command_line::flags;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds::Kind;
use crate::object::{Key, Object};

/// Deletes the object, waits until it is gone, and creates it again.
pub fn recreate(
    args: &Args,
    context: &mut CommandContext,
    (kind, key): (&'static Kind, &Key),
    object: &Object,
    options: &WriteOptions,
) -> CliResult<Applied> {
    let mut object = object.clone();
    // A version in the manifest is that of the object which is deleted.
    object.unset(&["metadata", "resourceVersion"]);
    let (propagation, dry_run) = (args.deletion.propagation()?, options.dry_run);
    let grace = Some(args.grace_period).filter(|seconds| *seconds >= 0);
    let how = DeleteOptions { propagation: Some(propagation), grace, dry_run, ..DeleteOptions::default() };
    if options.dry_run {
        let made = context.api_for(true)?.write(true, |txn| {
            delete(txn, kind, key, &how)?;
            create(txn, kind, &object, options)
        })?;
        return Ok(Applied::from_reply(ApplyOutcome::Configured, made));
    }
    let patience = Deadline::new(context, flags::nonzero(args.timeout))?;
    let old = context.read_view(|txn| txn.get(key))?;
    context.api()?.write(false, |txn| delete(txn, kind, key, &how))?;
    while context.read_view(|txn| txn.exists(key))? {
        patience.wait_or_fail()?;
    }
    let refused = match context.api()?.write(false, |txn| create(txn, kind, &object, options)) {
        Ok(made) => return Ok(Applied::from_reply(ApplyOutcome::Configured, made)),
        Err(status) => status,
    };
    let Some(mut old) = old else { return Err(refused.into()) };
    old.unset(&["metadata", "resourceVersion"]);
    let restored = context.api()?.write(false, |txn| create(txn, kind, &old, options));
    match restored {
        Ok(_) => Err(refused.into()),
        Err(lost) => Err(Failure::plain(format!(
            "An error occurred force-replacing the existing object with the newly provided one:\n\n{refused}.\n\nAdditionally, an error \
             occurred attempting to restore the original object:\n\n{lost}"
        ))),
    }
}
