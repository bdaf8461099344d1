//! Writes values as YAML in the layout of go-yaml v2, as kubectl does: sorted keys, unindented lists, folded long text.
//!
//! The code follows libyaml's emitter and its state: the column, whether the last character is a blank, and whether the
//! line has only indentation so far.

use super::BooleanWords;
use super::scalar::{PlainScalar, resolve};
use crate::go::json::go_float;
use serde_json::{Map, Number, Value};
use std::cmp::Ordering;

/// Column at which lines are folded.
const WIDTH: usize = 80;
/// Maximum length of a simple key; a longer one is written with a question mark.
const SIMPLE_KEY: usize = 128;

/// Writes one document, ending in a newline.
pub fn to_yaml(value: &Value) -> String {
    let mut emitter = YamlEmitter { out: String::new(), column: 0, blank: true, indention: true };
    emitter.node(value, 0, NodePlace::Root);
    emitter.line_start(0);
    emitter.out
}

/// The parent of a node, which determines the layout of collections.
#[derive(Clone, Copy, PartialEq)]
enum NodePlace {
    Root,
    Item,
    MapValue,
}

struct YamlEmitter {
    out: String,
    column: usize,
    /// Whether the last character is a blank (also true at the start).
    blank: bool,
    /// Whether this line has only indentation and indicators.
    indention: bool,
}

impl YamlEmitter {
    fn node(&mut self, value: &Value, indent: usize, place: NodePlace) {
        match value {
            Value::Object(map) if !map.is_empty() => self.map(map, indent, place),
            Value::Array(items) if !items.is_empty() => self.list(items, indent, place),
            Value::Object(_) => self.indicator("{}", true, false, false),
            Value::Array(_) => self.indicator("[]", true, false, false),
            Value::String(text) => self.text(text, indent, false),
            Value::Null => self.plain("null", indent, false),
            Value::Bool(flag) => self.plain(&flag.to_string(), indent, false),
            Value::Number(number) => self.plain(&number_text(number), indent, false),
        }
    }

    fn map(&mut self, map: &Map<String, Value>, indent: usize, place: NodePlace) {
        let indent = if place == NodePlace::Root { indent } else { indent + 2 };
        let mut entries: Vec<_> = map.iter().collect();
        entries.sort_by(|(a, _), (b, _)| natural(a, b));
        for (key, value) in entries {
            self.line_start(indent);
            if key.len() <= SIMPLE_KEY && !key.contains(is_break) {
                self.text(key, indent, true);
                self.indicator(":", false, false, false);
            } else {
                self.indicator("?", true, false, true);
                self.text(key, indent, false);
                self.line_start(indent);
                self.indicator(":", true, false, true);
            }
            self.node(value, indent, NodePlace::MapValue);
        }
    }

    /// Writes a list, which is not indented under a map's key.
    fn list(&mut self, items: &[Value], indent: usize, place: NodePlace) {
        let flush = place == NodePlace::Root || (place == NodePlace::MapValue && !self.indention);
        let indent = if flush { indent } else { indent + 2 };
        for item in items {
            self.line_start(indent);
            self.indicator("-", true, false, true);
            self.node(item, indent, NodePlace::Item);
        }
    }

    fn text(&mut self, text: &str, indent: usize, key: bool) {
        match style(text, &ScalarAnalysis::analyze(text), key) {
            Style::Plain => self.plain(text, indent, key),
            Style::Single => self.single_quoted(text, indent, key),
            Style::Double => self.double_quoted(text, indent, key),
            Style::Literal => self.literal(text, indent),
        }
    }

    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    fn put_str(&mut self, text: &str) {
        text.chars().for_each(|c| self.put(c));
    }

    fn newline(&mut self) {
        self.out.push('\n');
        self.column = 0;
    }

    fn line_start(&mut self, indent: usize) {
        if !self.indention || self.column > indent || (self.column == indent && !self.blank) {
            self.newline();
        }
        while self.column < indent {
            self.put(' ');
        }
        self.blank = true;
        self.indention = true;
    }

