//! Parses a template's text to nodes.

use super::{NamedTemplates, Operand, Pipeline, TemplateNode, TemplatePosition};
use serde_json::Value;

/// Functions that a template may call.
pub const FUNCTIONS: [&str; 21] = [
    "and",
    "base64decode",
    "call",
    "eq",
    "exists",
    "ge",
    "gt",
    "html",
    "index",
    "js",
    "le",
    "len",
    "lt",
    "ne",
    "not",
    "or",
    "print",
    "printf",
    "println",
    "slice",
    "urlquery",
];

/// Maximum nesting of blocks and parentheses, far more than templates need.
const MAX_DEPTH: usize = 64;

/// The nodes of a template, and of those that it defines.
pub fn template(text: &str) -> Result<(Vec<TemplateNode>, NamedTemplates), String> {
    let mut parser = TemplateParser { pieces: pieces(text)?, at: 0, depth: 0, ranges: 0, named: NamedTemplates::new() };
    let (nodes, end) = parser.nodes()?;
    match end {
        None => Ok((nodes, parser.named)),
        Some((word, line)) => Err(format!("template: output:{line}: unexpected {{{{{word}}}}}")),
    }
}

enum Piece {
    Text(String),
    /// The content of an action, its line, and the column of its first character.
    Action(String, usize, usize),
}

/// Splits text and actions, trims blanks at `{{-` and `-}}`, and drops comments.
fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut at = 0;
    let mut trim = false;
    while let Some(open) = text[at..].find("{{").map(|found| found + at) {
        let inside = open + 2;
        let line = text[..open].matches('\n').count() + 1;
        let end =
            action_end(&text[inside..]).ok_or_else(|| format!("template: output:{line}: unclosed action"))? + inside;
        let mut inner = &text[inside..end];
        let mut before = &text[at..open];
        if trim {
            before = before.trim_start();
        }
        let skipped = match inner.strip_prefix('-').filter(|rest| rest.starts_with([' ', '\t', '\n', '\r'])) {
            Some(rest) => {
                before = before.trim_end();
                inner = rest;
                1
            }
            None => 0,
        };
        pieces.push(Piece::Text(before.to_owned()));
        let tail = inner.strip_suffix('-').filter(|rest| rest.ends_with([' ', '\t', '\n', '\r']));
        trim = tail.is_some();
        inner = tail.unwrap_or(inner);
        if !inner.trim().starts_with("/*") {
            let line_start = text[..open].rfind('\n').map_or(0, |newline| newline + 1);
            pieces.push(Piece::Action(inner.to_owned(), line, inside + skipped - line_start));
        }
        at = end + 2;
    }
    pieces.push(Piece::Text(if trim { text[at..].trim_start() } else { &text[at..] }.to_owned()));
    Ok(pieces)
}

/// Returns the position of the closing braces; quoted text and comments may contain some.
fn action_end(text: &str) -> Option<usize> {
    if text.trim_start_matches('-').trim_start().starts_with("/*") {
        let end = text.find("*/")?;
        return Some(end + text[end..].find("}}")?);
    }
    let mut quote = None;
    let mut escaped = false;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some('"'), '\\') if !escaped => {
                escaped = true;
                continue;
            }
            (Some(open), letter) if letter == open && !escaped => quote = None,
            (None, '"' | '`') => quote = Some(letter),
            (None, '}') if text[at..].starts_with("}}") => return Some(at),
            _ => {}
        }
        escaped = false;
    }
    None
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Field(String),
    Variable(String),
    Literal(Value),
    Mark(&'static str),
}

struct TemplateParser {
    pieces: Vec<Piece>,
    at: usize,
    depth: usize,
    /// Number of `range` blocks around the next node.
    ranges: usize,
    named: NamedTemplates,
}

/// The word that ended a block, `end` or `else if .x`, and its line.
type BlockEnd = Option<(String, usize)>;

