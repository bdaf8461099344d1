//! The form of an answer, from the header `Accept`.

use super::ServeResult;
use super::protobuf::PROTOBUF;
use super::request::ApiRequest;
use crate::object::{Reason, Status};

/// Representation of an object or a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AnswerShape {
    /// Unchanged.
    #[default]
    Whole,
    /// Rows of a table, of this version of `meta.k8s.io`.
    Table(String),
    /// Only the metadata, of this version of `meta.k8s.io`.
    Metadata(String),
    /// The groups with their resources, of this version of `apidiscovery.k8s.io`.
    Discovery(String),
}

/// The encoding of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerEncoding {
    /// JSON.
    #[default]
    Json,
    /// YAML.
    Yaml,
    /// Kubernetes' protobuf.
    Protobuf,
}

impl AnswerEncoding {
    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            AnswerEncoding::Json => "application/json",
            AnswerEncoding::Yaml => "application/yaml",
            AnswerEncoding::Protobuf => PROTOBUF,
        }
    }
}

/// The form of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerForm {
    /// The encoding.
    pub encoding: AnswerEncoding,
    /// Whether JSON has line breaks.
    pub is_pretty: bool,
    /// The representation.
    pub shape: AnswerShape,
    /// Whether the metadata is asked for as that of a list; `None` for other representations.
    pub is_list_metadata: Option<bool>,
}

/// Error message for other media types.
const NOT_ACCEPTABLE: &str = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
                      application/vnd.kubernetes.protobuf, application/json;stream=watch, \
                      application/vnd.kubernetes.protobuf;stream=watch";

impl AnswerForm {
    /// Returns the client's preferred form among the possible ones. `has_protobuf`: whether the objects have a protobuf encoding; metadata
    /// always has one.
    pub fn negotiate(request: &ApiRequest, has_protobuf: impl Fn() -> bool) -> ServeResult<AnswerForm> {
        let is_possible = |form: &AnswerForm| match (form.encoding, &form.shape) {
            (AnswerEncoding::Protobuf, AnswerShape::Whole) => has_protobuf(),
            (AnswerEncoding::Protobuf, AnswerShape::Table(_)) => false,
            _ => true,
        };
        AnswerForm::find(request, is_possible).ok_or_else(|| Status::new(Reason::NotAcceptable, NOT_ACCEPTABLE))
    }

    /// Returns the client's preferred form of an object that has no table, such as a review or a token.
    pub fn negotiate_whole(request: &ApiRequest) -> ServeResult<AnswerForm> {
        let found = AnswerForm::find(request, |form| form.shape == AnswerShape::Whole);
        found.ok_or_else(|| Status::new(Reason::NotAcceptable, NOT_ACCEPTABLE))
    }

    /// Refuses the metadata of one object where a list is the answer, and the other way round. `go_type`: the answer's type in Kubernetes.
    pub fn check_metadata(&self, is_list: bool, go_type: impl Fn() -> String) -> ServeResult<()> {
        let text = match self.is_list_metadata {
            Some(false) if is_list => {
                format!("you requested PartialObjectMetadata, but the requested object is a list ({})", go_type())
            }
            Some(true) if !is_list => {
                format!(
                    "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
                    go_type()
                )
            }
            _ => return Ok(()),
        };
        Err(Status::new(Reason::NotAcceptable, text))
    }

    /// Returns the form of an error: JSON if no other form fits.
    pub fn negotiate_error(request: &ApiRequest) -> AnswerForm {
        let found = AnswerForm::negotiate_whole(request);
        found.unwrap_or_else(|_| AnswerForm { is_pretty: request.is_for_people(), ..AnswerForm::default() })
    }

    fn find(request: &ApiRequest, is_possible: impl Fn(&AnswerForm) -> bool) -> Option<AnswerForm> {
        let is_pretty = request.is_for_people();
        if request.accept.trim().is_empty() {
            return Some(AnswerForm { is_pretty, ..AnswerForm::default() });
        }
        let mut clauses: Vec<AcceptClause> = request.accept.split(',').filter_map(AcceptClause::parse).collect();
        // A stable sort: the first of equal clauses wins.
        clauses.sort_by(|one, other| other.rank().total_cmp(&one.rank()));
        let found = clauses.iter().filter_map(AcceptClause::form).find(is_possible);
        found.map(|form| AnswerForm { is_pretty, ..form })
    }
}

/// One media type of the header `Accept`.
struct AcceptClause<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    weight: f64,
}

