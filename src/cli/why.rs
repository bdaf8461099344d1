//! `kloop why`: explains why objects have not converged, with a remedy.

mod causes;

use super::cluster::targets::{self, Scope, TargetFlags};
use super::command_line::flags::PrintFlags;
use super::command_line::globals;
use super::{CliResult, CommandContext, Failure};
use crate::apiserver::read;
use crate::apiserver::rules::names::key_of;
use crate::diagnosis::why::{
    CauseChain, CauseLink, ContainerExit, ControlPlaneState, ConvergenceState, CpuLimitedContainer, LastActivity,
    StoppedProcess, UnavailablePort, UnreportedExit, explain, explain_unconverged, unavailable_ports,
};
use crate::object::{Key, Resource, Str, Time, time};
use crate::reconcile::node::{RUNTIME, SIMULATED};
use crate::reconcile::{leader, store_tail};
use crate::runtime::ports::{self, PortHolder};
use crate::runtime::process::{self, ProcessIdentity};
use crate::runtime::{GATEWAY, folder, has_gateway, logs, usage, wire};
use crate::show::escape;
use crate::store::meta_keys::{HEARD, LEFT_OUT, NETWORK};
use crate::store::{OpenError, Store};
use crate::world::usage::Throttling;
use crate::world::{Phase, Row, World};
use colored::Colorize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// Explain why an object has not converged: where it is stuck, which loop is responsible, and what to do next.
///
/// Prints a line for each object from the owners to the containers: the desired and the observed state, errors, the time of the next
/// attempt, and the responsible loop. The line that the others wait for is marked with ">". For a pod without a node, every node is
/// listed with the plugin that refused it, or its scores. Works without a running control plane. Without arguments: one line
/// for each cause that keeps something from converging, or every chain with -v.
///
/// Exit codes: 0 converged, 1 stuck, 2 converging.
#[derive(clap::Args)]
#[command(
    override_usage = "[-f FILENAME | TYPE [NAME | -l label] | TYPE/NAME ...]",
    after_help = "\
# What has not converged, and why?
kloop why

# The same with every chain
kloop why -v

# Why is the deployment web not available?
kloop why deployment/web

# Which nodes refuse a pod, and why?
kloop why pod/web-0

# The same for a program
kloop why deployment/web -o json"
)]
pub struct Args {
    #[command(flatten)]
    which: TargetFlags,
    /// If present, explain the requested object(s) across all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Without a name: print every chain instead of one line for each cause.
    #[arg(short, long = "verbose", alias = "v", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "SWITCH")]
    v: Option<String>,
    #[command(flatten)]
    print: PrintFlags,
}

/// Time over which throttling is measured: ten of the kernel's periods.
const THROTTLING_WINDOW: Duration = Duration::from_secs(1);

/// A control plane writes a heartbeat every ten seconds. After this time without one it counts as
/// failed, like a node's lease.
const HEARTBEAT_TIMEOUT: jiff::SignedDuration = jiff::SignedDuration::from_secs(40);

/// Number of log lines shown.
const LOG_LINES: usize = 3;

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let is_overview = args.which.is_empty();
    let (keys, failures) = if is_overview { (None, Vec::new()) } else { named_keys(&args, context)? };
    let namespace = Some(context.namespace().to_owned()).filter(|_| !args.all_namespaces);
    if let Some(name) = namespace.as_ref().filter(|_| is_overview && context.globals.namespace.is_some()) {
        // Check a namespace given by flag: a mistyped one would otherwise count as converged.
        let key = Key::new(Resource("namespaces"), "", name);
        context.read_view(|txn| read::exact(txn, &key))?;
    }
    context.copy_server_objects()?;
    let is_remote = context.client().is_some();
    let answers = match context.existing()? {
        Some(api) if is_remote => explain_copy(api.store(), keys.as_deref(), namespace.as_deref())?,
        Some(api) => explain_objects(api.store(), keys.as_deref(), namespace.as_deref())?,
        None if is_overview => return Err(OpenError::Absent { path: context.state() }.into()),
        None => Answers::default(),
    };
    print_answers(&args, context, &answers, namespace.as_deref())?;
    Failure::from_failures(failures)?;
    match answers.chains.iter().map(CauseChain::state).max().unwrap_or_default() {
        ConvergenceState::Converged => Ok(()),
        ConvergenceState::Stuck => Err(Failure::Code(1)),
        ConvergenceState::Converging => Err(Failure::Code(2)),
    }
}

