//! `kloop create token`.

use crate::apiserver::remote::object_path;
use crate::apiserver::tokens;
use crate::cli::cluster::rest;
use crate::cli::command_line::flags::PrintFlags;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::client::ClientRequest;
use crate::kinds;
use crate::object::{Key, Object, Resource, Status, time};
use jiff::SignedDuration;
use serde_json::{Value, json};

/// Kinds that a token can be bound to.
const KINDS: [&str; 3] = ["Node", "Pod", "Secret"];

/// Request a service account token.
#[derive(clap::Args)]
#[command(
    override_usage = "SERVICE_ACCOUNT_NAME",
    after_help = "\
# Request a token to authenticate to the API server as the service account \"myapp\" in the current namespace
kloop create token myapp

# Request a token with a custom expiration
kloop create token myapp --duration 10m

# Request a token bound to an instance of a Secret object
kloop create token myapp --bound-object-kind Secret --bound-object-name mysecret"
)]
pub struct Args {
    /// The service account's name.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Audience of the requested token. If unset, defaults to requesting a token for use with the API server. May be repeated to request
    /// a token valid for multiple audiences.
    #[arg(long, value_name = "AUDIENCE", value_delimiter = ',')]
    audience: Vec<String>,
    /// Kind of an object to bind the token to. Supported kinds are Node, Pod, Secret. If set, --bound-object-name must be provided.
    #[arg(long, value_name = "KIND", default_value = "")]
    bound_object_kind: String,
    /// Name of an object to bind the token to. The token will expire when the object is deleted. Requires --bound-object-kind.
    #[arg(long, value_name = "NAME", default_value = "")]
    bound_object_name: String,
    /// UID of an object to bind the token to. If unset, the UID of the existing object is used.
    #[arg(long, value_name = "UID", default_value = "")]
    bound_object_uid: String,
    /// Requested lifetime of the issued token. If not set or if set to 0, the lifetime will be determined by the server automatically.
    #[arg(long, value_name = "DURATION", default_value = "0s", allow_hyphen_values = true, value_parser = time::parse_duration)]
    duration: SignedDuration,
    #[command(flatten)]
    print: PrintFlags,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let [name] = &args.names[..] else {
        let text = format!("exactly one NAME is required, got {}", args.names.len());
        return Err(Failure::Usage("create token".into(), text));
    };
    let printer = args.print.printer()?;
    let request = request(&args)?;
    let key = Key::new(Resource("serviceaccounts"), context.namespace(), name);
    let issued = issue(context, &key, &request).map_err(|failure| match failure {
        Failure::Api { status, .. } => Failure::plain(format!("failed to create token: {status}")),
        failure => failure,
    })?;
    match printer {
        None => context.print(issued.text(&["status", "token"]).unwrap_or_default()),
        Some(mut printer) => {
            let text = printer.object(&issued.0)?;
            context.print(&text)
        }
    }
}

/// Reads the flags, with kubectl's errors.
fn request(args: &Args) -> CliResult<Object> {
    let (kind, name, uid) = (&*args.bound_object_kind, &*args.bound_object_name, &*args.bound_object_uid);
    let duration = args.duration;
    let problem = match () {
        () if duration.is_negative() => "--duration must be greater than or equal to 0",
        () if duration.subsec_nanos() != 0 => "--duration cannot be expressed in units less than seconds",
        () if kind.is_empty() && !name.is_empty() => {
            "--bound-object-name can only be set if --bound-object-kind is provided"
        }
        () if kind.is_empty() && !uid.is_empty() => {
            "--bound-object-uid can only be set if --bound-object-kind is provided"
        }
        () if !kind.is_empty() && !KINDS.contains(&kind) => {
            return Err(Failure::plain(format!("supported --bound-object-kind values are {}", KINDS.join(", "))));
        }
        () if !kind.is_empty() && name.is_empty() => {
            "--bound-object-name is required if --bound-object-kind is provided"
        }
        () => "",
    };
    if !problem.is_empty() {
        return Err(Failure::plain(problem));
    }
    let mut spec = json!({"audiences": args.audience});
    if !duration.is_zero() {
        spec["expirationSeconds"] = duration.as_secs().into();
    }
    if !kind.is_empty() {
        spec["boundObjectRef"] = json!({"apiVersion": "v1", "kind": kind, "name": name});
        if !uid.is_empty() {
            spec["boundObjectRef"]["uid"] = Value::from(uid);
        }
    }
    Ok(Object(json!({"spec": spec})))
}

fn issue(context: &mut CommandContext, key: &Key, request: &Object) -> CliResult<Object> {
    let path = object_path(&kinds::service_account::KIND, "v1", (&key.namespace, &key.name), "token");
    let mut body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"});
    body["spec"] = request.0["spec"].clone();
    if let Some(reply) = rest::send_to_server(context, ClientRequest::post(path, &body))? {
        return Ok(Object(reply.json().map_err(|error| Failure::plain(error.to_string()))?));
    }
    if context.existing()?.is_none() {
        return Err(Status::not_found(key.resource, &key.name).into());
    }
    let api = context.api()?;
    let keys = api.keys()?;
    Ok(api.write(true, |txn| tokens::issue(txn, &keys, key, request))?)
}
