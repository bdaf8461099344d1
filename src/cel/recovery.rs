//! Reports syntax errors and continues after them, as the parser that ANTLR generates for cel-go does.
//!
//! Knows: which tokens can follow at each place (`antlr4/DefaultErrorStrategy`). Never: builds a tree. Start reading at
//! [`Tokens`].

use super::lex::{NAMES, Token, TokenKind};
use super::source::Issue;

/// A set of kinds of tokens; with [`EMPTY`] the rule may end here.
pub type Set = u32;

/// The rule may end here.
pub const EMPTY: Set = 1 << 31;
/// The tokens that an expression starts with.
pub const START: Set = TokenKind::OpenBracket.bit()
    | TokenKind::OpenBrace.bit()
    | TokenKind::OpenParen.bit()
    | TokenKind::Dot.bit()
    | TokenKind::Minus.bit()
    | TokenKind::Not.bit()
    | TokenKind::True.bit()
    | TokenKind::False.bit()
    | TokenKind::Null.bit()
    | TokenKind::Float.bit()
    | TokenKind::Int.bit()
    | TokenKind::Uint.bit()
    | TokenKind::String.bit()
    | TokenKind::Bytes.bit()
    | TokenKind::Ident.bit();
/// The tokens that continue an expression after an operand.
pub const OPERATORS: Set = TokenKind::Relation.bit()
    | TokenKind::And.bit()
    | TokenKind::Or.bit()
    | TokenKind::Plus.bit()
    | TokenKind::Minus.bit()
    | TokenKind::Product.bit();

/// Maximum number of errors after which the parser continues.
const MAX_RECOVERIES: usize = 30;
/// Maximum number of tokens that are skipped after one error.
const MAX_SKIPPED: usize = 512;
/// Maximum number of syntax errors that are reported.
const MAX_REPORTS: usize = 100;

/// The parser gives up; the reason is among the issues.
pub struct GaveUp;

/// The tokens of an expression, the position in them, and the state after an error.
pub struct Tokens {
    all: Vec<Token>,
    at: usize,
    /// The text, for messages.
    text: Vec<char>,
    /// The tokens that can follow each rule that is being read, the innermost last.
    follow: Vec<Set>,
    /// Whether an error was reported since the last token that fitted.
    is_recovering: bool,
    recoveries: usize,
    reports: usize,
    /// The token and places of the last error, so that the same error does not repeat forever.
    last_error: Option<(usize, Vec<&'static str>)>,
    /// The errors.
    pub issues: Vec<Issue>,
}

impl Tokens {
    /// Starts at the first token.
    pub fn new(all: Vec<Token>, text: Vec<char>, issues: Vec<Issue>) -> Tokens {
        Tokens {
            all,
            at: 0,
            text,
            follow: Vec::new(),
            is_recovering: false,
            recoveries: 0,
            reports: 0,
            last_error: None,
            issues,
        }
    }

    /// The token some places ahead.
    pub fn peek(&self, ahead: usize) -> Token {
        self.all[(self.at + ahead).min(self.all.len() - 1)]
    }

    /// Whether the next token is of a kind.
    pub fn is_at(&self, kind: TokenKind) -> bool {
        self.peek(0).kind == kind
    }

    /// Whether the next token is in a set.
    pub fn is_in(&self, set: Set) -> bool {
        self.peek(0).kind.bit() & set != 0
    }

    /// Takes the next token, which fits.
    pub fn take_token(&mut self) -> Token {
        let token = self.peek(0);
        self.is_recovering = false;
        self.at = (self.at + 1).min(self.all.len() - 1);
        token
    }

    /// The letters of a token.
    pub fn letters(&self, token: Token) -> &[char] {
        &self.text[token.start..token.end]
    }

    /// The text of a token.
    pub fn word(&self, token: Token) -> String {
        self.letters(token).iter().collect()
    }

    /// Starts a rule that these tokens can follow.
    pub fn enter(&mut self, follow: Set) {
        self.follow.push(follow);
    }

    /// Ends the rule.
    pub fn leave(&mut self) {
        self.follow.pop();
    }

    /// Adds an error of the tree.
    pub fn report(&mut self, position: usize, message: impl Into<String>) {
        self.issues.push(Issue { position: Some(position), message: message.into() });
    }

    /// Takes a token of a kind. Without one it reports an error, and returns whether the rule can continue.
    pub fn expect(&mut self, kind: TokenKind, after: Set, place: &'static str) -> Result<bool, GaveUp> {
        if self.is_at(kind) {
            self.take_token();
            return Ok(true);
        }
        self.count_recovery()?;
        if self.skip_one_unwanted(kind.bit())? {
            self.take_token();
            return Ok(true);
        }
        // A token that is only missing is reported and passed over.
        if self.is_in(self.context_follow(after)) {
            if !self.is_recovering {
                let message = format!("missing {} at {}", NAMES[kind as usize], self.quote());
                self.syntax_error(message)?;
            }
            self.is_recovering = true;
            return Ok(true);
        }
        self.report_mismatch(kind.bit(), place)?;
        Ok(false)
    }

    /// Makes sure that the next token is one of a set; skips one token if that helps. Returns false after an error: the rule
    /// has to end then.
    pub fn sync(&mut self, set: Set, place: &'static str) -> Result<bool, GaveUp> {
        if self.is_in(set) {
            return Ok(true);
        }
        if !self.is_recovering && self.skip_one_unwanted(set)? {
            return Ok(true);
        }
        self.report_mismatch(set, place)?;
        Ok(false)
    }

