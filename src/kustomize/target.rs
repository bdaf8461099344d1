//! Selection of objects for a patch or a replacement.

use super::BuildResult;
use super::file::ResourceSelector;
use super::id::ResourceId;
use super::resource::BuildResource;
use crate::object::Selector;
use regex::Regex;

/// A target whose texts are regular expressions that match whole values.
pub struct TargetPattern {
    group: Option<Regex>,
    version: Option<Regex>,
    kind: Option<Regex>,
    name: Option<Regex>,
    namespace: Option<Regex>,
    labels: Selector,
    annotations: Selector,
}

impl TargetPattern {
    /// Compiles a target.
    pub fn new(target: &ResourceSelector) -> BuildResult<TargetPattern> {
        let selector = |text: &str| Selector::parse(text).map_err(|error| error.to_string());
        Ok(TargetPattern {
            group: pattern(&target.group)?,
            version: pattern(&target.version)?,
            kind: pattern(&target.kind)?,
            name: pattern(&target.name)?,
            namespace: pattern(&target.namespace)?,
            labels: selector(&target.label_selector)?,
            annotations: selector(&target.annotation_selector)?,
        })
    }

    /// Whether the target selects an object. Name and namespace may be the current or the original
    /// ones.
    pub fn selects(&self, resource: &BuildResource) -> bool {
        let (now, first) = (resource.id(), resource.first_id());
        self.is_of_kind(&now)
            && (fits(self.name.as_ref(), &first.name) || fits(self.name.as_ref(), &now.name))
            && (self.is_in(&first) || self.is_in(&now))
            && self.has_labels(resource)
    }

    /// Like [`TargetPattern::selects`], with the current and all former identities.
    pub fn selects_ever(&self, resource: &BuildResource) -> bool {
        let mut ids = resource.before.iter().cloned().chain([resource.id()]);
        let is = |id: ResourceId| self.is_of_kind(&id) && fits(self.name.as_ref(), &id.name) && self.is_in(&id);
        ids.any(is) && self.has_labels(resource)
    }

    fn is_of_kind(&self, id: &ResourceId) -> bool {
        fits(self.group.as_ref(), &id.group)
            && fits(self.version.as_ref(), &id.version)
            && fits(self.kind.as_ref(), &id.kind)
    }

    fn is_in(&self, id: &ResourceId) -> bool {
        self.namespace.as_ref().is_none_or(|pattern| id.place().is_some_and(|place| pattern.is_match(place)))
    }

    fn has_labels(&self, resource: &BuildResource) -> bool {
        self.labels.matches(|key| resource.object.label(key))
            && self.annotations.matches(|key| resource.object.annotation(key))
    }
}

fn pattern(text: &str) -> BuildResult<Option<Regex>> {
    if text.is_empty() {
        return Ok(None);
    }
    let refuse = |error: regex::Error| format!("{text:?} is not a regular expression: {error}");
    Regex::new(&format!("^(?:{text})$")).map(Some).map_err(refuse)
}

fn fits(pattern: Option<&Regex>, text: &str) -> bool {
    pattern.is_none_or(|pattern| pattern.is_match(text))
}
