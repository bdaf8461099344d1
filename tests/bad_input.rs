//! Bad input of every kind: a clear message, exit code 1 (or a specific one), and an unchanged state file.
//!
//! Each row is an input and a part of the expected error.

mod command_lines;
mod environment;

use crate::cluster::{Cluster, Said};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Instant;

/// Standard input, and a part of the expected error.
type Row = (String, &'static str);

/// Makes a cluster with some objects: a Deployment, a ConfigMap, an immutable ConfigMap.
fn cluster() -> Cluster {
    let cluster = Cluster::new();
    cluster.apply(
        r#"
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: "1"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: stone}, immutable: true, data: {a: "1"}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: busybox}]}
---
{apiVersion: v1, kind: Pod, metadata: {name: pod}, spec: {containers: [{name: main, image: busybox}]}}
"#,
    );
    cluster
}

/// Returns the problems of an answer; empty when it is as expected.
fn wrong(cluster: &Cluster, before: &[u8], said: &Said, code: i32, expected: &str) -> String {
    let mut wrong = String::new();
    if said.code != code {
        wrong += &format!("  exit code {}, expected {code}\n", said.code);
    }
    if !said.err.contains(expected) {
        wrong += &format!("  expected {expected:?}\n");
    }
    if said.err.contains("panicked") || said.err.contains("RUST_BACKTRACE") || said.code == 101 {
        wrong += "  it panicked\n";
    }
    if said.err.chars().any(|letter| letter.is_control() && letter != '\n' && letter != '\t') {
        wrong += "  a control character went to the terminal\n";
    }
    if fs::read(cluster.home().join("state.db")).expect("state") != before {
        wrong += "  the state has changed\n";
    }
    if wrong.is_empty() {
        wrong
    } else {
        format!("{wrong}  stdout: {}\n  stderr: {}\n", head(&said.out), head(&said.err))
    }
}

fn head(text: &str) -> String {
    text.chars().take(400).collect()
}

/// Checks every row; reports all failures together.
fn check_all<T>(rows: impl IntoIterator<Item = T>, check: impl Fn(&Cluster, &[u8], &T) -> (String, String)) {
    let cluster = cluster();
    let before = fs::read(cluster.home().join("state.db")).expect("state");
    let mut failures = String::new();
    for row in rows {
        let start = Instant::now();
        let (name, wrong) = check(&cluster, &before, &row);
        if !wrong.is_empty() {
            failures += &format!("{}\n{wrong}", head(&name));
        }
        assert!(start.elapsed().as_secs() < 60, "{} took too long", head(&name));
    }
    assert!(failures.is_empty(), "\n{failures}");
}

/// Applies each row and checks that it is refused.
fn refused(rows: Vec<Row>) {
    check_all(rows, |cluster, before, (stdin, expected)| {
        let said = cluster.run(&["apply", "-f", "-"], stdin);
        (stdin.clone(), wrong(cluster, before, &said, 1, expected))
    });
}

fn row(stdin: &str, expected: &'static str) -> Row {
    (stdin.to_owned(), expected)
}

/// A manifest of a ConfigMap with this metadata.
fn meta(metadata: &str, expected: &'static str) -> Row {
    (format!("{{apiVersion: v1, kind: ConfigMap, metadata: {metadata}}}"), expected)
}

/// A manifest of a Pod whose container also has these fields.
fn container(fields: &str, expected: &'static str) -> Row {
    (
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{containers: [{{name: c, image: busybox, {fields}}}]}}}}"
        ),
        expected,
    )
}

/// A manifest of a Pod with this spec.
fn pod(spec: &str, expected: &'static str) -> Row {
    (format!("{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {spec}}}"), expected)
}

/// A manifest of a Deployment whose spec also has these fields.
fn deployment(fields: &str, expected: &'static str) -> Row {
    let text = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {FIELDS, selector: {matchLabels: {a: b}}, \
                template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: busybox}]}}}}";
    (text.replace("FIELDS", fields), expected)
}

