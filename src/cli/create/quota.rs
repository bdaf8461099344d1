//! `kloop create quota`.

use super::generate::GeneratorFlags;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::Quantity;
use serde_json::{Map, Value, json};

/// Create a quota with the specified name.
#[derive(clap::Args)]
#[command(
    override_usage = "NAME [--hard=key1=value1,key2=value2] [--scopes=Scope1,Scope2] [--dry-run=server|client|none]",
    after_help = "\
# Create a new resource quota named my-quota
kloop create quota my-quota --hard=cpu=1,memory=1G,pods=2,services=3,replicationcontrollers=2,resourcequotas=1

# Create a new resource quota named best-effort
kloop create quota best-effort --hard=pods=100 --scopes=BestEffort"
)]
pub struct Args {
    #[command(flatten)]
    generate: GeneratorFlags,
    /// A comma-delimited set of resource=quantity pairs that define a hard limit.
    #[arg(long, value_delimiter = ',', value_name = "RESOURCE=QUANTITY")]
    hard: Vec<String>,
    /// A comma-delimited set of quota scopes that must all match each object tracked by the quota.
    #[arg(long, value_delimiter = ',', value_name = "SCOPE")]
    scopes: Vec<String>,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let name = args.generate.name("create quota")?;
    let mut hard = Map::new();
    let is_empty = args.hard == [""];
    for statement in args.hard.iter().filter(|_| !is_empty) {
        let Some((resource, amount)) = statement.split_once('=').filter(|(_, amount)| !amount.contains('=')) else {
            let text = format!("Invalid argument syntax {statement}, expected <resource>=<value>");
            return Err(Failure::plain(text));
        };
        Quantity::parse(amount).map_err(|error| Failure::plain(error.to_string()))?;
        hard.insert(resource.to_owned(), Value::from(amount));
    }
    let mut spec = json!({});
    if !hard.is_empty() {
        spec["hard"] = hard.into();
    }
    if !args.scopes.is_empty() {
        spec["scopes"] = args.scopes.clone().into();
    }
    let body =
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": spec, "status": {}});
    args.generate.create(context, body, Some("quota"))
}