/// The explanations of objects.
#[derive(Default)]
struct Answers {
    chains: Vec<CauseChain>,
    /// Without named objects: ports that do not lead to objects that have converged. The exit code ignores them.
    ports: Vec<UnavailablePort>,
}

impl Answers {
    /// Explains the objects with these keys; without keys, all of a namespace or of the cluster that have not converged.
    fn new(world: &mut World, keys: Option<&[Key]>, namespace: Option<&str>, plane: &ControlPlaneState) -> Answers {
        let Some(keys) = keys else {
            return Answers {
                chains: explain_unconverged(world, namespace, plane),
                ports: unavailable_ports(world, namespace),
            };
        };
        let chains = keys.iter().filter_map(|key| explain(world, key, plane)).collect();
        Answers { chains, ports: Vec::new() }
    }
}

/// Returns the keys of the objects that the arguments name, and failures to find others.
fn named_keys(args: &Args, context: &mut CommandContext) -> CliResult<(Option<Vec<Key>>, Vec<Failure>)> {
    let scope = Scope { all_namespaces: args.all_namespaces, ..args.which.scope() };
    let (found, failures) = targets::find(context, &scope)?;
    Ok((Some(found.iter().map(|target| key_of(target.kind, &target.object)).collect()), failures))
}

fn explain_objects(store: &Store, keys: Option<&[Key]>, namespace: Option<&str>) -> CliResult<Answers> {
    let (mut world, plane) = load_world(store)?;
    let mut answers = Answers::new(&mut world, keys, namespace, &plane);
    let add = |chain| with_ports(with_throttling(with_logs(chain, store), store), store);
    answers.chains = answers.chains.into_iter().map(add).collect();
    Ok(answers)
}

/// Like [`explain_objects`], for the copy of a server's objects: without the state of its machines, only with the objects.
fn explain_copy(store: &Store, keys: Option<&[Key]>, namespace: Option<&str>) -> CliResult<Answers> {
    let mut world = World::new(Time::now());
    let snapshot = store.read().map_err(anyhow::Error::from)?;
    store_tail::load(&snapshot, &mut world).map_err(anyhow::Error::from)?;
    let hides_nodes = world.count_of("nodes") == 0;
    let plane = ControlPlaneState { runs: true, hides_nodes, ..ControlPlaneState::default() };
    Ok(Answers::new(&mut world, keys, namespace, &plane))
}

fn print_answers(args: &Args, context: &mut CommandContext, answers: &Answers, namespace: Option<&str>) -> CliResult {
    let is_overview = args.which.is_empty();
    if let Some(mut printer) = args.print.answer_printer()? {
        let values: Vec<Value> = answers.chains.iter().map(|answer| answer_value(answer, Time::now())).collect();
        let text = match &values[..] {
            [value] if !is_overview => printer.object(value)?,
            _ => printer.list(values)?,
        };
        return context.print(&text);
    }
    if is_overview && answers.chains.is_empty() {
        let place = namespace.map(|name| format!(" in namespace {name}")).unwrap_or_default();
        context.print(&format!("everything{place} has converged\n"))?;
        return context.print_styled(&causes::port_lines(&answers.ports));
    }
    if is_overview && !globals::is_verbose(args.v.as_deref()) {
        context.print_styled(&causes::lines(&answers.chains))?;
        context.print_styled(&causes::port_lines(&answers.ports))?;
        context.print_notice("hint: kloop why -v shows every chain");
        return Ok(());
    }
    let texts: Vec<String> = answers.chains.iter().map(|answer| page(answer, Time::now())).collect();
    context.print_styled(&texts.join("\n"))?;
    context.print_styled(&causes::port_lines(&answers.ports))
}

/// Explains one object for another verb, with the last lines of logs and the holders of ports; `None` when it does not exist.
pub fn explain_object(store: &Store, key: &Key) -> CliResult<Option<CauseChain>> {
    let (mut world, plane) = load_world(store)?;
    Ok(explain(&mut world, key, &plane).map(|answer| with_ports(with_logs(answer, store), store)))
}

