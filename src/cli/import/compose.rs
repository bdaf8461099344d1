//! From Compose services to Kubernetes objects.
//!
//! Never: reads a file; a function of the caller reads env files. Everything that has no counterpart is returned as text.
//! Start reading at [`convert`].

use super::mounted_files::{self, MountedFiles};
use super::values::{
    ComposePort, check_port, host_path, pairs, parse_port, parse_volume, quantity, seconds, settings, words,
};
use crate::object::{Object, scalar_text_or_empty};
use itertools::Itertools;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Fields of a service that are converted, or whose absence changes nothing.
const KNOWN: [&str; 26] = [
    "image",
    "build",
    "command",
    "entrypoint",
    "environment",
    "env_file",
    "ports",
    "expose",
    "volumes",
    "tmpfs",
    "depends_on",
    "healthcheck",
    "restart",
    "deploy",
    "scale",
    "working_dir",
    "user",
    "stop_grace_period",
    "extra_hosts",
    "labels",
    "container_name",
    "tty",
    "stdin_open",
    "mem_limit",
    "secrets",
    "configs",
];

/// Top-level fields that are converted, or that do not affect the containers.
const KNOWN_TOP: [&str; 6] = ["services", "volumes", "version", "name", "secrets", "configs"];

/// The manifests of a Compose file.
#[derive(Debug, Default)]
pub struct ConvertedCompose {
    /// Objects by the name of their file.
    pub files: BTreeMap<String, Vec<Object>>,
    /// Everything that was left out, as sentences.
    pub left_out: Vec<String>,
}

/// Reads an env file by its name.
pub type ReadEnvFile<'a> = &'a dyn Fn(&str) -> Result<Vec<(String, String)>, String>;

/// Converts a Compose file in this folder, whose variables are filled in.
pub fn convert(
    file: &Value,
    folder: &Path,
    variables: &BTreeMap<String, String>,
    read_env: ReadEnvFile<'_>,
) -> Result<ConvertedCompose, String> {
    let Some(services) = file["services"].as_object() else { return Err("it has no services".to_owned()) };
    let mut converted = ConvertedCompose::default();
    for (name, _) in file.as_object().into_iter().flatten() {
        if !KNOWN_TOP.contains(&name.as_str()) && !name.starts_with("x-") {
            converted.left_out.push(format!("{name}: has no counterpart"));
        }
    }
    for (name, service) in services {
        let mut conversion = ServiceConversion {
            name: object_name(name),
            service,
            services,
            file,
            folder,
            variables,
            left_out: Vec::new(),
        };
        let objects = conversion.objects(read_env)?;
        converted.left_out.extend(conversion.left_out.iter().map(|line| format!("{name}: {line}")));
        converted.files.insert(conversion.name, objects);
    }
    let claims: Vec<Object> = file["volumes"].as_object().into_iter().flatten().map(|(name, _)| claim(name)).collect();
    let mounted = mounted_files::objects(file, variables, object_name);
    for (name, objects) in [("volumes", claims), ("files", mounted)].into_iter().filter(|(_, all)| !all.is_empty()) {
        converted.files.entry(name.to_owned()).or_default().extend(objects);
    }
    Ok(converted)
}

/// Returns a name that Kubernetes takes.
fn object_name(name: &str) -> String {
    let sane = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    name.chars().map(sane).collect::<String>().trim_matches('-').to_owned()
}

fn claim(name: &str) -> Object {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let metadata = json!({"name": object_name(name)});
    Object(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}))
}

/// The conversion of one service.
struct ServiceConversion<'a> {
    name: String,
    service: &'a Value,
    services: &'a Map<String, Value>,
    /// The whole file.
    file: &'a Value,
    folder: &'a Path,
    /// The variables of the environment.
    variables: &'a BTreeMap<String, String>,
    left_out: Vec<String>,
}

