//! Merge rules of a type's fields: strategies and the keys of lists.
//!
//! A field that is not listed merges when it is a map and is replaced when it is a list. Never: knows a kind; the rules of the built-in
//! ones are in `kinds::merge_rules`.

/// Merge rules of one type's fields.
#[derive(Debug)]
pub struct MergeSchema(&'static [(&'static str, MergeField)]);

/// A type's schema.
pub type MergeSchemaRef = &'static MergeSchema;

/// Merge rule of one field.
#[derive(Clone, Copy, Debug)]
pub struct MergeField {
    pub(super) strategy: MergeStrategy,
    /// Whether a patch lists the keys to keep because they exclude each other (`$retainKeys`).
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
    /// Replaced whole although it is a map.
    Replace,
    /// A list of maps that are the same when this field is.
    ByKey(&'static str),
    /// A list of texts or numbers, each at most once.
    Set,
}

impl MergeSchema {
    /// The schema of a type whose fields have these rules.
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

/// A field that merges when it is a map, by the rules of its type.
pub const fn map(of: MergeSchemaRef) -> MergeField {
    field(MergeStrategy::Plain, of)
}

/// A list of maps that are the same when this field is.
pub const fn list(key: &'static str, of: MergeSchemaRef) -> MergeField {
    field(MergeStrategy::ByKey(key), of)
}

/// The same with a second key, which kustomize uses, and its default.
pub const fn with_second_key(second: &'static str, default: &'static str, field: MergeField) -> MergeField {
    MergeField { second: Some((second, default)), ..field }
}

/// The same, where a patch lists the keys to keep because they exclude each other.
pub const fn retaining(field: MergeField) -> MergeField {
    MergeField { retain_keys: true, ..field }
}

/// A list of texts or numbers, each at most once.
pub const SET: MergeField = field(MergeStrategy::Set, &ANY);
/// A map that is replaced whole.
pub const REPLACE: MergeField = field(MergeStrategy::Replace, &ANY);

/// Schema without any rule.
pub static ANY: MergeSchema = MergeSchema(&[]);
