//! The objects of a build, with their history.

use super::BuildResult;
use super::id::ResourceId;
use super::rules::Rules;
use crate::object::Object;
use crate::object::yaml::YamlDocument;
use std::path::PathBuf;
use std::rc::Rc;

/// The annotation that `originAnnotations` adds.
pub const ORIGIN: &str = "config.kubernetes.io/origin";

/// The file of an object, and the place in it.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The file's path as the user would write it.
    pub shown: PathBuf,
    /// The file's path.
    pub at: PathBuf,
    /// The document in the file.
    pub document: Rc<YamlDocument>,
    /// The object's path in the document: an item of a list, or a generator in a kustomization.
    pub path_prefix: String,
    /// The line where the object starts, from 1.
    pub line: usize,
}

/// An object of a build.
#[derive(Clone, Debug)]
pub struct BuildResource {
    /// The object's current version.
    pub object: Object,
    /// The object's origin.
    pub origin: Origin,
    /// The identities before each change of name or namespace, oldest first.
    pub before: Vec<ResourceId>,
    /// The prefixes added to the name, innermost first.
    pub prefixes: Vec<String>,
    /// The suffixes added to the name, innermost first.
    pub suffixes: Vec<String>,
    /// Whether the hash of the content is appended to the name.
    pub hashed: bool,
    /// Variables with values in this object: names, and the paths of the fields.
    pub vars: Vec<(String, String)>,
}

impl BuildResource {
    /// Creates a resource that has not been changed yet.
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

    /// Returns the current identity.
    pub fn id(&self) -> ResourceId {
        ResourceId::from_object(&self.object)
    }

    /// Returns the original identity.
    pub fn first_id(&self) -> ResourceId {
        self.before.first().cloned().unwrap_or_else(|| self.id())
    }

    /// Whether this is the current or a former identity.
    pub fn had_id(&self, id: &ResourceId) -> bool {
        self.before.iter().any(|before| before.is_same(id)) || self.id().is_same(id)
    }

    /// Records the current identity before a change.
    pub fn record_id(&mut self) {
        let id = self.id();
        if self.before.last() != Some(&id) {
            self.before.push(id);
        }
    }

    /// Renames the object.
    pub fn rename(&mut self, name: &str) {
        self.record_id();
        self.object.set(&["metadata", "name"], name);
    }
}

/// Objects in order of appearance, and the rules from lower layers for higher ones.
#[derive(Default)]
pub struct BuildResources(pub Vec<BuildResource>, pub Rules);

impl BuildResources {
    /// Adds an object. Fails if its identity is taken.
    pub fn add(&mut self, resource: BuildResource) -> BuildResult {
        let id = resource.id();
        let known = self.0.iter().find(|known| known.object.name() == id.name && known.id().is_same(&id));
        if let Some(known) = known {
            let place =
                |resource: &BuildResource| format!("{}:{}", resource.origin.shown.display(), resource.origin.line);
            return Err(format!(
                "may not add resource with an already registered id: {id}\nhint: {}: it was first defined at {}",
                place(&resource),
                place(known)
            ));
        }
        self.0.push(resource);
        Ok(())
    }

    /// Adds the resources of another layer.
    pub fn add_all(&mut self, other: BuildResources) -> BuildResult {
        self.1.merge(other.1);
        other.0.into_iter().try_for_each(|resource| self.add(resource))
    }

    /// Returns the indexes of all objects with this current or former identity.
    pub fn indexes_of(&self, id: &ResourceId) -> Vec<usize> {
        (0..self.0.len()).filter(|at| self.0[*at].had_id(id)).collect()
    }

    /// Returns the index of the only object with this current or former identity, for a patch.
    pub fn find_single(&self, id: &ResourceId) -> BuildResult<usize> {
        let why = match self.indexes_of(id)[..] {
            [only] => return Ok(only),
            [] => "no matches for Id",
            _ => "multiple matches for Id",
        };
        Err(format!("{why} {id}; failed to find unique target for patch {id}"))
    }
}
