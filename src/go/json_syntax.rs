//! The errors of Go's `encoding/json` for texts that are not JSON (`scanner.go`).
//!
//! Never: builds a value. Start reading at [`find_error`].

/// Returns Go's error for a text; `None` for one whose syntax is right.
pub fn find_error(text: &[u8]) -> Option<String> {
    Scanner { text, at: 0 }.scan().err()
}

type Scan<T = ()> = Result<T, String>;

struct Scanner<'t> {
    text: &'t [u8],
    at: usize,
}

impl Scanner<'_> {
    fn scan(&mut self) -> Scan {
        let mut open: Vec<u8> = Vec::new();
        loop {
            // A value begins here, or an empty list or map ends.
            match self.after_blanks()? {
                bracket @ (b'{' | b'[') => {
                    self.at += 1;
                    let end = if bracket == b'{' { b'}' } else { b']' };
                    if self.after_blanks()? == end {
                        self.at += 1;
                    } else {
                        open.push(bracket);
                        if bracket == b'{' {
                            self.key()?;
                        }
                        continue;
                    }
                }
                _ => self.scalar()?,
            }
            if !self.finish_value(&mut open)? {
                return Ok(());
            }
        }
    }

    /// Reads the tokens between a value and the next one; returns false at the end of the text.
    fn finish_value(&mut self, open: &mut Vec<u8>) -> Scan<bool> {
        while let Some(bracket) = open.last() {
            let (end, place) = match bracket {
                b'{' => (b'}', "after object key:value pair"),
                _ => (b']', "after array element"),
            };
            let byte = self.after_blanks()?;
            if byte == b',' {
                self.at += 1;
                if *bracket == b'{' {
                    self.key()?;
                }
                return Ok(true);
            }
            if byte != end {
                return Err(invalid(byte, place));
            }
            self.at += 1;
            open.pop();
        }
        match self.after_blanks() {
            Ok(byte) => Err(invalid(byte, "after top-level value")),
            Err(_) => Ok(false),
        }
    }

    fn key(&mut self) -> Scan {
        match self.after_blanks()? {
            b'"' => self.string()?,
            byte => return Err(invalid(byte, "looking for beginning of object key string")),
        }
        let colon = self.after_blanks()?;
        self.at += 1;
        if colon == b':' { Ok(()) } else { Err(invalid(colon, "after object key")) }
    }

    fn scalar(&mut self) -> Scan {
        match self.peek()? {
            b'"' => self.string(),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'n' => self.word("null"),
            b'-' | b'0'..=b'9' => self.number(),
            byte => Err(invalid(byte, "looking for beginning of value")),
        }
    }

    fn string(&mut self) -> Scan {
        self.at += 1;
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => match self.next()? {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let digit = self.next()?;
                            if !digit.is_ascii_hexdigit() {
                                return Err(invalid(digit, "in \\u hexadecimal character escape"));
                            }
                        }
                    }
                    byte => return Err(invalid(byte, "in string escape code")),
                },
                byte if byte < b' ' => return Err(invalid(byte, "in string literal")),
                _ => {}
            }
        }
    }

    fn word(&mut self, word: &str) -> Scan {
        for expected in word.bytes() {
            let byte = self.next()?;
            if byte != expected {
                return Err(invalid(byte, &format!("in literal {word} (expecting {})", quoted(expected))));
            }
        }
        Ok(())
    }

    fn number(&mut self) -> Scan {
        if self.peek()? == b'-' {
            self.at += 1;
        }
        let first = self.digit("in numeric literal")?;
        if first != b'0' {
            self.digits();
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digit("after decimal point in numeric literal")?;
            self.digits();
        }
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.text.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digit("in exponent of numeric literal")?;
            self.digits();
        }
        Ok(())
    }

    fn digit(&mut self, place: &str) -> Scan<u8> {
        let byte = self.next()?;
        if byte.is_ascii_digit() { Ok(byte) } else { Err(invalid(byte, place)) }
    }

    fn digits(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    fn after_blanks(&mut self) -> Scan<u8> {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        self.peek()
    }

    fn peek(&self) -> Scan<u8> {
        self.text.get(self.at).copied().ok_or_else(|| "unexpected end of JSON input".to_owned())
    }

    fn next(&mut self) -> Scan<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Ok(byte)
    }
}

fn invalid(byte: u8, place: &str) -> String {
    format!("invalid character {} {place}", quoted(byte))
}

/// Quotes a byte as Go does, which takes it for a letter.
fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\\' => r"'\\'".to_owned(),
        7..=13 => format!(r"'\{}'", char::from(b"abtnvfr"[usize::from(byte - 7)])),
        0..=31 | 127 => format!(r"'\x{byte:02x}'"),
        128..=160 | 173 => format!(r"'\u{byte:04x}'"),
        byte => format!("'{}'", char::from(byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_words_of_go() {
        for (text, error) in [
            ("{nope", "'n' looking for beginning of object key string"),
            ("boom", "'b' looking for beginning of value"),
            ("[1,]", "']' looking for beginning of value"),
            ("[1 2]", "'2' after array element"),
            ("{\"a\" 1}", "'1' after object key"),
            ("{\"a\":1 \"b\"}", "'\"' after object key:value pair"),
            ("{\"a\":1,}", "'}' looking for beginning of object key string"),
            ("{} x", "'x' after top-level value"),
            ("trup", "'p' in literal true (expecting 'e')"),
            ("-x", "'x' in numeric literal"),
            ("01", "'1' after top-level value"),
            ("1.x", "'x' after decimal point in numeric literal"),
            ("1e+x", "'x' in exponent of numeric literal"),
            ("\"a\nb\"", r"'\n' in string literal"),
            (r#""\q""#, "'q' in string escape code"),
            (r#""\u00zz""#, r"'z' in \u hexadecimal character escape"),
            ("\u{1}", r"'\x01' looking for beginning of value"),
            ("'a'", r"'\'' looking for beginning of value"),
        ] {
            assert_eq!(find_error(text.as_bytes()), Some(format!("invalid character {error}")), "{text}");
        }
        assert_eq!(find_error(b"\x81").as_deref(), Some(r"invalid character '\u0081' looking for beginning of value"));
        for text in ["", " ", "{", "{\"a\":", "[1,", "\"a", "-", "1.", "tr", r#""\u00"#] {
            assert_eq!(find_error(text.as_bytes()).as_deref(), Some("unexpected end of JSON input"), "{text}");
        }
        for text in
            ["{}", "[]", " [ {} , [ 1.5e-3 , \"\\u00e9\\n\" ] ] ", "{\"a\":{\"b\":[null,true,-0]}}", "\"\u{e9}\""]
        {
            assert_eq!(find_error(text.as_bytes()), None, "{text}");
            assert!(serde_json::from_str::<serde_json::Value>(text).is_ok(), "{text}");
        }
        assert_eq!(find_error("[".repeat(1_000_000).as_bytes()).as_deref(), Some("unexpected end of JSON input"));
    }
}
