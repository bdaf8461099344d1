//! URLs (`k8s.io/apiserver/pkg/cel/library/urls.go`, Go's `net/url`).
//!
//! Never: parses a URL; [`crate::cel::foreign::url`] does. Start reading at [`FUNCTIONS`].

use super::{Function, Sig, function, global, member, text};
use crate::cel::foreign::url::{Url, parse, split_port};
use crate::cel::limits::WorkLimits;
use crate::cel::value::{EvalError, Map, MapKey, Value, fail};
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
    function("getScheme", &[member(&[URL], Sig::String)], |context, args| {
        Ok(Value::text(&read_url(context, args)?.scheme))
    }),
    function("getHost", &[member(&[URL], Sig::String)], |context, args| {
        Ok(Value::text(&read_url(context, args)?.host))
    }),
    function("getHostname", &[member(&[URL], Sig::String)], |context, args| {
        Ok(Value::text(split_port(&read_url(context, args)?.host).0))
    }),
    function("getPort", &[member(&[URL], Sig::String)], |context, args| {
        Ok(Value::text(split_port(&read_url(context, args)?.host).1))
    }),
    function("getEscapedPath", &[member(&[URL], Sig::String)], |context, args| {
        Ok(Value::text(escape_path(&read_url(context, args)?.path)))
    }),
    function("getQuery", &[member(&[URL], Sig::Map(&Sig::String, &Sig::List(&Sig::String)))], |context, args| {
        Ok(query_value(read_url(context, args)?))
    }),
];

/// Returns the URL of a call. Its functions cost 1, however long it is: its bytes are counted instead.
fn read_url<'a, 'v>(context: &WorkLimits<'v>, args: &'a [Value<'v>]) -> Result<&'a Url, EvalError> {
    let Some(Value::Url(url)) = args.first() else { return Err(EvalError::no_overload()) };
    context.reserve_bytes(url.text.len())?;
    Ok(url)
}

/// Escapes the letters of a path that Go escapes.
fn escape_path(path: &str) -> String {
    let keeps = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@%!'()*[]".contains(&byte);
    path.bytes().map(|byte| if keeps(byte) { (byte as char).to_string() } else { format!("%{byte:02X}") }).collect()
}

fn query_value<'v>(url: &Url) -> Value<'v> {
    let decode =
        |part: &str| percent_encoding::percent_decode_str(&part.replace('+', " ")).decode_utf8_lossy().into_owned();
    let mut values = BTreeMap::<String, Vec<Value>>::new();
    for pair in url.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        values.entry(decode(name)).or_default().push(Value::text(decode(value)));
    }
    let entries = values.into_iter().map(|(name, values)| (MapKey::String(name.into()), Value::list(values)));
    Value::Map(Map::Owned(Arc::new(entries.collect())))
}
