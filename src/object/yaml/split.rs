//! Splits bytes into the texts of single documents.
//!
//! As in kubectl, documents are split before parsing, so that a malformed one does not affect the others.

use super::YamlError;
use serde::de::IgnoredAny;

/// The text of one document, and the number of preceding lines in the file.
#[derive(Clone, Debug)]
pub(super) struct DocumentChunk<T> {
    pub text: T,
    pub lines_before: usize,
}

/// Decodes a file's bytes: UTF-8 with or without a byte order mark, or UTF-16 with one.
pub fn decode_bytes(bytes: &[u8]) -> Result<String, YamlError> {
    match bytes {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => {
            Err(YamlError { line: 0, message: "the text is UTF-32; save it as UTF-8".into() })
        }
        [0xff, 0xfe, rest @ ..] => from_utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => from_utf16(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => from_utf8(rest),
        bytes => from_utf8(bytes),
    }
}

fn from_utf8(bytes: &[u8]) -> Result<String, YamlError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let (good, bad) = bytes.split_at(error.valid_up_to());
        let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
        let message = match (error.error_len(), bad.first()) {
            (None, _) => "incomplete UTF-8 octet sequence",
            (_, Some(0x80..=0xc1 | 0xf5..)) => "invalid leading UTF-8 octet",
            _ => "invalid trailing UTF-8 octet",
        };
        YamlError { line, message: message.into() }
    })?;
    Ok(text.to_owned())
}

fn from_utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, YamlError> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let text: Result<String, _> = char::decode_utf16(pairs.iter().map(|pair| unit(*pair))).collect();
    match text {
        Ok(text) if rest.is_empty() => Ok(text),
        _ => Err(YamlError { line: 0, message: "incomplete UTF-16 surrogate pair".into() }),
    }
}

/// The documents of a text in order: consecutive JSON values, then YAML documents, which lines with `---` separate.
pub(super) fn chunks(text: &str) -> impl Iterator<Item = Result<DocumentChunk<&str>, YamlError>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (json, used) = json_chunks(text);
    let lines_before = lines(&text[..used]);
    json.into_iter().map(Ok).chain(yaml_chunks(&text[used..], lines_before))
}

fn lines(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

/// The JSON objects at the start, and their length.
fn json_chunks(text: &str) -> (Vec<DocumentChunk<&str>>, usize) {
    let (mut chunks, mut used, mut lines_before) = (Vec::new(), 0, 0);
    while text[used..].trim_start().starts_with('{') {
        let mut stream = serde_json::Deserializer::from_str(&text[used..]).into_iter::<IgnoredAny>();
        let Some(Ok(IgnoredAny)) = stream.next() else { break };
        let end = used + stream.byte_offset();
        chunks.push(DocumentChunk { text: &text[used..end], lines_before });
        lines_before += lines(&text[used..end]);
        used = end;
    }
    (chunks, used)
}

fn yaml_chunks(text: &str, lines_before: usize) -> impl Iterator<Item = Result<DocumentChunk<&str>, YamlError>> {
    let (mut rest, mut line) = (text, lines_before);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (whole, lines_before) = (rest, line);
        loop {
            let end = rest.find('\n').map_or(rest.len(), |newline| newline + 1);
            let (current, after) = rest.split_at(end);
            let length = whole.len() - rest.len();
            (rest, line) = (after, line + 1);
            if let Some(marker) = current.strip_prefix("---") {
                let marker = marker.trim();
                if !marker.is_empty() && !marker.starts_with('#') {
                    rest = "";
                    let message = format!("invalid Yaml document separator: {marker}");
                    return Some(Err(YamlError { line, message }));
                }
                return Some(Ok(DocumentChunk { text: &whole[..length], lines_before }));
            }
            if rest.is_empty() {
                return Some(Ok(DocumentChunk { text: whole, lines_before }));
            }
        }
    })
}