#[test]
fn non_manifest_text_is_refused() {
    let deep = |open: &str, close: &str| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: x}}, data: {}{}}}",
            open.repeat(10_000),
            close.repeat(10_000)
        )
    };
    refused(vec![
        row("", "no objects passed to apply"),
        row("# only a comment\n", "no objects passed to apply"),
        row("---\n---\n...\n", "no objects passed to apply"),
        row("\u{feff}", "no objects passed to apply"),
        row("\0", "error parsing STDIN"),
        row("just words", "invalid object to validate"),
        row("- a\n- b\n", "invalid object to validate"),
        row("a: [1, 2", "error parsing STDIN"),
        row("a: \"never closed", "error parsing STDIN"),
        row("a:\n\t- b\n", "error parsing STDIN"),
        row("a: *nobody\n", "error parsing STDIN"),
        row("{\"a\": 1,}}", "error parsing STDIN"),
        (deep("[", "]"), "error parsing STDIN"),
        (deep("{a: ", "}"), "error parsing STDIN"),
        (format!("{{\"a\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000)), "error parsing STDIN"),
        (
            format!(
                "a: &a [x, x]\n{}",
                (0..60)
                    .map(|n| format!(
                        "b{n}: &b{n} [*{0}, *{0}, *{0}, *{0}]\n",
                        if n == 0 { "a".into() } else { format!("b{}", n - 1) }
                    ))
                    .collect::<String>()
            ),
            "error parsing STDIN",
        ),
        row("a: &a\n  b: *a\n", "error parsing STDIN"),
        row("a: &a\n  <<: *a\n", "error parsing STDIN"),
        (
            format!(
                "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: big}}, data: {{a: {}}}}}",
                "x".repeat(3 << 20)
            ),
            "STDIN",
        ),
    ]);
}

/// Reads texts of the maximum size in the forms that need most memory, under a memory limit.
#[test]
fn endless_input_is_refused() {
    let cluster = cluster();
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.yaml");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let folder_name = folder.path().to_str().unwrap();
    let rows: [(&[&str], &str); 4] = [
        (&["create", "configmap", "c", "--from-file=/dev/zero"], "error reading /dev/zero: it is larger than 16 MiB"),
        (
            &["create", "configmap", "c", "--from-env-file=/dev/zero"],
            "error reading /dev/zero: it is larger than 16 MiB",
        ),
        (&["apply", "-f", "/dev/zero"], "error reading /dev/zero: it is larger than 256 MiB, or never ends"),
        (&["apply", "-f", folder_name], "pipe.yaml is a pipe or a device: use -f "),
    ];
    for (words, expected) in rows {
        let said = cluster.run(words, "");
        assert_eq!(said.code, 1, "{words:?}");
        assert!(said.err.contains(expected), "{words:?}: {}", said.err);
    }
}

#[test]
fn exponential_kustomization_is_refused() {
    let cluster = cluster();
    let folder = tempfile::tempdir().unwrap();
    for level in 0..30 {
        let here = folder.path().join(level.to_string());
        std::fs::create_dir(&here).unwrap();
        let below = format!("[../{0}, ../{0}]", level + 1);
        let kind = if level == 0 { "" } else { "kind: Component\napiVersion: kustomize.config.k8s.io/v1alpha1\n" };
        let below = if level == 29 { "[]".to_owned() } else { below };
        std::fs::write(here.join("kustomization.yaml"), format!("{kind}components: {below}\n")).unwrap();
    }
    let top = folder.path().join("0");
    let said = cluster.run(&["kustomize", top.to_str().unwrap()], "");
    assert_eq!(said.code, 1);
    assert!(said.err.contains("the kustomization reads more than 10000 files"), "{}", said.err);
}

#[test]
fn large_text_needs_little_memory() {
    let within = |open: &str, part: &str, close: &str| {
        let room = 3 * 1024 * 1024 - 100 - open.len() - close.len();
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: settings}}, {open}{}{close}}}",
            part.repeat(room / part.len())
        )
    };
    let keys = |count: u32| (0..count).map(|key| format!("k{key}: 1, ")).collect::<String>();
    let (keys, few_keys) = (keys(220_000), keys(90_000));
    let names: String = (0..60_000).map(|name| format!("n!{name}: a, ")).collect();
    let rows = [
        (within("data: [", "{},", "]"), "limit is 100000 values"),
        (within("data: [", "1,", "]"), "too many values"),
        (within("data: [", "{a: {b: 1}},", "]"), "too many values"),
        (within("x: &x {a: b}, data: [", "*x,", "]"), "excessive aliasing"),
        (within("data: {a: ", "x", "}"), "Too long"),
        (
            format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: settings}}, {keys}}}"),
            "limit is 100000 values",
        ),
        (format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: settings}}, {few_keys}}}"), "unknown field"),
        (
            format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: settings}}, data: {{{names}}}}}"),
            "a valid config key must",
        ),
        ("a: 1\n---\n".repeat(349_000), "too many documents"),
    ];
    let cluster = cluster();
    let before = fs::read(cluster.home().join("state.db")).expect("state");
    for (stdin, expected) in rows {
        let mut command = cluster.program("sh");
        command.args(["-c", "ulimit -d 262144; exec \"$0\" apply -f -", env!("CARGO_BIN_EXE_kloop")]);
        let said = cluster.run_program(&mut command, &stdin);
        assert_eq!(wrong(&cluster, &before, &said, 1, expected), "", "{}", head(&stdin));
    }
}

