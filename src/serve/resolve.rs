//! Resolves a parsed path to a kind of the catalogue and the addressed objects.

use super::path::{self, ApiPath, PathTarget};
use super::{ServeResult, unknown_path};
use crate::apiserver::{Api, custom};
use crate::kinds::{self, Kind, KindRegistry};
use crate::object::{Key, api_version};

/// The objects that a request addresses.
pub struct ResolvedTarget<'a> {
    /// The kind of the objects.
    pub kind: &'static Kind,
    /// The requested `apiVersion`.
    pub api_version: String,
    /// The namespace of the objects; `None` for all, and for cluster-scoped kinds.
    pub namespace: Option<&'a str>,
    /// The name of the object, or empty.
    pub name: &'a str,
    /// `status`, `log`, or empty.
    pub subresource: &'a str,
    /// Whether the path asks for a watch.
    pub watch: bool,
}

impl ResolvedTarget<'_> {
    /// Returns the key of the named object.
    pub fn key(&self) -> Key {
        Key::new(self.kind.resource, self.namespace.unwrap_or_default(), self.name)
    }

    /// Whether the path has the namespace that a new object needs.
    pub fn is_placed(&self) -> bool {
        self.namespace.is_some() || !self.kind.namespaced
    }
}

/// The path of a request, which is parsed once for its labels and its answer.
pub struct RequestedPath {
    /// The parsed path; `None` when it has none of the API's forms.
    pub path: Option<ApiPath>,
    /// The kind, if it was known when the request arrived.
    pub kind: Option<&'static Kind>,
}

impl RequestedPath {
    /// Parses a path.
    pub fn parse(text: &str, registry: &KindRegistry) -> RequestedPath {
        let path = path::parse(text);
        let kind = match &path {
            Some(ApiPath::Object(named)) => find(registry, named),
            _ => None,
        };
        RequestedPath { path, kind }
    }
}

/// Returns the kind of a path; for a custom kind, by its current definition.
pub fn kind(api: &Api, named: &PathTarget) -> ServeResult<&'static Kind> {
    let kinds = api.kinds();
    let Some(found) = find(kinds, named) else {
        // Another process may have written its definition since.
        api.read(|snapshot| custom::register_definitions(kinds, snapshot))?;
        return find(kinds, named).ok_or_else(unknown_path);
    };
    let Some(declared) = found.custom else { return Ok(found) };
    api.read(|snapshot| custom::refresh(kinds, snapshot, declared))?;
    find(kinds, named).ok_or_else(unknown_path)
}

/// Returns the kind of a path among the known kinds.
pub fn find(registry: &KindRegistry, named: &PathTarget) -> Option<&'static Kind> {
    let is_named = |kind: &&'static Kind| {
        kind.resource.plural() == named.plural
            && (kind.resource.group() == named.group && kind.version == named.version
                || kind.also.contains(&&*api_version(&named.group, &named.version)))
    };
    // Most requests are for built-in kinds; the others are collected only where none fits.
    kinds::ALL.iter().copied().find(is_named).or_else(|| {
        let custom = registry.custom_kinds().into_iter().find(is_named)?;
        Some(custom.in_version(&api_version(&named.group, &named.version)))
    })
}

/// Resolves the path of a kind.
pub fn resolve_target<'a>(kind: &'static Kind, named: &'a PathTarget) -> ServeResult<ResolvedTarget<'a>> {
    // The path of a namespaced object has a namespace, that of others has none.
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
