//! One control plane in this process: it waits to lead, runs the loops, and ends.
//!
//! Never: starts a second set of loops while one runs. Start reading at [`PlaneRun::run`].

use super::signal_relay::SignalRelay;
use super::{Args, log};
use crate::apiserver::Api;
use crate::cli::cluster::contexts;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::diagnosis::convergence;
use crate::joined_node;
use crate::object::{Time, format_count, time};
use crate::reconcile::candidate::{self, Candidate};
use crate::reconcile::leader::{Election, Leadership, Standby};
use crate::reconcile::retry::{is_temporary, pause_when_full};
use crate::reconcile::run_end::{Convergence, RunUntil, Unmet};
use crate::reconcile::{ControlLoop, ControlSettings, LogLine, RunEnd, loops};
use crate::store::{self, StoreError};
use std::time::Duration;

/// Interval at which a standby tries to become leader.
const STANDBY_INTERVAL: Duration = Duration::from_millis(200);

/// A run of the loops, from the wait for leadership to the end.
pub struct PlaneRun<'a> {
    args: &'a Args,
    until: RunUntil,
    settings: &'a ControlSettings,
    signals: SignalRelay,
    log_sink: Box<dyn FnMut(&LogLine)>,
}

/// The reason of the end of a wait for leadership.
enum Wait {
    Leads(Leadership),
    /// A signal stopped it, or the other control plane has completed a one-shot run.
    IsOver,
}

/// The wait of a process for leadership.
struct WaitState {
    standby: Standby,
    started: Time,
    /// Whether the log has named the leader.
    is_announced: bool,
    /// The last reason in the log why the store cannot be written.
    logged_obstacle: Option<String>,
    /// The convergence of the other control plane's cluster at a version of the store.
    seen: Option<(u64, Convergence)>,
}

