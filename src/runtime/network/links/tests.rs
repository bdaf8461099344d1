//! Two ends of a link in one process: a dialer against an acceptor with certificates of a test's own authority.

use super::acceptor::accept_links;
use super::dialer::{Carried, LinkedPeer};
use super::*;
use crate::network::policy::table;
use crate::world::policy::NetworkPolicyRules;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::net::{SocketAddr, SocketAddrV4, TcpListener as StdListener};
use std::sync::atomic::{AtomicU8, Ordering};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// An authority for both ends.
struct TestAuthority {
    issuer: Issuer<'static, KeyPair>,
    pem: Str,
}

impl TestAuthority {
    fn new() -> TestAuthority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        TestAuthority { issuer: Issuer::new(params, key), pem: pem.into() }
    }

    fn identity(&self, node: &str, pods: Cidr, address: SocketAddr) -> LinkIdentity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([address.ip().to_string()]).unwrap();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
        let certificate: Str = params.signed_by(&key, &self.issuer).unwrap().pem().into();
        let key: Str = key.serialize_pem().into();
        LinkIdentity {
            address,
            pods,
            client_certificate: certificate.clone(),
            client_key: key.clone(),
            server_certificate: certificate,
            server_key: key,
            authority: self.pem.clone(),
        }
    }
}

/// A machine `far` that accepts links, with a server at an address of one of its pods; `near` is the other machine.
struct Ends {
    authority: TestAuthority,
    far: NodeLink,
    near: NodeLink,
    server: TcpListener,
    state: TempDir,
}

impl Ends {
    async fn start() -> Ends {
        // A network of its own for each test, as they run at once in one process.
        static NETWORKS: AtomicU8 = AtomicU8::new(0);
        let network = 240 + NETWORKS.fetch_add(1, Ordering::Relaxed) % 14;
        let block = |third: u8| Cidr { address: Ipv4Addr::new(127, network, third, 0), bits: 25 };
        let address = StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let server = TcpListener::bind((Ipv4Addr::new(127, network, 64, 7), 0)).await.unwrap();
        let far = NodeLink { node: "far".into(), pods: block(64), address };
        let near = NodeLink { node: "near".into(), pods: block(65), address: "127.0.0.1:1".parse().unwrap() };
        let state = tempfile::tempdir().unwrap();
        let authority = TestAuthority::new();
        let table = LinkTable::new(state.path(), Arc::new(|_, _| ()));
        let table = Arc::new(table);
        let identity = Arc::new(authority.identity("far", far.pods, address));
        table.lock().tls = Some(LinkTls::new(&identity));
        table.lock().identity = Some(identity);
        table.lock().wanted.insert("near".into(), near.clone());
        tokio::spawn(accept_links(table, address));
        Ends { authority, far, near, server, state }
    }

    /// Starts the other end, as a node with certificates of an authority.
    fn dial(&self, node: &str, authority: &TestAuthority) -> (Arc<LinkedPeer>, UnboundedReceiver<Option<String>>) {
        let (sender, states) = unbounded_channel();
        let identity = authority.identity(node, self.near.pods, self.near.address);
        let report = Arc::new(move |_, problem| drop(sender.send(problem)));
        (LinkedPeer::start(self.far.clone(), LinkTls::new(&identity).connector, report), states)
    }

    async fn linked(&self) -> Arc<LinkedPeer> {
        let (peer, mut states) = self.dial("near", &self.authority);
        while states.recv().await.unwrap().is_some() {}
        peer
    }

    fn server(&self) -> SocketAddrV4 {
        match self.server.local_addr().unwrap() {
            SocketAddr::V4(address) => address,
            SocketAddr::V6(_) => unreachable!(),
        }
    }

    /// An address of a pod of the machine `near`.
    fn client(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.near.pods.address) + 9)
    }
}

#[tokio::test]
async fn connection_is_carried_both_ways_from_the_clients_address() {
    let ends = Ends::start().await;
    let peer = ends.linked().await;
    let client = peer.open(ends.server(), Some(ends.client()), Carried::Connection).await.unwrap();
    let (mut server, from) = ends.server.accept().await.unwrap();
    assert_eq!(from.ip(), ends.client());
    let mut client = hyper_util::rt::TokioIo::new(client);
    let sent = vec![7; 3 << 20];
    let send = async {
        client.write_all(&sent).await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        answer
    };
    let serve = async {
        let mut received = Vec::new();
        // The end of the client's data arrives, and the other direction still works.
        server.read_to_end(&mut received).await.unwrap();
        server.write_all(b"thanks").await.unwrap();
        server.shutdown().await.unwrap();
        received.len()
    };
    let (answer, received) = tokio::join!(send, serve);
    assert_eq!((&answer[..], received), (&b"thanks"[..], sent.len()));
    // A program outside of pods has no address of one.
    let _client = peer.open(ends.server(), None, Carried::Connection).await.unwrap();
    let (_, from) = ends.server.accept().await.unwrap();
    assert_eq!(from.ip(), Ipv4Addr::LOCALHOST);
}

