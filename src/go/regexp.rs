//! Go's syntax of patterns (RE2), translated for the `regex` crate.
//!
//! The two syntaxes differ: Go's `\w`, `\d`, `\s` and `\b` match only ASCII, a `{` that starts no repetition is a
//! literal, `\Q..\E` quotes, and classes support neither `&&` nor nesting. [`translate`] rewrites a pattern and reports
//! errors with Go's wording (`regexp/syntax/parse.go`). It also estimates the size of the compiled program, so that a
//! definition whose patterns would take seconds to compile is refused without compiling them.

use regex::{Regex, RegexBuilder};

/// Maximum estimated size of one pattern's program, in states: about 5 MB and some hundredths of a second to compile.
pub const MAX_STATES: usize = 50_000;
/// Go's maximum count of a repetition, and of the product of nested repetitions.
const MAX_REPEATS: usize = 1000;
/// Maximum depth of groups: Go allows 1000, the `regex` crate a quarter of that.
const MAX_NESTED: usize = 200;
/// Estimated states of a class from Unicode tables.
const TABLE_STATES: usize = 600;
/// Estimated states of a negated class or `.`, which match multi-byte UTF-8.
const WIDE_STATES: usize = 12;

const DIGIT: &str = "0-9";
const WORD: &str = "0-9A-Za-z_";
const SPACE: &str = r"\t\n\x{c}\r\x{20}";
const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// A pattern in the syntax of the `regex` crate.
#[derive(Debug, PartialEq)]
pub struct Translated {
    /// The pattern.
    pub text: String,
    /// The estimated size of its program, in states.
    pub states: usize,
}

/// A compiled pattern.
#[derive(Debug)]
pub struct CompiledPattern {
    /// The program.
    pub regex: Regex,
    /// The estimated size of the program, in states.
    pub states: usize,
}

/// Number of pairs of a state and a byte that a search may visit in one step, a few nanoseconds.
const VISITS_PER_STEP: u64 = 16;

impl CompiledPattern {
    /// Returns the number of steps that the search for one match takes at most: a hostile pattern makes a search visit each state at each
    /// byte of the text.
    pub fn steps(&self, text: &str) -> u64 {
        (text.len() as u64).saturating_mul(self.states as u64) / VISITS_PER_STEP
    }
}

/// Compiles a pattern of at most [`MAX_STATES`]. Errors have Go's wording.
pub fn compile(pattern: &str) -> Result<CompiledPattern, String> {
    let translated = translate(pattern)?;
    if translated.states > MAX_STATES {
        return wrong("expression too large", pattern);
    }
    let built = RegexBuilder::new(&translated.text).size_limit(64 << 20).build();
    built.map(|regex| CompiledPattern { regex, states: translated.states }).map_err(|error| error.to_string())
}

/// Translates a pattern to the syntax of the `regex` crate; the error has Go's wording.
pub fn translate(pattern: &str) -> Result<Translated, String> {
    let mut parser = Parser { rest: pattern, out: String::new(), groups: vec![Group::default()], last: Last::Nothing };
    while !parser.rest.is_empty() {
        parser.next(pattern)?;
    }
    if parser.groups.len() > 1 {
        return wrong("missing closing )", pattern);
    }
    let states = parser.groups.pop().map_or(0, |group| group.size.states);
    Ok(Translated { text: parser.out, states })
}

fn wrong<T>(what: &str, part: &str) -> Result<T, String> {
    Err(format!("error parsing regexp: {what}: `{part}`"))
}

/// Size of a part of a pattern.
#[derive(Clone, Copy, Default)]
struct Size {
    states: usize,
    /// The largest product of nested repetitions.
    repeats: usize,
}

/// A group that is not closed yet.
#[derive(Default)]
struct Group {
    size: Size,
}

/// The last part read, to which a repetition would apply.
#[derive(Clone, Copy)]
enum Last<'p> {
    /// No repeatable part: the start of a group or of an alternative.
    Nothing,
    Part(Size),
    /// A repetition, with the pattern from its operator on.
    Repeated(&'p str),
}

