//! Selects the Image object for a container's image: the most specific pattern wins, then the first name.
//!
//! The [`recipe`] of the image, if there is one, is used when no object matches, and for settings that an object without an entrypoint
//! leaves open.

use super::command::{MAX_START_BYTES, Variables};
use super::pod::{LocalPod, PodContainer};
use super::{image_sources, is_ours};
use crate::kinds::catalogue::typed;
use crate::kinds::image::{Image, ImageSpec, RESOURCE, pattern, recipe};
use crate::object::{Key, Object, Str};
use crate::world::start::{BuildCommand, StartImage};
use crate::world::{Row, Start, World};
use std::cell::Cell;
use std::cmp::Reverse;
use std::sync::Arc;

/// An Image object, or a recipe, for one container.
pub struct ImageSettings {
    /// The object.
    stored: Arc<Image>,
    /// Whether it is a recipe, which is not an object of the cluster.
    is_recipe: bool,
    /// The folder that its relative paths are relative to.
    folder: Option<String>,
    /// Version of the object.
    pub state: String,
}

/// The annotation by which `apply` records the manifest's folder.
pub const MANIFEST_DIR: &str = crate::kinds::shared::manifest_folder::ANNOTATION;

/// The Image object for an image, or else its recipe, if there is one.
pub fn find_settings(world: &World, image: &str) -> Option<ImageSettings> {
    let rows: Vec<_> = world.list(RESOURCE).filter(|row| !row.is_deleting()).map(|row| row.body()).collect();
    best_match(rows.iter().map(AsRef::as_ref), image)
}

/// The Image object with the most specific pattern for an image, or else its recipe.
pub fn best_match<'a>(objects: impl Iterator<Item = &'a Object>, image: &str) -> Option<ImageSettings> {
    let ranked = objects.filter_map(|object| {
        let patterns = object.items(&["spec", "patterns"]).iter().filter_map(|pattern| pattern.as_str());
        Some((pattern::best(patterns, image)?, object))
    });
    let recipe = recipe::find_by_image(image);
    match ranked.max_by_key(|(rank, object)| (*rank, Reverse(object.name()))) {
        Some((_, object)) => ImageSettings::read(object).map(|image| image.completed(recipe)),
        None => recipe.map(ImageSettings::from_recipe),
    }
}

impl ImageSettings {
    /// Reads an object; `None` when it cannot be decoded.
    pub fn read(object: &Object) -> Option<ImageSettings> {
        let stored = typed::view::<Image>(object).ok()?;
        let folder = object.annotation(MANIFEST_DIR).map(str::to_owned);
        let generation = object.int(&["metadata", "generation"]).unwrap_or(0);
        let state = format!("{}/{}/{generation}", object.name(), object.uid());
        Some(ImageSettings { stored: Arc::new(stored), is_recipe: false, folder, state })
    }

    fn from_recipe(recipe: &recipe::Recipe) -> ImageSettings {
        ImageSettings {
            stored: recipe.image.clone(),
            is_recipe: true,
            folder: None,
            state: format!("recipe/{}", recipe.name),
        }
    }

    /// Fills in the recipe's settings when the object has no entrypoint.
    fn completed(mut self, recipe: Option<&recipe::Recipe>) -> ImageSettings {
        let Some(recipe) = recipe.filter(|_| self.stored.spec.entrypoint.is_none()) else { return self };
        let spec = &mut Arc::make_mut(&mut self.stored).spec;
        *spec = completed(std::mem::take(spec), &recipe.image.spec);
        self
    }

    /// Folders to put at the beginning of the container's PATH, where they exist.
    pub fn path(&self) -> &[String] {
        self.stored.spec.path.as_deref().unwrap_or_default()
    }

    /// Its variables.
    pub fn env(&self) -> impl Iterator<Item = (String, String)> {
        let variables = self.stored.spec.env.iter().flatten();
        variables.map(|variable| (variable.name.clone(), variable.value.clone()))
    }

    /// The folder to start in, for a container that does not say.
    pub fn working_dir(&self) -> Option<String> {
        self.stored.spec.working_dir.as_deref().map(|folder| self.in_folder(folder))
    }

    /// The folder with the image's files, for volumes of type `image`.
    pub fn files(&self) -> Option<String> {
        self.stored.spec.files.as_deref().map(|folder| self.in_folder(folder))
    }

    /// The folder to build in: the folder that the build names, else the folder in which the program starts, else the manifest's.
    fn build_dir(&self, named: Option<&str>) -> Option<String> {
        named.map(|folder| self.in_folder(folder)).or_else(|| self.working_dir()).or_else(|| self.folder.clone())
    }

    /// The files that it watches.
    pub fn watch(&self) -> impl Iterator<Item = &str> {
        self.stored.spec.watch.iter().flatten().map(String::as_str)
    }

