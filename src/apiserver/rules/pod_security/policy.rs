//! The policy of a namespace: three modes, each with a level and a version, from its labels.

use crate::kinds::{FieldErrors, FieldPath};
use crate::object::Object;
use std::fmt::{self, Display, Formatter};

const PREFIX: &str = "pod-security.kubernetes.io/";

/// A set of checks, the least strict first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// No checks.
    Privileged,
    /// Known privilege escalations are refused.
    Baseline,
    /// Pods have to be hardened.
    Restricted,
}

impl Level {
    fn parse(text: &str) -> Option<Level> {
        [Level::Privileged, Level::Baseline, Level::Restricted].into_iter().find(|level| level.name() == text)
    }

    fn name(self) -> &'static str {
        match self {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        }
    }
}

/// A level as one Kubernetes version defined it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyLevel {
    /// The level.
    pub level: Level,
    /// N of `v1.N`; `None` for `latest`.
    pub version: Option<u32>,
}

impl Display for PolicyLevel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.version {
            Some(minor) => write!(f, "{}:v1.{minor}", self.level.name()),
            None => write!(f, "{}:latest", self.level.name()),
        }
    }
}

const PRIVILEGED: PolicyLevel = PolicyLevel { level: Level::Privileged, version: None };

/// The policy of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespacePolicy {
    /// Pods that violate it are refused.
    pub enforce: PolicyLevel,
    /// Violations are noted in the audit log.
    pub audit: PolicyLevel,
    /// Violations are warned of.
    pub warn: PolicyLevel,
}

impl NamespacePolicy {
    /// Reads the labels of a namespace, and adds an error for each one that cannot be read: such a level enforces `restricted`.
    pub fn from_labels(namespace: &Object, errors: &mut FieldErrors) -> NamespacePolicy {
        let mut policy = NamespacePolicy { enforce: PRIVILEGED, audit: PRIVILEGED, warn: PRIVILEGED };
        let mut is_level_valid = false;
        for mode in ["enforce", "audit", "warn"] {
            let is_enforced = mode == "enforce";
            let chosen = match mode {
                "enforce" => &mut policy.enforce,
                "audit" => &mut policy.audit,
                _ => &mut policy.warn,
            };
            let label = format!("{PREFIX}{mode}");
            if let Some(text) = namespace.label(&label) {
                let level = Level::parse(text);
                is_level_valid |= is_enforced && level.is_some();
                // Modes that refuse nothing stay silent where their label is wrong.
                chosen.level = level.unwrap_or(if is_enforced { Level::Restricted } else { Level::Privileged });
                if level.is_none() {
                    refuse(errors, &label, text, "must be one of privileged, baseline, restricted");
                }
            }
            let label = format!("{label}-version");
            if let Some(text) = namespace.label(&label) {
                chosen.version = parse_version(text).unwrap_or_else(|()| {
                    refuse(errors, &label, text, "must be \"latest\" or \"v1.x\"");
                    None
                });
            }
        }
        // Without a label of its own, the mode warn follows a stricter mode enforce.
        let has_own = |mode: &str| namespace.label(&format!("{PREFIX}{mode}")).is_some();
        if is_level_valid && !has_own("warn") && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if !has_own("warn-version") {
                policy.warn.version = policy.enforce.version;
            }
        }
        policy
    }
}

/// Whether a namespace has a label of Pod Security; without one nothing is checked.
pub fn is_labelled(namespace: &Object) -> bool {
    namespace.pairs(&["metadata", "labels"]).any(|(key, _)| key.starts_with(PREFIX))
}

fn refuse(errors: &mut FieldErrors, label: &str, text: &str, detail: &str) {
    errors.invalid(&FieldPath::root("metadata").child("labels").key(label), text, detail);
}

fn parse_version(text: &str) -> Result<Option<u32>, ()> {
    if text == "latest" {
        return Ok(None);
    }
    let minor = text.strip_prefix("v1.").ok_or(())?;
    let is_number = minor.bytes().all(|digit| digit.is_ascii_digit()) && (minor == "0" || !minor.starts_with('0'));
    // A version that is too large for Go's integers is refused there, too.
    let minor: i64 = minor.parse().map_err(|_| ())?;
    if is_number { Ok(Some(u32::try_from(minor).unwrap_or(u32::MAX))) } else { Err(()) }
}
