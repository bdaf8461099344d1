//! From the words of a path to a kind of the catalogue and the objects that are meant.

use super::path::PathTarget;
use super::{ServeResult, unknown_path};
use crate::apiserver::{Api, custom};
use crate::kinds::{Kind, KindRegistry};
use crate::object::Key;

/// The objects that a request addresses.
pub struct ResolvedTarget<'a> {
    /// Their kind.
    pub kind: &'static Kind,
    /// The `apiVersion` that they are wanted in.
    pub api_version: String,
    /// Their namespace; none for all, and for kinds without one.
    pub namespace: Option<&'a str>,
    /// The one that is named, or empty.
    pub name: &'a str,
    /// `status`, `log`, or empty.
    pub subresource: &'a str,
    /// Whether the path asks for a watch.
    pub watch: bool,
}

impl ResolvedTarget<'_> {
    /// The key of the object that is named.
    pub fn key(&self) -> Key {
        Key::new(self.kind.resource, self.namespace.unwrap_or_default(), self.name)
    }

    /// Whether it is said where an object would be.
    pub fn is_placed(&self) -> bool {
        self.namespace.is_some() || !self.kind.namespaced
    }
}

/// The kind of a path; of a custom one its definition as it stands now.
pub fn kind(api: &Api, named: &PathTarget) -> ServeResult<&'static Kind> {
    let kinds = api.kinds();
    let Some(found) = find(kinds, named) else {
        // It may be of a definition that another process has brought since.
        api.read_view(custom::learn_all)?;
        return find(kinds, named).ok_or_else(unknown_path);
    };
    let Some(declared) = found.custom else { return Ok(found) };
    api.read(|snapshot| custom::refresh(kinds, snapshot, declared))?;
    find(kinds, named).ok_or_else(unknown_path)
}

/// The kind of a path, of those that are known.
pub fn find(kinds: &KindRegistry, named: &PathTarget) -> Option<&'static Kind> {
    let asked = api_version(&named.group, &named.version);
    let mut all = kinds.all().filter(|kind| kind.resource.plural() == named.plural);
    all.find(|kind| {
        kind.resource.group() == named.group && kind.version == named.version || kind.also.contains(&&*asked)
    })
}

/// `apps/v1`, or `v1` for the core group.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Resolves the path of a kind.
pub fn resolve_target<'a>(kind: &'static Kind, named: &'a PathTarget) -> ServeResult<ResolvedTarget<'a>> {
    // Objects in a namespace are named with it, and others without.
    let fits = match named.name {
        Some(_) => kind.namespaced == named.namespace.is_some(),
        None => kind.namespaced || named.namespace.is_none(),
    };
    if !fits {
        return Err(unknown_path());
    }
    Ok(ResolvedTarget {
        kind,
        api_version: api_version(&named.group, &named.version),
        namespace: named.namespace.as_deref(),
        name: named.name.as_deref().unwrap_or_default(),
        subresource: named.subresource.as_deref().unwrap_or_default(),
        watch: named.watch,
    })
}
