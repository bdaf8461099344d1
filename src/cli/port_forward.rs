//! `kloop port-forward`: a port of a pod at a port of this machine; no control plane needs to run.

use super::patience::Patience;
use super::{Context, Failure, Outcome};
use super::{flags, targets};
use crate::apiserver::Api;
use crate::apiserver::read::{self, Wanted};
use crate::kinds::{self, Kind};
use crate::object::{Key, Object, Reason, Resource, Status, cause};
use crate::runtime::relay;
use serde_json::Value;
use std::future::ready;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, LocalSet, spawn_local};

/// So often it is looked whether there is still somebody to forward to.
const LOOK: Duration = Duration::from_millis(250);

const PODS: Resource = Resource("pods");

/// Forward one or more local ports to a pod.
///
/// Use resource type/name such as deployment/mydeployment to select a pod. Resource type defaults to 'pod' if omitted.
///
/// If there are multiple pods matching the criteria, a pod will be selected automatically. Each connection goes to the pod that is
/// there at that moment. The forwarding session outlives restarts of containers; it ends when the pod that was named is gone, and for
/// other types goes over to another pod.
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
    #[arg(long, default_value = "1m0s", value_name = "DURATION")]
    pod_running_timeout: String,
}

/// What is forwarded.
struct Target {
    api: Api,
    kind: &'static Kind,
    key: Key,
    /// Another object that takes the name is not what was meant.
    uid: String,
}

/// One pair of ports as it was written.
struct Pair {
    /// 0 for any; none for the remote one.
    local: Option<u16>,
    /// A number, or the name of a port.
    remote: String,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut Context) -> Outcome {
    let (name, ports) = match &args.words[..] {
        [] | [_] => {
            let text = "TYPE/NAME and list of ports are required for port-forward";
            return Err(Failure::Usage("port-forward".into(), text.into()));
        }
        [name, ports @ ..] => (name, ports),
    };
    let pairs: Vec<Pair> = ports.iter().map(|word| pair(word)).collect::<Outcome<_>>()?;
    let addresses = addresses(&args.address)?;
    let timeout = flags::duration("pod-running-timeout", &args.pod_running_timeout)?;
    let patience = Patience::new(context, Some(timeout.unwrap_or_default()))?;
    let target = Target::find(name, context)?;
    while target.running()?.is_none() {
        if !patience.wait() {
            return Err(Failure::plain("timed out waiting for the condition"));
        }
    }
    let plain = |error: std::io::Error| Failure::plain(cause(error));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(plain)?;
    LocalSet::new().block_on(&runtime, forward(Rc::new(target), pairs, addresses))
}

/// `5000`, `8888:5000`, `:5000`; the second may be a name.
fn pair(word: &str) -> Outcome<Pair> {
    let (local, remote) = word.split_once(':').map_or((None, word), |(local, remote)| (Some(local), remote));
    if remote.is_empty() || remote == "0" {
        return Err(Failure::plain("remote port must be > 0"));
    }
    let number = |text: &str| match text {
        "" => Ok(0),
        text => text.parse().map_err(|_| {
            let why = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
            Failure::plain(format!("error parsing local port '{text}': {why}"))
        }),
    };
    Ok(Pair { local: local.map(number).transpose()?, remote: remote.to_owned() })
}

/// Where to listen. Of `localhost`, which is two addresses, one is enough.
struct Place {
    at: IpAddr,
    is_one_of_two: bool,
}

fn addresses(words: &[String]) -> Outcome<Vec<Place>> {
    let mut places: Vec<Place> = Vec::new();
    for word in words {
        let found = match word.as_str() {
            "localhost" => vec![IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)],
            word => vec![word.parse().map_err(|_| Failure::plain(format!("{word} is not a valid IP")))?],
        };
        let is_one_of_two = found.len() > 1;
        // The same twice would be in its own way.
        for at in found {
            match places.iter_mut().find(|known| known.at == at) {
                Some(known) => known.is_one_of_two |= is_one_of_two,
                None => places.push(Place { at, is_one_of_two }),
            }
        }
    }
    Ok(places)
}

