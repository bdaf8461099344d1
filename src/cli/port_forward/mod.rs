//! `kloop port-forward`: forwards ports of this machine to a pod. This needs no control plane.

mod ports;
mod server;

use super::cluster::one_pod::{self, RestartRank};
use super::cluster::targets;
use super::{CliResult, CommandContext, Failure};
use crate::apiserver::Api;
use crate::apiserver::read::{self, ListSelection};
use crate::kinds::{self, Kind};
use crate::object::{Key, Object, Reason, Resource, Status, io_error_text, time};
use crate::runtime::relay;
use crate::runtime::signal_socket;
use jiff::SignedDuration;
use ports::{PortPair, TargetPorts};
use serde_json::json;
use signal_hook::consts::SIGINT;
use std::future::ready;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::timeout;

/// Interval at which the forwarded object is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

const PODS: Resource = Resource("pods");

/// Forward one or more local ports to a pod.
///
/// Use resource type/name such as deployment/mydeployment to select a pod. Resource type defaults to 'pod' if omitted.
///
/// If there are multiple pods matching the criteria, a pod will be selected automatically. Each
/// connection is forwarded to the best pod at that time. The forwarding session outlives restarts of
/// containers. It ends when a pod that was named is gone; for other types it continues with another
/// pod.
#[derive(clap::Args)]
#[command(
    override_usage = "TYPE/NAME [LOCAL_PORT:]REMOTE_PORT [...[LOCAL_PORT_N:]REMOTE_PORT_N]",
    after_help = "\
# Listen on ports 5000 and 6000 locally, forwarding data to/from ports 5000 and 6000 in the pod
kloop port-forward pod/mypod 5000 6000

# Listen on port 5000 locally, forwarding data to/from ports 5000 and 6000 in a pod selected by the deployment
kloop port-forward deployment/mydeployment 5000 6000

# Listen on port 8443 locally, forwarding to the targetPort of the service's port named \"https\" in a pod selected by the service
kloop port-forward service/myservice 8443:https

# Listen on port 8888 locally, forwarding to 5000 in the pod
kloop port-forward pod/mypod 8888:5000

# Listen on port 8888 on all addresses, forwarding to 5000 in the pod
kloop port-forward --address 0.0.0.0 pod/mypod 8888:5000

# Listen on a random port locally, forwarding to 5000 in the pod
kloop port-forward pod/mypod :5000"
)]
pub struct Args {
    /// TYPE/NAME, then ports.
    words: Vec<String>,
    /// Addresses to listen on (comma separated). Only accepts IP addresses or localhost as a value.
    #[arg(long, value_delimiter = ',', default_value = "localhost", value_name = "ADDRESSES")]
    address: Vec<String>,
    /// The length of time (like 5s, 2m, or 3h, higher than zero) to wait until at least one pod is running.
    #[arg(long, default_value = "1m0s", value_name = "DURATION", value_parser = time::parse_duration)]
    pod_running_timeout: SignedDuration,
}

/// The forwarded object.
struct Target {
    api: Api,
    kind: &'static Kind,
    key: Key,
    /// Distinguishes the object from a later one of the same name.
    uid: String,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let (name, words) = match &args.words[..] {
        [] | [_] => {
            let text = "TYPE/NAME and list of ports are required for port-forward";
            return Err(Failure::Usage("port-forward".into(), text.into()));
        }
        [name, words @ ..] => (name, words),
    };
    let pod = one_pod::find(name, args.pod_running_timeout, context)?;
    let target = Target::find(name, context)?;
    let requested = target.parse_ports(words, &pod)?;
    let phase = pod.text(&["status", "phase"]).unwrap_or_default();
    if phase != "Running" {
        let text = format!("unable to forward port because pod is not running. Current status={phase}");
        return Err(Failure::WithoutProcess(text));
    }
    let options = json!({"kind": "PodPortForwardOptions", "apiVersion": "v1"});
    one_pod::admit_connection(context, &pod, "portforward", options)?;
    let addresses = addresses(&args.address)?;
    let pairs = requested.iter().map(|(word, numbers)| Ok((word.clone(), ports::pair(numbers)?)));
    let pairs = pairs.collect::<CliResult<Vec<_>>>()?;
    let plain = |error: io::Error| Failure::plain(io_error_text(error));
    let interrupt = signal_socket::readable_on(&[SIGINT]).map_err(plain)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(plain)?;
    LocalSet::new().block_on(&runtime, forward(Rc::new(target), pairs, addresses, interrupt))
}

