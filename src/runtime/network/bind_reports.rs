//! Decides which binds are reported: each result once in a while.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time for which a bind of the same port with the same result is not reported again, because a program may retry all the time.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of ports bound elsewhere to report in that time: clients of RPC bind a new one for each connection (bindresvport(3)).
const MAX_MOVED: usize = 8;

/// The result of a bind; equal results are reported once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BindResult {
    /// The port that the program asked for.
    pub port: u16,
    /// Whether it is a UDP port.
    pub is_udp: bool,
    /// Whether it is bound, at another port.
    pub is_bound: bool,
}

/// The results reported lately.
#[derive(Default)]
pub struct RecentBinds(HashMap<BindResult, Instant>);

impl RecentBinds {
    /// Whether a result is to be reported.
    pub fn is_news(&mut self, result: BindResult, now: Instant) -> bool {
        self.0.retain(|_, told| now.duration_since(*told) < REPEAT_INTERVAL);
        let moved = self.0.keys().filter(|told| told.is_bound).count();
        !(self.0.contains_key(&result) || result.is_bound && moved >= MAX_MOVED)
    }

    /// Notes that a result was reported.
    pub fn note(&mut self, result: BindResult, now: Instant) {
        self.0.insert(result, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_result_is_news_once_in_a_while() {
        let (mut recent, start) = (RecentBinds::default(), Instant::now());
        let mut is_news = |port: u16, is_udp: bool, is_bound: bool, seconds: u64| {
            let (result, now) = (BindResult { port, is_udp, is_bound }, start + Duration::from_secs(seconds));
            let is_news = recent.is_news(result, now);
            if is_news {
                recent.note(result, now);
            }
            is_news
        };
        assert!(is_news(53, true, true, 0));
        assert!(is_news(53, false, true, 0), "the same port of the other protocol");
        assert!(is_news(53, false, false, 1), "the server that was started again and failed");
        assert!(!is_news(53, false, false, 59));
        assert!(is_news(53, false, false, 62));
        let moved = (600..620).filter(|port| is_news(*port, false, true, 62)).count();
        assert_eq!(moved, MAX_MOVED);
        assert!(is_news(700, false, false, 62), "failures are not counted");
        assert!(is_news(620, false, true, 123));
    }
}
