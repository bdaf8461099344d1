//! A few threads that wait for answers, started when they are needed and gone when they are not.

use super::{ProbeFinding, ProbeRoute, answer, route};
use crate::object::IgnorePoison;
use crate::world::Report;
use crate::world::plan::ProbeRun;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Maximum number of probes that run at the same time; others are queued.
const MAX_WORKERS: usize = 32;
/// Time after which a thread without work ends.
const IDLE_THREAD_TIMEOUT: Duration = Duration::from_secs(30);

type ProbeJob = (Box<ProbeRun>, Box<dyn FnOnce(Report) + Send>);

#[derive(Default)]
struct ProbeQueue {
    jobs: VecDeque<ProbeJob>,
    workers: usize,
    idle: usize,
    closed: bool,
}

#[derive(Default)]
struct SharedProbeQueue {
    line: Mutex<ProbeQueue>,
    ready: Condvar,
}

/// The threads for probes over the network.
#[derive(Default)]
pub struct ProbePool(Arc<SharedProbeQueue>);

impl ProbePool {
    /// Runs a probe and hands its report over, from one of the pool's threads.
    pub fn run(&self, probe: Box<ProbeRun>, report: impl FnOnce(Report) + Send + 'static) {
        let mut line = self.0.lock();
        line.jobs.push_back((probe, Box::new(report)));
        if line.idle >= line.jobs.len() || line.workers >= MAX_WORKERS {
            self.0.ready.notify_one();
            return;
        }
        let shared = self.0.clone();
        let started = std::thread::Builder::new().name("probe".into()).stack_size(1024 * 1024);
        // If no thread can be started, the probe waits for another thread. The kubelet counts a probe without an answer as failed.
        line.workers += usize::from(started.spawn(move || shared.work()).is_ok());
    }
}

impl Drop for ProbePool {
    /// Closes the queue. Running probes end by their timeouts, without being waited for.
    fn drop(&mut self) {
        let mut line = self.0.lock();
        line.closed = true;
        line.jobs.clear();
        self.0.ready.notify_all();
    }
}

impl SharedProbeQueue {
    fn lock(&self) -> MutexGuard<'_, ProbeQueue> {
        self.line.lock().ignore_poison()
    }

    fn work(&self) {
        while let Some((probe, report)) = self.next_job() {
            let finding = match route(&probe) {
                ProbeRoute::Pool(run) => run(),
                ProbeRoute::Shim(_) | ProbeRoute::Clock => ProbeFinding::unknown("missing probe handler"),
            };
            report(answer(&probe, finding));
        }
    }

    fn next_job(&self) -> Option<ProbeJob> {
        let mut line = self.lock();
        loop {
            if let Some(job) = line.jobs.pop_front() {
                return Some(job);
            }
            line.idle += 1;
            let (woken, waited) = self.ready.wait_timeout(line, IDLE_THREAD_TIMEOUT).ignore_poison();
            line = woken;
            line.idle -= 1;
            if line.closed || (waited.timed_out() && line.jobs.is_empty()) {
                line.workers -= 1;
                return None;
            }
        }
    }
}
