//! Small descriptions in a shared log: one `name=value` in each line.
//!
//! Never: knows a name. Start reading at [`encode_properties`].

/// Encodes properties. Neither names nor values have line breaks.
pub(super) fn encode_properties(properties: &[(&str, &str)]) -> Vec<u8> {
    let lines = properties.iter().map(|(name, value)| format!("{name}={value}\n"));
    lines.collect::<String>().into_bytes()
}

/// Reads the value of a property.
pub(super) fn read_property<'a>(text: &'a [u8], name: &str) -> Option<&'a str> {
    let mut lines = std::str::from_utf8(text).ok()?.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

/// Reads the value of a property that is a number.
pub(super) fn read_number(text: &[u8], name: &str) -> Option<u64> {
    read_property(text, name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_read_as_they_were_written() {
        let text = encode_properties(&[("format", "1"), ("host", "a=b")]);
        assert_eq!((read_number(&text, "format"), read_property(&text, "host")), (Some(1), Some("a=b")));
        assert_eq!((read_property(&text, "form"), read_number(&text, "host")), (None, None));
        assert_eq!(read_property(b"\xff", "format"), None);
    }
}