impl TemplateParser {
    /// Parses nodes up to the end of the text or of the block.
    fn nodes(&mut self) -> Result<(Vec<TemplateNode>, BlockEnd), String> {
        let mut nodes = Vec::new();
        while let Some(piece) = self.pieces.get(self.at) {
            self.at += 1;
            let (inner, line, column) = match piece {
                Piece::Text(text) => {
                    nodes.push(TemplateNode::Text(text.clone()));
                    continue;
                }
                Piece::Action(inner, line, column) => (inner.clone(), *line, *column),
            };
            let word = first_word(&inner);
            let rest =
                || inner.split_once(word).map(|(before, rest)| (rest.to_owned(), column + before.len() + word.len()));
            match word {
                "end" | "else" => return Ok((nodes, Some((inner.trim().to_owned(), line)))),
                "break" | "continue" if self.ranges == 0 => {
                    return Err(format!("template: output:{line}: {{{{{word}}}}} outside {{{{range}}}}"));
                }
                "break" => nodes.push(TemplateNode::Break),
                "continue" => nodes.push(TemplateNode::Continue),
                "if" | "with" | "range" => {
                    let (rest, column) = rest().unwrap_or_default();
                    nodes.push(self.block(word, &rest, line, column)?);
                }
                "define" | "template" | "block" => {
                    let (head, column) = rest().unwrap_or_default();
                    nodes.extend(self.named_template(word, &head, line, column)?);
                }
                _ => nodes.push(TemplateNode::Output(pipe(&inner, line, column)?)),
            }
        }
        Ok((nodes, None))
    }

    /// Parses `define`, `template` or `block`; returns the node that a template's output takes the place of.
    fn named_template(
        &mut self,
        word: &str,
        head: &str,
        line: usize,
        column: usize,
    ) -> Result<Option<TemplateNode>, String> {
        let fail = |why: String| Err(format!("template: output:{line}: {why}"));
        if word == "define" && self.depth > 0 {
            return fail("unexpected <define> in command".into());
        }
        let Some((name, pipe)) = name_and_pipe(head, line, column)? else {
            let found = if head.trim().is_empty() { "\"}}\"" } else { head.trim() };
            return fail(format!("unexpected {found} in {word} clause"));
        };
        match (word, &pipe) {
            ("define", Some(_)) => return fail(format!("unexpected {} in define clause", head.trim())),
            ("block", None) => return fail("missing value for block clause".into()),
            _ => {}
        }
        if word != "template" {
            self.define(&name, word, line)?;
        }
        Ok((word != "define").then_some(TemplateNode::Template(name, pipe)))
    }

    /// Parses the body of a `define` or `block`. One with nothing but blanks does not replace another of its name.
    fn define(&mut self, name: &str, word: &str, line: usize) -> Result<(), String> {
        self.enter(line)?;
        let (body, end) = self.nodes()?;
        self.depth -= 1;
        let line = match end {
            None => return Err(format!("template: output:{line}: unexpected EOF")),
            Some((end, line)) if end == "end" => line,
            Some((end, line)) => {
                return Err(format!("template: output:{line}: unexpected {{{{{end}}}}} in {word} clause"));
            }
        };
        let is_empty = |nodes: &Vec<TemplateNode>| {
            nodes.iter().all(|node| matches!(node, TemplateNode::Text(text) if text.trim().is_empty()))
        };
        match self.named.get(name).filter(|known| !is_empty(known)) {
            None => _ = self.named.insert(name.to_owned(), body),
            Some(_) if is_empty(&body) => {}
            Some(_) => {
                return Err(format!("template: output:{line}: template: multiple definition of template {name:?}"));
            }
        }
        Ok(())
    }

    /// Enters a block.
    fn enter(&mut self, line: usize) -> Result<(), String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("template: output:{line}: blocks are nested too deeply"));
        }
        Ok(())
    }

    fn block(&mut self, word: &str, head: &str, line: usize, column: usize) -> Result<TemplateNode, String> {
        self.enter(line)?;
        let head = pipe(head, line, column)?;
        let is_range = usize::from(word == "range");
        self.ranges += is_range;
        let (body, end) = self.nodes()?;
        self.ranges -= is_range;
        let (end, end_line) = end.ok_or_else(|| format!("template: output:{line}: unexpected EOF"))?;
        let otherwise = match end.strip_prefix("else").map(str::trim) {
            None => Vec::new(),
            Some("") => match self.nodes()? {
                (nodes, Some((end, _))) if end == "end" => nodes,
                _ => return Err(format!("template: output:{end_line}: expected end")),
            },
            Some(chained) => {
                let inner = first_word(chained);
                check_chained(word, inner).map_err(|why| format!("template: output:{end_line}: {why}"))?;
                vec![self.block(inner, chained[inner.len()..].trim_start(), end_line, 0)?]
            }
        };
        self.depth -= 1;
        Ok(match word {
            "if" => TemplateNode::If(head, body, otherwise),
            "with" => TemplateNode::With(head, body, otherwise),
            _ => TemplateNode::Range(head, body, otherwise),
        })
    }
}

