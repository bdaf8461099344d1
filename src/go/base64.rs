//! Reads base64 as `encoding/base64` does.

use std::fmt;

/// The error of text that is not base64, with the offset of the offending byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorruptInput(pub usize);

impl fmt::Display for CorruptInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "illegal base64 data at input byte {}", self.0)
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Returns the strict form of a text that Go accepts: without line breaks, and with zeros in the bits that encode nothing.
pub fn canonical(text: &str) -> Result<String, CorruptInput> {
    let bytes = text.as_bytes();
    let is_break = |at: usize| bytes.get(at).is_some_and(|byte| matches!(byte, b'\n' | b'\r'));
    let mut strict = Vec::with_capacity(bytes.len());
    let mut at = 0;
    loop {
        let start = strict.len();
        while strict.len() < start + 4 {
            if is_break(at) {
                at += 1;
                continue;
            }
            let filled = strict.len() - start;
            match bytes.get(at) {
                None if filled == 0 => return Ok(text_of(strict)),
                None => return Err(CorruptInput(at - filled)),
                Some(byte) if ALPHABET.contains(byte) => strict.push(*byte),
                Some(b'=') if filled >= 2 => {
                    check_padding(bytes, at + 1, filled)?;
                    clear_unused_bits(&mut strict, filled);
                    strict.resize(start + 4, b'=');
                    return Ok(text_of(strict));
                }
                Some(_) => return Err(CorruptInput(at)),
            }
            at += 1;
        }
    }
}

/// Checks the text after the first `=` of a group that has two or three symbols.
fn check_padding(bytes: &[u8], mut at: usize, symbols: usize) -> Result<(), CorruptInput> {
    let skip_breaks = |mut at: usize| {
        while bytes.get(at).is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
            at += 1;
        }
        at
    };
    if symbols == 2 {
        at = skip_breaks(at);
        match bytes.get(at) {
            None => return Err(CorruptInput(bytes.len())),
            Some(b'=') => at += 1,
            Some(_) => return Err(CorruptInput(at - 1)),
        }
    }
    at = skip_breaks(at);
    if at < bytes.len() { Err(CorruptInput(at)) } else { Ok(()) }
}

/// Clears the bits of the last symbol that belong to no byte.
fn clear_unused_bits(strict: &mut [u8], symbols: usize) {
    let mask = if symbols == 2 { 0b11_0000 } else { 0b11_1100 };
    if let Some(last) = strict.last_mut() {
        let value = ALPHABET.iter().position(|symbol| symbol == last).unwrap_or_default();
        *last = ALPHABET[value & mask];
    }
}

fn text_of(symbols: Vec<u8>) -> String {
    symbols.into_iter().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_accepted_as_by_go() {
        for (text, strict) in [
            ("", ""),
            ("\n", ""),
            ("YQ==", "YQ=="),
            ("YR==", "YQ=="),
            ("Y\nWJ\r\nj", "YWJj"),
            ("YWI=\n", "YWI="),
            ("YWJ=", "YWI="),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(strict), "{text:?}");
        }
        for (text, at) in [
            ("YQ", 0),
            ("YWJjYQ", 4),
            ("YQ=", 3),
            ("YQ=x", 2),
            ("YQ==YQ==", 4),
            ("YWJj=", 4),
            ("Y Q==", 1),
            ("%%%", 0),
            ("x", 0),
            ("Y=", 1),
            ("aéb", 1),
        ] {
            assert_eq!(canonical(text), Err(CorruptInput(at)), "{text:?}");
        }
    }
}