impl ServiceConversion<'_> {
    fn objects(&mut self, read_env: ReadEnvFile<'_>) -> Result<Vec<Object>, String> {
        for (field, _) in self.service.as_object().into_iter().flatten() {
            if !KNOWN.contains(&field.as_str()) && !field.starts_with("x-") {
                self.left_out.push(format!("{field} is left out"));
            }
        }
        let ports = self.ports()?;
        let labels = json!({"app": self.name});
        let replicas =
            [&self.service["scale"], &self.service["deploy"]["replicas"]].iter().find_map(|count| count.as_u64());
        let is_job = matches!(scalar_text_or_empty(&self.service["restart"]).as_str(), "no" | "false" | "on-failure")
            || self.service["deploy"]["restart_policy"]["condition"] == "none";
        let pod = self.pod_spec(&ports, replicas.unwrap_or(1), read_env)?;
        let mut template = json!({"metadata": {"labels": labels}, "spec": pod});
        let metadata = json!({"name": self.name, "labels": labels});
        let workload = if is_job {
            template["spec"]["restartPolicy"] = json!("Never");
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}})
        } else {
            let spec =
                json!({"replicas": replicas.unwrap_or(1), "selector": {"matchLabels": labels}, "template": template});
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
        };
        let mut objects = vec![Object(workload)];
        if replicas.is_some_and(|count| count > 1) {
            let published = ports.iter().filter_map(|port| port.published);
            let why = "is not published: several pods would share it; the Service has it";
            self.left_out.extend(published.map(|port| format!("the port {port} of the machine {why}")));
        }
        let spec = match ports.is_empty() {
            false => Some(json!({"selector": labels, "ports": service_ports(&ports)})),
            // Other services know this one by its name, on ports that the file does not mention.
            true if !is_job => Some(json!({"clusterIP": "None", "selector": labels})),
            true => None,
        };
        if let Some(spec) = spec {
            objects.push(Object(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})));
        }
        Ok(objects)
    }

    fn pod_spec(&mut self, ports: &[ComposePort], replicas: u64, read_env: ReadEnvFile<'_>) -> Result<Value, String> {
        let mut container = json!({"name": self.name, "image": self.image()});
        for (field, target) in [("entrypoint", "command"), ("command", "args")] {
            if let Some(words) = words(&self.service[field]) {
                container[target] = words.into();
            }
        }
        if let Some(folder) = self.service["working_dir"].as_str() {
            container["workingDir"] = folder.into();
        }
        let environment = self.environment(read_env)?;
        if !environment.is_empty() {
            container["env"] =
                environment.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        }
        if !ports.is_empty() {
            container["ports"] = ports.iter().map(|port| container_port(port, replicas == 1)).collect();
        }
        for (field, target) in [("tty", "tty"), ("stdin_open", "stdin")] {
            if self.service[field] == true {
                container[target] = true.into();
            }
        }
        if let Some(probe) = self.probe() {
            container["readinessProbe"] = probe;
        }
        if let Some(limits) = self.limits() {
            container["resources"] = json!({"limits": limits});
        }
        let PodVolumes { volumes, mounts } = self.volumes();
        if !mounts.is_empty() {
            container["volumeMounts"] = mounts.into();
        }
        let mut pod = json!({"containers": [container]});
        if !volumes.is_empty() {
            pod["volumes"] = volumes.into();
        }
        let waits = self.waits()?;
        if !waits.is_empty() {
            pod["initContainers"] = waits.into();
        }
        self.add_pod_fields(&mut pod);
        Ok(pod)
    }

    fn add_pod_fields(&mut self, pod: &mut Value) {
        if let Some(seconds) = seconds(&self.service["stop_grace_period"]) {
            pod["terminationGracePeriodSeconds"] = seconds.into();
        }
        let user = scalar_text_or_empty(&self.service["user"]);
        let mut ids = user.split(':').map(str::parse::<i64>);
        match (ids.next(), ids.next()) {
            _ if user.is_empty() => {}
            (Some(Ok(user)), None) => pod["securityContext"] = json!({"runAsUser": user}),
            (Some(Ok(user)), Some(Ok(group))) => {
                pod["securityContext"] = json!({"runAsUser": user, "runAsGroup": group})
            }
            _ => self.left_out.push(format!("user {user:?} is left out: only numbers are known")),
        }
        let hosts = pairs(&self.service["extra_hosts"], [':', '=']);
        if !hosts.is_empty() {
            let alias = |(name, ip): (String, String)| json!({"ip": ip, "hostnames": [name]});
            pod["hostAliases"] = hosts.into_iter().map(alias).collect();
        }
    }

    fn image(&mut self) -> String {
        if let Some(image) = self.service["image"].as_str() {
            if !self.service["build"].is_null() {
                self.left_out.push(format!("build is left out: the pods run the image {image}"));
            }
            return image.to_owned();
        }
        self.left_out.push(
            "build is left out: tell kloop how to run the image with kloop image set (kloop help images)".to_owned(),
        );
        self.name.clone()
    }

    /// Returns the variables of env files; those of the service replace them.
    fn environment(&mut self, read_env: ReadEnvFile<'_>) -> Result<BTreeMap<String, String>, String> {
        let mut variables = BTreeMap::new();
        let files = &self.service["env_file"];
        for file in files.as_array().map_or_else(|| std::slice::from_ref(files), Vec::as_slice) {
            let Some(name) = file.as_str().or(file["path"].as_str()) else { continue };
            match read_env(name) {
                Ok(read) => variables.extend(read),
                Err(_) if file["required"] == false => {}
                Err(error) => return Err(format!("env_file {name}: {error}")),
            }
        }
        for (name, value) in settings(&self.service["environment"]) {
            // As in Compose, a name without a value has that of the environment.
            match value.or_else(|| self.variables.get(&name).cloned()) {
                Some(value) => drop(variables.insert(name, value)),
                None => self.left_out.push(format!("the variable {name} is left out: it has no value, and is not set")),
            }
        }
        Ok(variables)
    }

    fn ports(&mut self) -> Result<Vec<ComposePort>, String> {
        let mut ports = Vec::new();
        let lists = ["ports", "expose"].map(|field| self.service[field].as_array().cloned().unwrap_or_default());
        for port in lists.iter().flatten() {
            check_port(port).map_err(|why| format!("services.{}.ports: {why}", self.name))?;
            match parse_port(port) {
                Some(port) if !ports.contains(&port) => ports.push(port),
                Some(_) => {}
                None => self
                    .left_out
                    .push(format!("the port {} is left out: write each port by itself", scalar_text_or_empty(port))),
            }
        }
        for port in &mut ports {
            // `expose` names no port of the machine.
            port.published = port.published.filter(|published| *published > 0);
        }
        Ok(ports)
    }

    /// Converts the volumes.
    fn volumes(&mut self) -> PodVolumes {
        let mut converted = PodVolumes::default();
        for (number, entry) in self.service["volumes"].as_array().into_iter().flatten().enumerate() {
            let Some((kind, source, path, is_read_only)) = parse_volume(entry) else {
                self.left_out.push(format!("the volume {entry} is left out"));
                continue;
            };
            let name = match kind {
                "volume" if !source.is_empty() => object_name(&source),
                _ => format!("volume-{number}"),
            };
            let source = match kind {
                "bind" => json!({"hostPath": {"path": host_path(&source, self.folder)}}),
                "volume" if !source.is_empty() => json!({"persistentVolumeClaim": {"claimName": object_name(&source)}}),
                "tmpfs" => json!({"emptyDir": {"medium": "Memory"}}),
                _ => json!({"emptyDir": {}}),
            };
            converted.add(&name, source, &path, is_read_only);
        }
        let tmpfs = &self.service["tmpfs"];
        let tmpfs = tmpfs.as_array().map_or_else(|| std::slice::from_ref(tmpfs), Vec::as_slice);
        for (number, path) in tmpfs.iter().filter_map(Value::as_str).enumerate() {
            let path = path.split(':').next().unwrap_or(path);
            let memory = json!({"emptyDir": {"medium": "Memory"}});
            converted.add(&format!("tmpfs-{number}"), memory, path, false);
        }
        let mounted = MountedFiles::read(self.file, self.service, self.folder, object_name);
        self.left_out.extend(mounted.left_out);
        for file in mounted.files {
            converted.add(&file.volume, file.source, &file.path, true);
            if let (Some(key), Some(mount)) = (file.sub_path, converted.mounts.last_mut()) {
                mount["subPath"] = key.into();
            }
        }
        converted
    }

    /// Makes init containers that wait for the services that this one depends on.
    fn waits(&mut self) -> Result<Vec<Value>, String> {
        let depends = &self.service["depends_on"];
        let names: Vec<String> = match depends {
            Value::Array(names) => names.iter().map(scalar_text_or_empty).collect(),
            Value::Object(names) => names.keys().cloned().collect(),
            _ => Vec::new(),
        };
        let mut waits = Vec::new();
        for name in names {
            let Some(service) = self.services.get(&name) else {
                return Err(format!("service {:?} depends on undefined service {name:?}", self.name));
            };
            let host = object_name(&name);
            let lists = ["ports", "expose"].map(|field| service[field].as_array().cloned().unwrap_or_default());
            match lists.iter().flatten().find_map(parse_port) {
                Some(port) => {
                    let script =
                        format!("until (exec 3<>/dev/tcp/{host}/{}) 2>/dev/null; do sleep 0.2; done", port.target);
                    waits.push(
                        json!({"name": format!("wait-for-{host}"), "image": "bash", "command": ["bash", "-c", script]}),
                    );
                }
                None => self.left_out.push(format!("depends_on {name} is left out: {name} names no port to wait for")),
            }
        }
        Ok(waits)
    }

    fn probe(&mut self) -> Option<Value> {
        let check = &self.service["healthcheck"];
        if check["disable"] == true || check["test"].is_null() {
            return None;
        }
        let command = match &check["test"] {
            Value::String(script) => vec!["sh".to_owned(), "-c".to_owned(), script.clone()],
            test => {
                let words: Vec<String> = test.as_array()?.iter().map(scalar_text_or_empty).collect();
                match words.split_first()? {
                    (first, _) if first == "NONE" => return None,
                    (first, rest) if first == "CMD-SHELL" => vec!["sh".to_owned(), "-c".to_owned(), rest.join(" ")],
                    (first, rest) if first == "CMD" => rest.to_vec(),
                    _ => words,
                }
            }
        };
        let mut probe = json!({"exec": {"command": command}});
        for (field, target) in
            [("interval", "periodSeconds"), ("timeout", "timeoutSeconds"), ("start_period", "initialDelaySeconds")]
        {
            if let Some(seconds) = seconds(&check[field]) {
                probe[target] = seconds.max(i64::from(field != "start_period")).into();
            }
        }
        if let Some(retries) =
            check["retries"].as_i64().or_else(|| scalar_text_or_empty(&check["retries"]).parse().ok())
        {
            probe["failureThreshold"] = retries.max(1).into();
        }
        Some(probe)
    }

    fn limits(&self) -> Option<Value> {
        let limits = &self.service["deploy"]["resources"]["limits"];
        let memory = [&limits["memory"], &self.service["mem_limit"]]
            .map(scalar_text_or_empty)
            .into_iter()
            .find(|text| !text.is_empty());
        let mut resources = Map::new();
        resources.extend(memory.map(|memory| ("memory".to_owned(), quantity(&memory).into())));
        resources.extend(
            Some(scalar_text_or_empty(&limits["cpus"]))
                .filter(|text| !text.is_empty())
                .map(|cpus| ("cpu".to_owned(), cpus.into())),
        );
        (!resources.is_empty()).then(|| resources.into())
    }
}