/// Loads the state, and whether a control plane runs.
fn load_world(store: &Store) -> CliResult<(World, ControlPlaneState)> {
    let now = Time::now();
    let mut world = World::new(now);
    let snapshot = store.read().map_err(anyhow::Error::from)?;
    store_tail::load(&snapshot, &mut world).map_err(anyhow::Error::from)?;
    let meta = |name: &str| crate::store::StoreRead::meta(&snapshot, name).map_err(anyhow::Error::from);
    world.settings.network = meta(NETWORK)?.and_then(|text| text.parse().ok()).unwrap_or(world.settings.network);
    let heard: Option<Time> = meta(HEARD)?.and_then(|text| text.parse().ok());
    let leader = leader::read_leader(store.home());
    let runs = leader.is_some();
    let stopped = leader.and_then(|pid| i32::try_from(pid).ok()).filter(|pid| process::awaits_continue(*pid));
    let disabled_controllers = meta(LEFT_OUT)?.unwrap_or_default();
    let disabled_controllers =
        disabled_controllers.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let is_silent = runs && heard.is_some_and(|heard| now.duration_since(heard) > HEARTBEAT_TIMEOUT);
    let lost = if runs && !is_silent && stopped.is_none() { HashMap::new() } else { unreported_exits(&world, store) };
    let halted = stopped_pods(&world, store);
    let is_closed = world.list("ingresses.networking.k8s.io").next().is_some() && !has_gateway(store.home());
    let plane = ControlPlaneState {
        runs,
        is_silent,
        stopped,
        disabled_controllers,
        heard,
        lost,
        halted,
        is_closed,
        is_preview: false,
        hides_nodes: false,
    };
    Ok((world, plane))
}

/// Returns the pods with a process on this machine that a signal such as SIGSTOP has stopped.
fn stopped_pods(world: &World, store: &Store) -> HashMap<Str, StoppedProcess> {
    let find_stopped = |row: &Arc<Row>| {
        row.pod().filter(|pod| pod.node.is_some() && !pod.phase.is_terminal())?;
        let record = folder::read_record(&folder::pod_path(store.home(), row.body().local_uid()))?;
        let record = Some(record).filter(|record| record.boot == process::boot_id())?;
        let is_stopped = |process: &ProcessIdentity| process::awaits_continue(process.pid) && process.lives();
        if let Some(shim) = record.shim.filter(is_stopped) {
            return Some((row.uid.clone(), StoppedProcess::Shim(shim.pid)));
        }
        let processes = record.containers.iter().filter_map(|(name, known)| Some((name, known.process()?)));
        let stopped = processes.filter(|(_, process)| is_stopped(process));
        let stopped: BTreeMap<Str, i32> = stopped.map(|(name, process)| (name.as_str().into(), process.pid)).collect();
        (!stopped.is_empty()).then(|| (row.uid.clone(), StoppedProcess::Containers(stopped)))
    };
    world.list("pods").filter_map(find_stopped).collect()
}

/// Returns the pods on this machine with status Running whose shim has ended, or has recorded exits
/// of containers.
fn unreported_exits(world: &World, store: &Store) -> HashMap<Str, UnreportedExit> {
    let is_simulated = |node: &str| {
        let node = world.find("nodes", "", node).map(|node| node.object());
        node.is_some_and(|node| node.annotation(RUNTIME) == Some(SIMULATED))
    };
    let simulated: HashSet<&str> =
        world.list("nodes").map(|node| &*node.key.name).filter(|name| is_simulated(name)).collect();
    let has_status_running = |row: &&Arc<Row>| {
        let node = row.pod().filter(|pod| pod.phase == Phase::Running).and_then(|pod| pod.node.as_deref());
        node.is_some_and(|node| !simulated.contains(node))
    };
    let find_unreported = |row: &Arc<Row>| {
        let (pod, folder) = (row.body(), folder::pod_path(store.home(), row.body().local_uid()));
        let running = pod.container_statuses().filter(|status| status["state"]["running"].is_object());
        let running: HashSet<&str> = running.filter_map(|status| status["name"].as_str()).collect();
        if running.is_empty() {
            return None;
        }
        if folder::holder(&folder).is_none() {
            return Some((row.uid.clone(), UnreportedExit::All));
        }
        let containers = folder::read_record(&folder)?.containers;
        let ended = containers.iter().filter(|(name, _)| running.contains(&***name)).filter_map(|(name, known)| {
            let end = known.ended()?;
            Some((name.as_str().into(), ContainerExit { code: end.code, at: wire::moment(end.finished) }))
        });
        let ended: BTreeMap<Str, ContainerExit> = ended.collect();
        (!ended.is_empty()).then(|| (row.uid.clone(), UnreportedExit::Some(ended)))
    };
    world.list("pods").filter(has_status_running).filter_map(find_unreported).collect()
}

