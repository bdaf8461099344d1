//! Whether a container sees the machine's files directly, or under a private layer.

use super::image;
use super::pod::{LocalPod, PodContainer};
use crate::kinds::pod::filesystem::ANNOTATION;

/// Whether the pod's annotation, or else the Image object, requests that a container sees the machine's files directly.
pub fn wants_machine(pod: &LocalPod, member: &PodContainer) -> bool {
    match pod.object.annotation(ANNOTATION) {
        Some("host") => true,
        Some("private") => false,
        _ => image::wants_host_files(pod, member),
    }
}

/// Whether a container sees the machine's files directly.
pub fn sees_machine(pod: &LocalPod, member: &PodContainer) -> bool {
    pod.is_simulated || !pod.world.settings.private_files || wants_machine(pod, member)
}
