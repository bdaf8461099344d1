//! URLs (`k8s.io/apiserver/pkg/cel/library/urls.go`, Go's `net/url`).

use super::{Function, Sig, function, global, member, text};
use crate::cel::foreign::url::{Url, parse, split_port};
use crate::cel::value::{EvalError, Evaluated, Map, MapKey, Value, fail};
use std::collections::BTreeMap;
use std::sync::Arc;

const URL: Sig = Sig::Named("kubernetes.URL");

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    function("url", &[global(&[Sig::String], URL)], |_, args| match parse(text(&args[0])?) {
        Ok(url) => Ok(Value::Url(Arc::new(url))),
        Err(why) => fail(format!("URL parse error during conversion from string: {why}")),
    }),
    function("isURL", &[global(&[Sig::String], Sig::Bool)], |_, args| Ok(Value::Bool(parse(text(&args[0])?).is_ok()))),
    function("getScheme", &[member(&[URL], Sig::String)], |_, args| Ok(Value::text(&url(&args[0])?.scheme))),
    function("getHost", &[member(&[URL], Sig::String)], |_, args| Ok(Value::text(&url(&args[0])?.host))),
    function("getHostname", &[member(&[URL], Sig::String)], |_, args| {
        Ok(Value::text(split_port(&url(&args[0])?.host).0))
    }),
    function("getPort", &[member(&[URL], Sig::String)], |_, args| Ok(Value::text(split_port(&url(&args[0])?.host).1))),
    function("getEscapedPath", &[member(&[URL], Sig::String)], |_, args| {
        Ok(Value::text(escaped(&url(&args[0])?.path)))
    }),
    function("getQuery", &[member(&[URL], Sig::Map(&Sig::String, &Sig::List(&Sig::String)))], |_, args| {
        query(url(&args[0])?)
    }),
];

fn url<'a>(value: &'a Value) -> Result<&'a Url, EvalError> {
    if let Value::Url(url) = value { Ok(url) } else { Err(EvalError::no_overload()) }
}

/// A path with the letters escaped that Go escapes.
fn escaped(path: &str) -> String {
    let keeps = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@%!'()*[]".contains(&byte);
    path.bytes().map(|byte| if keeps(byte) { (byte as char).to_string() } else { format!("%{byte:02X}") }).collect()
}

fn query<'v>(url: &Url) -> Evaluated<'v> {
    let decode =
        |part: &str| percent_encoding::percent_decode_str(&part.replace('+', " ")).decode_utf8_lossy().into_owned();
    let mut found = BTreeMap::<String, Vec<Value>>::new();
    for pair in url.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        found.entry(decode(name)).or_default().push(Value::text(decode(value)));
    }
    let entries = found.into_iter().map(|(name, values)| (MapKey::String(name.into()), Value::list(values)));
    Ok(Value::Map(Map::Owned(Arc::new(entries.collect()))))
}
