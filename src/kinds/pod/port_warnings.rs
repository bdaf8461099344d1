//! Warnings about conflicting ports of a pod's containers (`pkg/api/pod/warnings.go`).

use serde_json::Value;
use std::collections::BTreeMap;

/// A port and its path.
struct PortAt<'p> {
    path: String,
    port: &'p Value,
}

/// Maximum number of comparisons between ports of one pod with the same number. A client receives far fewer warnings.
const MAX_COMPARISONS: usize = 10_000;

/// Compares the ports of all containers, each given with its path.
pub fn check(containers: &[(String, &Value)], warnings: &mut Vec<String>) {
    let mut ports: Vec<PortAt<'_>> = Vec::new();
    let mut by_number: BTreeMap<(i64, &str), Vec<usize>> = BTreeMap::new();
    let mut comparisons = 0;
    for (path, container) in containers {
        for (index, port) in container["ports"].as_array().into_iter().flatten().enumerate() {
            let found = PortAt { path: format!("{path}.ports[{index}]"), port };
            if !text(port, "hostIP").is_empty() && number(port, "hostPort") == 0 {
                warnings.push(format!("{}: hostIP set without hostPort: {}", found.path, as_go_prints(port)));
            }
            let same = by_number.entry((number(port, "containerPort"), text(port, "protocol"))).or_default();
            for other in same.iter().map(|place| &ports[*place]).take(MAX_COMPARISONS - comparisons) {
                comparisons += 1;
                if let Some(relation) = relation(port, other.port) {
                    warnings.push(format!("{}: {relation} port definition with {}", found.path, other.path));
                }
            }
            same.push(ports.len());
            ports.push(found);
        }
    }
    check_names(&ports, warnings);
}

/// Warns of duplicate port names, since a name resolves to the first port that has it.
fn check_names(ports: &[PortAt<'_>], warnings: &mut Vec<String>) {
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    for PortAt { path, port } in ports {
        let name = text(port, "name");
        if name.is_empty() {
            continue;
        }
        match first.get(name) {
            Some(other) => warnings.push(format!(
                "{path}: duplicate port name {name:?} with {other}, services and probes that select ports by name will use {other}"
            )),
            None => drop(first.insert(name, path)),
        }
    }
}

fn text<'p>(port: &'p Value, field: &str) -> &'p str {
    port[field].as_str().unwrap_or_default()
}

fn number(port: &Value, field: &str) -> i64 {
    port[field].as_i64().unwrap_or(0)
}

/// The conflict between two definitions of one container port.
fn relation(one: &Value, other: &Value) -> Option<&'static str> {
    let (one_host, other_host) = (number(one, "hostPort"), number(other, "hostPort"));
    let (one_ip, other_ip) = (text(one, "hostIP"), text(other, "hostIP"));
    if one_ip == other_ip && one_host == other_host {
        return Some("duplicate");
    }
    if one_host == 0 || other_host == 0 {
        return Some("overlapping");
    }
    (one_host == other_host && one_ip.is_empty() != other_ip.is_empty()).then_some("dangerously ambiguous")
}

/// Prints a port like Go's struct.
fn as_go_prints(port: &Value) -> String {
    format!(
        "{{Name:{} HostPort:{} ContainerPort:{} Protocol:{} HostIP:{}}}",
        text(port, "name"),
        number(port, "hostPort"),
        number(port, "containerPort"),
        text(port, "protocol"),
        text(port, "hostIP"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn duplicate_port_names_are_reported() {
        let container = |port: i64| json!({"ports": [{"name": "http", "containerPort": port, "protocol": "TCP"}]});
        let mut warnings = Vec::new();
        check(&[("c[0]".to_owned(), &container(80)), ("c[1]".to_owned(), &container(8090))], &mut warnings);
        let expected = "c[1].ports[0]: duplicate port name \"http\" with c[0].ports[0], services and probes that select ports by \
                        name will use c[0].ports[0]";
        assert_eq!(warnings, [expected]);
    }

    #[test]
    fn conflicting_ports_are_reported() {
        let port =
            |host: i64, ip: &str| json!({"containerPort": 80, "protocol": "TCP", "hostPort": host, "hostIP": ip});
        let container =
            json!({"ports": [port(0, ""), port(0, ""), port(1, ""), port(1, "1.2.3.4"), port(0, "1.2.3.4")]});
        let mut warnings = Vec::new();
        check(&[("c".to_owned(), &container)], &mut warnings);
        let expected = [
            "c.ports[1]: duplicate port definition with c.ports[0]",
            "c.ports[2]: overlapping port definition with c.ports[0]",
            "c.ports[2]: overlapping port definition with c.ports[1]",
            "c.ports[3]: overlapping port definition with c.ports[0]",
            "c.ports[3]: overlapping port definition with c.ports[1]",
            "c.ports[3]: dangerously ambiguous port definition with c.ports[2]",
            "c.ports[4]: hostIP set without hostPort: {Name: HostPort:0 ContainerPort:80 Protocol:TCP HostIP:1.2.3.4}",
        ];
        assert_eq!(warnings[..expected.len()], expected);
    }

    #[test]
    fn many_equal_ports_are_compared_a_bounded_number_of_times() {
        let container = json!({"ports": vec![json!({"containerPort": 1}); 20_000]});
        let mut warnings = Vec::new();
        check(&[("c".to_owned(), &container)], &mut warnings);
        assert_eq!(warnings.len(), MAX_COMPARISONS);
    }
}
