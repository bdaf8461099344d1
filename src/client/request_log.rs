//! The log of requests on standard error, with `-v=6` and more (client-go: transport/round_trippers.go).
//!
//! Knows: each level's details, in klog's form. Never: logs credentials. Start reading at [`RequestLog`].

use super::standard_error;
use hyper::header::{AUTHORIZATION, HeaderMap};
use hyper::{Method, StatusCode};
use std::time::Duration;

/// The first level at which requests are logged; the next ones add headers and bodies.
const URLS: u8 = 6;
const HEADERS: u8 = 7;
const BODIES: u8 = 8;
const CURL: u8 = 9;
const WHOLE_BODIES: u8 = 10;

/// Maximum number of bytes of a body that is logged, at the first level with bodies and at the next one.
const MAX_BODY: usize = 1024;
const MAX_LONG_BODY: usize = 10_240;

/// The log of a client's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestLog {
    /// The level of `-v`.
    level: u8,
}

impl RequestLog {
    /// Returns the log of a level.
    pub fn at_level(level: u8) -> RequestLog {
        RequestLog { level }
    }

    /// Logs a request that is about to be sent.
    pub fn request(self, method: &Method, url: &str, headers: &HeaderMap) {
        if self.level >= CURL {
            let lines = header_lines(headers);
            let flags: String = lines.lines().map(|line| format!(" -H {line:?}")).collect();
            print("Request", &[("curlCommand", block(&format!("curl -v -X{method} {flags} '{url}'\n")))]);
        } else if self.level >= HEADERS {
            let headers = block(&header_lines(headers));
            print("Request", &[("verb", quoted(method.as_str())), ("url", quoted(url)), ("headers", headers)]);
        }
    }

    /// Logs the head of an answer.
    pub fn response(self, (method, url): (&Method, &str), status: StatusCode, headers: &HeaderMap, took: Duration) {
        if self.level < URLS {
            return;
        }
        let mut pairs = Vec::new();
        if self.level == URLS || self.level >= CURL {
            pairs.extend([("verb", quoted(method.as_str())), ("url", quoted(url))]);
        }
        pairs.push(("status", quoted(&status.to_string())));
        if self.level >= BODIES {
            pairs.push(("headers", block(&header_lines(headers))));
        }
        pairs.push(("milliseconds", took.as_millis().to_string()));
        print("Response", &pairs);
    }

    /// Logs a body: `Request Body` or `Response Body`.
    pub fn body(self, title: &str, body: &[u8]) {
        if self.level < BODIES {
            return;
        }
        let text = String::from_utf8_lossy(body);
        let most = match self.level {
            WHOLE_BODIES.. => text.len(),
            CURL => MAX_LONG_BODY,
            _ => MAX_BODY,
        };
        let end = text.floor_char_boundary(most);
        let text = match text.len() - end {
            0 => text.into_owned(),
            cut => format!("{} [truncated {cut} chars]", &text[..end]),
        };
        let value = if text.contains('\n') { block(&format!("{text}\n")) } else { quoted(&text) };
        print(title, &[("body", value)]);
    }
}

/// Prints a line as klog does.
fn print(message: &str, pairs: &[(&str, String)]) {
    let now = jiff::Zoned::now().strftime("%m%d %H:%M:%S.%6f").to_string();
    let pairs: String = pairs.iter().map(|(name, value)| format!(" {name}={value}")).collect();
    standard_error::print_line(format_args!("I{now} {:>7} request_log.rs:1] {message:?}{pairs}", std::process::id()));
}

fn quoted(text: &str) -> String {
    format!("{:?}", text)
}

/// Formats a text of several lines as klog does. A terminal obeys none of its control characters.
fn block(text: &str) -> String {
    let shown = |letter: char| if letter.is_control() && letter != '\t' { '\u{fffd}' } else { letter };
    let lines: String =
        text.lines().map(|line| format!("\t{}\n", line.chars().map(shown).collect::<String>())).collect();
    format!("<\n{lines} >")
}

/// Returns a line for each header. Credentials are masked.
fn header_lines(headers: &HeaderMap) -> String {
    let mut lines: Vec<String> = headers
        .iter()
        .map(|(name, value)| {
            let value = match (name == AUTHORIZATION, value.to_str().unwrap_or_default()) {
                (true, text) => {
                    text.split_once(' ').map_or("<masked>".to_owned(), |(kind, _)| format!("{kind} <masked>"))
                }
                (false, text) => text.to_owned(),
            };
            format!("{}: {value}\n", canonical(name.as_str()))
        })
        .collect();
    lines.sort();
    lines.concat()
}

/// Writes the name of a header as Go does: `Content-Type`.
fn canonical(name: &str) -> String {
    let parts = name.split('-').map(|part| {
        let mut letters = part.chars();
        letters.next().map_or(String::new(), |first| first.to_ascii_uppercase().to_string() + letters.as_str())
    });
    parts.collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_masked() {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", "Bearer secret".parse().unwrap());
        headers.insert("accept", "application/json".parse().unwrap());
        assert_eq!(header_lines(&headers), "Accept: application/json\nAuthorization: Bearer <masked>\n");
        headers.insert("authorization", "secret".parse().unwrap());
        assert!(header_lines(&headers).ends_with("Authorization: <masked>\n"));
        assert_eq!(block("a: b\nc: \u{1b}d\n"), "<\n\ta: b\n\tc: \u{fffd}d\n >");
    }
}
