//! `kloop expose`: creates a Service for an existing workload, pod or Service.

use super::cluster::targets::{self, NamedFlags, Scope, Target};
use super::create::generate::{CreateFlags, Overrides};
use super::manifests::key_changes;
use super::{CliResult, CommandContext, Failure};
use crate::object::Object;
use serde_json::{Value, json};

/// Take a replication controller, service, deployment or pod and expose it as a new Kubernetes service.
///
/// Looks up a deployment, service, replica set, replication controller or pod by name and uses the selector for that resource as
/// the selector for a new service on the specified port.
#[derive(clap::Args)]
#[command(
    override_usage = "(-f FILENAME | TYPE NAME) [--port=port] [--protocol=TCP|UDP|SCTP] [--target-port=number-or-name] [--name=name] [--external-ip=external-ip-of-service] [--type=type]",
    after_help = "\
# Create a service for a replicated nginx, which serves on port 80 and connects to the containers on port 8000
kloop expose rc nginx --port=80 --target-port=8000

# Create a service for a pod valid-pod, which serves on port 444 with the name \"frontend\"
kloop expose pod valid-pod --port=444 --name=frontend

# Create a service for a replicated streaming application on port 4100 balancing UDP traffic and named 'video-stream'
kloop expose rc streamer --port=4100 --protocol=UDP --name=video-stream

# Create a service for an nginx deployment, which serves on port 80 and connects to the containers on port 8000
kloop expose deployment nginx --port=80 --target-port=8000"
)]
pub struct Args {
    #[command(flatten)]
    named: NamedFlags,
    #[command(flatten)]
    making: CreateFlags,
    #[command(flatten)]
    overrides: Overrides,
    /// The port that the service should serve on, or several. Copied from the resource being exposed, if unspecified.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "PORT")]
    port: String,
    /// The network protocol for the service to be created. Default is 'TCP'.
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<String>,
    /// Name or number for the port on the container that the service should direct traffic to.
    #[arg(long, value_name = "PORT")]
    target_port: Option<String>,
    /// The name for the newly created object.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Type for this service: ClusterIP, NodePort, LoadBalancer, or ExternalName.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// ClusterIP to be assigned to the service. Set to 'None' to create a headless service.
    #[arg(long, value_name = "ADDRESS")]
    cluster_ip: Option<String>,
    /// Additional external IP address (not managed by the cluster) to accept for the service.
    #[arg(long, value_name = "ADDRESS")]
    external_ip: Option<String>,
    /// IP to assign to the LoadBalancer.
    #[arg(long, value_name = "ADDRESS")]
    load_balancer_ip: Option<String>,
    /// If non-empty, set the session affinity for the service to this; legal values: 'None', 'ClientIP'.
    #[arg(long, value_name = "HOW")]
    session_affinity: Option<String>,
    /// Labels to apply to the service created by this call.
    #[arg(short, long, value_delimiter = ',', value_name = "KEY=VALUE")]
    labels: Vec<String>,
    /// A label selector to use for this service. Only equality-based selector requirements are supported.
    #[arg(long, value_delimiter = ',', value_name = "KEY=VALUE")]
    selector: Vec<String>,
}

/// The longest name of a Service, in bytes. A name that the Service inherits is cut to it.
const MAX_NAME: usize = 63;

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let scope = Scope { as_written: true, ..args.named.scope() };
    targets::for_each_target(context, &scope, |context, target| expose_object(&args, context, target))
}