/// Local address to listen on. For `localhost`, one of its two addresses is enough.
struct LocalAddress {
    at: IpAddr,
    is_one_of_two: bool,
}

fn addresses(words: &[String]) -> CliResult<Vec<LocalAddress>> {
    let mut places: Vec<LocalAddress> = Vec::new();
    for word in words {
        let found = match word.as_str() {
            "localhost" => vec![IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)],
            word => vec![word.parse().map_err(|_| Failure::plain(format!("{word} is not a valid IP")))?],
        };
        let is_one_of_two = found.len() > 1;
        // Skip duplicates, because the second listener would fail.
        for at in found {
            match places.iter_mut().find(|known| known.at == at) {
                Some(known) => known.is_one_of_two |= is_one_of_two,
                None => places.push(LocalAddress { at, is_one_of_two }),
            }
        }
    }
    places.sort_by_key(|address_of| address_of.at.to_string());
    Ok(places)
}

async fn forward(
    target: Rc<Target>,
    pairs: Vec<(String, PortPair)>,
    places: Vec<LocalAddress>,
    interrupt: UnixStream,
) -> CliResult {
    let mut open = Vec::new();
    for (word, pair) in &pairs {
        match listen(pair, &places).await {
            Ok(listeners) => {
                let serve = |(here, listener)| serve(&target, word, pair.remote, here, listener);
                open.extend(listeners.into_iter().map(serve));
            }
            Err(why) => drop(writeln!(io::stderr(), "Unable to listen on port {}: {why}", pair.local)),
        }
    }
    if open.is_empty() {
        let all: Vec<String> = pairs.iter().map(|(_, pair)| format!("{{{} {}}}", pair.local, pair.remote)).collect();
        return Err(Failure::plain(format!("unable to listen on any of the requested ports: [{}]", all.join(" "))));
    }
    let interrupt =
        tokio::net::UnixStream::from_std(interrupt).map_err(|error| Failure::plain(io_error_text(error)))?;
    let outcome = target.wait_until_lost(&interrupt).await;
    open.iter().for_each(JoinHandle::abort);
    outcome
}

/// Listens on a port at all addresses. Errors have kubectl's words.
async fn listen(requested: &PortPair, places: &[LocalAddress]) -> Result<Vec<(SocketAddr, TcpListener)>, String> {
    let (mut open, mut errors, mut is_vital) = (Vec::new(), Vec::new(), false);
    // Whether `localhost` was requested, and whether one of its addresses could be opened.
    let (mut of_two, mut one_of_two) = (false, false);
    let mut port = requested.local;
    for address_of in places {
        let wanted = SocketAddr::new(address_of.at, port);
        of_two |= address_of.is_one_of_two;
        match TcpListener::bind(wanted).await.and_then(|listener| Ok((listener.local_addr()?, listener))) {
            Ok((here, listener)) => {
                // All addresses use the port that the first one got.
                port = here.port();
                print_line(&format!("Forwarding from {here} -> {}", requested.remote));
                one_of_two |= address_of.is_one_of_two;
                open.push((here, listener));
            }
            Err(error) => {
                let family = if wanted.is_ipv4() { "tcp4" } else { "tcp6" };
                errors.push(format!(
                    "unable to create listener: Error listen {family} {wanted}: bind: {}",
                    io_error_text(error)
                ));
                is_vital |= !address_of.is_one_of_two;
            }
        }
    }
    if is_vital || of_two && !one_of_two {
        return Err(format!("Listeners failed to create with the following errors: [{}]", errors.join(" ")));
    }
    Ok(open)
}

fn serve(target: &Rc<Target>, word: &str, remote: u16, here: SocketAddr, listener: TcpListener) -> JoinHandle<()> {
    let (target, word) = (target.clone(), word.to_owned());
    if target.api.remote().is_some() {
        return spawn_local(server::serve(target, word, remote, here, listener));
    }
    let places = move |_| {
        print_line(&format!("Handling connection for {}", here.port()));
        ready(target.address_of(&word).into_iter().collect())
    };
    let failed = move |why: &str| {
        let _ = writeln!(io::stderr(), "an error occurred forwarding {} -> {remote}: {why}", here.port());
    };
    spawn_local(relay::serve(listener, places, failed))
}

