//! Breaks long lines of prose between words.
//!
//! Never: breaks a word. Start reading at [`wrap`], or at [`hang`] for an entry of a list.

/// Wraps lines between words. Keeps blanks inside lines, and words that are too long.
pub fn wrap(width: usize, text: &str) -> String {
    text.split('\n').map(|line| wrap_line(width, line)).collect::<Vec<_>>().join("\n")
}

fn wrap_line(width: usize, line: &str) -> String {
    let is_gap = |letter: char| letter.is_whitespace() && letter != '\u{a0}';
    let (mut out, mut current, mut rest) = (String::new(), 0, line);
    while !rest.is_empty() {
        let (gap, more) = rest.split_at(rest.find(|letter| !is_gap(letter)).unwrap_or(rest.len()));
        let (word, more) = more.split_at(more.find(is_gap).unwrap_or(more.len()));
        let (gap_width, word_width) = (gap.chars().count(), word.chars().count());
        if current + gap_width + word_width.min(width - 1) <= width {
            out.push_str(gap);
            current += gap_width + word_width;
        } else if !word.is_empty() {
            out.push('\n');
            current = word_width;
        }
        out.push_str(word);
        rest = more;
    }
    out
}

/// Wraps text behind a margin: the first line follows `first`, and the others `rest`.
pub fn hang(width: usize, first: &str, rest: &str, text: &str) -> String {
    let margin = first.chars().count().max(rest.chars().count());
    let text = wrap(width.saturating_sub(margin).max(2), text);
    format!("{first}{}", text.replace('\n', &format!("\n{rest}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        for (text, wrapped) in [
            ("one two three", "one two\nthree"),
            ("one  two", "one  two"),
            ("a verylongword b", "a\nverylongword\nb"),
            ("verylongword", "verylongword"),
            ("one two ", "one two "),
            ("one two  ", "one two"),
            ("a\n\nb\n", "a\n\nb\n"),
            ("éé éé ééé", "éé éé\nééé"),
        ] {
            assert_eq!(wrap(8, text), wrapped, "{text:?}");
        }
    }

    #[test]
    fn entries_hang_behind_their_margin() {
        assert_eq!(hang(12, "- ", "  ", "one two three"), "- one two\n  three");
        assert_eq!(hang(1, "", "", "ab c"), "ab\nc");
    }
}
