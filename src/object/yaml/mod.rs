//! Reads and writes YAML and JSON as kubectl does.
//!
//! Supports YAML 1.1 as in Kubernetes' go-yaml v2 (`yes` is true, `0644` is octal), the differences of kustomize's v3,
//! line numbers of documents, and kubectl's output layout. Never: interprets a document. Reading is limited, since the
//! text is untrusted. Start reading at [`documents`] and [`to_yaml`].

mod error;
mod read;
mod repair;
mod scalar;
mod split;
mod write;

pub use error::YamlError;
pub use split::decode_bytes;
pub use write::to_yaml;

use super::Str;
use serde_json::Value;

/// Maximum size of a document in bytes of text, the limit of a request to the API server.
pub const MAX_BYTES: usize = 3 * 1024 * 1024;

/// Maximum memory for the documents of one text, in bytes, plus [`FOR_EACH_BYTE`] per byte of text. This allows a large
/// file, but prevents a small one with thousands of tiny documents from filling the memory.
const ALL_DOCUMENTS: usize = 96 * 1024 * 1024;
const FOR_EACH_BYTE: usize = 16;
/// Fixed overhead of a document in bytes.
const DOCUMENT: usize = 512;

/// Maximum nesting: the store cannot read JSON with more than 128 levels, and lists and `managedFields` add some levels
/// to an object.
pub const MAX_DEPTH: usize = 110;

/// The set of unquoted words that are booleans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BooleanWords {
    /// `true`, `yes`, `on`, `y` and their opposites: YAML 1.1, as go-yaml v2 reads it.
    Many,
    /// Only `true` and `false`: YAML 1.2, as go-yaml v3 reads it.
    Two,
}

/// A key that a map has already; its last value counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateKey {
    /// The path, which ends with the key.
    pub path: String,
    /// The key.
    pub key: String,
    /// The line of the repetition in the file.
    pub line: usize,
    /// The number of keys before it in the document.
    pub field: usize,
}

/// One document of a file, with access to line numbers.
#[derive(Clone, Debug)]
pub struct YamlDocument {
    /// Its value.
    pub value: Value,
    /// Its first line in the file, from 1.
    pub line: usize,
    /// Duplicate keys of maps. At most a hundred are stored.
    pub duplicates: Vec<DuplicateKey>,
    source: split::DocumentChunk<Str>,
    words: BooleanWords,
}

impl YamlDocument {
    /// The line of a field such as `spec.template.spec.containers[0].env` in the file, or else of its closest existing
    /// parent.
    ///
    /// Reads the text again, since only errors need line numbers.
    pub fn line_of(&self, path: &str) -> Option<usize> {
        self.lines_of(&[path]).pop().flatten()
    }

    /// The lines of several fields, with one pass over the text.
    pub fn lines_of(&self, paths: &[&str]) -> Vec<Option<usize>> {
        let lines = read::lines_of(&self.source.text, paths, self.words).into_iter();
        lines.map(|line| line.map(|line| line + self.source.lines_before)).collect()
    }

    /// The number of keys before each of several fields, or before its closest existing parent, with one pass over the text.
    pub fn fields_before(&self, paths: &[&str]) -> Vec<Option<usize>> {
        let positions = read::positions_of(&self.source.text, paths, self.words).into_iter();
        positions.map(|found| found.map(|found| found.field)).collect()
    }

    /// Selects the fields without a value in the text: `image:`, but not `image: null`.
    pub fn without_value(&self, paths: Vec<String>) -> Vec<String> {
        if paths.is_empty() {
            return paths;
        }
        let fields: Vec<&str> = paths.iter().map(String::as_str).collect();
        let numbers = read::lines_of(&self.source.text, &fields, self.words);
        let lines: Vec<&str> = self.source.text.lines().collect();
        let ends_after_key = |path: &str, number: usize| {
            let line = lines.get(number.saturating_sub(1)).copied().unwrap_or_default();
            let line = line.split(" #").next().unwrap_or_default().trim_end();
            let key = path.rsplit('.').next().unwrap_or_default();
            line.strip_suffix(':').is_some_and(|line| line.ends_with(key))
        };
        let left_out: Vec<bool> = paths
            .iter()
            .zip(numbers)
            .map(|(path, number)| number.is_some_and(|number| ends_after_key(path, number)))
            .collect();
        paths.into_iter().zip(left_out).filter_map(|(path, left_out)| left_out.then_some(path)).collect()
    }
}

/// Reads all documents of a text in YAML or JSON. Skips empty documents.
pub fn documents(text: &str) -> Result<Vec<YamlDocument>, YamlError> {
    documents_with(text, BooleanWords::Many)
}

/// Like [`documents`], with a choice of boolean words.
pub fn documents_with(text: &str, words: BooleanWords) -> Result<Vec<YamlDocument>, YamlError> {
    match before_error(text, words) {
        (documents, None) => Ok(documents),
        (_, Some(error)) => Err(error),
    }
}

/// Reads documents up to the first malformed one, since kubectl still applies the previous ones. Reads none of a text
/// with too many.
pub fn documents_before_error(text: &str) -> (Vec<YamlDocument>, Option<YamlError>) {
    before_error(text, BooleanWords::Many)
}

fn before_error(text: &str, words: BooleanWords) -> (Vec<YamlDocument>, Option<YamlError>) {
    let (mut documents, mut weight) = (Vec::new(), 0);
    let most = ALL_DOCUMENTS.saturating_add(text.len().saturating_mul(FOR_EACH_BYTE));
    for chunk in split::chunks(text) {
        match chunk.and_then(|chunk| read_chunk(chunk, words, &mut documents)) {
            Ok(more) if weight + more > most => {
                return (Vec::new(), Some(YamlError::too_many(documents.last().map_or(0, |last| last.line))));
            }
            Ok(more) => weight += more,
            Err(error) => return (documents, Some(error)),
        }
    }
    (documents, None)
}

/// Adds the documents of a chunk, and returns their memory in bytes.
fn read_chunk(
    chunk: split::DocumentChunk<&str>,
    words: BooleanWords,
    documents: &mut Vec<YamlDocument>,
) -> Result<usize, YamlError> {
    if chunk.text.len() > MAX_BYTES {
        let message = format!("the document is larger than {MAX_BYTES} bytes");
        return Err(YamlError { line: chunk.lines_before + 1, message });
    }
    let (roots, text) = read::roots(chunk.text, words).map_err(|error| error.shifted_by(chunk.lines_before))?;
    let text: Str = text.into();
    let mut weight = 0;
    for root in roots {
        if root.value.is_null() {
            continue;
        }
        weight += root.weight + DOCUMENT;
        let line_in_file = |twice: DuplicateKey| DuplicateKey { line: twice.line + chunk.lines_before, ..twice };
        documents.push(YamlDocument {
            value: root.value,
            line: root.line + chunk.lines_before,
            duplicates: root.duplicates.into_iter().map(line_in_file).collect(),
            source: split::DocumentChunk { text: text.clone(), lines_before: chunk.lines_before },
            words,
        });
    }
    Ok(weight)
}

#[cfg(test)]
mod tests;