/// Prints a line. Ignores errors, because connections continue without a reader of the output.
fn print_line(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Whether forwarding to the object with this uid has to end. An unreadable state does not count.
fn is_lost(found: &Result<Object, Status>, uid: &str) -> bool {
    match found {
        Ok(object) => {
            let has_ended = || matches!(object.text(&["status", "phase"]), Some("Succeeded" | "Failed"));
            object.uid() != uid || (object.kind() == "Pod" && has_ended())
        }
        Err(status) => status.reason == Reason::NotFound,
    }
}

impl Target {
    fn find(name: &str, context: &mut CommandContext) -> CliResult<Target> {
        let (kind, name) = one_pod::named(context.kinds(), name)?;
        let key = Key::new(kind.resource, context.namespace_of(kind), &name);
        let mut target = Target { api: context.take_api()?, kind, key, uid: String::new() };
        target.uid = target.read_required()?.uid().to_owned();
        Ok(target)
    }

    fn read_required(&self) -> CliResult<Object> {
        Ok(self.read_object()?)
    }

    /// Returns the pairs of ports: the remote one as written, and both as text with names replaced.
    fn parse_ports(&self, words: &[String], pod: &Object) -> CliResult<Vec<(String, (String, String))>> {
        let service = self.service()?;
        let ports = TargetPorts { service: service.as_ref(), pod };
        let words = words.iter().map(|word| ports::words(word)).collect::<CliResult<Vec<_>>>()?;
        words.iter().try_for_each(|words| ports.check_protocol(words.remote))?;
        words.iter().map(|words| Ok((words.remote.to_owned(), ports.numbers(words)?))).collect()
    }

    fn service(&self) -> CliResult<Option<Object>> {
        (self.kind.kind == "Service").then(|| self.read_required()).transpose()
    }

    /// Waits for Ctrl-C, which is not an error, or until the object is gone or is a pod that has ended.
    async fn wait_until_lost(&self, interrupt: &tokio::net::UnixStream) -> CliResult {
        while timeout(CHECK_INTERVAL, interrupt.readable()).await.is_err() {
            if is_lost(&self.read_object(), &self.uid) {
                return Err(Failure::plain("lost connection to pod"));
            }
        }
        Ok(())
    }

    fn read_object(&self) -> Result<Object, Status> {
        self.api.read_view(|txn| read::get(txn, &self.key))
    }

    /// Returns the best running pod of the object. Prefers pods that are not terminating.
    fn running(&self) -> CliResult<Option<Object>> {
        let read_required = self.read_required()?;
        let mut pods = match (kinds::by_resource(PODS), targets::selector_of(self.kind, &read_required)) {
            (Some(pods), labels @ Some(_)) => {
                let wanted = ListSelection { labels, fields: None };
                self.api.read_view(|txn| read::list(txn, pods, Some(&self.key.namespace), &wanted))?
            }
            _ => vec![read_required],
        };
        pods.retain(|pod| pod.text(&["status", "phase"]) == Some("Running"));
        let rank = |pod: &Object| (pod.deletion().is_some(), one_pod::rank(pod, RestartRank::Few));
        Ok(pods.into_iter().min_by_key(rank))
    }

    /// Returns the current address of the remote port.
    fn address_of(&self, word: &str) -> Option<SocketAddr> {
        let (service, pod) = (self.service().ok()?, self.running().ok()??);
        let port = TargetPorts { service: service.as_ref(), pod: &pod }.remote(word).ok()?.parse().ok()?;
        Some(SocketAddr::new(pod.text(&["status", "podIP"])?.parse().ok()?, port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn deleted_pod_is_lost_but_terminating_pod_is_not() {
        let pod = |uid: &str, phase: &str| {
            Ok(Object(
                json!({"kind": "Pod", "metadata": {"uid": uid, "deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": phase}}),
            ))
        };
        let refused = |reason: Reason| Err(Status::new(reason, "no"));
        let table = [
            (pod("u", "Running"), false),
            (pod("u", "Succeeded"), true),
            (pod("u", "Failed"), true),
            (pod("another", "Running"), true),
            (refused(Reason::NotFound), true),
            (refused(Reason::InternalError), false),
        ];
        for (found, wait_until_lost) in table {
            assert_eq!(is_lost(&found, "u"), wait_until_lost, "{found:?}");
        }
    }

    #[test]
    fn listen_addresses_are_parsed() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let found = addresses(&words).map_err(|failure| failure.to_string())?;
            Ok::<_, String>(found.iter().map(|address_of| address_of.at.to_string()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(read(&["localhost"]), Ok("127.0.0.1 ::1".into()));
        assert_eq!(read(&["localhost", "10.1.2.3", "127.0.0.1"]), Ok("10.1.2.3 127.0.0.1 ::1".into()));
        assert_eq!(read(&["here"]), Err("error: here is not a valid IP".into()));
    }
}
