//! YAML and JSON text, read and written as kubectl does.
//!
//! Knows: YAML 1.1 as Kubernetes' go-yaml v2 understands it (`yes` is true, `0644` is octal) and what kustomize's v3 reads differently, documents and their lines,
//! kubectl's layout on output. Never: what a document means. Reading has caps, for text comes from anywhere.
//! Start reading at [`documents`] and [`to_yaml`].

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

/// The largest document, in bytes of text: what the API server takes as one request.
pub const MAX_BYTES: usize = 3 * 1024 * 1024;

/// Bytes that the documents of one text may take in memory, besides so many for each byte of text: a large file has large documents,
/// a small one must not be able to fill the memory with thousands of tiny ones.
const ALL_DOCUMENTS: usize = 96 * 1024 * 1024;
const FOR_EACH_BYTE: usize = 16;
/// Fixed overhead of a document in bytes.
const DOCUMENT: usize = 512;

/// The deepest nesting: JSON that is nested deeper than 128 levels would not be read back from the store, and lists and
/// `managedFields` add some to the object's own.
pub const MAX_DEPTH: usize = 110;

/// The set of unquoted words that are booleans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BooleanWords {
    /// `true`, `yes`, `on`, `y` and their opposites: YAML 1.1, as go-yaml v2 reads it.
    Many,
    /// `true` and `false` alone: YAML 1.2, as go-yaml v3 reads it.
    Two,
}

/// One document of a file, with the way back to its lines.
#[derive(Clone, Debug)]
pub struct YamlDocument {
    /// Its value.
    pub value: Value,
    /// The line of the file, from 1, where it starts.
    pub line: usize,
    /// Keys given more than once in one map (the last one counts): path and line. At most a hundred are kept.
    pub duplicates: Vec<(String, usize)>,
    source: split::DocumentChunk<Str>,
    words: BooleanWords,
}

impl YamlDocument {
    /// The line of the file where a field such as `spec.template.spec.containers[0].env` stands, or else the nearest
    /// field around it that is there.
    ///
    /// Looked up by reading the text again: lines are wanted only when something is wrong.
    pub fn line_of(&self, path: &str) -> Option<usize> {
        self.lines_of(&[path]).pop().flatten()
    }

    /// The same of several fields, for which the text is read once.
    pub fn lines_of(&self, paths: &[&str]) -> Vec<Option<usize>> {
        let lines = read::lines_of(&self.source.text, paths, self.words).into_iter();
        lines.map(|line| line.map(|line| line + self.source.lines_before)).collect()
    }

    /// Keeps those of these fields whose value the text leaves out: `image:`, but not `image: null`.
    pub fn without_value(&self, paths: Vec<String>) -> Vec<String> {
        if paths.is_empty() {
            return paths;
        }
        let asked: Vec<&str> = paths.iter().map(String::as_str).collect();
        let numbers = read::lines_of(&self.source.text, &asked, self.words);
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

/// Reads every document of a text, YAML or JSON, several of each. Documents that say nothing are left out.
pub fn documents(text: &str) -> Result<Vec<YamlDocument>, YamlError> {
    documents_with(text, BooleanWords::Many)
}

/// The same where words may mean something else than in kubectl's files.
pub fn documents_with(text: &str, words: BooleanWords) -> Result<Vec<YamlDocument>, YamlError> {
    match before_error(text, words) {
        (documents, None) => Ok(documents),
        (_, Some(error)) => Err(error),
    }
}

/// Reads documents up to the first that cannot be read: kubectl still applies the ones before. Of a text with too many it reads none.
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

/// Adds what a text holds; what that takes in memory.
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
        let line_in_file = |(path, line)| (path, line + chunk.lines_before);
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