struct Parser<'p> {
    rest: &'p str,
    out: String,
    groups: Vec<Group>,
    last: Last<'p>,
}

impl<'p> Parser<'p> {
    /// Parses the next part of the pattern.
    fn next(&mut self, whole: &str) -> Result<(), String> {
        let Some(letter) = self.rest.chars().next() else { return Ok(()) };
        match letter {
            '(' => self.open(),
            ')' => self.close(whole),
            '|' => {
                self.advance(1);
                self.out.push('|');
                self.last = Last::Nothing;
                Ok(())
            }
            '*' | '+' | '?' => self.repeat(1, usize::from(letter != '?'), letter.to_string()),
            '{' => match repetition(self.rest) {
                Some((length, least, most)) => self.count(length, least, most),
                None => self.literal('{', 1),
            },
            '[' => {
                let (length, class, states) = class(self.rest)?;
                self.advance(length);
                self.push_repeatable(&class, states);
                Ok(())
            }
            '\\' => self.escape(),
            '.' => self.plain(WIDE_STATES),
            '^' | '$' => self.plain(1),
            _ => self.literal(letter, letter.len_utf8()),
        }
    }

    fn advance(&mut self, length: usize) -> &'p str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    /// Appends a repeatable part to the output.
    fn push_repeatable(&mut self, text: &str, states: usize) {
        self.out.push_str(text);
        self.last = Last::Part(Size { states, repeats: 1 });
        self.add(states);
    }

    fn add(&mut self, states: usize) {
        if let Some(group) = self.groups.last_mut() {
            group.size.states = group.size.states.saturating_add(states);
        }
    }

    fn plain(&mut self, states: usize) -> Result<(), String> {
        let text = self.advance(1).to_owned();
        self.push_repeatable(&text, states);
        Ok(())
    }

    fn literal(&mut self, letter: char, length: usize) -> Result<(), String> {
        self.advance(length);
        self.push_repeatable(&quoted(letter), length.max(1));
        Ok(())
    }

    fn open(&mut self) -> Result<(), String> {
        let start = self.rest;
        let mut length = 1;
        if let Some(inner) = start.strip_prefix("(?") {
            length = match inner.strip_prefix("P<").or_else(|| inner.strip_prefix('<')) {
                Some(name) => {
                    let Some(end) = name.find('>') else { return wrong("invalid named capture", start) };
                    let full = start.len() - name.len() + end + 1;
                    if end == 0 || !name[..end].chars().all(|letter| letter == '_' || letter.is_ascii_alphanumeric()) {
                        return wrong("invalid named capture", &start[..full]);
                    }
                    full
                }
                None => flags(start)?,
            };
        }
        let text = self.advance(length);
        // Validation does not need group names, and the `regex` crate restricts them more.
        self.out.push_str(if text.ends_with('>') { "(" } else { text });
        self.last = Last::Nothing;
        if !text.ends_with(')') {
            if self.groups.len() > MAX_NESTED {
                let part = start.char_indices().nth(20).map_or(start, |(at, _)| &start[..at]);
                return wrong("expression nests too deeply", part);
            }
            self.groups.push(Group::default());
        }
        Ok(())
    }

    fn close(&mut self, whole: &str) -> Result<(), String> {
        self.advance(1);
        let inside = match self.groups.pop() {
            Some(group) if !self.groups.is_empty() => group.size,
            _ => return wrong("unexpected )", whole),
        };
        self.out.push(')');
        let size = Size { states: inside.states.saturating_add(2), repeats: inside.repeats.max(1) };
        self.last = Last::Part(size);
        if let Some(group) = self.groups.last_mut() {
            group.size.states = group.size.states.saturating_add(size.states);
            group.size.repeats = group.size.repeats.max(size.repeats);
        }
        Ok(())
    }

