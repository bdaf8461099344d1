//! The built binary as a user meets it, with real processes: from `apply` to a page over HTTP, and through everything that
//! happens to processes and control planes in between.

mod applications;
mod churn;
mod configuration;
mod control_plane;
mod disk;
mod ending;
mod exec;
mod guestbook;
mod healing;
mod hooks;
mod hostile;
mod images;
mod ingress;
mod jobs;
mod limits;
mod logs;
mod network;
mod nodes;
mod policies;
mod probes;
mod profiles;
mod ready_images;
mod rollouts;
mod security;
mod static_pods;
mod terminals;
mod users;
mod volumes;
mod watching;

/// A Deployment of `sleep`s with the label `app: NAME`. Its grace period is short, because `sleep` heeds SIGTERM anyway.
fn deployment(name: &str, replicas: u32, seconds: u32) -> String {
    format!(
        r#"
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - {{name: main, image: busybox, command: [sleep, "{seconds}"]}}
"#
    )
}

/// A Pod with the label `app: NAME` and one container that runs a shell script.
fn pod(name: &str, restart: &str, grace: u32, script: &str) -> String {
    let script = serde_json::Value::from(script);
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: {name}}}}}
spec:
  restartPolicy: {restart}
  terminationGracePeriodSeconds: {grace}
  containers:
  - {{name: main, image: busybox, command: [sh, -c, {script}]}}
"#
    )
}