/// The volumes of a pod, and the mounts of its container.
#[derive(Default)]
struct PodVolumes {
    volumes: Vec<Value>,
    mounts: Vec<Value>,
}

impl PodVolumes {
    /// Adds a volume, unless the pod has one of this name, and mounts it.
    fn add(&mut self, name: &str, mut volume: Value, path: &str, is_read_only: bool) {
        if !self.volumes.iter().any(|volume| volume["name"] == name) {
            volume["name"] = name.into();
            self.volumes.push(volume);
        }
        let mut mount = json!({"name": name, "mountPath": path});
        if is_read_only {
            mount["readOnly"] = true.into();
        }
        self.mounts.push(mount);
    }
}

/// Returns a port of the container. A published port answers at localhost, unless several pods would share it.
fn container_port(port: &ComposePort, is_single: bool) -> Value {
    let mut value = json!({"containerPort": port.target});
    if let Some(published) = port.published.filter(|_| is_single) {
        value["hostPort"] = published.into();
    }
    if port.protocol != "TCP" {
        value["protocol"] = port.protocol.clone().into();
    }
    value
}

/// Returns the ports of the Service: those of the container, by which other services know it.
fn service_ports(ports: &[ComposePort]) -> Vec<Value> {
    let to_value = |port: &ComposePort| {
        let mut value =
            json!({"name": format!("port-{}-{}", port.target, port.protocol.to_lowercase()), "port": port.target});
        if port.protocol != "TCP" {
            value["protocol"] = port.protocol.clone().into();
        }
        value
    };
    ports.iter().map(to_value).unique().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(file: Value) -> ConvertedCompose {
        let read = |name: &str| match name {
            "web.env" => Ok(vec![("A".to_owned(), "file".to_owned()), ("B".to_owned(), "file".to_owned())]),
            _ => Err("no such file".to_owned()),
        };
        convert(&file, Path::new("/app"), &[("SET".to_owned(), "1".to_owned())].into(), &read).unwrap()
    }

    #[test]
    fn service_becomes_a_deployment_and_a_service() {
        let web = json!({
            "image": "web:1", "command": "serve --port '80 80'", "environment": ["A=1"], "env_file": "web.env", "ports": ["8080:80"],
            "volumes": ["./html:/html:ro", "data:/data"], "depends_on": ["db"],
            "healthcheck": {"test": ["CMD-SHELL", "curl -f localhost"], "interval": "500ms", "retries": 3},
            "deploy": {"resources": {"limits": {"memory": "64M", "cpus": "0.5"}}}, "stop_grace_period": "1m30s", "user": "1000:100",
        });
        let db = json!({"image": "postgres", "expose": [5432]});
        let found = converted(json!({"services": {"web": web, "db": db}, "volumes": {"data": null}}));
        assert_eq!(found.left_out, [""; 0]);
        assert_eq!(found.files.keys().collect::<Vec<_>>(), ["db", "volumes", "web"]);
        let spec = &found.files["web"][0].0["spec"]["template"]["spec"];
        let expected = json!({
            "name": "web", "image": "web:1", "args": ["serve", "--port", "80 80"],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "file"}],
            "ports": [{"containerPort": 80, "hostPort": 8080}],
            "readinessProbe": {"exec": {"command": ["sh", "-c", "curl -f localhost"]}, "periodSeconds": 1, "failureThreshold": 3},
            "resources": {"limits": {"memory": "64Mi", "cpu": "0.5"}},
            "volumeMounts": [{"name": "volume-0", "mountPath": "/html", "readOnly": true}, {"name": "data", "mountPath": "/data"}],
        });
        assert_eq!(spec["containers"][0], expected);
        assert_eq!(spec["volumes"][0], json!({"name": "volume-0", "hostPath": {"path": "/app/html"}}));
        assert_eq!(spec["volumes"][1], json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}}));
        assert_eq!(spec["terminationGracePeriodSeconds"], 90);
        assert_eq!(spec["securityContext"], json!({"runAsUser": 1000, "runAsGroup": 100}));
        let wait = spec["initContainers"][0]["command"][2].as_str().unwrap();
        assert!(wait.contains("/dev/tcp/db/5432"), "{wait}");
        let ports = &found.files["web"][1].0["spec"]["ports"];
        assert_eq!(*ports, json!([{"name": "port-80-tcp", "port": 80}]));
    }

    #[test]
    fn ports_of_several_pods_and_builds_of_named_images_are_left_out() {
        let web = json!({"image": "web:1", "build": ".", "ports": ["8080:80"], "deploy": {"replicas": 2}});
        let found = converted(json!({"services": {"web": web}}));
        let expected = [
            "web: build is left out: the pods run the image web:1",
            "web: the port 8080 of the machine is not published: several pods would share it; the Service has it",
        ];
        assert_eq!(found.left_out, expected);
    }

    #[test]
    fn everything_without_a_counterpart_is_named() {
        let task = json!({
            "build": ".", "restart": "no", "privileged": true, "ports": ["3000-3005:3000-3005"], "depends_on": {"idle": {}},
        });
        let found = converted(json!({"services": {"task": task, "idle": {"image": "i"}}, "networks": {}}));
        let expected = [
            "networks: has no counterpart",
            "task: privileged is left out",
            "task: the port 3000-3005:3000-3005 is left out: write each port by itself",
            "task: build is left out: tell kloop how to run the image with kloop image set (kloop help images)",
            "task: depends_on idle is left out: idle names no port to wait for",
        ];
        assert_eq!(found.left_out, expected);
        assert_eq!(found.files["task"][0].0["kind"], "Job");
        let known_by_name = &found.files["idle"][1].0["spec"];
        assert_eq!(*known_by_name, json!({"clusterIP": "None", "selector": {"app": "idle"}}), "it has no port");
        assert_eq!(refusal(json!({})), "it has no services");
    }

    fn refusal(file: Value) -> String {
        convert(&file, Path::new("/"), &BTreeMap::new(), &|_| Ok(Vec::new())).unwrap_err()
    }

    #[test]
    fn ports_and_dependencies_are_checked() {
        let refused = |web: Value| refusal(json!({"services": {"web": web}}));
        let range = "is not a port: write a number from 1 to 65535";
        assert_eq!(
            refused(json!({"image": "i", "ports": ["8080:70000"]})),
            format!("services.web.ports: 70000 {range}")
        );
        assert_eq!(refused(json!({"image": "i", "ports": [{"target": 0}]})), format!("services.web.ports: 0 {range}"));
        let undefined = "service \"web\" depends on undefined service \"db\"";
        assert_eq!(refused(json!({"image": "i", "depends_on": ["db"]})), undefined);
    }

    #[test]
    fn variable_without_a_value_has_that_of_the_environment() {
        for environment in [json!(["SET", "UNSET", "EMPTY="]), json!({"SET": null, "UNSET": null, "EMPTY": ""})] {
            let found = converted(json!({"services": {"web": {"image": "i", "environment": environment}}}));
            let container = &found.files["web"][0].0["spec"]["template"]["spec"]["containers"][0];
            assert_eq!(container["env"], json!([{"name": "EMPTY", "value": ""}, {"name": "SET", "value": "1"}]));
            assert_eq!(found.left_out, ["web: the variable UNSET is left out: it has no value, and is not set"]);
        }
    }

    #[test]
    fn secret_is_a_mounted_file() {
        let web = json!({"image": "i", "secrets": ["pass"], "configs": ["conf"]});
        let found = converted(json!({
            "services": {"web": web}, "secrets": {"pass": {"file": "p"}}, "configs": {"conf": {"content": "a"}},
        }));
        assert_eq!(found.left_out, [""; 0]);
        let spec = &found.files["web"][0].0["spec"]["template"]["spec"];
        let mounts = json!([
            {"name": "secret-pass", "mountPath": "/run/secrets/pass", "readOnly": true},
            {"name": "configmap-conf", "mountPath": "/conf", "readOnly": true, "subPath": "conf"},
        ]);
        assert_eq!(spec["containers"][0]["volumeMounts"], mounts);
        assert_eq!(found.files["files"][0].0["data"], json!({"conf": "a"}));
    }
}
