//! `kloop set serviceaccount`: sets the service account of a workload's pods.

use super::{ObjectEdit, SetFlags, SetVerbText, pod_spec};
use crate::cli::{CliResult, CommandContext, Failure};

/// Update the service account of pod template resources.
#[derive(clap::Args)]
#[command(
    override_usage = "(-f FILENAME | TYPE NAME) SERVICE_ACCOUNT",
    after_help = "\
# Set deployment nginx-deployment's service account to serviceaccount1
kloop set serviceaccount deployment nginx-deployment serviceaccount1"
)]
pub struct Args {
    /// TYPE NAME or TYPE/NAME, then the service account.
    words: Vec<String>,
    #[command(flatten)]
    setting: SetFlags,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let Some((account, resources)) = args.words.split_last() else {
        return Err(Failure::plain("serviceaccount is required"));
    };
    let words = SetVerbText { updated: "serviceaccount", patched: "ServiceAccountName", prints_unchanged: true };
    let is_local = args.setting.local;
    args.setting.update(context, resources, words, |_, target| {
        let (kind, account) = (target.kind, account.clone());
        let edit: ObjectEdit = Box::new(move |object| {
            let spec = pod_spec(kind, object, is_local)?;
            // The deprecated field has to equal the new one.
            spec["serviceAccountName"] = account.as_str().into();
            spec["serviceAccount"] = account.as_str().into();
            Ok(())
        });
        Ok(edit)
    })
}
