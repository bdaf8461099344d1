//! Parses a template's text to nodes.

use super::{JsonPathNode, JsonPathSlice, JsonPathStep};
use serde_json::Value;

/// Maximum nesting of expressions in filters and unions, far more than templates need.
const MAX_DEPTH: usize = 32;

/// The nodes of a template.
pub fn template(text: &str) -> Result<Vec<JsonPathNode>, String> {
    let mut open = vec![(Vec::new(), Vec::new())];
    let mut rest = text;
    while let Some(brace) = rest.find('{') {
        if brace > 0 {
            push(&mut open, JsonPathNode::Text(rest[..brace].to_owned()));
        }
        let (steps, after) = action(&rest[brace + 1..], 0)?;
        match keyword(&steps) {
            Some("range") => open.push((steps[1..].to_vec(), Vec::new())),
            Some("end") if open.len() > 1 => close(&mut open),
            _ => push(&mut open, JsonPathNode::Path(steps)),
        }
        rest = after;
    }
    if !rest.is_empty() {
        push(&mut open, JsonPathNode::Text(rest.to_owned()));
    }
    while open.len() > 1 {
        close(&mut open);
    }
    Ok(open.pop().map(|(_, nodes)| nodes).unwrap_or_default())
}

type Open = Vec<(Vec<JsonPathStep>, Vec<JsonPathNode>)>;

fn push(open: &mut Open, node: JsonPathNode) {
    if let Some((_, nodes)) = open.last_mut() {
        nodes.push(node);
    }
}

fn close(open: &mut Open) {
    if let Some((steps, nodes)) = open.pop() {
        push(open, JsonPathNode::Range(steps, nodes));
    }
}

/// Returns the keyword of an action.
fn keyword(steps: &[JsonPathStep]) -> Option<&str> {
    match steps.first() {
        Some(JsonPathStep::Keyword(word)) => Some(word),
        _ => None,
    }
}

/// The steps up to the closing brace, and the text after it.
fn action(text: &str, depth: usize) -> Result<(Vec<JsonPathStep>, &str), String> {
    if depth > MAX_DEPTH {
        return Err("expressions are nested too deeply".into());
    }
    let mut steps = Vec::new();
    let mut rest = text;
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((steps, after));
        }
        rest = if let Some(after) = rest.strip_prefix("[?(") {
            filter(after, depth, &mut steps)?
        } else if let Some(after) = rest.strip_prefix("..") {
            descend(after, &mut steps)?
        } else {
            single(rest, depth, &mut steps)?
        };
    }
}

/// Parses a step that is recognized by its first letter.
fn single<'a>(rest: &'a str, depth: usize, steps: &mut Vec<JsonPathStep>) -> Result<&'a str, String> {
    let Some(letter) = rest.chars().next().filter(|letter| !matches!(letter, '\r' | '\n')) else {
        return Err("unclosed action".into());
    };
    let after = &rest[letter.len_utf8()..];
    match letter {
        ' ' | '@' | '$' => Ok(after),
        '[' => array(after, depth, steps),
        '"' | '\'' => quoted(rest, letter, steps),
        '.' => Ok(field(after, steps)),
        '+' | '-' => number(rest, steps),
        digit if digit.is_numeric() => number(rest, steps),
        word if word == '_' || word.is_alphabetic() => Ok(identifier(rest, steps)),
        other => Err(format!("unrecognized character in action: U+{:04X} '{other}'", other as u32)),
    }
}

fn is_terminator(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

fn descend<'a>(after: &'a str, steps: &mut Vec<JsonPathStep>) -> Result<&'a str, String> {
    if steps.last() == Some(&JsonPathStep::Descend) {
        return Err("invalid multiple recursive descent".into());
    }
    steps.push(JsonPathStep::Descend);
    let named = after.chars().next().is_some_and(|letter| letter == '_' || letter.is_alphanumeric());
    Ok(if named { field(after, steps) } else { after })
}

/// Parses a field's name up to the next terminator; a backslash escapes the next character.
fn field<'a>(text: &'a str, steps: &mut Vec<JsonPathStep>) -> &'a str {
    let mut name = String::new();
    let mut letters = text.char_indices();
    let mut end = text.len();
    while let Some((at, letter)) = letters.next() {
        if letter == '\\' {
            name.extend(letters.next().map(|(_, escaped)| escaped));
        } else if is_terminator(letter) {
            end = at;
            break;
        } else {
            name.push(letter);
        }
    }
    steps.push(if name == "*" { JsonPathStep::Each } else { JsonPathStep::Field(name) });
    &text[end..]
}

fn identifier<'a>(text: &'a str, steps: &mut Vec<JsonPathStep>) -> &'a str {
    let end = text.find(is_terminator).unwrap_or(text.len());
    steps.push(match &text[..end] {
        "true" => JsonPathStep::Literal(Value::Bool(true)),
        "false" => JsonPathStep::Literal(Value::Bool(false)),
        word => JsonPathStep::Keyword(word.to_owned()),
    });
    &text[end..]
}

fn number<'a>(text: &'a str, steps: &mut Vec<JsonPathStep>) -> Result<&'a str, String> {
    let sign = usize::from(text.starts_with(['+', '-']));
    let end =
        text[sign..].find(|letter: char| letter != '.' && !letter.is_ascii_digit()).map_or(text.len(), |at| at + sign);
    let literal = &text[..end];
    let value = match (literal.parse::<i64>(), literal.parse::<f64>()) {
        (Ok(whole), _) => Value::from(whole),
        (_, Ok(float)) => Value::from(float),
        _ => return Err(format!("cannot parse number {literal}")),
    };
    steps.push(JsonPathStep::Literal(value));
    Ok(&text[end..])
}

