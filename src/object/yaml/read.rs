//! Converts a document's text to its value.
//!
//! An explicit stack builds values from the parser's events, so nesting needs no call frames. A budget limits aliases,
//! so that a small text cannot become a huge value (CVE-2019-11253).

use super::repair;
use super::scalar::{PlainScalar, resolve, without_added_break};
use super::{BooleanWords, DuplicateKey, YamlError};
use base64::Engine;
use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, StructureStyle, Tag};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Maximum memory for the values of a text, in bytes. Small nodes need many times the size of their text (a map with
/// one key needs as much as one with eleven), and readers make copies.
const MAX_VALUE_BYTES: usize = 48 * 1024 * 1024;
/// Maximum memory for anchored and aliased values, in bytes.
const ALIAS_BUDGET: usize = 16 * 1024 * 1024;
/// Overhead of a node besides its text.
const NODE: usize = size_of::<Value>();
/// Number of entries in the first tree node of a map, and its size.
const FIRST: usize = 11;
const MAP: usize = FIRST * (size_of::<String>() + size_of::<Value>());
/// Size of each further entry: its share of a tree node and of the allocator's overhead.
const ENTRY: usize = 72;
/// Maximum length of a key. go-yaml does not limit keys on one line, and JSON's keys may be long. But the parser
/// buffers tokens of a hundred bytes each until a key ends, and a bracket may also begin a key.
const MAX_KEY_LENGTH: usize = 64 * 1024;
const MAX_DUPLICATES: usize = 100;
const MAX_REPAIRS: usize = 16;

/// A document as read from a text.
pub(super) struct RawDocument {
    pub value: Value,
    pub line: usize,
    pub duplicates: Vec<DuplicateKey>,
    /// Its approximate memory in bytes.
    pub weight: usize,
}

/// Reads a text, which contains one document unless `...` separates several. Also returns the text with repairs.
pub(super) fn roots(text: &str, words: BooleanWords) -> Result<(Vec<RawDocument>, String), YamlError> {
    if let Some(at) = text.find(is_forbidden) {
        let line = 1 + text[..at].matches('\n').count();
        return Err(YamlError { line, message: "control characters are not allowed".into() });
    }
    let mut text = text.to_owned();
    for _ in 0..MAX_REPAIRS {
        let mut reader = YamlReader::new(&text, words);
        let Err(failure) = reader.run() else { return Ok((reader.roots, text)) };
        let repaired = match &failure {
            ReadFailure::Escape { at } => repair::without_escaped_apostrophes(&text, *at),
            ReadFailure::QuotedIndent { line, .. } => repair::indent_quoted(&text, *line),
            ReadFailure::FlowTab { line, .. } => repair::indent_tabs(&text, *line),
            ReadFailure::Yaml(_) => None,
        };
        match repaired {
            Some(repaired) => text = repaired,
            None => return Err(failure.into_error(&text)),
        }
    }
    let mut reader = YamlReader::new(&text, words);
    reader.run().map_err(|failure| failure.into_error(&text))?;
    Ok((reader.roots, text))
}

/// The error of a reader.
enum ReadFailure {
    Yaml(YamlError),
    /// The quoted text that starts at a byte has an unknown escape.
    Escape {
        at: usize,
    },
    /// A line of a quoted text is indented less than the map around it, or by a tab.
    QuotedIndent {
        line: usize,
        error: YamlError,
    },
    /// A line inside a flow collection is indented by a tab.
    FlowTab {
        line: usize,
        error: YamlError,
    },
}

impl ReadFailure {
    fn into_error(self, text: &str) -> YamlError {
        match self {
            ReadFailure::Yaml(error) | ReadFailure::QuotedIndent { error, .. } | ReadFailure::FlowTab { error, .. } => {
                error
            }
            ReadFailure::Escape { at } => {
                let line = 1 + text[..at].matches('\n').count();
                YamlError { line, message: "found unknown escape character".into() }
            }
        }
    }
}

impl From<YamlError> for ReadFailure {
    fn from(error: YamlError) -> ReadFailure {
        ReadFailure::Yaml(error)
    }
}

/// The lines of fields, or of the closest existing parent of each.
pub(super) fn lines_of(text: &str, paths: &[&str], words: BooleanWords) -> Vec<Option<usize>> {
    positions_of(text, paths, words).into_iter().map(|found| found.map(|found| found.line)).collect()
}

/// The positions of fields, or of the closest existing parent of each.
pub(super) fn positions_of(text: &str, paths: &[&str], words: BooleanWords) -> Vec<Option<FieldPosition>> {
    let mut reader = YamlReader::new(text, words);
    reader.searches = paths.iter().map(|path| FieldSearch { path: normal_path(path), best: 0, found: None }).collect();
    // The text was read before, so this succeeds; after a failure, the positions found so far are still valid.
    let _ = reader.run();
    reader.searches.into_iter().map(|search| search.found).collect()
}

/// Whether a character is not printable in YAML 1.1.
fn is_forbidden(c: char) -> bool {
    !matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..)
}

