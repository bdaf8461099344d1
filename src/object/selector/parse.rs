//! The text grammar of label selectors, with the errors of apimachinery's `labels.Parse`.

use super::super::label;
use super::{Requirement, SelectorError, SelectorOp};

type Parsed<T> = Result<T, SelectorError>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Word,
    Operator(SelectorOp),
    Not,
    Open,
    Close,
    Comma,
    End,
    Unknown,
}

const SYMBOLS: [(&str, Token); 9] = [
    ("=", Token::Operator(SelectorOp::Equals)),
    ("==", Token::Operator(SelectorOp::DoubleEquals)),
    ("!=", Token::Operator(SelectorOp::NotEquals)),
    (">", Token::Operator(SelectorOp::GreaterThan)),
    ("<", Token::Operator(SelectorOp::LessThan)),
    ("!", Token::Not),
    ("(", Token::Open),
    (")", Token::Close),
    (",", Token::Comma),
];

pub(super) fn parse(text: &str) -> Parsed<Vec<Requirement>> {
    let mut parser = SelectorParser { tokens: tokens(text), at: 0 };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            (Token::Word | Token::Not, _) => requirements.push(
                parser.requirement().map_err(|error| SelectorError(format!("unable to parse requirement: {error}")))?,
            ),
            (Token::End, _) => return Ok(requirements),
            (_, found) => return fail(format!("found '{found}', expected: !, identifier, or 'end of string'")),
        }
        match parser.next_token() {
            (Token::End, _) => return Ok(requirements),
            (Token::Comma, _) => match parser.peek() {
                (Token::Word | Token::Not, _) => {}
                (_, found) => return fail(format!("found '{found}', expected: identifier after ','")),
            },
            (_, found) => return fail(format!("found '{found}', expected: ',' or 'end of string'")),
        }
    }
}

fn fail<T>(message: String) -> Parsed<T> {
    Err(SelectorError(message))
}

fn tokens(text: &str) -> Vec<(Token, &str)> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        let (token, length) = if rest.starts_with(is_symbol) {
            symbol(rest)
        } else {
            (Token::Word, rest.find(|c| is_symbol(c) || is_space(c)).unwrap_or(rest.len()))
        };
        tokens.push((token, &rest[..length]));
        rest = rest[length..].trim_start_matches(is_space);
    }
    tokens
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_symbol(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

/// The longest symbol that the text starts with.
fn symbol(text: &str) -> (Token, usize) {
    let found = SYMBOLS.iter().filter(|(symbol, _)| text.starts_with(symbol)).max_by_key(|(symbol, _)| symbol.len());
    found.map_or((Token::Unknown, 1), |(symbol, token)| (*token, symbol.len()))
}

struct SelectorParser<'a> {
    tokens: Vec<(Token, &'a str)>,
    at: usize,
}

impl<'a> SelectorParser<'a> {
    fn peek(&self) -> (Token, &'a str) {
        self.tokens.get(self.at).copied().unwrap_or((Token::End, ""))
    }

    fn next_token(&mut self) -> (Token, &'a str) {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Parsed<Requirement> {
        let absent = self.peek().0 == Token::Not;
        if absent {
            self.next_token();
        }
        let (token, key) = self.next_token();
        if token != Token::Word {
            return fail(format!("found '{key}', expected: identifier"));
        }
        let problems = label::key_problems(key);
        if !problems.is_empty() {
            return fail(format!("<nil>: Invalid value: {key:?}: {}", problems.join("; ")));
        }
        match self.peek().0 {
            _ if absent => Requirement::new(key, SelectorOp::DoesNotExist, Vec::new()),
            Token::End | Token::Comma => Requirement::new(key, SelectorOp::Exists, Vec::new()),
            _ => {
                let op = self.operator()?;
                let values =
                    if matches!(op, SelectorOp::In | SelectorOp::NotIn) { self.values()? } else { vec![self.value()?] };
                Requirement::new(key, op, values)
            }
        }
    }

    fn operator(&mut self) -> Parsed<SelectorOp> {
        match self.next_token() {
            (Token::Operator(op), _) => Ok(op),
            (Token::Word, "in") => Ok(SelectorOp::In),
            (Token::Word, "notin") => Ok(SelectorOp::NotIn),
            (_, found) => fail(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt")),
        }
    }

    fn value(&mut self) -> Parsed<String> {
        match self.peek() {
            (Token::End | Token::Comma, _) => Ok(String::new()),
            (Token::Word, word) => {
                self.next_token();
                Ok(word.into())
            }
            (_, found) => fail(format!("found '{found}', expected: identifier")),
        }
    }

    /// Parses the parenthesised list after `in`; an empty item is the empty value.
    fn values(&mut self) -> Parsed<Vec<String>> {
        let (token, found) = self.next_token();
        if token != Token::Open {
            return fail(format!("found '{found}' expected: '('"));
        }
        match self.peek() {
            (Token::Close, _) => {
                self.next_token();
                return Ok(Vec::new());
            }
            (Token::Word | Token::Comma, _) => {}
            (_, found) => return fail(format!("found '{found}', expected: ',', ')' or identifier")),
        }
        let mut values = Vec::new();
        loop {
            match self.peek() {
                (Token::Word, word) => {
                    self.next_token();
                    values.push(word.to_owned());
                }
                (Token::Comma | Token::Close, _) => values.push(String::new()),
                (_, found) => return fail(format!("found '{found}', expected: ',', or identifier")),
            }
            match self.next_token() {
                (Token::Comma, _) => {}
                (Token::Close, _) => return Ok(values),
                (_, found) => return fail(format!("found '{found}', expected: ',' or ')'")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_selector_errors_have_kubernetes_wording() {
        for (text, wanted) in [
            ("app in", "unable to parse requirement: found '' expected: '('"),
            ("a=b=c", "found '=', expected: ',' or 'end of string'"),
            ("a=b,", "found '', expected: identifier after ','"),
            (",a", "found ',', expected: !, identifier, or 'end of string'"),
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            ("a=(", "unable to parse requirement: found '(', expected: identifier"),
            (
                "a in ()",
                "unable to parse requirement: values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
            ),
            (
                "a>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), wanted, "{text}");
        }
        let error = parse("_a=b").unwrap_err().to_string();
        assert!(
            error.starts_with("unable to parse requirement: <nil>: Invalid value: \"_a\": name part must"),
            "{error}"
        );
        let error = parse("a=-b").unwrap_err().to_string();
        assert!(
            error.starts_with("unable to parse requirement: values[0][a]: Invalid value: \"-b\": a valid"),
            "{error}"
        );
    }

    #[test]
    fn operator_words_can_be_keys_and_values() {
        let parsed = parse("in in (in,notin),notin=in").unwrap();
        assert_eq!(parsed[0].values, ["in", "notin"]);
        assert_eq!((parsed[1].key.as_str(), parsed[1].op), ("notin", SelectorOp::Equals));
    }
}
