//! `kloop url` and `kloop open`: the address of a Service, an Ingress or a pod on this machine.
//!
//! Never: connects to the address. Start reading at [`find_urls`].

use super::cluster::control_plane;
use super::cluster::one_pod;
use super::{CliResult, CommandContext, Failure};
use crate::apiserver::read;
use crate::kinds;
use crate::object::{Key, Object};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};

/// Programs that open an address in the user's browser.
const OPENERS: [&str; 4] = ["xdg-open", "wslview", "sensible-browser", "open"];

/// Print the address at which a Service, an Ingress or a pod answers on this machine.
///
/// Prints a URL for each port. The scheme is http, or https for port 443 and for ports whose name or appProtocol begins with
/// https. A name without a type is that of a Service. An Ingress answers by the host that a request names: for its hosts, a
/// hint says how to ask.
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
    let FoundAddress { urls, hints } = find(&args, context)?;
    for url in urls {
        context.print_line(&url)?;
    }
    hints.iter().for_each(|hint| context.print_notice(hint));
    control_plane::print_age(context)
}

/// Runs `open`.
pub fn open(args: OpenArgs, context: &mut CommandContext) -> CliResult {
    let FoundAddress { urls, hints } = find(&args.what, context)?;
    let Some(url) = urls.first() else { return Ok(()) };
    context.print_line(url)?;
    hints.iter().for_each(|hint| context.print_notice(hint));
    control_plane::print_age(context)?;
    if has_opened(url) {
        return Ok(());
    }
    Err(Failure::plain(format!("no program opens addresses here: set BROWSER, or open {url} yourself")))
}

/// Starts the browser. Returns false if there is no program to open it.
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

/// The URLs of an object, and how to ask for the hosts of an Ingress.
pub struct FoundAddress {
    /// One for each port; none without an address.
    pub urls: Vec<String>,
    /// One for each host.
    pub hints: Vec<String>,
}

impl FoundAddress {
    /// Reads the addresses of an object, of one port or all.
    pub fn from_object(object: &Object, port: Option<&str>) -> FoundAddress {
        FoundAddress { urls: find_urls(object, port), hints: host_hints(object) }
    }
}

fn find(args: &Args, context: &mut CommandContext) -> CliResult<FoundAddress> {
    let (kind, name) = match args.object.contains('/') {
        true => one_pod::named(context.kinds(), &args.object)?,
        false => (&kinds::service::KIND, args.object.clone()),
    };
    let key = Key::new(kind.resource, context.namespace_of(kind), &name);
    let object = context.read_view(|txn| read::get(txn, &key))?;
    let found = FoundAddress::from_object(&object, args.port.as_deref());
    if !found.urls.is_empty() {
        return Ok(found);
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

/// Returns the addresses at which an Ingress answers: the machine does not resolve its hosts.
fn ingress_urls(ingress: &Object) -> Vec<String> {
    let Some((balancer, address)) = ingress_address(ingress) else { return Vec::new() };
    let rules = ingress.items(&["spec", "rules"]).iter();
    let schemes = rules.map(|rule| scheme(ingress, rule["host"].as_str().unwrap_or_default()));
    let mut urls: Vec<String> =
        schemes.map(|scheme| format!("{scheme}://{address}{}/", ingress_port(balancer, scheme))).collect();
    if urls.is_empty() {
        urls.push(format!("http://{address}{}/", ingress_port(balancer, "http")));
    }
    let mut seen = BTreeSet::new();
    urls.retain(|url| seen.insert(url.clone()));
    urls
}

/// Returns a hint for each host of an Ingress. The proxy chooses the rule by the Host header, and the certificate by the host of TLS.
fn host_hints(object: &Object) -> Vec<String> {
    let balancer = ingress_address(object).filter(|_| object.kind() == "Ingress");
    let Some((balancer, address)) = balancer else { return Vec::new() };
    let hosts = object.items(&["spec", "rules"]).iter().filter_map(|rule| rule["host"].as_str());
    let hint = |host: &str| {
        let scheme = scheme(object, host);
        let port = ingress_port(balancer, scheme);
        let number = port.strip_prefix(':').unwrap_or(if scheme == "https" { "443" } else { "80" });
        format!("hint: for the host {host}: curl --resolve {host}:{number}:{address} {scheme}://{host}{port}/")
    };
    let mut hints: Vec<String> = hosts.filter(|host| !host.contains('*')).map(hint).collect();
    hints.dedup();
    hints
}

/// Returns the address of the proxy that serves an Ingress.
fn ingress_address(ingress: &Object) -> Option<(&Value, &str)> {
    let balancer = ingress.items(&["status", "loadBalancer", "ingress"]).first()?;
    let address = balancer["ip"].as_str().or(balancer["hostname"].as_str())?;
    Some((balancer, address))
}

/// Returns `https` for a host that an Ingress has a certificate for.
fn scheme(ingress: &Object, host: &str) -> &'static str {
    let mut hosts = ingress.items(&["spec", "tls"]).iter().flat_map(|tls| tls["hosts"].as_array()).flatten();
    if hosts.any(|named| *named == host) { "https" } else { "http" }
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
    fn urls_of_ingresses_are_their_addresses_and_hints_name_their_hosts() {
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
        let usual = ["http://127.9.9.9/", "https://127.9.9.9/"];
        assert_eq!(ingress(&spec, &[]), usual);
        assert_eq!(ingress(&spec, &[80, 443]), usual);
        let unprivileged = ["http://127.9.9.9:8080/", "https://127.9.9.9:8443/"];
        assert_eq!(ingress(&spec, &[8080, 8443]), unprivileged);
        let status =
            json!({"loadBalancer": {"ingress": [{"ip": "127.9.9.9", "ports": [{"port": 8080}, {"port": 8443}]}]}});
        assert_eq!(
            host_hints(&Object(json!({"kind": "Ingress", "spec": spec, "status": status}))),
            [
                "hint: for the host shop.example: curl --resolve shop.example:8080:127.9.9.9 http://shop.example:8080/",
                "hint: for the host safe.example: curl --resolve safe.example:8443:127.9.9.9 https://safe.example:8443/",
            ]
        );
    }
}
