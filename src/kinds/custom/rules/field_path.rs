//! The paths that rules name: `.a.b['c']`.

use serde_json::Value;

/// The path as in messages; `None` when it is empty or names no field of a schema.
pub fn normalize(path: &str, schema: &Value) -> Option<String> {
    let mut rest = path;
    let mut out = String::new();
    let mut schema = schema;
    while !rest.is_empty() {
        let name;
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            name = after[..end].to_owned();
            rest = &after[end..];
        } else {
            let after = rest.strip_prefix("['")?;
            let end = quote_end(after)?;
            name = unescape(&after[..end])?;
            rest = after[end + 1..].strip_prefix(']')?;
        }
        if let Some(fields) = schema["properties"].as_object().filter(|fields| !fields.is_empty()) {
            schema = fields.get(&name)?;
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&name);
        } else {
            schema = Some(&schema["additionalProperties"]).filter(|others| others.is_object())?;
            out.push_str(&format!("[{name}]"));
        }
    }
    Some(out).filter(|out| !out.is_empty())
}

/// The position of the quote that ends a name.
fn quote_end(text: &str) -> Option<usize> {
    text.match_indices('\'').map(|(at, _)| at).find(|at| !text[..*at].ends_with('\\'))
}

fn unescape(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        out.push(match letter {
            '\\' => match letters.next()? {
                'a' => '\u{7}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\u{b}',
                letter @ ('\'' | '\\') => letter,
                _ => return None,
            },
            other => other,
        });
    }
    Some(out)
}
