//! The operations of subresources that connect to a pod, a Service or a node: streams and proxies.
//!
//! Knows: their methods, and the parameters that their option kinds have. Start reading at [`DescribedResource::add_connection`].

use super::operations::{DescribedResource, capitalize, query};
use crate::serve::subresource::Subresource;
use serde_json::{Map, Value, json};

/// A parameter of queries: name, type and text.
type Parameter = (&'static str, &'static str, &'static str);

const COMMAND: Parameter = ("command", "string", "Command to run, without a shell");
const CONTAINER: Parameter = ("container", "string", "Container to connect to");
const STREAMS: [Parameter; 4] = [
    ("stderr", "boolean", "Receive the error output"),
    ("stdin", "boolean", "Send the standard input"),
    ("stdout", "boolean", "Receive the output"),
    ("tty", "boolean", "Use a terminal"),
];
const PORTS: Parameter = ("ports", "integer", "Ports to forward; required with WebSockets");
const PATH: Parameter = ("path", "string", "Path of the request to the target");

/// The methods of streams, and of proxies.
const STREAM_METHODS: [&str; 2] = ["get", "post"];
const PROXY_METHODS: [&str; 7] = ["delete", "get", "head", "options", "patch", "post", "put"];

/// Whether a subresource connects to something instead of answering with an object.
pub fn is_connection(below: &Subresource) -> bool {
    matches!(below.name, "exec" | "attach" | "portforward" | "proxy")
}

impl DescribedResource<'_> {
    /// Adds the paths of a subresource that connects.
    pub fn add_connection(&self, below: &Subresource, paths: &mut Map<String, Value>) {
        let (path, scope) = self.object_path();
        let (methods, parameters) = match below.name {
            "exec" => (&STREAM_METHODS[..], [&[COMMAND, CONTAINER][..], &STREAMS].concat()),
            "attach" => (&STREAM_METHODS[..], [&[CONTAINER][..], &STREAMS].concat()),
            "portforward" => (&STREAM_METHODS[..], vec![PORTS]),
            _ => (&PROXY_METHODS[..], vec![PATH]),
        };
        let mut add = |path: String, suffix: &str, more: Option<Value>| {
            let mut item = Map::new();
            for method in methods {
                item.insert((*method).to_owned(), self.connection(method, (scope, suffix), below));
            }
            let mut all: Vec<Value> = parameters.iter().map(query).collect();
            all.extend(self.path_parameters(self.namespaced, true).as_array().into_iter().flatten().cloned());
            all.retain(|parameter| parameter["name"] != "pretty");
            all.extend(more);
            item.insert("parameters".into(), all.into());
            paths.insert(path, item.into());
        };
        let path = format!("{path}/{}", below.name);
        if below.name == "proxy" {
            let rest = json!({"name": "path", "in": "path", "required": true, "description": "path to the resource",
                "schema": {"type": "string", "uniqueItems": true}});
            add(format!("{path}/{{path}}"), "WithPath", Some(rest));
        }
        add(path, "", None);
    }

    fn connection(&self, method: &str, (scope, suffix): (&str, &str), below: &Subresource) -> Value {
        let (group, version) = self.tag();
        let (verb, title) = (capitalize(method), capitalize(below.name));
        let id =
            format!("connect{}{}{verb}{scope}{}{title}{suffix}", capitalize(&group), capitalize(version), self.kind);
        let content = json!({"*/*": {"schema": {"type": "string"}}});
        json!({
            "operationId": id, "tags": [format!("{group}_{version}")], "x-kubernetes-action": "connect",
            "description": format!("connect {} requests to {} of {}", method.to_ascii_uppercase(), below.name, self.kind),
            "x-kubernetes-group-version-kind": {"group": self.group, "version": self.version, "kind": below.kind},
            "responses": {"200": {"description": "OK", "content": content}, "401": {"description": "Unauthorized"}},
        })
    }
}
