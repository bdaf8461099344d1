//! `kloop url` and `kloop open`: the address of a Service, an Ingress or a pod on this machine.
//!
//! Never: connects to the address. Start reading at [`find_urls`].

use super::one_pod;
use super::{CliResult, CommandContext, Failure, control_plane};
use crate::apiserver::read;
use crate::kinds;
use crate::object::{Key, Object};
use serde_json::Value;
use std::process::{Command, Stdio};

/// Programs that open an address in the user's browser.
const OPENERS: [&str; 4] = ["xdg-open", "wslview", "sensible-browser", "open"];

/// Print the address at which a Service, an Ingress or a pod answers on this machine.
///
/// Prints a URL for each port. The scheme is http, or https for port 443 and for ports whose name or appProtocol begins with
/// https. A name without a type is that of a Service.
#[derive(clap::Args)]
#[command(
    override_usage = "TYPE/NAME [PORT]",
    after_help = "\
# Print the address of the Service web
kloop url svc/web

# Ask it
curl $(kloop url svc/web)

# Print the address of the port metrics
kloop url svc/web metrics"
)]
pub struct Args {
    /// TYPE/NAME, or the name of a Service.
    #[arg(value_name = "TYPE/NAME", required = true)]
    object: String,
    /// Name or number of the port [default: all].
    #[arg(value_name = "PORT")]
    port: Option<String>,
}

/// Open the address of a Service, an Ingress or a pod in the browser.
///
/// The program is $BROWSER, else xdg-open. Without one, the address is printed only.
#[derive(clap::Args)]
#[command(
    override_usage = "TYPE/NAME [PORT]",
    after_help = "\
# Open the Service web in the browser
kloop open svc/web"
)]
pub struct OpenArgs {
    #[command(flatten)]
    what: Args,
}

/// Runs `url`.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    for url in find(&args, context)? {
        context.print_line(&url)?;
    }
    control_plane::print_age(context)
}

/// Runs `open`.
pub fn open(args: OpenArgs, context: &mut CommandContext) -> CliResult {
    let urls = find(&args.what, context)?;
    let Some(url) = urls.first() else { return Ok(()) };
    context.print_line(url)?;
    control_plane::print_age(context)?;
    if has_opened(url) {
        return Ok(());
    }
    Err(Failure::plain(format!("no program opens addresses here: set BROWSER, or open {url} yourself")))
}

/// Starts the browser; false when no program for that is there.
pub fn has_opened(url: &str) -> bool {
    let chosen = std::env::var("BROWSER").ok().filter(|program| !program.is_empty());
    let programs = chosen.iter().map(String::as_str).chain(OPENERS);
    for program in programs {
        let mut command = Command::new(program);
        command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if command.spawn().is_ok() {
            return true;
        }
    }
    false
}

fn find(args: &Args, context: &mut CommandContext) -> CliResult<Vec<String>> {
    let (kind, name) = match args.object.contains('/') {
        true => one_pod::named(context.kinds(), &args.object)?,
        false => (&kinds::service::KIND, args.object.clone()),
    };
    let key = Key::new(kind.resource, context.namespace_of(kind), &name);
    let object = context.read_view(|txn| read::get(txn, &key))?;
    let urls = find_urls(&object, args.port.as_deref());
    if !urls.is_empty() {
        return Ok(urls);
    }
    let shown = context.name_of(kind, &object);
    let text = match (kind.resource.0, &args.port) {
        ("services" | "pods", Some(port)) => format!("{shown} has no port {port:?}"),
        ("services", None) if object.text(&["spec", "clusterIP"]) == Some("None") => {
            format!("{shown} is headless: it has no address of its own; ask one of its pods (kloop url pod/NAME)")
        }
        ("services" | "pods" | "ingresses.networking.k8s.io", None) => {
            format!("{shown} has no address yet; run: kloop why {shown}")
        }
        _ => format!("{shown} has no address; name a Service, an Ingress or a pod"),
    };
    Err(Failure::plain(text))
}

/// Returns the URLs of a Service, an Ingress or a pod, of one port or all; none without an address.
pub fn find_urls(object: &Object, port: Option<&str>) -> Vec<String> {
    let is_wanted = |candidate: &Value, field: &str| {
        let is_number = |port: &str| port.parse().is_ok_and(|number: u64| candidate[field] == number);
        port.is_none_or(|port| candidate["name"] == port || is_number(port))
    };
    match object.kind() {
        "Service" => {
            let Some(address) = service_address(object) else { return Vec::new() };
            let ports = object.items(&["spec", "ports"]).iter().filter(|candidate| is_wanted(candidate, "port"));
            ports.filter_map(|port| url(address, port, "port")).collect()
        }
        "Pod" => {
            let Some(address) = object.text(&["status", "podIP"]) else { return Vec::new() };
            let containers = object.items(&["spec", "containers"]).iter();
            let ports = containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
            let ports = ports.filter(|candidate| is_wanted(candidate, "containerPort"));
            ports.filter_map(|port| url(address, port, "containerPort")).collect()
        }
        "Ingress" => ingress_urls(object),
        _ => Vec::new(),
    }
}

