//! What the Image objects say of a container's image: the most specific pattern wins, then the object whose name comes first.

use super::command;
use super::pod::{LocalPod, Member};
use crate::kinds::image::{Image as Stored, RESOURCE, pattern};
use crate::kinds::typed;
use crate::object::{Key, Object};
use crate::world::{Row, World, plan};
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
pub const MANIFEST_DIR: &str = "kloop.dev/manifest-dir";

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

    /// `filesystem: host` or `private`.
    pub fn filesystem(&self) -> Option<&str> {
        self.stored.spec.filesystem.as_deref()
    }

    /// Who it says the container runs as.
    pub fn user(&self) -> Option<&str> {
        self.stored.spec.user.as_deref()
    }

    /// What the machine needs of it to start the container, with these variables.
    pub fn start(&self, env: &[(String, String)]) -> plan::Image {
        let expanded = |words: &[String]| words.iter().map(|word| command::expand(word, env)).collect();
        let spec = &self.stored.spec;
        plan::Image {
            name: self.stored.metadata.name.clone().unwrap_or_default().into(),
            state: self.state.clone(),
            entrypoint: spec.entrypoint.as_deref().map(expanded),
            command: expanded(spec.command.as_deref().unwrap_or_default()),
            folder: self.folder.clone(),
            user: spec.user.clone(),
        }
    }

    /// A path as it is meant: relative ones begin at the manifest's folder.
    fn in_folder(&self, path: &str) -> String {
        match &self.folder {
            Some(folder) if !path.starts_with('/') => format!("{folder}/{}", path.trim_start_matches("./")),
            _ => path.to_owned(),
        }
    }
}

/// The pods that an Image object concerns: those that may wait for one.
pub fn concerns(world: &World, is_ours: impl Fn(&Row) -> bool) -> Vec<Key> {
    let waits = |pod: &Row| pod.pod().is_some_and(|fields| !fields.ready && !fields.phase.is_terminal());
    let pods = world.list("pods").filter(|pod| waits(pod) && is_ours(pod));
    pods.map(|pod| pod.key.clone()).collect()
}

/// Who the container runs as, as its Image object says.
pub fn user(pod: &LocalPod, member: &Member) -> Option<String> {
    of(pod.world, member.spec.image.as_deref()?)?.user().map(str::to_owned)
}

/// Whether its Image object says that the container sees the machine's files as they are.
pub fn wants_host_files(pod: &LocalPod, member: &Member) -> bool {
    let image = member.spec.image.as_deref().and_then(|image| of(pod.world, image));
    image.is_some_and(|image| image.filesystem() == Some("host"))
}

/// The state of the object that the container's image is resolved with now; empty without one.
pub fn state(pod: &LocalPod, image: &str) -> String {
    if pod.simulated {
        return String::new();
    }
    of(pod.world, image).map(|image| image.state).unwrap_or_default()
}
