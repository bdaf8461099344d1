//! `kloop ps`: lists the processes of pods on this machine, from the records of their shims.
//!
//! Never: reads an object other than the pods that it shows, so that it is fast in a large cluster; or needs a control plane.
//! Start reading at [`run`].

use super::cluster::control_plane;
use super::{CliResult, CommandContext};
use crate::object::{Key, Resource, Time, time};
use crate::runtime::wire::{self, ContainerRecord, RecordedState, ShimRecord};
use crate::runtime::{folder, ports, usage};
use crate::show::columns::{TABLE, align};
use crate::show::escape;
use crate::world::ingress_routes::LOW_PORTS_MOVED_BY;
use crate::world::usage::UsageSample;
use serde_json::{Value, json};
use std::cell::LazyCell;
use std::net::Ipv4Addr;

/// List the processes of pods on this machine.
///
/// A line for each running container, in all namespaces: its main process, the ports at which the pod listens, CPU and memory of
/// all its processes, and since when it runs. CPU is the average since the start, in cores; "kloop top pod" measures the present
/// usage.
#[derive(clap::Args)]
#[command(
    override_usage = "",
    after_help = "\
# Which processes run here?
kloop ps

# Those of one namespace, for a program
kloop ps -n shop -o json"
)]
pub struct Args {
    /// Print the list as json.
    #[arg(short, long, value_name = "FORMAT", value_parser = ["json"])]
    output: Option<String>,
    /// When using the default output format, don't print headers.
    #[arg(long)]
    no_headers: bool,
}

/// A running container.
struct ProcessLine {
    namespace: String,
    pod: String,
    container: String,
    pid: i32,
    ports: Vec<u16>,
    /// Cores, on average since the start.
    cpu: f64,
    /// Bytes.
    memory: u64,
    since: Time,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let home = context.require_existing()?.store().home().to_owned();
    let wanted = context.globals.namespace.clone();
    let is_wanted = |record: &ShimRecord| wanted.as_ref().is_none_or(|wanted| record.pod.namespace == *wanted);
    // Reading the machine's sockets takes longer than all the rest.
    let listeners = LazyCell::new(ports::listeners);
    let now = Time::now();
    let mut lines = Vec::new();
    for record in folder::read_records(&home).filter(is_wanted) {
        let key = Key::new(Resource("pods"), &record.pod.namespace, &record.pod.name);
        let pod = context.read_view(|txn| txn.get(&key))?;
        let address = pod.as_ref().and_then(|pod| pod.text(&["status", "podIP"])?.parse().ok());
        let samples = usage::sample_pod(&home, &record.pod.uid);
        let mut listening = address.map(|address| ports_at(&listeners, address)).unwrap_or_default();
        for (name, container) in &record.containers {
            let declared = pod.as_ref().map(|pod| declared_ports(&pod.0, name)).unwrap_or_default();
            let sample = samples.get(name).copied().unwrap_or_default();
            let Some(line) = read_line(&record, name, container, sample, now) else { continue };
            // A port that no container names is shown at the first one.
            let own = listening.iter().copied().filter(|port| {
                declared.contains(port) || !is_declared_elsewhere(pod.as_ref().map(|pod| &pod.0), name, *port)
            });
            let own: Vec<u16> = own.collect();
            listening.retain(|port| !own.contains(port));
            lines.push(ProcessLine { ports: own, ..line });
        }
    }
    lines.sort_by(|one, other| {
        (&one.namespace, &one.pod, &one.container).cmp(&(&other.namespace, &other.pod, &other.container))
    });
    if args.output.is_some() {
        let items: Vec<Value> = lines.iter().map(line_value).collect();
        return context.print_line(&serde_json::to_string_pretty(&items).unwrap_or_default());
    }
    if lines.is_empty() {
        context.print_notice("No processes run here.");
        return control_plane::print_remedy(context);
    }
    context.print(&format_table(&lines, args.no_headers, wanted.is_none(), now))
}

/// Returns the line of a running container.
fn read_line(
    record: &ShimRecord,
    name: &str,
    container: &ContainerRecord,
    sample: UsageSample,
    now: Time,
) -> Option<ProcessLine> {
    let RecordedState::Running { process, since } = &container.state else { return None };
    if !process.lives() {
        return None;
    }
    let since = wire::moment(*since);
    let seconds = now.duration_since(since).as_secs_f64().max(0.001);
    Some(ProcessLine {
        namespace: record.pod.namespace.clone(),
        pod: record.pod.name.clone(),
        container: name.to_owned(),
        pid: process.pid,
        ports: Vec::new(),
        cpu: sample.cpu_nanos as f64 / 1e9 / seconds,
        memory: sample.memory,
        since,
    })
}

