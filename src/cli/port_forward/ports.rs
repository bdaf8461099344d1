//! Parses the ports of `port-forward` like kubectl: names become numbers through the Service and
//! the pod, and only then the numbers are checked.
//!
//! Never: listens, or reads objects.

use crate::cli::{CliResult, Failure};
use crate::object::Object;
use serde_json::Value;

/// A pair of ports as written.
pub struct PortArgument<'a> {
    local: &'a str,
    /// A number, or the name of a port.
    pub remote: &'a str,
}

/// A port of this machine (0 for any), and the pod's port that it leads to.
#[derive(Debug, PartialEq)]
pub struct PortPair {
    pub local: u16,
    pub remote: u16,
}

/// Splits `5000`, `8888:5000`, `:5000` and `8443:https`.
pub fn words(word: &str) -> CliResult<PortArgument<'_>> {
    match word.split(':').collect::<Vec<_>>()[..] {
        [both] => Ok(PortArgument { local: both, remote: both }),
        [local, remote] => Ok(PortArgument { local, remote }),
        _ => Err(Failure::plain(format!("invalid port format '{word}'"))),
    }
}

/// Ports of the target: the Service's, if a Service is forwarded, and those of the pod.
#[derive(Clone, Copy)]
pub struct TargetPorts<'a> {
    /// The Service.
    pub service: Option<&'a Object>,
    /// The pod.
    pub pod: &'a Object,
}

impl TargetPorts<'_> {
    /// Returns a pair as text, with names replaced by numbers.
    pub fn numbers(&self, words: &PortArgument<'_>) -> CliResult<(String, String)> {
        let PortArgument { local, remote } = *words;
        if remote.is_empty() && self.service.is_none() {
            return Err(Failure::plain("remote port cannot be empty"));
        }
        let here = self.named(remote)?;
        // In `svc/web https`, the local port is the Service's; in `pod/web https`, it is the pod's.
        let local = if local == remote { here } else { local.to_owned() };
        Ok((local, self.remote(remote)?))
    }

    /// Returns the pod's port.
    pub fn remote(&self, word: &str) -> CliResult<String> {
        let number = self.named(word)?;
        let Some(service) = self.service else { return Ok(number) };
        let port = service.items(&["spec", "ports"]).iter().find(|port| port["port"].as_i64() == number.parse().ok());
        let missing = || Failure::plain(format!("Service {} does not have a service port {number}", service.name()));
        match &port.ok_or_else(missing)?["targetPort"] {
            _ if service.text(&["spec", "clusterIP"]) == Some("None") => Ok(number),
            Value::String(name) => self.port_of_pod(name),
            Value::Number(target) if target.as_u64() != Some(0) => Ok(target.to_string()),
            _ => Ok(number),
        }
    }

    /// Refuses a port that is only declared for UDP.
    pub fn check_protocol(&self, word: &str) -> CliResult {
        let number = self.named(word)?;
        let ports: Vec<(&Value, &str)> = match self.service {
            Some(service) => service.items(&["spec", "ports"]).iter().map(|port| (port, "port")).collect(),
            None => container_ports(self.pod).map(|port| (port, "containerPort")).collect(),
        };
        let has = |protocol: &str| {
            let has_protocol = |port: &Value| port["protocol"].as_str().unwrap_or("TCP") == protocol;
            ports.iter().any(|(port, field)| port[*field].as_i64() == number.parse().ok() && has_protocol(port))
        };
        if has("UDP") && !has("TCP") {
            return Err(Failure::plain(format!("UDP protocol is not supported for {word}")));
        }
        Ok(())
    }

    /// Returns a port's number, which may be given by name.
    fn named(&self, word: &str) -> CliResult<String> {
        if let Ok(number) = word.parse::<i64>() {
            return Ok(if self.service.is_some() { number.to_string() } else { word.to_owned() });
        }
        let Some(service) = self.service else { return self.port_of_pod(word) };
        let found = service.items(&["spec", "ports"]).iter().find(|port| name_of(port) == word);
        let missing = || Failure::plain(format!("Service '{}' does not have a named port '{word}'", service.name()));
        found.map(|port| port["port"].to_string()).ok_or_else(missing)
    }

    fn port_of_pod(&self, name: &str) -> CliResult<String> {
        let found = container_ports(self.pod).find(|port| name_of(port) == name);
        let missing = || Failure::plain(format!("Pod '{}' does not have a named port '{name}'", self.pod.name()));
        found.map(|port| port["containerPort"].to_string()).ok_or_else(missing)
    }
}

