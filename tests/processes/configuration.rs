//! The configuration of containers, and containers whose configuration is missing.

use super::pod;
use crate::cluster::Cluster;

const WAITING: &str = "{.status.containerStatuses[0].state.waiting.reason}";
const MESSAGE: &str = "{.status.containerStatuses[0].state.waiting.message}";

#[test]
fn pod_waits_for_its_configmap() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let script = "echo \"$COLOR\"; exec sleep 1000";
    cluster.apply(
        &pod("eager", "Always", 5, script)
            .replace("image: debian", "image: debian, envFrom: [{configMapRef: {name: paint}}]"),
    );
    cluster.until_reads("pod/eager", WAITING, "CreateContainerConfigError");
    assert_eq!(cluster.read("pod/eager", MESSAGE), "configmap \"paint\" not found");
    cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: paint}, data: {COLOR: green}}");
    cluster.ready_pods("app=eager", 1);
    cluster.until_logs("eager", "green\n");
    assert_eq!(cluster.read("pod/eager", "{.status.containerStatuses[0].restartCount}"), "0");
}

#[test]
fn unknown_image_error_says_what_to_write() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: lost}, spec: {containers: [{name: main, image: no-such-program-anywhere}]}}");
    cluster.until("the image cannot be pulled", || {
        ["ErrImagePull", "ImagePullBackOff"].contains(&cluster.read("pod/lost", WAITING).as_str())
    });
    cluster.until("an event says what to write", || {
        let events = cluster.ok("get events");
        events.contains("no-such-program-anywhere") && events.contains("command:")
    });
    let said = cluster.ok("get pods --no-headers");
    assert!(said.contains("ErrImagePull") || said.contains("ImagePullBackOff"), "{said}");
}

#[test]
fn pod_with_many_megabytes_of_configuration_starts() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let items: Vec<String> = (0..12).map(|index| format!("{{key: a, path: f{index}}}")).collect();
    let large = format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: large}}, data: {{a: {}}}}}",
        "x".repeat(1_000_000)
    );
    assert_eq!(cluster.run(&["create", "-f", "-"], &large).code, 0, "kubectl's apply would copy it into an annotation");
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: reader}}, spec: {{restartPolicy: Never, \
         volumes: [{{name: v, configMap: {{name: large, items: [{}]}}}}], \
         containers: [{{name: main, image: busybox, command: [sh, -c, 'cat /v/f* | wc -c'], \
         volumeMounts: [{{name: v, mountPath: /v}}]}}]}}}}",
        items.join(", ")
    ));
    cluster.ok("wait pod/reader --for=jsonpath={.status.phase}=Succeeded --timeout=60s");
    assert_eq!(cluster.ok("logs reader").trim(), "12000000");
}

#[test]
fn every_source_of_environment_arrives() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.apply(
        r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {LEVEL: debug, mode: fast}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
data: {token: czNjcmV0}
---
apiVersion: v1
kind: Pod
metadata: {name: told, labels: {app: told, tier: "1"}}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: busybox
    command: [sh, -c, 'for name in LEVEL P_mode TOKEN NAME SPACE TIER CPU BOTH LITERAL ARG; do eval "echo $name=\"\${$name}\""; done; echo "$0 $1"', $(NAME), $(UNKNOWN)]
    resources: {limits: {cpu: 500m, memory: 64Mi}}
    envFrom:
    - configMapRef: {name: settings}
    - {prefix: P_, configMapRef: {name: settings}}
    - configMapRef: {name: absent, optional: true}
    env:
    - {name: TOKEN, valueFrom: {secretKeyRef: {name: keys, key: token}}}
    - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: SPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    - {name: TIER, valueFrom: {fieldRef: {fieldPath: "metadata.labels['tier']"}}}
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}
    - {name: BOTH, value: "$(NAME) in $(SPACE)"}
    - {name: LITERAL, value: "$$(NAME)"}
"#,
    );
    cluster.until_reads("pod/told", "{.status.phase}", "Succeeded");
    let expected = "LEVEL=debug\nP_mode=fast\nTOKEN=s3cret\nNAME=told\nSPACE=default\nTIER=1\nCPU=500\nBOTH=told in default\nLITERAL=$(NAME)\nARG=\ntold $(UNKNOWN)\n";
    assert_eq!(cluster.log("told", "main"), expected);
}

#[test]
fn init_containers_run_in_order_before_the_main_ones() {
    let cluster = Cluster::new();
    let _plane = cluster.watch_with(&["--restart-backoff", "1s"]);
    cluster.apply(
        r#"
apiVersion: v1
kind: Pod
metadata: {name: ordered, annotations: {kloop.dev/filesystem: host}, labels: {app: ordered}}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: first, image: busybox, command: [sh, -c, 'echo first >> "$HOME/order"']}
  - {name: second, image: busybox, command: [sh, -c, 'echo second >> "$HOME/order"; test "$(wc -l < "$HOME/order")" -ge 3']}
  containers:
  - {name: main, image: busybox, command: [sh, -c, 'echo main >> "$HOME/order"; exec sleep 1000']}
"#,
    );
    cluster.ready_pods("app=ordered", 1);
    // The second one fails once and is tried again.
    cluster.until("all have written in order", || {
        std::fs::read_to_string(cluster.home().join("order")).unwrap() == "first\nsecond\nsecond\nmain\n"
    });
    assert_eq!(cluster.read("pod/ordered", "{.status.initContainerStatuses[*].restartCount}"), "0 1");
}
