//! `kloop node token`: makes, lists and deletes the tokens with which machines join, as `kubeadm token` does.
//!
//! Knows: a token is a Secret with an end; with the first one it creates the objects that let machines join: the cluster's authority in
//! public, and the permission to request a node's certificate. Never: shows the secret of a token again. Start reading at [`create`].

use crate::apiserver::create;
use crate::apiserver::delete::{DeleteOptions, delete};
use crate::apiserver::read::{self, ListSelection};
use crate::apiserver::rules::names::key_of;
use crate::apiserver::update::{UpdatePart, update};
use crate::apiserver::{ApiResult, Transaction, WriteOptions};
use crate::cli::command_line::flags;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::joined_node::discovery;
use crate::kinds;
use crate::kinds::shared::bootstrap_token::{self, NAME_PREFIX, NAMESPACE, SECRET_TYPE};
use crate::object::time::Shift;
use crate::object::{Key, Object, time};
use crate::serve::kubeconfig;
use clap::Subcommand;
use jiff::SignedDuration;
use serde_json::{Value, json};

/// The group of everyone who shows a join token.
const BOOTSTRAPPERS: &str = "system:bootstrappers";
/// The letters of a token.
const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// Make, list and delete the tokens with which other machines join as nodes.
#[derive(clap::Args)]
#[command(
    override_usage = "SUBCOMMAND",
    after_help = "\
# Print the command that another machine joins with
kloop node token create"
)]
pub struct Args {
    #[command(subcommand)]
    verb: TokenVerb,
}

#[derive(Subcommand)]
enum TokenVerb {
    Create(CreateArgs),
    /// List the tokens, without their secrets.
    #[command(
        override_usage = "",
        after_help = "\
# Which tokens are there, and until when?
kloop node token list"
    )]
    List,
    Delete(DeleteArgs),
}

/// Make a token, and print the command that another machine joins with.
#[derive(clap::Args)]
#[command(
    override_usage = "[--ttl=24h] [--endpoint=URL]",
    after_help = "\
# For a machine that reaches this one at 10.0.0.1, where `kloop serve --address 10.0.0.1` runs
kloop node token create --endpoint https://10.0.0.1:8001"
)]
struct CreateArgs {
    /// Time until the token ends; 0 for a token that does not end.
    #[arg(long, default_value = "24h", value_name = "DURATION", value_parser = time::parse_duration)]
    ttl: SignedDuration,
    /// URL of the API server for the other machine [default: that of the last `kloop serve`].
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// A description of its use.
    #[arg(long, default_value = "", value_name = "TEXT")]
    description: String,
}

/// Delete tokens.
#[derive(clap::Args)]
#[command(
    override_usage = "TOKEN-ID...",
    after_help = "\
# Delete a token by the part before its dot
kloop node token delete abcdef"
)]
struct DeleteArgs {
    /// TOKEN-ID.
    #[arg(value_name = "TOKEN-ID", required = true)]
    ids: Vec<String>,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    match args.verb {
        TokenVerb::Create(args) => create_token(&args, context),
        TokenVerb::List => list_tokens(context),
        TokenVerb::Delete(args) => delete_tokens(&args, context),
    }
}

fn create_token(args: &CreateArgs, context: &mut CommandContext) -> CliResult {
    let ttl = flags::nonzero(args.ttl);
    let endpoint = find_endpoint(args, context)?;
    let authority = context.api()?.keys()?.authority.clone();
    let hash = discovery::hash_authority(&authority).map_err(Failure::plain)?;
    let (id, secret) = (random_text(6)?, random_text(16)?);
    let end = ttl.map(|ttl| context.now().later(SignedDuration::try_from(ttl).unwrap_or(SignedDuration::MAX)));
    let mut data = json!({
        "token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
    });
    if let Some(end) = end {
        data["expiration"] = time::rfc3339(end).into();
    }
    if !args.description.is_empty() {
        data["description"] = args.description.as_str().into();
    }
    let token = Object(json!({
        "apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE,
        "metadata": {"name": format!("{NAME_PREFIX}{id}"), "namespace": NAMESPACE}, "stringData": data,
    }));
    context.api()?.write(false, |txn| {
        let info = Object(discovery::cluster_info(&endpoint, &authority));
        keep_up(txn, &info)?;
        joining_rights().into_iter().try_for_each(|object| keep_up(txn, &Object(object)))?;
        create::create(txn, &kinds::secret::KIND, &token, &WriteOptions::default()).map(drop)
    })?;
    context
        .print_line(&format!("kloop node join {endpoint} --token {id}.{secret} --discovery-token-ca-cert-hash {hash}"))
}