    /// Returns the user of the container.
    pub fn user(&self) -> Option<&str> {
        self.stored.spec.user.as_deref()
    }

    /// Returns the settings for a container that has only the image's own variables.
    pub fn start_without_container(&self) -> Result<StartImage, String> {
        self.start(self.env().collect::<Vec<_>>().into(), &Cell::new(MAX_START_BYTES))
    }

    /// Returns the settings that the runtime needs to start the container, with these variables; or an error about texts that become too
    /// long.
    fn start(&self, mut variables: Variables, left: &Cell<usize>) -> Result<StartImage, String> {
        let mut expanded = |words: &[String]| variables.expand_words(words, left);
        let spec = &self.stored.spec;
        let build = match &spec.build {
            Some(build) => Some(BuildCommand {
                command: expanded(&build.command)?,
                folder: self.build_dir(build.working_dir.as_deref()),
                env: self.env().collect(),
                inputs: self.state.clone(),
            }),
            None => None,
        };
        Ok(StartImage {
            name: self.stored.metadata.name.clone().unwrap_or_default().into(),
            is_recipe: self.is_recipe,
            state: self.state.clone(),
            programs: spec.programs.clone().unwrap_or_default(),
            path: spec.path.clone().unwrap_or_default(),
            package: spec.package.clone().unwrap_or_default(),
            volumes: spec.volumes.clone().unwrap_or_default(),
            entrypoint: spec.entrypoint.as_deref().map(&mut expanded).transpose()?,
            command: expanded(spec.command.as_deref().unwrap_or_default())?,
            folder: self.folder.clone(),
            user: spec.user.clone(),
            sources: Str::default(),
            build,
        })
    }

    /// Whether it watches files.
    fn watches(&self) -> bool {
        self.watch().next().is_some()
    }

    /// The name of its object; empty for a recipe, which has none.
    pub fn name(&self) -> &str {
        self.stored.metadata.name.as_deref().filter(|_| !self.is_recipe).unwrap_or_default()
    }

    /// Makes a relative path absolute: it begins at the manifest's folder.
    fn in_folder(&self, path: &str) -> String {
        match &self.folder {
            Some(folder) if !path.starts_with('/') => format!("{folder}/{}", path.trim_start_matches("./")),
            _ => path.to_owned(),
        }
    }
}

/// The spec of an object, with that of the recipe for the fields that it leaves out.
fn completed(object: ImageSpec, recipe: &ImageSpec) -> ImageSpec {
    let declared = object.env.unwrap_or_default();
    let inherited = recipe.env.iter().flatten().filter(|variable| declared.iter().all(|own| own.name != variable.name));
    let env: Vec<_> = inherited.cloned().chain(declared.iter().cloned()).collect();
    ImageSpec {
        entrypoint: recipe.entrypoint.clone(),
        command: object.command.or_else(|| recipe.command.clone()),
        env: Some(env),
        programs: object.programs.or_else(|| recipe.programs.clone()),
        path: object.path.or_else(|| recipe.path.clone()),
        package: object.package.or_else(|| recipe.package.clone()),
        volumes: object.volumes.or_else(|| recipe.volumes.clone()),
        working_dir: object.working_dir.or_else(|| recipe.working_dir.clone()),
        user: object.user.or_else(|| recipe.user.clone()),
        ports: object.ports.or_else(|| recipe.ports.clone()),
        ..object
    }
}

/// Returns the settings that the runtime needs from the container's Image object, if there is one, with these
/// variables.
pub fn requested_image(pod: &LocalPod, image: &ImageSettings, variables: Variables) -> Result<StartImage, String> {
    let mut requested_image = image.start(variables, &pod.start_bytes)?;
    if let Some(sources) = image_sources::settled_sources(pod.world, image.name()) {
        if let Some(build) = &mut requested_image.build {
            build.inputs = format!("{} {}", build.inputs, sources.digest);
        }
        requested_image.sources = sources.digest;
    }
    Ok(requested_image)
}

/// The pods on our nodes that use an Image object.
pub fn users<'a>(world: &'a World, name: &'a str) -> impl Iterator<Item = &'a Row> {
    let is_it = move |image: &str| find_settings(world, image).is_some_and(|found| found.name() == name);
    let pods = world.list("pods").map(|pod| &**pod).filter(|pod| is_ours(world, pod));
    pods.filter(move |pod| uses_image(pod, is_it))
}

/// Whether a container of a pod has a matching image.
fn uses_image(pod: &Row, matches: impl Fn(&str) -> bool) -> bool {
    pod.body().containers().filter_map(|container| container["image"].as_str()).any(matches)
}