/// The address of a Service: that of its load balancer, else its own.
fn service_address(service: &Object) -> Option<&str> {
    let balancer = service.items(&["status", "loadBalancer", "ingress"]).first();
    let balancer = balancer.and_then(|ingress| ingress["ip"].as_str());
    let own = service.text(&["spec", "clusterIP"]).filter(|address| !matches!(*address, "" | "None"));
    balancer.or(own)
}

fn url(address: &str, port: &Value, field: &str) -> Option<String> {
    let number = port[field].as_u64()?;
    let text = |name: &str| port[name].as_str().unwrap_or_default();
    let scheme = match text("protocol") {
        "UDP" => "udp",
        _ if number == 443 || text("name").starts_with("https") || text("appProtocol").starts_with("https") => "https",
        _ => "http",
    };
    let is_usual = matches!((scheme, number), ("http", 80) | ("https", 443));
    Some(if is_usual { format!("{scheme}://{address}/") } else { format!("{scheme}://{address}:{number}/") })
}

fn ingress_urls(ingress: &Object) -> Vec<String> {
    let Some(balancer) = ingress.items(&["status", "loadBalancer", "ingress"]).first() else { return Vec::new() };
    let address = balancer["ip"].as_str().or(balancer["hostname"].as_str()).unwrap_or_default();
    let url = |scheme: &str, host: &str| format!("{scheme}://{host}{}/", ingress_port(balancer, scheme));
    let hosts: Vec<&str> = ingress
        .items(&["spec", "tls"])
        .iter()
        .flat_map(|tls| tls["hosts"].as_array())
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let rules = ingress.items(&["spec", "rules"]).iter();
    let mut urls: Vec<String> = rules
        .map(|rule| match rule["host"].as_str().filter(|host| !host.contains('*')) {
            Some(host) if hosts.contains(&host) => url("https", host),
            Some(host) => url("http", host),
            None => url("http", address),
        })
        .collect();
    if urls.is_empty() && !address.is_empty() {
        urls.push(url("http", address));
    }
    urls.dedup();
    urls
}

/// Returns `:8080` for an Ingress that listens at another port than the usual one of the scheme. The ports in its status are that for HTTP,
/// and then that for HTTPS.
fn ingress_port(balancer: &Value, scheme: &str) -> String {
    let (place, usual) = if scheme == "https" { (1, 443) } else { (0, 80) };
    let ports = balancer["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let has_usual = ports.iter().any(|port| port["port"] == usual);
    let listened = ports.get(place).and_then(|port| port["port"].as_u64()).filter(|_| !has_usual);
    listened.map(|port| format!(":{port}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn urls_of_services_name_scheme_and_port() {
        let service = |spec: Value, status: Value| Object(json!({"kind": "Service", "spec": spec, "status": status}));
        let ports = json!([{"name": "web", "port": 80}, {"name": "https-alt", "port": 8443}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
        let own = service(json!({"clusterIP": "127.1.2.3", "ports": ports}), json!({}));
        assert_eq!(find_urls(&own, None), ["http://127.1.2.3/", "https://127.1.2.3:8443/", "udp://127.1.2.3:53/"]);
        assert_eq!(find_urls(&own, Some("8443")), ["https://127.1.2.3:8443/"]);
        assert_eq!(find_urls(&own, Some("web")), ["http://127.1.2.3/"]);
        assert!(find_urls(&own, Some("81")).is_empty());
        let balancer = json!({"loadBalancer": {"ingress": [{"ip": "127.9.9.9"}]}});
        let balanced = service(json!({"clusterIP": "127.1.2.3", "ports": [{"port": 8080}]}), balancer);
        assert_eq!(find_urls(&balanced, None), ["http://127.9.9.9:8080/"]);
        let headless = service(json!({"clusterIP": "None", "ports": [{"port": 80}]}), json!({}));
        assert!(find_urls(&headless, None).is_empty());
    }

    #[test]
    fn urls_of_ingresses_are_their_hosts() {
        let ingress = |spec: &Value, ports: &[u16]| {
            let ports: Vec<Value> = ports.iter().map(|port| json!({"port": port, "protocol": "TCP"})).collect();
            let status = json!({"loadBalancer": {"ingress": [{"ip": "127.9.9.9", "ports": ports}]}});
            find_urls(&Object(json!({"kind": "Ingress", "spec": spec, "status": status})), None)
        };
        let bare = json!({"defaultBackend": {}});
        for (ports, url) in [
            (&[][..], "http://127.9.9.9/"),
            (&[80], "http://127.9.9.9/"),
            (&[443, 80], "http://127.9.9.9/"),
            (&[8080], "http://127.9.9.9:8080/"),
        ] {
            assert_eq!(ingress(&bare, ports), [url], "{ports:?}");
        }
        let rules = json!([{"host": "shop.example"}, {"host": "safe.example"}, {}]);
        let spec = json!({"rules": rules, "tls": [{"hosts": ["safe.example"]}]});
        let usual = ["http://shop.example/", "https://safe.example/", "http://127.9.9.9/"];
        assert_eq!(ingress(&spec, &[]), usual);
        assert_eq!(ingress(&spec, &[80, 443]), usual);
        let unprivileged = ["http://shop.example:8080/", "https://safe.example:8443/", "http://127.9.9.9:8080/"];
        assert_eq!(ingress(&spec, &[8080, 8443]), unprivileged);
    }
}