#[test]
fn invalid_utf8_is_refused() {
    let cluster = cluster();
    let before = fs::read(cluster.home().join("state.db")).expect("state");
    let utf16: Vec<u8> = "apiVersion: v1".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (name, bytes) in
        [("latin", &b"a: \xe9t\xe9\n"[..]), ("utf16", &utf16), ("zeros", &[0; 4096]), ("escapes", b"a: \x1b[2J\n")]
    {
        let path = cluster.home().join(format!("{name}.yaml"));
        fs::write(&path, bytes).unwrap();
        let said = cluster.kloop(&format!("apply -f {}", path.display()));
        assert_eq!(wrong(&cluster, &before, &said, 1, &format!("{name}.yaml")), "", "{name}");
    }
}

#[test]
fn invalid_envelopes_are_refused() {
    refused(vec![
        row("{kind: ConfigMap, metadata: {name: x}}", "apiVersion not set"),
        row("{apiVersion: v1, metadata: {name: x}}", "kind not set"),
        row(
            "{apiVersion: v1, kind: configmap, metadata: {name: x}}",
            "no matches for kind \"configmap\" in version \"v1\"",
        ),
        row(
            "{apiVersion: v1, kind: Nonsense, metadata: {name: x}}",
            "no matches for kind \"Nonsense\" in version \"v1\"",
        ),
        row(
            "{apiVersion: apps/v1, kind: Pod, metadata: {name: x}}",
            "no matches for kind \"Pod\" in version \"apps/v1\"",
        ),
        row(
            "{apiVersion: extensions/v1beta1, kind: Deployment, metadata: {name: x}}",
            "no matches for kind \"Deployment\" in version \"extensions/v1beta1\"",
        ),
        row("{apiVersion: v1, kind: ConfigMap}", "resource name may not be empty"),
        row("{apiVersion: v1, kind: ConfigMap, metadata: {generateName: x-}}", "cannot use generate name with apply"),
        row(
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: nowhere}}",
            "namespaces \"nowhere\" not found",
        ),
        row(
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: {a: 1}}",
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap",
        ),
        row("{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, dta: {a: b}}", "unknown field \"dta\""),
        row("{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, dta: {a: b}}", "did you mean \"data\"?"),
        row(
            "{apiVersion: v1, kind: ConfigMap, metadata: [1]}",
            "unable to decode \"STDIN\": json: cannot unmarshal array into Go struct field metadataOnlyObject.metadata",
        ),
    ]);
}

