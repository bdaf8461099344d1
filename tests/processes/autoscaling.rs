//! Autoscalers that use the measured CPU of their pods.

use crate::cluster::Cluster;
use std::fs;

#[test]
fn replicas_follow_the_cpu_that_pods_use() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let busy = cluster.home().join("busy");
    fs::write(&busy, "").expect("written");
    // The pods use CPU while the file exists: one shell loop takes far more than a hundredth of a core.
    let script = format!(
        "while [ -e {} ]; do i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done; done; exec sleep 1000",
        busy.display()
    );
    cluster.apply(&format!(
        r#"
apiVersion: apps/v1
kind: Deployment
metadata: {{name: worker}}
spec:
  selector: {{matchLabels: {{app: worker}}}}
  template:
    metadata: {{labels: {{app: worker}}, annotations: {{kloop.dev/filesystem: host}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: busybox
        command: [sh, -c, "{script}"]
        resources: {{requests: {{cpu: 10m}}, limits: {{cpu: 200m}}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: worker}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: worker}}
  minReplicas: 1
  maxReplicas: 3
  metrics: [{{type: Resource, resource: {{name: cpu, target: {{type: Utilization, averageUtilization: 50}}}}}}]
  behavior: {{scaleDown: {{stabilizationWindowSeconds: 0}}}}
"#
    ));
    cluster.until_reads("deploy/worker", "{.status.readyReplicas}", "3");
    let told = cluster.ok("describe hpa worker");
    assert!(told.contains("SuccessfulRescale") && told.contains("cpu resource utilization"), "{told}");
    let current = cluster.read("hpa/worker", "{.status.currentMetrics[0].resource.current.averageUtilization}");
    assert!(current.parse::<u32>().is_ok_and(|percent| percent > 50), "{current}");
    fs::remove_file(busy).expect("removed");
    cluster.until_reads("deploy/worker", "{.status.replicas}", "1");
    cluster.ok("delete hpa/worker deploy/worker");
    cluster.nothing_is_left();
}
