//! Events about ports of containers that are reserved for root or taken by another program, and about connections that policies deny.
//!
//! Knows: the declared ports, which may be bound, and which could not be or are bound elsewhere. Never: refuses a pod for it; a program
//! may listen elsewhere than it declares.

use super::address;
use super::pod::{LocalPod, PodContainer};
use crate::world::ingress_routes::{BindReport, LOW_PORTS_MOVED_BY};
use crate::world::{EventType, Memory, Plan, Row, World};
use serde_json::Value;

/// An event for each declared port that the machine keeps for root: where else it is reached, or that the pod's processes may not bind it.
pub fn report_low_ports(pod: &LocalPod, plan: &mut Plan) {
    let lowest = pod.world.settings.lowest_port;
    let is_on_machine = pod.spec.host_network == Some(true) || !pod.world.settings.pod_network;
    let own = address::pod_address(pod).filter(|_| !is_on_machine);
    for member in &pod.members {
        for port in declared(member).filter(|port| *port < lowest) {
            let name = &member.spec.name;
            let (kind, reason, message) = match own.as_deref().zip(port.checked_add(LOW_PORTS_MOVED_BY)) {
                Some((ip, moved)) => (
                    EventType::Normal,
                    "PortMoved",
                    format!(
                        "Container {name} declares port {port}, and {}",
                        describe_moved_port(lowest, port, &format!("{ip}:{moved}"))
                    ),
                ),
                None => {
                    let why = for_root(lowest, port);
                    (EventType::Warning, "PortReserved", format!("Container {name} declares port {port}, and {why}"))
                }
            };
            plan.event(pod.row, kind, reason, message);
        }
    }
}

fn declared(member: &PodContainer) -> impl Iterator<Item = u16> {
    member.spec.ports.iter().flatten().filter_map(|port| u16::try_from(port.container_port).ok())
}

fn describe_moved_port(lowest: u16, port: u16, moved: &str) -> String {
    format!(
        "ports below {lowest} are reserved for root: pods, Services, probes and port-forward reach it at port {port}, other programs of \
         this machine at {moved}"
    )
}

fn for_root(lowest: u16, port: u16) -> String {
    format!(
        "ports below {lowest} are reserved for root: use another port, run kloop as root, or set \
         net.ipv4.ip_unprivileged_port_start={port} with sysctl"
    )
}

/// Adds an event for each port that a program of the pod could not bind, or bound elsewhere, declared or not. Declared ports that are
/// reserved for root have had their event before.
fn report_binds(pod: &LocalPod, plan: &mut Plan) -> bool {
    let binds = pod.facts.iter().flat_map(|facts| &facts.binds);
    let mut is_any = false;
    for bind in binds {
        is_any = true;
        if let Some((kind, reason, message)) = bind_event(pod, bind) {
            plan.event(pod.row, kind, reason, message);
        }
    }
    is_any
}

/// Type, reason and message of the event about a bound port.
fn bind_event(pod: &LocalPod, bind: &BindReport) -> Option<(EventType, &'static str, String)> {
    let BindReport { port, is_udp, holder, moved_to } = bind;
    let at = format!("port {port}/{}", if *is_udp { "UDP" } else { "TCP" });
    if let Some(holder) = holder {
        let message = format!(
            "A program could not bind {at}: {holder} listens there on every address of this machine; end it, or change the port \
             of one of the two"
        );
        return Some((EventType::Warning, "PortTaken", message));
    }
    if pod.members.iter().any(|member| declared(member).any(|one| one == *port)) {
        return None;
    }
    let lowest = pod.world.settings.lowest_port;
    let Some(moved) = moved_to else {
        let message = format!("A program could not bind {at}: {}", for_root(lowest, *port));
        return Some((EventType::Warning, "PortReserved", message));
    };
    let moved = format!("{}:{moved}", address::pod_address(pod)?);
    let message = format!("A program uses {at}, and {}", describe_moved_port(lowest, *port, &moved));
    Some((EventType::Normal, "PortMoved", message))
}

/// An event for each connection that NetworkPolicies denied to the pod since the last one, and for each port that it could not bind or that
/// was bound elsewhere.
pub fn report_denied_connections(pod: &LocalPod, plan: &mut Plan) {
    let denied = pod.facts.iter().flat_map(|facts| &facts.denied);
    let mut is_told = report_binds(pod, plan);
    for denial in denied {
        let server = server(pod.world, &denial.to);
        let direction = if denial.is_egress { "egress" } else { "ingress" };
        let message = format!(
            "{} to {}{} was denied: no {direction} rule of NetworkPolicy {} allows it",
            denial.protocol,
            denial.to,
            server,
            denial.policies.join(", "),
        );
        plan.event(pod.row, EventType::Warning, "NetworkPolicyDenied", message);
        is_told = true;
    }
    if is_told {
        plan.memory.push(Memory::ConnectionsReported { pod_uid: pod.row.uid.clone() });
    }
}

