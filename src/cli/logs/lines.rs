//! Lines of a log on their way to standard output: prefixes, colours, `--grep` and `--pretty`.
//!
//! Never: reads a log. Start reading at [`LineWriter::write`].

use crate::object::scalar_text;
use crate::show::escape;
use colored::{Color, Colorize};
use regex::bytes::Regex;
use serde_json::{Map, Value};
use std::io::{IsTerminal, Write};
use std::sync::Arc;

/// Longest line that is kept whole until its end arrives; a longer one is passed on in pieces.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// Colours of prefixes, assigned in this order.
const COLOURS: [Color; 6] = [Color::Cyan, Color::Yellow, Color::Green, Color::Magenta, Color::Blue, Color::BrightCyan];

/// Names of the fields that a JSON line has for its time, level and message.
const TIME: [&str; 5] = ["time", "ts", "timestamp", "@timestamp", "t"];
const LEVEL: [&str; 4] = ["level", "severity", "lvl", "log.level"];
const MESSAGE: [&str; 3] = ["msg", "message", "event"];

/// Selection and form of lines, shared by all streams.
#[derive(Clone, Default)]
pub struct LineStyle {
    /// Only lines that match.
    pub grep: Option<Regex>,
    /// JSON lines are printed as text.
    pub pretty: bool,
    /// Lines are written whole, because several streams share the output.
    pub whole_lines: bool,
}

impl LineStyle {
    fn needs_whole_lines(&self) -> bool {
        self.whole_lines || self.pretty || self.grep.is_some()
    }

    /// Returns the line to print, without its end; `None` for a line that is left out.
    fn format(&self, line: &[u8]) -> Option<Vec<u8>> {
        if self.grep.as_ref().is_some_and(|grep| !grep.is_match(line)) {
            return None;
        }
        let readable = || pretty(serde_json::from_slice(line).ok()?);
        Some(self.pretty.then(readable).flatten().map_or_else(|| line.to_vec(), String::into_bytes))
    }
}

/// Returns the colour of the stream with this number.
pub fn colour(number: usize) -> Color {
    COLOURS[number % COLOURS.len()]
}

/// Formats a JSON line: time, level, message, then the other fields as `name=value`.
fn pretty(line: Value) -> Option<String> {
    let Value::Object(mut fields) = line else { return None };
    let time = take_first(&mut fields, &TIME);
    let level = take_first(&mut fields, &LEVEL);
    let message = take_first(&mut fields, &MESSAGE);
    if time.is_none() && level.is_none() && message.is_none() {
        return None;
    }
    let mut words: Vec<String> = Vec::new();
    words.extend(time.map(|time| escape::text(&time).dimmed().to_string()));
    words.extend(level.map(|level| coloured_level(&escape::text(&level.to_uppercase()))));
    words.extend(message.map(|message| escape::text(&message)));
    let rest = fields.into_iter().map(|(name, value)| escape::text(&format!("{name}={}", scalar_text(&value))));
    words.extend(rest.map(|field| field.dimmed().to_string()));
    Some(words.join(" "))
}

/// Removes and returns the first of these fields that there is.
fn take_first(fields: &mut Map<String, Value>, names: &[&str]) -> Option<String> {
    let name =
        names.iter().find(|name| fields.get(**name).is_some_and(|value| value.is_string() || value.is_number()))?;
    fields.remove(*name).map(|value| scalar_text(&value))
}

fn coloured_level(level: &str) -> String {
    match level.get(..3) {
        Some("ERR" | "FAT" | "PAN" | "CRI") => level.red().to_string(),
        Some("WAR") => level.yellow().to_string(),
        Some("DEB" | "TRA") => level.dimmed().to_string(),
        _ => level.green().to_string(),
    }
}

/// Writes one stream to standard output, each line with its prefix.
pub struct LineWriter {
    prefix: String,
    style: Arc<LineStyle>,
    /// A line without its end, kept until that arrives.
    rest: Vec<u8>,
    /// Whether the start of the present line was written already.
    within: bool,
}

impl LineWriter {
    /// Creates the writer of a stream; the prefix may be empty and contain colours.
    pub fn new(prefix: Option<String>, style: Arc<LineStyle>) -> LineWriter {
        LineWriter { prefix: prefix.unwrap_or_default(), style, rest: Vec::new(), within: false }
    }

    /// Writes a piece of the log.
    pub fn write(&mut self, piece: &[u8]) -> std::io::Result<()> {
        let text = self.text_to_print(piece);
        emit(&text)
    }

    /// Writes the last line if it has no end. Several streams share an output, so the end is added.
    pub fn finish(&mut self) -> std::io::Result<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        let rest = std::mem::take(&mut self.rest);
        let text = self.formatted(&rest);
        emit(&text)
    }

    /// Returns the part of a piece to print.
    fn text_to_print(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            if !self.style.needs_whole_lines() {
                if !self.within {
                    text.extend_from_slice(self.prefix.as_bytes());
                }
                text.extend_from_slice(part);
                self.within = !part.ends_with(b"\n");
                continue;
            }
            self.rest.extend_from_slice(part);
            if part.ends_with(b"\n") || self.rest.len() > MAX_LINE_BYTES {
                let line = std::mem::take(&mut self.rest);
                text.extend(self.formatted(line.strip_suffix(b"\n").unwrap_or(&line)));
            }
        }
        text
    }

    fn formatted(&self, line: &[u8]) -> Vec<u8> {
        let Some(line) = self.style.format(line) else { return Vec::new() };
        [self.prefix.as_bytes(), &line, b"\n"].concat()
    }
}

/// Writes text in one call, so that lines of several streams do not mix.
fn emit(text: &[u8]) -> std::io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    if out.is_terminal() {
        out.write_all(&escape::output(text))?;
    } else {
        out.write_all(text)?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(style: LineStyle, pieces: &[&str]) -> String {
        let mut writer = LineWriter::new(Some("web | ".to_owned()), Arc::new(style));
        let text: Vec<u8> = pieces.iter().flat_map(|piece| writer.text_to_print(piece.as_bytes())).collect();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn prefix_stands_before_each_line_and_not_within_one() {
        assert_eq!(written(LineStyle::default(), &["a\nb", "c\n", "d"]), "web | a\nweb | bc\nweb | d");
    }

    #[test]
    fn shared_output_gets_whole_lines() {
        let style = LineStyle { whole_lines: true, ..LineStyle::default() };
        assert_eq!(written(style, &["a\nb", "c\nd"]), "web | a\nweb | bc\n");
    }

    #[test]
    fn grep_leaves_out_lines_that_do_not_match() {
        let style = LineStyle { grep: Some(Regex::new("ERR|warn").unwrap()), ..LineStyle::default() };
        assert_eq!(written(style, &["fine\nERR 1\nno w", "arning\n"]), "web | ERR 1\nweb | no warning\n");
    }

    #[test]
    fn json_lines_are_printed_as_text() {
        colored::control::set_override(false);
        for (line, expected) in [
            (r#"{"time":"12:00","level":"info","msg":"up","port":80}"#, "12:00 INFO up port=80"),
            (r#"{"ts":1.5,"severity":"ERROR","message":"no\u001b[2J"}"#, "1.5 ERROR no^[[2J"),
            (r#"{"a":1}"#, r#"{"a":1}"#),
            ("no json", "no json"),
        ] {
            let style = LineStyle { pretty: true, ..LineStyle::default() };
            assert_eq!(written(style, &[line, "\n"]), format!("web | {expected}\n"));
        }
    }
}
