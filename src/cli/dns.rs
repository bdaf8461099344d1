//! `kloop dns`: makes the cluster's names known to the machine itself.

use super::{CliResult, CommandContext};
use crate::object::{Object, Resource};
use crate::runtime;
use comfy_table::{ContentArrangement, Table, presets};
use std::collections::BTreeMap;

/// Make the cluster's names known to this machine: print lines for its hosts file, and how to use kloop's resolver.
///
/// The output can be appended to /etc/hosts as it is: Services with an address, members of headless Services that have a name, and
/// the hosts of Ingresses. Pods do not need this.
#[derive(clap::Args)]
#[command(after_help = "\
# Show the lines, and the commands for systemd-resolved
kloop dns

# Make the names known on this machine
kloop dns | sudo tee -a /etc/hosts")]
pub struct Args {}

/// Runs the verb.
pub fn run(_args: Args, context: &mut CommandContext) -> CliResult {
    let (network, lines) = context.read_view(|txn| {
        let list = |resource| txn.list(Resource(resource), None);
        let names =
            names(&list("services")?, &list("endpointslices.discovery.k8s.io")?, &list("ingresses.networking.k8s.io")?);
        Ok((txn.network(), names))
    })?;
    let home = context.existing()?.map(|api| api.store().home().to_owned());
    let resolver = home.and_then(|home| runtime::resolver_address(&home, network));
    let mut text = String::from("# Names of the kloop cluster. They are valid until a Service is created again.\n");
    text += &hosts(&lines);
    text += &match resolver {
        Some(place) => {
            // systemd-resolved takes a port after the address (resolved.conf(5)).
            let server = place.to_string();
            let server = server.strip_suffix(":53").unwrap_or(&server);
            format!(
                "# Or let systemd-resolved ask kloop's resolver, while pods run:\n\
                 #   sudo resolvectl dns lo {server} && sudo resolvectl domain lo '~cluster.local'\n"
            )
        }
        None => "# kloop's resolver does not run: kloop reconcile --watch starts it.\n".into(),
    };
    context.print(&text)
}

/// Returns the lines of a hosts file, with the names in one column.
fn hosts(lines: &BTreeMap<String, Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    for (address, names) in lines {
        table.add_row([address.clone(), names.join(" ")]);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Returns the names of each address.
fn names(services: &[Object], slices: &[Object], ingresses: &[Object]) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for service in services {
        let Some(address) = service.text(&["spec", "clusterIP"]).filter(|ip| !ip.is_empty() && *ip != "None") else {
            continue;
        };
        let place = format!("{}.{}", service.name(), service.namespace());
        found.entry(address.to_owned()).or_default().extend([format!("{place}.svc.cluster.local"), place]);
    }
    for slice in slices {
        let Some(service) = slice.label("kubernetes.io/service-name") else { continue };
        // Endpoints of a Service with publishNotReadyAddresses are ready in its slices.
        for endpoint in slice.items(&["endpoints"]).iter().filter(|endpoint| endpoint["conditions"]["ready"] != false) {
            if let (Some(host), Some(address)) = (endpoint["hostname"].as_str(), endpoint["addresses"][0].as_str()) {
                let name = format!("{host}.{service}.{}.svc.cluster.local", slice.namespace());
                found.entry(address.to_owned()).or_default().push(name);
            }
        }
    }
    for ingress in ingresses {
        let Some(address) =
            ingress.items(&["status", "loadBalancer", "ingress"]).first().and_then(|address| address["ip"].as_str())
        else {
            continue;
        };
        // Hosts files have no wildcards.
        let hosts = ingress.items(&["spec", "rules"]).iter().filter_map(|rule| rule["host"].as_str());
        let hosts = hosts.filter(|host| !host.starts_with('*')).map(str::to_owned);
        found.entry(address.to_owned()).or_default().extend(hosts);
    }
    for names in found.values_mut() {
        let mut seen = std::collections::HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
    }
    found.retain(|_, names| !names.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_with_an_address_have_a_line() {
        let service = |name: &str, ip: &str| {
            Object(json!({"metadata": {"name": name, "namespace": "shop"}, "spec": {"clusterIP": ip}}))
        };
        let endpoints = json!([{"hostname": "db-0", "addresses": ["127.9.1.4"]}, {"addresses": ["127.9.1.5"]},
            {"hostname": "db-1", "addresses": ["127.9.1.6"], "conditions": {"ready": false}},
            {"hostname": "db-2", "addresses": ["127.9.1.7"], "conditions": {"ready": true}}]);
        let labels = json!({"kubernetes.io/service-name": "db"});
        let slice = Object(
            json!({"metadata": {"name": "db-1", "namespace": "shop", "labels": labels}, "endpoints": endpoints}),
        );
        let rules = json!([{"host": "shop.example"}, {"host": "*.shop.example"}, {}, {"host": "shop.example"}]);
        let status = json!({"loadBalancer": {"ingress": [{"ip": "127.9.255.1"}]}});
        let ingress = Object(json!({"metadata": {"name": "shop"}, "spec": {"rules": rules}, "status": status}));
        let found = names(&[service("web", "127.9.128.7"), service("db", "None")], &[slice], &[ingress]);
        let expected = "\
127.9.1.4    db-0.db.shop.svc.cluster.local
127.9.1.7    db-2.db.shop.svc.cluster.local
127.9.128.7  web.shop.svc.cluster.local web.shop
127.9.255.1  shop.example
";
        assert_eq!(hosts(&found), expected);
        assert_eq!(hosts(&BTreeMap::new()), "");
    }
}