/// Returns the owner of an address, in brackets. A hostNetwork pod shares the machine's address, where any program may
/// listen.
fn server(world: &World, to: &str) -> String {
    let address = to.rsplit_once(':').map_or("", |(address, _)| address);
    let is_on_machine = |row: &Row| row.body().value_at(&["spec", "hostNetwork"]) == Some(&Value::Bool(true));
    match world.pods_at(address).next() {
        _ if ["127.0.0.1", "[::1]"].contains(&address) => " (this machine)".to_owned(),
        Some(row) if is_on_machine(row) => " (this machine)".to_owned(),
        Some(row) => format!(" (pod {}/{})", row.key.namespace, row.key.name),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{TestMachine, pod};
    use crate::world::Report;
    use crate::world::ingress_routes::BindReport;
    use crate::world::policy::DeniedConnection;
    use serde_json::json;

    #[test]
    fn denied_connections_are_told_once() {
        let mut machine = TestMachine::new(pod(json!({"containers": [{"name": "c", "image": "i"}]})));
        machine.run_to(10);
        let denial = DeniedConnection {
            protocol: "TCP".into(),
            to: "127.77.9.9:80".into(),
            is_egress: true,
            policies: vec!["default/closed".into()],
        };
        for _ in 0..2 {
            machine.report(Report::Denied { pod_uid: "uid-p".into(), denial: denial.clone() });
        }
        machine.run_to(100);
        let told: Vec<&str> = machine
            .events
            .iter()
            .filter(|event| event.reason == "NetworkPolicyDenied")
            .map(|event| &*event.message)
            .collect();
        assert_eq!(told, ["TCP to 127.77.9.9:80 was denied: no egress rule of NetworkPolicy default/closed allows it"]);
    }

    #[test]
    fn localhost_is_the_machine_whoever_shares_it() {
        for (ip, host_network, expected) in [
            ("127.0.0.1", true, " (this machine)"),
            ("10.0.0.7", true, " (this machine)"),
            ("127.77.1.9", false, " (pod default/p)"),
        ] {
            let mut body = pod(json!({"hostNetwork": host_network, "containers": [{"name": "c", "image": "i"}]}));
            body["status"] = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]});
            let machine = TestMachine::new(body);
            assert_eq!(super::server(&machine.world, &format!("{ip}:80")), expected, "{ip}");
            assert_eq!(super::server(&machine.world, "127.0.0.1:80"), " (this machine)");
            assert_eq!(super::server(&machine.world, "127.77.9.9:80"), "");
        }
    }

    #[test]
    fn ports_that_could_not_be_bound_or_are_elsewhere_are_told_once() {
        let container = json!({"name": "c", "image": "i", "ports": [{"containerPort": 80}]});
        let mut machine = TestMachine::new(pod(json!({"containers": [container]})));
        machine.world.settings.lowest_port = 1024;
        machine.run_to(10);
        let before = machine.events.len();
        let bind = |port, holder: Option<&str>| BindReport {
            port,
            is_udp: false,
            holder: holder.map(str::to_owned),
            moved_to: None,
        };
        let elsewhere = |port| BindReport { is_udp: true, moved_to: Some(port + 61_440), ..bind(port, None) };
        let taken = bind(8080, Some("nginx (pid 7)"));
        for bind in [bind(80, None), bind(81, None), taken, bind(81, None), elsewhere(80), elsewhere(53)] {
            machine.report(Report::Bind { pod_uid: "uid-p".into(), bind });
        }
        machine.run_to(100);
        let told: Vec<String> =
            machine.events[before..].iter().map(|event| format!("{} {}", event.reason, event.message)).collect();
        let expected = [
            "PortReserved A program could not bind port 81/TCP: ports below 1024",
            "PortTaken A program could not bind port 8080/TCP: nginx (pid 7) listens there",
            "PortMoved A program uses port 53/UDP, and ports below 1024 are reserved for root: pods",
        ];
        assert!(told.len() == 3 && told.iter().zip(expected).all(|(told, start)| told.starts_with(start)), "{told:?}");
        assert!(told[2].ends_with(":61493"), "{told:?}");
    }

    #[test]
    fn ports_that_are_kept_for_root_are_told_once() {
        let on_machine = ["PortReserved ports below 1024 are reserved for root: use another port"];
        let of_pod = [
            "PortMoved ports below 1024 are reserved for root: pods, Services, probes and port-forward reach it at port 80",
        ];
        let table =
            [(0, false, &[][..]), (80, false, &[][..]), (1024, false, &of_pod[..]), (1024, true, &on_machine[..])];
        for (lowest, host_network, expected) in table {
            let container =
                json!({"name": "c", "image": "i", "ports": [{"containerPort": 80}, {"containerPort": 8080}]});
            let mut machine = TestMachine::new(pod(json!({"hostNetwork": host_network, "containers": [container]})));
            machine.world.settings.lowest_port = lowest;
            machine.run_to(100);
            let told = machine.events.iter().filter(|event| event.reason.starts_with("Port"));
            let told: Vec<String> = told.map(|event| format!("{} {}", event.reason, event.message)).collect();
            let is_it = |(told, expected): (&String, &&str)| {
                told.replacen(" Container c declares port 80, and", "", 1).starts_with(expected)
            };
            assert!(told.len() == expected.len() && told.iter().zip(expected).all(is_it), "{told:?}");
        }
    }
}
