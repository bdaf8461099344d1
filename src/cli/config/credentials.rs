//! `kloop config set-credentials`: user entries, with the credentials that servers ask for.
//!
//! A state file asks for none: a context with such a user is refused when it is used (`contexts::choice`).

use super::entries::read_to_embed;
use super::loaded::{LoadedConfig, absolute, put, remove, unexpected};
use crate::cli::{CliResult, CommandContext, Failure};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Set a user entry in kubeconfig.
///
/// Specifying a name that already exists will merge new fields on top of existing values. A state file checks no credentials:
/// everyone who can open it has all rights, and kloop refuses a context of a state file whose user has any. A user with the
/// rights of another has the field "as" (kloop config set users.NAME.as USER).
#[derive(clap::Args)]
#[command(
    override_usage = "NAME [--client-certificate=path/to/certfile] [--client-key=path/to/keyfile] [--token=bearer_token] \
                      [--username=basic_user] [--password=basic_password]",
    after_help = "\
# Set a token for a server
kloop config set-credentials cluster-admin --token=bearer_token"
)]
pub struct SetCredentialsArgs {
    /// The user's name.
    names: Vec<String>,
    /// Auth provider for the user entry in kubeconfig
    #[arg(long, value_name = "NAME")]
    auth_provider: Option<String>,
    /// 'key=value' arguments for the auth provider
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    auth_provider_arg: Vec<String>,
    /// Path to client-certificate file for the user entry in kubeconfig
    #[arg(long, value_name = "FILE")]
    client_certificate: Option<PathBuf>,
    /// Path to client-key file for the user entry in kubeconfig
    #[arg(long, value_name = "FILE")]
    client_key: Option<PathBuf>,
    /// Embed client cert/key for the user entry in kubeconfig
    #[arg(long)]
    embed_certs: bool,
    /// API version of the exec credential plugin for the user entry in kubeconfig
    #[arg(long, value_name = "VERSION")]
    exec_api_version: Option<String>,
    /// New arguments for the exec credential plugin command for the user entry in kubeconfig
    #[arg(long, value_name = "WORD", value_delimiter = ',')]
    exec_arg: Vec<String>,
    /// Command for the exec credential plugin for the user entry in kubeconfig
    #[arg(long, value_name = "PROGRAM")]
    exec_command: Option<String>,
    /// 'key=value' environment values for the exec credential plugin
    #[arg(long, value_name = "KEY=VALUE")]
    exec_env: Vec<String>,
    /// InteractiveMode of the exec credentials plugin for the user entry in kubeconfig
    #[arg(long, value_name = "MODE")]
    exec_interactive_mode: Option<String>,
    /// ProvideClusterInfo of the exec credentials plugin for the user entry in kubeconfig
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    exec_provide_cluster_info: Option<bool>,
    /// password for the user entry in kubeconfig
    #[arg(long, value_name = "PASSWORD")]
    password: Option<String>,
    /// token for the user entry in kubeconfig
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// username for the user entry in kubeconfig
    #[arg(long, value_name = "NAME")]
    username: Option<String>,
}

/// Makes or changes a user.
pub fn set(args: &SetCredentialsArgs, config: &LoadedConfig, context: &mut CommandContext) -> CliResult {
    let [name] = &args.names[..] else { return Err(unexpected(&args.names)) };
    check(name, args)?;
    let provider = pairs("auth-provider-arg", &args.auth_provider_arg)?;
    let environment = pairs("exec-env", &args.exec_env)?;
    let files = [("client-certificate", &args.client_certificate), ("client-key", &args.client_key)];
    let mut stored = Vec::new();
    for (field, path) in files {
        let Some(path) = path.as_deref() else { continue };
        stored.push((field, stored_file(field, path, args.embed_certs)?));
    }
    config.change(|file| {
        let entry = file.users.entry(name.clone()).or_default();
        for (field, (plain, data)) in &stored {
            put(entry, field, Some(plain));
            if !plain.is_empty() || !data.is_empty() {
                put(entry, &format!("{field}-data"), Some(data));
            }
        }
        set_secrets(args, entry);
        set_provider(args.auth_provider.as_deref(), &provider, entry);
        set_program(args, &environment, entry);
        Ok(())
    })?;
    context.print_line(&format!("User {name:?} set."))
}

