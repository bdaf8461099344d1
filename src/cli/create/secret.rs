//! `kloop create secret`: generic, tls, docker-registry.

use super::generate::{AppendHashFlag, GeneratorFlags};
use crate::cli::manifests::data_sources::DataSourceFlags;
use crate::cli::manifests::input;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::io_error_text;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Subcommand;
use serde_json::{Map, Value, json};

/// Create a secret with specified type.
///
/// A docker-registry type secret is for accessing a container registry.
///
/// A generic type secret indicate an Opaque secret type.
///
/// A tls type secret holds TLS certificate and its associated key.
#[derive(clap::Args)]
#[command(override_usage = "(docker-registry | generic | tls)")]
pub struct Args {
    #[command(subcommand)]
    form: SecretCommand,
}

#[derive(Subcommand)]
enum SecretCommand {
    DockerRegistry(DockerRegistry),
    Generic(Generic),
    Tls(Tls),
}

/// Create a secret for use with a Docker registry.
#[derive(clap::Args)]
#[command(
    override_usage = "NAME --docker-username=user --docker-password=password --docker-email=email [--docker-server=string] [--dry-run=server|client|none]",
    after_help = "\
# Create the secret that a private registry asks for
kloop create secret docker-registry my-secret --docker-server=DOCKER_REGISTRY_SERVER --docker-username=DOCKER_USER --docker-password=DOCKER_PASSWORD --docker-email=DOCKER_EMAIL"
)]
struct DockerRegistry {
    #[command(flatten)]
    generate: GeneratorFlags,
    #[command(flatten)]
    hash: AppendHashFlag,
    /// Email for Docker registry.
    #[arg(long, default_value = "", value_name = "EMAIL")]
    docker_email: String,
    /// Password for Docker registry authentication.
    #[arg(long, default_value = "", value_name = "PASSWORD")]
    docker_password: String,
    /// Server location for Docker registry.
    #[arg(long, default_value = "https://index.docker.io/v1/", value_name = "SERVER")]
    docker_server: String,
    /// Username for Docker registry authentication.
    #[arg(long, default_value = "", value_name = "NAME")]
    docker_username: String,
    /// Path of a file of Docker's configuration, as .dockerconfigjson=PATH or PATH.
    #[arg(long, value_name = "[KEY=]PATH")]
    from_file: Option<String>,
}

/// Create a secret from a local file, directory, or literal value.
#[derive(clap::Args)]
#[command(
    override_usage = "NAME [--type=string] [--from-file=[key=]source] [--from-literal=key1=value1] [--dry-run=server|client|none]",
    after_help = "\
# Create a new secret named my-secret with keys for each file in folder bar
kloop create secret generic my-secret --from-file=path/to/bar

# Create a new secret named my-secret with key1=supersecret and key2=topsecret
kloop create secret generic my-secret --from-literal=key1=supersecret --from-literal=key2=topsecret

# Create a new secret named my-secret from env files
kloop create secret generic my-secret --from-env-file=path/to/foo.env --from-env-file=path/to/bar.env"
)]
struct Generic {
    #[command(flatten)]
    generate: GeneratorFlags,
    #[command(flatten)]
    hash: AppendHashFlag,
    #[command(flatten)]
    sources: DataSourceFlags,
    /// The type of secret to create.
    #[arg(long = "type", default_value = "", value_name = "TYPE")]
    kind: String,
}

/// Create a TLS secret.
///
/// The public/private key pair must exist beforehand. The public key certificate must be .PEM encoded and match the given
/// private key.
#[derive(clap::Args)]
#[command(
    override_usage = "NAME --cert=path/to/cert/file --key=path/to/key/file [--dry-run=server|client|none]",
    after_help = "\
# Create a new TLS secret named tls-secret with the given key pair
kloop create secret tls tls-secret --cert=path/to/tls.crt --key=path/to/tls.key"
)]
struct Tls {
    #[command(flatten)]
    generate: GeneratorFlags,
    #[command(flatten)]
    hash: AppendHashFlag,
    /// Path to PEM encoded public key certificate.
    #[arg(long, default_value = "", value_name = "PATH")]
    cert: String,
    /// Path to private key associated with given certificate.
    #[arg(long, default_value = "", value_name = "PATH")]
    key: String,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    match args.form {
        SecretCommand::DockerRegistry(args) => docker_registry(args, context),
        SecretCommand::Generic(args) => generic(args, context),
        SecretCommand::Tls(args) => tls(args, context),
    }
}