/// The pods that an Image object concerns: pods that may wait for it, and pods that run one of its images.
pub fn concerns(world: &World, row: &Row) -> Vec<Key> {
    let object = row.body();
    let watches = !object.items(&["spec", "watch"]).is_empty();
    let patterns: Vec<&str> =
        object.items(&["spec", "patterns"]).iter().filter_map(|pattern| pattern.as_str()).collect();
    let is_listed = |image: &str| pattern::best(patterns.iter().copied(), image).is_some();
    let minds = |pod: &Row| {
        let fields = pod.pod().filter(|fields| !fields.phase.is_terminal());
        fields.is_some_and(|fields| !fields.ready || (watches && uses_image(pod, is_listed)))
    };
    let pods = world.list("pods").filter(|pod| is_ours(world, pod) && minds(pod));
    pods.map(|pod| pod.key.clone()).collect()
}

/// Between an image and the content of its watched files in a container's `imageID`.
const MARK: &str = "@sources:";

/// The `imageID` of a container that was started with this.
pub fn id(start: &Start) -> Option<String> {
    let sources = start.requested_image.as_ref().map(|image| &image.sources).filter(|sources| !sources.is_empty())?;
    Some(format!("{}{MARK}{sources}", start.image))
}

/// Whether this `imageID` contains a digest of watched files.
pub fn has_source_digest(id: &str) -> bool {
    id.contains(MARK)
}

/// Returns the Image object if its watched files have changed since the attempt was started.
pub fn with_new_sources(pod: &LocalPod, member: &PodContainer) -> Option<String> {
    let old = member.old.as_ref().filter(|old| u32::try_from(old.restart_count) == Ok(member.attempt))?;
    let (image, ran) = old.image_id.rsplit_once(MARK).filter(|_| !pod.is_simulated)?;
    let of_now = find_settings(pod.world, image).filter(ImageSettings::watches)?;
    let now = image_sources::settled_sources(pod.world, of_now.name())?;
    (*now.digest != *ran).then(|| of_now.name().to_owned())
}

/// Returns the current settings when watched files have changed and a build must finish before the container is
/// stopped.
pub fn unbuilt(pod: &LocalPod, member: &PodContainer) -> Option<StartImage> {
    let of_now = find_settings(pod.world, member.spec.image.as_deref()?)?;
    let requested_image = requested_image(pod, &of_now, Variables::default()).ok()?;
    let build = requested_image.build.as_ref()?;
    let is_built =
        pod.world.facts.builds.get(&requested_image.name).is_some_and(|built| built.succeeded_with(&build.inputs));
    (!is_built).then_some(requested_image)
}

/// Returns the Image object if a container has to restart now, because watched files have changed and their build is done.
pub fn with_new_program(pod: &LocalPod, member: &PodContainer) -> Option<String> {
    with_new_sources(pod, member).filter(|_| unbuilt(pod, member).is_none())
}

/// Whether the digest of the image's watched files is not known yet; without it a later change could not be detected.
pub fn awaits_sources(pod: &LocalPod, member: &PodContainer) -> bool {
    let image =
        member.spec.image.as_deref().filter(|_| !pod.is_simulated).and_then(|image| find_settings(pod.world, image));
    image.is_some_and(|image| image.watches() && image_sources::settled_sources(pod.world, image.name()).is_none())
}

/// Returns the user from the container's Image object.
pub fn user(pod: &LocalPod, member: &PodContainer) -> Option<String> {
    find_settings(pod.world, member.spec.image.as_deref()?)?.user().map(str::to_owned)
}

/// Whether the Image object gives the container the machine's files without a private layer.
pub fn wants_host_files(pod: &LocalPod, member: &PodContainer) -> bool {
    filesystem(pod, member).as_deref() == Some("host")
}

fn filesystem(pod: &LocalPod, member: &PodContainer) -> Option<String> {
    if pod.is_simulated {
        return None;
    }
    find_settings(pod.world, member.spec.image.as_deref()?)?.stored.spec.filesystem.clone()
}

/// Whether a container can skip the rest of its pause because the next start may succeed: its Image object has changed, or the missing
/// program is there now.
pub fn is_repaired(pod: &LocalPod, member: &PodContainer) -> bool {
    let Some(facts) = member.facts.as_ref().filter(|_| !pod.is_simulated) else { return false };
    let now = || state(pod, member.spec.image.as_deref().unwrap_or_default());
    facts.findable || facts.image.as_ref().is_some_and(|tried| *tried != now())
}

