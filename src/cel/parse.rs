//! Parses an expression: the grammar of cel-go (`parser/gen/CEL.g4`).
//!
//! Never: names a type or a function. Start reading at [`parse`].

use super::ast::{Expr, ExprKind, FieldEntry, Literal, MapEntry, operator};
use super::lex::{self, TokenKind as K};
use super::macros;
use super::names::RESERVED;
use super::recovery::{EMPTY, GaveUp, OPERATORS, START, Set, Tokens};
use super::source::{Issues, Source};
use super::tree::{Parsed, Parser};
use std::sync::Arc;

/// Maximum number of letters of an expression.
const MAX_LETTERS: usize = 100_000;
/// Maximum depth of an expression.
const MAX_NESTED: usize = 250;

/// Parses a text; the error is that of cel-go.
pub fn parse(text: &str) -> Result<(Expr, Source), Issues> {
    let mut issues = Vec::new();
    let length = text.chars().count();
    if length > MAX_LETTERS {
        let message = format!("expression code point size exceeds limit: size: {length}, limit {MAX_LETTERS}");
        return Err(Issues(format!("ERROR: <input>:-1:0: {message}")));
    }
    let source = Source::new(text);
    let all = lex::tokens(&source.text, &mut issues);
    let tokens = Tokens::new(all, source.text.clone(), issues);
    let mut parser = Parser { tokens, source, depth: 0 };
    let parsed = parser.start();
    let Parser { tokens, source, .. } = parser;
    match parsed {
        Ok(expr) if tokens.issues.is_empty() => Ok((expr, source)),
        _ => Err(source.print_issues(tokens.issues)),
    }
}

impl Parser {
    fn start(&mut self) -> Parsed {
        let expr = self.read_part(K::End.bit(), Parser::expr)?;
        if !self.tokens.is_at(K::End) {
            self.tokens.expect(K::End, 0, "start")?;
        }
        Ok(expr)
    }

    /// Reads a part that these tokens can follow.
    fn read_part(&mut self, follow: Set, rule: fn(&mut Parser) -> Parsed) -> Parsed {
        self.tokens.enter(follow);
        let parsed = rule(self);
        self.tokens.leave();
        parsed
    }

    /// Counts the depth of a part while a rule reads it.
    fn count_depth<T>(&mut self, by: usize, rule: impl FnOnce(&mut Parser) -> Result<T, GaveUp>) -> Result<T, GaveUp> {
        self.depth += by;
        if self.depth > MAX_NESTED {
            return self.tokens.give_up(format!("expression recursion limit exceeded: {MAX_NESTED}"));
        }
        let parsed = rule(self);
        self.depth -= by;
        parsed
    }

    /// `a ? b : c`
    fn expr(&mut self) -> Parsed {
        self.count_depth(1, |parser| {
            let condition = parser.read_part(K::Question.bit() | EMPTY, Parser::conditional_or)?;
            if !parser.tokens.is_at(K::Question) {
                return Ok(condition);
            }
            let at = parser.tokens.take_token().start;
            let first = parser.read_part(K::Colon.bit(), Parser::conditional_or)?;
            if !parser.tokens.expect(K::Colon, START, "expr")? {
                return Ok(parser.node(at, ExprKind::Error));
            }
            let second = parser.read_part(EMPTY, Parser::expr)?;
            Ok(parser.call(at, operator::CONDITIONAL, vec![condition, first, second]))
        })
    }

    fn conditional_or(&mut self) -> Parsed {
        self.logic(K::Or, operator::OR, |parser| parser.logic(K::And, operator::AND, |parser| parser.binary(1)))
    }

    /// Reads operands that `&&` or `||` joins, and builds a balanced tree of them.
    fn logic(&mut self, kind: K, function: &str, operand: impl Fn(&mut Parser) -> Parsed) -> Parsed {
        self.tokens.enter(kind.bit() | EMPTY);
        let mut terms = vec![operand(self)?];
        let mut positions = Vec::new();
        while self.tokens.is_at(kind) {
            positions.push(self.tokens.take_token().start);
            terms.push(operand(self)?);
        }
        self.tokens.leave();
        let mut terms: Vec<Option<Expr>> = terms.into_iter().map(Some).collect();
        Ok(self.balance(function, &mut terms, &positions))
    }

