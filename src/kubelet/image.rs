//! What the Image objects say of a container's image: the most specific pattern wins, then the object whose name comes first.

use super::pod::{LocalPod, Member, State};
use super::{command, sources, start};
use crate::kinds::image::{Image as Stored, RESOURCE, pattern};
use crate::kinds::typed;
use crate::object::{Key, Object, Str};
use crate::world::start::{Build, Image as Brought};
use crate::world::{Effect, Plan, Row, Start, World};
use std::cmp::Reverse;

/// What one Image object says, for one container.
pub struct Image {
    /// The object.
    stored: Stored,
    /// The folder that its relative paths are relative to.
    folder: Option<String>,
    /// Which state of the object this is.
    pub state: String,
}

/// The annotation by which `apply` records the manifest's folder.
pub const MANIFEST_DIR: &str = crate::kinds::manifest_folder::ANNOTATION;

/// The Image object for an image, if there is one.
pub fn of(world: &World, image: &str) -> Option<Image> {
    let rows: Vec<_> = world.list(RESOURCE).filter(|row| !row.is_deleting()).map(|row| row.body()).collect();
    among(rows.iter().map(AsRef::as_ref), image)
}

/// The one of these Image objects that is about an image.
pub fn among<'a>(objects: impl Iterator<Item = &'a Object>, image: &str) -> Option<Image> {
    let ranked = objects.filter_map(|object| {
        let patterns = object.items(&["spec", "patterns"]).iter().filter_map(|pattern| pattern.as_str());
        Some((pattern::best(patterns, image)?, object))
    });
    let (_, object) = ranked.max_by_key(|(rank, object)| (*rank, Reverse(object.name())))?;
    Image::read(object)
}

