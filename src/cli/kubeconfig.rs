//! `kloop kubeconfig`: writes a kubeconfig for a user, with a new client certificate.
//!
//! Never: gives the user a right; roles and bindings do. Start reading at [`run`].

use super::{CliResult, CommandContext, Failure};
use crate::object::{Time, io_error_text, time};
use crate::serve::kubeconfig::{self, CertifiedAccess};
use jiff::SignedDuration;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// The user and the group without `--user`: the administrator.
const ADMINISTRATOR: &str = "kubernetes-admin";
/// Address of a server that was never started.
const USUAL_SERVER: &str = "https://127.0.0.1:8001";
/// The longest lifetime of a certificate in seconds: ten years.
const MAX_LIFETIME_SECONDS: u64 = 10 * 365 * 24 * 3600;

/// Write a kubeconfig with a new client certificate.
///
/// Without --user it is one of the administrator. Another user may do what roles and bindings allow, for themselves and for their
/// groups. The certificate is signed by the cluster's authority, and is valid until it expires. It cannot be revoked, but the
/// bindings of its user can be deleted.
#[derive(clap::Args)]
#[command(
    override_usage = "[--user=NAME] [--group=GROUP]...",
    after_help = "\
# A kubeconfig of the administrator
kloop kubeconfig > admin.conf

# One of a user of your own, who may look at everything in the namespace default
kloop create rolebinding ann-views --clusterrole=view --user=ann
kloop kubeconfig --user=ann --group=developers -o ann.conf
kubectl --kubeconfig ann.conf get pods"
)]
pub struct Args {
    /// The name of the user.
    #[arg(long, value_name = "NAME", default_value = "")]
    user: String,
    /// A group of the user; this flag can be repeated to specify multiple groups.
    #[arg(long, value_name = "GROUP", requires = "user")]
    group: Vec<String>,
    /// Lifetime of the certificate (e.g. 10m, 24h).
    #[arg(long, default_value = "8760h", value_name = "DURATION", value_parser = time::parse_duration)]
    duration: SignedDuration,
    /// Write to this file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    output_file: Option<PathBuf>,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let (user, groups) = match args.user.as_str() {
        "" => (ADMINISTRATOR, vec![crate::apiserver::user::ADMINISTRATORS.to_owned()]),
        user => (user, args.group),
    };
    if user.starts_with("system:anonymous") || user.chars().any(char::is_control) {
        return Err(Failure::plain(format!("{user:?} cannot be a user of a certificate")));
    }
    let seconds = args.duration.unsigned_abs().as_secs();
    if !(1..=MAX_LIFETIME_SECONDS).contains(&seconds) {
        return Err(Failure::plain("--duration must be between 1s and 87600h"));
    }
    let keys = context.api()?.keys()?;
    let authority = keys.certificate_authority()?;
    let client = authority.issue(user, &groups, seconds as i64, Time::now())?;
    let file = context.api()?.store().home().join("kubeconfig");
    let server = kubeconfig::find_server(&file);
    if let Some(server) = server.as_deref().filter(|server| !server.starts_with("https://")) {
        return Err(Failure::plain(format!(
            "{server} was started with --no-token: it serves without TLS, and every client is the administrator\nhint: start kloop \
             serve without that flag"
        )));
    }
    if server.is_none() {
        context.print_notice(&format!("hint: no kloop serve has run for this cluster yet: {USUAL_SERVER} is assumed"));
    }
    let text = kubeconfig::text_of_certified(&CertifiedAccess {
        server: server.as_deref().unwrap_or(USUAL_SERVER),
        authority: &keys.authority,
        user,
        certificate: &client.certificate,
        key: &client.key,
        namespace: context.default_namespace(),
    })?;
    let Some(path) = args.output_file else { return context.print(&text) };
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| Failure::plain(format!("cannot write {}: {}", path.display(), io_error_text(error))))
}
