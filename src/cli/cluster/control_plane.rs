//! Hints for a cluster without a running control plane, where nothing acts on the objects.

use crate::cli::command_line::dry_run::DryRun;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds::Kind;
use crate::object::{Object, Time, time};
use crate::reconcile::leader;
use crate::runtime::process;
use crate::store::meta_keys::HEARD;

/// The hint for a cluster whose control plane has ended.
pub const NOTHING_CHANGES: &str =
    "hint: no control plane runs: nothing changes until one does (kloop reconcile --watch)";

/// The control plane's state, as far as a command can see it.
enum PlaneState {
    /// There is no cluster yet.
    NoCluster,
    /// No control plane has run yet.
    NeverRan,
    /// No control plane runs; the last one was alive at this time.
    Stopped(Option<Time>),
    /// A signal has stopped the control plane with this process ID.
    Suspended(u32),
    /// A control plane runs.
    Runs,
}

/// Whether objects of a kind have no effect without a control plane: pods and workloads.
pub fn is_needed_for(kind: &Kind) -> bool {
    kind.categories.contains(&"all") && kind.resource.0 != "services"
}

fn plane_state(context: &mut CommandContext) -> CliResult<PlaneState> {
    if context.client().is_some() {
        // That of a server is not on this machine.
        return Ok(PlaneState::Runs);
    }
    let Some(api) = context.existing()? else { return Ok(PlaneState::NoCluster) };
    if let Some(leader) = leader::read_leader(api.store().home()) {
        let is_stopped = i32::try_from(leader).is_ok_and(process::awaits_continue);
        return Ok(if is_stopped { PlaneState::Suspended(leader) } else { PlaneState::Runs });
    }
    let heard: Option<Option<Time>> = api.read(|snapshot| snapshot.meta(HEARD))?.map(|heard| heard.parse().ok());
    if leader::leads_elsewhere(api.store_mut(), heard.flatten(), Time::now()).map_err(anyhow::Error::from)? {
        return Ok(PlaneState::Runs);
    }
    Ok(heard.map_or(PlaneState::NeverRan, PlaneState::Stopped))
}

/// Prints which command to run, if there is no cluster or no control plane has run yet.
pub fn print_hint(context: &mut CommandContext) -> CliResult {
    if context.reads_past() {
        return Ok(());
    }
    let state_flag = context.globals.state.as_ref().map(|state| format!(" --state {}", state.display()));
    let named = context.globals.context.as_ref().filter(|_| context.context_in_file().is_some());
    let flag = state_flag.or_else(|| named.map(|name| format!(" --context {name}"))).unwrap_or_default();
    let state = context.state();
    let text = match plane_state(context)? {
        PlaneState::NoCluster => format!(
            "there is no cluster at {} yet: kloop{flag} apply makes one, and kloop{flag} reconcile --watch runs it",
            state.display()
        ),
        PlaneState::NeverRan => {
            format!("no control plane has run here yet, so that nothing starts; run: kloop{flag} reconcile --watch")
        }
        PlaneState::Suspended(pid) => {
            format!("the control plane is stopped by a signal, so that nothing changes; run: kill -CONT {pid}")
        }
        PlaneState::Stopped(_) | PlaneState::Runs => return Ok(()),
    };
    context.print_notice(&format!("hint: {text}"));
    Ok(())
}

/// Prints which command to run, if nothing acts on the cluster: after a command that found nothing or could not reach a process.
pub fn print_remedy(context: &mut CommandContext) -> CliResult {
    print_hint(context)?;
    if let PlaneState::Stopped(_) = plane_state(context)?
        && !context.reads_past()
    {
        context.print_notice(NOTHING_CHANGES);
    }
    Ok(())
}

/// Prints that a command found nothing, in kubectl's words, and which command to run if nothing acts on the cluster.
pub fn print_nothing_found(context: &mut CommandContext, text: &str) -> CliResult {
    context.print_notice(text);
    print_remedy(context)
}

/// Prints which command to run, after an object that needs a control plane was written.
pub fn print_hint_for(kind: &Kind, dry_run: DryRun, context: &mut CommandContext) -> CliResult {
    if !is_needed_for(kind) || dry_run != DryRun::None {
        return Ok(());
    }
    print_remedy(context)
}

/// Prints the age of the state, if no control plane updates it.
pub fn print_age(context: &mut CommandContext) -> CliResult {
    if context.reads_past() {
        return Ok(());
    }
    if let PlaneState::Stopped(Some(heard)) = plane_state(context)? {
        let age = time::age((context.now().as_second() - heard.as_second()).max(0));
        context.print_notice(&format!(
            "hint: no control plane runs: this state is {age} old (kloop reconcile --watch resumes)."
        ));
    }
    Ok(())
}

/// Prints a remedy after an object was not found: the namespace that has it, or the command that creates a cluster.
pub fn print_remedy_of_missing(context: &mut CommandContext, failure: &Failure) -> CliResult {
    if let PlaneState::NoCluster = plane_state(context)? {
        return print_hint(context);
    }
    let Some((resource, name)) = failure.missing_object() else { return Ok(()) };
    if context.is_impersonating() || context.client().is_some() {
        return Ok(());
    }
    let Some(kind) = context.kinds().all().find(|kind| kind.resource.0 == resource && kind.namespaced) else {
        return Ok(());
    };
    let has_name = |object: &Object| object.name() == name;
    let found = context.read_view(|txn| txn.list(kind.resource, None))?;
    if let [only] = &found.into_iter().filter(has_name).collect::<Vec<_>>()[..] {
        context.print_notice(&format!("hint: namespace {0} has it: add -n {0}", only.namespace()));
    }
    Ok(())
}