    fn count(&mut self, length: usize, least: usize, most: Option<usize>) -> Result<(), String> {
        let part = &self.rest[..length];
        if least > MAX_REPEATS || most.is_some_and(|most| most > MAX_REPEATS || most < least) {
            return wrong("invalid repeat count", part);
        }
        let text = match most {
            Some(most) => format!("{{{least},{most}}}"),
            None => format!("{{{least},}}"),
        };
        self.repeat(length, most.unwrap_or(least), text)
    }

    /// Repeats the last part; its program is copied `times` times.
    fn repeat(&mut self, length: usize, times: usize, text: String) -> Result<(), String> {
        let start = self.rest;
        let mut operator = self.advance(length);
        if self.rest.starts_with('?') {
            operator = &start[..length + 1];
            self.advance(1);
        }
        let size = match self.last {
            Last::Nothing => return wrong("missing argument to repetition operator", operator),
            Last::Repeated(from) => {
                let end = from.len() - self.rest.len();
                return wrong("invalid nested repetition operator", &from[..end]);
            }
            Last::Part(size) => size,
        };
        let repeats = size.repeats.saturating_mul(times.max(1));
        if repeats > MAX_REPEATS {
            return wrong("invalid repeat count", operator);
        }
        self.out.push_str(&text);
        self.add(size.states.saturating_mul(times.max(1) - 1).saturating_add(1));
        if let Some(group) = self.groups.last_mut() {
            group.size.repeats = group.size.repeats.max(repeats);
        }
        self.last = Last::Repeated(start);
        Ok(())
    }

    fn escape(&mut self) -> Result<(), String> {
        if let Some(quote) = self.rest.strip_prefix(r"\Q") {
            let (text, length) = match quote.find(r"\E") {
                Some(end) => (&quote[..end], end + 4),
                None => (quote, quote.len() + 2),
            };
            self.advance(length);
            text.chars().for_each(|letter| self.push_repeatable(&quoted(letter), letter.len_utf8()));
            return Ok(());
        }
        let (length, text, states) = match self.rest.as_bytes().get(1) {
            Some(b'A') => (2, r"\A".to_owned(), 1),
            Some(b'z') => (2, r"\z".to_owned(), 1),
            Some(b'b') => (2, r"(?-u:\b)".to_owned(), 1),
            Some(b'B') => (2, r"(?-u:\B)".to_owned(), 1),
            _ => match group(self.rest)? {
                Some((length, members, states)) => (length, format!("[{members}]"), states),
                None => {
                    let (length, letter) = letter(self.rest)?;
                    (length, quoted(letter), letter.len_utf8())
                }
            },
        };
        self.advance(length);
        self.push_repeatable(&text, states);
        Ok(())
    }
}

/// Escapes a literal character, inside and outside of classes.
fn quoted(letter: char) -> String {
    match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => letter.to_string(),
        _ => format!(r"\x{{{:x}}}", letter as u32),
    }
}

/// The length of `(?flags)` or `(?flags:`.
fn flags(start: &str) -> Result<usize, String> {
    let mut has_flag = false;
    let mut is_negated = false;
    for (index, letter) in start.char_indices().skip(2) {
        let end = index + letter.len_utf8();
        match letter {
            'i' | 'm' | 's' | 'U' => has_flag = true,
            '-' if !is_negated => (is_negated, has_flag) = (true, false),
            ':' | ')' if !is_negated || has_flag => return Ok(end),
            _ => return wrong("invalid or unsupported Perl syntax", &start[..end]),
        }
    }
    wrong("missing closing )", start)
}

/// The length, minimum and maximum of `{2}`, `{2,}` or `{2,3}`; `None` when the brace is a literal.
fn repetition(start: &str) -> Option<(usize, usize, Option<usize>)> {
    let end = start.find('}')?;
    let number = |text: &str| -> Option<usize> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let has_zeros = text.len() > 1 && text.starts_with('0');
        // A count that overflows is too large for Go as well.
        (is_number && !has_zeros).then(|| text.parse().unwrap_or(usize::MAX))
    };
    let inside = &start[1..end];
    let (least, most) = match inside.split_once(',') {
        None => (number(inside)?, Some(number(inside)?)),
        Some((least, "")) => (number(least)?, None),
        Some((least, most)) => (number(least)?, Some(number(most)?)),
    };
    Some((end + 1, least, most))
}