/// A port of this machine and the pod's port that it leads to.
struct Asked {
    local: u16,
    remote: u16,
    /// The remote one as it was written.
    word: String,
}

async fn forward(target: Rc<Target>, pairs: Vec<Pair>, places: Vec<Place>) -> Outcome {
    let asked = |pair: Pair| {
        let remote = target.remote(&pair.remote)?;
        Ok(Asked { local: pair.local.unwrap_or(remote), remote, word: pair.remote })
    };
    let asked: Vec<Asked> = pairs.into_iter().map(asked).collect::<Outcome<_>>()?;
    let mut open = Vec::new();
    for one in &asked {
        match listen(one, &places).await {
            Ok(listeners) => {
                open.extend(listeners.into_iter().map(|(here, listener)| serve(&target, one, here, listener)))
            }
            Err(why) => drop(writeln!(std::io::stderr(), "Unable to listen on port {}: {why}", one.local)),
        }
    }
    if open.is_empty() {
        let all: Vec<String> = asked.iter().map(|one| format!("{{{} {}}}", one.local, one.remote)).collect();
        return Err(Failure::plain(format!("unable to listen on any of the requested ports: [{}]", all.join(" "))));
    }
    target.lost().await;
    open.iter().for_each(JoinHandle::abort);
    Err(Failure::plain("lost connection to pod"))
}

/// Listens at a port of all places; what kubectl says when that cannot be.
async fn listen(asked: &Asked, places: &[Place]) -> Result<Vec<(SocketAddr, TcpListener)>, String> {
    let (mut open, mut errors, mut is_vital) = (Vec::new(), Vec::new(), false);
    let mut port = asked.local;
    for place in places {
        let wanted = SocketAddr::new(place.at, port);
        match TcpListener::bind(wanted).await.and_then(|listener| Ok((listener.local_addr()?, listener))) {
            Ok((here, listener)) => {
                // All of them get the port that the first one was given.
                port = here.port();
                say(&format!("Forwarding from {here} -> {}", asked.remote));
                open.push((here, listener));
            }
            Err(error) => {
                let family = if wanted.is_ipv4() { "tcp4" } else { "tcp6" };
                errors
                    .push(format!("unable to create listener: Error listen {family} {wanted}: bind: {}", cause(error)));
                is_vital |= !place.is_one_of_two;
            }
        }
    }
    if is_vital || open.is_empty() {
        return Err(format!("Listeners failed to create with the following errors: [{}]", errors.join(" ")));
    }
    Ok(open)
}

fn serve(target: &Rc<Target>, asked: &Asked, here: SocketAddr, listener: TcpListener) -> JoinHandle<()> {
    let (target, word, remote) = (target.clone(), asked.word.clone(), asked.remote);
    let places = move |_| {
        say(&format!("Handling connection for {}", here.port()));
        ready(target.place(&word).into_iter().collect())
    };
    let failed = move |why: &str| {
        let _ = writeln!(std::io::stderr(), "an error occurred forwarding {} -> {remote}: {why}", here.port());
    };
    spawn_local(relay::serve(listener, places, failed))
}