#[tokio::test]
async fn datagrams_keep_their_borders_and_addresses() {
    let ends = Ends::start().await;
    let peer = ends.linked().await;
    let server = UdpSocket::bind((*ends.server().ip(), 0)).await.unwrap();
    let SocketAddr::V4(to) = server.local_addr().unwrap() else { unreachable!() };
    let door = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let at = door.local_addr().unwrap();
    let table = LinkTable::new(Path::new(""), Arc::new(|_, _| ()));
    table.lock().identity = Some(Arc::new(ends.authority.identity("near", ends.near.pods, at)));
    table.lock().peers.insert("far".into(), peer);
    tokio::spawn(datagrams::serve(door, to, Arc::new(table), Arc::new(datagrams::UseClock::start())));
    let client = UdpSocket::bind((ends.client(), 0)).await.unwrap();
    let mut bytes = [0; 16];
    for (sent, answer) in [("one", "eins"), ("", "null"), ("three", "drei")] {
        client.send_to(sent.as_bytes(), at).await.unwrap();
        let (length, from) = server.recv_from(&mut bytes).await.unwrap();
        assert_eq!((&bytes[..length], from.ip()), (sent.as_bytes(), ends.client().into()));
        server.send_to(answer.as_bytes(), from).await.unwrap();
        let (length, from) = client.recv_from(&mut bytes).await.unwrap();
        assert_eq!((&bytes[..length], from), (answer.as_bytes(), at));
    }
}

#[tokio::test]
async fn node_speaks_for_its_own_pods_and_reaches_those_of_the_other() {
    let ends = Ends::start().await;
    let peer = ends.linked().await;
    let (server, client) = (ends.server(), ends.client());
    let open =
        async |to: SocketAddrV4, source| peer.open(to, source, Carried::Connection).await.err().unwrap_or_default();
    let foreign = open(server, Some(Ipv4Addr::from(u32::from(*server.ip()) + 1))).await;
    assert!(foreign.contains("does not speak for this client"), "{foreign}");
    let localhost = open(server, Some(Ipv4Addr::LOCALHOST)).await;
    assert!(localhost.contains("does not speak for this client"), "{localhost}");
    for outside in [Ipv4Addr::LOCALHOST, client, Ipv4Addr::new(192, 0, 2, 1)] {
        let refused = open(SocketAddrV4::new(outside, server.port()), Some(client)).await;
        assert!(refused.contains("is not an address of this machine's pods"), "{refused}");
    }
    let closed = open(SocketAddrV4::new(*server.ip(), 1), Some(client)).await;
    assert!(closed.contains("refused"), "{closed}");
    assert_eq!(open(server, Some(client)).await, "");
}

#[tokio::test]
async fn stranger_is_not_served() {
    let ends = Ends::start().await;
    let (_stranger, mut states) = ends.dial("near", &TestAuthority::new());
    assert!(states.recv().await.unwrap().unwrap().contains("certificate"), "of another authority");
    // The other end does not know the authority of the client's certificate, and reports it after the handshake.
    let mut identity = ends.authority.identity("near", ends.near.pods, ends.near.address);
    let foreign = TestAuthority::new().identity("near", ends.near.pods, ends.near.address);
    (identity.client_certificate, identity.client_key) = (foreign.client_certificate, foreign.client_key);
    let (sender, mut states) = unbounded_channel();
    let report = Arc::new(move |_, problem| drop(sender.send(problem)));
    let _refused = LinkedPeer::start(ends.far.clone(), LinkTls::new(&identity).connector, report);
    assert!(states.recv().await.unwrap().is_some(), "it was never up");
    // Nor does a node that is not linked get one.
    let (_other, mut states) = ends.dial("other", &ends.authority);
    assert_eq!(states.recv().await.unwrap().as_deref(), Some("node other is not linked"));
    // Another node answers at the address.
    let mut wrong = ends.far.clone();
    wrong.node = "wrong".into();
    let (sender, mut states) = unbounded_channel();
    let identity = ends.authority.identity("near", ends.near.pods, ends.near.address);
    let _peer = LinkedPeer::start(
        wrong,
        LinkTls::new(&identity).connector,
        Arc::new(move |_, problem| drop(sender.send(problem))),
    );
    assert!(states.recv().await.unwrap().unwrap().starts_with("node far answers at "));
}

