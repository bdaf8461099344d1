//! The id of a request, with which client and server refer to it: the header `Audit-Id`.

use crate::apiserver::api::random;
use crate::object::format_uid;
use hyper::HeaderMap;

/// Maximum length of a client's own id, in bytes.
const MAX_ID_BYTES: usize = 64;

/// Returns the client's own id, cut where it is too long, or a new one.
pub fn choose_id(headers: &HeaderMap) -> String {
    let own = headers.get("audit-id").and_then(|value| value.to_str().ok()).unwrap_or_default().trim();
    match own.get(..MAX_ID_BYTES.min(own.len())) {
        None | Some("") => format_uid(random(), random()),
        Some(id) => id.to_owned(),
    }
}
