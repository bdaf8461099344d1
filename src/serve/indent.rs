//! Indentation of JSON text without parsing it, for long lists.

/// Appends a compact JSON text in the form of `serde_json`'s pretty printer, at this depth.
pub fn indent(text: &str, depth: usize, into: &mut Vec<u8>) {
    let (mut depth, mut is_text, mut is_escaped) = (depth, false, false);
    let mut bytes = text.bytes().peekable();
    let line = |depth: usize, into: &mut Vec<u8>| {
        into.push(b'\n');
        into.extend(std::iter::repeat_n(b' ', 2 * depth));
    };
    while let Some(byte) = bytes.next() {
        if is_text {
            into.push(byte);
            (is_text, is_escaped) = (is_escaped || byte != b'"', !is_escaped && byte == b'\\');
            continue;
        }
        match byte {
            b'"' => {
                is_text = true;
                into.push(byte);
            }
            b'{' | b'[' => {
                into.push(byte);
                match bytes.next_if(|next| matches!(next, b'}' | b']')) {
                    Some(end) => into.push(end),
                    None => {
                        depth += 1;
                        line(depth, into);
                    }
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                line(depth, into);
                into.push(byte);
            }
            b',' => {
                into.push(byte);
                line(depth, into);
            }
            b':' => into.extend_from_slice(b": "),
            b' ' | b'\n' | b'\t' | b'\r' => {}
            _ => into.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_is_indented_like_values() {
        let value = json!({"a": [1, {"b": "x\\\"{,}: [\n"}, [], {}], "c": {"d": null, "e": -1.5e3}, "f": "\\"});
        let mut text = Vec::new();
        indent(&value.to_string(), 0, &mut text);
        assert_eq!(String::from_utf8(text).unwrap(), serde_json::to_string_pretty(&value).unwrap());
    }
}
