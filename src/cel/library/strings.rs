//! Functions of texts (`cel-go/ext/strings.go`, version 2). Positions count letters.

use super::{Function, Sig, function, global, member, number, text, text_format};
use crate::cel::limits::{ITEM_BYTES, WorkLimits};
use crate::cel::value::{EvalError, Evaluated, Value, fail};

const S: Sig = Sig::String;
const TEXTS: Sig = Sig::List(&Sig::String);

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    function("contains", &[member(&[S, S], Sig::Bool)], |_, args| test(args, |text, part| text.contains(part))),
    function("endsWith", &[member(&[S, S], Sig::Bool)], |_, args| test(args, |text, part| text.ends_with(part))),
    function("startsWith", &[member(&[S, S], Sig::Bool)], |_, args| test(args, |text, part| text.starts_with(part))),
    function("charAt", &[member(&[S, Sig::Int], S)], |context, args| {
        let (text, at) = (text(&args[0])?, number(&args[1])?);
        context.count_text(text)?;
        let length = text.chars().count() as i64;
        match at {
            _ if at == length => Ok(Value::text("")),
            0.. if at < length => Ok(Value::text(text.chars().nth(at as usize).map(String::from).unwrap_or_default())),
            _ => fail(format!("index out of range: {at}")),
        }
    }),
    function("lowerAscii", &[member(&[S], S)], |_, args| Ok(Value::text(text(&args[0])?.to_ascii_lowercase()))),
    function("upperAscii", &[member(&[S], S)], |_, args| Ok(Value::text(text(&args[0])?.to_ascii_uppercase()))),
    function("trim", &[member(&[S], S)], |_, args| Ok(Value::text(text(&args[0])?.trim()))),
    function("replace", &[member(&[S, S, S], S), member(&[S, S, S, Sig::Int], S)], replace),
    function("split", &[member(&[S, S], TEXTS), member(&[S, S, Sig::Int], TEXTS)], split),
    function("substring", &[member(&[S, Sig::Int], S), member(&[S, Sig::Int, Sig::Int], S)], substring),
    function("join", &[member(&[TEXTS], S), member(&[TEXTS, S], S)], join),
    function("strings.quote", &[global(&[S], S)], |_, args| Ok(Value::text(quote(text(&args[0])?)))),
    function("format", &[member(&[S, Sig::List(&Sig::Dyn)], S)], |context, args| {
        let Value::List(list) = &args[1] else { return Err(EvalError::no_overload()) };
        Ok(Value::text(text_format::format(context, text(&args[0])?, list)?))
    }),
    function("jsonpatch.escapeKey", &[global(&[S], S)], |_, args| {
        Ok(Value::text(text(&args[0])?.replace('~', "~0").replace('/', "~1")))
    }),
];

fn test<'v>(args: &[Value<'v>], holds: fn(&str, &str) -> bool) -> Evaluated<'v> {
    Ok(Value::Bool(holds(text(&args[0])?, text(&args[1])?)))
}

/// The byte position of a letter.
fn byte_at(text: &str, letter: usize) -> usize {
    text.char_indices().nth(letter).map_or(text.len(), |(at, _)| at)
}

/// The first position of a part of a text.
pub fn index_of<'v>(args: &[Value<'v>]) -> Evaluated<'v> {
    let (text, part) = (text(&args[0])?, text(&args[1])?);
    let from = args.get(2).map_or(Ok(0), number)?;
    if from < 0 {
        return fail(format!("index out of range: {from}"));
    }
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    if from as usize >= text.chars().count() {
        return match args.get(2) {
            Some(_) if from as usize > text.chars().count() => fail(format!("index out of range: {from}")),
            _ => Ok(Value::Int(-1)),
        };
    }
    let start = byte_at(text, from as usize);
    let first = text[start..].find(part).map(|at| text[..start + at].chars().count() as i64);
    Ok(Value::Int(first.unwrap_or(-1)))
}

/// The last position of a part of a text.
pub fn last_index_of<'v>(args: &[Value<'v>]) -> Evaluated<'v> {
    let (text, part) = (text(&args[0])?, text(&args[1])?);
    let length = text.chars().count() as i64;
    let upto = args.get(2).map_or(Ok(length), number)?;
    if upto < 0 || (args.len() > 2 && upto >= length && !part.is_empty()) {
        return fail(format!("index out of range: {upto}"));
    }
    if part.is_empty() {
        return Ok(Value::Int(upto));
    }
    let end = byte_at(text, upto as usize);
    let places =
        text.char_indices().map(|(at, _)| at).take_while(|at| *at <= end).filter(|at| text[*at..].starts_with(part));
    Ok(Value::Int(places.last().map_or(-1, |at| text[..at].chars().count() as i64)))
}

fn replace<'v>(context: &WorkLimits<'v>, args: &[Value<'v>]) -> Evaluated<'v> {
    let (text, from, to) = (text(&args[0])?, text(&args[1])?, text(&args[2])?);
    let most = args.get(3).map_or(Ok(-1), number)?;
    let matches = if from.is_empty() { text.chars().count() + 1 } else { text.len() / from.len() };
    context.reserve_bytes(text.len().saturating_add(matches.saturating_mul(to.len())))?;
    let replaced = if most < 0 { text.replace(from, to) } else { text.replacen(from, to, most as usize) };
    Ok(Value::text(replaced))
}

fn split<'v>(context: &WorkLimits<'v>, args: &[Value<'v>]) -> Evaluated<'v> {
    let (text, by) = (text(&args[0])?, text(&args[1])?);
    let most = args.get(2).map_or(Ok(-1), number)?;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let count = if by.is_empty() { text.chars().count() } else { text.matches(by).count() + 1 };
    context.reserve_bytes(text.len() + count.min(most).saturating_mul(ITEM_BYTES))?;
    let parts: Vec<Value> = match (most, by.is_empty()) {
        (0, _) => Vec::new(),
        (_, false) => text.splitn(most, by).map(Value::text).collect(),
        (_, true) => {
            let end = byte_at(text, most.saturating_sub(1).min(count));
            let letters = text[..end].chars().map(|letter| Value::text(letter.to_string()));
            let rest = Some(&text[end..]).filter(|rest| !rest.is_empty()).map(Value::text);
            letters.chain(rest).collect()
        }
    };
    Ok(Value::list(parts))
}

fn substring<'v>(_: &WorkLimits<'v>, args: &[Value<'v>]) -> Evaluated<'v> {
    let (text, start) = (text(&args[0])?, number(&args[1])?);
    let length = text.chars().count() as i64;
    let end = args.get(2).map_or(Ok(length), number)?;
    if args.len() > 2 && start > end {
        return fail(format!("invalid substring range. start: {start}, end: {end}"));
    }
    for at in [start, end] {
        if !(0..=length).contains(&at) {
            return fail(format!("index out of range: {at}"));
        }
    }
    Ok(Value::text(&text[byte_at(text, start as usize)..byte_at(text, end as usize)]))
}

fn join<'v>(context: &WorkLimits<'v>, args: &[Value<'v>]) -> Evaluated<'v> {
    let Value::List(list) = &args[0] else { return Err(EvalError::no_overload()) };
    let by = args.get(1).map_or(Ok(""), text)?;
    let mut out = String::new();
    for (index, item) in list.iter().enumerate() {
        let item = item?;
        let Some(item) = item.as_text() else {
            return fail(format!("join: invalid input: {}", crate::cel::show::format_value(&item)));
        };
        context.reserve_bytes(by.len() + item.len())?;
        if index > 0 {
            out.push_str(by);
        }
        out.push_str(item);
    }
    Ok(Value::text(out))
}

fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}
