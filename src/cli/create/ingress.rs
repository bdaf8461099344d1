//! `kloop create ingress`.

use super::generate::GeneratorFlags;
use crate::cli::manifests::key_changes;
use crate::cli::{CliResult, CommandContext, Failure};
use serde_json::{Map, Value, json};

/// Create an ingress with the specified name.
#[derive(clap::Args)]
#[command(
    override_usage = "NAME --rule=host/path=service:port[,tls[=secret]]",
    after_help = "\
# Create a single ingress called 'simple' that directs requests to foo.com/bar to svc # svc1:8080 with a TLS secret \"my-cert\"
kloop create ingress simple --rule=\"foo.com/bar=svc1:8080,tls=my-cert\"

# Create a catch all ingress of \"/path\" pointing to service svc:port and Ingress Class as \"otheringress\"
kloop create ingress catch-all --class=otheringress --rule=\"/path=svc:port\"

# Create an ingress with a default backend
kloop create ingress ingdefault --default-backend=defaultsvc:http --rule=\"foo.com/*=svc:8080,tls=secret1\""
)]
pub struct Args {
    #[command(flatten)]
    generate: GeneratorFlags,
    /// Rule in format host/path=service:port[,tls=secretname]. Paths containing the leading character '*' are considered pathType=Prefix.
    #[arg(long, value_name = "RULE")]
    rule: Vec<String>,
    /// Ingress Class to be used.
    #[arg(long, default_value = "", value_name = "CLASS")]
    class: String,
    /// Default service for backend, in format of svcname:port.
    #[arg(long, default_value = "", value_name = "SERVICE:PORT")]
    default_backend: String,
    /// Annotation to insert in the ingress object, in the format annotation=value.
    #[arg(long, value_name = "KEY=VALUE")]
    annotation: Vec<String>,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let name = args.generate.name("create ingress")?;
    if args.rule.is_empty() && args.default_backend.is_empty() {
        let text = "not enough information provided: every ingress has to either specify a default-backend (which catches all traffic) or a list of rules (which catch specific paths)";
        return Err(Failure::plain(text));
    }
    let rules = args.rule.iter().map(|text| IngressRuleArg::parse(text)).collect::<CliResult<Vec<IngressRuleArg>>>()?;
    let mut body = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": name},
        "spec": {}, "status": {"loadBalancer": {}},
    });
    if let Some(wrong) = args.annotation.iter().find(|pair| !pair.contains('=')) {
        return Err(Failure::plain(format!("annotation {wrong} is invalid and should be in format key=[value]")));
    }
    let annotations: Map<String, Value> = key_changes::parse(&args.annotation, "annotation", false)?
        .set
        .into_iter()
        .map(|(key, value)| (key, value.into()))
        .collect();
    if !annotations.is_empty() {
        body["metadata"]["annotations"] = annotations.into();
    }
    let spec = &mut body["spec"];
    if !args.class.is_empty() {
        spec["ingressClassName"] = args.class.as_str().into();
    }
    if !args.default_backend.is_empty() {
        let wrong = || Failure::plain("default-backend should be in format servicename:serviceport");
        spec["defaultBackend"] = backend(&args.default_backend).ok_or_else(wrong)?;
    }
    if !rules.is_empty() {
        spec["rules"] = by_host(&rules).into();
    }
    let tls = certificates(&rules);
    if !tls.is_empty() {
        spec["tls"] = tls.into();
    }
    args.generate.create(context, body, Some("ingress"))
}

struct IngressRuleArg {
    host: String,
    path: Value,
    /// The secret's name; empty for the controller's default certificate.
    tls: Option<String>,
}

impl IngressRuleArg {
    fn parse(text: &str) -> CliResult<IngressRuleArg> {
        let wrong = || {
            let form = "host/path=svcname:svcport[,tls[=secret]]";
            Failure::plain(format!("rule {text} is invalid and should be in format {form}"))
        };
        let (place, rest) = text.split_once('=').ok_or_else(wrong)?;
        let (host, path) = place.split_once('/').ok_or_else(wrong)?;
        let (service, tls) = match rest.split_once(',') {
            Some((service, "tls")) => (service, Some(String::new())),
            Some((service, tls)) => (service, Some(tls.strip_prefix("tls=").ok_or_else(wrong)?.to_owned())),
            None => (rest, None),
        };
        let (path, kind) = match path.strip_suffix('*') {
            Some(prefix) => (prefix, "Prefix"),
            None => (path, "Exact"),
        };
        let backend = backend(service).ok_or_else(wrong)?;
        let path = json!({"backend": backend, "path": format!("/{path}"), "pathType": kind});
        Ok(IngressRuleArg { host: host.into(), path, tls })
    }
}

fn backend(text: &str) -> Option<Value> {
    let (name, port) = text.split_once(':').filter(|(name, port)| !name.is_empty() && !port.is_empty())?;
    let port = match port.parse::<u16>() {
        Ok(number) => json!({"number": number}),
        Err(_) => json!({"name": port}),
    };
    Some(json!({"service": {"name": name, "port": port}}))
}

/// Groups the rules by host, in order of first mention.
fn by_host(rules: &[IngressRuleArg]) -> Vec<Value> {
    let mut hosts: Vec<(&str, Vec<Value>)> = Vec::new();
    for rule in rules {
        match hosts.iter_mut().find(|(host, _)| *host == rule.host) {
            Some((_, paths)) => paths.push(rule.path.clone()),
            None => hosts.push((&rule.host, vec![rule.path.clone()])),
        }
    }
    let rule = |(host, paths): (&str, Vec<Value>)| match host {
        "" => json!({"http": {"paths": paths}}),
        host => json!({"host": host, "http": {"paths": paths}}),
    };
    hosts.into_iter().map(rule).collect()
}

fn certificates(rules: &[IngressRuleArg]) -> Vec<Value> {
    let mut secrets: Vec<(&str, Vec<&str>)> = Vec::new();
    for rule in rules {
        let Some(secret) = rule.tls.as_deref() else { continue };
        match secrets.iter_mut().find(|(known, _)| *known == secret) {
            Some((_, hosts)) if hosts.contains(&rule.host.as_str()) => {}
            Some((_, hosts)) => hosts.push(&rule.host),
            None => secrets.push((secret, vec![&rule.host])),
        }
    }
    let tls = |(secret, hosts): (&str, Vec<&str>)| match secret {
        "" => json!({"hosts": hosts}),
        secret => json!({"hosts": hosts, "secretName": secret}),
    };
    secrets.into_iter().map(tls).collect()
}
