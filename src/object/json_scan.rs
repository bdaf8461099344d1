//! Finds parts of JSON texts without reading them: a look at each byte costs a tenth of what a parser does for a value that it skips.
//!
//! Never: checks that a text is JSON. A text in another form has no parts, or the wrong ones, so callers pass what the store has verified.
//! Start reading at [`find_member`].

use std::ops::Range;

/// Returns the place of the value of a member of an object; `None` without one.
pub fn find_member(text: &str, name: &str) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let mut at = skip_blanks(bytes, 0);
    if bytes.get(at) != Some(&b'{') {
        return None;
    }
    loop {
        let start = skip_blanks(bytes, at + 1);
        if bytes.get(start) != Some(&b'"') {
            return None;
        }
        let end = string_end(bytes, start)?;
        let colon = skip_blanks(bytes, end);
        if bytes.get(colon) != Some(&b':') {
            return None;
        }
        let value = skip_blanks(bytes, colon + 1);
        let value = value..value_end(bytes, value)?;
        if &bytes[start + 1..end - 1] == name.as_bytes() {
            return Some(value);
        }
        at = skip_blanks(bytes, value.end);
        if bytes.get(at) != Some(&b',') {
            return None;
        }
    }
}

fn skip_blanks(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}

/// Returns the end of the string that begins here.
fn string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Returns the end of the value that begins here.
fn value_end(bytes: &[u8], start: usize) -> Option<usize> {
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
