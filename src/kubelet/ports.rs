//! Ports of containers that the machine keeps for root.
//!
//! Knows: what is declared and what may be bound. Never: refuses a pod for it; a program may listen elsewhere than it declares.

use super::pod::LocalPod;
use crate::world::{EventType, Plan};

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

#[cfg(test)]
mod tests {
    use super::super::machine::{Machine, pod};
    use serde_json::json;

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