fn check(name: &str, args: &SetCredentialsArgs) -> CliResult {
    let is_set = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    let modes = ["IfAvailable", "Never", "Always"];
    let problem = match () {
        () if name.is_empty() => "you must specify a non-empty user name",
        () if is_set(&args.token) && (is_set(&args.username) || is_set(&args.password)) => {
            "you cannot specify more than one authentication method at the same time: --token, --username/--password"
        }
        () if args.embed_certs && args.client_certificate.is_none() && args.client_key.is_none() => {
            "you must specify a --client-certificate or --client-key to embed"
        }
        () if args.exec_interactive_mode.as_deref().is_some_and(|mode| !modes.contains(&mode)) => {
            "invalid interactive mode type, can be only IfAvailable, Never, Always"
        }
        () => return Ok(()),
    };
    Err(Failure::plain(problem))
}

/// Returns the path of a file, or its contents if they are embedded; the other text is empty.
fn stored_file(flag: &str, path: &Path, embeds: bool) -> CliResult<(String, String)> {
    Ok(match (path.as_os_str().is_empty(), embeds) {
        (true, _) => Default::default(),
        (false, true) => (String::new(), read_to_embed(flag, path)?),
        (false, false) => (absolute(path), String::new()),
    })
}

fn set_secrets(args: &SetCredentialsArgs, entry: &mut Map<String, Value>) {
    let is_set = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    put(entry, "token", args.token.as_deref());
    put(entry, "username", args.username.as_deref());
    put(entry, "password", args.password.as_deref());
    // A user has one way to prove who they are.
    if is_set(&args.token) {
        remove(entry, &["username", "password"]);
    } else if is_set(&args.username) || is_set(&args.password) {
        entry.remove("token");
    }
}

/// Values to set, and names to remove: `KEY-`.
type Pairs = Vec<(String, Option<String>)>;

fn pairs(flag: &str, words: &[String]) -> CliResult<Pairs> {
    let pair = |word: &String| match (word.split_once('='), word.strip_suffix('-')) {
        (Some((name, value)), _) if !name.is_empty() => Ok((name.to_owned(), Some(value.to_owned()))),
        (None, Some(name)) if !name.is_empty() => Ok((name.to_owned(), None)),
        _ => Err(Failure::plain(format!("invalid {flag} format: {word}"))),
    };
    words.iter().map(pair).collect()
}

fn set_provider(name: Option<&str>, arguments: &Pairs, entry: &mut Map<String, Value>) {
    if let Some(name) = name
        && entry.get("auth-provider").is_none_or(|provider| provider["name"] != name)
    {
        entry.insert("auth-provider".into(), json!({ "name": name, "config": {} }));
    }
    let Some(Value::Object(provider)) = entry.get_mut("auth-provider") else { return };
    let Value::Object(config) = provider.entry("config").or_insert_with(|| json!({})) else { return };
    for (name, value) in arguments {
        match value {
            Some(value) => drop(config.insert(name.clone(), value.as_str().into())),
            None => drop(config.remove(name)),
        }
    }
}

fn set_program(args: &SetCredentialsArgs, environment: &Pairs, entry: &mut Map<String, Value>) {
    if let Some(program) = &args.exec_command {
        let usual = json!({ "apiVersion": "", "env": null, "provideClusterInfo": false });
        let exec = entry.entry("exec").or_insert(usual);
        exec["command"] = program.as_str().into();
        exec["args"] = Value::Null;
    }
    let Some(Value::Object(exec)) = entry.get_mut("exec") else { return };
    put(exec, "apiVersion", args.exec_api_version.as_deref());
    put(exec, "interactiveMode", args.exec_interactive_mode.as_deref());
    if !args.exec_arg.is_empty() {
        exec.insert("args".into(), args.exec_arg.clone().into());
    }
    if let Some(provides) = args.exec_provide_cluster_info {
        exec.insert("provideClusterInfo".into(), provides.into());
    }
    if environment.is_empty() {
        return;
    }
    let mut kept = exec.get("env").and_then(Value::as_array).cloned().unwrap_or_default();
    kept.retain(|known| environment.iter().all(|(name, _)| known["name"] != name.as_str()));
    let set = environment.iter().filter_map(|(name, value)| Some(json!({ "name": name, "value": value.as_ref()? })));
    kept.extend(set);
    exec.insert("env".into(), kept.into());
}
