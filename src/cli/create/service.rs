//! `kloop create service`: one form for each type.

use super::generate::GeneratorFlags;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds::shared::names;
use crate::object::label::subdomain_problems;
use clap::Subcommand;
use serde_json::{Value, json};

/// Create a service using a specified subcommand.
#[derive(clap::Args)]
#[command(override_usage = "(clusterip | externalname | loadbalancer | nodeport)")]
pub struct Args {
    #[command(subcommand)]
    form: ServiceCommand,
}

#[derive(Subcommand)]
enum ServiceCommand {
    /// Create a ClusterIP service.
    #[command(
        override_usage = "NAME [--tcp=<port>:<targetPort>] [--dry-run=server|client|none]",
        after_help = "\
# Create a new ClusterIP service named my-cs
kloop create service clusterip my-cs --tcp=5678:8080

# Create a new ClusterIP service named my-cs (in headless mode)
kloop create service clusterip my-cs --clusterip=\"None\""
    )]
    Clusterip(ServiceFlags),
    /// Create an ExternalName service.
    #[command(
        override_usage = "NAME --external-name external.name [--dry-run=server|client|none]",
        after_help = "\
# Create a new ExternalName service named my-ns
kloop create service externalname my-ns --external-name bar.com"
    )]
    Externalname(ServiceFlags),
    /// Create a LoadBalancer service.
    #[command(
        override_usage = "NAME [--tcp=port:targetPort] [--dry-run=server|client|none]",
        after_help = "\
# Create a new LoadBalancer service named my-lbs
kloop create service loadbalancer my-lbs --tcp=5678:8080"
    )]
    Loadbalancer(ServiceFlags),
    /// Create a NodePort service.
    #[command(
        override_usage = "NAME [--tcp=port:targetPort] [--dry-run=server|client|none]",
        after_help = "\
# Create a new NodePort service named my-ns
kloop create service nodeport my-ns --tcp=5678:8080"
    )]
    Nodeport(ServiceFlags),
}

#[derive(clap::Args)]
struct ServiceFlags {
    #[command(flatten)]
    generate: GeneratorFlags,
    /// Port pairs can be specified as 'PORT:TARGETPORT'.
    #[arg(long, value_delimiter = ',', value_name = "PORT[:TARGET]")]
    tcp: Vec<String>,
    /// Assign your own ClusterIP (ClusterIP services only) or set to 'None' for a 'headless' service.
    #[arg(long, value_name = "ADDRESS")]
    clusterip: Option<String>,
    /// External name of service (ExternalName services only).
    #[arg(long, value_name = "NAME")]
    external_name: Option<String>,
    /// Port used to expose the service on each node in a cluster (NodePort services only).
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    node_port: i32,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    match args.form {
        ServiceCommand::Clusterip(args) => create_service(args, context, "ClusterIP"),
        ServiceCommand::Externalname(args) => create_service(args, context, "ExternalName"),
        ServiceCommand::Loadbalancer(args) => create_service(args, context, "LoadBalancer"),
        ServiceCommand::Nodeport(args) => create_service(args, context, "NodePort"),
    }
}

fn create_service(args: ServiceFlags, context: &mut CommandContext, kind: &str) -> CliResult {
    let name = args.generate.name(&format!("create service {}", kind.to_lowercase()))?;
    let headless = args.clusterip.as_deref() == Some("None");
    if kind == "ExternalName" && args.external_name.is_none() {
        return Err(Failure::plain("required flag(s) \"external-name\" not set"));
    }
    if args.tcp.is_empty() && !headless && kind != "ExternalName" {
        return Err(Failure::plain("at least one tcp port specifier must be provided"));
    }
    if let Some(external) = args.external_name.as_deref().filter(|_| kind == "ExternalName")
        && !subdomain_problems(external).is_empty()
    {
        return Err(Failure::plain(format!("invalid service external name {external}")));
    }
    let mut ports = args.tcp.iter().map(|text| port(text)).collect::<CliResult<Vec<Value>>>()?;
    if let Some(port) = ports.first_mut().filter(|_| args.node_port > 0) {
        port["nodePort"] = args.node_port.into();
    }
    let mut spec = json!({"selector": {"app": name}, "type": kind});
    if !ports.is_empty() {
        spec["ports"] = ports.into();
    }
    if let Some(address) = args.clusterip.filter(|address| !address.is_empty() && kind == "ClusterIP") {
        spec["clusterIP"] = address.into();
    }
    if let Some(external) = args.external_name.filter(|_| kind == "ExternalName") {
        spec["externalName"] = external.into();
    }
    let body = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": {"app": name}},
        "spec": spec, "status": {"loadBalancer": {}},
    });
    args.generate.create(context, body, Some(&format!("{kind} service")))
}

/// Parses `80:8080`, `443` or `80:http`. Ignores text after a second colon, as kubectl does.
fn port(text: &str) -> CliResult<Value> {
    let mut parts = text.split(':');
    let port = parts.next().unwrap_or_default();
    let number = port.parse::<u16>().map_err(|_| {
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let why = if is_number { "value out of range" } else { "invalid syntax" };
        Failure::plain(format!("strconv.ParseUint: parsing {port:?}: {why}"))
    })?;
    let target = match parts.next() {
        None => number.into(),
        Some(target) => {
            let parsed = target.parse::<i64>();
            let problems = parsed.as_ref().map_or_else(|_| names::port_name(target), |number| names::port(*number));
            if !problems.is_empty() {
                return Err(Failure::plain(problems.join(",")));
            }
            parsed.map_or_else(|_| target.into(), Value::from)
        }
    };
    Ok(json!({"name": text.replace(':', "-"), "port": number, "protocol": "TCP", "targetPort": target}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_and_refused_as_kubectl_does() {
        let charset = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)";
        let result = |text: &str| match port(text) {
            Ok(port) => port["targetPort"].to_string(),
            Err(failure) => failure.to_string().replace("error: ", ""),
        };
        for (text, expected) in [
            ("80", "80"),
            ("0", "0"),
            ("80:8080", "8080"),
            ("80:http", "\"http\""),
            ("80:x:y", "\"x\""),
            ("80:x_y", charset),
            ("80:", &format!("{charset},must contain at least one letter (a-z)")),
            ("80:99999", "must be between 1 and 65535, inclusive"),
            ("99999:80", "strconv.ParseUint: parsing \"99999\": value out of range"),
            ("a:80", "strconv.ParseUint: parsing \"a\": invalid syntax"),
            (":80", "strconv.ParseUint: parsing \"\": invalid syntax"),
        ] {
            assert_eq!(result(text), expected, "{text}");
        }
    }
}