fn expose_object(args: &Args, context: &mut CommandContext, target: &Target) -> CliResult {
    let selector = match &args.selector[..] {
        [] => selector(target)?,
        words => map(words)?,
    };
    let inherited = || target.object.name().chars().take(MAX_NAME).collect();
    let name: String = args.name.clone().unwrap_or_else(inherited);
    let ports = ports(args, target)?;
    let mut metadata = json!({"name": name});
    match &args.labels[..] {
        [] if target.object.labels().next().is_some() => {
            metadata["labels"] = target.object.value_at(&["metadata", "labels"]).cloned().unwrap_or_default();
        }
        [] => {}
        words => metadata["labels"] = map(words)?,
    }
    let mut spec = json!({"ports": ports, "selector": selector});
    let affinity = args.session_affinity.as_deref().unwrap_or_default();
    if !["", "None", "ClientIP"].contains(&affinity) {
        return Err(Failure::plain(format!("unknown session affinity: {affinity}")));
    }
    // As in kubectl, the address is for a load balancer only.
    let address = args.load_balancer_ip.clone().filter(|_| args.kind.as_deref() == Some("LoadBalancer"));
    let fields = [
        ("type", &args.kind),
        ("clusterIP", &args.cluster_ip),
        ("loadBalancerIP", &address),
        ("sessionAffinity", &args.session_affinity),
    ];
    for (field, value) in fields {
        if let Some(value) = value {
            spec[field] = value.as_str().into();
        }
    }
    if let Some(address) = &args.external_ip {
        spec["externalIPs"] = json!([address]);
    }
    let body = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec, "status": {"loadBalancer": {}},
    });
    args.making.create(context, args.overrides.apply(body)?, "exposed")
}

fn map(words: &[String]) -> CliResult<Value> {
    Ok(key_changes::parse_labels(words)?.into())
}

/// The labels that select an object's pods.
fn selector(target: &Target) -> CliResult<Value> {
    let object = &target.object;
    let (path, missing): (&[&str], &str) = match target.kind.kind {
        "Pod" => (&["metadata", "labels"], "the pod has no labels and cannot be exposed"),
        "Service" => (&["spec", "selector"], "the service has no pod selector set"),
        "ReplicationController" => (&["spec", "selector"], "the replication controller has no selector set"),
        "Deployment" | "ReplicaSet" => {
            if !object.items(&["spec", "selector", "matchExpressions"]).is_empty() {
                return Err(Failure::plain(
                    "couldn't convert expressions - \"matchExpressions\" to map-based selector format",
                ));
            }
            (&["spec", "selector", "matchLabels"], "invalid deployment: no selectors, therefore cannot be exposed")
        }
        other => return Err(Failure::plain(format!("cannot expose a {other}"))),
    };
    object.value_at(path).filter(|labels| labels.is_object()).cloned().ok_or_else(|| Failure::plain(missing))
}

fn ports(args: &Args, target: &Target) -> CliResult<Vec<Value>> {
    let declared = known_ports(target);
    let number = |text: &str| {
        text.parse::<i64>().map_err(|_| Failure::plain(format!("strconv.Atoi: parsing {text:?}: invalid syntax")))
    };
    let wanted: Vec<i64> = match args.port.as_str() {
        "" => declared.iter().map(|(port, _)| *port).collect(),
        ports => ports.split(',').map(number).collect::<CliResult<_>>()?,
    };
    if wanted.is_empty() {
        return Err(Failure::plain("couldn't find port via --port flag or introspection"));
    }
    let several = wanted.len() > 1;
    let port = |(at, port): (usize, &i64)| {
        let protocol_of_port =
            declared.iter().find(|(declared, _)| declared == port).map(|(_, protocol)| protocol.clone());
        let protocol = args.protocol.clone().or(protocol_of_port).unwrap_or_else(|| "TCP".into());
        let target = match &args.target_port {
            Some(text) => text.parse::<i64>().map(Value::from).unwrap_or_else(|_| text.as_str().into()),
            None => (*port).into(),
        };
        let mut entry = json!({"port": port, "protocol": protocol, "targetPort": target});
        if several {
            entry["name"] = format!("port-{}", at + 1).into();
        }
        entry
    };
    Ok(wanted.iter().enumerate().map(port).collect())
}

/// The ports that an object declares, with their protocols.
fn known_ports(target: &Target) -> Vec<(i64, String)> {
    let read = |ports: &[Value], field: &str| -> Vec<(i64, String)> {
        let protocol = |port: &Value| port["protocol"].as_str().unwrap_or("TCP").to_owned();
        ports.iter().filter_map(|port| Some((port[field].as_i64()?, protocol(port)))).collect()
    };
    let object: &Object = &target.object;
    let containers = match target.kind.kind {
        "Service" => return read(object.items(&["spec", "ports"]), "port"),
        "Pod" => object.items(&["spec", "containers"]),
        _ => object.items(&["spec", "template", "spec", "containers"]),
    };
    let empty = Vec::new();
    containers
        .iter()
        .flat_map(|container| read(container["ports"].as_array().unwrap_or(&empty), "containerPort"))
        .collect()
}
