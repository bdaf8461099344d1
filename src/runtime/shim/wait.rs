//! Waiting for events: output, requests, signals, deadlines, and calls of programs under the network filter.
//!
//! Answers calls in a short loop while no other event occurs: a calling program waits until this process sleeps again, so the loop does not
//! rebuild its list of descriptors. Never: serves any other event. Start reading at [`Shim::wait`].

use super::announcer::Announcer;
use super::attach::{self, WatchedFor};
use super::client::ShimClient;
use super::requests::RunningCommand;
use super::standby::StandbyAttempt;
use super::stop_signal::SentStop;
use super::{IDLE_SHIM_TIMEOUT, KILL_PAUSE, Shim};
use crate::runtime::network::FilterListener;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use std::cell::OnceCell;
use std::io;
use std::iter;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Instant;

/// Number of rounds with nothing but calls after which all other descriptors are combined in one: a program that connects again and again
/// waits for each answer, and to poll ten descriptors takes longer than the answer. Combining them takes as long as a few calls.
const IN_A_ROW: usize = 8;

/// Origin of an event.
pub(super) enum EventOrigin {
    Signals,
    Listener,
    Client(u64),
    Output(i32, usize),
    Exec(i32),
    Pause,
    Attached(WatchedFor),
    Filter(RawFd, PollFlags),
}

impl Shim {
    /// Returns the next events; none when a deadline has passed, a signal has arrived, or a call left something to report.
    pub(super) fn wait(&mut self) -> io::Result<Vec<EventOrigin>> {
        let mut filter_listeners = std::mem::take(&mut self.filter_listeners);
        let events = self.answer_calls_until_event(&mut filter_listeners);
        self.filter_listeners = filter_listeners;
        events
    }