    fn balance(&mut self, function: &str, terms: &mut [Option<Expr>], positions: &[usize]) -> Expr {
        let Some(last) = positions.len().checked_sub(1) else {
            return terms[0].take().unwrap_or(Expr { id: 0, kind: ExprKind::Error });
        };
        let middle = last.div_ceil(2);
        let (left, right) = terms.split_at_mut(middle + 1);
        let left = self.balance(function, left, &positions[..middle]);
        let right = self.balance(function, right, &positions[middle + 1..]);
        self.call(positions[middle], function, vec![left, right])
    }

    /// Relations, sums and products, by their precedence.
    fn binary(&mut self, least: u8) -> Parsed {
        self.tokens.enter(OPERATORS & !(K::And.bit() | K::Or.bit()) | EMPTY);
        let mut left = self.unary()?;
        let mut chain = 0;
        while self.tokens.is_in(OPERATORS & !(K::And.bit() | K::Or.bit())) {
            let token = self.tokens.peek(0);
            let Some((function, precedence)) = operator::binary(&self.tokens.word(token)) else { break };
            if precedence < least {
                break;
            }
            self.tokens.take_token();
            chain += 1;
            let right = self.count_depth(chain, |parser| parser.binary(precedence + 1))?;
            left = self.call(token.start, function, vec![left, right]);
        }
        self.tokens.leave();
        Ok(left)
    }

    fn unary(&mut self) -> Parsed {
        let at = self.tokens.peek(0).start;
        if !self.tokens.sync(START, "unary")? {
            return Ok(self.node(at, ExprKind::Error));
        }
        let at = self.tokens.peek(0).start;
        let is_number = |kind: K| matches!(kind, K::Int | K::Float);
        let sign = match self.tokens.peek(0).kind {
            K::Not => K::Not,
            K::Minus if is_number(self.tokens.peek(1).kind) => return self.member(),
            K::Minus if !self.is_operand(1, K::Minus) => {
                self.tokens.report_no_alternative(1, "unary")?;
                return Ok(self.node(at, ExprKind::Error));
            }
            K::Minus => K::Minus,
            _ => return self.member(),
        };
        let mut count = 0;
        while self.tokens.is_at(sign) && !(sign == K::Minus && count > 0 && is_number(self.tokens.peek(1).kind)) {
            self.tokens.take_token();
            count += 1;
            let wanted = (START & !K::Not.bit()) | sign.bit();
            if !self.tokens.is_in(wanted) {
                self.tokens.skip_unwanted(wanted)?;
                break;
            }
        }
        let operand = self.member()?;
        if count % 2 == 0 {
            return Ok(operand);
        }
        let function = if sign == K::Not { operator::NOT } else { operator::NEGATE };
        Ok(self.call(at, function, vec![operand]))
    }

    fn is_operand(&self, ahead: usize, sign: K) -> bool {
        self.tokens.peek(ahead).kind.bit() & ((START & !K::Not.bit()) | sign.bit()) != 0
    }

    /// Fields, calls of members and indexes.
    fn member(&mut self) -> Parsed {
        self.tokens.enter(K::Dot.bit() | K::OpenBracket.bit() | EMPTY);
        let mut value = self.primary()?;
        self.tokens.leave();
        let mut chain = 0;
        while self.tokens.is_in(K::Dot.bit() | K::OpenBracket.bit()) {
            chain += 1;
            value = self.count_depth(chain, |parser| {
                if parser.tokens.is_at(K::Dot) { parser.member_after_dot(value) } else { parser.index(value) }
            })?;
        }
        Ok(value)
    }

