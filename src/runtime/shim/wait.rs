//! Waiting for events: output, requests, signals, deadlines, and calls of programs under the network filter.
//!
//! Answers the calls while nothing else happens: the program that makes one waits until this process sleeps again, so nothing is set up
//! anew in between. Never: serves any other event. Start reading at [`Shim::wait`].

use super::announcer::Announcer;
use super::attach::{self, WatchedFor};
use super::requests::RunningCommand;
use super::stop_signal::SentStop;
use super::successor::StandbyAttempt;
use super::{KILL_PAUSE, LINGER, Shim};
use crate::runtime::network::FilterListener;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Origin of an event.
pub(super) enum EventOrigin {
    Signals,
    Listener,
    Client(u64),
    Output(i32, usize),
    Exec(i32),
    Pause,
    Attached(WatchedFor),
    Guard(RawFd, PollFlags),
}

impl Shim {
    /// Returns the next events; none when a deadline has passed, a signal has arrived, or a call left something to report.
    pub(super) fn wait(&mut self) -> io::Result<Vec<EventOrigin>> {
        let mut guards = std::mem::take(&mut self.guards);
        let events = self.answer_calls_until_event(&mut guards);
        self.guards = guards;
        events
    }

    fn answer_calls_until_event(&self, guards: &mut [FilterListener]) -> io::Result<Vec<EventOrigin>> {
        let listeners: Vec<Rc<OwnedFd>> = guards.iter().map(FilterListener::listener).collect();
        let (mut fds, sources) = self.watched();
        let others = fds.len();
        fds.extend(listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
        let deadline = self.next_deadline();
        // The rest of the loop ends processes that are killed, and this process once it has nothing to run.
        let may_stay = !self.live.is_empty() && !self.is_killing();
        loop {
            match poll(&mut fds, time_until(deadline).as_ref()) {
                Ok(_) => {}
                Err(Errno::INTR) => return Ok(Vec::new()),
                Err(error) => return Err(error.into()),
            }
            let (others, calls) = fds.split_at(others);
            let is_call = |fd: &PollFd| fd.revents() == PollFlags::IN;
            let only_calls = others.iter().all(is_quiet) && calls.iter().all(|fd| is_quiet(fd) || is_call(fd));
            if !may_stay || !only_calls || deadline.is_some_and(|at| at <= Instant::now()) {
                let ready = others.iter().zip(sources).filter(|(fd, _)| !is_quiet(fd)).map(|(_, source)| source);
                let guards = calls.iter().zip(&listeners).filter(|(fd, _)| !is_quiet(fd));
                let guards = guards.map(|(fd, listener)| EventOrigin::Guard(listener.as_raw_fd(), fd.revents()));
                return Ok(ready.chain(guards).collect());
            }
            let called = guards.iter_mut().zip(calls).filter(|(_, fd)| is_call(fd));
            called.for_each(|(guard, fd)| _ = guard.serve(fd.revents()));
            if guards.iter().any(FilterListener::has_report) {
                return Ok(Vec::new());
            }
        }
    }

    /// Returns everything to poll except the calls.
    fn watched(&self) -> (Vec<PollFd<'_>>, Vec<EventOrigin>) {
        let mut sources = vec![EventOrigin::Signals, EventOrigin::Listener];
        let mut fds = vec![
            PollFd::new(&self.signals, PollFlags::IN),
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
        for exec in self.execs.iter().filter(|exec| exec.is_open()) {
            fds.push(PollFd::new(exec.output_fd(), PollFlags::IN));
            sources.push(EventOrigin::Exec(exec.pid()));
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
        let leave = self.live.is_empty().then(|| match self.told_to_leave.load(Ordering::Relaxed) {
            true => Instant::now() + KILL_PAUSE,
            false => (self.idle + LINGER).max(Instant::now() + KILL_PAUSE),
        });
        let spent = self.spent.iter().map(|(_, until)| *until);
        let waits = self.successors.iter().filter_map(StandbyAttempt::until);
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

fn is_quiet(fd: &PollFd) -> bool {
    fd.revents().is_empty()
}

fn time_until(deadline: Option<Instant>) -> Option<Timespec> {
    let left = deadline?.saturating_duration_since(Instant::now());
    Some(Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() })
}
