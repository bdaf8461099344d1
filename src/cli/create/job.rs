//! `kloop create job`, from an image or from a CronJob.

use super::generate::GeneratorFlags;
use crate::apiserver::read;
use crate::cli::cluster::targets::{self, Targets};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::{Key, Object};
use serde_json::{Value, json};

/// Create a job with the specified name.
#[derive(clap::Args)]
#[command(
    override_usage = "NAME --image=image [--from=cronjob/name] -- [COMMAND] [args...]",
    after_help = "\
# Create a job
kloop create job my-job --image=busybox

# Create a job with a command
kloop create job my-job --image=busybox -- date

# Create a job from a cron job named \"a-cronjob\"
kloop create job test-job --from=cronjob/a-cronjob"
)]
pub struct Args {
    #[command(flatten)]
    generate: GeneratorFlags,
    /// Image name to run.
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// The name of the resource to create a Job from (only cronjob is supported).
    #[arg(long, value_name = "cronjob/NAME")]
    from: Option<String>,
    /// The command to run instead of the image's.
    #[arg(last = true)]
    command: Vec<String>,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let name = args.generate.name("create job")?;
    let body = match (&args.image, &args.from) {
        (Some(image), None) => job(name, job_spec(name, image, &args.command, "Never")),
        (None, Some(_)) if !args.command.is_empty() => {
            return Err(Failure::plain("cannot specify --from and command"));
        }
        (None, Some(from)) => from_cron_job(context, name, from)?,
        _ => return Err(Failure::plain("either --image or --from must be specified")),
    };
    args.generate.create(context, body, Some("job"))
}

fn job(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec, "status": {}})
}

/// Returns the spec of a Job that runs one container.
pub fn job_spec(name: &str, image: &str, command: &[String], restart: &str) -> Value {
    let mut container = json!({"image": image, "name": name, "resources": {}});
    if !command.is_empty() {
        container["command"] = command.into();
    }
    json!({"template": {"metadata": {}, "spec": {"containers": [container], "restartPolicy": restart}}})
}

fn from_cron_job(context: &mut CommandContext, name: &str, from: &str) -> CliResult<Value> {
    let Targets::Named(named) = targets::parse(context.kinds(), &[from.to_owned()])? else {
        return Err(Failure::plain("resource(s) were provided, but no name was specified"));
    };
    let Some((kind, cron_job)) = named.first() else {
        return Err(Failure::plain("from must be an existing cronjob: cronjob/NAME"));
    };
    if kind.kind != "CronJob" {
        return Err(Failure::plain(format!("unknown object type *{}.{}", kind.version, kind.kind)));
    }
    let key = Key::new(kind.resource, context.namespace(), cron_job);
    let cron_job: Object = context.read_view(|txn| read::get(txn, &key))?;
    let template = |field: &[&str]| cron_job.value_at(&[&["spec", "jobTemplate"], field].concat()).cloned();
    let mut body = Object(job(name, template(&["spec"]).unwrap_or(json!({}))));
    if let Some(labels) = template(&["metadata", "labels"]) {
        body.set(&["metadata", "labels"], labels);
    }
    let mut annotations = template(&["metadata", "annotations"]).unwrap_or(json!({}));
    annotations["cronjob.kubernetes.io/instantiate"] = "manual".into();
    body.set(&["metadata", "annotations"], annotations);
    let owner = json!({
        "apiVersion": "batch/v1", "controller": true, "kind": "CronJob", "name": cron_job.name(), "uid": cron_job.uid(),
    });
    body.set(&["metadata", "ownerReferences"], json!([owner]));
    Ok(body.0)
}
