//! Compares an answer with the recorded one.

use regex::Regex;
use std::collections::HashMap;
use std::sync::LazyLock;

static RECORDED: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"<r\d+>").expect("pattern"));
static SAID: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"<r:\w+>").expect("pattern"));

/// The degree of agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Match {
    /// Different.
    None,
    /// Equal except for white space and the order of lines.
    Soft,
    /// Equal.
    Exact,
}

/// Maps our random letters to the recorded ones.
#[derive(Default)]
pub struct Letters(HashMap<String, String>);

impl Letters {
    /// Compares masked texts. `unordered`: the order of the lines is irrelevant.
    pub fn compare(&mut self, recorded: &str, said: &str, unordered: bool) -> Match {
        // The recordings omit empty lines at the end.
        let (recorded, said) = (recorded.trim_end_matches('\n'), said.trim_end_matches('\n'));
        let hashed = recorded.contains("<hash>") && said.contains("<hash>");
        let (first, second) = match (hashed, unordered) {
            (false, false) => (lines(recorded), lines(said)),
            // Hashes differ in length and in sort order.
            (true, _) => (even(recorded, unordered), even(said, unordered)),
            (false, true) => (sorted(recorded), sorted(said)),
        };
        let plain = |lines: &[String], pattern: &Regex| -> Vec<String> {
            lines.iter().map(|line| pattern.replace_all(line, "<r>").into_owned()).collect()
        };
        if plain(&first, &RECORDED) == plain(&second, &SAID) && self.agree(&first.concat(), &second.concat()) {
            return Match::Exact;
        }
        let loose = |text: &str, pattern: &Regex| {
            let mut lines: Vec<String> = lines(&pattern.replace_all(text, "<r>"));
            lines.iter_mut().for_each(|line| *line = line.split_whitespace().collect::<Vec<_>>().join(" "));
            lines.sort();
            lines
        };
        if loose(recorded, &RECORDED) == loose(said, &SAID) { Match::Soft } else { Match::None }
    }

    /// Whether the same letters correspond everywhere; new ones are recorded.
    fn agree(&mut self, recorded: &str, said: &str) -> bool {
        let pairs = RECORDED.find_iter(recorded).zip(SAID.find_iter(said));
        let pairs: Vec<(&str, &str)> = pairs.map(|(one, other)| (one.as_str(), other.as_str())).collect();
        let agree = pairs.iter().all(|(one, other)| self.0.get(*one).is_none_or(|known| known == other));
        for (one, other) in pairs {
            self.0.entry(one.to_owned()).or_insert_with(|| other.to_owned());
        }
        agree
    }
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

fn sorted(text: &str) -> Vec<String> {
    let mut lines = lines(text);
    lines.sort_by_key(|line| SAID.replace_all(&RECORDED.replace_all(line, "<r>"), "<r>").into_owned());
    lines
}

/// Splits into lines with two blanks between cells, replacing other padding.
fn even(text: &str, unordered: bool) -> Vec<String> {
    let even = |line: &str| {
        let inner = line.trim_start();
        let cells: Vec<&str> = inner.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        format!("{}{}\n", &line[..line.len() - inner.len()], cells.join("  "))
    };
    let text: String = text.lines().map(even).collect();
    if unordered { sorted(&text) } else { lines(&text) }
}

#[test]
fn matches_are_told_apart() {
    let mut letters = Letters::default();
    assert_eq!(letters.compare("a-<r01>\nb-<r02>\n", "a-<r:x>\nb-<r:y>\n", false), Match::Exact);
    assert_eq!(letters.compare("b-<r02>\n", "b-<r:y>\n", false), Match::Exact);
    assert_eq!(letters.compare("b-<r02>\n", "b-<r:x>\n", false), Match::Soft);
    assert_eq!(letters.compare("a  b\n", "a b\n", false), Match::Soft);
    assert_eq!(letters.compare("a b\n", "a c\n", false), Match::None);
    assert_eq!(letters.compare("b\na\n", "a\nb\n", true), Match::Exact);
}
