//! Ports of containers that the machine keeps for root, and connections that policies keep from pods.
//!
//! Knows: what is declared and what may be bound. Never: refuses a pod for it; a program may listen elsewhere than it declares.

use super::pod::LocalPod;
use crate::world::{Effect, EventType, Plan};

/// An event for each declared port that the pod's processes may not bind.
pub fn tell_refused(pod: &LocalPod, plan: &mut Plan) {
    let lowest = i32::from(pod.world.settings.lowest_port);
    for member in &pod.members {
        for port in member.spec.ports.iter().flatten().map(|port| port.container_port).filter(|port| *port < lowest) {
            let message = format!(
                "Container {} declares port {port}, and ports below {lowest} are for root here: let it listen on another, run kloop \
                 as root, or set net.ipv4.ip_unprivileged_port_start={port} with sysctl",
                member.spec.name,
            );
            plan.event(pod.row, EventType::Warning, "PortReserved", message);
        }
    }
}

/// An event for each connection that NetworkPolicies denied to the pod since the last one.
pub fn tell_denied(pod: &LocalPod, plan: &mut Plan) {
    let denied = pod.facts.iter().flat_map(|facts| &facts.denied);
    let mut is_told = false;
    for denial in denied {
        let address = denial.to.rsplit_once(':').map_or("", |(address, _)| address);
        let server =
            pod.world.pods_at(address).next().map(|row| format!(" (pod {}/{})", row.key.namespace, row.key.name));
        let direction = if denial.is_egress { "egress" } else { "ingress" };
        let message = format!(
            "{} to {}{} was denied: no {direction} rule of NetworkPolicy {} allows it",
            denial.protocol,
            denial.to,
            server.unwrap_or_default(),
            denial.policies.join(", "),
        );
        plan.event(pod.row, EventType::Warning, "NetworkPolicyDenied", message);
        is_told = true;
    }
    if is_told {
        plan.effects.push(Effect::ToldDenied { pod_uid: pod.row.uid.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::{Machine, pod};
    use crate::world::Report;
    use crate::world::policy::Denial;
    use serde_json::json;

    #[test]
    fn denied_connections_are_told_once() {
        let mut machine = Machine::new(pod(json!({"containers": [{"name": "c", "image": "i"}]})));
        machine.run_to(10);
        let denial = Denial {
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
    fn ports_that_are_kept_for_root_are_told_once() {
        for (lowest, told) in [(0, 0), (80, 0), (1024, 1)] {
            let container =
                json!({"name": "c", "image": "i", "ports": [{"containerPort": 80}, {"containerPort": 8080}]});
            let mut machine = Machine::new(pod(json!({"containers": [container]})));
            machine.world.settings.lowest_port = lowest;
            machine.run_to(100);
            assert_eq!(machine.events.iter().filter(|event| event.reason == "PortReserved").count(), told);
        }
    }
}
