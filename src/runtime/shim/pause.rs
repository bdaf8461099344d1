//! Pauses: the first processes of process namespaces, so that containers see no processes but their own.
//!
//! A container's program is not the first one of its namespace: the kernel keeps most signals from such a process, and leaves it every
//! orphan to reap. The pause is, as `docker run --init` would have it: it reaps, hands the signals that it gets to the container's main
//! process, and ends with its shim, and everything of the namespace with it. It stays from one attempt to the next.
//! Start reading at [`space`].

use super::super::process::{self, Identity, signal_from};
use super::super::spaces::{self, Space};
use super::super::spawn::hold_only;
use super::super::view::ground::Place;

use super::{Live, Shim};
use crate::world::Processes;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, set_parent_process_death_signal, wait, waitpid};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;

/// What a pause says when something has ended that it has reaped.
const REAPED: u8 = 0;

/// What lies below a shim: its children, and those of its pauses in their place.
pub fn below(shim: i32) -> Vec<i32> {
    let is_pause = |pid: i32| std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name == b"pause\n");
    let children = process::children(shim).into_iter();
    children.flat_map(|pid| if is_pause(pid) { process::children(pid) } else { vec![pid] }).collect()
}

/// The first process of a namespace.
pub struct Pause {
    /// The container; none for the namespace that those of a pod share.
    of: Option<String>,
    process: Identity,
    space: Space,
    /// The signals that it got, and [`REAPED`].
    said: OwnedFd,
}

impl Pause {
    /// None where no process namespace can be had.
    fn begin(of: Option<String>) -> Option<Pause> {
        let (said, say) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        let pid = match Space::New.fork().ok()? {
            0 => {
                drop(said);
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| serve(&say)));
                // SAFETY: ends the child without running anything that belongs to the parent.
                unsafe { libc::_exit(0) }
            }
            pid => pid,
        };
        let process = Identity::of(pid)?;
        let space = spaces::of_processes(&pid.to_string()).ok()?;
        Some(Pause { of, process, space: Space::Known(space), said })
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        self.process.pid
    }

    /// The namespace that it is the first of.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// What it says comes in here.
    pub fn said(&self) -> &OwnedFd {
        &self.said
    }

    fn is_for(&self, live: &Live) -> bool {
        match &live.launch.processes {
            Processes::Machine => false,
            Processes::Shared => self.of.is_none(),
            Processes::Own => self.of.as_ref() == Some(&live.name),
            Processes::Of(other) => self.of.as_deref() == Some(&**other),
        }
    }
}

/// What a pause does all its life. It must not run what belongs to its parent: it only calls the kernel.
fn serve(say: &OwnedFd) {
    let _ = rustix::thread::set_name(c"pause");
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let _ = rustix::process::chdir("/");
    hold_only([say.as_fd()].iter());
    // SAFETY: the set is initialised by the call, and both calls only read it.
    let all = unsafe {
        let mut all = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&mut all);
        // What is blocked is kept, also for the first process of a namespace, until it is waited for.
        libc::sigprocmask(libc::SIG_SETMASK, &all, ptr::null_mut());
        all
    };
    // A shim that has died before we asked to die with it hears nothing.
    while rustix::io::write(say, &[REAPED]) != Err(rustix::io::Errno::PIPE) {
        // SAFETY: the set is initialised; no information is asked for.
        let signal = unsafe { libc::sigwaitinfo(&all, ptr::null_mut()) };
        match u8::try_from(signal) {
            Ok(signal) if i32::from(signal) != libc::SIGCHLD => drop(rustix::io::write(say, &[signal])),
            _ => while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {},
        }
    }
}

/// The process namespace that a container is to be started in; none for the machine's, and where none can be had.
pub fn space<'a>(
    pauses: &'a mut Vec<Pause>,
    ground: &mut Place,
    container: &str,
    processes: &Processes,
) -> Option<&'a Space> {
    let of = match processes {
        Processes::Machine => return None,
        Processes::Shared => None,
        Processes::Own => Some(container),
        Processes::Of(other) => Some(&**other),
    };
    let known = pauses.iter().position(|pause| pause.of.as_deref() == of);
    let at = match known {
        Some(at) => at,
        // There is nothing to join where the other one sees the machine's.
        None if matches!(processes, Processes::Of(_)) => return None,
        None => {
            if !ground.enter_users() {
                return None;
            }
            pauses.push(Pause::begin(of.map(str::to_owned))?);
            pauses.len() - 1
        }
    };
    Some(&pauses[at].space)
}

impl Shim {
    /// The pause of the namespace that a container is in.
    pub(super) fn pause_of(&self, live: &Live) -> Option<&Pause> {
        self.pauses.iter().find(|pause| pause.is_for(live))
    }

    /// Whether a container shares its namespace with others.
    pub(super) fn shares_space(live: &Live) -> bool {
        !matches!(live.launch.processes, Processes::Own)
    }

    /// Hands on what pauses have got.
    pub(super) fn hear_pause(&mut self, pid: i32) {
        let Some(pause) = self.pauses.iter().find(|pause| pause.pid() == pid) else { return };
        let mut heard = [0; 64];
        let Ok(count) = rustix::io::read(&pause.said, &mut heard[..]) else { return };
        let main = self.live.iter().find(|live| live.end.is_none() && pause.of.as_ref() == Some(&live.name));
        let signals = heard[..count].iter().filter(|signal| **signal != REAPED);
        for signal in signals.filter_map(|signal| signal_from(i32::from(*signal))) {
            main.map(|live| live.process.signal(signal));
        }
    }

    /// Ends them, once nothing else is in their namespaces.
    pub(super) fn end_pauses(&mut self) {
        for pause in self.pauses.drain(..).filter(|pause| pause.process.kill()) {
            let _ = waitpid(Pid::from_raw(pause.pid()), WaitOptions::empty());
        }
    }

    /// A process has ended that may have been one: everything in its namespace has ended with it.
    pub(super) fn forget_pause(&mut self, pid: i32) {
        self.pauses.retain(|pause| pause.pid() != pid);
    }
}