/// Adds a line for containers that their CPU limits throttle heavily. Measures this for
/// [`THROTTLING_WINDOW`].
fn with_throttling(mut answer: CauseChain, store: &Store) -> CauseChain {
    let measure = |limited: &CpuLimitedContainer| {
        let samples = usage::sample_pod(store.home(), &limited.pod_uid);
        samples.get(&limited.container).map(|sample| sample.throttling).unwrap_or_default()
    };
    let before: Vec<Option<Throttling>> = answer.links.iter().map(|link| link.limited.as_ref().map(measure)).collect();
    if before.iter().flatten().all(|before| before.throttled == 0) {
        return answer;
    }
    std::thread::sleep(THROTTLING_WINDOW);
    for (link, before) in answer.links.iter_mut().zip(before) {
        let Some((limited, before)) = link.limited.as_ref().zip(before) else { continue };
        let now = measure(limited).difference_from(before);
        if now.is_heavy() {
            let CpuLimitedContainer { cpu, container, .. } = limited;
            link.more.push(format!(
                "throttled: its CPU limit ({cpu}) held it back {now}, just now: {container} and its probes are slow; raise the limit",
            ));
        }
    }
    answer
}

/// Adds the holders of ports that containers cannot bind. A program that listens on all addresses
/// blocks its port for every pod; the containers of a pod block each other's. With hostNetwork,
/// node ports and all other programs count, too.
fn with_ports(mut answer: CauseChain, store: &Store) -> CauseChain {
    for link in &mut answer.links {
        let logged_port = link.more.iter().find_map(|line| in_use(line.strip_prefix("log: ")?));
        // If the log names no port, assume a number in the command that another program listens on.
        let guessed = if logged_port == Some(None) { &link.numbers[..] } else { &[] };
        let candidates = || logged_port.flatten().into_iter().chain(link.ports.iter().chain(guessed).copied());
        let node_port = link
            .node_ports
            .iter()
            .flatten()
            .find(|(port, _)| logged_port.is_some() && candidates().any(|candidate| candidate == *port));
        if let Some((port, service)) = node_port {
            let line = format!("port {port}: it is the node port of {service}, for which kloop listens at 127.0.0.1");
            link.next =
                Some(format!("use another port than {port} in the program, or give {service} another node port"));
            link.more.insert(0, line);
            continue;
        }
        // Most programs bind all addresses of the machine, so that any address counts.
        let is_relevant = |at| link.address == Some(at) || (logged_port.is_some() && link.node_ports.is_some());
        let find_holder = |port| ports::holder_where(port, is_relevant).map(|(at, holder)| (port, at, holder));
        if let Some((port, at, holder)) = candidates().find_map(find_holder) {
            let place =
                if at.is_unspecified() { "on every address of this machine".into() } else { format!("at {at}") };
            let (who, next) = match holder.program == GATEWAY {
                true => ("kloop, for a Service,".into(), format!("give the Service at {at} another port than {port}")),
                false => {
                    let who = format!("{holder}{}", container_of_program(&holder, store));
                    let next = format!("end {who}, or change the port of one of the two");
                    (who, next)
                }
            };
            link.more.insert(0, format!("port {port}: {who} listens there {place}"));
            link.next = Some(next);
        } else if let Some(port) = logged_port {
            link.next = Some(remedy_for_used_port(link, port));
        }
    }
    answer
}

/// Returns the container of a program in this cluster: ` of container app of pod default/web-1`.
fn container_of_program(holder: &PortHolder, store: &Store) -> String {
    match holder.pid.and_then(|pid| folder::owner(store.home(), pid)) {
        Some((pod, Some(container))) => format!(" of container {container} of pod {}/{}", pod.namespace, pod.name),
        Some((pod, None)) => format!(" in pod {}/{}", pod.namespace, pod.name),
        None => String::new(),
    }
}

/// Returns the remedy for a log that reports a used port, if no program listens on it now.
fn remedy_for_used_port(link: &CauseLink, port: Option<u16>) -> String {
    let port = port.map_or_else(|| "the port".to_owned(), |port| format!("port {port}"));
    let why = match &link.neighbours[..] {
        _ if link.node_ports.is_some() => {
            "a pod with hostNetwork uses the machine's ports (ss -ltnup lists them)".to_owned()
        }
        [] => {
            "no other process listens on it now; the program itself may bind it twice (a port can be bound once in a pod)"
                .into()
        }
        others => format!("the containers of a pod share one address (check the ports of {})", others.join(" and ")),
    };
    format!("use another port in the program: its log says that {port} is in use, and {why}")
}