/// Whoever listened may be gone; the connections go on.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Whether nothing can be forwarded any more to the object with this uid. A state that cannot be read at the moment says nothing.
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
    fn find(name: &str, context: &mut Context) -> Outcome<Target> {
        let (kind, name) = match name.split_once('/') {
            Some((kind, name)) => (targets::kind(kind)?, name),
            None => (targets::kind("pods")?, name),
        };
        let key = Key::new(kind.resource, context.namespace_of(kind), name);
        let mut target = Target { api: context.take_api()?, kind, key, uid: String::new() };
        let named = target.named()?;
        target.uid = named.uid().to_owned();
        if kind.resource != PODS && targets::selector_of(kind, &named).is_none() {
            return Err(Failure::plain(format!("cannot attach to {}: it has no pods", kind.kind)));
        }
        Ok(target)
    }

    fn named(&self) -> Outcome<Object> {
        Ok(self.named_now()?)
    }

    /// Waits until what was named is gone, or is a pod that has ended.
    async fn lost(&self) {
        while !is_lost(&self.named_now(), &self.uid) {
            tokio::time::sleep(LOOK).await;
        }
    }

    fn named_now(&self) -> Result<Object, Status> {
        self.api.look(|ledger| read::get(ledger, &self.key))
    }

    /// A pod that runs and belongs to what was named: a ready one rather than another.
    fn running(&self) -> Outcome<Option<Object>> {
        let named = self.named()?;
        let mut pods = match (kinds::by_resource(PODS), targets::selector_of(self.kind, &named)) {
            (Some(pods), labels @ Some(_)) => {
                let wanted = Wanted { labels, fields: None };
                self.api.look(|ledger| read::list(ledger, pods, Some(&self.key.namespace), &wanted))?
            }
            _ => vec![named],
        };
        pods.retain(|pod| pod.text(&["status", "phase"]) == Some("Running") && pod.deletion().is_none());
        let is_ready = |pod: &Object| {
            let mut conditions = pod.items(&["status", "conditions"]).iter();
            conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        pods.sort_by_key(|pod| !is_ready(pod));
        Ok(pods.into_iter().next())
    }

    /// The pod's port that is meant.
    fn remote(&self, port: &str) -> Outcome<u16> {
        let pod = self.running()?;
        let target = if self.kind.kind == "Service" { self.target_port(port)? } else { port.to_owned() };
        let container_port = |name: &str| {
            let containers = pod.as_ref()?.items(&["spec", "containers"]).iter();
            let mut ports = containers.flat_map(|one| one["ports"].as_array().into_iter().flatten());
            ports.find(|one| one["name"] == name)?["containerPort"].as_u64()
        };
        let number = target.parse().ok().or_else(|| u16::try_from(container_port(&target)?).ok());
        number.ok_or_else(|| {
            let name = pod.as_ref().map_or("", Object::name);
            Failure::plain(format!("Pod '{name}' does not have a named port '{target}'"))
        })
    }

    /// What a Service's port leads to.
    fn target_port(&self, port: &str) -> Outcome<String> {
        let service = self.named()?;
        let is_it = |one: &&Value| one["name"] == port || one["port"].as_u64() == port.parse().ok();
        let found = service.items(&["spec", "ports"]).iter().find(is_it);
        let missing = || Failure::plain(format!("Service {} does not have a service port {port}", service.name()));
        let target = &found.ok_or_else(missing)?["targetPort"];
        Ok(target.as_str().map_or_else(|| target.to_string(), str::to_owned))
    }

    fn place(&self, port: &str) -> Option<SocketAddr> {
        let number = self.remote(port).ok()?;
        let ip = self.running().ok()??.text(&["status", "podIP"])?.parse().ok()?;
        Some(SocketAddr::new(ip, number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_that_is_gone_is_lost_one_that_is_ending_is_not() {
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
        for (found, lost) in table {
            assert_eq!(is_lost(&found, "u"), lost, "{found:?}");
        }
    }

    #[test]
    fn pairs_of_ports() {
        let read = |word: &str| pair(word).map(|pair| (pair.local, pair.remote)).map_err(|failure| failure.to_string());
        assert_eq!(read("5000"), Ok((None, "5000".into())));
        assert_eq!(read("8888:5000"), Ok((Some(8888), "5000".into())));
        assert_eq!(read(":5000"), Ok((Some(0), "5000".into())));
        assert_eq!(read("8443:https"), Ok((Some(8443), "https".into())));
        assert_eq!(read("https"), Ok((None, "https".into())));
        let invalid = "strconv.ParseUint: parsing \"x\": invalid syntax";
        assert_eq!(read("x:80"), Err(format!("error: error parsing local port 'x': {invalid}")));
        assert_eq!(read("80:"), Err("error: remote port must be > 0".into()));
    }
}