/// Normalizes `labels[app]` to `labels.app`; only numbers stay in brackets.
fn normal_path(path: &str) -> String {
    let mut normal = String::new();
    for (index, part) in path.split('[').enumerate() {
        match part.split_once(']') {
            Some((key, rest)) if index > 0 && key.parse::<usize>().is_err() => normal.extend([".", key, rest]),
            _ if index > 0 => normal.extend(["[", part]),
            _ => normal.push_str(part),
        }
    }
    normal.trim_start_matches('.').to_owned()
}

/// Position of a field in a text.
#[derive(Clone, Copy)]
pub(super) struct FieldPosition {
    /// Its line, from 1.
    pub line: usize,
    /// The number of keys before it.
    pub field: usize,
}

/// A path to find, and the longest part of it found so far.
struct FieldSearch {
    path: String,
    best: usize,
    found: Option<FieldPosition>,
}

impl FieldSearch {
    fn visit(&mut self, path: &str, at: FieldPosition) {
        let rest = self.path.strip_prefix(path);
        if path.len() > self.best && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '['])) {
            (self.best, self.found) = (path.len(), Some(at));
        }
    }
}

/// A collection that is not complete yet.
struct OpenCollection {
    items: CollectionItems,
    style: StructureStyle,
    anchor: usize,
    weight: usize,
    line: usize,
}

enum CollectionItems {
    List(Vec<Value>),
    Map { entries: Map<String, Value>, key: MapKey, merged: Vec<Value> },
}

/// State of the next node of a map.
enum MapKey {
    Wanted,
    Named(String),
    Merge,
}

struct YamlReader<'a> {
    text: &'a str,
    words: BooleanWords,
    stack: Vec<OpenCollection>,
    anchors: HashMap<usize, (Value, usize)>,
    /// Remaining bytes for values, and of these for anchors and aliases.
    budget: usize,
    alias_budget: usize,
    roots: Vec<RawDocument>,
    duplicates: Vec<DuplicateKey>,
    /// Number of keys so far.
    fields: usize,
    searches: Vec<FieldSearch>,
}