impl<'a> PlaneRun<'a> {
    /// Catches signals from now on.
    pub fn new(args: &'a Args, until: RunUntil, settings: &'a ControlSettings) -> CliResult<PlaneRun<'a>> {
        let log_sink = Box::new(log::log_sink(log::shown_level(args)));
        Ok(PlaneRun { args, until, settings, signals: SignalRelay::new()?, log_sink })
    }

    /// Runs the loops, as the leader or as a standby, until they have nothing left to do or are stopped.
    pub fn run(mut self, context: &mut CommandContext) -> CliResult {
        let mut won = None;
        loop {
            let Some(mut control) = self.lead(won.take(), context)? else { return Ok(()) };
            let start = |lock| Candidate::start(self.settings.state.clone(), lock, control.outbox());
            let candidate = control.candidate_lock().map(start).transpose()?;
            let ending = control.run(self.until, &mut self.log_sink)?;
            won = candidate.and_then(Candidate::finish);
            match ending {
                RunEnd::Elected => {}
                // A tick may find the epoch of this process' candidate before the loop reads its wake-up.
                RunEnd::Deposed if won.is_some() => {}
                RunEnd::Deposed => self.print("another control plane took over; waiting".into()),
                ending => return self.end(control, ending, context),
            }
        }
    }

    fn print(&mut self, line: String) {
        log::print_line(&mut self.log_sink, line);
    }

    /// Starts the control plane once this process leads. Returns `None` when the wait is over before.
    fn lead(&mut self, won: Option<Leadership>, context: &mut CommandContext) -> CliResult<Option<ControlLoop>> {
        let mut api = context.take_api()?;
        let leadership = match won {
            Some(leadership) => leadership,
            None => match self.wait_to_lead(&mut api, context)? {
                Wait::Leads(leadership) => leadership,
                Wait::IsOver => return Ok(None),
            },
        };
        let leads = leadership.leads;
        let mut own_settings = self.settings.clone();
        if !leads {
            own_settings.loops = loops::standby_loops();
        }
        self.signals.listen();
        let control = ControlLoop::start(api, leadership, own_settings)?;
        match &self.settings.node {
            Some(node) if !leads => self.print(format!("standing by; runs the pods of node {}", node.name)),
            _ if self.args.watch => self.print_ready(),
            _ => {}
        }
        self.signals.relay_to(control.outbox());
        Ok(Some(control))
    }

    /// Prints the node and the state file, and commands to try in another terminal.
    fn print_ready(&mut self) {
        let settings = self.settings;
        let state = std::path::absolute(&settings.state).unwrap_or_else(|_| settings.state.clone());
        let node =
            settings.node.as_ref().map_or("without a node here".to_owned(), |node| format!("node {}", node.name));
        let place = match store::read_replica_address(&state) {
            Some(address) => format!("state {address}"),
            None => format!("state file {}", state.display()),
        };
        self.print(format!("ready: {node}, {place}"));
        if joined_node::is_copy(&state) {
            return;
        }
        let export = match contexts::is_found_without_flags(&state) {
            true => String::new(),
            false => format!("export KLOOP_STATE={}; ", state.display()),
        };
        self.print(format!("next, in another terminal: {export}kloop apply -f FILE; kloop get pods; kloop why"));
    }

    /// Waits until this process leads, as a standby if another control plane leads. A one-shot run waits at most for its timeout.
    fn wait_to_lead(&mut self, api: &mut Api, context: &mut CommandContext) -> CliResult<Wait> {
        let mut wait = WaitState {
            standby: Standby::default(),
            started: Time::now(),
            is_announced: false,
            logged_obstacle: None,
            seen: None,
        };
        loop {
            let pause = match wait.standby.try_lead(api.store_mut()) {
                Ok(Election::Leads(leadership)) => return Ok(Wait::Leads(leadership)),
                Ok(Election::Waits(leader)) => {
                    if !std::mem::replace(&mut wait.is_announced, true) {
                        self.print(format!("{leader} leads; standing by"));
                    }
                    if leader.host.is_some()
                        && self.may_run_node()
                        && let Some(node_only) = wait.standby.try_run_node(api.store_mut())?
                    {
                        return Ok(Wait::Leads(node_only));
                    }
                    if self.is_completed_elsewhere(api, &mut wait)? {
                        return match self.args.quiet {
                            true => Ok(Wait::IsOver),
                            false => context.print_line("converged").map(|()| Wait::IsOver),
                        };
                    }
                    if api.store().is_replica() { candidate::ATTEMPT_INTERVAL } else { STANDBY_INTERVAL }
                }
                Err(error) if is_temporary(&error) && !self.is_out_of_time(&wait) => {
                    self.print_obstacle(&error, &mut wait);
                    pause_when_full(&error);
                    Duration::ZERO
                }
                Err(error) => return Err(error.into()),
            };
            if self.signals.is_pending() {
                return Ok(Wait::IsOver);
            }
            std::thread::sleep(pause);
        }
    }

    /// Whether this process may run its machine's node while another one leads.
    fn may_run_node(&self) -> bool {
        self.args.watch && self.settings.node.is_some()
    }

    /// Whether a one-shot run has waited for its whole timeout.
    fn is_out_of_time(&self, wait: &WaitState) -> bool {
        matches!(self.until, RunUntil::Converged(timeout) if Time::now().duration_since(wait.started) >= timeout)
    }

    /// Whether another control plane has done the work of this one-shot run. Fails when it cannot, or when the time is over.
    fn is_completed_elsewhere(&self, api: &Api, wait: &mut WaitState) -> CliResult<bool> {
        if self.until == RunUntil::Stopped {
            return Ok(false);
        }
        let is_out_of_time = self.is_out_of_time(wait);
        let Convergence { unmet, proven } = check_changed_store(api, &mut wait.seen)?;
        if unmet.is_empty() && proven.is_none_or(|at| at <= Time::now()) {
            return Ok(true);
        }
        if has_failed(unmet) || is_out_of_time {
            return Err(not_converged(self.args, unmet));
        }
        Ok(false)
    }

    /// Prints the process that holds the store's write lock, or another reason to wait, once for each.
    fn print_obstacle(&mut self, error: &anyhow::Error, wait: &mut WaitState) {
        let line = match error.chain().find_map(|cause| cause.downcast_ref()) {
            Some(StoreError::Busy { holder_pid, .. }) => {
                let holder = store::name_holder(*holder_pid);
                format!("waiting to write to the cluster's file: {holder} holds its write lock")
            }
            _ => format!("waiting: {error}"),
        };
        if wait.logged_obstacle.as_ref() != Some(&line) {
            self.print(line.clone());
            wait.logged_obstacle = Some(line);
        }
    }

    /// Ends the processes of pods where that was asked for, and prints the outcome.
    fn end(mut self, mut control: ControlLoop, ending: RunEnd, context: &mut CommandContext) -> CliResult {
        let running = control.running_pods();
        if self.args.stop_on_exit {
            let stopped = control.stop_pods(&mut self.log_sink)?;
            self.print(format!("ended the processes of {}", format_count(stopped, "pod")));
        } else if ending == RunEnd::Stopped && running > 0 {
            let whose = format_count(running, "pod");
            self.print(format!(
                "stopped; the processes of {whose} keep running (kloop reconcile takes them over again)"
            ));
        }
        match ending {
            RunEnd::Unmet(unmet) => Err(not_converged(self.args, &unmet)),
            RunEnd::Converged if !self.args.quiet => {
                log::flush();
                context.print_line("converged")
            }
            _ => Ok(()),
        }
    }
}

/// Returns the convergence of a cluster with another control plane; computes it again after each
/// write.
fn check_changed_store<'a>(api: &Api, seen: &'a mut Option<(u64, Convergence)>) -> CliResult<&'a Convergence> {
    let version = api.store().data_version().map_err(anyhow::Error::from)?;
    let known = match seen.take().filter(|(known, _)| *known == version) {
        Some(known) => known,
        None => (version, api.read(|snapshot| convergence::check_store(snapshot, Time::now()))?),
    };
    Ok(&seen.insert(known).1)
}

fn not_converged(args: &Args, unmet: &[Unmet]) -> Failure {
    let lines: Vec<String> = unmet.iter().map(|entry| format!("  {}: {}", entry.key, entry.why)).collect();
    let after =
        if has_failed(unmet) { String::new() } else { format!(" after {}", time::format_duration(args.timeout)) };
    Failure::plain(format!("not converged{after}:\n{}", lines.join("\n")))
}

/// Whether waiting is useless, because all unmet objects have failed permanently.
fn has_failed(unmet: &[Unmet]) -> bool {
    !unmet.is_empty() && unmet.iter().all(|entry| entry.is_final)
}