/// Returns the URL of the server for other machines.
fn find_endpoint(args: &CreateArgs, context: &mut CommandContext) -> CliResult<String> {
    if let Some(endpoint) = &args.endpoint {
        let address = crate::client::ServerAddress::parse(endpoint, true).map_err(Failure::plain)?;
        return match address.is_tls {
            true => Ok(address.to_string()),
            false => Err(Failure::plain(format!("{endpoint} is not an HTTPS address, which joining needs"))),
        };
    }
    let file = context.api()?.store().home().join("kubeconfig");
    let Some(server) = kubeconfig::find_server(&file) else {
        return Err(Failure::plain(
            "no kloop serve has run for this cluster yet: start `kloop serve --address ADDRESS`, or name the server with --endpoint",
        ));
    };
    if !server.starts_with("https://") {
        return Err(Failure::plain(format!(
            "{server} was started with --no-token: it serves without TLS, which joining needs"
        )));
    }
    if server.contains("//127.") || server.contains("//localhost") {
        context.print_notice(&format!(
            "hint: {server} is reachable from this machine only: for others, start kloop serve with --address"
        ));
    }
    Ok(server)
}

fn random_text(length: usize) -> CliResult<String> {
    let mut text = String::new();
    while text.len() < length {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| Failure::plain(format!("no randomness for a token: {error}")))?;
        // Bytes beyond a multiple of the number of letters would prefer some.
        let fair = bytes.iter().filter(|byte| **byte < 252).map(|byte| char::from(LETTERS[usize::from(*byte) % 36]));
        text.extend(fair.take(length - text.len()));
    }
    Ok(text)
}

/// Makes an object, or gives it its content again.
fn keep_up(txn: &mut dyn Transaction, wanted: &Object) -> ApiResult<()> {
    let Some(kind) = kinds::by_kind(wanted.api_version(), wanted.kind()) else { return Ok(()) };
    let Some(mut known) = txn.get(&key_of(kind, wanted))? else {
        return create::create(txn, kind, wanted, &WriteOptions::default()).map(drop);
    };
    let fields = ["data", "rules", "subjects"];
    let is_same =
        |field: &&str| wanted.value_at(&[*field]).is_none_or(|value| known.value_at(&[*field]) == Some(value));
    if fields.iter().all(is_same) {
        return Ok(());
    }
    for field in fields {
        if let Some(value) = wanted.value_at(&[field]) {
            known.set(&[field], value.clone());
        }
    }
    update(txn, kind, &known, UpdatePart::Main, &WriteOptions::default()).map(drop)
}

/// The permissions of machines that join, and of nodes in addition to Kubernetes' own rules for kubelets.
fn joining_rights() -> Vec<Value> {
    let binding = |name: &str, role: &str, group: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
        })
    };
    let requests = "system:certificates.k8s.io:certificatesigningrequests";
    let rule = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["get", "list", "watch"]});
    let reader = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "kloop:node-reader"},
        "rules": [
            rule("", &["namespaces", "services"]),
            rule("discovery.k8s.io", &["endpointslices"]),
            rule("networking.k8s.io", &["networkpolicies"]),
            rule("node.k8s.io", &["runtimeclasses"]),
            rule("kloop.dev", &["images"]),
        ],
    });
    vec![
        binding("kloop:node-bootstrapper", "system:node-bootstrapper", BOOTSTRAPPERS),
        binding("kloop:node-autoapprove-bootstrap", &format!("{requests}:nodeclient"), BOOTSTRAPPERS),
        binding("kloop:node-autoapprove-renewal", &format!("{requests}:selfnodeclient"), kinds::node::GROUP),
        reader,
        binding("kloop:node-reader", "kloop:node-reader", kinds::node::GROUP),
    ]
}

fn list_tokens(context: &mut CommandContext) -> CliResult {
    let kind = &kinds::secret::KIND;
    let secrets = context.read_view(|txn| read::list(txn, kind, Some(NAMESPACE), &ListSelection::default()))?;
    let tokens: Vec<Object> =
        secrets.into_iter().filter(|secret| secret.text(&["type"]) == Some(SECRET_TYPE)).collect();
    if tokens.is_empty() {
        context.print_notice("No tokens found");
        return Ok(());
    }
    let now = context.now();
    context.print_line("TOKEN-ID   EXPIRES                DESCRIPTION")?;
    for token in &tokens {
        let id = bootstrap_token::field(token, "token-id").unwrap_or_default();
        let end = bootstrap_token::field(token, "expiration").unwrap_or_else(|| "never".to_owned());
        let end =
            if bootstrap_token::expiration(token).is_some_and(|end| end <= now) { "expired".to_owned() } else { end };
        let text = bootstrap_token::field(token, "description").unwrap_or_else(|| "<none>".to_owned());
        context.print_line(&format!("{id:<10} {end:<22} {text}"))?;
    }
    Ok(())
}

fn delete_tokens(args: &DeleteArgs, context: &mut CommandContext) -> CliResult {
    let kind = &kinds::secret::KIND;
    for id in &args.ids {
        let id = id.split('.').next().unwrap_or_default();
        let key = Key::new(kind.resource, NAMESPACE, &format!("{NAME_PREFIX}{id}"));
        context.api()?.write(false, |txn| delete(txn, kind, &key, &DeleteOptions::default()).map(drop))?;
        context.print_line(&format!("token {id:?} deleted"))?;
    }
    Ok(())
}
