//! The approval that definitions of Kubernetes' own groups need (the annotation `api-approved.kubernetes.io`).

use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The annotation.
pub const ANNOTATION: &str = "api-approved.kubernetes.io";
const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// The states of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// No annotation.
    Missing,
    /// The annotation is neither a URL nor begins with `unapproved`.
    Invalid,
    /// The annotation is a URL.
    Approved,
    /// The annotation begins with `unapproved`.
    Bypassed,
}

impl Approval {
    /// Reads the annotation. Returns the state and its reason as text.
    pub fn read(annotation: &str) -> (Approval, String) {
        let is_url = annotation.split_once("://").is_some_and(|(scheme, rest)| {
            let host = rest.split('/').next().unwrap_or_default();
            !scheme.is_empty() && scheme.chars().all(|letter| letter.is_ascii_alphanumeric()) && !host.is_empty()
        });
        let needed = format!("protected groups must have approval annotation {ANNOTATION:?}");
        match annotation {
            "" => (Approval::Missing, format!("{needed}, {SEE}")),
            text if text.starts_with("unapproved") => (Approval::Bypassed, format!("not approved: {text:?}")),
            text if is_url => (Approval::Approved, format!("approved in {text}")),
            _ => {
                let detail = format!("{needed} with either a URL or a reason starting with \"unapproved\", {SEE}");
                (Approval::Invalid, detail)
            }
        }
    }

    /// Status and reason of the condition `KubernetesAPIApprovalPolicyConformant`.
    pub fn condition(self) -> (&'static str, &'static str) {
        match self {
            Approval::Missing => ("False", "MissingAnnotation"),
            Approval::Invalid => ("False", "InvalidAnnotation"),
            Approval::Approved => ("True", "ApprovedAnnotation"),
            Approval::Bypassed => ("False", "UnapprovedAnnotation"),
        }
    }
}

/// Whether a group belongs to the Kubernetes community.
pub fn is_protected(group: &str) -> bool {
    let belongs = |known: &str| group == known || group.strip_suffix(known).is_some_and(|start| start.ends_with('.'));
    belongs("k8s.io") || belongs("kubernetes.io")
}

/// Checks the annotation of a definition, unless its state is as before.
pub fn check(metadata: &ObjectMeta, group: &str, old: Option<&ObjectMeta>, errors: &mut FieldErrors) {
    if !is_protected(group) {
        return;
    }
    let annotation = |metadata: &ObjectMeta| {
        metadata.annotations.as_ref().and_then(|known| known.get(ANNOTATION)).cloned().unwrap_or_default()
    };
    let text = annotation(metadata);
    let (state, why) = Approval::read(&text);
    if old.is_some_and(|old| Approval::read(&annotation(old)).0 == state) {
        return;
    }
    let path = FieldPath::root("metadata").child("annotations").key(ANNOTATION);
    match state {
        Approval::Missing => errors.required(&path, &why),
        Approval::Invalid => errors.invalid(&path, text.as_str(), &why),
        Approval::Approved | Approval::Bypassed => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approval_is_a_url_or_says_that_there_is_none() {
        let state = |text: &str| Approval::read(text).0;
        assert_eq!(state(""), Approval::Missing);
        assert_eq!(state("https://github.com/kubernetes/kubernetes/pull/1"), Approval::Approved);
        assert_eq!(state("unapproved, experimental"), Approval::Bypassed);
        assert_eq!(
            (state("yes"), state("https:///x"), state("://host")),
            (Approval::Invalid, Approval::Invalid, Approval::Invalid)
        );
        assert!(is_protected("x.k8s.io") && is_protected("kubernetes.io") && !is_protected("myk8s.io"));
    }
}
