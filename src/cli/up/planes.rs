//! The control plane that `kloop up` starts: on a thread of this process, or as a process in the background.
//!
//! Never: starts a second control plane for a state. Start reading at [`OwnPlane::start`] and [`start_detached`].

use crate::apiserver::Api;
use crate::cli::reconcile::server::RunningServer;
use crate::cli::serve::AuditFlags;
use crate::cli::{CliResult, CommandContext, Failure, reconcile};
use crate::object::{bug_text, io_error_text};
use crate::reconcile::control_loop::WakeUp;
use crate::reconcile::leader::{self, Election};
use crate::reconcile::loops;
use crate::reconcile::retry::{is_temporary, pause_when_full};
use crate::reconcile::run_end::RunUntil;
use crate::reconcile::{ControlLoop, ControlSettings, LogLine, RunEnd};
use crate::runtime::{self, capacity, folder, process::ProcessIdentity};
use rustix::process::Signal;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Name of the file with the process ID of a control plane in the background.
const DETACHED: &str = "detached.pid";

/// Name of the file with its log.
const LOG: &str = "detached.log";

/// Longest wait until a control plane in the background leads.
const START: Duration = Duration::from_secs(30);

/// Pause between two checks of another process.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A control plane on a thread of this process.
pub struct OwnPlane {
    outbox: Sender<WakeUp>,
    thread: JoinHandle<anyhow::Result<usize>>,
    /// Serves the API to pods.
    server: Option<RunningServer>,
}

impl OwnPlane {
    /// Starts one; `None` if another process began to lead meanwhile.
    pub fn start(context: &mut CommandContext) -> CliResult<Option<OwnPlane>> {
        let settings = reconcile::settings::default_settings(context)?;
        OwnPlane::start_with(settings, context)
    }

    /// Starts the loops of a node over the copy of its server's objects.
    pub fn start_node(context: &mut CommandContext, node: &str) -> CliResult<Option<OwnPlane>> {
        let machine = capacity::measure_capacity(Some(node), &context.state());
        let settings = ControlSettings {
            node: Some(machine),
            loops: loops::node_loops(),
            ..reconcile::settings::default_settings(context)?
        };
        OwnPlane::start_with(settings, context)
    }

    fn start_with(mut settings: ControlSettings, context: &mut CommandContext) -> CliResult<Option<OwnPlane>> {
        reconcile::settings::check_descriptors()?;
        let server = reconcile::server::start_pod_api(&mut settings, &AuditFlags::default(), context)?;
        let api = context.take_api()?;
        let (send, started) = channel();
        let run = move || {
            let mut control = match lead(api, settings) {
                Ok(Some(control)) => control,
                outcome => {
                    // The receiver waits for this answer.
                    drop(send.send(outcome.map(|_| None)));
                    return Ok(0);
                }
            };
            drop(send.send(Ok(Some(control.outbox()))));
            let mut ignore_line = |_: &LogLine| {};
            match control.run(RunUntil::Stopped, &mut ignore_line)? {
                RunEnd::Elected | RunEnd::Deposed => Ok(0),
                _ => control.stop_pods(&mut ignore_line),
            }
        };
        let thread = std::thread::Builder::new().name("control-plane".into()).spawn(run)?;
        let outbox = match started.recv() {
            Ok(outcome) => outcome?,
            Err(_) => return Err(Failure::plain(bug_text("the control plane ended while it started"))),
        };
        Ok(match outbox {
            Some(outbox) => Some(OwnPlane { outbox, thread, server }),
            None => {
                server.into_iter().for_each(RunningServer::end);
                None
            }
        })
    }

    /// Asks it to end the processes of all pods and to stop; a second time, to kill them. False when it has ended.
    pub fn stop(&self) -> bool {
        self.outbox.send(WakeUp::Stop).is_ok()
    }

    /// Whether the control plane has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its end; returns the number of pods whose processes it ended.
    pub fn join(self) -> CliResult<usize> {
        let ended = self.thread.join();
        self.server.into_iter().for_each(RunningServer::end);
        Ok(ended.map_err(|_| Failure::plain(bug_text("the control plane panicked")))??)
    }
}

/// Becomes the leader; `None` if another process leads.
fn lead(mut api: Api, settings: ControlSettings) -> anyhow::Result<Option<ControlLoop>> {
    let mut standby = leader::Standby::default();
    loop {
        match standby.try_lead(api.store_mut()) {
            Err(error) if is_temporary(&error) => pause_when_full(&error),
            Err(error) => return Err(error),
            Ok(Election::Waits(_)) => return Ok(None),
            Ok(Election::Leads(leadership)) => return ControlLoop::start(api, leadership, settings).map(Some),
        }
    }
}

/// Starts a control plane in the background, and waits until it leads.
pub fn start_detached(context: &mut CommandContext) -> CliResult<u32> {
    let state = std::path::absolute(context.state())?;
    let home = context.api()?.store().home().to_owned();
    folder::prepare(&home)?;
    let log = home.join(LOG);
    let output = File::create(&log)?;
    let mut command = Command::new(runtime::THIS);
    // Beyond the group of the terminal, Ctrl-C does not reach it.
    command.arg0("kloop").process_group(0).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    command.arg("--state").arg(state).args(["reconcile", "--watch", "--stop-on-exit"]);
    let mut child = command.spawn()?;
    let until = Instant::now() + START;
    while leader::read_leader(&home) != Some(child.id()) {
        if let Some(leader) = leader::read_leader(&home).filter(|_| has_ended(&mut child)) {
            return Ok(leader);
        }
        if has_ended(&mut child) || Instant::now() >= until {
            let lines = std::fs::read_to_string(&log).unwrap_or_default();
            let last: Vec<&str> = lines.lines().rev().take(3).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            let text = format!(
                "the control plane in the background did not start (log: {}):\n{}",
                log.display(),
                last.join("\n")
            );
            return Err(Failure::plain(text));
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
    let file = home.join(DETACHED);
    let text = format!("{}\n", child.id());
    folder::replace(&file, text.as_bytes())
        .map_err(|error| Failure::plain(format!("cannot write {}: {}", file.display(), io_error_text(error))))?;
    Ok(child.id())
}

fn has_ended(child: &mut Child) -> bool {
    !matches!(child.try_wait(), Ok(None))
}

/// Returns the control plane that `kloop up` left in the background, if it leads.
pub fn find_detached(home: &Path) -> Option<ProcessIdentity> {
    let pid: u32 = std::fs::read_to_string(home.join(DETACHED)).ok()?.trim().parse().ok()?;
    if leader::read_leader(home) != Some(pid) {
        return None;
    }
    ProcessIdentity::from_pid(i32::try_from(pid).ok()?)
}

/// Stops the control plane in the background with the processes of its pods, and waits for its end.
pub fn stop_detached(home: &Path, plane: ProcessIdentity, patience: Duration) -> bool {
    plane.signal(Signal::TERM);
    let until = Instant::now() + patience;
    while plane.lives() {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
    // A later control plane may have the same process ID.
    drop(std::fs::remove_file(home.join(DETACHED)));
    true
}

/// Returns the path of the log of a control plane in the background.
pub fn log_file(home: &Path) -> PathBuf {
    home.join(LOG)
}
