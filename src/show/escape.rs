//! Escapes control characters of objects before they reach a terminal, where they could move the cursor, recolour the
//! screen or hide text. kubectl escapes only ESC and CR (CVE-2021-25743); kloop escapes C0, C1, DEL and bidirectional
//! marks.

/// Escapes text for a description. Keeps tabs and newlines, which are its layout.
pub fn text(text: &str) -> String {
    escaped(text, |letter| matches!(letter, '\n' | '\t'))
}

/// Escapes text for one cell: only its first line, without tabs.
pub fn cell(text: &str) -> String {
    match text.find(['\n', '\r', '\u{c}']) {
        Some(end) => format!("{}...", escaped(&text[..end], |_| false)),
        None => escaped(text, |_| false),
    }
}

/// Escapes a piece of a program's output. Colour sequences (SGR), newlines, tabs and carriage
/// returns are kept; other control characters and sequences become visible.
pub fn output(piece: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(piece.len());
    let mut at = 0;
    while let Some(byte) = piece.get(at) {
        let rest = &piece[at..];
        let length = colour(rest);
        match (byte, rest.get(1)) {
            (0x1b, _) if length > 0 => {
                out.extend_from_slice(&rest[..length]);
                at += length;
                continue;
            }
            (0x1b, _) => out.extend_from_slice(b"^["),
            (b'\n' | b'\t' | b'\r', _) => out.push(*byte),
            (0..0x20 | 0x7f, _) => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
            // The C1 controls in UTF-8, among them CSI.
            (0xc2, Some(next @ 0x80..0xa0)) => {
                out.extend_from_slice(format!("\\u{next:04x}").as_bytes());
                at += 1;
            }
            _ => out.push(*byte),
        }
        at += 1;
    }
    out
}

/// The length of the colour sequence at the start of the text, or 0.
fn colour(text: &[u8]) -> usize {
    let Some(inside) = text.strip_prefix(b"\x1b[") else { return 0 };
    let length = inside.iter().take_while(|byte| matches!(byte, b'0'..=b'9' | b';' | b':')).count();
    if inside.get(length) == Some(&b'm') { length + 3 } else { 0 }
}

fn escaped(text: &str, keep: impl Fn(char) -> bool) -> String {
    if !text.chars().any(|letter| is_unsafe(letter) && !keep(letter)) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match letter {
            letter if keep(letter) || !is_unsafe(letter) => out.push(letter),
            // As kubectl does.
            '\u{1b}' => out.push_str("^["),
            '\r' => out.push_str("\\r"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            other if other.is_ascii() => out.push_str(&format!("\\x{:02x}", other as u32)),
            other => out.push_str(&format!("\\u{:04x}", other as u32)),
        }
    }
    out
}

/// Whether a character is a control, or an invisible mark that changes the order of text.
fn is_unsafe(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_keeps_colours_and_no_other_sequences() {
        let cases = [
            ("\u{1b}[1;31mred\u{1b}[0m\u{1b}[m", "\u{1b}[1;31mred\u{1b}[0m\u{1b}[m"),
            ("\u{1b}[2J\u{1b}]0;title\u{7}", "^[[2J^[]0;title\\x07"),
            ("10%\r20%\tdone\n", "10%\r20%\tdone\n"),
            ("csi\u{9b}2J é 日本", "csi\\u009b2J é 日本"),
            ("cut\u{1b}[1", "cut^[[1"),
        ];
        for (raw, expected) in cases {
            assert_eq!(String::from_utf8(output(raw.as_bytes())).unwrap(), expected);
        }
    }

    #[test]
    fn unsafe_characters_are_escaped() {
        let cases = [
            ("plain ünïcode 日本", "plain ünïcode 日本"),
            ("\u{1b}[31mred", "^[[31mred"),
            ("bell\u{7}", "bell\\x07"),
            ("del\u{7f}csi\u{9b}2J", "del\\x7fcsi\\u009b2J"),
            ("a\u{202e}b\u{2066}c", "a\\u202eb\\u2066c"),
            ("tab\there", "tab\\there"),
            ("one\ntwo", "one..."),
            ("one\rtwo", "one..."),
        ];
        for (raw, expected) in cases {
            assert_eq!(cell(raw), expected, "{raw:?}");
        }
        assert_eq!(text("a\tb\nc\r\u{1b}"), "a\tb\nc\\r^[");
        let all: String = (0..=0x2070u32).filter_map(char::from_u32).collect();
        assert!(!text(&all).chars().any(|letter| is_unsafe(letter) && !matches!(letter, '\n' | '\t')));
    }
}