/// Parses `\d`, `\pL` and similar: the length, the members of the class, and its size.
fn group(start: &str) -> Result<Option<(usize, String, usize)>, String> {
    let plain = |members: &str| Ok(Some((2, members.to_owned(), 4)));
    let negated = |members: &str| Ok(Some((2, format!("[^{members}]"), WIDE_STATES)));
    match start.as_bytes().get(1) {
        Some(b'd') => plain(DIGIT),
        Some(b'w') => plain(WORD),
        Some(b's') => plain(SPACE),
        Some(b'D') => negated(DIGIT),
        Some(b'W') => negated(WORD),
        Some(b'S') => negated(SPACE),
        Some(b'p' | b'P') => table(start).map(Some),
        _ => Ok(None),
    }
}

/// Parses `\pL`, `\p{Greek}`, `\p{^Greek}` and the same with `\P`.
fn table(start: &str) -> Result<(usize, String, usize), String> {
    let (name, length) = match start[2..].strip_prefix('{') {
        Some(inside) => match inside.find('}') {
            Some(end) => (&inside[..end], end + 4),
            None => return wrong("invalid character class range", start),
        },
        None => {
            let Some(letter) = start[2..].chars().next() else {
                return wrong("invalid character class range", start);
            };
            (&start[2..2 + letter.len_utf8()], 2 + letter.len_utf8())
        }
    };
    let bare = name.strip_prefix('^').unwrap_or(name);
    let is_negated = start.starts_with(r"\P") != name.starts_with('^');
    let members = match (bare, is_negated) {
        ("Any", false) => r"\x{0}-\x{10ffff}".to_owned(),
        ("Any", true) => r"[^\x{0}-\x{10ffff}]".to_owned(),
        (_, false) => format!(r"\p{{{bare}}}"),
        (_, true) => format!(r"\P{{{bare}}}"),
    };
    let is_name = !bare.is_empty() && bare.chars().all(|letter| letter == '_' || letter.is_ascii_alphabetic());
    if !is_name || regex::Regex::new(&format!("[{members}]")).is_err() {
        return wrong("invalid character class range", &start[..length]);
    }
    Ok((length, members, TABLE_STATES))
}

/// Parses a character escaped with a backslash: the length and the character.
fn letter(start: &str) -> Result<(usize, char), String> {
    let Some(escaped) = start[1..].chars().next() else { return wrong("trailing backslash at end of expression", "") };
    let end = 1 + escaped.len_utf8();
    let invalid = || wrong("invalid escape sequence", &start[..end]);
    let plain = |letter: char| Ok((2, letter));
    match escaped {
        'a' => plain('\x07'),
        'f' => plain('\x0c'),
        'n' => plain('\n'),
        'r' => plain('\r'),
        't' => plain('\t'),
        'v' => plain('\x0b'),
        '0'..='7' => {
            let digits = start[1..].bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
            // A single digit other than zero is a backreference.
            let code = u32::from_str_radix(&start[1..1 + digits], 8).ok().filter(|_| digits > 1 || escaped == '0');
            code.and_then(char::from_u32).map_or_else(invalid, |letter| Ok((1 + digits, letter)))
        }
        'x' => {
            let (digits, length) = match start[2..].strip_prefix('{') {
                Some(inside) => match inside.find('}') {
                    Some(close) => (&inside[..close], close + 4),
                    None => return invalid(),
                },
                None => (start.get(2..4).unwrap_or_default(), 4),
            };
            let is_hex = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            let code = u32::from_str_radix(digits, 16).ok().filter(|_| is_hex);
            code.and_then(char::from_u32).map_or_else(invalid, |letter| Ok((length, letter)))
        }
        _ if escaped.is_ascii() && !escaped.is_ascii_alphanumeric() => plain(escaped),
        _ => invalid(),
    }
}