/// Whether a log line reports a used port, and which: the last number that can be one. 48 and 98
/// are excluded, because they are error numbers.
fn in_use(line: &str) -> Option<Option<u16>> {
    let lower = line.to_lowercase();
    let words = ["address already in use", "eaddrinuse", "port is already in use", "port already in use"];
    if !words.iter().any(|word| lower.contains(word)) {
        return None;
    }
    let mut numbers =
        lower.split(|letter: char| !letter.is_ascii_digit()).filter_map(|number| number.parse::<u16>().ok());
    Some(numbers.rfind(|port| ![0, 48, 98].contains(port)))
}

/// Adds the last log lines to the links that name a container's log.
fn with_logs(mut answer: CauseChain, store: &Store) -> CauseChain {
    for link in &mut answer.links {
        let Some((uid, container)) = &link.log else { continue };
        let read_log = |previous: bool| {
            let options = logs::LogOptions { tail: Some(LOG_LINES), previous, ..logs::LogOptions::default() };
            let pieces = logs::open(store.home(), uid, container, options).ok()?;
            let text: Vec<u8> = pieces.map_while(Result::ok).flatten().collect();
            Some(String::from_utf8_lossy(&text).into_owned()).filter(|text| !text.trim().is_empty())
        };
        let text = read_log(false).or_else(|| read_log(true)).unwrap_or_default();
        link.more.extend(text.lines().map(|line| format!("log: {line}")));
    }
    answer
}

/// Formats a convergence state in its colour, padded to the longest word.
fn coloured(state: ConvergenceState) -> String {
    let word = format!("{:10}", state.word());
    match state {
        ConvergenceState::Converged => word.green().to_string(),
        ConvergenceState::Converging => word.yellow().to_string(),
        ConvergenceState::Stuck => word.red().to_string(),
    }
}

/// Formats a chain: a line for each link, then the next step. Control sequences are escaped.
pub fn page(answer: &CauseChain, now: Time) -> String {
    let width = answer.links.iter().map(|link| link.what.len()).max().unwrap_or(0);
    let cause = answer.root_cause();
    let is_cause = |link: &CauseLink| cause.is_some_and(|cause| std::ptr::eq(cause, link));
    let mut text = String::new();
    for link in &answer.links {
        text.push_str(&format_link(link, is_cause(link), width, now));
    }
    text + &format_next(answer)
}

/// Formats the link at which a chain is stuck, and the next step, for an output that names the object already. `None` when it
/// is not stuck.
pub fn root_cause_lines(answer: &CauseChain, now: Time) -> Option<String> {
    let cause = answer.root_cause()?;
    Some(format_link(cause, true, 0, now) + &format_next(answer))
}

fn format_link(link: &CauseLink, is_cause: bool, width: usize, now: Time) -> String {
    let mark = if is_cause { ">" } else { " " };
    let text_of_link = escape::text(&format!("{:width$}  {}", link.what, sentence(link, now)));
    let mut text = format!("{mark} {} {text_of_link}\n", coloured(link.state));
    // Do not repeat a message that the line already contains.
    let is_new = |activity: &&LastActivity| link.error.as_deref() != Some(&*activity.message);
    let last = link.last.as_ref().filter(is_new).map(|activity| last(activity, now));
    last.iter().chain(&link.more).for_each(|line| text.push_str(&format!("{:14}{}\n", "", escape::text(line))));
    text
}

fn format_next(answer: &CauseChain) -> String {
    format!("{}\n", format!("next: {}", escape::text(&answer.next())).bold())
}

