//! Splits an expression into tokens, with the errors of the lexer that ANTLR generates for cel-go.
//!
//! Never: decides where a token may stand. Start reading at [`tokens`].

use super::source::Issue;

/// The kinds of tokens, in ANTLR's order, which is the order of the names in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// The end of the text.
    End,
    /// `==`, `!=`, `in`, `<`, `<=`, `>=`, `>`
    Relation,
    /// `&&`
    And,
    /// `||`
    Or,
    /// `[`
    OpenBracket,
    /// `]`
    CloseBracket,
    /// `{`
    OpenBrace,
    /// `}`
    CloseBrace,
    /// `(`
    OpenParen,
    /// `)`
    CloseParen,
    /// `.`
    Dot,
    /// `,`
    Comma,
    /// `-`
    Minus,
    /// `!`
    Not,
    /// `?`
    Question,
    /// `:`
    Colon,
    /// `+`
    Plus,
    /// `*`, `/`, `%`
    Product,
    /// `true`
    True,
    /// `false`
    False,
    /// `null`
    Null,
    /// `1.5`
    Float,
    /// `1`
    Int,
    /// `1u`
    Uint,
    /// `'a'`
    String,
    /// `b'a'`
    Bytes,
    /// `a`
    Ident,
    /// A name between backticks.
    QuotedIdent,
}

impl TokenKind {
    /// The bit of the kind in a set of kinds.
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// The names of the kinds in messages.
pub const NAMES: [&str; 28] = [
    "<EOF>",
    "relation",
    "'&&'",
    "'||'",
    "'['",
    "']'",
    "'{'",
    "'}'",
    "'('",
    "')'",
    "'.'",
    "','",
    "'-'",
    "'!'",
    "'?'",
    "':'",
    "'+'",
    "product",
    "'true'",
    "'false'",
    "'null'",
    "NUM_FLOAT",
    "NUM_INT",
    "NUM_UINT",
    "STRING",
    "BYTES",
    "IDENTIFIER",
    "ESC_IDENTIFIER",
];

/// A token.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    /// Its kind.
    pub kind: TokenKind,
    /// The number of its first letter.
    pub start: usize,
    /// The number of the letter after it.
    pub end: usize,
}

/// Splits a text into tokens; the last one is the end.
pub fn tokens(text: &[char], issues: &mut Vec<Issue>) -> Vec<Token> {
    let mut all = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let letter = text[at];
        if matches!(letter, ' ' | '\t' | '\r' | '\n' | '\u{c}') {
            at += 1;
            continue;
        }
        if text[at..].starts_with(&['/', '/']) {
            at += text[at..].iter().position(|letter| *letter == '\n').unwrap_or(text.len() - at);
            continue;
        }
        match token(&text[at..]) {
            Ok((kind, length)) => {
                all.push(Token { kind, start: at, end: at + length });
                at += length;
            }
            Err(read) => {
                let end = (at + read + 1).min(text.len());
                let text: String = text[at..end].iter().collect();
                let text = text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t");
                issues.push(Issue {
                    position: Some(at),
                    message: format!("Syntax error: token recognition error at: '{text}'"),
                });
                at = end;
            }
        }
    }
    all.push(Token { kind: TokenKind::End, start: text.len(), end: text.len() });
    all
}

