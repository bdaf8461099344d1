//! Comparison of secrets.

/// Compares in constant time, so that the duration reveals only the length.
pub fn is_same_secret(shown: &str, secret: &str) -> bool {
    let differs = shown.bytes().zip(secret.bytes()).fold(0, |differs, (one, other)| differs | (one ^ other));
    shown.len() == secret.len() && std::hint::black_box(differs) == 0
}