/// Parses `[...]`: the length, the class, and its size.
fn class(start: &str) -> Result<(usize, String, usize), String> {
    let mut rest = &start[1..];
    let mut out = String::from("[");
    let mut states = 1;
    if let Some(after) = rest.strip_prefix('^') {
        out.push('^');
        rest = after;
        states = WIDE_STATES;
    }
    let mut is_first = true;
    while is_first || !rest.starts_with(']') {
        is_first = false;
        let (length, members, size) = member(rest, start)?;
        out.push_str(&members);
        states += size;
        rest = &rest[length..];
    }
    out.push(']');
    Ok((start.len() - rest.len() + 1, out, states))
}

/// Parses one character, range or named class inside of brackets.
fn member(rest: &str, class: &str) -> Result<(usize, String, usize), String> {
    if let Some(inside) = rest.strip_prefix("[:")
        && let Some(end) = inside.find(":]")
    {
        let name = &inside[..end];
        if !POSIX.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return wrong("invalid character class range", &rest[..end + 4]);
        }
        return Ok((end + 4, rest[..end + 4].to_owned(), WIDE_STATES));
    }
    if rest.starts_with('\\')
        && let Some(found) = group(rest)?
    {
        return Ok(found);
    }
    let one = |text: &str| -> Result<(usize, char), String> {
        match text.chars().next() {
            None => wrong("missing closing ]", class),
            Some('\\') => letter(text),
            Some(letter) => Ok((letter.len_utf8(), letter)),
        }
    };
    let (length, low) = one(rest)?;
    let after = &rest[length..];
    // A dash before the end of the class is a literal.
    let (length, high) = match after.strip_prefix('-').filter(|next| !next.starts_with(']') && !next.is_empty()) {
        Some(next) => {
            let (more, high) = one(next)?;
            (length + 1 + more, high)
        }
        None => (length, low),
    };
    if high < low {
        return wrong("invalid character class range", &rest[..length]);
    }
    let states = if high.is_ascii() { 1 } else { 8 };
    Ok((length, format!("{}-{}", quoted(low), quoted(high)), states))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_go() {
        // Pattern, matching texts, other texts.
        let cases: &[(&str, &[&str], &[&str])] = &[
            (r"^\w+$", &["aZ_9"], &["é", "a b"]),
            (r"^\W$", &["é", "-"], &["a"]),
            (r"^\d$", &["7"], &["٣"]),
            (r"^\D$", &["٣"], &["7"]),
            (r"^\s$", &[" ", "\t", "\x0c"], &["\u{a0}", "\x0b"]),
            (r"^[\w.-]+$", &["a.b-c"], &["é"]),
            (r"^[^\s]+$", &["\u{a0}"], &["a b"]),
            (r"^[\D]+$", &["٣"], &["1"]),
            (r"\bé", &["aé"], &["é"]),
            (r"a\B", &["ab"], &["a", "aé"]),
            ("^a{$", &["a{"], &["a"]),
            ("^a{,2}$", &["a{,2}"], &["aa"]),
            ("^a{1,x}$", &["a{1,x}"], &["a"]),
            ("^{a}$", &["{a}"], &["a"]),
            ("^a{2}$", &["aa"], &["a", "aaa"]),
            ("^a{2,}?$", &["aa", "aaa"], &["a"]),
            ("^(?:ab){1,2}$", &["ab", "abab"], &["ababab"]),
            (r"^\Qa.b\E*$", &["a.b", "a."], &["axb"]),
            (r"^\Q[(", &["[("], &["("]),
            ("^[a&&b]$", &["a", "&", "b"], &["c"]),
            ("^[+--a]$", &["+", ",", "-", "a"], &["/"]),
            ("^[[a]$", &["[", "a"], &["b"]),
            ("^[]a]$", &["]", "a"], &["b"]),
            ("^[^]a]$", &["b"], &["]", "a"]),
            ("^[a-]$", &["a", "-"], &["b"]),
            ("^[a-c-e]$", &["b", "-", "e"], &["d"]),
            ("^[[:alpha:][:^digit:]]$", &["a", "é"], &["1"]),
            (r"^[\]\\\-]+$", &[r"]\-"], &["a"]),
            (r"^\p{Greek}\pL\p{^Lu}\P{Lu}$", &["αaaa"], &["aaaa", "αaAa"]),
            (r"^\x41\x{42}\103\0$", &["ABC\0"], &["ABC"]),
            (r"^\<\>\_\-\/\ $", &["<>_-/ "], &["a"]),
            (r"^a.c$", &["aéc"], &["a\nc"]),
            (r"(?s)^a.c\z", &["a\nc"], &["a\nc\n"]),
            ("(?i)^ab(?-i:C)$", &["ABC", "abC"], &["abc"]),
            ("^(?P<x>a)(?<y>b)(c)$", &["abc"], &["ab"]),
            ("^#a b$", &["#a b"], &["#ab"]),
            ("^é~$", &["é~"], &["e~"]),
        ];
        for (pattern, fits, misfits) in cases {
            let translated = translate(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            let regex = Regex::new(&translated.text).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            fits.iter().for_each(|text| assert!(regex.is_match(text), "{pattern} {text:?}"));
            misfits.iter().for_each(|text| assert!(!regex.is_match(text), "{pattern} {text:?}"));
        }
    }

    #[test]
    fn pattern_errors_have_the_wording_of_go() {
        let cases = [
            ("[", "missing closing ]: `[`"),
            ("[a", "missing closing ]: `[a`"),
            ("(a", "missing closing ): `(a`"),
            ("a)", "unexpected ): `a)`"),
            ("*a", "missing argument to repetition operator: `*`"),
            ("a|+", "missing argument to repetition operator: `+`"),
            ("{2}", "missing argument to repetition operator: `{2}`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a*+", "invalid nested repetition operator: `*+`"),
            ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("a{3,2}", "invalid repeat count: `{3,2}`"),
            ("(a{100}){11}", "invalid repeat count: `{11}`"),
            (r"\C", r"invalid escape sequence: `\C`"),
            (r"\Z", r"invalid escape sequence: `\Z`"),
            (r"\u0041", r"invalid escape sequence: `\u`"),
            (r"(a)\1", r"invalid escape sequence: `\1`"),
            (r"[\b]", r"invalid escape sequence: `\b`"),
            (r"\", "trailing backslash at end of expression: ``"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?!a)", "invalid or unsupported Perl syntax: `(?!`"),
            ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
            ("(?<=a)", "invalid named capture: `(?<=a)`"),
            ("[z-a]", "invalid character class range: `z-a`"),
            ("[[:nope:]]", "invalid character class range: `[:nope:]`"),
            (r"\p{Nope}", r"invalid character class range: `\p{Nope}`"),
        ];
        for (pattern, expected) in cases {
            assert_eq!(translate(pattern), Err(format!("error parsing regexp: {expected}")), "{pattern}");
        }
        assert!(translate(&"(".repeat(5000)).is_err_and(|error| error.contains("nests too deeply")));
    }

    #[test]
    fn size_of_a_program_is_estimated_before_compilation() {
        let states = |pattern: &str| translate(pattern).unwrap().states;
        assert!(states(r"^(\w{100})$") < 1000);
        assert!(states(r"\pL{1000}") > MAX_STATES);
        assert!(states(r"(\pL{30}){30}") > MAX_STATES);
        assert!(states("((((a?){9}){9}){9})") < 10_000);
        assert!(states(r"[^\pL\pN]{100}") > MAX_STATES);
        assert!(compile(r"\pL{1000}").is_err() && compile("^a$").is_ok());
    }
}
