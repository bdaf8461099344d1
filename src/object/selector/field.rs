//! Field selectors: `status.phase=Running,metadata.name!=x` (apimachinery `fields.ParseSelector`).

use super::SelectorError;
use std::fmt;

/// Comparison operator of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldOp {
    /// `=` and `==`.
    Equals,
    /// `!=`.
    NotEquals,
}

/// Requirements on fields, all of which must be satisfied. Each kind defines its supported fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<(String, FieldOp, String)>,
}

impl FieldSelector {
    /// Parses the text form; the empty text selects everything.
    pub fn parse(text: &str) -> Result<FieldSelector, SelectorError> {
        let mut terms = split_terms(text);
        terms.sort_unstable();
        let requirements = terms.into_iter().filter(|term| !term.is_empty()).map(|term| {
            let Some((field, op, value)) = split_term(term) else {
                return Err(SelectorError(format!("invalid selector: '{text}'; can't understand '{term}'")));
            };
            Ok((field.to_owned(), op, unescape(value)?))
        });
        Ok(FieldSelector { requirements: requirements.collect::<Result<_, _>>()? })
    }

    /// The requirements: field, operator, value.
    pub fn requirements(&self) -> &[(String, FieldOp, String)] {
        &self.requirements
    }

    /// The same conditions with each field under the name that `rename` gives, or the first field that has none.
    pub fn renamed(mut self, rename: impl Fn(&str) -> Option<String>) -> Result<FieldSelector, String> {
        for (field, _, _) in &mut self.requirements {
            *field = rename(field).ok_or_else(|| field.clone())?;
        }
        Ok(self)
    }

    /// Whether it selects every object.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether fields, looked up by path, satisfy every requirement. An absent field counts as empty text.
    pub fn matches(&self, get: impl Fn(&str) -> String) -> bool {
        self.requirements.iter().all(|(field, op, value)| (get(field) == *value) == (*op == FieldOp::Equals))
    }
}

/// Prints the text that parses to the same selector.
impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (field, op, value)) in self.requirements.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let op = if *op == FieldOp::Equals { "=" } else { "!=" };
            let value = value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            write!(f, "{comma}{field}{op}{value}")?;
        }
        Ok(())
    }
}

/// Splits at commas; a backslash escapes the next character.
fn split_terms(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (index, c) in text.char_indices() {
        if !escaped && c == ',' {
            terms.push(&text[start..index]);
            start = index + 1;
        }
        escaped = !escaped && c == '\\';
    }
    terms.push(&text[start..]);
    terms
}

fn split_term(term: &str) -> Option<(&str, FieldOp, &str)> {
    let operators = [("!=", FieldOp::NotEquals), ("==", FieldOp::Equals), ("=", FieldOp::Equals)];
    term.char_indices().find_map(|(index, _)| {
        let split = |(text, op)| Some((&term[..index], op, term[index..].strip_prefix(text)?));
        operators.into_iter().find_map(split)
    })
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let (mut plain, mut chars) = (String::new(), value.chars());
    let fail = |message: String| Err(SelectorError(format!("invalid field selector: {message}")));
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => plain.push(c),
                Some(c) => return fail(format!("invalid escape sequence: \\{c}")),
                None => return fail("invalid escape sequence: \\".into()),
            },
            // Kubernetes prints the character's code.
            ',' | '=' => return fail(format!("unescaped character in value: {}", u32::from(c))),
            c => plain.push(c),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_selectors_parse_and_match() {
        let selector = FieldSelector::parse("status.phase=Running,metadata.name!=beta").unwrap();
        assert_eq!(selector.requirements()[0], ("metadata.name".into(), FieldOp::NotEquals, "beta".into()));
        let pod = |phase: &'static str, name: &'static str| {
            move |field: &str| if field == "status.phase" { phase.to_owned() } else { name.to_owned() }
        };
        assert!(selector.matches(pod("Running", "alpha")));
        assert!(!selector.matches(pod("Running", "beta")));
        assert!(!selector.matches(pod("Pending", "alpha")));
        assert!(FieldSelector::parse("").unwrap().is_everything());
        assert_eq!(FieldSelector::parse(r"a==b\,c\=d").unwrap().requirements()[0].2, "b,c=d");
    }

    #[test]
    fn field_selector_errors_have_kubernetes_wording() {
        for (text, wanted) in [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
            (r"a=\b", r"invalid field selector: invalid escape sequence: \b"),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap_err().to_string(), wanted);
        }
    }
}