    fn member_after_dot(&mut self, value: Expr) -> Parsed {
        let dot = self.tokens.peek(0).start;
        let (next, after) = (self.tokens.peek(1), self.tokens.peek(2));
        match next.kind {
            K::Question => {
                self.tokens.take_token();
                self.tokens.take_token();
                let name = self.tokens.peek(0);
                if !self.tokens.sync(K::Ident.bit() | K::QuotedIdent.bit(), "escapeIdent")? {
                    return Ok(self.node(dot, ExprKind::Error));
                }
                let field = self.tokens.take_token();
                let word: Arc<str> = self.tokens.word(field).into();
                let field = self.node(name.start, ExprKind::Literal(Literal::String(word)));
                Ok(self.call(dot, operator::OPTIONAL_SELECT, vec![value, field]))
            }
            K::Ident if after.kind == K::OpenParen => {
                self.tokens.take_token();
                let name: Arc<str> = self.tokens.word(next).into();
                self.tokens.take_token();
                let open = self.tokens.take_token().start;
                let args = self.arguments("member")?;
                let Some(args) = args else { return Ok(self.node(open, ExprKind::Error)) };
                Ok(macros::expand_or_call(self, open, name, Some(value), args))
            }
            K::Ident => {
                self.tokens.take_token();
                self.tokens.take_token();
                let field: Arc<str> = self.tokens.word(next).into();
                Ok(self.node(dot, ExprKind::Select { operand: Box::new(value), field, test: false }))
            }
            K::QuotedIdent => {
                self.tokens.take_token();
                self.tokens.take_token();
                Ok(self.report_error(next.start, "unsupported syntax: '`'"))
            }
            _ => {
                self.tokens.report_no_alternative(1, "member")?;
                // The error may stand at the same dot.
                if self.tokens.is_at(K::Dot) {
                    self.tokens.take_token();
                }
                Ok(self.node(dot, ExprKind::Error))
            }
        }
    }

    fn index(&mut self, value: Expr) -> Parsed {
        let at = self.tokens.take_token().start;
        if !self.tokens.sync(START | K::Question.bit(), "index")? {
            return Ok(self.node(at, ExprKind::Error));
        }
        let is_optional = self.tokens.is_at(K::Question);
        if is_optional {
            self.tokens.take_token();
        }
        let index = self.read_part(K::CloseBracket.bit(), Parser::expr)?;
        if !self.tokens.expect(K::CloseBracket, K::Dot.bit() | K::OpenBracket.bit() | EMPTY, "index")? {
            return Ok(self.node(at, ExprKind::Error));
        }
        let function = if is_optional { operator::OPTIONAL_INDEX } else { operator::INDEX };
        Ok(self.call(at, function, vec![value, index]))
    }

    /// The arguments of a call after its parenthesis; `None` after an error.
    fn arguments(&mut self, place: &'static str) -> Result<Option<Vec<Expr>>, GaveUp> {
        if !self.tokens.sync(START | K::CloseParen.bit(), place)? {
            return Ok(None);
        }
        let mut args = Vec::new();
        if !self.tokens.is_at(K::CloseParen) {
            self.tokens.enter(K::CloseParen.bit());
            args.push(self.read_part(K::Comma.bit() | EMPTY, Parser::expr)?);
            while self.tokens.is_at(K::Comma) {
                self.tokens.take_token();
                args.push(self.read_part(K::Comma.bit() | EMPTY, Parser::expr)?);
            }
            self.tokens.leave();
        }
        let closed = self.tokens.expect(K::CloseParen, K::Dot.bit() | K::OpenBracket.bit() | EMPTY, place)?;
        Ok(closed.then_some(args))
    }

