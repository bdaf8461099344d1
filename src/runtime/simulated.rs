//! The simulated twin.
use crate::world::plan::Start;

/// A start to build tests on.
pub fn a_start(uid: &str, container: &str, attempt: u32) -> Start {
    Start {
        pod_uid: uid.into(),
        namespace: "default".into(),
        pod: "p".into(),
        node: "n".into(),
        ip: "127.77.1.1".into(),
        hostname: "p".into(),
        container: container.into(),
        attempt,
        image: "busybox".into(),
        manifest_dir: None,
        command: Vec::new(),
        args: Vec::new(),
        env: Vec::new(),
        working_dir: None,
        pull_policy: "IfNotPresent".into(),
        termination_message_path: "/dev/termination-log".into(),
        termination_from_logs: false,
        stdin: false,
        tty: false,
        stop_signal: "SIGTERM".into(),
        spec: serde_json::Value::Null,
        script: None,
    }
}
