//! Merge rules of a type's fields: strategies and the keys of lists.
//!
//! An unlisted field is merged if it is a map, and replaced if it is a list. Never: depends on a kind; the rules of
//! built-in kinds are in `kinds::merge_rules`.

/// Merge rules of one type's fields.
#[derive(Debug)]
pub struct MergeSchema(&'static [(&'static str, MergeField)]);

/// A type's schema.
pub type MergeSchemaRef = &'static MergeSchema;

/// Merge rule of one field.
#[derive(Clone, Copy, Debug)]
pub struct MergeField {
    pub(super) strategy: MergeStrategy,
    /// Whether a patch lists the keys to keep (`$retainKeys`), for maps with mutually exclusive keys.
    pub(super) retain_keys: bool,
    /// Second key of a list's elements, used by kustomize only, and its default.
    pub(super) second: Option<(&'static str, &'static str)>,
    /// The type of the map, or of the list's elements.
    pub(super) of: MergeSchemaRef,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MergeStrategy {
    /// Maps merge, lists are replaced.
    Plain,
    /// Replaced, although it is a map.
    Replace,
    /// A list of maps, which this field identifies.
    ByKey(&'static str),
    /// A set of texts or numbers.
    Set,
}

impl MergeSchema {
    /// Creates a schema from rules of fields.
    pub const fn new(fields: &'static [(&'static str, MergeField)]) -> MergeSchema {
        MergeSchema(fields)
    }

    /// The fields that have a rule.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, MergeField)> + use<> {
        self.0.iter().copied()
    }

    /// Returns the merge rule of a field.
    pub(super) fn field(&self, name: &str) -> MergeField {
        self.0.iter().find(|(known, _)| *known == name).map_or(map(&ANY), |(_, field)| *field)
    }
}

impl MergeField {
    /// The value of Kubernetes' tag `patchStrategy`.
    pub fn patch_strategy(&self) -> Option<&'static str> {
        match (self.strategy, self.retain_keys) {
            (MergeStrategy::ByKey(_) | MergeStrategy::Set, true) => Some("merge,retainKeys"),
            (MergeStrategy::ByKey(_) | MergeStrategy::Set, false) => Some("merge"),
            (MergeStrategy::Replace, _) => Some("replace"),
            (MergeStrategy::Plain, true) => Some("retainKeys"),
            (MergeStrategy::Plain, false) => None,
        }
    }

    /// The value of Kubernetes' tag `patchMergeKey`.
    pub fn merge_key(&self) -> Option<&'static str> {
        match self.strategy {
            MergeStrategy::ByKey(key) => Some(key),
            _ => None,
        }
    }

    /// The rules of the map, or of the list's elements.
    pub fn inner(&self) -> MergeSchemaRef {
        self.of
    }
}

const fn field(strategy: MergeStrategy, of: MergeSchemaRef) -> MergeField {
    MergeField { strategy, retain_keys: false, second: None, of }
}

/// A map that is merged by the rules of its type.
pub const fn map(of: MergeSchemaRef) -> MergeField {
    field(MergeStrategy::Plain, of)
}

/// A list of maps, which this field identifies.
pub const fn list(key: &'static str, of: MergeSchemaRef) -> MergeField {
    field(MergeStrategy::ByKey(key), of)
}

/// Adds a second key, which only kustomize uses, and its default.
pub const fn with_second_key(second: &'static str, default: &'static str, field: MergeField) -> MergeField {
    MergeField { second: Some((second, default)), ..field }
}

/// Adds `$retainKeys` to patches, for maps with mutually exclusive keys.
pub const fn retaining(field: MergeField) -> MergeField {
    MergeField { retain_keys: true, ..field }
}

/// A set of texts or numbers.
pub const SET: MergeField = field(MergeStrategy::Set, &ANY);
/// A map that is replaced.
pub const REPLACE: MergeField = field(MergeStrategy::Replace, &ANY);

/// Schema without any rule.
pub static ANY: MergeSchema = MergeSchema(&[]);
