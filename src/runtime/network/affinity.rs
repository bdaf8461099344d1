//! `sessionAffinity: ClientIP`, as in kube-proxy: a client keeps its endpoint while that is ready, until the client has been idle for the
//! Service's timeout. New endpoints do not move existing clients.
//!
//! Each process that chooses endpoints remembers its own sessions: a shim those of its pod, the gateway those of clients outside of pods.
//! Never: decides which endpoints are ready. Start reading at [`SessionAffinity::prefer`].

use crate::object::IgnorePoison;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Maximum number of remembered sessions; beyond it the older half is dropped.
const MAX_SESSIONS: usize = 16_384;

/// A client of a port of a Service with session affinity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AffinitySession {
    /// The client.
    pub client: Ipv4Addr,
    /// Name of the port among all ports, for all of its addresses.
    pub port: String,
    /// Idle time after which a client is forgotten.
    pub lasts: Duration,
}

/// Time for which the datagrams of a flow keep their endpoint (`nf_conntrack_udp_timeout`).
const FLOW: Duration = Duration::from_secs(30);

impl AffinitySession {
    /// Returns the session for the datagrams of one socket, by its port, to one address. kube-proxy, too, chooses one
    /// endpoint for such a flow with any `sessionAffinity`, because conntrack records the flow.
    pub fn for_flow(client: Ipv4Addr, from: u16, to: SocketAddrV4) -> AffinitySession {
        AffinitySession { client, port: format!("{from} {to}"), lasts: FLOW }
    }
}

/// The chosen endpoint of each client, and when.
#[derive(Default)]
pub struct SessionAffinity(Mutex<AffinitySessions>);

type AffinitySessions = HashMap<(Ipv4Addr, String), (SocketAddrV4, Instant)>;

impl SessionAffinity {
    /// Moves the client's previous endpoint to the front, if it is among them.
    pub fn prefer(&self, session: &AffinitySession, endpoints: &mut [SocketAddrV4]) {
        let before = self.sessions().get(&(session.client, session.port.clone())).copied();
        let valid = before.filter(|(_, since)| since.elapsed() < session.lasts);
        if let Some(at) = valid.and_then(|(to, _)| endpoints.iter().position(|one| *one == to)) {
            endpoints[..=at].rotate_right(1);
        }
    }

    /// Records the endpoint of a client and the time.
    pub fn remember(&self, session: AffinitySession, to: SocketAddrV4) {
        let mut sessions = self.sessions();
        if sessions.len() >= MAX_SESSIONS {
            let mut times: Vec<Instant> = sessions.values().map(|(_, since)| *since).collect();
            let (_, middle, _) = times.select_nth_unstable(MAX_SESSIONS / 2);
            sessions.retain(|_, (_, since)| *since > *middle);
        }
        sessions.insert((session.client, session.port), (to, Instant::now()));
    }

    fn sessions(&self) -> MutexGuard<'_, AffinitySessions> {
        self.0.lock().ignore_poison()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(client: u32, port: &str, seconds: u64) -> AffinitySession {
        AffinitySession { client: Ipv4Addr::from(client), port: port.into(), lasts: Duration::from_secs(seconds) }
    }

    fn endpoint(last: u8) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(127, 9, 1, last), 8080)
    }

    fn order(affinity: &SessionAffinity, session: &AffinitySession, endpoints: &[u8]) -> Vec<u8> {
        let mut endpoints: Vec<SocketAddrV4> = endpoints.iter().map(|last| endpoint(*last)).collect();
        affinity.prefer(session, &mut endpoints);
        endpoints.iter().map(|one| one.ip().octets()[3]).collect()
    }

    #[test]
    fn client_keeps_its_endpoint() {
        let affinity = SessionAffinity::default();
        let web = session(1, "web", 100);
        assert_eq!(order(&affinity, &web, &[4, 5, 6]), [4, 5, 6], "there is no session yet");
        affinity.remember(web.clone(), endpoint(5));
        assert_eq!(order(&affinity, &web, &[4, 5, 6]), [5, 4, 6]);
        assert_eq!(order(&affinity, &web, &[9, 7, 4, 5, 6]), [5, 9, 7, 4, 6], "new endpoints do not move the client");
        assert_eq!(order(&affinity, &web, &[6, 4]), [6, 4], "the endpoint is gone");
        assert_eq!(order(&affinity, &session(2, "web", 100), &[4, 5]), [4, 5], "another client");
        assert_eq!(order(&affinity, &session(1, "sql", 100), &[4, 5]), [4, 5], "another port");
        assert_eq!(order(&affinity, &session(1, "web", 0), &[4, 5]), [4, 5], "the session has expired");
        affinity.remember(web.clone(), endpoint(6));
        assert_eq!(order(&affinity, &web, &[4, 5, 6]), [6, 4, 5]);
    }

    #[test]
    fn datagrams_of_a_socket_keep_their_endpoint() {
        let affinity = SessionAffinity::default();
        let flow = |from, to: &str| AffinitySession::for_flow(Ipv4Addr::new(127, 9, 1, 1), from, to.parse().unwrap());
        affinity.remember(flow(40_000, "127.9.128.7:53"), endpoint(5));
        let table = [
            (40_000, "127.9.128.7:53", [5, 4, 6]),
            (40_001, "127.9.128.7:53", [4, 5, 6]),
            (40_000, "127.9.128.7:54", [4, 5, 6]),
            (40_000, "127.9.128.8:53", [4, 5, 6]),
        ];
        for (from, to, expected) in table {
            assert_eq!(order(&affinity, &flow(from, to), &[4, 5, 6]), expected, "{from} {to}");
        }
    }

    #[test]
    fn number_of_remembered_sessions_is_bounded() {
        let affinity = SessionAffinity::default();
        let count = MAX_SESSIONS as u32 * 3;
        (0..count).for_each(|client| affinity.remember(session(client, "web", 100), endpoint(5)));
        assert!(affinity.sessions().len() <= MAX_SESSIONS);
        assert_eq!(order(&affinity, &session(count - 1, "web", 100), &[4, 5]), [5, 4], "the newest session is kept");
    }
}