impl<'a> YamlReader<'a> {
    fn new(text: &'a str, words: BooleanWords) -> YamlReader<'a> {
        YamlReader {
            text,
            words,
            stack: Vec::new(),
            anchors: HashMap::new(),
            budget: MAX_VALUE_BYTES,
            alias_budget: ALIAS_BUDGET,
            roots: Vec::new(),
            duplicates: Vec::new(),
            fields: 0,
            searches: Vec::new(),
        }
    }

    fn run(&mut self) -> Result<(), ReadFailure> {
        let options = granit_parser::options! { simple_key_max_lookahead: MAX_KEY_LENGTH };
        for event in Parser::new_from_str_with_options(self.text, options) {
            let (event, span) = event.map_err(|error| self.failure(&error))?;
            self.event(event, span)?;
            if self.has_found_all() {
                break;
            }
        }
        Ok(())
    }

    /// Whether the reader only searches, and no better match can follow.
    fn has_found_all(&self) -> bool {
        !self.searches.is_empty() && self.searches.iter().all(|search| search.best == search.path.len())
    }

    fn failure(&self, error: &ScanError) -> ReadFailure {
        let at = error.marker().byte_offset().filter(|at| self.text.is_char_boundary(*at));
        match (error.kind(), at) {
            (ErrorKind::UnknownQuotedScalarEscape, Some(at)) => ReadFailure::Escape { at },
            (ErrorKind::UnknownAnchor, Some(at)) => {
                let message = format!("unknown anchor '{}' referenced", alias_name(&self.text[at..]));
                YamlError { line: error.marker().line(), message }.into()
            }
            (kind, _) => {
                let (line, error) = (error.marker().line(), YamlError::from_scan(error, self.text));
                match kind {
                    ErrorKind::InvalidQuotedScalarIndent | ErrorKind::TabInIndentation => {
                        ReadFailure::QuotedIndent { line, error }
                    }
                    ErrorKind::TabInBlockIndentation if self.is_in_flow() => ReadFailure::FlowTab { line, error },
                    _ => error.into(),
                }
            }
        }
    }

    fn is_in_flow(&self) -> bool {
        self.stack.last().is_some_and(|open| open.style == StructureStyle::Flow)
    }

    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), YamlError> {
        let line = span.start.line();
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let text = without_added_break(self.text, &text, style, span);
                let merge = text == "<<" && style == ScalarStyle::Plain && tag.is_none();
                if merge && self.wants_key() {
                    self.set_key(MapKey::Merge);
                    return Ok(());
                }
                let weight = NODE + text.len();
                self.charge(weight, line)?;
                let value =
                    scalar(text, style, tag.as_deref(), self.words).map_err(|message| YamlError { line, message })?;
                self.finish(value, anchor, weight, line)
            }
            Event::SequenceStart(style, anchor, _) => self.open(CollectionItems::List(Vec::new()), style, anchor, line),
            Event::MappingStart(style, anchor, _) => {
                let items = CollectionItems::Map { entries: Map::new(), key: MapKey::Wanted, merged: Vec::new() };
                self.open(items, style, anchor, line)
            }
            Event::SequenceEnd | Event::MappingEnd => match self.stack.pop() {
                Some(open) => {
                    let (anchor, weight, line) = (open.anchor, open.weight, open.line);
                    self.finish(close(open.items), anchor, weight, line)
                }
                None => Ok(()),
            },
            Event::Alias(anchor) => self.alias(anchor, span),
            Event::DocumentEnd => {
                self.anchors.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn open(
        &mut self,
        items: CollectionItems,
        style: StructureStyle,
        anchor: usize,
        line: usize,
    ) -> Result<(), YamlError> {
        if self.wants_key() {
            let message = "invalid map key: a map or a list cannot be one".into();
            return Err(YamlError { line, message });
        }
        if self.stack.len() >= super::MAX_DEPTH {
            return Err(YamlError::too_deep(line));
        }
        self.charge(NODE, line)?;
        self.visit_item(line);
        self.stack.push(OpenCollection { items, style, anchor, weight: NODE, line });
        Ok(())
    }

    fn alias(&mut self, anchor: usize, span: Span) -> Result<(), YamlError> {
        let line = span.start.line();
        let name = || alias_name(span.slice(self.text).unwrap_or_default());
        let known = self.anchors.get(&anchor).map(|(_, weight)| *weight);
        let Some(weight) = known else {
            return Err(YamlError { line, message: format!("anchor '{}' value contains itself", name()) });
        };
        self.charge_copy(weight, line)?;
        let value = self.anchors.get(&anchor).map(|(value, _)| value.clone()).unwrap_or_default();
        self.finish(value, 0, weight, line)
    }

    fn charge(&mut self, weight: usize, line: usize) -> Result<(), YamlError> {
        self.budget = self.budget.checked_sub(weight).ok_or_else(|| YamlError::too_much(line))?;
        Ok(())
    }

    /// Charges a value that is stored more often than it occurs in the text (aliases).
    fn charge_copy(&mut self, weight: usize, line: usize) -> Result<(), YamlError> {
        self.alias_budget = self.alias_budget.checked_sub(weight).ok_or_else(|| excessive(line))?;
        self.charge(weight, line)
    }

    /// Adds a complete node to its parent.
    fn finish(&mut self, value: Value, anchor: usize, weight: usize, line: usize) -> Result<(), YamlError> {
        if anchor != 0 {
            // The copy for aliases is charged as well: nested anchors store several copies of the same text.
            self.charge_copy(weight, line)?;
            self.anchors.insert(anchor, (value.clone(), weight));
        }
        if self.wants_key() {
            let key = key_text(value).map_err(|message| YamlError { line, message })?;
            return self.name_field(key, weight, line);
        }
        if !matches!(value, Value::Array(_) | Value::Object(_)) {
            self.visit_item(line);
        }
        let Some(open) = self.stack.last_mut() else {
            let duplicates = std::mem::take(&mut self.duplicates);
            self.roots.push(RawDocument { value, line, duplicates, weight });
            return Ok(());
        };
        open.weight += weight;
        match &mut open.items {
            CollectionItems::List(items) => items.push(value),
            CollectionItems::Map { entries, key, merged } => match std::mem::replace(key, MapKey::Wanted) {
                MapKey::Named(key) => {
                    entries.insert(key, value);
                }
                _ => merged.extend(mergeable(value).map_err(|message| YamlError { line, message })?),
            },
        }
        Ok(())
    }

    fn name_field(&mut self, name: String, weight: usize, line: usize) -> Result<(), YamlError> {
        let Some(OpenCollection { items: CollectionItems::Map { entries, .. }, weight: sum, .. }) =
            self.stack.last_mut()
        else {
            return Ok(());
        };
        let more = match entries.len() {
            0 => MAP,
            1..FIRST => 0,
            _ => ENTRY,
        };
        *sum += weight + more;
        let twice = (entries.contains_key(&name) && self.duplicates.len() < MAX_DUPLICATES).then(|| name.clone());
        self.charge(more, line)?;
        self.set_key(MapKey::Named(name));
        if let Some(key) = twice {
            self.duplicates.push(DuplicateKey { path: self.path(), key, line, field: self.fields });
        }
        self.visit(line);
        self.fields += 1;
        Ok(())
    }

    /// Reports the start of a list item to the searches.
    fn visit_item(&mut self, line: usize) {
        if matches!(self.stack.last(), Some(OpenCollection { items: CollectionItems::List(_), .. })) {
            self.visit(line);
        }
    }

    /// Reports the start of the next value to the searches.
    fn visit(&mut self, line: usize) {
        // Building the paths of long keys is slow, and most are longer than the searched paths.
        let longest = self.searches.iter().map(|search| search.path.len()).max();
        if longest.is_some_and(|longest| self.key_bytes() <= longest) {
            let (path, at) = (self.path(), FieldPosition { line, field: self.fields });
            self.searches.iter_mut().for_each(|search| search.visit(&path, at));
        }
    }

    /// The bytes of all keys in the path of the next value, at most the length of the path.
    fn key_bytes(&self) -> usize {
        let bytes = |open: &OpenCollection| match &open.items {
            CollectionItems::Map { key: MapKey::Named(key), .. } => key.len(),
            _ => 0,
        };
        self.stack.iter().map(bytes).sum()
    }

    fn wants_key(&self) -> bool {
        matches!(
            self.stack.last(),
            Some(OpenCollection { items: CollectionItems::Map { key: MapKey::Wanted, .. }, .. })
        )
    }

    fn set_key(&mut self, new: MapKey) {
        if let Some(OpenCollection { items: CollectionItems::Map { key, .. }, .. }) = self.stack.last_mut() {
            *key = new;
        }
    }

    /// Returns the path of the next value, such as `spec.containers[0].env`.
    fn path(&self) -> String {
        let mut path = String::new();
        for open in &self.stack {
            match &open.items {
                CollectionItems::List(items) => path.push_str(&format!("[{}]", items.len())),
                CollectionItems::Map { key: MapKey::Named(key), .. } => {
                    path.extend([if path.is_empty() { "" } else { "." }, key]);
                }
                CollectionItems::Map { .. } => {}
            }
        }
        path
    }
}

fn excessive(line: usize) -> YamlError {
    YamlError { line, message: "document contains excessive aliasing".into() }
}

fn alias_name(text: &str) -> &str {
    let name = text.trim_start_matches('*');
    name.split(|c: char| c.is_whitespace() || ",[]{}".contains(c)).next().unwrap_or_default()
}

/// The value of a complete collection. Merged entries never override the map's own.
fn close(items: CollectionItems) -> Value {
    match items {
        CollectionItems::List(items) => Value::Array(items),
        CollectionItems::Map { mut entries, merged, .. } => {
            for base in merged {
                let Value::Object(base) = base else { continue };
                for (key, value) in base {
                    entries.entry(key).or_insert(value);
                }
            }
            Value::Object(entries)
        }
    }
}

/// The maps of a merge key `<<`, those with precedence first.
fn mergeable(value: Value) -> Result<Vec<Value>, String> {
    let maps = match value {
        Value::Object(_) => vec![value],
        Value::Array(maps) if maps.iter().all(Value::is_object) => maps,
        _ => return Err("map merge requires map or sequence of maps as the value".into()),
    };
    Ok(maps)
}

/// Converts a key to text, the only type of JSON's keys.
fn key_text(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        Value::Null => Err("unsupported map key of type: null".into()),
        Value::Array(_) | Value::Object(_) => Err("invalid map key: a map or a list cannot be one".into()),
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, words: BooleanWords) -> Result<Value, String> {
    let plain = style == ScalarStyle::Plain;
    let tag = tag.map(|tag| tag.suffix_in_namespace("tag:yaml.org,2002:").map(|name| name.into_owned()));
    let wanted = match tag {
        None if plain => return untagged(text, words),
        Some(Some(name)) => name,
        // Quoted text, and unknown tags, which go-yaml ignores.
        _ => return Ok(text.into()),
    };
    match wanted.as_str() {
        "bool" | "int" | "float" | "null" => {
            let value = untagged(text, words)?;
            let fits = match (&value, wanted.as_str()) {
                (Value::Bool(_), tag) => tag == "bool",
                (Value::Null, tag) => tag == "null",
                (Value::Number(number), "int") => !number.is_f64(),
                (Value::Number(_), tag) => tag == "float",
                _ => false,
            };
            if fits { Ok(value) } else { Err(format!("cannot decode `{text}` as a !!{wanted}")) }
        }
        "binary" => {
            let compact: String = text.split_whitespace().collect();
            let bytes = base64::engine::general_purpose::STANDARD.decode(compact);
            let bytes = bytes.map_err(|_| "!!binary value contains invalid base64 data".to_owned())?;
            Ok(String::from_utf8_lossy(&bytes).into())
        }
        _ => Ok(text.into()),
    }
}

fn untagged(text: &str, words: BooleanWords) -> Result<Value, String> {
    match resolve(text, words) {
        PlainScalar::Value(value) => Ok(value),
        PlainScalar::NoJson(name) => Err(format!("json: unsupported value: {name}")),
        PlainScalar::Timestamp | PlainScalar::Text => Ok(text.into()),
    }
}
