//! Create, replace, patch and server-side apply.

use super::body;
use super::options;
use super::presentation::ReadPresentation;
use super::request::ApiRequest;
use super::resolve::ResolvedTarget;
use super::{HttpAnswer, ServeResult};
use crate::apiserver::apply::ApplyOutcome;
use crate::apiserver::apply_patch::apply_patch;
use crate::apiserver::create::create as make;
use crate::apiserver::patch::{self as edit, PatchType};
use crate::apiserver::update::{UpdatePart, update};
use crate::apiserver::{Api, FieldValidation, WriteOptions, WriteReply};
use crate::managed_fields::apply::ApplyManager;
use crate::object::patch::is_deeper_than;
use crate::object::{Object, Reason, Status, yaml};
use serde_json::{Value, json};

/// Error message for an unknown patch type.
const UNKNOWN_PATCH_TYPE: &str = "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, \
                         application/merge-patch+json, application/strategic-merge-patch+json";

/// Answers a write.
pub fn written(show: &ReadPresentation, code: u16, reply: WriteReply) -> HttpAnswer {
    let warnings = reply.warnings.clone();
    show.answer_object(code, reply.into_object()).warning(&warnings)
}

/// Creates an object.
pub fn create(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult {
    let show = ReadPresentation::from_request(request, asked)?;
    let options = options::body_write_options(request, "CreateOptions")?;
    let object = body::object(request, asked)?;
    let reply = api.write(options.dry_run, |txn| make(txn, asked.kind, &object, &options))?;
    Ok(written(&show, 201, reply))
}

/// Replaces an object.
pub fn replace(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult {
    replace_part(api, request, asked, UpdatePart::Main)
}

/// Replaces a part of an object.
pub fn replace_part(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>, part: UpdatePart) -> ServeResult {
    let show = ReadPresentation::from_request(request, asked)?;
    let options = options::body_write_options(request, "UpdateOptions")?;
    let object = body::object(request, asked)?;
    check_name(&object, asked.name)?;
    let (existed, reply) = api.write(options.dry_run, |txn| {
        let existed = txn.exists(&asked.key())?;
        Ok((existed, update(txn, asked.kind, &object, part, &options)?))
    })?;
    Ok(written(&show, if existed { 200 } else { 201 }, reply))
}

/// Checks that the body has the name of the path.
pub fn check_name(object: &Object, name: &str) -> ServeResult<()> {
    let refuse = |text: String| Err(Status::new(Reason::BadRequest, text));
    match object.name() {
        own if own == name => Ok(()),
        // A value that is not text is refused when the object is decoded.
        "" if object.value_at(&["metadata", "name"]).is_some_and(|value| !value.is_string() && !value.is_null()) => {
            Ok(())
        }
        "" => refuse(format!("the name of the object ({name} based on URL) was undeterminable: name must be provided")),
        own => refuse(format!("the name of the object ({own}) does not match the name on the URL ({name})")),
    }
}

/// Patches an object.
pub fn patch(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult {
    patch_part(api, request, asked, UpdatePart::Main)
}

/// Patches a part of an object.
pub fn patch_part(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>, part: UpdatePart) -> ServeResult {
    if is_apply(request) {
        return apply(api, request, asked, part);
    }
    if request.parameter("force").is_some() {
        return Err(options::forbidden("PatchOptions", "force", "may not be specified for non-apply patch"));
    }
    let show = ReadPresentation::from_request(request, asked)?;
    let api_version = Some(asked.api_version.clone());
    let options = WriteOptions { api_version, ..options::write_options(request, "PatchOptions")? };
    let (language, change) = change(request)?;
    let reply = api
        .write(options.dry_run, |txn| edit::patch(txn, asked.kind, &asked.key(), language, &change, part, &options))?;
    Ok(written(&show, 200, reply))
}

/// Returns the patch of a request, and its type.
pub fn change(request: &ApiRequest) -> ServeResult<(PatchType, Value)> {
    let unsupported = |text: &str| Err(Status::new(Reason::UnsupportedMediaType, text));
    let language = match request.content_type.split(';').next().unwrap_or_default().trim() {
        "application/json-patch+json" => PatchType::Json,
        "application/merge-patch+json" => PatchType::Merge,
        "application/strategic-merge-patch+json" => PatchType::Strategic,
        "application/apply-patch+yaml" | "application/apply-patch+cbor" => return unsupported(UNKNOWN_PATCH_TYPE),
        _ => return unsupported("415: Unsupported Media Type"),
    };
    let change: Value = serde_json::from_slice(&request.body).map_err(|error| {
        let why = if error.is_eof() { "unexpected end of JSON input".into() } else { error.to_string() };
        Status::new(Reason::BadRequest, edit::decoding_error(language, &why))
    })?;
    if is_deeper_than(&change, yaml::MAX_DEPTH) {
        let why = format!("exceeded max depth of {}", yaml::MAX_DEPTH);
        return Err(Status::new(Reason::BadRequest, edit::decoding_error(language, &why)));
    }
    Ok((language, change))
}

/// Whether a patch is a server-side apply.
pub fn is_apply(request: &ApiRequest) -> bool {
    request.content_type.split(';').next().unwrap_or_default().trim() == "application/apply-patch+yaml"
}

/// Returns the manager of a server-side apply, which has to be named.
pub fn applier(request: &ApiRequest) -> ServeResult<ApplyManager<'_>> {
    let name = request.parameter("fieldManager").ok_or_else(|| {
        let message = "Required value: is required for apply patch".to_owned();
        options::wrong("PatchOptions", "fieldManager", "FieldValueRequired", message)
    })?;
    Ok(ApplyManager { name, force: request.flag("force") })
}

/// Reads the configuration of a server-side apply, which has to name its version and kind. Also returns warnings about it.
pub fn configuration(
    request: &ApiRequest,
    expected: (&str, &str),
    validation: FieldValidation,
) -> ServeResult<(Value, Vec<String>)> {
    let read = if request.body.is_empty() { Ok(json!({})) } else { body::from_yaml(&request.body) };
    let config = read.map_err(|why| Status::bad_request(format!("error decoding YAML: {why}")))?;
    let text = |field: &str| config[field].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if (api_version, kind) != expected {
        let slash = if api_version.contains('/') { "" } else { "/" };
        return Err(Status::bad_request(format!("invalid object type: {slash}{api_version}, Kind={kind}")));
    }
    let warnings = body::duplicate_key_warnings(&request.body, validation)?;
    Ok((config, warnings))
}

/// Applies a configuration to an object or its status; creates a missing object.
fn apply(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>, part: UpdatePart) -> ServeResult {
    let show = ReadPresentation::from_request(request, asked)?;
    let options = options::write_options(request, "PatchOptions")?;
    let manager = applier(request)?;
    let (config, mut warnings) =
        configuration(request, (&asked.api_version, asked.kind.kind), options.field_validation)?;
    let names_namespace = config["metadata"]["namespace"].as_str().is_some_and(|text| !text.is_empty());
    let mut config = body::check_object(config, asked)?;
    let is_unnamed = config.value_at(&["metadata", "name"]).is_none_or(Value::is_null);
    if !is_unnamed {
        check_name(&config, asked.name)?;
    }
    // Errors name the namespace as the body does.
    let as_written = |status: Status| match names_namespace {
        true => status,
        false => {
            let written = format!("object ({}/", asked.namespace.unwrap_or_default());
            Status { message: status.message.replacen(&written, "object (/", 1), ..status }
        }
    };
    let applied = api.write(options.dry_run, |txn| {
        // An existing object is named by the path; a new object must contain its name.
        if is_unnamed && !txn.exists(&asked.key())? {
            check_name(&config, asked.name)?;
        }
        config.set(&["metadata", "name"], asked.name);
        apply_patch(txn, asked.kind, &config, manager, part, &options)
    });
    let done = applied.map_err(as_written)?;
    let code = if done.outcome == ApplyOutcome::Created { 201 } else { 200 };
    warnings.extend(done.warnings);
    Ok(written(&show, code, WriteReply::changed(done.object, warnings)))
}

#[cfg(test)]
mod tests {
    use crate::apiserver::Api;
    use crate::serve::{AnswerBody, ApiRequest, answer};
    use serde_json::{Value, json};

    const MAPS: &str = "/api/v1/namespaces/default/configmaps";

    /// The code, the document and the warnings of an answer.
    fn ask(api: &mut Api, method: &str, target: &str, content_type: &str, body: &str) -> (u16, Value, Vec<String>) {
        let request =
            ApiRequest { content_type: content_type.into(), body: body.into(), ..ApiRequest::new(method, target) };
        let answer = answer(api, &request);
        let AnswerBody::Whole(bytes) = answer.body else { panic!("{target}: not a whole answer") };
        let warnings = answer.headers.into_iter().filter(|(name, _)| *name == "Warning").map(|(_, text)| text);
        (answer.code, serde_json::from_slice(&bytes).unwrap(), warnings.collect())
    }

    #[test]
    fn repeated_key_of_an_applied_configuration_is_told_or_refused() {
        let mut api = Api::in_memory("test").unwrap();
        let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  a.b: \"1\"\n  a.b: \"2\"\n";
        let mut apply = |validation: &str| {
            let target = format!("{MAPS}/a?fieldManager=me{validation}");
            ask(&mut api, "PATCH", &target, "application/apply-patch+yaml", config)
        };
        let (code, status, _) = apply("&fieldValidation=Strict");
        let told = "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  \
                    line 6: key \"a.b\" already set in map";
        assert_eq!((code, &status["message"]), (400, &json!(told)));
        let (code, applied, warnings) = apply("");
        assert_eq!((code, &applied["data"]), (201, &json!({"a.b": "2"})));
        let is_told = warnings.iter().any(|text| text.contains(r#"line 6: key \"a.b\" already set in map"#));
        assert!(is_told && warnings.len() == 1, "{warnings:?}");
        assert_eq!(apply("&fieldValidation=Ignore").2, [""; 0]);
    }

    #[test]
    fn errors_come_with_their_warnings() {
        let mut api = Api::in_memory("test").unwrap();
        let mut post = |body: &str| ask(&mut api, "POST", MAPS, "application/json", body);
        let (code, _, warnings) = post(r#"{"metadata": {"name": "A"}, "dta": {}}"#);
        assert_eq!((code, warnings), (422, vec![r#"299 - "unknown field \"dta\"""#.to_owned()]));
        assert_eq!(post(r#"{"metadata": {"name": "a"}}"#).0, 201);
        let put = r#"{"metadata": {"name": "a"}, "data": {"/": ""}, "dta": {}}"#;
        let (code, _, warnings) = ask(&mut api, "PUT", &format!("{MAPS}/a"), "application/json", put);
        assert_eq!((code, warnings.len()), (422, 1));
        let name = r#"{"metadata": {"name": "a", "generateName": "a-"}}"#;
        let (code, status, _) = ask(&mut api, "POST", MAPS, "application/json", name);
        let text = "configmaps \"a\" already exists, the server was not able to generate a unique name for the object";
        assert_eq!((code, &status["message"]), (409, &json!(text)));
    }

    #[test]
    fn limit_range_gets_a_name() {
        let mut api = Api::in_memory("test").unwrap();
        let ranges = "/api/v1/namespaces/default/limitranges";
        let (code, range, _) = ask(&mut api, "POST", ranges, "application/json", "{}");
        assert_eq!((code, range["metadata"]["name"].as_str().map(str::len)), (201, Some(36)), "{range}");
    }

    #[test]
    fn revisions_and_namespaces_of_updates_are_checked() {
        let mut api = Api::in_memory("test").unwrap();
        assert_eq!(ask(&mut api, "POST", MAPS, "application/json", r#"{"metadata": {"name": "a"}}"#).0, 201);
        let one = format!("{MAPS}/a");
        for (revision, why) in
            [("abc", "invalid syntax"), ("-1", "invalid syntax"), ("99999999999999999999", "value out of range")]
        {
            let body = json!({"metadata": {"name": "a", "resourceVersion": revision}}).to_string();
            let (code, status, _) = ask(&mut api, "PUT", &one, "application/json", &body);
            let text = format!("strconv.ParseUint: parsing \"{revision}\": {why}");
            assert_eq!((code, &status["message"], &status["reason"]), (500, &json!(text), &Value::Null));
        }
        let merge = "application/merge-patch+json";
        let mut patch = |patch: &str| ask(&mut api, "PATCH", &one, merge, patch);
        assert_eq!(patch(r#"{"metadata": {"namespace": null}}"#).0, 200, "the namespace is that of the path");
        assert_eq!(patch(r#"{"metadata": {"namespace": "other"}}"#).0, 400);
        assert_eq!(patch(r#"{"metadata": {"name": "b"}}"#).0, 400);
        let class = r#"{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "a"}, "provisioner": "a.b/c"}"#;
        let classes = "/apis/storage.k8s.io/v1/storageclasses";
        assert_eq!(ask(&mut api, "POST", classes, "application/json", class).0, 201);
        let (code, kept, _) =
            ask(&mut api, "PATCH", &format!("{classes}/a"), merge, r#"{"metadata": {"namespace": "x"}}"#);
        assert_eq!((code, &kept["metadata"]["namespace"]), (200, &Value::Null));
    }

    #[test]
    fn patch_to_an_unknown_version_is_refused() {
        let mut api = Api::in_memory("test").unwrap();
        let made = ask(&mut api, "POST", MAPS, "application/json", r#"{"metadata": {"name": "a"}}"#);
        assert_eq!(made.0, 201, "{}", made.1);
        let merge = "application/merge-patch+json";
        let mut patch = |patch: &str| ask(&mut api, "PATCH", &format!("{MAPS}/a"), merge, patch);
        let (code, status, _) = patch(r#"{"apiVersion": "v9"}"#);
        let message = status["message"].as_str().unwrap();
        assert_eq!((code, &status["reason"]), (422, &json!("Invalid")), "{status}");
        let why = "no kind \"ConfigMap\" is registered for version \"v9\"";
        assert!(
            message.starts_with(" \"\" is invalid: patch: Invalid value: \"") && message.ends_with(why),
            "{message}"
        );
        assert_eq!(patch(r#"{"apiVersion": "v1", "data": {"a": "1"}}"#).0, 200);
        assert_eq!(patch(r#"{"apiVersion": null, "kind": null}"#).0, 200);
        let (_, status, _) = patch(r#"{"immutable": 1}"#);
        let cause = &status["details"]["causes"][0];
        assert_eq!((&cause["field"], &cause["reason"]), (&json!("patch"), &json!("FieldValueInvalid")), "{status}");
    }
}