/// The state that the container's image is resolved with now, as [`Start`] has it; empty without an Image object.
fn state(pod: &LocalPod, image: &str) -> String {
    find_settings(pod.world, image)
        .and_then(|image| requested_image(pod, &image, Variables::default()).ok())
        .map(|image| image.tried())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ContainerBehaviour, TestMachine, pod};
    use super::*;
    use crate::world::Report;
    use serde_json::{Value, json};

    fn found(objects: &[(&str, Value)], image: &str) -> Option<StartImage> {
        let object = |(name, spec): &(&str, Value)| {
            Object(
                json!({"apiVersion": "kloop.dev/v1alpha1", "kind": "Image", "metadata": {"name": name, "uid": name}, "spec": spec}),
            )
        };
        let objects: Vec<Object> = objects.iter().map(object).collect();
        best_match(objects.iter(), image).map(|image| image.start_without_container().unwrap())
    }

    #[test]
    fn recipe_stands_behind_every_object() {
        let recipe = found(&[], "docker.io/library/postgres:16").expect("a recipe");
        assert!(recipe.is_recipe && recipe.state == "recipe/postgres" && recipe.command == ["postgres"]);
        assert_eq!(recipe.volumes, ["/var/lib/postgresql/data", "/var/run/postgresql"]);
        assert_eq!(found(&[], "team/api"), None);
        let own =
            found(&[("db", json!({"patterns": ["*/postgres"], "entrypoint": ["./db"]}))], "postgres").expect("it");
        assert!(
            !own.is_recipe
                && own.volumes.is_empty()
                && own.programs.is_empty()
                && own.entrypoint == Some(vec!["./db".into()])
        );
    }

    #[test]
    fn object_without_an_entrypoint_leaves_the_rest_to_the_recipe() {
        let spec = json!({"patterns": ["postgres"], "command": ["postgres", "-c", "fsync=off"], "user": "me",
            "env": [{"name": "PGDATA", "value": "/data"}, {"name": "MORE", "value": "1"}]});
        let stored = Object(
            json!({"apiVersion": "kloop.dev/v1alpha1", "kind": "Image", "metadata": {"name": "mine", "uid": "u"}, "spec": spec}),
        );
        let image = best_match([&stored].into_iter(), "postgres:16").expect("it");
        let env: Vec<_> = image.env().collect();
        assert_eq!(env, [("PGDATA".to_owned(), "/data".to_owned()), ("MORE".to_owned(), "1".to_owned())]);
        let requested_image = image.start_without_container().unwrap();
        assert_eq!(
            (&*requested_image.name, requested_image.is_recipe, requested_image.user.as_deref()),
            ("mine", false, Some("me"))
        );
        assert_eq!(requested_image.command, ["postgres", "-c", "fsync=off"]);
        assert!(
            requested_image.entrypoint.is_some_and(|words| words[0] == "sh") && requested_image.path == image.path()
        );
        assert_eq!((image.name(), requested_image.package), ("mine", "postgresql".to_owned()));
    }

    #[test]
    fn repair_ends_the_pause_of_a_refused_and_of_a_crashing_container() {
        let object = |generation: i64| {
            json!({"apiVersion": "kloop.dev/v1alpha1", "kind": "Image", "metadata": {"name": "a", "uid": "i", "generation": generation},
                "spec": {"patterns": ["a"], "entrypoint": ["a"]}})
        };
        let pod_of_a = || pod(json!({"containers": [{"name": "c", "image": "a:1"}]}));
        let mut refused = TestMachine::new(pod_of_a());
        refused.set_behaviour("c", ContainerBehaviour::Refuse("ErrImagePull")).run_to(40);
        assert_eq!(refused.take_messages().last().map(String::as_str), Some("30 start c#0"));
        refused.run_to(45);
        refused.report(Report::Findable { pod_uid: "uid-p".into(), container: "c".into(), attempt: 0 });
        refused.run_to(50);
        assert_eq!(refused.take_messages(), ["45 start c#0"], "its program has come");
        refused.run_to(200);
        assert_eq!(refused.take_messages(), ["125 start c#0"], "once more for one repair, and the pauses go on");
        for object in [object(1), object(2)] {
            refused.put(RESOURCE, object);
            refused.settle();
            assert_eq!(refused.take_messages(), ["200 start c#0"], "an Image object says something else");
        }
        let mut crashing = TestMachine::new(pod_of_a());
        crashing.put(RESOURCE, object(1));
        crashing.set_behaviour("c", ContainerBehaviour::Exit(1, 1)).run_to(50);
        let last = crashing.take_messages().into_iter().rfind(|line| line.contains("start"));
        assert_eq!(last.as_deref(), Some("33 start c#3"));
        crashing.put(RESOURCE, object(2));
        crashing.set_behaviour("c", ContainerBehaviour::Stay).run_to(51);
        assert!(crashing.take_messages().contains(&"50 start c#4".to_owned()));
        assert_eq!(crashing.summary(), "Running c+=running/4");
    }
}
