//! The paths of a kubelet's server, each as the path of the API that has the same answer (`pkg/kubelet/server`).
//!
//! Never: answers a request. Start reading at [`translate`].

use super::request::ApiRequest;

/// Replaces a kubelet's path and parameters by those of the API. A path that a kubelet of kloop does not serve becomes an unknown one.
pub fn translate(node: &str, request: &mut ApiRequest) {
    let path = request.path.trim_matches('/').to_owned();
    let parts: Vec<&str> = path.split('/').collect();
    let pod = |namespace: &str, pod: &str, subresource: &str| {
        format!("/api/v1/namespaces/{namespace}/pods/{pod}/{subresource}")
    };
    // A uid between the pod and the container is possible in each; the pod's name decides.
    let (path, container) = match parts[..] {
        ["containerLogs", namespace, name, container] => (pod(namespace, name, "log"), Some(container)),
        [verb @ ("exec" | "attach"), namespace, name, container]
        | [verb @ ("exec" | "attach"), namespace, name, _, container] => (pod(namespace, name, verb), Some(container)),
        ["portForward", namespace, name] | ["portForward", namespace, name, _] => {
            (pod(namespace, name, "portforward"), None)
        }
        ["pods" | "runningpods" | "healthz" | "metrics"] | ["metrics", "resource"] | ["stats", "summary"] => {
            (format!("/api/v1/nodes/{node}/proxy/{path}"), None)
        }
        _ => (String::new(), None),
    };
    for (name, _) in &mut request.query {
        let word = match name.as_str() {
            "input" => "stdin",
            "output" => "stdout",
            "error" => "stderr",
            "port" => "ports",
            _ => continue,
        };
        word.clone_into(name);
    }
    request.query.extend(container.map(|container| ("container".to_owned(), container.to_owned())));
    request.path = path;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_a_kubelet_are_those_of_the_api() {
        let translated = |path: &str, query: &[(&str, &str)]| {
            let query = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let mut request = ApiRequest { path: path.to_owned(), query, ..ApiRequest::default() };
            translate("n", &mut request);
            let query: Vec<String> = request.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("{}?{}", request.path, query.join("&"))
        };
        assert_eq!(
            translated("/containerLogs/default/a/main", &[("follow", "true")]),
            "/api/v1/namespaces/default/pods/a/log?follow=true&container=main"
        );
        assert_eq!(
            translated("/exec/default/a/main", &[("command", "ls"), ("output", "1")]),
            "/api/v1/namespaces/default/pods/a/exec?command=ls&stdout=1&container=main"
        );
        assert_eq!(
            translated("/portForward/default/a", &[("port", "80")]),
            "/api/v1/namespaces/default/pods/a/portforward?ports=80"
        );
        assert_eq!(translated("/stats/summary", &[]), "/api/v1/nodes/n/proxy/stats/summary?");
        for unknown in ["/", "/run/default/a/main", "/api/v1/secrets", "/exec/default/a"] {
            assert_eq!(translated(unknown, &[]), "?", "{unknown}");
        }
    }
}