/// Returns the ports at which a pod listens, as its programs asked for them.
fn ports_at(listeners: &[(Ipv4Addr, u16)], address: Ipv4Addr) -> Vec<u16> {
    let own = listeners.iter().filter(|(ip, _)| *ip == address && ip.is_loopback());
    let mut ports: Vec<u16> = own.map(|(_, port)| port.checked_sub(LOW_PORTS_MOVED_BY).unwrap_or(*port)).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// Returns the ports that a container names in its spec.
fn declared_ports(pod: &Value, container: &str) -> Vec<u16> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let own = containers.filter(|own| own["name"] == container);
    let ports = own.flat_map(|own| own["ports"].as_array().into_iter().flatten());
    ports.filter_map(|port| u16::try_from(port["containerPort"].as_u64()?).ok()).collect()
}

/// Whether another container of the pod names the port.
fn is_declared_elsewhere(pod: Option<&Value>, container: &str, port: u16) -> bool {
    let Some(pod) = pod else { return false };
    let names = pod["spec"]["containers"].as_array().into_iter().flatten().filter_map(|other| other["name"].as_str());
    names.filter(|name| *name != container).any(|name| declared_ports(pod, name).contains(&port))
}

fn format_table(lines: &[ProcessLine], no_headers: bool, with_namespace: bool, now: Time) -> String {
    let mut text = String::new();
    let mut push = |namespace: &str, rest: [&str; 7]| {
        let cells = Some(namespace).filter(|_| with_namespace).into_iter().chain(rest);
        text.push_str(&cells.map(escape::cell).collect::<Vec<_>>().join("\t"));
        text.push('\n');
    };
    if !no_headers {
        push("NAMESPACE", ["POD", "CONTAINER", "PID", "PORTS", "CPU", "MEMORY", "SINCE"]);
    }
    for line in lines {
        let ports: Vec<String> = line.ports.iter().map(u16::to_string).collect();
        let ports = if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") };
        let age = time::age(now.duration_since(line.since).as_secs().max(0));
        let cpu = format!("{}m", (line.cpu * 1000.0).round());
        let memory = format!("{}Mi", line.memory.div_ceil(1 << 20));
        push(&line.namespace, [&line.pod, &line.container, &line.pid.to_string(), &ports, &cpu, &memory, &age]);
    }
    align(&text, TABLE)
}

fn line_value(line: &ProcessLine) -> Value {
    json!({
        "namespace": line.namespace, "pod": line.pod, "container": line.container, "pid": line.pid, "ports": line.ports,
        "cpuCores": (line.cpu * 1000.0).round() / 1000.0, "memoryBytes": line.memory, "since": time::rfc3339(line.since),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_those_that_the_program_asked_for() {
        let pod = Ipv4Addr::new(127, 9, 1, 1);
        let listeners =
            [(pod, 8080), (pod, 61_520), (Ipv4Addr::LOCALHOST, 22), (pod, 8080), (Ipv4Addr::UNSPECIFIED, 25)];
        assert_eq!(ports_at(&listeners, pod), [80, 8080]);
    }

    #[test]
    fn port_belongs_to_the_container_that_names_it() {
        let pod = json!({"spec": {"containers": [
            {"name": "web", "ports": [{"containerPort": 80}]}, {"name": "log"}]}});
        assert!(is_declared_elsewhere(Some(&pod), "log", 80));
        assert!(!is_declared_elsewhere(Some(&pod), "web", 80));
        assert!(!is_declared_elsewhere(Some(&pod), "log", 81));
    }

    #[test]
    fn table_has_a_line_for_each_process() {
        let since = Time::UNIX_EPOCH;
        let line = ProcessLine {
            namespace: "shop".into(),
            pod: "web-1".into(),
            container: "web".into(),
            pid: 7,
            ports: vec![80, 443],
            cpu: 0.0314,
            memory: 3 << 20,
            since,
        };
        let now = since + jiff::SignedDuration::from_secs(90);
        let expected = "POD     CONTAINER   PID   PORTS    CPU   MEMORY   SINCE\nweb-1   web         7     80,443   31m   3Mi      90s\n";
        assert_eq!(format_table(&[line], false, false, now), expected);
    }
}