    fn indicator(&mut self, text: &str, wants_blank: bool, is_blank: bool, is_indention: bool) {
        if wants_blank && !self.blank {
            self.put(' ');
        }
        self.put_str(text);
        self.blank = is_blank;
        self.indention &= is_indention;
    }

    /// Starts a further line of a text, indented deeper than its map or list.
    fn fold(&mut self, indent: usize) {
        self.line_start(indent + 2);
    }

    fn plain(&mut self, text: &str, indent: usize, key: bool) {
        if !self.blank {
            self.put(' ');
        }
        let mut after_space = false;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            if c == ' ' && !key && !after_space && self.column > WIDTH && chars.peek() != Some(&' ') {
                self.fold(indent);
            } else {
                self.put(c);
            }
            after_space = c == ' ';
        }
        self.blank = false;
        self.indention = false;
    }

    fn single_quoted(&mut self, text: &str, indent: usize, key: bool) {
        self.indicator("'", true, false, false);
        let mut after_space = false;
        let mut chars = text.char_indices().peekable();
        while let Some((index, c)) = chars.next() {
            let inside = index > 0 && index + 1 < text.len();
            let folds = c == ' ' && !key && !after_space && self.column > WIDTH && inside;
            if folds && chars.peek().is_none_or(|(_, next)| *next != ' ') {
                self.fold(indent);
            } else {
                if c == '\'' {
                    self.put('\'');
                }
                self.put(c);
            }
            after_space = c == ' ';
        }
        self.indicator("'", false, false, false);
    }

    fn double_quoted(&mut self, text: &str, indent: usize, key: bool) {
        self.indicator("\"", true, false, false);
        let mut after_space = false;
        let mut chars = text.char_indices().peekable();
        while let Some((index, c)) = chars.next() {
            let inside = index > 0 && index + 1 < text.len();
            if !is_printable(c) || is_break(c) || c == '"' || c == '\\' {
                self.put_str(&escape(c));
            } else if c == ' ' && !key && !after_space && self.column > WIDTH && inside {
                self.fold(indent);
                if chars.peek().is_some_and(|(_, next)| *next == ' ') {
                    self.put('\\');
                }
            } else {
                self.put(c);
            }
            after_space = c == ' ';
        }
        self.indicator("\"", false, false, false);
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.indicator("|", true, false, false);
        if text.starts_with(|c| c == ' ' || is_break(c)) {
            self.indicator("2", false, false, false);
        }
        let ends: Vec<bool> = text.chars().rev().take(2).map(is_break).collect();
        match ends.as_slice() {
            [false, ..] | [] => self.indicator("-", false, false, false),
            [true] | [true, true, ..] => self.indicator("+", false, false, false),
            [true, false, ..] => {}
        }
        self.newline();
        self.indention = true;
        self.blank = true;
        let mut fresh = true;
        for c in text.chars() {
            if c == '\n' {
                self.newline();
                self.indention = true;
                fresh = true;
            } else if is_break(c) {
                self.out.push(c);
                self.column = 0;
                self.indention = true;
                fresh = true;
            } else {
                if fresh {
                    self.line_start(indent + 2);
                }
                self.put(c);
                self.indention = false;
                fresh = false;
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

/// Properties of a scalar's text, as libyaml's `analyze_scalar` computes them.
struct ScalarAnalysis {
    plain: bool,
    single: bool,
    block: bool,
}

impl ScalarAnalysis {
    fn analyze(text: &str) -> ScalarAnalysis {
        let space = |c: char| c == ' ';
        let special = text.chars().any(|c| !is_printable(c));
        let space_break = text.chars().zip(text.chars().skip(1)).any(|(a, b)| space(a) && is_break(b));
        let break_space = text.chars().zip(text.chars().skip(1)).any(|(a, b)| is_break(a) && space(b));
        let edge = |c: char| space(c) || is_break(c);
        let fine = !special && !space_break;
        ScalarAnalysis {
            plain: fine
                && !text.contains(is_break)
                && !text.starts_with(edge)
                && !text.ends_with(edge)
                && !has_block_indicators(text),
            single: fine && !break_space,
            block: fine && !text.is_empty() && !text.ends_with(space),
        }
    }
}

fn style(text: &str, look: &ScalarAnalysis, key: bool) -> Style {
    if text.contains('\n') && !key && look.block {
        return Style::Literal;
    }
    let plain = matches!(resolve(text, BooleanWords::Many), PlainScalar::Text) && !is_sexagesimal(text) && text != "<<";
    if text.contains('\n') || !plain {
        return Style::Double;
    }
    if look.plain {
        Style::Plain
    } else if look.single && !text.contains(is_break) {
        Style::Single
    } else {
        Style::Double
    }
}

/// Whether a text has indicators in block context.
fn has_block_indicators(text: &str) -> bool {
    if text.starts_with("---") || text.starts_with("...") {
        return true;
    }
    let blank = |c: Option<&char>| c.is_none_or(|c| matches!(c, ' ' | '\t'));
    let chars: Vec<char> = text.chars().collect();
    chars.iter().enumerate().any(|(index, c)| {
        let followed = blank(chars.get(index + 1));
        match (index, c) {
            (0, '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`') => true,
            (0, '?' | ':' | '-') => followed,
            (_, ':') => followed,
            (_, '#') => blank(chars.get(index - 1)) || is_break(chars[index - 1]),
            _ => false,
        }
    })
}

/// Whether a text like `12:30:45` is a base-60 number to old parsers, and therefore quoted.
fn is_sexagesimal(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut parts = unsigned.split(':');
    let first = parts.next().unwrap_or_default();
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let rest: Vec<&str> = parts.collect();
    let Some((last, middle)) = rest.split_last() else { return false };
    let (last, fraction) = last.split_once('.').unwrap_or((last, ""));
    let sixty = |text: &str| match text.as_bytes() {
        [one] => one.is_ascii_digit(),
        [ten, one] => (b'0'..=b'5').contains(ten) && one.is_ascii_digit(),
        _ => false,
    };
    first.starts_with(|c: char| c.is_ascii_digit())
        && digits(first)
        && digits(fraction)
        && sixty(last)
        && middle.iter().all(|part| sixty(part))
}

fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}') && c != '\u{feff}'
}

fn escape(c: char) -> String {
    let short = match c {
        '\0' => '0',
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\u{1b}' => 'e',
        '"' | '\\' => c,
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        _ => {
            return match u32::from(c) {
                code @ ..=0xff => format!("\\x{code:02X}"),
                code @ ..=0xffff => format!("\\u{code:04X}"),
                code => format!("\\U{code:08X}"),
            };
        }
    };
    format!("\\{short}")
}

fn number_text(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => go_float(float, -4, 6),
        _ => number.to_string(),
    }
}