/// Formats the last activity: `last: ScalingReplicaSet 9s ago: Scaled up replica set web-1 from 0 to 2`.
fn last(activity: &LastActivity, now: Time) -> String {
    let ago = time::age(now.duration_since(activity.at).as_secs().max(0));
    let message = activity.message.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    format!("last: {} {ago} ago: {}", activity.reason, one_line(message))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Formats the observed and the desired state in one line.
fn sentence(link: &CauseLink, now: Time) -> String {
    let mut text = link.seen.clone();
    if link.state != ConvergenceState::Converged {
        text.push_str(&format!("; wanted: {}", link.wanted));
    }
    if let Some(error) = &link.error {
        text.push_str(&format!("; {}", one_line(error)));
    }
    if let Some(wake) = link.wake.filter(|wake| *wake > now && link.state != ConvergenceState::Converged) {
        let seconds = wake.duration_since(now).as_secs().max(1);
        text.push_str(&format!("; next attempt in {}", time::age(seconds)));
    }
    format!("{} [{}]", one_line(&text), link.by)
}

/// Returns a chain for `--output`.
pub fn answer_value(answer: &CauseChain, now: Time) -> Value {
    let link = |link: &CauseLink| {
        let last = link.last.as_ref();
        let last =
            last.map(|activity| json!({"reason": activity.reason, "message": activity.message, "at": time::rfc3339(activity.at)}));
        json!({
            "what": link.what, "state": link.state.word(), "wanted": link.wanted, "seen": link.seen, "loop": link.by,
            "error": link.error, "wake": link.wake.filter(|wake| *wake > now).map(time::rfc3339), "next": link.next, "more": link.more,
            "last": last,
        })
    };
    json!({
        "about": answer.about, "state": answer.state().word(), "cause": answer.root_cause().map(|link| &link.what),
        "next": answer.next(), "links": answer.links.iter().map(link).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_cases::{self, words};

    #[test]
    fn answers_are_those_of_the_cases() {
        test_cases::check("why", |case| {
            let mut world = test_cases::world(case);
            let plane = plane(case);
            let about: Vec<Key> = words(case, "about").map(test_cases::key).collect();
            if about.is_empty() {
                return causes::lines(&explain_unconverged(&mut world, Some("default"), &plane));
            }
            let answers =
                about.iter().map(|key| explain(&mut world, key, &plane).expect("the case contains the object"));
            answers.map(|answer| page(&answer, test_cases::now())).collect::<Vec<_>>().join("\n")
        });
    }

    /// Parses the control plane's state: `control plane: none`, or a map of the fields that differ
    /// from a running one.
    fn plane(case: &Value) -> ControlPlaneState {
        let about = &case["control plane"];
        let time = |value: &Value| value.as_str().map(|text| text.parse().expect("case: not a time"));
        let is = |field: &str| about[field] == true;
        let stopped = |pids: &Value| match pids.as_i64() {
            Some(pid) => StoppedProcess::Shim(pid as i32),
            None => StoppedProcess::Containers(
                map(pids, |pid| pid.as_i64().expect("case: not a process ID") as i32).collect(),
            ),
        };
        let exit = |end: &Value| ContainerExit {
            code: end["code"].as_i64().expect("case: not an exit code") as i32,
            at: time(&end["at"]).unwrap(),
        };
        let ended = |ends: &Value| match ends.as_str() {
            Some("all") => UnreportedExit::All,
            _ => UnreportedExit::Some(map(ends, exit).collect()),
        };
        ControlPlaneState {
            runs: about != "none" && about["runs"] != false,
            is_silent: is("silent"),
            stopped: about["stopped"].as_i64().map(|pid| pid as i32),
            disabled_controllers: words(case, "left out").map(str::to_owned).collect(),
            heard: time(&about["heard"]),
            lost: map(&about["ended"], ended).collect(),
            halted: map(&about["halted"], stopped).collect(),
            is_closed: is("closed"),
            is_preview: is("preview"),
            hides_nodes: is("hides nodes"),
        }
    }

    /// Converts the entries of a map.
    fn map<T>(value: &Value, read: impl Fn(&Value) -> T) -> impl Iterator<Item = (Str, T)> {
        value.as_object().into_iter().flatten().map(move |(name, value)| (name.as_str().into(), read(value)))
    }

    #[test]
    fn last_activity_is_one_line() {
        let at = "2026-01-01T00:00:00Z".parse().unwrap();
        let activity = LastActivity { reason: "Failed".into(), message: "\nso  it is:\nlong\nlist".into(), at };
        assert_eq!(last(&activity, at), "last: Failed 0s ago: so it is:");
    }

    #[test]
    fn used_port_is_found_in_a_log_line() {
        for (line, expected) in [
            ("listen tcp :8080: bind: address already in use", Some(Some(8080))),
            ("Error: listen EADDRINUSE: address already in use :::3000", Some(Some(3000))),
            ("OSError: [Errno 98] Address already in use", Some(None)),
            ("nginx: [emerg] bind() to 0.0.0.0:80 failed (98: Address already in use)", Some(Some(80))),
            ("listening on :8080", None),
        ] {
            assert_eq!(in_use(line), expected, "{line}");
        }
    }
}
