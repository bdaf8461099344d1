//! A container's environment: variables of Services, then `envFrom`, then `env`; later ones win.

use super::command::Variables;
use super::fields;
use super::pod::{LocalPod, PodContainer};
use crate::kinds::shared::data_keys::decode_value;
use crate::object::Object;
use crate::world::Row;
use crate::world::start::FileKey;
use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, EnvVarSource, FileKeySelector};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns the environment of a container's start, or Kubernetes' message about a missing object or key.
pub fn container_environment(pod: &LocalPod, member: &PodContainer, ip: &str) -> Result<Variables, String> {
    let mut variables = Variables::default();
    let left = &pod.start_bytes;
    for (name, value) in services(pod) {
        variables.push(name, value, left)?;
    }
    for source in member.spec.env_from.iter().flatten() {
        for (name, value) in variables_from_source(pod, source)? {
            variables.push(name, value, left)?;
        }
    }
    for variable in member.spec.env.iter().flatten() {
        // A reference to a name that is set twice means the later one.
        if let Some(value) = value_of(pod, member, variable, ip, &mut variables)? {
            variables.push(variable.name.clone(), value, left)?;
        }
    }
    Ok(variables)
}

/// The value of one variable; `None` when it is optional and its source is missing.
fn value_of(
    pod: &LocalPod,
    member: &PodContainer,
    variable: &EnvVar,
    ip: &str,
    known: &mut Variables,
) -> Result<Option<String>, String> {
    let value = variable.value.as_deref().unwrap_or_default();
    match &variable.value_from {
        Some(source) if value.is_empty() => resolve_source(pod, member, source, ip),
        _ => known.expand(value, &pod.start_bytes).map(Some),
    }
}

fn resolve_source(
    pod: &LocalPod,
    member: &PodContainer,
    source: &EnvVarSource,
    ip: &str,
) -> Result<Option<String>, String> {
    if let Some(field) = &source.field_ref {
        return fields::field(pod, &field.field_path, ip).map(Some);
    }
    if let Some(resource) = &source.resource_field_ref {
        return fields::resource(pod, &member.spec, resource).map(Some);
    }
    if let Some(key) = &source.config_map_key_ref {
        return key_of(pod, &CONFIG_MAP, &key.name, &key.key, key.optional == Some(true));
    }
    if let Some(key) = &source.secret_key_ref {
        return key_of(pod, &SECRET, &key.name, &key.key, key.optional == Some(true));
    }
    if source.file_key_ref.is_some() {
        let place = from_files(member)
            .position(|(_, file)| source.file_key_ref.as_ref().is_some_and(|own| std::ptr::eq(own, file)));
        return Ok(place.map(FileKey::mark));
    }
    Ok(None)
}

fn from_files(member: &PodContainer) -> impl Iterator<Item = (&EnvVar, &FileKeySelector)> {
    let variables = member.spec.env.iter().flatten();
    variables.filter_map(|variable| Some((variable, variable.value_from.as_ref()?.file_key_ref.as_ref()?)))
}

/// The variables whose values are in files; [`container_environment`] has the mark of each in its place.
pub fn file_keys(member: &PodContainer) -> Vec<FileKey> {
    let key = |(variable, file): (&EnvVar, &FileKeySelector)| FileKey {
        variable: variable.name.clone(),
        volume: file.volume_name.as_str().into(),
        path: file.path.clone(),
        key: file.key.clone(),
        optional: file.optional == Some(true),
    };
    from_files(member).map(key).collect()
}

/// ConfigMaps and Secrets, alike but for their words and their encoding.
struct EnvSource {
    resource: &'static str,
    word: &'static str,
    kind: &'static str,
    decode: fn(&str) -> String,
}

const CONFIG_MAP: EnvSource =
    EnvSource { resource: "configmaps", word: "configmap", kind: "ConfigMap", decode: |text| text.to_owned() };

const SECRET: EnvSource = EnvSource { resource: "secrets", word: "secret", kind: "Secret", decode: decode_text };

fn decode_text(base64: &str) -> String {
    String::from_utf8_lossy(&decode_value(base64)).into_owned()
}

fn find(pod: &LocalPod, source: &EnvSource, name: &str, optional: bool) -> Result<Option<Object>, String> {
    match pod.world.find(source.resource, &pod.row.key.namespace, name) {
        Some(row) => Ok(Some(row.object())),
        None if optional => Ok(None),
        None => Err(format!("{} {name:?} not found", source.word)),
    }
}

