//! `$(VAR)` in commands, arguments and values of variables: Kubernetes' expansion.

/// Expands references to known variables. Unknown ones stay as they are written, `$$` is one dollar.
pub fn expand(text: &str, variables: &[(String, String)]) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let (part, length) = reference(after, variables);
        expanded.push_str(&part);
        rest = &after[length..];
    }
    expanded + rest
}

/// Resolves the reference after a dollar sign, and returns how much text it used.
fn reference(after: &str, variables: &[(String, String)]) -> (String, usize) {
    if after.starts_with('$') {
        return ("$".into(), 1);
    }
    let Some((name, _)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) else {
        return ("$".into(), 0);
    };
    let known = variables.iter().rev().find(|(known, _)| known == name);
    let value = known.map_or_else(|| format!("$({name})"), |(_, value)| value.clone());
    (value, name.len() + 2)
}

#[cfg(test)]
mod tests {
    use super::expand;

    #[test]
    fn references() {
        let variables: Vec<_> = [("A", "1"), ("B_C", "two"), ("EMPTY", ""), ("A", "last"), ("X", "$(A)")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let cases = [
            ("", ""),
            ("plain", "plain"),
            ("$(A)", "last"),
            ("-$(A)-$(B_C)-", "-last-two-"),
            ("$(EMPTY)", ""),
            ("$(NOPE)", "$(NOPE)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$last"),
            ("$$$$(A)", "$$(A)"),
            ("$", "$"),
            ("$$", "$"),
            ("a$", "a$"),
            ("$A", "$A"),
            ("${A}", "${A}"),
            ("$(A", "$(A"),
            ("$()", "$()"),
            ("$(A))", "last)"),
            ("$($(A))", "$($(A))"),
            ("$(X)", "$(A)"),
            ("100% $(A) é", "100% last é"),
        ];
        for (text, expected) in cases {
            assert_eq!(expand(text, &variables), expected, "{text}");
        }
    }
}
