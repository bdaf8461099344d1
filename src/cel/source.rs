//! The text of an expression, positions in it, and errors as cel-go prints them.
//!
//! Never: decides that something is wrong. Start reading at [`Issues`].

use std::fmt;

/// Maximum number of errors that are printed.
const MAX_ERRORS: usize = 100;
/// Maximum length of a line that is printed below an error.
const MAX_LINE_LENGTH: usize = 16384;

/// The text of an expression and the positions of its nodes.
#[derive(Default)]
pub struct Source {
    /// The text.
    pub text: Vec<char>,
    /// The position of each node.
    pub positions: Vec<usize>,
}

impl Source {
    /// Reads a text.
    pub fn new(text: &str) -> Source {
        Source { text: text.chars().collect(), positions: Vec::new() }
    }

    /// Adds a node at a position and returns its number.
    pub fn add(&mut self, position: usize) -> usize {
        self.positions.push(position);
        self.positions.len() - 1
    }

    /// Returns the errors as they are printed.
    pub fn print_issues(&self, mut issues: Vec<Issue>) -> Issues {
        issues.sort_by_key(|issue| issue.position.map_or(-1, |position| position as i64));
        let cut = issues.len().saturating_sub(MAX_ERRORS);
        let mut lines: Vec<String> = issues.iter().take(MAX_ERRORS).map(|issue| self.print(issue)).collect();
        if cut > 0 {
            lines.push(format!("{cut} more errors were truncated"));
        }
        Issues(lines.join("\n"))
    }

    fn print(&self, issue: &Issue) -> String {
        let Some(position) = issue.position else { return format!("ERROR: <input>:-1:0: {}", issue.message) };
        let position = position.min(self.text.len());
        let before = &self.text[..position];
        let line = before.iter().filter(|letter| **letter == '\n').count();
        let start = before.iter().rposition(|letter| *letter == '\n').map_or(0, |at| at + 1);
        let end = self.text[start..].iter().position(|letter| *letter == '\n').map_or(self.text.len(), |at| start + at);
        let column = position - start;
        let head = format!("ERROR: <input>:{}:{}: {}", line + 1, column + 1, issue.message);
        let snippet: String =
            self.text[start..end].iter().map(|letter| if *letter == '\t' { ' ' } else { *letter }).collect();
        if snippet.len() > MAX_LINE_LENGTH {
            return head;
        }
        let mark = |letter: char, narrow: char, wide: char| if letter.len_utf8() > 1 { wide } else { narrow };
        let dots: String = snippet.chars().take(column).map(|letter| mark(letter, '.', '\u{ff0e}')).collect();
        let arrow = mark(snippet.chars().nth(column).unwrap_or(' '), '^', '\u{ff3e}');
        format!("{head}\n | {snippet}\n | {dots}{arrow}")
    }
}

/// An error at a position; one without a position concerns the whole expression.
#[derive(Clone, Debug)]
pub struct Issue {
    /// The number of the letter where it is.
    pub position: Option<usize>,
    /// The message.
    pub message: String,
}

/// The errors of an expression, as cel-go prints them.
#[derive(Clone, Debug, PartialEq)]
pub struct Issues(pub String);

impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
