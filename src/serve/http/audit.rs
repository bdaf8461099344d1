//! The id of a request, by which client and server speak of the same one: the header `Audit-Id`.

use crate::apiserver::api::random;
use crate::apiserver::rules::names;
use hyper::HeaderMap;

/// Most bytes of a client's own id.
const LONGEST: usize = 64;

/// Returns the client's own id, cut where it is too long, or a new one.
pub fn choose_id(headers: &HeaderMap) -> String {
    let own = headers.get("audit-id").and_then(|value| value.to_str().ok()).unwrap_or_default().trim();
    match own.get(..LONGEST.min(own.len())) {
        None | Some("") => names::uid(random(), random()),
        Some(id) => id.to_owned(),
    }
}
