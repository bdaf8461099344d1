//! `kloop create cronjob`.

use super::generate::GeneratorFlags;
use super::job::job_spec;
use crate::cli::{CliResult, CommandContext};
use serde_json::json;

/// Create a cron job with the specified name.
#[derive(clap::Args)]
#[command(
    override_usage = "NAME --image=image --schedule='0/5 * * * ?' -- [COMMAND] [args...]",
    after_help = "\
# Create a cron job
kloop create cronjob my-job --image=busybox --schedule=\"*/1 * * * *\"

# Create a cron job with a command
kloop create cronjob my-job --image=busybox --schedule=\"*/1 * * * *\" -- date"
)]
pub struct Args {
    #[command(flatten)]
    generate: GeneratorFlags,
    /// Image name to run.
    #[arg(long, required = true, value_name = "IMAGE")]
    image: String,
    /// A schedule in the Cron format the job should be run with.
    #[arg(long, required = true, value_name = "CRON", allow_hyphen_values = true)]
    schedule: String,
    /// Job's restart policy. Supported values: OnFailure, Never.
    #[arg(long, default_value = "OnFailure", value_name = "POLICY")]
    restart: String,
    /// The command to run instead of the image's.
    #[arg(last = true)]
    command: Vec<String>,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let name = args.generate.name("create cronjob")?;
    let spec = job_spec(name, &args.image, &args.command, &args.restart);
    let body = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name},
        "spec": {"jobTemplate": {"metadata": {"name": name}, "spec": spec}, "schedule": args.schedule},
        "status": {},
    });
    args.generate.create(context, body, Some("cronjob"))
}