    fn primary(&mut self) -> Parsed {
        let token = self.tokens.peek(0);
        let at = token.start;
        match token.kind {
            K::Dot if self.tokens.peek(1).kind != K::Ident => {
                self.tokens.report_no_alternative(1, "primary")?;
                Ok(self.node(at, ExprKind::Error))
            }
            K::Dot | K::Ident => self.name(),
            K::OpenParen => {
                self.tokens.take_token();
                let inner = self.read_part(K::CloseParen.bit(), Parser::expr)?;
                match self.tokens.expect(K::CloseParen, EMPTY, "nested")? {
                    true => Ok(inner),
                    false => Ok(self.node(at, ExprKind::Error)),
                }
            }
            K::OpenBracket => self.list(),
            K::OpenBrace => self.map(),
            _ => self.literal(),
        }
    }

    /// A name, a call of a function, or a message such as `Object{a: 1}`.
    fn name(&mut self) -> Parsed {
        let is_global = self.tokens.is_at(K::Dot);
        let mut name = String::new();
        if is_global {
            name.push('.');
            self.tokens.take_token();
        }
        let first = self.tokens.take_token();
        let word = self.tokens.word(first);
        let mut parts = 0;
        while self.tokens.peek(2 * parts).kind == K::Dot && self.tokens.peek(2 * parts + 1).kind == K::Ident {
            parts += 1;
        }
        if self.tokens.peek(2 * parts).kind == K::OpenBrace {
            name.push_str(&word);
            for _ in 0..parts {
                self.tokens.take_token();
                let part = self.tokens.take_token();
                name.push('.');
                name.push_str(&self.tokens.word(part));
            }
            return self.message(name);
        }
        let is_call = self.tokens.is_at(K::OpenParen);
        let open = self.tokens.peek(0).start;
        let args = if is_call {
            self.tokens.take_token();
            let Some(args) = self.arguments("primary")? else { return Ok(self.node(open, ExprKind::Error)) };
            Some(args)
        } else {
            None
        };
        if RESERVED.contains(&word.as_str()) {
            return Ok(self.report_error(first.start, format!("reserved identifier: {word}")));
        }
        name.push_str(&word);
        Ok(match args {
            Some(args) => macros::expand_or_call(self, open, name.into(), None, args),
            None => self.node(first.start, ExprKind::Ident(name.into())),
        })
    }

    fn message(&mut self, name: String) -> Parsed {
        let at = self.tokens.take_token().start;
        let mut fields = Vec::new();
        let starts = K::Question.bit() | K::Ident.bit() | K::QuotedIdent.bit();
        if !self.tokens.sync(starts | K::Comma.bit() | K::CloseBrace.bit(), "message")? {
            return Ok(self.node(at, ExprKind::Error));
        }
        while self.tokens.is_in(starts) {
            let optional = self.tokens.is_at(K::Question);
            if optional {
                self.tokens.take_token();
            }
            if !self.tokens.sync(K::Ident.bit() | K::QuotedIdent.bit(), "optField")? {
                return Ok(self.node(at, ExprKind::Error));
            }
            let token = self.tokens.take_token();
            let field: Arc<str> = self.tokens.word(token).into();
            let colon = self.tokens.peek(0).start;
            if !self.tokens.expect(K::Colon, START, "field")? {
                return Ok(self.node(at, ExprKind::Error));
            }
            let value = self.read_part(K::Comma.bit() | K::CloseBrace.bit(), Parser::expr)?;
            let id = self.source.add(colon);
            fields.push(FieldEntry { id, name: field, value, optional });
            if !self.tokens.is_at(K::Comma) || self.tokens.peek(1).kind.bit() & starts == 0 {
                break;
            }
            self.tokens.take_token();
        }
        match self.close(K::CloseBrace, "message")? {
            true => Ok(self.node(at, ExprKind::Struct(name.into(), fields))),
            false => Ok(self.node(at, ExprKind::Error)),
        }
    }

    /// A comma that may stand at the end, and the closing bracket.
    fn close(&mut self, kind: K, place: &'static str) -> Result<bool, GaveUp> {
        if !self.tokens.sync(K::Comma.bit() | kind.bit(), place)? {
            return Ok(false);
        }
        if self.tokens.is_at(K::Comma) {
            self.tokens.take_token();
        }
        self.tokens.expect(kind, EMPTY, place)
    }

