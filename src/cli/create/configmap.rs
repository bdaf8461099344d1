//! `kloop create configmap`.

use super::generate::Generate;
use super::sources::Sources;
use crate::cli::{Context, Outcome};
use base64::Engine;
use serde_json::{Map, json};

/// Create a config map from a local file, directory or literal value.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    generate: Generate,
    #[command(flatten)]
    sources: Sources,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut Context) -> Outcome {
    let name = args.generate.name("create configmap")?;
    let (mut data, mut binary) = (Map::new(), Map::new());
    for (key, value) in args.sources.read("ConfigMap", name)? {
        match String::from_utf8(value) {
            Ok(text) => data.insert(key, text.into()),
            Err(error) => binary.insert(key, base64::engine::general_purpose::STANDARD.encode(error.as_bytes()).into()),
        };
    }
    let mut body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    for (field, map) in [("data", data), ("binaryData", binary)] {
        if !map.is_empty() {
            body[field] = map.into();
        }
    }
    args.generate.create(context, body, Some("configmap"))
}
