//! Names: the keys of objects, and what the server makes itself, uids and `generateName`.

use crate::kinds::Kind;
use crate::object::{Key, Object};

/// The alphabet of generated names: no vowels, no digits that look like letters (`k8s.io/apimachinery/pkg/util/rand`).
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Longest base that still leaves room for the suffix in a label of 63 characters.
const MAX_BASE: usize = 58;

/// The key that an object of this kind stands under.
pub fn key_of(kind: &Kind, object: &Object) -> Key {
    let namespace = if kind.namespaced { object.namespace() } else { "" };
    Key::new(kind.resource, namespace, object.name())
}

/// Five letters after the base, cut to 58 characters.
pub fn generate(base: &str, mut random: u64) -> String {
    let mut name: String = base.chars().take(MAX_BASE).collect();
    for _ in 0..5 {
        name.push(char::from(ALPHABET[(random % ALPHABET.len() as u64) as usize]));
        random /= ALPHABET.len() as u64;
    }
    name
}

/// A random uuid (version 4) of 128 random bits.
pub fn uid(high: u64, low: u64) -> String {
    let high = (high & !0xf000) | 0x4000;
    let low = (low & !(0b11 << 62)) | (0b10 << 62);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_fit_a_label() {
        let name = generate(&"x".repeat(80), 12_345_678);
        assert_eq!(name.len(), 63);
        assert!(name.bytes().skip(58).all(|byte| ALPHABET.contains(&byte)));
        assert_ne!(generate("web-", 1), generate("web-", 2));
    }

    #[test]
    fn uids_are_version_4() {
        let uid = uid(u64::MAX, u64::MAX);
        assert_eq!(uid, "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
