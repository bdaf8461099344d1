//! Names of objects: resource, namespace, name.

use super::Str;
use crate::object::IgnorePoison;
use hashbrown::HashSet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::sync::{LazyLock, Mutex};

/// The resource of an object, as `plural` or `plural.group`: `pods`, `deployments.apps`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource(pub &'static str);

impl Resource {
    /// Interns a name that is known only at run time (from a stored row or a request's path).
    ///
    /// Each distinct name is leaked, so callers must pass names of known resources, and no raw user input.
    pub fn intern(name: &str) -> Resource {
        static KNOWN: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Mutex::default);
        let mut known = KNOWN.lock().ignore_poison();
        if let Some(name) = known.get(name) {
            return Resource(name);
        }
        let name: &'static str = Box::leak(name.into());
        known.insert(name);
        Resource(name)
    }

    /// The plural without its group: `deployments`.
    pub fn plural(self) -> &'static str {
        self.0.split_once('.').map_or(self.0, |(plural, _)| plural)
    }

    /// The API group, empty for the core group.
    pub fn group(self) -> &'static str {
        self.0.split_once('.').map_or("", |(_, group)| group)
    }
}

impl Serialize for Resource {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.0)
    }
}

impl<'de> Deserialize<'de> for Resource {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Resource, D::Error> {
        Ok(Resource::intern(&Str::deserialize(from)?))
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl PartialEq<&str> for Resource {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

/// Identifies one object in a cluster. `namespace` is empty for cluster-scoped resources.
///
/// Ordered by resource, namespace and name, as Kubernetes lists objects.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// Its resource.
    pub resource: Resource,
    /// Its namespace; empty when cluster-scoped.
    pub namespace: Str,
    /// Its name.
    pub name: Str,
}

impl Key {
    /// Creates a key from its three parts.
    pub fn new(resource: Resource, namespace: &str, name: &str) -> Key {
        Key { resource, namespace: namespace.into(), name: name.into() }
    }

    /// `namespace/name`, or `name` when cluster-scoped.
    pub fn path(&self) -> String {
        if self.namespace.is_empty() { self.name.to_string() } else { format!("{}/{}", self.namespace, self.name) }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.resource, self.path())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interned_name_is_stored_once() {
        let first = Resource::intern(&String::from("widgets.example.com"));
        let second = Resource::intern(&String::from("widgets.example.com"));
        assert_eq!(first, Resource("widgets.example.com"));
        assert!(std::ptr::eq(first.0, second.0));
    }
}
