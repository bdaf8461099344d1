//! Values that tests of the runtime build on, in this crate and in `tests/`.

use crate::world::Start;

/// Returns a start without special settings.
pub fn start_request(uid: &str, container: &str, attempt: u32) -> Start {
    Start {
        processes: Default::default(),
        pod_uid: uid.into(),
        namespace: "default".into(),
        pod: "p".into(),
        node: "n".into(),
        ip: "127.77.1.1".into(),
        hostname: "p".into(),
        host_network: false,
        uses_services: false,
        container: container.into(),
        attempt,
        image: "busybox".into(),
        requested_image: None,
        manifest_dir: None,
        command: Vec::new(),
        args: Vec::new(),
        env: Vec::new(),
        names: Default::default(),
        files: Default::default(),
        volume_paths: Vec::new(),
        file_keys: Vec::new(),
        working_dir: None,
        pull_policy: "IfNotPresent".into(),
        termination_message_path: "/dev/termination-log".into(),
        termination_from_logs: false,
        stdin: false,
        stdin_once: false,
        tty: false,
        limits: Default::default(),
        user: None,
        rights: Default::default(),
        again: Default::default(),
        stop_signal: "SIGTERM".into(),
        script: None,
    }
}
