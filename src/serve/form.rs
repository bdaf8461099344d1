//! In which form an answer is wanted: the header `Accept`.

use super::ServeResult;
use super::request::ApiRequest;
use crate::object::{Reason, Status};

/// Representation of an object or a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AnswerShape {
    /// As it is.
    #[default]
    Whole,
    /// As rows of a table, of this version of `meta.k8s.io`.
    Table(String),
    /// Its metadata alone, of this version of `meta.k8s.io`.
    Metadata(String),
    /// The groups with all their resources, of this version of `apidiscovery.k8s.io`.
    Discovery(String),
}

/// The form of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerForm {
    /// YAML rather than JSON.
    pub is_yaml: bool,
    /// JSON with line breaks.
    pub is_pretty: bool,
    /// The representation.
    pub shape: AnswerShape,
}

/// Error message for other media types.
const OTHERS: &str = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
                      application/vnd.kubernetes.protobuf, application/json;stream=watch, \
                      application/vnd.kubernetes.protobuf;stream=watch";

impl AnswerForm {
    /// The first form asked for that can be given, as clients list them by preference.
    pub fn negotiate(request: &ApiRequest) -> ServeResult<AnswerForm> {
        let is_pretty = request.is_for_people();
        if request.accept.trim().is_empty() {
            return Ok(AnswerForm { is_pretty, ..AnswerForm::default() });
        }
        let found = request.accept.split(',').find_map(AnswerForm::clause);
        let found = found.map(|form| AnswerForm { is_pretty, ..form });
        found.ok_or_else(|| Status::new(Reason::NotAcceptable, OTHERS))
    }

    fn clause(clause: &str) -> Option<AnswerForm> {
        let mut words = clause.split(';').map(str::trim);
        let media = words.next().unwrap_or_default();
        let mut parameters = words.filter_map(|word| word.split_once('='));
        let is_yaml = match media {
            "application/json" | "application/*" | "*/*" => false,
            "application/yaml" => true,
            _ => return None,
        };
        let find = |name: &str| parameters.clone().find(|(known, _)| *known == name).map(|(_, value)| value);
        let version = || find("v").filter(|version| ["v1", "v1beta1"].contains(version)).map(str::to_owned);
        let discovery = || find("v").filter(|version| ["v2", "v2beta1"].contains(version)).map(str::to_owned);
        let shape = match (find("as"), find("g")) {
            (None, _) => AnswerShape::Whole,
            (Some("Table"), Some("meta.k8s.io")) => AnswerShape::Table(version()?),
            (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Some("meta.k8s.io")) => {
                AnswerShape::Metadata(version()?)
            }
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io")) => AnswerShape::Discovery(discovery()?),
            _ => return None,
        };
        // Anything else about the media type, `q` or `charset`, changes nothing.
        let _ = parameters.next();
        Some(AnswerForm { is_yaml, is_pretty: false, shape })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_can_be_given_is() {
        let form = |accept: &str| AnswerForm::negotiate(&ApiRequest { accept: accept.into(), ..ApiRequest::default() });
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(form(table).unwrap().shape, AnswerShape::Table("v1".into()));
        let typed = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(form(typed), Ok(AnswerForm::default()));
        assert!(form("application/yaml").unwrap().is_yaml);
        assert_eq!(form("application/json, */*"), Ok(AnswerForm::default()));
        assert_eq!(form("text/html,application/json;as=Nothing;g=x"), Err(Status::new(Reason::NotAcceptable, OTHERS)));
    }
}
