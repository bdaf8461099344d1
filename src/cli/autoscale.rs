//! `kloop autoscale`: a HorizontalPodAutoscaler for a workload.

use super::cluster::targets::{self, NamedFlags, Scope, Target};
use super::create::generate::CreateFlags;
use super::{CliResult, CommandContext, Failure};
use crate::object::Quantity;
use serde_json::{Value, json};

/// Auto-scale a deployment, replica set, stateful set, or replication controller.
///
/// Looks up a deployment, replica set, stateful set, or replication controller by name and creates an autoscaler that uses the
/// given resource as a reference. An autoscaler can automatically increase or decrease number of pods deployed within the system
/// as needed.
#[derive(clap::Args)]
#[command(
    override_usage = "(-f FILENAME | TYPE NAME | TYPE/NAME) [--min=MINPODS] --max=MAXPODS [--cpu=CPU] [--memory=MEMORY]",
    after_help = "\
# Auto scale a deployment \"foo\", with the number of pods between 2 and 10, no target CPU utilization specified so a default autoscaling policy will be used
kloop autoscale deployment foo --min=2 --max=10

# Auto scale a replication controller \"foo\", with the number of pods between 1 and 5, target CPU utilization at 80%
kloop autoscale rc foo --max=5 --cpu=80%"
)]
pub struct Args {
    #[command(flatten)]
    named: NamedFlags,
    #[command(flatten)]
    making: CreateFlags,
    /// The lower limit for the number of pods that can be set by the autoscaler.
    #[arg(long, default_value_t = -1, value_name = "N", allow_negative_numbers = true)]
    min: i64,
    /// The upper limit for the number of pods that can be set by the autoscaler.
    #[arg(long, required = true, value_name = "N", allow_negative_numbers = true)]
    max: i64,
    /// Target CPU: a percentage of the CPU request ('70%'), or a quantity ('500m').
    #[arg(long, value_name = "TARGET")]
    cpu: Option<String>,
    /// Target memory: a percentage of the memory request ('70%'), or a quantity ('64Mi').
    #[arg(long, value_name = "TARGET")]
    memory: Option<String>,
    /// Deprecated: target CPU as a percentage.
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true)]
    cpu_percent: Option<i64>,
    /// The name for the newly created object. If not specified, the name of the input resource will be used.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    if args.cpu_percent.is_some() {
        context.print_notice(
            "Flag --cpu-percent has been deprecated, Use --cpu with percentage or resource quantity format \
             (e.g., '70%' for utilization or '500m' for milliCPU).",
        );
    }
    if args.cpu_percent.is_some() && args.cpu.is_some() {
        return Err(Failure::plain("--cpu-percent and --cpu are mutually exclusive"));
    }
    if args.max < 1 {
        return Err(Failure::plain(format!("--max=MAXPODS is required and must be at least 1, max: {}", args.max)));
    }
    if args.max < args.min {
        let (max, min) = (args.max, args.min);
        let text = format!("--max=MAXPODS must be larger or equal to --min=MINPODS, max: {max}, min: {min}");
        return Err(Failure::plain(text));
    }
    let metrics = metrics(&args)?;
    let scope = Scope { as_written: true, ..args.named.scope() };
    targets::for_each_target(context, &scope, |context, target| autoscale_object(&args, context, target, &metrics))
}

fn autoscale_object(args: &Args, context: &mut CommandContext, target: &Target, metrics: &[Value]) -> CliResult {
    if !target.kind.scale {
        let (kind, version) = (target.kind, target.kind.api_version());
        return Err(Failure::plain(format!(
            "cannot autoscale a {}: could not find scale subresource for {}, Resource={} in discovery information",
            kind.kind,
            if version.contains('/') { version } else { format!("/{version}") },
            kind.resource.plural()
        )));
    }
    let name = args.name.as_deref().unwrap_or(target.object.name());
    let reference =
        json!({"apiVersion": target.kind.api_version(), "kind": target.kind.kind, "name": target.object.name()});
    let mut spec = json!({"maxReplicas": args.max, "scaleTargetRef": reference});
    if args.min > 0 {
        spec["minReplicas"] = args.min.into();
    }
    if !metrics.is_empty() {
        spec["metrics"] = metrics.into();
    }
    let body = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name}, "spec": spec,
        "status": {"currentMetrics": null, "desiredReplicas": 0},
    });
    args.making.create(context, body, "autoscaled")
}

fn metrics(args: &Args) -> CliResult<Vec<Value>> {
    let percent = args.cpu_percent.filter(|percent| *percent > 0).map(|percent| format!("{percent}%"));
    let wanted = [("cpu", args.cpu.clone().or(percent)), ("memory", args.memory.clone())];
    let mut metrics = Vec::new();
    for (resource, target) in wanted {
        let Some(text) = target else { continue };
        let target = match text.strip_suffix('%') {
            Some(percent) => {
                let wrong = |_| Failure::plain(format!("invalid {resource} utilization value: {text}"));
                json!({"averageUtilization": percent.parse::<i32>().map_err(wrong)?, "type": "Utilization"})
            }
            None => {
                Quantity::parse(&text)
                    .map_err(|_| Failure::plain(format!("invalid resource {resource} value: {text}")))?;
                json!({"averageValue": text, "type": "AverageValue"})
            }
        };
        metrics.push(json!({"resource": {"name": resource, "target": target}, "type": "Resource"}));
    }
    Ok(metrics)
}
