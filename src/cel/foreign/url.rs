//! URLs as Go reads them (`net/url`).
//!
//! Never: decodes an escape; it checks them. Start reading at [`parse`].

/// A URL.
#[derive(Debug, Default)]
pub struct Url {
    /// The whole.
    pub text: String,
    /// `https`
    pub scheme: String,
    /// The host and port.
    pub host: String,
    /// The path.
    pub path: String,
    /// The text after `?`.
    pub query: String,
}

/// Parses an absolute URL or path, with Go's errors.
pub fn parse(raw: &str) -> Result<Url, String> {
    let wrong = |why: String| Err(parse_error(raw, &why));
    if raw.is_empty() {
        return wrong("empty url".into());
    }
    if raw.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return wrong("net/url: invalid control character in URL".into());
    }
    let mut url = Url { text: raw.to_owned(), ..Url::default() };
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter))
    };
    let mut rest = raw;
    if let Some((scheme, after)) = raw.split_once(':') {
        if scheme.is_empty() {
            return wrong("missing protocol scheme".into());
        }
        if is_scheme(scheme) {
            url.scheme = scheme.to_ascii_lowercase();
            rest = after;
        } else if !raw.starts_with('/') && !scheme.contains('/') {
            return wrong("first path segment in URL cannot contain colon".into());
        }
    }
    rest = rest.split('#').next().unwrap_or_default();
    if let Some((before, query)) = rest.split_once('?') {
        url.query = query.to_owned();
        rest = before;
    }
    if !rest.starts_with('/') {
        if url.scheme.is_empty() {
            return wrong("invalid URI for request".into());
        }
        return Ok(url);
    }
    if !url.scheme.is_empty()
        && let Some(after) = rest.strip_prefix("//")
    {
        let end = after.find('/').unwrap_or(after.len());
        let authority = &after[..end];
        url.host = authority.rsplit_once('@').map_or(authority, |(_, host)| host).to_owned();
        rest = &after[end..];
        check_host(&url.host).map_err(|why| parse_error(raw, &why))?;
    }
    check_escapes(rest).map_err(|why| parse_error(raw, &why))?;
    url.path = rest.to_owned();
    Ok(url)
}

fn parse_error(raw: &str, why: &str) -> String {
    format!("parse {raw:?}: {why}")
}

fn check_host(host: &str) -> Result<(), String> {
    if let Some(letter) = host.chars().find(|letter| " \"<>\\^`{|}".contains(*letter)) {
        return Err(format!("invalid character {:?} in host name", letter.to_string()));
    }
    let end = match host.starts_with('[') {
        true => host.find(']').map(|at| at + 1).ok_or("missing ']' in host")?,
        false => host.find(':').unwrap_or(host.len()),
    };
    let port = &host[end..];
    let is_port =
        port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
    if is_port { Ok(()) } else { Err(format!("invalid port {port:?} after host")) }
}

fn check_escapes(path: &str) -> Result<(), String> {
    for (at, _) in path.match_indices('%') {
        let part: String = path[at..].chars().take(3).collect();
        if part.len() < 3 || !part[1..].bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(format!("invalid URL escape {part:?}"));
        }
    }
    Ok(())
}

/// Splits a host into name and port; the brackets of an IPv6 address are left out.
pub fn split_port(host: &str) -> (&str, &str) {
    let end = host.rfind(']').map_or(0, |at| at + 1);
    let (name, port) = match host[end..].rfind(':') {
        Some(at) => (&host[..end + at], &host[end + at + 1..]),
        None => (host, ""),
    };
    (name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name), port)
}
