//! `kloop create deployment`.

use super::generate::GeneratorFlags;
use crate::apiserver::api;
use crate::apiserver::rules::names;
use crate::cli::{CliResult, CommandContext, Failure};
use serde_json::{Value, json};

/// Create a deployment with the specified name.
#[derive(clap::Args)]
#[command(
    override_usage = "NAME --image=image -- [COMMAND] [args...]",
    after_help = "\
# Create a deployment named my-dep that runs the busybox image
kloop create deployment my-dep --image=busybox

# Create a deployment with a command
kloop create deployment my-dep --image=busybox -- date

# Create a deployment named my-dep that runs the nginx image with 3 replicas
kloop create deployment my-dep --image=nginx --replicas=3

# Create a deployment named my-dep that runs the busybox image and expose port 5701
kloop create deployment my-dep --image=busybox --port=5701"
)]
pub struct Args {
    #[command(flatten)]
    generate: GeneratorFlags,
    /// Image names to run. A deployment can have multiple images set for multi-container pod.
    #[arg(long, required = true, value_delimiter = ',', value_name = "IMAGE")]
    image: Vec<String>,
    /// The containerPort that this deployment exposes.
    #[arg(long, default_value_t = -1, value_name = "PORT", allow_negative_numbers = true)]
    port: i64,
    /// Number of replicas to create.
    #[arg(short, long, default_value_t = 1, value_name = "N", allow_negative_numbers = true)]
    replicas: i64,
    /// The command to run instead of the image's.
    #[arg(last = true)]
    command: Vec<String>,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let name = args.generate.name("create deployment")?;
    if args.image.len() > 1 && !args.command.is_empty() {
        return Err(Failure::plain("cannot specify multiple --image options and command"));
    }
    let mut containers: Vec<Value> = Vec::new();
    for image in &args.image {
        let mut container = json!({"image": image, "name": container_name(image, api::random), "resources": {}});
        if !args.command.is_empty() {
            container["command"] = args.command.clone().into();
        }
        containers.push(container);
    }
    if let Some(first) = containers.first_mut().filter(|_| args.port >= 0) {
        first["ports"] = json!([{"containerPort": args.port}]);
    }
    let labels = json!({"app": name});
    let body = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": args.replicas, "selector": {"matchLabels": labels}, "strategy": {},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
        "status": {},
    });
    args.generate.create(context, body, Some("deployment"))
}

/// Returns a container name from an image, as kubectl does: its last part without tag and digest. A name with dots or underscores gets
/// dashes for them, and random letters.
fn container_name(image: &str, random: impl FnOnce() -> u64) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    let bare = last.split(['@', ':']).next().unwrap_or(last);
    if !bare.contains(['.', '_']) {
        return bare.to_owned();
    }
    names::generate(&format!("{}-", bare.replace(['.', '_'], "-")), random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_named_after_images() {
        for (image, expected) in [
            ("nginx:1", "nginx"),
            ("registry.example:5000/a/web:1", "web"),
            ("nginx@sha256:0123", "nginx"),
            // The API server refuses the name.
            ("Foo", "Foo"),
            ("a/b_c.d:1", "b-c-d-bbbbb"),
        ] {
            assert_eq!(container_name(image, || 0), expected);
        }
    }
}