fn key_of(pod: &LocalPod, source: &EnvSource, name: &str, key: &str, optional: bool) -> Result<Option<String>, String> {
    let Some(object) = find(pod, source, name, optional)? else { return Ok(None) };
    match object.text(&["data", key]) {
        Some(value) => Ok(Some((source.decode)(value))),
        None if optional => Ok(None),
        None => Err(format!("couldn't find key {key} in {} {}/{name}", source.kind, pod.row.key.namespace)),
    }
}

/// Every key of a ConfigMap or Secret, with the prefix.
fn variables_from_source(pod: &LocalPod, source: &EnvFromSource) -> Result<Vec<(String, String)>, String> {
    let (kind, name, optional) = if let Some(map) = &source.config_map_ref {
        (&CONFIG_MAP, &map.name, map.optional)
    } else if let Some(secret) = &source.secret_ref {
        (&SECRET, &secret.name, secret.optional)
    } else {
        return Ok(Vec::new());
    };
    let prefix = source.prefix.as_deref().unwrap_or_default();
    let Some(object) = find(pod, kind, name, optional == Some(true))? else { return Ok(Vec::new()) };
    Ok(object.pairs(&["data"]).map(|(key, value)| (format!("{prefix}{key}"), (kind.decode)(value))).collect())
}

/// Variables with the addresses of Services: those of the pod's namespace, unless `enableServiceLinks` is false, and always the API
/// server's.
fn services(pod: &LocalPod) -> Vec<(String, String)> {
    let world = pod.world;
    let namespace = &*pod.row.key.namespace;
    let mut rows: Vec<&Arc<Row>> = world.find("services", "default", "kubernetes").into_iter().collect();
    if pod.spec.enable_service_links.unwrap_or(true) {
        rows.extend(world.list_in("services", namespace));
    }
    world.with_cached(|remembered: &mut ServiceEnvCache| {
        if !remembered.is_of(&rows) {
            *remembered = ServiceEnvCache::from_rows(&rows);
        }
        remembered.variables.clone()
    })
}

/// Cached service variables of the last call; most pods of a burst have the same ones.
#[derive(Default)]
struct ServiceEnvCache {
    rows: Vec<Arc<Row>>,
    variables: Vec<(String, String)>,
}

impl ServiceEnvCache {
    fn from_rows(rows: &[&Arc<Row>]) -> ServiceEnvCache {
        let mut variables = BTreeMap::new();
        rows.iter().for_each(|row| links(&row.object(), &mut variables));
        ServiceEnvCache {
            rows: rows.iter().map(|row| Arc::clone(row)).collect(),
            variables: variables.into_iter().collect(),
        }
    }

    /// Whether it was computed from exactly these rows.
    fn is_of(&self, rows: &[&Arc<Row>]) -> bool {
        self.rows.len() == rows.len() && self.rows.iter().zip(rows).all(|(known, row)| Arc::ptr_eq(known, row))
    }
}

/// `WEB_SERVICE_HOST` and the variables of Docker's links.
fn links(service: &Object, variables: &mut BTreeMap<String, String>) {
    let Some(ip) = service.text(&["spec", "clusterIP"]).filter(|ip| !ip.is_empty() && *ip != "None") else { return };
    let name = variable_name(service.name());
    let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
    variables.insert(format!("{name}_SERVICE_HOST"), ip.to_owned());
    for (place, port) in service.items(&["spec", "ports"]).iter().enumerate() {
        let number = port["port"].as_i64().unwrap_or(0);
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        let url = format!("{}://{host}:{number}", protocol.to_lowercase());
        if place == 0 {
            variables.insert(format!("{name}_SERVICE_PORT"), number.to_string());
            variables.insert(format!("{name}_PORT"), url.clone());
        }
        if let Some(port_name) = port["name"].as_str().filter(|name| !name.is_empty()) {
            variables.insert(format!("{name}_SERVICE_PORT_{}", variable_name(port_name)), number.to_string());
        }
        let link = format!("{name}_PORT_{number}_{protocol}");
        variables.insert(format!("{link}_PROTO"), protocol.to_lowercase());
        variables.insert(format!("{link}_PORT"), number.to_string());
        variables.insert(format!("{link}_ADDR"), ip.to_owned());
        variables.insert(link, url);
    }
}

