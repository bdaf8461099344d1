//! Options from request parameters: `CreateOptions`, `DeleteOptions`, `ListOptions` and so on of `meta.k8s.io`.

use super::ServeResult;
use super::body;
use super::request::ApiRequest;
use super::version;
use crate::apiserver::delete::DeleteOptions;
use crate::apiserver::read::ListSelection;
use crate::apiserver::{Api, FieldValidation, WriteOptions, page};
use crate::kinds::shared::field;
use crate::kinds::{FieldError, FieldErrors, FieldPath, Kind};
use crate::managed_fields::FieldManager;
use crate::object::{FieldSelector, Resource, Selector, Status};
use crate::world::Propagation;
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns the 422 error about one parameter. `of`: `ListOptions`.
pub fn wrong(of: &str, parameter: &str, reason: &'static str, message: String) -> Status {
    let error = FieldError { field: parameter.into(), reason, message };
    field::invalid(of, Resource("options.meta.k8s.io"), "", &[error])
}

/// Returns the error about a parameter that is not allowed.
pub fn forbidden(of: &str, parameter: &str, why: &str) -> Status {
    wrong(of, parameter, "FieldValueForbidden", format!("Forbidden: {why}"))
}

/// Parses the options of a write. `of`: `CreateOptions`.
pub fn write_options(request: &ApiRequest, of: &str) -> ServeResult<WriteOptions> {
    let field_validation = match request.parameter("fieldValidation") {
        None | Some("Warn") => FieldValidation::Warn,
        Some("Strict") => FieldValidation::Strict,
        Some("Ignore") => FieldValidation::Ignore,
        Some(other) => {
            let message =
                format!("Unsupported value: {other:?}: supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"");
            return Err(wrong(of, "fieldValidation", "FieldValueNotSupported", message));
        }
    };
    Ok(WriteOptions {
        field_validation,
        dry_run: dry_run(request, of, None)?,
        manager: Some(manager(request)),
        applier: None,
        api_version: None,
        body: None,
    })
}

/// Like [`write_options`], for a request whose body is the object.
pub fn body_write_options(request: &ApiRequest, of: &str) -> ServeResult<WriteOptions> {
    let options = write_options(request, of)?;
    Ok(WriteOptions { body: body::read_written_body(request, options.field_validation).map(Arc::new), ..options })
}

/// Returns the field manager: `fieldManager`, else the client's user agent, else `unknown` (`managedfields/internal/buildmanagerinfo.go`).
fn manager(request: &ApiRequest) -> FieldManager {
    let agent = request.agent.split('/').next().unwrap_or_default();
    let named = request.parameter("fieldManager").unwrap_or(agent);
    FieldManager { name: if named.is_empty() { "unknown" } else { named }.to_owned(), subresource: "" }
}

fn dry_run(request: &ApiRequest, of: &str, in_body: Option<&Value>) -> ServeResult<bool> {
    let asked: Vec<&str> =
        request.query.iter().filter(|(name, _)| name == "dryRun").map(|(_, value)| value.as_str()).collect();
    let of_body = in_body.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let asked: Vec<&str> = asked.into_iter().chain(of_body).filter(|text| !text.is_empty()).collect();
    if asked.iter().any(|text| *text != "All") {
        let message = format!("Unsupported value: {}: supported values: \"All\"", json!(asked));
        return Err(wrong(of, "dryRun", "FieldValueNotSupported", message));
    }
    Ok(!asked.is_empty())
}

/// Parses deletion options from the parameters and the body. Also returns whether it is a dry run.
pub fn delete_options(request: &ApiRequest) -> ServeResult<(DeleteOptions, bool)> {
    let options = if request.body.is_empty() { json!({}) } else { body::value(request, ("v1", "DeleteOptions"))? };
    let kind = options["kind"].as_str().unwrap_or_default();
    if !["", "DeleteOptions"].contains(&kind) {
        let version = options["apiVersion"].as_str().filter(|text| !text.is_empty()).unwrap_or("meta.k8s.io/v1");
        return Err(Status::bad_request(format!("no kind {kind:?} is registered for version {version:?}")));
    }
    let grace = &options["gracePeriodSeconds"];
    if !grace.is_null() && !grace.is_i64() {
        let found = body::json_type(grace);
        return Err(Status::bad_request(format!(
            "json: cannot unmarshal {found} into Go struct field DeleteOptions.gracePeriodSeconds of type int64"
        )));
    }
    let (deletion, dry_run) = read_delete_options(request, &options)?;
    Ok((DeleteOptions { only_marks: !dry_run, ..deletion }, dry_run))
}

/// Like [`delete_options`], with options that were read already.
pub fn read_delete_options(request: &ApiRequest, options: &Value) -> ServeResult<(DeleteOptions, bool)> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let propagation = options["propagationPolicy"].as_str().or(request.parameter("propagationPolicy"));
    let orphans = orphan_dependents(request, options);
    if let (Some(policy), Some(_)) = (propagation, orphans) {
        let message = format!("Invalid value: {policy:?}: orphanDependents and deletionPropagation cannot be both set");
        return Err(wrong("DeleteOptions", "propagationPolicy", "FieldValueInvalid", message));
    }
    let propagation = match (propagation, orphans) {
        (None, None) => None,
        (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
        (Some("Foreground"), _) => Some(Propagation::Foreground),
        (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
        (Some(other), _) => {
            let words = "\"Foreground\", \"Background\", \"Orphan\", \"nil\"";
            let message = format!("Unsupported value: {other:?}: supported values: {words}");
            return Err(wrong("DeleteOptions", "propagationPolicy", "FieldValueNotSupported", message));
        }
    };
    let dry_run = dry_run(request, "DeleteOptions", options.get("dryRun"))?;
    let deletion = DeleteOptions {
        dry_run,
        api_version: None,
        only_marks: false,
        grace: options["gracePeriodSeconds"].as_i64().or(request.number("gracePeriodSeconds")?),
        propagation,
        uid: text(&options["preconditions"]["uid"]),
        revision: text(&options["preconditions"]["resourceVersion"]),
    };
    Ok((deletion, dry_run))
}

/// Returns `orphanDependents` of deletion options, which `propagationPolicy` has replaced.
fn orphan_dependents(request: &ApiRequest, options: &Value) -> Option<bool> {
    let parameter = || request.parameter("orphanDependents").map(|text| text != "false");
    options["orphanDependents"].as_bool().or_else(parameter)
}

/// Whether a request deletes dependents by the deprecated `orphanDependents: false`. The answer has the status 202 while the object waits
/// for them.
pub fn reports_pending_deletion(request: &ApiRequest) -> bool {
    let read = || body::value(request, ("v1", "DeleteOptions")).unwrap_or_default();
    let options = if request.body.is_empty() { Value::Null } else { read() };
    orphan_dependents(request, &options) == Some(false)
}

/// The revision of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListMoment {
    /// The current state.
    Now,
    /// The current state, which must not be older than this revision.
    Since(u64),
    /// The state at this revision.
    At(u64),
}

/// Returns the selectors of a list, a watch or a deletion. Fields have the names of the requested version. Refuses a timeout that is not
/// a number, although only watches use it.
pub fn list_selection(request: &ApiRequest, (kind, api_version): (&Kind, &str)) -> ServeResult<ListSelection> {
    request.number("timeoutSeconds")?;
    let labels = request.parameter("labelSelector").map(Selector::parse).transpose();
    let fields = request.parameter("fieldSelector").map(FieldSelector::parse).transpose();
    let fields = fields.map_err(|error| Status::bad_request(error.to_string()))?;
    let fields = fields.map(|fields| fields.renamed(|field| version::stored_field(kind, api_version, field)));
    Ok(ListSelection {
        labels: labels.map_err(|error| Status::bad_request(error.to_string()))?,
        fields: fields
            .transpose()
            .map_err(|field| Status::bad_request(format!("field label not supported: {field}")))?,
    })
}

/// Returns the revision that a request names; 0 where any is accepted.
pub fn revision(request: &ApiRequest) -> ServeResult<Option<u64>> {
    let Some(text) = request.parameter("resourceVersion") else { return Ok(None) };
    let refuse = |_| {
        let why =
            format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax");
        Status::bad_request(format!("invalid resource version: {why}"))
    };
    text.parse().map(Some).map_err(refuse)
}

/// Returns the revision of a list.
pub fn moment(request: &ApiRequest) -> ServeResult<ListMoment> {
    check_list_revision(request)?;
    Ok(match (request.parameter("resourceVersionMatch"), revision(request)?) {
        (Some("Exact"), Some(revision)) => ListMoment::At(revision),
        (_, Some(revision)) if revision > 0 => ListMoment::Since(revision),
        _ => ListMoment::Now,
    })
}

/// Checks the parameters about the revision of a list, all at once (`ValidateListOptions`).
fn check_list_revision(request: &ApiRequest) -> ServeResult<()> {
    let mut errors = FieldErrors::default();
    let path = FieldPath::root("resourceVersionMatch");
    if let Some(matching) = request.parameter("resourceVersionMatch") {
        let revision = request.parameter("resourceVersion");
        if revision.is_none() {
            errors.forbidden(&path, "resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        if request.parameter("continue").is_some() {
            errors.forbidden(&path, "resourceVersionMatch is forbidden when continue is provided");
        }
        if !["Exact", "NotOlderThan"].contains(&matching) {
            errors.unsupported_as_listed(&path, matching, &["Exact", "NotOlderThan", ""]);
        }
        if (matching, revision) == ("Exact", Some("0")) {
            errors.forbidden(&path, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
        }
    }
    if request.flag("sendInitialEvents") {
        errors.forbidden(&FieldPath::root("sendInitialEvents"), "sendInitialEvents is forbidden for list");
    }
    match errors.0.is_empty() {
        true => Ok(()),
        false => Err(field::invalid("ListOptions", Resource("options.meta.k8s.io"), "", &errors.0)),
    }
}

/// Refuses a revision that does not exist yet.
pub fn check_reached(api: &Api, revision: u64) -> ServeResult<()> {
    match api.read(|snapshot| snapshot.revision())? {
        head if revision > head => Err(page::too_large(revision, head)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_about_the_revision_of_a_list_are_checked_at_once() {
        let refusal = |query: &str| {
            let moment = moment(&ApiRequest::new("GET", &format!("/api/v1/pods?{query}")));
            moment.map_err(|status| status.message)
        };
        let invalid = |why: &str| Err(format!("ListOptions.meta.k8s.io \"\" is invalid: {why}"));
        assert_eq!(refusal("resourceVersion=7&resourceVersionMatch=Exact"), Ok(ListMoment::At(7)));
        assert_eq!(refusal("resourceVersion=7"), Ok(ListMoment::Since(7)));
        assert_eq!(refusal("resourceVersion=0&resourceVersionMatch=NotOlderThan"), Ok(ListMoment::Now));
        let exact =
            "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
        assert_eq!(refusal("resourceVersion=0&resourceVersionMatch=Exact"), invalid(exact));
        let unknown =
            "resourceVersionMatch: Unsupported value: \"Odd\": supported values: \"Exact\", \"NotOlderThan\", \"\"";
        assert_eq!(refusal("resourceVersion=x&resourceVersionMatch=Odd"), invalid(unknown));
        let unless =
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
        let next = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided";
        assert_eq!(refusal("continue=a&resourceVersionMatch=Exact"), invalid(&format!("[{unless}, {next}]")));
    }
}
