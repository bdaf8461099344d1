//! Measurements of the control loop: for those that serve them in the same process, and in a file for others.

use crate::object::IgnorePoison;
use crate::runtime::folder;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Name of the file with the last measurements, for other processes.
const FILE: &str = "loops.json";

/// Shortest time between two writes of that file.
const MIN_WRITE_INTERVAL: Duration = Duration::from_millis(50);

/// Counters and levels, read at any time by other threads.
#[derive(Debug, Default)]
pub struct LoopMetrics {
    ticks: AtomicU64,
    microseconds: AtomicU64,
    rows: AtomicU64,
    depths: Mutex<Vec<(&'static str, usize)>>,
    revision: AtomicU64,
    /// When the file was written last, and the number of ticks then.
    published: Mutex<Option<(Instant, u64)>>,
}

/// The measurements as the file has them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PublishedMetrics {
    /// Number of ticks.
    pub ticks: u64,
    /// Their duration together, in seconds.
    pub seconds: f64,
    /// Number of rows that they wrote.
    pub rows: u64,
    /// Number of keys that wait for each loop, by its name.
    pub depths: Vec<(String, usize)>,
}

impl PublishedMetrics {
    /// Reads the file of a cluster; none before a control plane has run.
    pub fn read(home: &Path) -> Option<PublishedMetrics> {
        serde_json::from_slice(&std::fs::read(home.join(FILE)).ok()?).ok()
    }
}

/// The measurements at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopSample {
    /// Number of ticks.
    pub ticks: u64,
    /// Their duration together, in seconds.
    pub seconds: f64,
    /// Number of rows that they wrote.
    pub rows: u64,
    /// Number of keys that wait for each loop, by its name.
    pub depths: Vec<(&'static str, usize)>,
    /// Revision that the control loop has seen.
    pub revision: u64,
}

impl LoopMetrics {
    /// Records a tick: its duration, the rows that it wrote, and the revision and the waiting keys of each loop after it.
    pub fn record_tick(
        &self,
        took: Duration,
        rows: usize,
        revision: u64,
        depths: impl Iterator<Item = (&'static str, usize)>,
    ) {
        self.ticks.fetch_add(1, Ordering::Relaxed);
        self.microseconds.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        let mut kept = self.depths.lock().ignore_poison();
        kept.clear();
        kept.extend(depths);
        self.revision.store(revision, Ordering::Relaxed);
    }

    /// Writes them into the file of a cluster, if there was a tick since the last time. Nobody depends on it, so errors are dropped.
    pub fn publish(&self, home: &Path) {
        let mut published = self.published.lock().ignore_poison();
        let Some(sample) = self.sample() else { return };
        if published.is_some_and(|(at, ticks)| ticks == sample.ticks || at.elapsed() < MIN_WRITE_INTERVAL) {
            return;
        }
        *published = Some((Instant::now(), sample.ticks));
        let depths = sample.depths.into_iter().map(|(name, depth)| (name.to_owned(), depth)).collect();
        let metrics = PublishedMetrics { ticks: sample.ticks, seconds: sample.seconds, rows: sample.rows, depths };
        if let Ok(text) = serde_json::to_vec(&metrics) {
            drop(folder::replace(&home.join(FILE), &text));
        }
    }

    /// Reads them; none as long as nothing has run.
    pub fn sample(&self) -> Option<LoopSample> {
        let read = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let sample = LoopSample {
            ticks: read(&self.ticks),
            seconds: read(&self.microseconds) as f64 / 1e6,
            rows: read(&self.rows),
            depths: self.depths.lock().ignore_poison().clone(),
            revision: read(&self.revision),
        };
        Some(sample).filter(|sample| sample.ticks > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_processes_read_the_last_measurements() {
        let home = tempfile::tempdir().unwrap();
        let metrics = LoopMetrics::default();
        metrics.publish(home.path());
        assert_eq!(PublishedMetrics::read(home.path()), None);
        metrics.record_tick(Duration::from_millis(500), 3, 9, [("kubelet", 2)].into_iter());
        metrics.publish(home.path());
        let depths = vec![("kubelet".to_owned(), 2)];
        let expected = PublishedMetrics { ticks: 1, seconds: 0.5, rows: 3, depths };
        assert_eq!(PublishedMetrics::read(home.path()), Some(expected));
    }
}
