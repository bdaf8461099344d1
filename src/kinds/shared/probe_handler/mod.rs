//! Handlers of probes and lifecycle hooks. `actions` has the defaults, checks and descriptions of each type.
//!
//! Never: runs a handler; `crate::runtime::probe` does. Start reading at [`HandlerType`], and at the table of all types below it.

mod actions;

use super::super::{FieldErrors, FieldPath};
use super::names;
use k8s_openapi::api::core::v1::{
    ExecAction, GRPCAction, HTTPGetAction, LifecycleHandler, Probe, SleepAction, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Deserialize;
use serde_json::Value;

/// Functions of a handler type that need no machine.
pub trait HandlerType {
    /// Its field in a probe or a hook.
    fn field(&self) -> &'static str;

    /// Sets the defaults of absent fields.
    fn fill_in_defaults(&mut self);

    /// Checks its fields. `grace` is the grace period of the pod.
    fn check(&self, grace: i64, path: &FieldPath, errors: &mut FieldErrors);

    /// Replaces the name of a port by the number from `number_of`.
    fn resolve_port(&mut self, _number_of: &dyn Fn(&str) -> Option<i32>) {}

    /// Describes it as `kubectl describe` does.
    fn describe(&self) -> String;

    /// Describes it briefly, for use within a sentence.
    fn summarize(&self) -> String;
}

/// Lists the types: variant, action, and field in probes, hooks or both.
macro_rules! handler_types {
    ($($(#[$doc:meta])* $variant:ident($action:ty) $(probe.$in_probe:ident)? $(hook.$in_hook:ident)?;)*) => {
        /// The action of a probe or a hook.
        #[derive(Clone, Debug, PartialEq)]
        pub enum ProbeHandler {
            $($(#[$doc])* $variant($action),)*
        }

        impl ProbeHandler {
            /// Returns the handlers of a probe; validation refuses more than one.
            pub fn all_of_probe(probe: &Probe) -> Vec<ProbeHandler> {
                let all = [$($(probe.$in_probe.clone().map(ProbeHandler::$variant),)?)*];
                all.into_iter().flatten().collect()
            }

            /// Returns the handlers of a hook; validation refuses more than one.
            pub fn all_of_hook(hook: &LifecycleHandler) -> Vec<ProbeHandler> {
                let all = [$($(hook.$in_hook.clone().map(ProbeHandler::$variant),)?)*];
                all.into_iter().flatten().collect()
            }

            /// Returns the functions of its type.
            fn as_type(&self) -> &dyn HandlerType {
                match self {
                    $(ProbeHandler::$variant(action) => action,)*
                }
            }

            fn as_type_mut(&mut self) -> &mut dyn HandlerType {
                match self {
                    $(ProbeHandler::$variant(action) => action,)*
                }
            }
        }

        /// Sets the defaults of a probe's handlers.
        pub fn fill_in_probe(probe: &mut Probe) {
            $($(probe.$in_probe.iter_mut().for_each(HandlerType::fill_in_defaults);)?)*
        }

        /// Sets the defaults of a hook's handlers.
        pub fn fill_in_hook(hook: &mut LifecycleHandler) {
            $($(hook.$in_hook.iter_mut().for_each(HandlerType::fill_in_defaults);)?)*
        }
    };
}

handler_types! {
    /// Runs a command in the container.
    Exec(ExecAction) probe.exec hook.exec;
    /// Sends an HTTP request.
    HttpGet(HTTPGetAction) probe.http_get hook.http_get;
    /// Connects to a port.
    TcpSocket(TCPSocketAction) probe.tcp_socket hook.tcp_socket;
    /// Calls the health checking protocol of gRPC.
    Grpc(GRPCAction) probe.grpc;
    /// Sleeps.
    Sleep(SleepAction) hook.sleep;
}

impl ProbeHandler {
    /// Returns the handler of a probe.
    pub fn from_probe(probe: &Probe) -> Option<ProbeHandler> {
        ProbeHandler::all_of_probe(probe).into_iter().next()
    }

    /// Returns the handler of a hook.
    pub fn from_hook(hook: &LifecycleHandler) -> Option<ProbeHandler> {
        ProbeHandler::all_of_hook(hook).into_iter().next()
    }

    /// Decodes the handler of a stored probe or hook.
    pub fn read(stored: &Value) -> Option<ProbeHandler> {
        let from_hook = || ProbeHandler::from_hook(&LifecycleHandler::deserialize(stored).ok()?);
        ProbeHandler::from_probe(&Probe::deserialize(stored).ok()?).or_else(from_hook)
    }

    /// Replaces the name of its port by the number from `number_of`, if there is one.
    pub fn with_port(mut self, number_of: impl Fn(&str) -> Option<i32>) -> ProbeHandler {
        self.as_type_mut().resolve_port(&number_of);
        self
    }

    /// Describes it as `kubectl describe` does.
    pub fn describe(&self) -> String {
        self.as_type().describe()
    }

    /// Describes it briefly, for use within a sentence.
    pub fn summarize(&self) -> String {
        self.as_type().summarize()
    }
}

/// Checks the handlers of a probe or hook, which must have exactly one.
pub fn check(handlers: &[ProbeHandler], grace: i64, path: &FieldPath, errors: &mut FieldErrors) {
    let Some((first, others)) = handlers.split_first() else {
        return errors.required(path, "must specify a handler type");
    };
    let first = first.as_type();
    first.check(grace, &path.child(first.field()), errors);
    for other in others {
        errors.forbidden(&path.child(other.as_type().field()), "may not specify more than 1 handler type");
    }
}

/// Checks a port by number or by name.
fn check_port(port: &IntOrString, path: &FieldPath, errors: &mut FieldErrors) {
    match port {
        IntOrString::Int(number) => errors.each_invalid(path, *number, names::port((*number).into())),
        IntOrString::String(name) => errors.each_invalid(path, name.as_str(), names::port_name(name)),
    }
}

/// Replaces the name of a port by its number, if there is one.
fn resolve(port: &mut IntOrString, number_of: &dyn Fn(&str) -> Option<i32>) {
    if let IntOrString::String(name) = port
        && let Some(number) = number_of(name)
    {
        *port = IntOrString::Int(number);
    }
}

/// The number or the name of a port.
fn port_text(port: &IntOrString) -> String {
    match port {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(name) => name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn handler_is_described_by_its_type() {
        let table = [
            (json!({"exec": {"command": ["a", "b"]}}), "exec [a b]", "a b"),
            (
                json!({"httpGet": {"port": "web", "path": "/x", "scheme": "HTTP"}}),
                "http-get http://:web/x",
                "GET /x on port web",
            ),
            (json!({"tcpSocket": {"port": 80, "host": "h"}}), "tcp-socket h:80", "a connection to port 80"),
            (json!({"grpc": {"port": 9, "service": "s"}}), "grpc <pod>:9 s", "grpc on port 9"),
            (json!({"sleep": {"seconds": 3}}), "unknown", "a sleep of 3s"),
        ];
        for (stored, description, summary) in table {
            let handler = ProbeHandler::read(&stored).expect("a handler");
            assert_eq!((&*handler.describe(), &*handler.summarize()), (description, summary), "{stored}");
        }
        assert_eq!(ProbeHandler::read(&json!({"periodSeconds": 1})), None);
    }

    #[test]
    fn port_name_becomes_a_number_if_it_is_known() {
        let read = |port: Value| ProbeHandler::read(&json!({"tcpSocket": {"port": port}})).expect("a handler");
        let number_of = |name: &str| (name == "web").then_some(80);
        assert_eq!(read(json!("web")).with_port(number_of), read(json!(80)));
        assert_eq!(read(json!("db")).with_port(number_of), read(json!("db")));
    }
}