/// go-yaml's order of keys: letters after other characters, runs of digits by their value.
fn natural(a: &str, b: &str) -> Ordering {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(at) = a.iter().zip(&b).position(|(x, y)| x != y) else { return a.len().cmp(&b.len()) };
    let (x, y) = (a[at], b[at]);
    let after_digit = at > 0 && a[at - 1].is_numeric();
    match (x.is_alphabetic(), y.is_alphabetic()) {
        (true, true) => x.cmp(&y),
        (false, false) => {
            // A zero counts only after another digit: 10 sorts after 2, but 01 is 1.
            let counted =
                (x == '0' || y == '0') && a[..at].iter().rev().take_while(|c| c.is_numeric()).any(|c| *c != '0');
            digit_run(&a, at, counted).cmp(&digit_run(&b, at, counted)).then(x.cmp(&y))
        }
        (x_letter, _) => {
            if x_letter == after_digit {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        }
    }
}

/// The value of the digits from a position, and their end.
fn digit_run(text: &[char], at: usize, counted: bool) -> (u64, usize) {
    let digits = text[at..].iter().map_while(|c| c.to_digit(10));
    let number = digits.clone().fold(u64::from(counted), |sum, digit| sum.wrapping_mul(10).wrapping_add(digit.into()));
    (number, at + digits.count())
}
