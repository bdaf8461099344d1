//! Announces changes to a control plane that has parked this shim.
//!
//! Knows: the reports that no control plane has received, and when to announce again. An announcement is a datagram with the pod's uid.
//! It is repeated, less and less often, until a control plane connects, so it may get lost, and the control plane may be replaced.

use super::super::folder;
use super::super::wire::ShimAnswer;
use std::ffi::OsStr;
use std::time::{Duration, Instant};

/// Pause after the first announcement without an answer; doubled each time.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Pause after an announcement that a control plane accepted.
const PAUSE_AFTER_ACCEPTED: Duration = Duration::from_secs(1);
/// Longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// Maximum number of reports to keep; the record holds everything else.
const MAX_REPORTS: usize = 64;

/// Announces changes on one socket of the state folder.
pub struct Announcer {
    socket: String,
    reports: Vec<ShimAnswer>,
    due: Option<Instant>,
    pause: Duration,
}

impl Announcer {
    /// Creates an announcer without news.
    pub fn new(socket: String) -> Announcer {
        Announcer { socket, reports: Vec::new(), due: None, pause: RETRY_INTERVAL }
    }

    /// Notes a report. The ones that the record does not hold are kept for the next connection.
    pub fn note(&mut self, report: &ShimAnswer) {
        if matches!(report, ShimAnswer::Denied(_) | ShimAnswer::Bind(_)) && self.reports.len() < MAX_REPORTS {
            self.reports.push(report.clone());
        }
        self.due.get_or_insert_with(Instant::now);
    }

    /// Returns the moment of the next announcement.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Announces a change when that is due.
    pub fn announce(&mut self, uid: &OsStr) {
        if self.due.is_none_or(|due| due > Instant::now()) {
            return;
        }
        if folder::announce(&self.socket, uid).is_ok() {
            self.pause = self.pause.max(PAUSE_AFTER_ACCEPTED);
        }
        self.due = Some(Instant::now() + self.pause);
        self.pause = MAX_PAUSE.min(self.pause * 2);
    }

    /// Returns the reports that the record does not hold.
    pub fn into_reports(self) -> Vec<ShimAnswer> {
        self.reports
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::ingress_routes::BindReport;

    #[test]
    fn announcer_repeats_less_and_less_often_until_it_is_dropped() {
        let mut announcer = Announcer::new("nobody-is-here.sock".into());
        announcer.announce(OsStr::new("u"));
        assert_eq!(announcer.due(), None, "nothing has changed");
        let mut pauses = Vec::new();
        for _ in 0..16 {
            announcer.due = None;
            announcer.note(&ShimAnswer::Leaving);
            announcer.announce(OsStr::new("u"));
            let due = announcer.due().expect("announced again");
            announcer.note(&ShimAnswer::Leaving);
            assert_eq!(announcer.due(), Some(due), "a second change does not hurry");
            pauses.push(announcer.pause);
        }
        assert_eq!(pauses[..3], [RETRY_INTERVAL * 2, RETRY_INTERVAL * 4, RETRY_INTERVAL * 8]);
        assert_eq!(pauses[15], MAX_PAUSE);
    }

    #[test]
    fn announcer_keeps_only_reports_that_the_record_does_not_hold() {
        let mut announcer = Announcer::new("nobody-is-here.sock".into());
        let port = BindReport { port: 80, is_udp: false, holder: None, moved_to: None };
        for _ in 0..2 * MAX_REPORTS {
            announcer.note(&ShimAnswer::Bind(port.clone()));
            announcer.note(&ShimAnswer::Leaving);
        }
        let reports = announcer.into_reports();
        assert_eq!(reports.len(), MAX_REPORTS);
        assert!(reports.iter().all(|report| matches!(report, ShimAnswer::Bind(_))));
    }
}