impl Image {
    /// Reads an object; none when it cannot be read.
    pub fn read(object: &Object) -> Option<Image> {
        let stored = typed::view::<Stored>(object).ok()?;
        let folder = object.annotation(MANIFEST_DIR).map(str::to_owned);
        let generation = object.int(&["metadata", "generation"]).unwrap_or(0);
        let state = format!("{}/{}/{generation}", object.name(), object.uid());
        Some(Image { stored, folder, state })
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

    /// The folder to build in: the one that the build names, else the one that its program starts in, else the manifest's.
    fn build_dir(&self, named: Option<&str>) -> Option<String> {
        named.map(|folder| self.in_folder(folder)).or_else(|| self.working_dir()).or_else(|| self.folder.clone())
    }

    /// The files that it watches.
    pub fn watch(&self) -> impl Iterator<Item = &str> {
        self.stored.spec.watch.iter().flatten().map(String::as_str)
    }

    /// Who it says the container runs as.
    pub fn user(&self) -> Option<&str> {
        self.stored.spec.user.as_deref()
    }

    /// What the machine needs of it to start the container, with these variables.
    pub fn start(&self, env: &[(String, String)]) -> Brought {
        let expanded = |words: &[String]| words.iter().map(|word| command::expand(word, env)).collect();
        let spec = &self.stored.spec;
        Brought {
            name: self.stored.metadata.name.clone().unwrap_or_default().into(),
            state: self.state.clone(),
            entrypoint: spec.entrypoint.as_deref().map(expanded),
            command: expanded(spec.command.as_deref().unwrap_or_default()),
            folder: self.folder.clone(),
            user: spec.user.clone(),
            sources: Str::default(),
            build: spec.build.as_ref().map(|build| Build {
                command: expanded(&build.command),
                folder: self.build_dir(build.working_dir.as_deref()),
                env: self.env().collect(),
                inputs: self.state.clone(),
            }),
        }
    }

    /// Whether it watches files.
    fn watches(&self) -> bool {
        self.watch().next().is_some()
    }

    /// The name of its object.
    pub fn name(&self) -> &str {
        self.stored.metadata.name.as_deref().unwrap_or_default()
    }

    /// A path as it is meant: relative ones begin at the manifest's folder.
    fn in_folder(&self, path: &str) -> String {
        match &self.folder {
            Some(folder) if !path.starts_with('/') => format!("{folder}/{}", path.trim_start_matches("./")),
            _ => path.to_owned(),
        }
    }
}

/// What the machine needs of the container's Image object, if there is one, with these variables.
pub fn brought(pod: &LocalPod, image: &Image, env: &[(String, String)]) -> Brought {
    let mut brought = image.start(env);
    if let Some(sources) = sources::settled(pod.world, image.name()) {
        if let Some(build) = &mut brought.build {
            build.inputs = format!("{} {}", build.inputs, sources.digest);
        }
        brought.sources = sources.digest;
    }
    brought
}

/// The pods of ours that an Image object is about.
pub fn users<'a>(world: &'a World, name: &'a str) -> impl Iterator<Item = &'a Row> {
    let uses = move |pod: &&Row| {
        let body = pod.body();
        let lists = ["containers", "initContainers"].iter().flat_map(|list| body.items(&["spec", list]));
        let mut images = lists.filter_map(|container| container["image"].as_str());
        images.any(|image| of(world, image).is_some_and(|found| found.name() == name))
    };
    world.list("pods").map(|pod| &**pod).filter(|pod| super::of_ours(world, pod)).filter(uses)
}

/// The pods that an Image object concerns: those that may wait for one, and those that run one of its images.
pub fn concerns(world: &World, row: &Row, is_ours: impl Fn(&Row) -> bool) -> Vec<Key> {
    let object = row.body();
    let watches = !object.items(&["spec", "watch"]).is_empty();
    let patterns: Vec<&str> =
        object.items(&["spec", "patterns"]).iter().filter_map(|pattern| pattern.as_str()).collect();
    let uses = |pod: &Row| {
        let pod = pod.body();
        let lists = ["containers", "initContainers"].iter().flat_map(|list| pod.items(&["spec", list]));
        let mut images = lists.filter_map(|container| container["image"].as_str());
        images.any(|image| pattern::best(patterns.iter().copied(), image).is_some())
    };
    let minds = |pod: &Row| {
        let fields = pod.pod().filter(|fields| !fields.phase.is_terminal());
        fields.is_some_and(|fields| !fields.ready || (watches && uses(pod)))
    };
    let pods = world.list("pods").filter(|pod| is_ours(pod) && minds(pod));
    pods.map(|pod| pod.key.clone()).collect()
}

/// Between an image and the content of its watched files in a container's `imageID`.
const MARK: &str = "@sources:";

/// The `imageID` of a container that was started with this.
pub fn id(start: &Start) -> Option<String> {
    let sources = start.brought.as_ref().map(|image| &image.sources).filter(|sources| !sources.is_empty())?;
    Some(format!("{}{MARK}{sources}", start.image))
}

/// Whether this `imageID` tells the content of watched files.
pub fn tells_sources(id: &str) -> bool {
    id.contains(MARK)
}

/// The Image object whose watched files are other ones now than those that the attempt was started with.
pub fn with_new_sources(pod: &LocalPod, member: &Member) -> Option<String> {
    let old = member.old.as_ref().filter(|old| u32::try_from(old.restart_count) == Ok(member.attempt))?;
    let (image, ran) = old.image_id.rsplit_once(MARK).filter(|_| !pod.simulated)?;
    let of_now = of(pod.world, image).filter(Image::watches)?;
    let now = sources::settled(pod.world, of_now.name())?;
    (*now.digest != *ran).then(|| of_now.name().to_owned())
}

/// What the image is now for a container whose watched files have changed, if it has to be built before the container is ended.
fn unbuilt(pod: &LocalPod, member: &Member) -> Option<Brought> {
    let of_now = of(pod.world, member.spec.image.as_deref()?)?;
    let brought = brought(pod, &of_now, &[]);
    let build = brought.build.as_ref()?;
    let is_built = pod.world.facts.builds.get(&brought.name).is_some_and(|built| built.went_well(&build.inputs));
    (!is_built).then_some(brought)
}

/// The Image object for whose new sources a container is to be ended now: what is made of them is there.
pub fn with_new_program(pod: &LocalPod, member: &Member) -> Option<String> {
    with_new_sources(pod, member).filter(|_| unbuilt(pod, member).is_none())
}

/// Orders the builds of what has changed: what runs goes on until that has gone well.
pub fn order_builds(pod: &LocalPod, ip: &Str, plan: &mut Plan) {
    let running = |member: &&Member| matches!(member.state, State::Running { .. });
    for member in pod.members.iter().filter(running).filter(|member| with_new_sources(pod, member).is_some()) {
        let Some(inputs) = unbuilt(pod, member).and_then(|image| Some(image.build?.inputs)) else { continue };
        let mut orders = plan.effects.iter();
        let known = pod.world.facts.builds.values().any(|built| built.inputs == inputs)
            || orders.any(|effect| matches!(effect, Effect::Build { image } if image.build.as_ref().is_some_and(|build| build.inputs == inputs)));
        // With the variables of the container, as its start would bring it.
        let image = start::build(pod, member, member.attempt + 1, ip).ok().and_then(|start| start.brought);
        if let Some(image) = image.filter(|_| !known) {
            plan.effects.push(Effect::Build { image: Box::new(image) });
        }
    }
}

/// Whether it is not known yet what the image's watched files hold: without that nobody could tell later whether they have changed.
pub fn awaits_sources(pod: &LocalPod, member: &Member) -> bool {
    let image = member.spec.image.as_deref().filter(|_| !pod.simulated).and_then(|image| of(pod.world, image));
    image.is_some_and(|image| image.watches() && sources::settled(pod.world, image.name()).is_none())
}

/// Who the container runs as, as its Image object says.
pub fn user(pod: &LocalPod, member: &Member) -> Option<String> {
    of(pod.world, member.spec.image.as_deref()?)?.user().map(str::to_owned)
}

/// Whether its Image object says that the container sees the machine's files as they are.
pub fn wants_host_files(pod: &LocalPod, member: &Member) -> bool {
    filesystem(pod, member).as_deref() == Some("host")
}

fn filesystem(pod: &LocalPod, member: &Member) -> Option<String> {
    if pod.simulated {
        return None;
    }
    of(pod.world, member.spec.image.as_deref()?)?.stored.spec.filesystem
}

/// What the container's image is resolved with now, as [`Start`] has it; empty without an Image object.
pub fn state(pod: &LocalPod, image: &str) -> String {
    if pod.simulated {
        return String::new();
    }
    of(pod.world, image).map(|image| brought(pod, &image, &[]).tried()).unwrap_or_default()
}
