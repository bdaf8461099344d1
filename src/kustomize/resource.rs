//! The objects of a build, with what has to be remembered of each until the end.

use super::BuildResult;
use super::id::ResourceId;
use super::rules::Rules;
use crate::object::Object;
use crate::object::yaml::YamlDocument;
use std::path::PathBuf;
use std::rc::Rc;

/// The annotation that `originAnnotations` adds.
pub const ORIGIN: &str = "config.kubernetes.io/origin";

/// File in which an object was written.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The file, as the user would name it.
    pub shown: PathBuf,
    /// Path of the file.
    pub at: PathBuf,
    /// The document of the file.
    pub document: Rc<YamlDocument>,
    /// The object's path in the document: an item of a list, or a generator in a kustomization.
    pub path_prefix: String,
    /// The line where it starts, from 1.
    pub line: usize,
}

/// An object of a build.
#[derive(Clone, Debug)]
pub struct BuildResource {
    /// As it is so far.
    pub object: Object,
    /// Its origin.
    pub origin: Origin,
    /// Its identity before each change of its name or namespace, the oldest first.
    pub before: Vec<ResourceId>,
    /// The prefixes that its name was given, the innermost first.
    pub prefixes: Vec<String>,
    /// The same of suffixes.
    pub suffixes: Vec<String>,
    /// Whether its name ends in the hash of its content.
    pub hashed: bool,
    /// Variables whose values are here: names, and the fields' paths.
    pub vars: Vec<(String, String)>,
}

impl BuildResource {
    /// As it was read or generated.
    pub fn new(object: Object, origin: Origin) -> BuildResource {
        BuildResource {
            object,
            origin,
            before: Vec::new(),
            prefixes: Vec::new(),
            suffixes: Vec::new(),
            hashed: false,
            vars: Vec::new(),
        }
    }

    /// Returns its present identity.
    pub fn id(&self) -> ResourceId {
        ResourceId::from_object(&self.object)
    }

    /// Returns its original identity.
    pub fn first_id(&self) -> ResourceId {
        self.before.first().cloned().unwrap_or_else(|| self.id())
    }

    /// Whether it is, or ever was, of this name.
    pub fn answers_to(&self, id: &ResourceId) -> bool {
        self.before.iter().any(|before| before.is_same(id)) || self.id().is_same(id)
    }

    /// Remembers who it is, before that changes.
    pub fn remember(&mut self) {
        let id = self.id();
        if self.before.last() != Some(&id) {
            self.before.push(id);
        }
    }

    /// Gives it another name.
    pub fn rename(&mut self, name: &str) {
        self.remember();
        self.object.set(&["metadata", "name"], name);
    }
}

/// Objects in the order in which they came, and the rules that the layers below have given for those above.
#[derive(Default)]
pub struct BuildResources(pub Vec<BuildResource>, pub Rules);

impl BuildResources {
    /// Adds one; no two are the same.
    pub fn add(&mut self, resource: BuildResource) -> BuildResult {
        let id = resource.id();
        let known = self.0.iter().find(|known| known.object.name() == id.name && known.id().is_same(&id));
        if let Some(known) = known {
            let place =
                |resource: &BuildResource| format!("{}:{}", resource.origin.shown.display(), resource.origin.line);
            return Err(format!(
                "may not add resource with an already registered id: {id}\nhint: {}: it was first given at {}",
                place(&resource),
                place(known)
            ));
        }
        self.0.push(resource);
        Ok(())
    }

    /// Adds what another layer made.
    pub fn add_all(&mut self, other: BuildResources) -> BuildResult {
        self.1.merge(other.1);
        other.0.into_iter().try_for_each(|resource| self.add(resource))
    }

    /// All that are or were of this name.
    pub fn all_of(&self, id: &ResourceId) -> Vec<usize> {
        (0..self.0.len()).filter(|at| self.0[*at].answers_to(id)).collect()
    }

    /// The only one that is or was of this name, for a patch.
    pub fn find_single(&self, id: &ResourceId) -> BuildResult<usize> {
        let why = match self.all_of(id)[..] {
            [only] => return Ok(only),
            [] => "no matches for Id",
            _ => "multiple matches for Id",
        };
        Err(format!("{why} {id}; failed to find unique target for patch {id}"))
    }
}
