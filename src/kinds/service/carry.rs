//! Fields that an update of a Service keeps or derives (`registry/core/service/strategy.go`).

use super::HEADLESS;
use crate::object::Object;
use serde_json::{Value, json};

const SPEC: &str = "spec";

fn kind(service: &Object) -> &str {
    service.text(&[SPEC, "type"]).unwrap_or("ClusterIP")
}

fn has_address(service: &Object) -> bool {
    kind(service) != "ExternalName"
}

fn has_node_ports(service: &Object) -> bool {
    matches!(kind(service), "NodePort" | "LoadBalancer")
}

fn has_health_port(service: &Object) -> bool {
    kind(service) == "LoadBalancer" && service.text(&[SPEC, "externalTrafficPolicy"]) == Some("Local")
}

/// Drops fields that only the old type has, unless the client changed them; then validation refuses them.
pub fn drop_other_types(new: &mut Object, old: &Object) {
    let mut drop = |stays: fn(&Object) -> bool, fields: &[&str]| {
        let same = |field: &&str| new.value_at(&[SPEC, field]) == old.value_at(&[SPEC, field]);
        if stays(old) && !stays(new) && fields.iter().all(same) {
            for field in fields {
                new.unset(&[SPEC, field]);
            }
        }
    };
    drop(has_address, &["clusterIP", "clusterIPs"]);
    drop(has_address, &["ipFamilies"]);
    drop(has_address, &["ipFamilyPolicy"]);
    drop(has_address, &["internalTrafficPolicy"]);
    drop(has_health_port, &["healthCheckNodePort"]);
    drop(|service| kind(service) == "LoadBalancer", &["allocateLoadBalancerNodePorts"]);
    drop(|service| kind(service) == "LoadBalancer", &["loadBalancerClass"]);
    drop(is_external, &["externalTrafficPolicy"]);
    if has_node_ports(old) && !has_node_ports(new) && node_ports(new) == node_ports(old) {
        for port in ports(new) {
            port.remove("nodePort");
        }
    }
}

/// Whether other machines reach the Service by addresses outside of the cluster (`ExternallyAccessible`).
fn is_external(service: &Object) -> bool {
    has_node_ports(service) || kind(service) == "ClusterIP" && !service.items(&[SPEC, "externalIPs"]).is_empty()
}

/// Keeps allocated addresses and ports that the client leaves out.
pub fn keep_allocated(new: &mut Object, old: &Object) {
    if has_address(old) && has_address(new) {
        let unset = new.text(&[SPEC, "clusterIP"]).unwrap_or_default().is_empty();
        if unset && (new.items(&[SPEC, "clusterIPs"]).is_empty() || is_unchanged(new, old, "clusterIPs")) {
            copy(new, old, "clusterIP");
            copy(new, old, "clusterIPs");
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if new.value_at(&[SPEC, field]).is_none() {
                copy(new, old, field);
            }
        }
    }
    if has_node_ports(old) && has_node_ports(new) {
        keep_node_ports(new, old);
    }
    if has_health_port(old) && has_health_port(new) && new.int(&[SPEC, "healthCheckNodePort"]).is_none() {
        copy(new, old, "healthCheckNodePort");
    }
}

/// Makes `clusterIP` and the first of `clusterIPs` equal; the changed one sets the other.
pub fn pair_addresses(new: &mut Object, old: Option<&Object>) {
    let first = new.items(&[SPEC, "clusterIPs"]).first().and_then(Value::as_str).map(str::to_owned);
    let single = new.text(&[SPEC, "clusterIP"]).filter(|text| !text.is_empty()).map(str::to_owned);
    let list_is_old = old.is_some_and(|old| is_unchanged(new, old, "clusterIPs"));
    let single_is_old = old.is_some_and(|old| is_unchanged(new, old, "clusterIP"));
    match (single, first) {
        (Some(single), None) => new.set(&[SPEC, "clusterIPs"], json!([single])),
        (Some(single), Some(first)) if single != first && list_is_old && !single_is_old => {
            new.set(&[SPEC, "clusterIPs"], json!([single]));
        }
        _ => {}
    }
}

/// Sets the IP families: IPv4 only, except for a headless Service without a selector, as in Kubernetes.
pub fn default_families(new: &mut Object) {
    if !has_address(new) {
        return;
    }
    let headless = new.text(&[SPEC, "clusterIP"]) == Some(HEADLESS);
    let selects = new.pairs(&[SPEC, "selector"]).next().is_some();
    let both = headless && !selects;
    if new.text(&[SPEC, "ipFamilyPolicy"]).is_none() {
        new.set(&[SPEC, "ipFamilyPolicy"], if both { "RequireDualStack" } else { "SingleStack" });
    }
    if new.items(&[SPEC, "ipFamilies"]).is_empty() {
        let dual = both && new.text(&[SPEC, "ipFamilyPolicy"]) != Some("SingleStack");
        new.set(&[SPEC, "ipFamilies"], if dual { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) });
    }
}

fn is_unchanged(new: &Object, old: &Object, field: &str) -> bool {
    new.value_at(&[SPEC, field]) == old.value_at(&[SPEC, field])
}