    fn list(&mut self) -> Parsed {
        let at = self.tokens.take_token().start;
        let starts = START | K::Question.bit();
        if !self.tokens.sync(starts | K::Comma.bit() | K::CloseBracket.bit(), "list")? {
            return Ok(self.node(at, ExprKind::Error));
        }
        let mut items = Vec::new();
        while self.tokens.is_in(starts) {
            let is_optional = self.tokens.is_at(K::Question);
            if is_optional {
                self.tokens.take_token();
            }
            items.push((self.read_part(K::Comma.bit() | K::CloseBracket.bit(), Parser::expr)?, is_optional));
            if !self.tokens.is_at(K::Comma) || self.tokens.peek(1).kind.bit() & starts == 0 {
                break;
            }
            self.tokens.take_token();
        }
        match self.close(K::CloseBracket, "list")? {
            true => Ok(self.node(at, ExprKind::List(items))),
            false => Ok(self.node(at, ExprKind::Error)),
        }
    }

    fn map(&mut self) -> Parsed {
        let at = self.tokens.take_token().start;
        let starts = START | K::Question.bit();
        if !self.tokens.sync(starts | K::Comma.bit() | K::CloseBrace.bit(), "map")? {
            return Ok(self.node(at, ExprKind::Error));
        }
        let mut entries = Vec::new();
        while self.tokens.is_in(starts) {
            let optional = self.tokens.is_at(K::Question);
            if optional {
                self.tokens.take_token();
            }
            let key = self.read_part(K::Colon.bit(), Parser::expr)?;
            if !self.tokens.expect(K::Colon, START, "mapInitializerList")? {
                return Ok(self.node(at, ExprKind::Error));
            }
            let value = self.read_part(K::Comma.bit() | K::CloseBrace.bit(), Parser::expr)?;
            entries.push(MapEntry { key, value, optional });
            if !self.tokens.is_at(K::Comma) || self.tokens.peek(1).kind.bit() & starts == 0 {
                break;
            }
            self.tokens.take_token();
        }
        match self.close(K::CloseBrace, "map")? {
            true => Ok(self.node(at, ExprKind::Map(entries))),
            false => Ok(self.node(at, ExprKind::Error)),
        }
    }

    fn literal(&mut self) -> Parsed {
        let at = self.tokens.peek(0).start;
        let sign = if self.tokens.is_at(K::Minus) {
            self.tokens.take_token();
            "-"
        } else {
            ""
        };
        if !self.tokens.is_in(START) {
            self.tokens.report_no_alternative(0, "literal")?;
            return Ok(self.node(at, ExprKind::Error));
        }
        let token = self.tokens.take_token();
        let text = self.tokens.word(token);
        let number = text.trim_end_matches(['u', 'U']);
        let (radix, digits) = number.strip_prefix("0x").map_or((10, number), |digits| (16, digits));
        let literal = match token.kind {
            K::Int => i64::from_str_radix(&format!("{sign}{digits}"), radix)
                .map(Literal::Int)
                .map_err(|_| "invalid int literal"),
            K::Uint => u64::from_str_radix(digits, radix).map(Literal::Uint).map_err(|_| "invalid uint literal"),
            K::Float => match format!("{sign}{text}").parse::<f64>() {
                Ok(value) if value.is_finite() => Ok(Literal::Double(value)),
                _ => Err("invalid double literal"),
            },
            K::String => lex::unescape(self.tokens.letters(token), false)
                .map(|bytes| Literal::String(String::from_utf8_lossy(&bytes).into())),
            K::Bytes => lex::unescape(self.tokens.letters(token), true).map(|bytes| Literal::Bytes(bytes.into())),
            K::True => Ok(Literal::Bool(true)),
            K::False => Ok(Literal::Bool(false)),
            _ => Ok(Literal::Null),
        };
        match literal {
            Ok(literal) => Ok(self.node(at, ExprKind::Literal(literal))),
            Err(message) => Ok(self.report_error(at, message)),
        }
    }
}