/// Returns the keyword or name that an action begins with. A field or a parenthesis may follow it without a blank: `range.items`.
fn first_word(action: &str) -> &str {
    let action = action.trim_start();
    &action[..name_end(action)]
}

/// Returns the length of the letters, digits and underscores that a text begins with.
fn name_end(text: &str) -> usize {
    text.find(|letter: char| letter != '_' && !letter.is_alphanumeric()).unwrap_or(text.len())
}

/// Checks the word after an `else`: only `else if` after `if` and `else with` after `with` begin a block.
fn check_chained(block: &str, word: &str) -> Result<(), String> {
    match word {
        "if" | "with" if word == block => Ok(()),
        "if" | "with" => Err(format!("unexpected <{word}> in input")),
        "range" | "define" | "template" | "block" | "end" | "else" | "break" | "continue" => {
            Err(format!("unexpected <{word}> in else"))
        }
        _ => Err(format!("unexpected {word:?} in else")),
    }
}

fn pipe(text: &str, line: usize, column: usize) -> Result<Pipeline, String> {
    let tokens = tokens(text).map_err(|why| format!("template: output:{line}: {why}"))?;
    TokenReader { tokens: &tokens, at: 0, line, column, depth: 0 }.last_pipe()
}

/// Parses a quoted name and the pipeline after it, if there is one; `None` when it does not begin with a name.
fn name_and_pipe(text: &str, line: usize, column: usize) -> Result<Option<(String, Option<Pipeline>)>, String> {
    let tokens = tokens(text).map_err(|why| format!("template: output:{line}: {why}"))?;
    let mut reader = TokenReader { tokens: &tokens, at: 0, line, column, depth: 0 };
    reader.blanks();
    let Some((Token::Literal(Value::String(name)), _)) = reader.next_token() else { return Ok(None) };
    reader.blanks();
    let pipe = if reader.peek().is_some() { Some(reader.last_pipe()?) } else { None };
    Ok(Some((name.clone(), pipe)))
}

/// The tokens of an action with their positions.
fn tokens(text: &str) -> Result<Vec<(Token, usize)>, String> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(letter) = text[at..].chars().next() {
        let rest = &text[at..];
        let (token, length) = match letter {
            ' ' | '\t' | '\r' | '\n' => (Token::Mark(" "), 1),
            '|' => (Token::Mark("|"), 1),
            '(' => (Token::Mark("("), 1),
            ')' => (Token::Mark(")"), 1),
            ',' => (Token::Mark(","), 1),
            ':' if rest.starts_with(":=") => (Token::Mark(":="), 2),
            '=' => (Token::Mark("="), 1),
            '"' | '`' => quoted(rest)?,
            '$' => {
                let length = 1 + name_end(&rest[1..]);
                (Token::Variable(rest[..length].to_owned()), length)
            }
            '.' => match name_end(&rest[1..]) {
                0 => (Token::Mark("."), 1),
                length => (Token::Field(rest[1..=length].to_owned()), length + 1),
            },
            '-' | '+' | '0'..='9' => number(rest)?,
            letter if letter == '_' || letter.is_alphabetic() => {
                let length = name_end(rest);
                (Token::Word(rest[..length].to_owned()), length)
            }
            other => return Err(format!("unexpected U+{:04X} '{other}' in command", other as u32)),
        };
        tokens.push((token, at));
        at += length;
    }
    Ok(tokens)
}

fn quoted(text: &str) -> Result<(Token, usize), String> {
    if let Some(rest) = text.strip_prefix('`') {
        let end = rest.find('`').ok_or("unterminated raw quoted string")?;
        return Ok((Token::Literal(rest[..end].into()), end + 2));
    }
    let mut out = String::new();
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Ok((Token::Literal(out.into()), at + 1)),
            '\\' => out.push(match letters.next() {
                Some((_, 'n')) => '\n',
                Some((_, 't')) => '\t',
                Some((_, 'r')) => '\r',
                Some((_, same @ ('\\' | '"' | '\''))) => same,
                _ => return Err("invalid syntax".into()),
            }),
            other => out.push(other),
        }
    }
    Err("unterminated quoted string".into())
}

