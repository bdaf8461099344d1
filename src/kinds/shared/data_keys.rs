//! The data of ConfigMaps and Secrets: keys generated from files and literals, and the values of Secrets.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Decodes a value of a Secret. Validation has refused values that are not base64.
pub fn decode_value(base64: &str) -> Vec<u8> {
    STANDARD.decode(base64).unwrap_or_default()
}

/// Refuses invalid and duplicate keys, with kubectl's messages. `kind` and `name` identify the object in the message.
pub fn check_keys<T>(data: &[(String, T)], kind: &str, name: &str) -> Result<(), String> {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    for (at, (key, _)) in data.iter().enumerate() {
        if key.is_empty() || !key.chars().all(allowed) {
            return Err(format!(
                "{key:?} is not a valid key name for a {kind}: a valid config key must consist of alphanumeric characters, \
                 '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
            ));
        }
        if data[..at].iter().any(|(known, _)| known == key) {
            return Err(format!(
                "cannot add key {key:?}, another key by that name already exists in Data for {kind} {name:?}"
            ));
        }
    }
    Ok(())
}
