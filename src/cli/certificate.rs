//! `kloop certificate approve` and `deny`: the decision about a CertificateSigningRequest.

use super::cluster::change::change_part;
use super::cluster::targets::{self, Scope, Target};
use super::command_line::dry_run::DryRun;
use super::command_line::flags::ChangeFlags;
use super::manifests::files::FileFlags;
use super::{CliResult, CommandContext, Failure};
use crate::apiserver::update::UpdatePart;
use crate::object::condition;
use clap::Subcommand;
use serde_json::json;

const SIGNING_REQUESTS: &str = "certificatesigningrequests.certificates.k8s.io";

/// Modify certificate resources.
#[derive(clap::Args)]
#[command(
    override_usage = "SUBCOMMAND",
    after_help = "\
# Approve CSR 'csr-sqgzp'
kloop certificate approve csr-sqgzp

# Deny CSR 'csr-sqgzp'
kloop certificate deny csr-sqgzp"
)]
pub struct Args {
    #[command(subcommand)]
    verb: CertificateVerb,
}

#[derive(Subcommand)]
enum CertificateVerb {
    /// Approve a certificate signing request.
    ///
    /// The control plane signs the certificates of Kubernetes' own signers. For others, a program that watches the requests of its
    /// signer issues the certificate.
    #[command(
        override_usage = "(-f FILENAME | NAME)",
        after_help = "\
# Approve CSR 'csr-sqgzp'
kloop certificate approve csr-sqgzp"
    )]
    Approve(DecisionArgs),
    /// Deny a certificate signing request.
    #[command(
        override_usage = "(-f FILENAME | NAME)",
        after_help = "\
# Deny CSR 'csr-sqgzp'
kloop certificate deny csr-sqgzp"
    )]
    Deny(DecisionArgs),
}

/// Flags of both.
#[derive(clap::Args)]
struct DecisionArgs {
    /// Names of certificate signing requests.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    files: FileFlags,
    #[command(flatten)]
    change: ChangeFlags,
    /// Update the CSR even if it already has this decision.
    #[arg(long)]
    force: bool,
}

/// A decision about a request.
struct Decision {
    /// Type of its condition.
    condition: &'static str,
    /// Type of the condition that excludes it.
    excluded_by: &'static str,
    /// Reason that the condition gives.
    reason: &'static str,
    /// The result's text: `approved`.
    done: &'static str,
    /// `approve`.
    verb: &'static str,
}

const APPROVE: Decision = Decision {
    condition: "Approved",
    excluded_by: "Denied",
    reason: "KubectlApprove",
    done: "approved",
    verb: "approve",
};

const DENY: Decision =
    Decision { condition: "Denied", excluded_by: "Approved", reason: "KubectlDeny", done: "denied", verb: "deny" };

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    match args.verb {
        CertificateVerb::Approve(args) => decide(&args, context, &APPROVE),
        CertificateVerb::Deny(args) => decide(&args, context, &DENY),
    }
}

fn decide(args: &DecisionArgs, context: &mut CommandContext, decision: &Decision) -> CliResult {
    if args.names.is_empty() && args.files.is_empty() {
        return Err(Failure::plain("one or more CSRs must be specified as <name> or -f <filename>"));
    }
    let dry_run = args.change.dry_run(context)?;
    let kind = (!args.names.is_empty()).then(|| SIGNING_REQUESTS.to_owned());
    let words: Vec<String> = kind.into_iter().chain(args.names.iter().cloned()).collect();
    let scope = Scope { words: &words, files: Some(&args.files), ..Scope::default() };
    targets::for_each_target(context, &scope, |context, target| {
        record_decision(args, context, target, decision, dry_run)
    })
}

fn record_decision(
    args: &DecisionArgs,
    context: &mut CommandContext,
    target: &Target,
    decision: &Decision,
    dry_run: DryRun,
) -> CliResult {
    if target.kind.resource != SIGNING_REQUESTS {
        let text = format!("{} is not a certificate signing request", target.kind.kind);
        return Err(Failure::plain(text));
    }
    let reply = change_part(context, target, UpdatePart::Approval, dry_run, |request| {
        if request.condition(decision.excluded_by).is_some() {
            let (name, other) = (request.name(), decision.excluded_by);
            return Err(Failure::plain(format!("certificate signing request {name:?} is already {other}")));
        }
        let is_decided = request.condition(decision.condition).is_some();
        if is_decided && !args.force {
            return Ok(());
        }
        let mut conditions = request.items(&["status", "conditions"]).to_vec();
        condition::remove(&mut conditions, decision.condition);
        conditions.push(json!({
            "type": decision.condition, "status": "True", "reason": decision.reason,
            "message": format!("This CSR was {} by kubectl certificate {}.", decision.done, decision.verb),
        }));
        request.set(&["status", "conditions"], conditions);
        Ok(())
    })?;
    args.change.print_change(context, target.kind, &reply.object, decision.done, dry_run)
}
