//! Rewrites texts that libyaml, and therefore kubectl, accepts, but YAML 1.2 parsers refuse.
//!
//! Repairs escaped apostrophes, quoted scalars whose continuation lines are indented less than their map, and tabs
//! before entries of a flow collection. Never: changes a value or moves a line; it only adds blanks where folding
//! removes them.

use std::collections::BTreeSet;

/// Maximum number of blanks that are added to a line.
const MAX_INDENT: usize = 1024;

/// Replaces `\'` in double quotes, which libyaml reads as an apostrophe and YAML 1.2 refuses. `at`: the byte where the
/// quoted text starts.
pub(super) fn without_escaped_apostrophes(text: &str, at: usize) -> Option<String> {
    let quoted = &text[at..];
    let mut repaired = text[..at].to_owned();
    let mut rest = quoted.char_indices().skip(1);
    let (mut copied, mut found) = (0, false);
    while let Some((index, c)) = rest.next() {
        match c {
            '"' => break,
            '\\' if matches!(rest.next(), Some((_, '\''))) => {
                repaired.push_str(&quoted[copied..index]);
                (copied, found) = (index + 1, true);
            }
            _ => {}
        }
    }
    repaired.push_str(&quoted[copied..]);
    found.then_some(repaired)
}

/// Indents the continuation lines of all quoted scalars deeper than any map around them. `line` (from 1), which the
/// parser refused, is always indented.
pub(super) fn indent_quoted(text: &str, line: usize) -> Option<String> {
    let mut lines = continuation_lines(text);
    lines.insert(line.checked_sub(1)?);
    indent_lines(text, |index, _| lines.contains(&index))
}

/// Indents a line (from 1) of a flow collection that starts with a tab, and directly following ones.
pub(super) fn indent_tabs(text: &str, line: usize) -> Option<String> {
    let mut within = true;
    let first = line.checked_sub(1)?;
    indent_lines(text, |index, line| {
        within = within && (index < first || line.trim_start_matches(' ').starts_with('\t'));
        within && index >= first
    })
}

/// Adds blanks before the chosen lines; `None` when no line was chosen or the text would grow too much.
fn indent_lines(text: &str, mut chosen: impl FnMut(usize, &str) -> bool) -> Option<String> {
    let depth = |line: &str| line.len() - line.trim_start_matches([' ', '\t', '-', '?']).len();
    let blanks = " ".repeat(text.lines().map(depth).max().unwrap_or(0).min(MAX_INDENT) + 1);
    let mut repaired = String::with_capacity(text.len());
    let mut found = false;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if chosen(index, line) && !line.trim().is_empty() {
            repaired.push_str(&blanks);
            found = true;
        }
        repaired.push_str(line);
        if repaired.len() > 2 * super::MAX_BYTES {
            return None;
        }
    }
    found.then_some(repaired)
}

/// The lines (from 0) that continue a quoted scalar which is an entry of a block collection.
///
/// Errs on the side of finding too few: text inside block scalars and comments is never taken for quoted.
fn continuation_lines(text: &str) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut quote: Option<char> = None;
    let mut block: Option<usize> = None;
    for (index, line) in text.lines().enumerate() {
        if let Some(open) = quote {
            found.insert(index);
            quote = quote_at_line_end(line, open);
            continue;
        }
        let content = line.trim_start_matches(' ');
        let indent = line.len() - content.len();
        if block.is_some_and(|parent| content.trim().is_empty() || indent > parent) {
            continue;
        }
        block = None;
        let Some((column, value)) = entry_value(content) else { continue };
        match value.chars().next() {
            Some(open @ ('"' | '\'')) => quote = quote_at_line_end(&value[1..], open),
            Some('|' | '>') => block = Some(indent + column),
            _ => {}
        }
    }
    found
}

/// The value that starts on a line, and the column of its key or dash.
fn entry_value(content: &str) -> Option<(usize, &str)> {
    let (mut rest, mut dash) = (content, None);
    while let Some(after) = rest.strip_prefix("- ") {
        dash = Some(content.len() - rest.len());
        rest = after.trim_start_matches(' ');
    }
    let column = content.len() - rest.len();
    if rest.starts_with('#') {
        return None;
    }
    if let (Some(dash), true) = (dash, rest.starts_with(['"', '\'', '|', '>'])) {
        let is_key = rest.starts_with(['"', '\'']) && quoted_key(rest).is_some();
        if !is_key {
            return Some((dash, rest));
        }
    }
    let after = match rest.starts_with(['"', '\'']) {
        true => quoted_key(rest)?,
        false => rest.split_once(": ")?.1,
    };
    Some((column, without_properties(after.trim_start_matches([' ', '\t']))))
}

/// The text after a quoted key and its colon.
fn quoted_key(text: &str) -> Option<&str> {
    let open = text.chars().next()?;
    let end = find_closing_quote(&text[1..], open)? + 2;
    text[end..].trim_start_matches(' ').strip_prefix(": ")
}

/// Skips anchors and tags before a value.
fn without_properties(mut value: &str) -> &str {
    while value.starts_with(['&', '!']) {
        value = value.split_once(' ').map_or("", |(_, rest)| rest.trim_start_matches(' '));
    }
    value
}

/// The quote if it is still open at the end of a line.
fn quote_at_line_end(line: &str, open: char) -> Option<char> {
    find_closing_quote(line, open).is_none().then_some(open)
}

/// The byte position of the quote that closes a text after `open`.
fn find_closing_quote(text: &str, open: char) -> Option<usize> {
    let mut chars = text.char_indices().peekable();
    while let Some((index, c)) = chars.next() {
        match c {
            '\\' if open == '"' => drop(chars.next()),
            '\'' if open == '\'' && chars.peek().is_some_and(|(_, next)| *next == '\'') => drop(chars.next()),
            c if c == open => return Some(index),
            _ => {}
        }
    }
    None
}