    /// Reports that no alternative fits at the token some places ahead, and continues after it.
    pub fn report_no_alternative(&mut self, ahead: usize, place: &'static str) -> Result<(), GaveUp> {
        if !self.is_recovering {
            let (first, last) = (self.peek(0), self.peek(ahead));
            let text: String = self.text[first.start..last.end.max(first.start)].iter().collect();
            let is_end = first.kind == TokenKind::End;
            let text = if is_end { "<EOF>".to_owned() } else { text };
            let reserved = ["true", "false", "null"].into_iter().find(|word| text == format!(".{word}"));
            let message = match reserved {
                Some(word) => format!("mismatched input '{word}' expecting IDENTIFIER"),
                None => format!("no viable alternative at input '{text}'"),
            };
            self.syntax_error_at(last.start, message)?;
            self.is_recovering = true;
        }
        self.recover(place)
    }

    fn report_mismatch(&mut self, set: Set, place: &'static str) -> Result<(), GaveUp> {
        if !self.is_recovering {
            let message = format!("mismatched input {} expecting {}", self.quote(), kind_names(set));
            self.syntax_error(message)?;
            self.is_recovering = true;
        }
        self.recover(place)
    }

    /// Skips one token when the one after it fits.
    fn skip_one_unwanted(&mut self, set: Set) -> Result<bool, GaveUp> {
        if self.peek(1).kind.bit() & set == 0 || self.is_at(TokenKind::End) {
            return Ok(false);
        }
        if !self.is_recovering {
            let message = format!("extraneous input {} expecting {}", self.quote(), kind_names(set));
            self.syntax_error(message)?;
        }
        self.at += 1;
        self.is_recovering = false;
        Ok(true)
    }

    /// Reports a token that does not continue a loop, and skips until one does or an outer rule can continue.
    pub fn skip_unwanted(&mut self, set: Set) -> Result<(), GaveUp> {
        if self.is_recovering {
            return Ok(());
        }
        let message = format!("extraneous input {} expecting {}", self.quote(), kind_names(set));
        self.syntax_error(message)?;
        self.is_recovering = true;
        self.skip_until(set | self.outer_follow())
    }

    fn recover(&mut self, place: &'static str) -> Result<(), GaveUp> {
        self.count_recovery()?;
        match &mut self.last_error {
            Some((at, places)) if *at == self.at && places.contains(&place) => {
                self.at = (self.at + 1).min(self.all.len() - 1);
            }
            Some((at, places)) if *at == self.at => places.push(place),
            _ => {}
        }
        if self.last_error.as_ref().is_none_or(|(at, _)| *at != self.at) {
            self.last_error = Some((self.at, vec![place]));
        }
        self.skip_until(self.outer_follow())
    }

    fn outer_follow(&self) -> Set {
        self.follow.iter().fold(0, |all, set| all | set) & !EMPTY
    }

    /// The tokens that can follow, when this rule and the ones around it may end.
    fn context_follow(&self, after: Set) -> Set {
        let mut all = after;
        for follow in self.follow.iter().rev() {
            if all & EMPTY == 0 {
                return all;
            }
            all = (all & !EMPTY) | follow;
        }
        if all & EMPTY == 0 { all } else { (all & !EMPTY) | TokenKind::End.bit() }
    }

    fn skip_until(&mut self, set: Set) -> Result<(), GaveUp> {
        for skipped in 0.. {
            if self.is_at(TokenKind::End) || self.is_in(set) {
                break;
            }
            if skipped == MAX_SKIPPED {
                return self.give_up(format!("error recovery token lookahead limit exceeded: {MAX_SKIPPED}"));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn count_recovery(&mut self) -> Result<(), GaveUp> {
        self.recoveries += 1;
        if self.recoveries > MAX_RECOVERIES {
            let message = format!("error recovery attempt limit exceeded: {MAX_RECOVERIES}");
            self.syntax_error(message)?;
            return Err(GaveUp);
        }
        Ok(())
    }

    /// Ends the parsing with an error that concerns the whole expression.
    pub fn give_up<T>(&mut self, message: String) -> Result<T, GaveUp> {
        self.issues.push(Issue { position: None, message });
        Err(GaveUp)
    }

    fn syntax_error(&mut self, message: String) -> Result<(), GaveUp> {
        let position = self.peek(0).start;
        self.syntax_error_at(position, message)
    }

    fn syntax_error_at(&mut self, position: usize, message: String) -> Result<(), GaveUp> {
        self.reports += 1;
        let is_last = self.reports > MAX_REPORTS;
        let message = if is_last { format!("More than {MAX_REPORTS} syntax errors") } else { message };
        self.report(position, format!("Syntax error: {message}"));
        if is_last { Err(GaveUp) } else { Ok(()) }
    }

    fn quote(&self) -> String {
        let token = self.peek(0);
        match token.kind {
            TokenKind::End => "'<EOF>'".to_owned(),
            _ => format!("'{}'", self.word(token).replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")),
        }
    }
}

/// Formats the kinds of a set for a message.
fn kind_names(set: Set) -> String {
    let names: Vec<&str> = (0..NAMES.len()).filter(|bit| set & (1 << bit) != 0).map(|bit| NAMES[bit]).collect();
    match names.as_slice() {
        [one] => (*one).to_owned(),
        many => format!("{{{}}}", many.join(", ")),
    }
}