fn variable_name(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::super::testing::{TestMachine, pod};
    use serde_json::{Value, json};

    fn started_with(container: Value, services: bool) -> TestMachine {
        let mut container = container;
        container["name"] = "c".into();
        container["image"] = "a".into();
        let spec = json!({"enableServiceLinks": services, "serviceAccountName": "sa", "hostname": "h",
            "containers": [container, {"name": "other", "image": "a", "resources": {"limits": {"memory": "64Mi"}}}]});
        let mut machine = TestMachine::new(pod(spec));
        let meta = |name: &str| json!({"name": name, "namespace": "default", "uid": name});
        machine.put("configmaps", json!({"metadata": meta("cm"), "data": {"K": "kay", "two.words": "2"}}));
        machine.put("secrets", json!({"metadata": meta("sec"), "data": {"P": "cGFzcw=="}}));
        machine.put(
            "nodes",
            json!({"metadata": {"name": "n", "uid": "n"}, "status": {"allocatable": {"cpu": "3500m", "memory": "1Gi", "pods": "9"},
                "addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "10.0.0.97"}]}}),
        );
        let service = |name: &str, ip: &str, ports: Value| json!({"metadata": meta(name), "spec": {"clusterIP": ip, "ports": ports}});
        machine.put(
            "services",
            service("kubernetes", "127.77.128.1", json!([{"name": "https", "port": 443, "protocol": "TCP"}])),
        );
        let ports = json!([{"name": "http-a", "port": 80}, {"port": 53, "protocol": "UDP"}]);
        machine.put("services", service("my-web", "127.77.128.2", ports));
        machine.put("services", service("headless", "None", json!([{"port": 1}])));
        machine.settle();
        machine
    }

    fn value(machine: &TestMachine, name: &str) -> Option<String> {
        let start = machine.starts.iter().find(|start| &*start.container == "c")?;
        assert!(start.env.iter().filter(|(known, _)| known == name).count() < 2, "{name} twice");
        start.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    #[test]
    fn variables_that_double_in_length_are_refused() {
        let doubling =
            |place: usize| json!({"name": format!("E{place}"), "value": format!("$(E{0})$(E{0})", place - 1)});
        let mut env = vec![json!({"name": "E0", "value": "x".repeat(1000)})];
        env.extend((1..40).map(doubling));
        let machine = started_with(json!({"env": env}), false);
        assert!(machine.starts.iter().all(|start| &*start.container == "other"), "the other container is started");
        assert!(machine.summary().contains("CreateContainerConfigError"), "{}", machine.summary());
        let machine = started_with(json!({"env": env[..10], "args": ["$(E9)"]}), false);
        assert_eq!(value(&machine, "E9").map(|value| value.len()), Some(512_000));
    }

    #[test]
    fn values_from_everywhere() {
        let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
        let resource = |what: Value| json!({"resourceFieldRef": what});
        let map = |key: &str| json!({"configMapKeyRef": {"name": "cm", "key": key}});
        let cases: Vec<(Value, Option<&str>)> = vec![
            (field("metadata.name"), Some("p")),
            (field("metadata.namespace"), Some("default")),
            (field("metadata.uid"), Some("uid-p")),
            (field("metadata.labels['app']"), Some("web")),
            (field("metadata.annotations['note']"), Some("x y")),
            (field("metadata.labels['none']"), Some("")),
            (field("spec.nodeName"), Some("n")),
            (field("spec.serviceAccountName"), Some("sa")),
            (field("status.hostIP"), Some("10.0.0.97")),
            (resource(json!({"resource": "limits.cpu"})), Some("4")),
            (resource(json!({"resource": "requests.cpu", "divisor": "1m"})), Some("250")),
            (resource(json!({"resource": "limits.memory", "containerName": "other", "divisor": "1Mi"})), Some("64")),
            (resource(json!({"resource": "requests.memory", "containerName": "other"})), Some("67108864")),
            (map("K"), Some("kay")),
            (json!({"configMapKeyRef": {"name": "cm", "key": "none", "optional": true}}), None),
            (json!({"configMapKeyRef": {"name": "none", "key": "K", "optional": true}}), None),
            (json!({"secretKeyRef": {"name": "sec", "key": "P"}}), Some("pass")),
        ];
        for (source, expected) in cases {
            let resources = json!({"requests": {"cpu": "250m"}});
            let machine =
                started_with(json!({"resources": resources, "env": [{"name": "V", "valueFrom": source}]}), false);
            assert_eq!(value(&machine, "V").as_deref(), expected, "{source}");
        }
    }

    #[test]
    fn later_ones_win_and_earlier_ones_can_be_named() {
        let container = json!({
            "envFrom": [{"configMapRef": {"name": "cm"}}, {"prefix": "S_", "secretRef": {"name": "sec"}},
                {"configMapRef": {"name": "none", "optional": true}}],
            "env": [
                {"name": "A", "value": "$(K)-$(S_P)-$(LATER)-$$(K)"},
                {"name": "K", "value": "mine"},
                {"name": "LATER", "value": "$(A)/$(K)"},
                {"name": "MY_WEB_SERVICE_HOST", "value": "over $(MY_WEB_SERVICE_HOST)"},
                {"name": "EMPTY"},
            ],
            "command": ["sh", "-c", "$(LATER)"], "args": ["$(NOPE)", "$(HOME)", "$(MY_WEB_SERVICE_PORT)"],
        });
        let machine = started_with(container, true);
        let cases = [
            ("A", "kay-pass-$(LATER)-$(K)"),
            ("K", "mine"),
            ("two.words", "2"),
            ("S_P", "pass"),
            ("LATER", "kay-pass-$(LATER)-$(K)/mine"),
            ("MY_WEB_SERVICE_HOST", "over 127.77.128.2"),
            ("EMPTY", ""),
            ("HOSTNAME", "h"),
        ];
        for (name, expected) in cases {
            assert_eq!(value(&machine, name).as_deref(), Some(expected), "{name}");
        }
        let start = &machine.starts[0];
        assert_eq!(start.command[2], "kay-pass-$(LATER)-$(K)/mine");
        assert_eq!(start.args, ["$(NOPE)", "$(HOME)", "80"]);
    }

    #[test]
    fn services_have_links() {
        let machine = started_with(json!({}), true);
        let cases = [
            ("KUBERNETES_SERVICE_HOST", Some("127.77.128.1")),
            ("KUBERNETES_SERVICE_PORT_HTTPS", Some("443")),
            ("KUBERNETES_PORT_443_TCP", Some("tcp://127.77.128.1:443")),
            ("MY_WEB_SERVICE_HOST", Some("127.77.128.2")),
            ("MY_WEB_SERVICE_PORT", Some("80")),
            ("MY_WEB_SERVICE_PORT_HTTP_A", Some("80")),
            ("MY_WEB_PORT", Some("tcp://127.77.128.2:80")),
            ("MY_WEB_PORT_80_TCP_ADDR", Some("127.77.128.2")),
            ("MY_WEB_PORT_80_TCP_PORT", Some("80")),
            ("MY_WEB_PORT_80_TCP_PROTO", Some("tcp")),
            ("MY_WEB_PORT_53_UDP", Some("udp://127.77.128.2:53")),
            ("HEADLESS_SERVICE_HOST", None),
        ];
        for (name, expected) in cases {
            assert_eq!(value(&machine, name).as_deref(), expected, "{name}");
        }
        let machine = started_with(json!({}), false);
        assert_eq!(value(&machine, "MY_WEB_SERVICE_HOST"), None);
        assert!(value(&machine, "KUBERNETES_SERVICE_HOST").is_some(), "the API server's are always there");
    }

    #[test]
    fn pod_address_is_known_before_the_first_start() {
        let source = json!({"fieldRef": {"fieldPath": "status.podIP"}});
        let machine = started_with(json!({"env": [{"name": "IP", "valueFrom": source}]}), false);
        assert_eq!(value(&machine, "IP").as_deref(), machine.status()["podIP"].as_str());
    }

    #[test]
    fn missing_references_are_reported_and_waited_for() {
        let map = |optional: bool| {
            json!([{"name": "V", "valueFrom": {"configMapKeyRef": {"name": "new", "key": "K",
            "optional": optional}}}])
        };
        let cases = [
            (json!({"env": map(false)}), "configmap \"new\" not found"),
            (json!({"envFrom": [{"secretRef": {"name": "new"}}]}), "secret \"new\" not found"),
            (
                json!({"env": [{"name": "V", "valueFrom": {"secretKeyRef": {"name": "sec", "key": "new"}}}]}),
                "couldn't find key new in Secret default/sec",
            ),
            (
                json!({"env": [{"name": "V", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "new"}}}]}),
                "couldn't find key new in ConfigMap default/cm",
            ),
        ];
        for (container, message) in cases {
            let mut machine = started_with(container, false);
            assert_eq!(machine.summary(), "Pending c=CreateContainerConfigError/0 other+=running/0", "{message}");
            assert_eq!(machine.container("c")["state"]["waiting"]["message"], message);
            assert!(machine.events.iter().any(|event| event.message == format!("Error: {message}")));
            let data = json!({"new": "bmV3", "K": "bmV3"});
            for (resource, name) in
                [("configmaps", "new"), ("secrets", "new"), ("configmaps", "cm"), ("secrets", "sec")]
            {
                let meta = json!({"name": name, "namespace": "default", "uid": name});
                machine.put(resource, json!({"metadata": meta, "data": data}));
                let row = machine.world.find(resource, "default", name).unwrap().clone();
                assert_eq!((super::super::LOOP.concerns)(&machine.world, &row).len(), 1, "{resource} wakes the pod");
            }
            machine.settle();
            assert_eq!(machine.summary(), "Running c+=running/0 other+=running/0", "{message}");
        }
    }
}
