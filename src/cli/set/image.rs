//! `kloop set image`: sets the images of containers.

use super::{ObjectEdit, SetFlags, SetVerbText, containers_mut, pod_spec};
use crate::cli::manifests::key_changes;
use crate::cli::manifests::relative::{current_folder, record};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds::Kind;
use crate::kinds::KindRegistry;
use crate::kinds::image::pattern::is_path;
use crate::object::Object;

/// Update existing container image(s) of resources.
#[derive(clap::Args)]
#[command(
    override_usage = "(-f FILENAME | TYPE NAME) CONTAINER_NAME_1=CONTAINER_IMAGE_1 ... CONTAINER_NAME_N=CONTAINER_IMAGE_N",
    after_help = "\
# Set a deployment's nginx container image to 'nginx:1.9.1', and its busybox container image to 'busybox'
kloop set image deployment/nginx busybox=busybox nginx=nginx:1.9.1

# Update all deployments' and rc's nginx container's image to 'nginx:1.9.1'
kloop set image deployments,rc nginx=nginx:1.9.1 --all

# Print result (in YAML format) of updating nginx container image from local file, without hitting the server
kloop set image -f path/to/file.yaml nginx=nginx:1.9.1 --local -o yaml"
)]
pub struct Args {
    /// TYPE NAME or TYPE/NAME, then CONTAINER=IMAGE; * for all containers.
    #[arg(value_name = "WORD")]
    words: Vec<String>,
    #[command(flatten)]
    setting: SetFlags,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let (resources, images) = key_changes::divide(&args.words, "image")?;
    let images = key_changes::parse(&images, "image", false)?.set;
    args.setting.require_resources(&resources)?;
    if images.is_empty() && !resources_are_wrong(context.kinds(), &resources) {
        return Err(Failure::plain("at least one image update is required"));
    }
    if images.len() > 1 && images.iter().any(|(container, _)| container == "*") {
        let text =
            "all containers are already specified by *, but saw more than one container_name=container_image pairs";
        return Err(Failure::plain(text));
    }
    let words = SetVerbText { updated: "image", patched: "image update to pod template:", prints_unchanged: false };
    let is_local = args.setting.local;
    args.setting.update(context, &resources, words, |_, target| {
        let (kind, images) = (target.kind, images.clone());
        let edit: ObjectEdit = Box::new(move |object| set(kind, object, &images, is_local));
        Ok(edit)
    })
}

/// Whether the arguments name no valid resources. This error is reported before others.
fn resources_are_wrong(kinds: &KindRegistry, resources: &[String]) -> bool {
    crate::cli::cluster::targets::parse(kinds, resources).is_err()
}

fn set(kind: &Kind, object: &mut Object, images: &[(String, String)], is_local: bool) -> CliResult {
    let spec = pod_spec(kind, object, is_local)?;
    let mut failures = Vec::new();
    for (wanted, image) in images {
        let found = containers_mut(spec, |name| wanted == "*" || wanted == name);
        if found.is_empty() {
            failures.push(Failure::plain(format!("unable to find container named {wanted:?}")));
        }
        for container in found {
            container.insert("image".into(), image.as_str().into());
        }
    }
    if images.iter().any(|(_, image)| is_path(image))
        && let Some(here) = current_folder()
    {
        record(object, &here);
    }
    Failure::from_failures(failures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;
    use serde_json::json;

    fn set_images(images: &[(&str, &str)]) -> CliResult<String> {
        let kind = kinds::by_name("deployment").unwrap();
        let mut object = Object(json!({"spec": {"template": {"spec": {
            "containers": [{"name": "web", "image": "a:1"}, {"name": "side", "image": "b:1"}],
            "initContainers": [{"name": "init", "image": "c:1"}]}}}}));
        let images: Vec<(String, String)> =
            images.iter().map(|(name, image)| (name.to_string(), image.to_string())).collect();
        set(kind, &mut object, &images, false)?;
        let image = |container: &serde_json::Value| container["image"].as_str().unwrap().to_owned();
        let spec = &object.0["spec"]["template"]["spec"];
        let all = ["containers", "initContainers"].iter().flat_map(|list| spec[*list].as_array().unwrap());
        Ok(all.map(image).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn images_are_set_by_container() {
        assert_eq!(set_images(&[("web", "x"), ("init", "y")]).unwrap(), "x b:1 y");
        assert_eq!(set_images(&[("*", "x")]).unwrap(), "x x x");
        let error = set_images(&[("nope", "x")]).unwrap_err().to_string();
        assert_eq!(error, "error: unable to find container named \"nope\"");
    }
}
