//! Operating system errors as Go programs print them: the kernel's text in lower case, without its number (`open x: no
//! such file or directory`).

use std::fmt::Display;

/// Suffix that Rust appends to the kernel's text.
const NUMBER: &str = " (os error ";

/// Formats an operating system error, which may have a prefix.
pub fn io_error_text(error: impl Display) -> String {
    let mut text = error.to_string();
    while let Some(at) = text.find(NUMBER) {
        let end = text[at..].find(')').map_or(text.len(), |end| at + end + 1);
        text.replace_range(at..end, "");
        let start = text[..at].rfind(": ").map_or(0, |colon| colon + 2);
        let mut letters = text[start..].chars();
        let is_word = matches!((letters.next(), letters.next()), (Some(first), Some(second))
            if first.is_ascii_uppercase() && !second.is_ascii_uppercase());
        if is_word && let Some(first) = text.get_mut(start..=start) {
            first.make_ascii_lowercase();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::io_error_text;
    use std::io::Error;

    #[test]
    fn io_error_text_has_no_number() {
        let table = [
            (2, "no such file or directory"),
            (13, "permission denied"),
            (98, "address already in use"),
            (111, "connection refused"),
            (18, "invalid cross-device link"),
        ];
        for (number, expected) in table {
            let error = Error::from_raw_os_error(number);
            assert_eq!(io_error_text(&error), expected);
            assert_eq!(io_error_text(format!("open /tmp/x: {error}")), format!("open /tmp/x: {expected}"));
            assert_eq!(
                io_error_text(format!("open: {error}; bind: {error}")),
                format!("open: {expected}; bind: {expected}")
            );
        }
        for text in ["", "Deployment \"web\": not found", "IO: 3", "unexpected end of file"] {
            assert_eq!(io_error_text(text), text);
        }
    }
}
