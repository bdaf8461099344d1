//! The pull policy that an image's name implies.

use super::reference::split;

/// Returns `Always` for the explicit or implied tag `latest`, else `IfNotPresent`. A malformed name has no tag.
pub fn pull_policy(image: &str) -> &'static str {
    let (repository, tag, digest) = split(image);
    let path = repository.split_once('/').map_or(repository, |(_, path)| path);
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"/._-:".contains(&byte);
    let named = !path.is_empty() && path.bytes().all(known);
    let latest = named && tag.map_or(digest.is_none_or(str::is_empty), |tag| tag == "latest");
    if latest { "Always" } else { "IfNotPresent" }
}

#[cfg(test)]
mod tests {
    #[test]
    fn latest_is_pulled_always() {
        let table = [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1", "IfNotPresent"),
            ("host:5000/nginx", "Always"),
            ("host:5000/nginx:1", "IfNotPresent"),
            ("nginx@sha256:01", "IfNotPresent"),
            ("", "IfNotPresent"),
            (" nginx", "IfNotPresent"),
            ("./server", "Always"),
        ];
        for (image, policy) in table {
            assert_eq!(super::pull_policy(image), policy, "{image}");
        }
    }
}