#[test]
fn invalid_names_and_metadata_are_refused() {
    let long = "n".repeat(254);
    refused(vec![
        meta("{name: Upper}", "a lowercase RFC 1123 subdomain must consist of"),
        meta("{name: under_score}", "a lowercase RFC 1123 subdomain"),
        meta("{name: ..}", "metadata.name: Invalid value"),
        meta("{name: a/b}", "metadata.name: Invalid value"),
        meta("{name: \"a%2fb\"}", "metadata.name: Invalid value"),
        meta("{name: \"a b\"}", "metadata.name: Invalid value"),
        meta("{name: -lead}", "metadata.name: Invalid value"),
        meta("{name: trail.}", "metadata.name: Invalid value"),
        meta("{name: \"caf\\u00e9\"}", "metadata.name: Invalid value"),
        meta("{name: \"a\\nb\"}", "metadata.name: Invalid value"),
        meta("{name: \"a\\e[31mred\"}", "metadata.name: Invalid value"),
        meta("{name: \"a\\u202eb\"}", "metadata.name: Invalid value"),
        (meta("{name: LONG}", "").0.replace("LONG", &long), "must be no more than 253 characters"),
        meta(
            "{name: 12}",
            "error: unable to decode \"STDIN\": json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string",
        ),
        meta("{name: 12}", "hint: STDIN:1: the value of \"metadata.name\" has the wrong type; put it into quotes"),
        meta("{name: on}", "put it into quotes (yes, no, on, off, y, n, true and false are booleans"),
        meta("{}", "hint: STDIN:1: the ConfigMap has no metadata.name"),
        meta("{name: x, namespace: 12}", "into Go struct field ObjectMeta.metadata.namespace of type string"),
        meta("{name: x, namespace: n}", "the value of \"metadata.namespace\" has the wrong type; put it into quotes"),
        meta("{name: x, labels: {\"\": b}}", "metadata.labels: Invalid value"),
        meta("{name: x, labels: {a/b/c: d}}", "metadata.labels: Invalid value"),
        meta("{name: x, labels: {\"a b\": d}}", "metadata.labels: Invalid value"),
        meta("{name: x, labels: {a: \"b c\"}}", "metadata.labels: Invalid value"),
        meta(
            "{name: x, labels: {a: true}}",
            "cannot unmarshal bool into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (meta("{name: x, labels: {a: LONG}}", "").0.replace("LONG", &"v".repeat(64)), "must be no more than 63 bytes"),
        meta(
            "{name: x, annotations: {a: 1}}",
            "cannot unmarshal number into Go struct field ObjectMeta.metadata.annotations of type string",
        ),
        meta("{name: x, annotations: {\"a b\": c}}", "metadata.annotations: Invalid value"),
        (
            meta("{name: x, annotations: {a: LONG}}", "").0.replace("LONG", &"v".repeat(257 << 10)),
            "metadata.annotations: Too long",
        ),
        meta(
            "{name: x, ownerReferences: [{apiVersion: v1, kind: Pod, name: p}]}",
            "metadata.ownerReferences.uid: Invalid value",
        ),
        meta("{name: x, finalizers: [\"no domain\"]}", "metadata.finalizers"),
    ]);
}

#[test]
fn invalid_quantities_and_numbers_are_refused() {
    let limit = |value: &str, expected: &'static str| {
        container(&format!("resources: {{limits: {{memory: {value}}}}}"), expected)
    };
    refused(vec![
        limit("\"\"", "quantities must match the regular expression"),
        limit("1.5.2", "quantities must match the regular expression"),
        limit("\"1 Gi\"", "quantities must match the regular expression"),
        limit("NaN", "quantities must match the regular expression"),
        limit("1gi", "quantities must match the regular expression"),
        limit("\"-1\"", "must be greater than or equal to 0"),
        container("resources: {requests: {cpu: 2}, limits: {cpu: 1}}", "must be less than or equal to cpu limit of 1"),
        container("ports: [{containerPort: 0}]", "containerPort: Required value"),
        container("ports: [{containerPort: 65536}]", "must be between 1 and 65535"),
        container("ports: [{containerPort: \"80\"}]", "cannot be handled as a Pod"),
        container("ports: [{containerPort: 80, name: A_B}]", "ports[0].name: Invalid value"),
        container(
            "livenessProbe: {exec: {command: [a]}, httpGet: {port: 1}}",
            "may not specify more than 1 handler type",
        ),
        container("livenessProbe: {exec: {command: [a]}, periodSeconds: -1}", "must be greater than or equal to 0"),
        container("livenessProbe: {}", "must specify a handler type"),
        container("livenessProbe: {httpGet: {port: 0}}", "must be between 1 and 65535"),
        deployment("replicas: -1", "must be greater than or equal to 0"),
        deployment("replicas: 2147483648", "cannot be handled as a Deployment"),
        deployment("replicas: \"3\"", "cannot be handled as a Deployment"),
        deployment("replicas: 1.5", "cannot be handled as a Deployment"),
        deployment("strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 0}}", "may not be 0 when `maxSurge` is 0"),
        deployment("strategy: {rollingUpdate: {maxSurge: 1.5%}}", "a valid percent string must be"),
        deployment("strategy: {rollingUpdate: {maxUnavailable: 150%}}", "must not be greater than 100%"),
        deployment(
            "strategy: {type: Recreate, rollingUpdate: {maxSurge: 1}}",
            "may not be specified when strategy `type` is 'Recreate'",
        ),
        deployment("strategy: {type: Sideways}", "spec.strategy: Unsupported value"),
        deployment("progressDeadlineSeconds: 5, minReadySeconds: 10", "must be greater than minReadySeconds"),
    ]);
}