fn name_of(port: &Value) -> &str {
    port["name"].as_str().unwrap_or_default()
}

fn container_ports(pod: &Object) -> impl Iterator<Item = &Value> {
    let containers = pod.items(&["spec", "containers"]).iter();
    containers.flat_map(|container| container["ports"].as_array().into_iter().flatten())
}

/// Parses the numbers of a pair.
pub fn pair((local, remote): &(String, String)) -> CliResult<PortPair> {
    let local = if local.is_empty() { 0 } else { number("local", local)? };
    match number("remote", remote)? {
        0 => Err(Failure::plain("remote port must be > 0")),
        remote => Ok(PortPair { local, remote }),
    }
}

fn number(which: &str, word: &str) -> CliResult<u16> {
    let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let why = if is_number { "value out of range" } else { "invalid syntax" };
    word.parse().ok().filter(|_| is_number).ok_or_else(|| {
        Failure::plain(format!("error parsing {which} port '{word}': strconv.ParseUint: parsing {word:?}: {why}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service(fields: &Value) -> Object {
        let mut spec = json!({"ports": [
            {"name": "web", "port": 80, "targetPort": "http", "protocol": "TCP"},
            {"name": "plain", "port": 81, "protocol": "TCP"},
            {"name": "lost", "port": 82, "targetPort": "nope"},
            {"name": "dns", "port": 53, "targetPort": 5353, "protocol": "UDP"},
        ]});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        Object(json!({"metadata": {"name": "s"}, "spec": spec}))
    }

    fn read(word: &str, service: Option<&Object>) -> Result<(u16, u16), String> {
        let pod = Object(json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}, {"ports": [
            {"name": "http", "containerPort": 8080}, {"name": "talk", "containerPort": 9000, "protocol": "UDP"},
        ]}]}}));
        let ports = TargetPorts { service, pod: &pod };
        let read = || {
            let words = words(word)?;
            ports.check_protocol(words.remote)?;
            pair(&ports.numbers(&words)?)
        };
        read().map(|pair| (pair.local, pair.remote)).map_err(|failure| failure.to_string().replace("error: ", ""))
    }

    #[test]
    fn ports_of_a_pod_are_resolved() {
        let parsing = |which: &str, word: &str, why: &str| {
            Err(format!("error parsing {which} port '{word}': strconv.ParseUint: parsing \"{word}\": {why}"))
        };
        let table = [
            ("5000", Ok((5000, 5000))),
            ("8888:5000", Ok((8888, 5000))),
            (":5000", Ok((0, 5000))),
            ("0:5000", Ok((0, 5000))),
            ("http", Ok((8080, 8080))),
            ("80:http", Ok((80, 8080))),
            ("0", Err("remote port must be > 0".into())),
            ("80:0", Err("remote port must be > 0".into())),
            ("65536", parsing("local", "65536", "value out of range")),
            ("80:65536", parsing("remote", "65536", "value out of range")),
            ("x:80", parsing("local", "x", "invalid syntax")),
            ("+80", parsing("local", "+80", "invalid syntax")),
            ("abc", Err("Pod 'p' does not have a named port 'abc'".into())),
            ("80:", Err("Pod 'p' does not have a named port ''".into())),
            ("1:2:3", Err("invalid port format '1:2:3'".into())),
            ("9000", Err("UDP protocol is not supported for 9000".into())),
            ("talk", Err("UDP protocol is not supported for talk".into())),
        ];
        for (word, expected) in table {
            assert_eq!(read(word, None), expected, "{word}");
        }
    }

    #[test]
    fn ports_of_a_service_are_resolved() {
        let table = [
            ("80", Ok((80, 8080))),
            ("web", Ok((80, 8080))),
            ("8443:web", Ok((8443, 8080))),
            (":80", Ok((0, 8080))),
            ("81", Ok((81, 81))),
            ("82", Err("Pod 'p' does not have a named port 'nope'".into())),
            ("8080", Err("Service s does not have a service port 8080".into())),
            ("0", Err("Service s does not have a service port 0".into())),
            ("70000", Err("Service s does not have a service port 70000".into())),
            ("abc", Err("Service 's' does not have a named port 'abc'".into())),
            ("53", Err("UDP protocol is not supported for 53".into())),
        ];
        for (word, expected) in table {
            assert_eq!(read(word, Some(&service(&json!({})))), expected, "{word}");
        }
        let headless = service(&json!({"clusterIP": "None"}));
        assert_eq!(read("82", Some(&headless)), Ok((82, 82)), "a headless Service has no port of its own");
    }
}