fn number(text: &str) -> Result<(Token, usize), String> {
    let digits = |letter: char| !letter.is_ascii_alphanumeric() && letter != '.';
    let length = text[1..].find(digits).map_or(text.len(), |end| end + 1);
    let literal = &text[..length];
    let value = match (literal.parse::<i64>(), literal.parse::<f64>()) {
        (Ok(whole), _) => Value::from(whole),
        (_, Ok(float)) if float.is_finite() => Value::from(float),
        _ => return Err(format!("bad number syntax: {literal:?}")),
    };
    Ok((Token::Literal(value), length))
}

struct TokenReader<'a> {
    tokens: &'a [(Token, usize)],
    at: usize,
    line: usize,
    column: usize,
    depth: usize,
}

impl<'a> TokenReader<'a> {
    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    fn next_token(&mut self) -> Option<(&'a Token, usize)> {
        let (token, at) = self.tokens.get(self.at)?;
        self.at += 1;
        Some((token, *at))
    }

    fn skip(&mut self, mark: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Mark(known)) if *known == mark);
        self.at += usize::from(found);
        found
    }

    fn blanks(&mut self) {
        while self.skip(" ") {}
    }

    /// Parses a pipeline up to the end of the action.
    fn last_pipe(&mut self) -> Result<Pipeline, String> {
        let line = self.line;
        let fail = |why: String| format!("template: output:{line}: {why}");
        let pipe = self.pipe().map_err(fail)?;
        match self.next_token() {
            None => Ok(pipe),
            Some((token, _)) => Err(fail(format!("unexpected {token:?} in command"))),
        }
    }

    fn pipe(&mut self) -> Result<Pipeline, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("parentheses are nested too deeply".into());
        }
        let mut pipe = Pipeline { variables: Vec::new(), declares: false, commands: Vec::new() };
        self.blanks();
        let start = self.at;
        while let Some(Token::Variable(name)) = self.peek() {
            self.at += 1;
            pipe.variables.push(name.clone());
            self.blanks();
            if !self.skip(",") {
                break;
            }
            self.blanks();
        }
        pipe.declares = self.skip(":=");
        if !pipe.declares && !self.skip("=") {
            pipe.variables.clear();
            self.at = start;
        }
        loop {
            pipe.commands.push(self.command()?);
            if !self.skip("|") {
                break;
            }
        }
        self.depth -= 1;
        Ok(pipe)
    }

    fn command(&mut self) -> Result<Vec<Operand>, String> {
        let mut operands = Vec::new();
        loop {
            self.blanks();
            match self.peek() {
                None | Some(Token::Mark("|" | ")")) => break,
                Some(_) => operands.push(self.operand()?),
            }
        }
        if operands.is_empty() { Err("missing value for command".into()) } else { Ok(operands) }
    }

    fn operand(&mut self) -> Result<Operand, String> {
        let (token, at) = self.next_token().ok_or("missing value for command")?;
        let mut fields = Vec::new();
        let mut place = at;
        let base = match token {
            Token::Mark(".") => Operand::Dot,
            Token::Mark("(") => {
                let inner = self.pipe()?;
                if !self.skip(")") {
                    return Err("unclosed left paren".into());
                }
                Operand::Pipe(Box::new(inner))
            }
            Token::Field(name) => {
                fields.push(name.clone());
                Operand::Dot
            }
            Token::Variable(name) => Operand::Variable(name.clone()),
            Token::Literal(value) => return Ok(Operand::Literal(value.clone())),
            Token::Word(word) => return word_operand(word),
            Token::Mark(mark) => return Err(format!("unexpected {mark:?} in operand")),
        };
        while let Some(Token::Field(name)) = self.peek() {
            // Go reports the position of the second field of a chain.
            if fields.len() <= 1 {
                place = self.tokens[self.at].1;
            }
            self.at += 1;
            fields.push(name.clone());
        }
        if fields.is_empty() {
            return Ok(base);
        }
        let text = format!(".{}", fields.join("."));
        Ok(Operand::Fields(
            Box::new(base),
            fields,
            TemplatePosition { line: self.line, column: self.column + place, text },
        ))
    }
}

fn word_operand(word: &str) -> Result<Operand, String> {
    match word {
        "true" => Ok(Operand::Literal(Value::Bool(true))),
        "false" => Ok(Operand::Literal(Value::Bool(false))),
        "nil" => Ok(Operand::Literal(Value::Null)),
        word if FUNCTIONS.contains(&word) => Ok(Operand::Function(word.to_owned())),
        word => Err(format!("function {word:?} not defined")),
    }
}