impl<'a> AcceptClause<'a> {
    fn parse(text: &'a str) -> Option<AcceptClause<'a>> {
        let mut words = text.split(';').map(str::trim);
        let media = words.next().filter(|media| !media.is_empty())?;
        let parameters: Vec<_> = words.filter_map(|word| word.split_once('=')).collect();
        let weight = parameters.iter().find(|(name, _)| *name == "q").map(|(_, text)| text.parse::<f64>());
        let weight = weight.map_or(1.0, |weight| weight.unwrap_or(1.0));
        Some(AcceptClause { media, parameters, weight })
    }

    /// Returns the rank: by weight, and exact media types before wildcards (`goautoneg`).
    fn rank(&self) -> f64 {
        let vague = match self.media {
            "*/*" => 2.0,
            media if media.ends_with("/*") => 1.0,
            _ => 0.0,
        };
        self.weight - vague * 1e-9
    }

    fn form(&self) -> Option<AnswerForm> {
        let encoding = match self.media {
            "application/json" | "application/*" | "*/*" => AnswerEncoding::Json,
            "application/yaml" => AnswerEncoding::Yaml,
            PROTOBUF => AnswerEncoding::Protobuf,
            _ => return None,
        };
        let find = |name: &str| self.parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let is_list_metadata = match find("as") {
            Some("PartialObjectMetadata") => Some(false),
            Some("PartialObjectMetadataList") => Some(true),
            _ => None,
        };
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
        if find("stream").is_some_and(|stream| !stream.is_empty() && stream != "watch") {
            return None;
        }
        // Other parameters, such as `charset`, have no effect.
        Some(AnswerForm { encoding, is_pretty: false, shape, is_list_metadata })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(accept: &str) -> ServeResult<AnswerForm> {
        AnswerForm::negotiate(&ApiRequest { accept: accept.into(), ..ApiRequest::default() }, || true)
    }

    fn json_only(accept: &str) -> ServeResult<AnswerForm> {
        AnswerForm::negotiate(&ApiRequest { accept: accept.into(), ..ApiRequest::default() }, || false)
    }

    fn refused() -> ServeResult<AnswerForm> {
        Err(Status::new(Reason::NotAcceptable, NOT_ACCEPTABLE))
    }

    #[test]
    fn object_without_a_table_is_not_answered_as_one() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let whole =
            |accept: &str| AnswerForm::negotiate_whole(&ApiRequest { accept: accept.into(), ..ApiRequest::default() });
        assert_eq!(whole(table), refused());
        assert_eq!(whole(&format!("{table},application/json")), Ok(AnswerForm::default()));
    }

    #[test]
    fn negotiation_takes_the_first_possible_form() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(form(table).unwrap().shape, AnswerShape::Table("v1".into()));
        assert_eq!(form("application/yaml").unwrap().encoding, AnswerEncoding::Yaml);
        assert_eq!(form("application/json, */*"), Ok(AnswerForm::default()));
        assert_eq!(form("text/html,application/json;as=Nothing;g=x"), refused());
    }

    #[test]
    fn negotiation_chooses_protobuf_where_an_encoding_exists() {
        let typed = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(form(typed).unwrap().encoding, AnswerEncoding::Protobuf);
        assert_eq!(json_only(typed), Ok(AnswerForm::default()));
        assert_eq!(json_only(PROTOBUF), refused());
        assert_eq!(
            form("application/vnd.kubernetes.protobuf;stream=watch").unwrap().encoding,
            AnswerEncoding::Protobuf
        );
        assert_eq!(form("application/vnd.kubernetes.protobuf;stream=other"), refused());
        // The metadata of custom resources has a protobuf encoding, tables have none.
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        assert_eq!(json_only(metadata).unwrap().encoding, AnswerEncoding::Protobuf);
        assert_eq!(form("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1"), refused());
    }

    #[test]
    fn negotiation_prefers_the_higher_weight() {
        let encoding = |accept: &str| form(accept).unwrap().encoding;
        assert_eq!(
            encoding("application/json;q=0.5, application/vnd.kubernetes.protobuf;q=0.8"),
            AnswerEncoding::Protobuf
        );
        assert_eq!(encoding("application/vnd.kubernetes.protobuf;q=0.5, application/json"), AnswerEncoding::Json);
        assert_eq!(encoding("*/*, application/vnd.kubernetes.protobuf"), AnswerEncoding::Protobuf);
        assert_eq!(encoding("*/*;q=0.9, application/vnd.kubernetes.protobuf;q=0.8"), AnswerEncoding::Json);
    }

    #[test]
    fn errors_fall_back_to_json() {
        let form = |accept: &str| {
            AnswerForm::negotiate_error(&ApiRequest { accept: accept.into(), ..ApiRequest::default() }).encoding
        };
        assert_eq!(form("application/vnd.kubernetes.protobuf,application/json"), AnswerEncoding::Protobuf);
        assert_eq!(form("application/json;as=Table;v=v1;g=meta.k8s.io,application/yaml"), AnswerEncoding::Yaml);
        assert_eq!(form("text/html"), AnswerEncoding::Json);
    }
}
