//! Finds parts of JSON texts without parsing them: scanning a byte costs a tenth of parsing a value that is then dropped.
//!
//! Never: checks that a text is JSON. A text in another form has no parts, or the wrong ones, so callers pass what the store has verified.
//! Start reading at [`find_path`].

use std::ops::Range;

/// Returns the place of the value of a member of an object; `None` without one.
pub fn find_member(text: &str, name: &str) -> Option<Range<usize>> {
    find_path(text, &[name])
}

/// Returns the place of a value within objects, by the names of the members that lead to it; `None` without one. Nothing behind it is read.
pub fn find_path(text: &str, path: &[&str]) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let mut value = skip_blanks(bytes, 0);
    for wanted in path {
        let mut at = value;
        value = loop {
            let ScannedPart::Begins((name, start)) = next_member(bytes, at)? else { return None };
            if bytes[name] == *wanted.as_bytes() {
                break start;
            }
            at = value_end(bytes, start)?;
        };
    }
    Some(value..value_end(bytes, value)?)
}

/// The next part of an object or of a list.
pub enum ScannedPart<T> {
    /// A part, which begins there.
    Begins(T),
    /// No further part: the value ends there.
    Ends(usize),
}

/// Finds the next member of an object: the place of its name, as it is written, and the place where its value begins. `at` is where the
/// object begins, or the end of the value before.
pub fn next_member(bytes: &[u8], at: usize) -> Option<ScannedPart<(Range<usize>, usize)>> {
    let start = match next_part(bytes, at, b"{}")? {
        ScannedPart::Begins(start) => start,
        ScannedPart::Ends(end) => return Some(ScannedPart::Ends(end)),
    };
    if bytes.get(start) != Some(&b'"') {
        return None;
    }
    let end = string_end(bytes, start)?;
    let colon = skip_blanks(bytes, end);
    let value = skip_blanks(bytes, colon + 1);
    (bytes.get(colon) == Some(&b':')).then_some(ScannedPart::Begins((start + 1..end - 1, value)))
}

/// Finds the next item of a list. `at` is where the list begins, or the end of the item before.
pub fn next_item(bytes: &[u8], at: usize) -> Option<ScannedPart<usize>> {
    next_part(bytes, at, b"[]")
}

fn next_part(bytes: &[u8], at: usize, brackets: &[u8; 2]) -> Option<ScannedPart<usize>> {
    let [open, close] = brackets;
    let at = skip_blanks(bytes, at);
    let start = skip_blanks(bytes, at + 1);
    match bytes.get(at)? {
        first if first == open && bytes.get(start)? == close => Some(ScannedPart::Ends(start + 1)),
        first if first == open => Some(ScannedPart::Begins(start)),
        b',' => Some(ScannedPart::Begins(start)),
        last if last == close => Some(ScannedPart::Ends(at + 1)),
        _ => None,
    }
}

/// Returns the place of the next byte that is not a blank.
pub fn skip_blanks(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}

/// Returns the end of the string that begins here. Looks at eight bytes at a time.
fn string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        while let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
            let word = u64::from_le_bytes(*word);
            let special = bytes_equal(word, b'"') | bytes_equal(word, b'\\');
            at += (special.trailing_zeros() / 8) as usize;
            if special != 0 {
                break;
            }
        }
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Marks the lowest byte of a word that is this one by its highest bit. Marks of bytes above it mean nothing.
fn bytes_equal(word: u64, byte: u8) -> u64 {
    const LOWEST: u64 = u64::from_ne_bytes([1; 8]);
    let differences = word ^ (LOWEST * u64::from(byte));
    differences.wrapping_sub(LOWEST) & !differences & (LOWEST << 7)
}

/// Returns the end of the value that begins here.
pub fn value_end(bytes: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut depth) = (start, 0_usize);
    loop {
        match bytes.get(at)? {
            b'"' => {
                at = string_end(bytes, at)?;
                if depth == 0 {
                    return Some(at);
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            // A number or a word ends before what follows it.
            b'}' | b']' | b',' | b' ' | b'\n' | b'\r' | b'\t' if depth == 0 => return (at > start).then_some(at),
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'a>(text: &'a str, name: &str) -> Option<&'a str> {
        find_member(text, name).map(|range| &text[range])
    }

    #[test]
    fn member_is_found_behind_others() {
        let text = r#"{"a":{"b":[1,"}\"]",{}],"m":2},"b\"":"\\","é":"é","m": [ {"x":"]"} ] ,"n":-1.5e3,"t":true}"#;
        for (name, expected) in [
            ("a", Some(r#"{"b":[1,"}\"]",{}],"m":2}"#)),
            ("é", Some("\"é\"")),
            ("m", Some(r#"[ {"x":"]"} ]"#)),
            ("n", Some("-1.5e3")),
            ("t", Some("true")),
            ("b", None),
            ("x", None),
        ] {
            assert_eq!(find(text, name), expected, "{name}");
        }
        assert_eq!(find(" { \"a\" :\n1 } ", "a"), Some("1"));
        let within = |path: &[&str]| find_path(text, path).map(|range| &text[range]);
        assert_eq!((within(&["a", "m"]), within(&["a", "é"]), within(&["t", "a"])), (Some("2"), None, None));
        assert_eq!(find_path(r#"{"a":{"b":[1]"#, &["a", "b"]), Some(10..13), "what follows is not read");
    }

    #[test]
    fn string_ends_at_its_quote_wherever_that_is() {
        for length in 0..20 {
            for (text, is_closed) in [("x", true), ("é", true), ("\\\"", true), ("\\\\", true), ("x", false)] {
                let end = if is_closed { "\"," } else { "" };
                let text = format!("\"{}{text}{end}", "y".repeat(length));
                let expected = is_closed.then_some(text.len() - 1);
                assert_eq!(string_end(text.as_bytes(), 0), expected, "{text}");
            }
        }
    }

    #[test]
    fn text_without_members_has_none() {
        let texts = [
            "",
            "{",
            "{}",
            "[]",
            "1",
            "{\"a",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":}",
            "{\"a\":1",
            "{\"a\":[1",
            "{\"a\":\"",
            "{\"a\":\"\\",
        ];
        for text in texts {
            assert_eq!(find(text, "a"), None, "{text}");
            assert_eq!(find(text, "b"), None, "{text}");
        }
    }
}