#[tokio::test]
async fn policies_of_the_pods_machine_apply() {
    let ends = Ends::start().await;
    let peer = ends.linked().await;
    let rules = NetworkPolicyRules { subjects: vec![*ends.server().ip()], ingress: Some(Vec::new()), egress: None };
    let folder = ends.state.path().join("policies");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("default_closed"), table::text(&rules)).unwrap();
    std::fs::write(folder.join(ends.server().ip().to_string()), "default_closed\n").unwrap();
    let refused = peer.open(ends.server(), Some(ends.client()), Carried::Connection).await.err().unwrap();
    assert_eq!(refused, "denied by NetworkPolicy default/closed");
}

#[tokio::test]
async fn broken_link_is_reported_and_made_again() {
    let authority = TestAuthority::new();
    let place = StdListener::bind("127.0.0.1:0").unwrap();
    let address = place.local_addr().unwrap();
    let block = |third: u8| Cidr { address: Ipv4Addr::new(127, 254, third, 0), bits: 25 };
    let far = NodeLink { node: "far".into(), pods: block(64), address };
    let near = authority.identity("near", block(65), "127.0.0.1:1".parse().unwrap());
    let (sender, mut states) = unbounded_channel();
    drop(place);
    let peer = LinkedPeer::start(
        far.clone(),
        LinkTls::new(&near).connector,
        Arc::new(move |_, problem| drop(sender.send(problem))),
    );
    assert!(states.recv().await.unwrap().unwrap().contains("refused"));
    assert!(peer.problem().is_some());
    let state = tempfile::tempdir().unwrap();
    let table = LinkTable::new(state.path(), Arc::new(|_, _| ()));
    table.lock().tls = Some(LinkTls::new(&authority.identity("far", far.pods, address)));
    let other = NodeLink { node: "near".into(), pods: block(65), address: near.address };
    table.lock().wanted.insert("near".into(), other);
    let accepting = tokio::spawn(accept_links(Arc::new(table), address));
    assert_eq!(states.recv().await.unwrap(), None, "it is up");
    assert_eq!(peer.problem(), None);
    accepting.abort();
    assert!(states.recv().await.unwrap().is_some(), "it is down");
}

#[tokio::test]
async fn node_has_few_links_at_once() {
    let ends = Ends::start().await;
    let mut peers = Vec::new();
    for _ in 0..4 {
        peers.push(ends.linked().await);
    }
    let (_peer, mut states) = ends.dial("near", &ends.authority);
    assert!(states.recv().await.unwrap().is_some(), "it is closed after the handshake");
    assert!(peers[0].open(ends.server(), None, Carried::Connection).await.is_ok(), "the others stay");
    peers.clear();
    while states.recv().await.unwrap().is_some() {}
}

#[tokio::test]
async fn renewed_certificates_leave_connections_alone() {
    let ends = Ends::start().await;
    let table = Arc::new(LinkTable::new(ends.state.path(), Arc::new(|_, _| ())));
    let place = StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    table.set_identity(ends.authority.identity("near", ends.near.pods, place));
    table.set_link("far".into(), Some(ends.far.clone()));
    let peer = table.peer_of(*ends.server().ip()).unwrap();
    let client = loop {
        match peer.open(ends.server(), None, Carried::Connection).await {
            Ok(client) => break client,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    let (mut server, _) = ends.server.accept().await.unwrap();
    table.set_identity(ends.authority.identity("near", ends.near.pods, place));
    assert!(Arc::ptr_eq(&peer, &table.peer_of(*ends.server().ip()).unwrap()), "the same link");
    let mut client = hyper_util::rt::TokioIo::new(client);
    client.write_all(b"still there").await.unwrap();
    let mut bytes = [0; 11];
    server.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"still there");
}

#[tokio::test]
async fn socket_at_an_address_that_is_linked_no_more_is_closed() {
    let ends = Ends::start().await;
    let state = tempfile::tempdir().unwrap();
    let links = NodeLinks::start(state.path(), Arc::new(|_, _| ())).unwrap();
    let place = StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    links.set_identity(ends.authority.identity("near", ends.near.pods, place));
    links.set_link("far".into(), Some(ends.far.clone()));
    let to = SocketAddrV4::new(Ipv4Addr::from(u32::from(ends.far.pods.address) + 30), 8080);
    let can_bind = move || StdListener::bind(to).is_ok();
    let folder = state.path().to_owned();
    let until_open = move || {
        let (tables, mut remote) = (tables::NetworkTables::for_state(&folder), request::RemoteAddresses::new(&folder));
        while can_bind() {
            tables.refresh();
            // It fails until the link is up.
            let _ = remote.prepare(&tables, to, true);
        }
    };
    tokio::task::spawn_blocking(until_open).await.unwrap();
    links.set_link("far".into(), None);
    tokio::task::spawn_blocking(move || while !can_bind() {}).await.unwrap();
}
