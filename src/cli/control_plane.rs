//! Hints for a cluster on which no control plane has run yet: objects are kept there, and nothing acts on them.

use super::flags::DryRun;
use super::{CliResult, CommandContext};
use crate::kinds::Kind;
use crate::reconcile::control_loop::HEARD;
use crate::reconcile::leader;

/// Whether objects of a kind need a control plane to become anything: pods, and what makes pods.
pub fn is_needed_for(kind: &Kind) -> bool {
    kind.categories.contains(&"all") && kind.resource.0 != "services"
}

/// The hint with the next command, where a cluster is there and no control plane has run on it, nor runs now.
pub fn hint(context: &mut CommandContext) -> CliResult<Option<String>> {
    let flag = context.globals.state.as_ref().map(|state| format!(" --state {}", state.display())).unwrap_or_default();
    let Some(api) = context.existing()? else { return Ok(None) };
    let has_run =
        api.read(|snapshot| snapshot.meta(HEARD))?.is_some() || leader::leader_of(api.store().home()).is_some();
    let text =
        format!("hint: no control plane has run here yet, so that nothing starts; run: kloop{flag} reconcile --watch");
    Ok((!has_run).then_some(text))
}

/// Tells the hint when an object of this kind was written.
pub fn tell_hint_for(kind: &Kind, dry_run: DryRun, context: &mut CommandContext) -> CliResult {
    if is_needed_for(kind) && dry_run == DryRun::None { tell_hint(context) } else { Ok(()) }
}

/// Tells the hint on standard error.
pub fn tell_hint(context: &mut CommandContext) -> CliResult {
    if let Some(hint) = hint(context)? {
        context.print_notice(&hint);
    }
    Ok(())
}