/// Parses quoted text with Go's escapes.
fn quoted<'a>(text: &'a str, quote: char, steps: &mut Vec<JsonPathStep>) -> Result<&'a str, String> {
    let mut out = String::new();
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\n' => break,
            '\\' => match letters.next().map(|(_, escaped)| escaped) {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some('r') => out.push('\r'),
                Some('a') => out.push('\u{7}'),
                Some('b') => out.push('\u{8}'),
                Some('f') => out.push('\u{c}'),
                Some('v') => out.push('\u{b}'),
                Some(same @ ('\\' | '"' | '\'')) => out.push(same),
                Some(code @ ('x' | 'u' | 'U')) => {
                    out.push(code_point(code, &mut letters).ok_or_else(|| bad_quote(text))?)
                }
                _ => return Err(bad_quote(text)),
            },
            end if end == quote => {
                steps.push(JsonPathStep::Literal(Value::String(out)));
                return Ok(&text[at + 1..]);
            }
            other => out.push(other),
        }
    }
    Err("unterminated quoted string".into())
}

fn bad_quote(text: &str) -> String {
    format!("unquote string {} error invalid syntax", text.split('}').next().unwrap_or(text))
}

fn code_point(kind: char, letters: &mut impl Iterator<Item = (usize, char)>) -> Option<char> {
    let digits = match kind {
        'x' => 2,
        'u' => 4,
        _ => 8,
    };
    let code = (0..digits).try_fold(0u32, |code, _| Some(code * 16 + letters.next()?.1.to_digit(16)?))?;
    char::from_u32(code)
}

/// Parses brackets: an index, a slice, a quoted key, or several of them separated by commas.
fn array<'a>(text: &'a str, depth: usize, steps: &mut Vec<JsonPathStep>) -> Result<&'a str, String> {
    let end = text.find([']', '\n']).filter(|end| text[*end..].starts_with(']')).ok_or("unterminated array")?;
    let (inner, after) = (&text[..end], &text[end + 1..]);
    let parts: Vec<&str> = inner.split(',').collect();
    if parts.len() == 1 {
        steps.extend(element(inner, depth)?);
    } else {
        let union: Result<Vec<_>, String> = parts.iter().map(|part| element(part.trim_matches(' '), depth)).collect();
        steps.push(JsonPathStep::Union(union?));
    }
    Ok(after)
}

fn element(text: &str, depth: usize) -> Result<Vec<JsonPathStep>, String> {
    let key = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).filter(|key| !key.contains('\''));
    if let Some(key) = key {
        return Ok(action(&format!(".{key}}}"), depth + 1)?.0);
    }
    if text == "*" {
        return Ok(vec![JsonPathStep::Slice(JsonPathSlice { from: None, to: None, step: None, index: false })]);
    }
    let bounds: Vec<&str> = text.split(':').collect();
    if bounds.len() > 3 || !bounds.iter().all(|bound| is_bound(bound)) {
        return Err(format!("invalid array index {text}"));
    }
    let bound = |at: usize| -> Result<Option<i64>, String> {
        let text = bounds.get(at).copied().unwrap_or_default();
        let refuse = |_| format!("array index {text} is not a number");
        if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(refuse) }
    };
    Ok(vec![JsonPathStep::Slice(JsonPathSlice {
        from: bound(0)?,
        to: bound(1)?,
        step: bound(2)?,
        index: bounds.len() == 1,
    })])
}

fn is_bound(text: &str) -> bool {
    text.strip_prefix('-').unwrap_or(text).bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses `[?(left OPERATOR right)]`, or `[?(path)]`, which tests for existence.
fn filter<'a>(text: &'a str, depth: usize, steps: &mut Vec<JsonPathStep>) -> Result<&'a str, String> {
    let end = filter_end(text).ok_or("unterminated filter")?;
    let (inner, after) = (&text[..end], &text[end + 1..]);
    let after = after.strip_prefix(']').ok_or("unclosed array expect ]")?;
    let side = |text: &str| Ok::<_, String>(action(&format!("{text}}}"), depth + 1)?.0);
    let is_operator = |letter: char| matches!(letter, '!' | '<' | '>' | '=');
    let start = inner.find(is_operator).filter(|start| *start > 0);
    let stop =
        start.map(|start| inner[start..].find(|letter| !is_operator(letter)).map_or(inner.len(), |at| at + start));
    steps.push(match (start, stop) {
        (Some(start), Some(stop)) if stop < inner.len() => {
            let test = Some((inner[start..stop].to_owned(), side(&inner[stop..])?));
            JsonPathStep::Filter { left: side(&inner[..start])?, test }
        }
        _ => JsonPathStep::Filter { left: side(inner)?, test: None },
    });
    Ok(after)
}

/// Returns the position of the filter's closing parenthesis; quoted text may contain one.
fn filter_end(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut depth = 0usize;
    let mut before = ' ';
    for (at, letter) in text.char_indices() {
        match (letter, quote) {
            ('\n', _) => return None,
            (_, Some(open)) if letter == open && before != '\\' => quote = None,
            ('"' | '\'', None) => quote = Some(letter),
            ('(', None) => depth += 1,
            (')', None) if depth == 0 => return Some(at),
            (')', None) => depth -= 1,
            _ => {}
        }
        before = letter;
    }
    None
}