/// Returns the first token and its length, or the number of letters that could have been the start of one.
fn token(rest: &[char]) -> Result<(TokenKind, usize), usize> {
    use TokenKind as K;
    let next = rest.get(1).copied().unwrap_or('\0');
    let pair = |second: char, kind: TokenKind| if next == second { Ok((kind, 2)) } else { Err(1) };
    let one = match rest[0] {
        '=' => return pair('=', K::Relation),
        '&' => return pair('&', K::And),
        '|' => return pair('|', K::Or),
        '!' if next == '=' => return Ok((K::Relation, 2)),
        '<' | '>' => return Ok((K::Relation, if next == '=' { 2 } else { 1 })),
        '0'..='9' => return Ok(number(rest)),
        '.' if next.is_ascii_digit() => return Ok(number(rest)),
        '"' | '\'' => return string(rest, 0, false).map(|length| (K::String, length)),
        '`' => return quoted(rest),
        'a'..='z' | 'A'..='Z' | '_' => return word(rest),
        '[' => K::OpenBracket,
        ']' => K::CloseBracket,
        '{' => K::OpenBrace,
        '}' => K::CloseBrace,
        '(' => K::OpenParen,
        ')' => K::CloseParen,
        '.' => K::Dot,
        ',' => K::Comma,
        '-' => K::Minus,
        '!' => K::Not,
        '?' => K::Question,
        ':' => K::Colon,
        '+' => K::Plus,
        '*' | '/' | '%' => K::Product,
        _ => return Err(0),
    };
    Ok((one, 1))
}

fn quoted(rest: &[char]) -> Result<(TokenKind, usize), usize> {
    let is_part = |letter: &&char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.' | '-' | '/' | ' ');
    let length = rest[1..].iter().take_while(is_part).count() + 1;
    let ends = length > 1 && rest.get(length) == Some(&'`');
    if ends { Ok((TokenKind::QuotedIdent, length + 1)) } else { Err(length) }
}

fn word(rest: &[char]) -> Result<(TokenKind, usize), usize> {
    let length = rest.iter().take_while(|letter| letter.is_ascii_alphanumeric() || **letter == '_').count();
    let is_quote = |at: usize| matches!(rest.get(at), Some('"' | '\''));
    // A prefix of a string only counts when the string ends: otherwise it is a name.
    let prefixed = match rest[0] {
        'r' | 'R' if length == 1 && is_quote(1) => string(rest, 1, true).map(|length| (TokenKind::String, length)).ok(),
        'b' | 'B' if length == 1 && is_quote(1) => string(rest, 1, false).map(|length| (TokenKind::Bytes, length)).ok(),
        'b' | 'B' if length == 2 && matches!(rest[1], 'r' | 'R') && is_quote(2) => {
            string(rest, 2, true).map(|length| (TokenKind::Bytes, length)).ok()
        }
        _ => None,
    };
    if let Some(token) = prefixed {
        return Ok(token);
    }
    let is_word = |word: &str| rest[..length].iter().copied().eq(word.chars());
    let words = [
        ("in", TokenKind::Relation),
        ("true", TokenKind::True),
        ("false", TokenKind::False),
        ("null", TokenKind::Null),
    ];
    let kind = words.into_iter().find(|(word, _)| is_word(word)).map_or(TokenKind::Ident, |(_, kind)| kind);
    Ok((kind, length))
}

