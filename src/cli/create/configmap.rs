//! `kloop create configmap`.

use super::generate::{AppendHashFlag, GeneratorFlags};
use crate::cli::manifests::data_sources::DataSourceFlags;
use crate::cli::{CliResult, CommandContext};
use base64::Engine;
use serde_json::{Map, json};

/// Create a config map from a local file, directory or literal value.
///
/// A single config map may package one or more key/value pairs.
///
/// When creating a config map based on a file, the key will default to the basename of the file, and the value will default to
/// the file content. When creating a config map based on a directory, each file whose basename is a valid key in the directory
/// will be packaged into the config map.
#[derive(clap::Args)]
#[command(
    override_usage = "NAME [--from-file=[key=]source] [--from-literal=key1=value1] [--dry-run=server|client|none]",
    after_help = "\
# Create a new config map named my-config based on folder bar
kloop create configmap my-config --from-file=path/to/bar

# Create a new config map named my-config with specified keys instead of file basenames on disk
kloop create configmap my-config --from-file=key1=/path/to/bar/file1.txt --from-file=key2=/path/to/bar/file2.txt

# Create a new config map named my-config with key1=config1 and key2=config2
kloop create configmap my-config --from-literal=key1=config1 --from-literal=key2=config2

# Create a new config map named my-config from an env file
kloop create configmap my-config --from-env-file=path/to/foo.env"
)]
pub struct Args {
    #[command(flatten)]
    generate: GeneratorFlags,
    #[command(flatten)]
    sources: DataSourceFlags,
    #[command(flatten)]
    hash: AppendHashFlag,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
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
    args.generate.create(context, args.hash.rename(body), Some("configmap"))
}
