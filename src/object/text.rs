//! Small texts and hashes that several modules write alike.

use std::fmt::{Display, Write};

/// Formats a count with its noun: `1 pod`, `2 pods`.
pub fn format_count(count: impl Display + PartialEq + From<u8>, noun: &str) -> String {
    let ending = if count == 1.into() { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// Formats bytes as hexadecimal digits.
pub fn format_hex(bytes: impl AsRef<[u8]>) -> String {
    let bytes = bytes.as_ref();
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // A String takes every byte.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the FNV-1a hash of a text: the same in every process and version.
pub fn hash_fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Joins errors as Kubernetes' aggregates do.
pub fn join_errors(errors: &[String]) -> String {
    match errors {
        [] => String::new(),
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_bytes_and_hashes_have_their_usual_forms() {
        assert_eq!([0_usize, 1, 2].map(|count| format_count(count, "pod")), ["0 pods", "1 pod", "2 pods"]);
        assert_eq!(format_hex([0, 0x0f, 0xff]), "000fff");
        assert_eq!([hash_fnv1a(""), hash_fnv1a("a"), hash_fnv1a("foobar")], [0x811c_9dc5, 0xe40c_292c, 0xbf9c_f968]);
    }
}
