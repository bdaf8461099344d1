//! Names: the keys of objects, and those that the server makes from `generateName`.

use crate::kinds::Kind;
use crate::object::{Key, Object};

/// The alphabet of generated names: no vowels, no digits that look like letters (`k8s.io/apimachinery/pkg/util/rand`).
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Longest base that still leaves room for the suffix in a label of 63 characters.
pub const MAX_BASE: usize = 58;
/// Number of letters of the suffix.
pub const RANDOM_LETTERS: usize = 5;

/// The key of an object of this kind.
pub fn key_of(kind: &Kind, object: &Object) -> Key {
    let namespace = if kind.namespaced { object.namespace() } else { "" };
    Key::new(kind.resource, namespace, object.name())
}

/// Five letters after the base, cut to 58 characters.
pub fn generate(base: &str, mut random: u64) -> String {
    let mut name: String = base.chars().take(MAX_BASE).collect();
    for _ in 0..RANDOM_LETTERS {
        name.push(char::from(ALPHABET[(random % ALPHABET.len() as u64) as usize]));
        random /= ALPHABET.len() as u64;
    }
    name
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
}