fn create(
    generate: &GeneratorFlags,
    hash: &AppendHashFlag,
    context: &mut CommandContext,
    name: &str,
    kind: &str,
    data: Vec<(String, Vec<u8>)>,
) -> CliResult {
    let data: Map<String, Value> = data.into_iter().map(|(key, value)| (key, STANDARD.encode(value).into())).collect();
    let mut body = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    if !data.is_empty() {
        body["data"] = data.into();
    }
    if !kind.is_empty() {
        body["type"] = kind.into();
    }
    generate.create(context, hash.rename(body), Some("secret"))
}

fn generic(args: Generic, context: &mut CommandContext) -> CliResult {
    let name = args.generate.name("create secret generic")?;
    let data = args.sources.read("Secret", name)?;
    create(&args.generate, &args.hash, context, name, &args.kind, data)
}

fn docker_registry(args: DockerRegistry, context: &mut CommandContext) -> CliResult {
    let name = args.generate.name("create secret docker-registry")?;
    if let Some(source) = &args.from_file {
        let path = source.strip_prefix(".dockerconfigjson=").unwrap_or(source);
        let bytes = input::read(path)
            .map_err(|error| Failure::plain(format!("error reading {path}: {error}", error = io_error_text(error))))?;
        let data = vec![(".dockerconfigjson".to_owned(), bytes)];
        return create(&args.generate, &args.hash, context, name, "kubernetes.io/dockerconfigjson", data);
    }
    if args.docker_username.is_empty() || args.docker_password.is_empty() {
        let text = "either --from-file or the combination of --docker-username, --docker-password and --docker-server is required";
        return Err(Failure::plain(text));
    }
    let text = |text: &str| Value::from(text).to_string();
    let auth = STANDARD.encode(format!("{}:{}", args.docker_username, args.docker_password));
    let email = match args.docker_email.as_str() {
        "" => String::new(),
        email => format!("\"email\":{},", text(email)),
    };
    // Formatted as text to keep kubectl's order of fields.
    let config = format!(
        "{{\"auths\":{{{}:{{\"username\":{},\"password\":{},{email}\"auth\":{}}}}}}}",
        text(&args.docker_server),
        text(&args.docker_username),
        text(&args.docker_password),
        text(&auth)
    );
    let data = vec![(".dockerconfigjson".to_owned(), config.into_bytes())];
    create(&args.generate, &args.hash, context, name, "kubernetes.io/dockerconfigjson", data)
}

fn tls(args: Tls, context: &mut CommandContext) -> CliResult {
    let name = args.generate.name("create secret tls")?;
    if args.cert.is_empty() || args.key.is_empty() {
        return Err(Failure::plain("key and cert must be specified"));
    }
    let read = |path: &str| {
        input::read(path).map_err(|error| {
            let why = match error.kind() {
                std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
                _ => io_error_text(error),
            };
            Failure::plain(format!("Cannot read file {path}, open {path}: {why}"))
        })
    };
    let (cert, key) = (read(&args.cert)?, read(&args.key)?);
    for (what, bytes, word) in [("certificate", &cert, "CERTIFICATE"), ("key", &key, "PRIVATE KEY")] {
        let text = String::from_utf8_lossy(bytes);
        if !text.lines().any(|line| line.starts_with("-----BEGIN ") && line.contains(word)) {
            return Err(Failure::plain(format!("tls: failed to find any PEM data in {what} input")));
        }
    }
    if crate::runtime::is_key_of_another(&cert, &key) {
        return Err(Failure::plain("tls: private key does not match public key"));
    }
    let data = vec![("tls.crt".to_owned(), cert), ("tls.key".to_owned(), key)];
    create(&args.generate, &args.hash, context, name, "kubernetes.io/tls", data)
}
