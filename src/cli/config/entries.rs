//! The clusters and users of `kloop config`: list, make, change and delete them. Credentials of users have a file of their own.

use super::loaded::{LoadedConfig, absolute, put, remove, unexpected};
use crate::cli::cluster::contexts::{ConfigFile, Entries, Location, USER, absolute_server};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::io_error_text;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fs;
use std::path::{Path, PathBuf};

/// Display clusters defined in the kubeconfig.
#[derive(clap::Args)]
#[command(after_help = "\
# List the clusters
kloop config get-clusters")]
pub struct GetClustersArgs {}

/// Display users defined in the kubeconfig.
#[derive(clap::Args)]
#[command(after_help = "\
# List the users
kloop config get-users")]
pub struct GetUsersArgs {}

/// Set a cluster entry in kubeconfig: the name of a state file or a server.
///
/// Specifying a name that already exists will merge new fields on top of existing values for those fields.
#[derive(clap::Args)]
#[command(
    override_usage = "NAME [--server=FILE] [--certificate-authority=path/to/certificate/authority] \
                      [--insecure-skip-tls-verify=true] [--tls-server-name=example.com]",
    after_help = "\
# Name a state file
kloop config set-cluster shop --server=shop/state.db

# Name a server
kloop config set-cluster prod --server=https://10.0.0.1:6443 --certificate-authority=ca.crt"
)]
pub struct SetClusterArgs {
    /// The cluster's name.
    names: Vec<String>,
    /// server for the cluster entry in kubeconfig: the path of a state file
    #[arg(short, long, value_name = "FILE")]
    server: Option<String>,
    /// Path to certificate-authority file for the cluster entry in kubeconfig
    #[arg(long, value_name = "FILE")]
    certificate_authority: Option<PathBuf>,
    /// embed-certs for the cluster entry in kubeconfig
    #[arg(long)]
    embed_certs: bool,
    /// insecure-skip-tls-verify for the cluster entry in kubeconfig
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    insecure_skip_tls_verify: Option<bool>,
    /// proxy-url for the cluster entry in kubeconfig
    #[arg(long, value_name = "URL")]
    proxy_url: Option<String>,
    /// tls-server-name for the cluster entry in kubeconfig
    #[arg(long, value_name = "NAME")]
    tls_server_name: Option<String>,
}

/// Delete the specified entry from the kubeconfig.
#[derive(clap::Args)]
pub struct DeleteArgs {
    /// The name of the entry.
    names: Vec<String>,
}

impl DeleteArgs {
    /// Returns the only name.
    pub fn name(&self) -> CliResult<&str> {
        match &self.names[..] {
            [name] => Ok(name),
            several => Err(unexpected(several)),
        }
    }
}

/// Prints a heading and the names below it.
pub fn print_names(entries: &Entries, context: &mut CommandContext) -> CliResult {
    let names: String = entries.keys().map(|name| format!("{name}\n")).collect();
    context.print(&format!("NAME\n{names}"))
}

/// Makes or changes a cluster.
pub fn set_cluster(args: &SetClusterArgs, config: &LoadedConfig, context: &mut CommandContext) -> CliResult {
    let [name] = &args.names[..] else { return Err(unexpected(&args.names)) };
    if name.is_empty() {
        return Err(Failure::plain("you must specify a non-empty cluster name"));
    }
    let authority = args.certificate_authority.as_deref().filter(|path| !path.as_os_str().is_empty());
    if args.insecure_skip_tls_verify == Some(true) && authority.is_some() {
        return Err(Failure::plain("you cannot specify a certificate authority and insecure mode at the same time"));
    }
    if args.embed_certs && authority.is_none() {
        return Err(Failure::plain("you must specify a --certificate-authority to embed"));
    }
    let embedded = match authority.filter(|_| args.embed_certs) {
        Some(path) => Some(read_to_embed("certificate-authority", path)?),
        None => None,
    };
    if let Some(own) = config.own(name).filter(|_| !config.file.clusters.contains_key(name)) {
        return Err(config.refuse_own(&format!("set cluster {name:?}"), own));
    }
    let server = args.server.as_deref().map(absolute_server);
    config.change(|file| {
        let entry = file.clusters.entry(name.clone()).or_default();
        if server.is_some() {
            put(entry, "tls-server-name", Some(""));
        }
        put(entry, "server", server.as_deref());
        put(entry, "tls-server-name", args.tls_server_name.as_deref());
        put(entry, "proxy-url", args.proxy_url.as_deref());
        if let Some(is_insecure) = args.insecure_skip_tls_verify {
            put(entry, "insecure-skip-tls-verify", Some(""));
            if is_insecure {
                entry.insert("insecure-skip-tls-verify".into(), true.into());
                remove(entry, &["certificate-authority", "certificate-authority-data"]);
            }
        }
        if let Some(path) = authority {
            remove(entry, &["certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify"]);
            match &embedded {
                Some(data) => put(entry, "certificate-authority-data", Some(data)),
                None => put(entry, "certificate-authority", Some(&absolute(path))),
            }
        }
        Ok(())
    })?;
    context.print_line(&format!("Cluster {name:?} set."))?;
    if let Some(server) = server
        && matches!(Location::parse(&server, Path::new("")), Location::Server(_) | Location::Unknown(_))
    {
        context.print_notice(&format!(
            "hint: {server} is not a state file: commands in a context of this cluster send requests to that server"
        ));
    }
    Ok(())
}

/// Reads a file of a flag, and returns it in base64.
pub fn read_to_embed(flag: &str, path: &Path) -> CliResult<String> {
    let read = fs::metadata(path).and_then(|_| fs::read(path));
    let read = read.map_err(|error| {
        let (path, error) = (path.display(), io_error_text(error));
        Failure::plain(format!("could not stat {flag} file {path}: stat {path}: {error}"))
    })?;
    Ok(STANDARD.encode(read))
}

/// Deletes a cluster.
pub fn delete_cluster(args: &DeleteArgs, config: &LoadedConfig, context: &mut CommandContext) -> CliResult {
    let name = args.name()?;
    if let Some(own) = config.own(name).filter(|_| !config.file.clusters.contains_key(name)) {
        return Err(config.refuse_own(&format!("delete cluster {name}"), own));
    }
    delete("cluster", name, |file| &mut file.clusters, config, context)
}

/// Deletes a user.
pub fn delete_user(args: &DeleteArgs, config: &LoadedConfig, context: &mut CommandContext) -> CliResult {
    let name = args.name()?;
    if name == USER && !config.file.users.contains_key(name) {
        let problem = format!("cannot delete user {name}: everyone who can open a state file has all rights");
        return Err(Failure::plain(problem));
    }
    delete("user", name, |file| &mut file.users, config, context)
}

fn delete(
    what: &str,
    name: &str,
    list: fn(&mut ConfigFile) -> &mut Entries,
    config: &LoadedConfig,
    context: &mut CommandContext,
) -> CliResult {
    let missing = || Failure::plain(format!("cannot delete {what} {name}, not in {}", config.path()));
    if !list(&mut config.file.clone()).contains_key(name) {
        return Err(missing());
    }
    config.change(|file| list(file).remove(name).map(drop).ok_or_else(missing))?;
    context.print_line(&format!("deleted {what} {name} from {}", config.path()))
}