fn copy(new: &mut Object, old: &Object, field: &str) {
    if let Some(value) = old.value_at(&[SPEC, field]) {
        new.set(&[SPEC, field], value.clone());
    }
}

fn ports(service: &mut Object) -> impl Iterator<Item = &mut serde_json::Map<String, Value>> {
    let ports = service.0.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
    ports.into_iter().flatten().filter_map(Value::as_object_mut)
}

fn node_ports(service: &Object) -> Vec<Option<&Value>> {
    service.items(&[SPEC, "ports"]).iter().map(|port| port.get("nodePort")).collect()
}

fn keep_node_ports(new: &mut Object, old: &Object) {
    let old_ports = old.items(&[SPEC, "ports"]);
    let mut taken: Vec<Value> = node_ports(new).into_iter().flatten().cloned().collect();
    for port in ports(new).filter(|port| !port.contains_key("nodePort")) {
        let same =
            |other: &&Value| other.get("port") == port.get("port") && other.get("protocol") == port.get("protocol");
        if let Some(number) = old_ports.iter().find(same).and_then(|port| port.get("nodePort"))
            && !taken.contains(number)
        {
            taken.push(number.clone());
            port.insert("nodePort".to_owned(), number.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::service::KIND;

    fn prepared(new: Value, old: Option<&Object>) -> Object {
        let body = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": new});
        let mut object = Object((KIND.normalize)(&body, &mut |_| {}).expect("a Service"));
        (KIND.prepare)(&mut object, old);
        object
    }

    fn stored(kind: &str) -> Object {
        let ports = json!([{"port": 80, "name": "a", "nodePort": 30080}, {"port": 81, "name": "b", "nodePort": 30081}]);
        prepared(json!({"type": kind, "clusterIP": "10.96.0.9", "ports": ports}), None)
    }

    #[test]
    fn allocated_addresses_and_ports_are_kept() {
        let old = stored("NodePort");
        let new = prepared(json!({"type": "NodePort", "ports": [{"port": 81}, {"port": 82}]}), Some(&old));
        assert_eq!(new.value_at(&["spec", "clusterIPs"]), Some(&json!(["10.96.0.9"])));
        assert_eq!(node_ports(&new), [Some(&json!(30081)), None]);
    }

    #[test]
    fn change_of_type_drops_fields_of_the_old_type() {
        let old = stored("NodePort");
        let mut spec = old.0["spec"].clone();
        spec["type"] = "ClusterIP".into();
        let inner = prepared(spec.clone(), Some(&old));
        assert_eq!(node_ports(&inner), [None, None]);
        assert_eq!(inner.value_at(&["spec", "externalTrafficPolicy"]), None);
        assert_eq!(inner.text(&["spec", "clusterIP"]), Some("10.96.0.9"));
        spec["type"] = "ExternalName".into();
        spec["externalName"] = "a.b".into();
        let outer = prepared(spec, Some(&old));
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            assert_eq!(outer.value_at(&["spec", field]), None, "{field}");
        }
        assert_eq!((KIND.validate)(&outer, Some(&old)), []);
    }

    #[test]
    fn traffic_policies_go_with_what_they_are_for() {
        let with = |spec: Value| prepared(spec, None);
        let exposed = with(json!({"clusterIP": "10.96.0.9", "externalIPs": ["192.0.2.1"], "ports": [{"port": 80}]}));
        let mut spec = exposed.0["spec"].clone();
        assert_eq!(spec["externalTrafficPolicy"], "Cluster");
        spec["externalIPs"] = json!([]);
        let inner = prepared(spec, Some(&exposed));
        assert_eq!(inner.value_at(&["spec", "externalTrafficPolicy"]), None);
        assert_eq!((KIND.validate)(&inner, Some(&exposed)), []);
        let alias = with(json!({"type": "ExternalName", "externalName": "a.b", "internalTrafficPolicy": "Cluster"}));
        assert_eq!(alias.value_at(&["spec", "internalTrafficPolicy"]), None);
    }

    #[test]
    fn cluster_ip_and_its_list_are_kept_equal() {
        let old = stored("ClusterIP");
        let mut spec = old.0["spec"].clone();
        spec["clusterIP"] = "10.96.0.10".into();
        assert_eq!(prepared(spec, Some(&old)).value_at(&["spec", "clusterIPs"]), Some(&json!(["10.96.0.10"])));
        let listed = prepared(json!({"clusterIPs": ["10.96.0.7"], "ports": [{"port": 1}]}), None);
        assert_eq!(listed.text(&["spec", "clusterIP"]), None);
    }

    #[test]
    fn families_are_ipv4_except_for_headless_without_selector() {
        let plain = prepared(json!({"ports": [{"port": 1}]}), None);
        assert_eq!(plain.value_at(&["spec", "ipFamilies"]), Some(&json!(["IPv4"])));
        let headless = prepared(json!({"clusterIP": "None"}), None);
        assert_eq!(headless.text(&["spec", "ipFamilyPolicy"]), Some("RequireDualStack"));
        assert_eq!((KIND.validate)(&headless, None), []);
    }
}
