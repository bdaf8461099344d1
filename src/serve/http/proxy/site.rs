//! Answers of a site behind the proxy: their links lead through it.
//!
//! Knows: the headers of requests and answers, and how much of a page is kept in memory. The links themselves are known by
//! [`super::links`].
//! Start reading at [`find`].

use super::super::stream::AnswerStream;
use super::links::ProxiedSite;
use crate::serve::target::ProxyTarget;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::HeaderMap;
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT_ENCODING, ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue, LOCATION,
};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Maximum size of a page, in bytes, whose links are redirected. A larger one stays as it is.
const MAX_PAGE: usize = 4 * 1024 * 1024;

/// Time limit for a page. What has arrived by then is passed on as it is, with the rest.
const PAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Headers by which a site allows scripts of other sites; they would hold for this server.
const CORS_HEADERS: [hyper::header::HeaderName; 4] = [
    ACCESS_CONTROL_ALLOW_CREDENTIALS,
    ACCESS_CONTROL_ALLOW_HEADERS,
    ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN,
];

/// Returns the site of a request with these headers; `None` for a server whose answers are not changed.
pub fn find(target: &ProxyTarget, headers: &HeaderMap) -> Option<ProxiedSite> {
    let server = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned();
    Some(ProxiedSite { prefix: target.prefix.clone()?, place: target.place.to_string(), server })
}

/// Sets the headers with the site's path at this server, and asks for pages that are not compressed.
pub fn set_request_headers(headers: &mut HeaderMap, site: &ProxiedSite, path: &str) {
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if let Ok(place) = format!("{}{path}", site.prefix).parse() {
        headers.insert("x-forwarded-uri", place);
    }
}

/// Changes the head of an answer. Returns whether its body may have links.
pub fn redirect_head(headers: &mut HeaderMap, site: &ProxiedSite) -> bool {
    for name in CORS_HEADERS {
        headers.remove(name);
    }
    if let Some(location) = headers.get(LOCATION) {
        let redirected = location.to_str().ok().and_then(|link| site.redirect(link));
        if let Some(redirected) = redirected.and_then(|link| link.parse().ok()) {
            headers.insert(LOCATION, redirected);
        }
        return false;
    }
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_page = content_type.split(';').next().is_some_and(|media| media.trim().eq_ignore_ascii_case("text/html"));
    is_page && headers.get(CONTENT_ENCODING).is_none()
}

/// Reads a page, and leads its links through the proxy.
pub async fn redirect_body(
    headers: &mut HeaderMap,
    mut body: Incoming,
    site: ProxiedSite,
    permit: OwnedSemaphorePermit,
) -> hyper::Result<AnswerStream> {
    let mut read = Vec::new();
    let is_whole = timeout(PAGE_TIMEOUT, read_page(&mut body, &mut read)).await.unwrap_or(Ok(false))?;
    if !is_whole {
        return Ok(AnswerStream::Proxied { read: read.into(), body, _permit: permit });
    }
    headers.remove(CONTENT_LENGTH);
    // A large page takes a while.
    let page = spawn_blocking(move || site.redirect_page(&read)).await.unwrap_or_default();
    Ok(AnswerStream::Whole(Full::new(Bytes::from(page))))
}

/// Reads a body. Returns whether that is all of it: a page that is too large is read in part.
async fn read_page(body: &mut Incoming, read: &mut Vec<u8>) -> hyper::Result<bool> {
    while let Some(frame) = body.frame().await {
        if let Ok(piece) = frame?.into_data() {
            read.extend_from_slice(&piece);
        }
        if read.len() > MAX_PAGE {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_of_an_answer_is_changed() {
        let prefix = "/pods/web/proxy".to_owned();
        let site = ProxiedSite { prefix, place: "127.9.1.2:80".into(), server: "localhost:8001".into() };
        let changed = |fields: &[(&'static str, &str)]| {
            let mut headers: HeaderMap =
                fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
            let has_links = redirect_head(&mut headers, &site);
            (has_links, headers.get(LOCATION).map(|to| to.to_str().unwrap().to_owned()), headers.len())
        };
        let page = ("content-type", "Text/HTML; charset=utf-8");
        assert_eq!(changed(&[page, ("access-control-allow-origin", "*")]), (true, None, 1));
        assert_eq!(changed(&[page, ("content-encoding", "br")]), (false, None, 2));
        assert_eq!(changed(&[("content-type", "application/json")]), (false, None, 1));
        assert_eq!(changed(&[page, ("location", "/login")]), (false, Some("/pods/web/proxy/login".into()), 2));
        assert_eq!(changed(&[("location", "login")]), (false, Some("login".into()), 1));
    }
}