    fn answer_calls_until_event(&self, filter_listeners: &mut [FilterListener]) -> io::Result<Vec<EventOrigin>> {
        let listeners: Vec<Rc<OwnedFd>> = filter_listeners.iter().map(FilterListener::listener).collect();
        let (mut fds, sources) = self.watched();
        let others = fds.len();
        fds.extend(listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
        let deadline = self.next_deadline();
        // The rest of the loop ends processes that are killed, and this process once it has nothing to run.
        let may_stay = !self.live.is_empty() && !self.is_killing();
        let (mut answered, combined, mut few) = (0, OnceCell::new(), Vec::new());
        loop {
            let only_few = match wait_for(&mut fds, &mut few, deadline) {
                Ok(only_few) => only_few,
                Err(Errno::INTR) => return Ok(Vec::new()),
                Err(error) => return Err(error.into()),
            };
            let (others_now, calls) = if only_few { (&[][..], &few[1..]) } else { fds.split_at(others) };
            let is_call = |fd: &PollFd| fd.revents() == PollFlags::IN;
            let only_calls = others_now.iter().all(is_quiet) && calls.iter().all(|fd| is_quiet(fd) || is_call(fd));
            if !may_stay || !only_calls || deadline.is_some_and(|at| at <= Instant::now()) {
                let ready = others_now.iter().zip(sources).filter(|(fd, _)| !is_quiet(fd)).map(|(_, source)| source);
                let ended = calls.iter().zip(&listeners).filter(|(fd, _)| !is_quiet(fd));
                let ended = ended.map(|(fd, listener)| EventOrigin::Filter(listener.as_raw_fd(), fd.revents()));
                return Ok(ready.chain(ended).collect());
            }
            let called = filter_listeners.iter_mut().zip(calls).filter(|(_, fd)| is_call(fd));
            called.for_each(|(listener, fd)| _ = listener.serve(fd.revents()));
            if filter_listeners.iter().any(FilterListener::has_report) {
                return Ok(Vec::new());
            }
            answered += 1;
            if answered == IN_A_ROW
                && !self.waits_to_write()
                && let Ok(epoll) = combine(&fds[..others])
            {
                let combined = PollFd::new(combined.get_or_init(|| epoll), PollFlags::IN);
                few = iter::once(combined).chain(fds[others..].iter().cloned()).collect();
            }
        }
    }

    /// Whether any of the others may be polled for writing.
    fn waits_to_write(&self) -> bool {
        !self.attached.is_empty() || self.clients.iter().any(ShimClient::has_more)
    }

    /// Returns everything to poll except the calls.
    fn watched(&self) -> (Vec<PollFd<'_>>, Vec<EventOrigin>) {
        let mut sources = vec![EventOrigin::Signals, EventOrigin::Listener];
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.signals.descriptor(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
        ];
        for client in &self.clients {
            let flags = if client.has_more() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            fds.push(PollFd::new(&client.socket, flags));
            sources.push(EventOrigin::Client(client.id));
        }
        for live in self.live.iter().filter(|live| !attach::is_held_up(&self.attached, live)) {
            for (at, stream) in live.streams.iter().enumerate() {
                fds.push(PollFd::new(&stream.fd, PollFlags::IN));
                sources.push(EventOrigin::Output(live.process.pid, at));
            }
        }
        for exec in &self.execs {
            if let Some(output) = exec.output_fd() {
                fds.push(PollFd::new(output, PollFlags::IN));
                sources.push(EventOrigin::Exec(exec.pid()));
            }
        }
        if let Some(pause) = &self.pause {
            fds.push(PollFd::new(pause.status_pipe(), PollFlags::IN));
            sources.push(EventOrigin::Pause);
        }
        for (fd, watched) in self.watch_attached() {
            fds.push(fd);
            sources.push(EventOrigin::Attached(watched));
        }
        (fds, sources)
    }

    /// The next moment at which something is due without anything happening.
    fn next_deadline(&self) -> Option<Instant> {
        let stops = self.live.iter().filter_map(|live| live.deadline);
        let execs = self.execs.iter().filter_map(RunningCommand::deadline);
        let retry = self.is_killing().then(|| Instant::now() + self.kill_pause);
        let leave = self.live.is_empty().then(|| match self.signals.has_sigterm() {
            true => Instant::now() + KILL_PAUSE,
            false => (self.idle_since + IDLE_SHIM_TIMEOUT).max(Instant::now() + KILL_PAUSE),
        });
        let spent = self.retired_mounts.iter().map(|(_, until)| *until);
        let waits = self.standbys.iter().filter_map(StandbyAttempt::until);
        let prepare_at = self.live.iter().filter_map(|live| live.prepare_at);
        let blocked = self.live.iter().filter_map(|live| live.sent_stop.as_ref().map(SentStop::next_look));
        stops
            .chain(blocked)
            .chain(execs)
            .chain(retry)
            .chain(leave)
            .chain(spent)
            .chain(waits)
            .chain(prepare_at)
            .chain(self.next_look)
            .chain(self.announcer.as_ref().and_then(Announcer::due))
            .min()
    }
}

/// Waits for an event or the deadline. `few`, when not empty, is the descriptor that combines all others, followed by those of the calls.
/// Returns whether only events of `few` can be pending.
fn wait_for(fds: &mut [PollFd], few: &mut [PollFd], deadline: Option<Instant>) -> rustix::io::Result<bool> {
    if few.is_empty() {
        return poll(fds, time_until(deadline).as_ref()).map(|_| false);
    }
    poll(few, time_until(deadline).as_ref())?;
    let only_few = is_quiet(&few[0]);
    if !only_few {
        poll(fds, Some(&Timespec::default()))?;
    }
    Ok(only_few)
}

/// Returns one descriptor that is readable when one of these is readable or closed.
fn combine(fds: &[PollFd]) -> rustix::io::Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in fds {
        epoll::add(&epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(epoll)
}

fn is_quiet(fd: &PollFd) -> bool {
    fd.revents().is_empty()
}

fn time_until(deadline: Option<Instant>) -> Option<Timespec> {
    let left = deadline?.saturating_duration_since(Instant::now());
    Some(Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() })
}