fn number(rest: &[char]) -> (TokenKind, usize) {
    let digits = |from: usize| rest[from.min(rest.len())..].iter().take_while(|one| one.is_ascii_digit()).count();
    let with_suffix = |length: usize| match rest.get(length) {
        Some('u' | 'U') => (TokenKind::Uint, length + 1),
        _ => (TokenKind::Int, length),
    };
    if rest[0] == '0' && rest.get(1) == Some(&'x') {
        let length = rest[2..].iter().take_while(|one| one.is_ascii_hexdigit()).count();
        if length > 0 {
            return with_suffix(2 + length);
        }
    }
    let whole = digits(0);
    let mut end = whole;
    if rest.get(end) == Some(&'.') && digits(end + 1) > 0 {
        end += 1 + digits(end + 1);
    }
    if matches!(rest.get(end), Some('e' | 'E')) {
        let sign = usize::from(matches!(rest.get(end + 1), Some('+' | '-')));
        let exponent = digits(end + 1 + sign);
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    if end == whole { with_suffix(whole) } else { (TokenKind::Float, end) }
}

/// Returns the length of a string that opens at `open`, or the number of letters before the first wrong one.
fn string(rest: &[char], open: usize, raw: bool) -> Result<usize, usize> {
    let quote = rest[open];
    if rest[open..].starts_with(&[quote; 3]) {
        let mut at = open + 3;
        while at < rest.len() {
            if rest[at..].starts_with(&[quote; 3]) {
                return Ok(at + 3);
            }
            at += if raw { 1 } else { letter_length(rest, at)? };
        }
        // The first two quotes are an empty string.
        return Ok(open + 2);
    }
    let mut at = open + 1;
    while at < rest.len() {
        match rest[at] {
            letter if letter == quote => return Ok(at + 1),
            '\n' | '\r' => return Err(at),
            _ => at += if raw { 1 } else { letter_length(rest, at)? },
        }
    }
    Err(rest.len())
}

/// Returns the length of a letter or escape sequence, or the number of letters before the first wrong one.
fn letter_length(rest: &[char], at: usize) -> Result<usize, usize> {
    if rest[at] != '\\' {
        return Ok(1);
    }
    let Some(letter) = rest.get(at + 1) else { return Err(at + 1) };
    let hex = |count: usize| {
        let digits = rest[at + 2..].iter().take(count).take_while(|one| one.is_ascii_hexdigit()).count();
        if digits == count { Ok(2 + count) } else { Err(at + 2 + digits) }
    };
    match letter {
        'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`' => Ok(2),
        'x' | 'X' => hex(2),
        'u' => hex(4),
        'U' => hex(8),
        '0'..='3' => {
            let digits = rest[at + 2..].iter().take(2).take_while(|one| matches!(one, '0'..='7')).count();
            if digits == 2 { Ok(4) } else { Err(at + 2 + digits) }
        }
        _ => Err(at + 1),
    }
}

/// Returns the content of a string token, as bytes for a bytes token.
pub fn unescape(token: &[char], bytes: bool) -> Result<Vec<u8>, &'static str> {
    let raw = token.iter().take_while(|letter| !matches!(letter, '"' | '\'')).any(|letter| matches!(letter, 'r' | 'R'));
    let open = token.iter().position(|letter| matches!(letter, '"' | '\'')).unwrap_or_default();
    let quotes = if token[open..].starts_with(&[token[open]; 3]) && token.len() >= open + 6 { 3 } else { 1 };
    let inner = &token[open + quotes..token.len() - quotes];
    let mut out = Vec::with_capacity(inner.len());
    let mut at = 0;
    let mut letter_buffer = [0; 4];
    while at < inner.len() {
        if raw || inner[at] != '\\' {
            out.extend_from_slice(inner[at].encode_utf8(&mut letter_buffer).as_bytes());
            at += 1;
            continue;
        }
        let digits = |from: usize, count: usize, radix: u32| {
            let text: String = inner[at + from..].iter().take(count).collect();
            u32::from_str_radix(&text, radix).unwrap_or_default()
        };
        let letter = inner.get(at + 1).copied().unwrap_or('\\');
        let (code, length) = match letter {
            'x' | 'X' => (digits(2, 2, 16), 4),
            'u' | 'U' if bytes => return Err("unable to unescape string"),
            'u' => (digits(2, 4, 16), 6),
            'U' => (digits(2, 8, 16), 10),
            '0'..='3' => (digits(1, 3, 8), 4),
            'a' => (7, 2),
            'b' => (8, 2),
            'f' => (12, 2),
            'n' => (10, 2),
            'r' => (13, 2),
            't' => (9, 2),
            'v' => (11, 2),
            other => (other as u32, 2),
        };
        if bytes {
            out.push(code as u8);
        } else {
            let letter = char::from_u32(code).ok_or("invalid unicode code point")?;
            out.extend_from_slice(letter.encode_utf8(&mut letter_buffer).as_bytes());
        }
        at += length;
    }
    Ok(out)
}
