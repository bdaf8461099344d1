//! The headers with the user of a request, for extension API servers (client-go: transport.SetAuthProxyHeaders).
//!
//! Never: forwards such headers of a client. Start reading at [`set_headers`].

use crate::apiserver::user::User;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

const USER: HeaderName = HeaderName::from_static("x-remote-user");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
/// The beginning of the headers with the facts about a user.
const EXTRA: &str = "x-remote-extra-";

/// Bytes of a fact's name that a header's name cannot have.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// Replaces the headers about the user.
pub fn set_headers(headers: &mut HeaderMap, user: &User) {
    let claimed: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("x-remote-")).cloned().collect();
    for name in claimed {
        headers.remove(name);
    }
    let mut add = |name: &HeaderName, text: &str| {
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.append(name, value);
        }
    };
    add(&USER, &user.name);
    if !user.uid.is_empty() {
        add(&UID, &user.uid);
    }
    user.groups.iter().for_each(|group| add(&GROUP, group));
    for (name, values) in &user.extra {
        let name = format!("{EXTRA}{}", utf8_percent_encode(&name.to_lowercase(), ESCAPED));
        if let Ok(name) = name.parse::<HeaderName>() {
            values.iter().for_each(|value| add(&name, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_a_client_are_replaced() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-remote-user", "root"),
            ("x-remote-group", "system:masters"),
            ("x-remote-extra-a", "b"),
            ("accept", "x"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        let extra = [("example.com/Key".to_owned(), vec!["1".to_owned(), "2".to_owned()])].into();
        let user = User { name: "ann".into(), groups: vec!["a".into(), "b".into()], extra, ..User::default() };
        set_headers(&mut headers, &user);
        let all =
            |name: &str| -> Vec<&str> { headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect() };
        assert_eq!((all("x-remote-user"), all("x-remote-group")), (vec!["ann"], vec!["a", "b"]));
        assert_eq!(all("x-remote-extra-example.com%2fkey"), ["1", "2"]);
        assert_eq!(
            (headers.get("x-remote-extra-a"), headers.contains_key("accept"), headers.get("x-remote-uid")),
            (None, true, None)
        );
    }
}