#[test]
fn invalid_pods_and_workloads_are_refused() {
    let selector = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {SELECTOR, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}";
    let selecting = |text: &str, expected: &'static str| (selector.replace("SELECTOR", text), expected);
    let data = |fields: &str, expected: &'static str| {
        (format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: x}}, {fields}}}"), expected)
    };
    let secret = |fields: &str, expected: &'static str| {
        (format!("{{apiVersion: v1, kind: Secret, metadata: {{name: x}}, {fields}}}"), expected)
    };
    refused(vec![
        pod("{}", "spec.containers: Required value"),
        pod("{containers: []}", "spec.containers: Required value"),
        pod("{containers: [{name: c}]}", "spec.containers[0].image: Required value"),
        pod("{containers: [{image: i}]}", "spec.containers[0].name: Required value"),
        pod(
            "{containers: [{name: c, image: i}, {name: c, image: i}]}",
            "spec.containers[1].name: Duplicate value: \"c\"",
        ),
        pod("{containers: [{name: c, image: i}], initContainers: [{name: c, image: i}]}", "Duplicate value: \"c\""),
        pod(
            "{containers: [{name: c, image: i}], restartPolicy: Sometimes}",
            "spec.restartPolicy: Unsupported value: \"Sometimes\"",
        ),
        pod("{containers: [{name: c, image: i}], contaniers: []}", "unknown field \"spec.contaniers\""),
        pod("{containers: {name: c}}", "cannot be handled as a Pod"),
        container("command: sleep 1", "cannot be handled as a Pod"),
        container("env: [{name: a=b}]", "env[0].name: Invalid value"),
        container("env: [{name: \"\"}]", "env[0].name: Required value"),
        container(
            "env: [{name: A, value: a, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]",
            "may not be specified when `value` is not empty",
        ),
        container(
            "env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.nothing}}}]",
            "field label not supported: spec.nothing",
        ),
        container("env: [{name: A, value: 1}]", "cannot be handled as a Pod"),
        container("volumeMounts: [{name: v, mountPath: /v}]", "volumeMounts[0].name: Not found: \"v\""),
        container("imagePullPolicy: Perhaps", "Unsupported value: \"Perhaps\""),
        selecting("replicas: 1", "spec.selector: Required value"),
        selecting("selector: {}", "empty selector is invalid for deployment"),
        selecting("selector: {matchLabels: {a: other}}", "`selector` does not match template `labels`"),
        selecting(
            "selector: {matchExpressions: [{key: a, operator: In}]}",
            "must be specified when `operator` is 'In' or 'NotIn'",
        ),
        selecting(
            "selector: {matchExpressions: [{key: a, operator: Gt, values: [\"1\"]}]}",
            "not a valid selector operator",
        ),
        row(
            "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {spec: {containers: [{name: c, image: i}]}}}}",
            "spec.template.spec.restartPolicy: Required value",
        ),
        row(
            "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {backoffLimit: -1, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}",
            "spec.backoffLimit: Invalid value",
        ),
        row(
            "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {selector: {a: b}}}",
            "spec.ports: Required value",
        ),
        row(
            "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{port: 80}, {port: 81}]}}",
            "spec.ports[0].name: Required value",
        ),
        row(
            "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {clusterIP: 1.2.3, ports: [{port: 80}]}}",
            "spec.clusterIPs[0]: Invalid value",
        ),
        row(
            "{apiVersion: v1, kind: Service, metadata: {name: S_x}, spec: {ports: [{port: 80}]}}",
            "metadata.name: Invalid value",
        ),
        row("{apiVersion: v1, kind: Namespace, metadata: {name: a.b}}", "metadata.name: Invalid value"),
        data("data: {\"..\": x}", "data[..]: Invalid value"),
        data("data: {a/b: x}", "data[a/b]: Invalid value"),
        data("binaryData: {a: \"not base64!\"}", "illegal base64 data"),
        data("data: {a: x}, binaryData: {a: eA==}", "data[a]: Invalid value"),
        secret("data: {a: \"not base64!\"}", "illegal base64 data"),
        secret("type: kubernetes.io/tls, data: {a: eA==}", "data[tls.crt]: Required value"),
    ]);
}

