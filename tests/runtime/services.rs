//! Services of another Kubernetes, for programs on the machine's network.

use super::Rig;
use kloop::object::{Key, Resource};
use kloop::runtime::testing::start_request;
use kloop::world::Effect;
use kloop::world::plan::{Route, RoutePort};
use kloop::world::start::Start;
use std::io::Write;
use std::net::TcpListener;

/// The address of a Service, which leads nowhere on this machine (RFC 5737).
const SERVICE: &str = "198.51.100.7";

/// Connects, and fails unless the server answers within so many seconds.
const CLIENT: &str = "import socket, sys; found = socket.create_connection(('198.51.100.7', 80), int(sys.argv[1])).recv(5); assert found == b'found'";

#[test]
fn connections_to_a_service_are_directed_only_where_they_are_to_be() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = server.local_addr().expect("an address").to_string();
    std::thread::spawn(move || server.incoming().flatten().for_each(|mut client| drop(client.write_all(b"found"))));
    let mut rig = Rig::new();
    let port = RoutePort {
        name: "".into(),
        protocol: "TCP".into(),
        port: 80,
        node_port: None,
        is_open: false,
        sticky: None,
        is_h2: false,
        endpoints: vec![endpoint.into()],
    };
    let route = Route { address: SERVICE.into(), ports: vec![port], ..Route::default() };
    rig.order(Effect::Route { service: Key::new(Resource("services"), "default", "web"), route });
    for (uid, uses_services, seconds, code) in [("with", true, "20", 0), ("without", false, "2", 1)] {
        let command = ["python3", "-c", CLIENT, seconds].map(Into::into).to_vec();
        rig.start(Start { command, ip: "127.0.0.1".into(), uses_services, ..start_request(uid, "c", 0) });
        assert_eq!(rig.ended(uid, 0).code, code, "{uid}");
    }
}
