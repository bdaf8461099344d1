//! `kloop create token`: always refused. kloop's API does not use tokens of service accounts.

use crate::apiserver::read;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::{Key, Resource};

/// Request a service account token: refused, because kloop's API does not use them.
#[derive(clap::Args)]
#[command(
    override_usage = "SERVICE_ACCOUNT_NAME",
    after_help = "\
# Ask for a token of the service account \"default\" and be told that nothing needs it
kloop create token default"
)]
pub struct Args {
    /// The service account's name.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let [name] = &args.names[..] else {
        let text = format!("exactly one NAME is required, got {}", args.names.len());
        return Err(Failure::Usage("create token".into(), text));
    };
    let key = Key::new(Resource("serviceaccounts"), context.namespace(), name);
    context.read_view(|txn| read::get(txn, &key)).map_err(|failure| match failure {
        Failure::Api { status, .. } => Failure::plain(format!("failed to create token: {status}")),
        failure => failure,
    })?;
    Err(Failure::plain(
        "failed to create token: kloop issues no tokens, because its API does not use tokens of service accounts",
    ))
}