#[test]
fn invalid_pod_users_are_refused() {
    let unmasked = "securityContext: {procMount: Unmasked}";
    let one = "containers: [{name: c, image: busybox}]";
    refused(vec![
        pod(
            &format!("{{hostUsers: false, hostPID: true, {one}}}"),
            "spec.HostPID: Forbidden: when `hostUsers` is false",
        ),
        pod(
            &format!("{{hostUsers: false, hostIPC: true, {one}}}"),
            "spec.HostIPC: Forbidden: when `hostUsers` is false",
        ),
        pod(
            &format!("{{hostUsers: false, hostNetwork: true, {one}}}"),
            "spec.hostNetwork: Forbidden: when `hostUsers`",
        ),
        container(unmasked, "procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`"),
    ]);
    let cluster = cluster();
    let (free, _) = pod(&format!("{{hostUsers: false, containers: [{{name: c, image: busybox, {unmasked}}}]}}"), "");
    assert_eq!(cluster.run(&["apply", "-f", "-"], &free).code, 0);
}

#[test]
fn forbidden_changes_are_refused() {
    let stone = |fields: &str, expected: &'static str| {
        (format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: stone}}, {fields}}}"), expected)
    };
    let web = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {selector: {matchLabels: {app: other}}, template: {metadata: {labels: {app: other}}, spec: {containers: [{name: main, image: busybox}]}}}}";
    refused(vec![
        stone("immutable: true, data: {a: \"2\"}", "field is immutable when `immutable` is set"),
        stone("immutable: false, data: {a: \"1\"}", "field is immutable when `immutable` is set"),
        row(web, "spec.selector: Invalid value"),
        row(
            "{apiVersion: v1, kind: Pod, metadata: {name: pod}, spec: {containers: [{name: main, image: busybox, command: [x]}]}}",
            "pod updates may not change fields other than",
        ),
        row(
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, resourceVersion: \"1\"}, data: {a: \"2\"}}",
            "the object has been modified; please apply your changes to the latest version",
        ),
        row(
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, uid: other}, data: {a: \"2\"}}",
            "metadata.uid: Invalid value: \"other\": field is immutable",
        ),
    ]);
}
