//! Termination messages: the path to which a container writes one, and the maximum length that is kept.

use super::filesystem;
use super::pod::{LocalPod, PodContainer};
use crate::world::{EventType, Plan};
use k8s_openapi::api::core::v1::Container;

/// Default path of the termination message.
pub const DEFAULT_PATH: &str = "/dev/termination-log";
/// Maximum size of all termination messages of a pod (Kubernetes: MaxPodTerminationMessageLogLength).
const MAX_POD_BYTES: usize = 12 * 1024;

/// `terminationMessagePath`.
pub fn path(container: &Container) -> &str {
    container.termination_message_path.as_deref().filter(|path| !path.is_empty()).unwrap_or(DEFAULT_PATH)
}

/// Whether the container is known to write a termination message: the manifest sets its path, or the command names it. On the machine's
/// own files an ordinary user could not write it, and root would leave it there.
pub fn needs_file(container: &Container) -> bool {
    let words = container.command.iter().chain(&container.args).flatten();
    path(container) != DEFAULT_PATH || words.into_iter().any(|word| word.contains(DEFAULT_PATH))
}

/// Truncates a message to the container's even share of the limit for all messages of a pod.
pub fn truncate_message(containers: usize, message: &str) -> Option<String> {
    let share = MAX_POD_BYTES / containers.max(1);
    let short = &message[..message.floor_char_boundary(share)];
    Some(short.to_owned()).filter(|message| !message.is_empty())
}

/// Adds an event at a pod's first start about containers whose termination message has no file of its own.
pub fn report_shared_message_path(pod: &LocalPod, plan: &mut Plan) {
    let without = |member: &&PodContainer| needs_file(&member.spec) && filesystem::sees_machine(pod, member);
    for member in pod.members.iter().filter(without) {
        let message = format!(
            "container {}: terminationMessagePath {} is a file of the machine, which all containers share. Write the message to the file \
             $KLOOP_TERMINATION_LOG instead",
            member.spec.name,
            path(&member.spec)
        );
        plan.event(pod.row, EventType::Warning, "TerminationMessageShared", message);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{TestMachine, pod};
    use serde_json::json;

    #[test]
    fn shared_termination_message_path_is_reported() {
        let table = [
            (json!({}), false),
            (json!({"terminationMessagePath": "/dev/termination-log"}), false),
            (json!({"terminationMessagePath": "/tmp/why"}), true),
            (json!({"command": ["sh", "-c"], "args": ["echo x > /dev/termination-log"]}), true),
        ];
        for (container, expected) in table {
            let mut container = container;
            (container["name"], container["image"]) = ("c".into(), "a".into());
            let told = |private: bool| {
                let mut machine = TestMachine::new(pod(json!({"containers": [container.clone()]})));
                machine.world.settings.private_files = private;
                machine.settle();
                machine.reasons().contains(&"TerminationMessageShared")
            };
            assert_eq!((told(true), told(false)), (false, expected), "{container}");
        }
    }

    #[test]
    fn message_of_many_containers_says_little_of_each() {
        let kept = |containers| super::truncate_message(containers, &"x".repeat(4096)).map(|message| message.len());
        assert_eq!([kept(1), kept(3), kept(6)], [Some(4096), Some(4096), Some(2048)]);
        assert_eq!(super::truncate_message(1, ""), None);
    }
}
