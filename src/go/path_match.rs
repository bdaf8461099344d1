//! Matches file names with patterns like Go's `path/filepath.Match`.
//!
//! Knows: `*`, `?`, classes such as `[a-z]` and `[^a]`, and `\\`. Start reading at [`PathPattern`].

/// A pattern of one part of a path.
#[derive(Debug)]
pub struct PathPattern {
    parts: Vec<PatternPart>,
}

#[derive(Debug)]
enum PatternPart {
    /// `*`
    Any,
    /// `?`
    One,
    /// A letter by itself.
    Letter(char),
    /// `[a-z]`: ranges of letters, and whether they are excluded.
    Class(Vec<(char, char)>, bool),
}

impl PathPattern {
    /// Whether a text has letters with a meaning in patterns.
    pub fn is_pattern(text: &str) -> bool {
        text.contains(['*', '?', '[', '\\'])
    }

    /// Parses a pattern; `None` if it is malformed.
    pub fn parse(text: &str) -> Option<PathPattern> {
        let mut letters = text.chars();
        let mut parts = Vec::new();
        while let Some(letter) = letters.next() {
            parts.push(match letter {
                '*' => PatternPart::Any,
                '?' => PatternPart::One,
                '\\' => PatternPart::Letter(letters.next()?),
                '[' => class(&mut letters)?,
                letter => PatternPart::Letter(letter),
            });
        }
        Some(PathPattern { parts })
    }

    /// Whether the whole name matches.
    pub fn matches(&self, name: &str) -> bool {
        let letters: Vec<char> = name.chars().collect();
        let (mut part, mut at) = (0, 0);
        // The last `*`, and the letter at which the rest of the pattern was tried.
        let mut retry: Option<(usize, usize)> = None;
        loop {
            let (is_next, is_any) = match (self.parts.get(part), letters.get(at)) {
                (None, None) => return true,
                (Some(PatternPart::Any), _) => (true, true),
                (Some(part), Some(letter)) => (part.matches(*letter), false),
                _ => (false, false),
            };
            match (is_next, retry) {
                (true, _) => {
                    retry = if is_any { Some((part, at)) } else { retry };
                    (part, at) = (part + 1, at + usize::from(!is_any));
                }
                (false, Some((any, tried))) if tried < letters.len() => {
                    retry = Some((any, tried + 1));
                    (part, at) = (any + 1, tried + 1);
                }
                _ => return false,
            }
        }
    }
}

/// Parses a class after its `[`.
fn class(letters: &mut std::str::Chars<'_>) -> Option<PatternPart> {
    let mut ranges = Vec::new();
    let mut letter = letters.next()?;
    let is_excluded = letter == '^';
    if is_excluded {
        letter = letters.next()?;
    }
    while letter != ']' || ranges.is_empty() {
        let low = bound(letter, letters)?;
        letter = letters.next()?;
        let mut high = low;
        if letter == '-' {
            let end = letters.next()?;
            high = bound(end, letters)?;
            letter = letters.next()?;
        }
        ranges.push((low, high));
    }
    Some(PatternPart::Class(ranges, is_excluded))
}

/// Returns a letter of a class, which may follow a backslash.
fn bound(letter: char, letters: &mut std::str::Chars<'_>) -> Option<char> {
    match letter {
        '\\' => letters.next(),
        '-' | ']' => None,
        letter => Some(letter),
    }
}

impl PatternPart {
    fn matches(&self, letter: char) -> bool {
        match self {
            PatternPart::Any | PatternPart::One => true,
            PatternPart::Letter(own) => *own == letter,
            PatternPart::Class(ranges, is_excluded) => {
                ranges.iter().any(|(low, high)| (low..=high).contains(&&letter)) != *is_excluded
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_as_in_go() {
        let cases = [
            ("*", "a", true),
            ("*.yaml", "a.yaml", true),
            ("*.yaml", "a.yml", false),
            ("a*b*c", "axxbxbc", true),
            ("a*b*c", "axxbxb", false),
            ("?b", "éb", true),
            ("?", "", false),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("[\\-x]", "-", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("**", "", true),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(PathPattern::parse(pattern).expect(pattern).matches(name), expected, "{pattern} {name}");
        }
        for malformed in ["[", "[]a]", "[a", "[-x]", "[a-]", "a\\", "[a-"] {
            assert!(PathPattern::parse(malformed).is_none(), "{malformed}");
        }
        assert!(!PathPattern::parse(&"*a".repeat(1000)).unwrap().matches(&"a".repeat(900)));
    }
}
