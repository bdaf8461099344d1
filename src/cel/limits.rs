//! The limits of an evaluation besides its cost, because some functions cost little and do much work.
//!
//! Knows: steps, bytes and compiled patterns of one evaluation, and the authorizer that functions may ask.
//! Never: names a function. Start reading at [`WorkLimits`].

use super::foreign::authorizer::{AccessQuestion, Authorize, Decision};
use super::value::{EvalError, fail};
use crate::go::regexp::{self, CompiledPattern};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Maximum number of elementary steps of one evaluation.
const MAX_WORK: u64 = 20_000_000;
/// Maximum number of bytes of the texts that one evaluation computes.
const MAX_MEMORY: usize = 64 << 20;
/// Bytes that a text in a list takes besides its letters.
pub const ITEM_BYTES: usize = 48;
/// Number of letters that are read in one step.
const LETTERS_PER_STEP: usize = 64;
/// Maximum size of all patterns that one context compiles, in states.
const MAX_PATTERNS: usize = 250_000;

/// A pattern by its text, or the reason why it is none.
type Pattern = (String, Result<Arc<CompiledPattern>, String>);

/// The work that functions have done so far, and the authorizer that they may ask.
#[derive(Default)]
pub struct WorkLimits<'v> {
    authorizer: Option<&'v dyn Authorize>,
    patterns: RefCell<Vec<Pattern>>,
    pattern_states: Cell<usize>,
    work: Cell<u64>,
    room: Cell<usize>,
}

impl<'v> WorkLimits<'v> {
    /// Sets the authorizer that answers questions about rights.
    pub fn set_authorizer(&mut self, authorizer: &'v dyn Authorize) {
        self.authorizer = Some(authorizer);
    }

    /// Starts an evaluation.
    pub fn reset(&self) {
        self.work.set(0);
        self.room.set(0);
    }

    /// Counts the steps of reading a text; functions such as `size` cost 1, however long it is.
    pub fn count_text(&self, text: &str) -> Result<(), EvalError> {
        self.count_steps((text.len() / LETTERS_PER_STEP) as u64)
    }

    /// Counts elementary steps; fails when there are too many.
    pub fn count_steps(&self, steps: u64) -> Result<(), EvalError> {
        self.work.set(self.work.get().saturating_add(steps));
        if self.work.get() > MAX_WORK { Err(EvalError::Costly) } else { Ok(()) }
    }

    /// Counts bytes that are about to be computed.
    pub fn reserve_bytes(&self, bytes: usize) -> Result<(), EvalError> {
        self.room.set(self.room.get().saturating_add(bytes));
        if self.room.get() > MAX_MEMORY { Err(EvalError::Costly) } else { Ok(()) }
    }

    /// Asks the authorizer.
    pub fn authorize(&self, question: &AccessQuestion, verb: &str) -> Result<Decision, EvalError> {
        match self.authorizer {
            Some(authorizer) => Ok(authorizer.decide(question, verb)),
            None => fail("no authorizer"),
        }
    }

    /// Compiles a pattern, or returns an earlier result for it: the pattern, or the reason why it is none.
    pub fn compile_pattern(&self, text: &str) -> Result<Result<Arc<CompiledPattern>, String>, EvalError> {
        if let Some((_, earlier)) = self.patterns.borrow().iter().find(|(pattern, _)| pattern == text) {
            return Ok(earlier.clone());
        }
        if self.pattern_states.get() > MAX_PATTERNS {
            return Err(EvalError::Costly);
        }
        let compiled = regexp::compile(text);
        let states = compiled.as_ref().map_or(1000, |pattern| pattern.states + 100);
        self.pattern_states.set(self.pattern_states.get() + states);
        let compiled = compiled.map(Arc::new);
        self.patterns.borrow_mut().push((text.to_owned(), compiled.clone()));
        Ok(compiled)
    }
}
