//! `apply --force`: an object that cannot be changed into what the manifest says is deleted and made anew.

use crate::apiserver::Options;
use crate::apiserver::apply::{Applied, Outcome as Done};
use crate::apiserver::create::create;
use crate::apiserver::delete::{DeleteOptions, delete};
use crate::cli::patience::Patience;
use crate::cli::{Context, Outcome};
use crate::kinds::Kind;
use crate::object::{Key, Object};
use crate::world::Propagation;

/// Deletes, waits until the object is gone, creates.
pub fn make(
    context: &mut Context,
    kind: &'static Kind,
    key: &Key,
    object: &Object,
    options: &Options,
) -> Outcome<Applied> {
    let how = DeleteOptions { grace: None, propagation: Propagation::Background, uid: None, revision: None };
    if options.dry_run {
        let made = context.api_for(true)?.write(true, |ledger| {
            delete(ledger, kind, key, &how)?;
            create(ledger, kind, object, options)
        })?;
        return Ok(Applied::of(Done::Configured, made));
    }
    let patience = Patience::new(context, None)?;
    context.api()?.write(false, |ledger| delete(ledger, kind, key, &how))?;
    while context.look(|ledger| ledger.exists(key))? && patience.wait() {}
    let made = context.api()?.write(false, |ledger| create(ledger, kind, object, options))?;
    Ok(Applied::of(Done::Configured, made))
}
