//! Patterns of schemas, compiled once for each process.
//!
//! Never: decides how large a pattern may be; [`regexp`] estimates it, and [`super::structural`] refuses it.
//! Start reading at [`matches()`].

use crate::go::regexp::{self, CompiledPattern};
pub use crate::go::regexp::{MAX_STATES, translate};
use crate::object::IgnorePoison;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

/// Maximum estimated size of all patterns of one schema, in states. The first write of an object compiles the patterns
/// that it needs, without the write lock, in at most about a tenth of a second.
pub const MAX_STATES_OF_A_SCHEMA: usize = 250_000;
/// Maximum number of cached compiled patterns.
const MAX_CACHED: usize = 4096;

/// Cache of compiled patterns by their text in schemas; `None` for a pattern that cannot be compiled.
static COMPILED: LazyLock<Mutex<HashMap<String, Option<Arc<CompiledPattern>>>>> = LazyLock::new(Mutex::default);

/// Whether a text matches a pattern. A pattern that cannot be compiled matches everything, since its definition was
/// refused.
pub fn matches(pattern: &str, text: &str) -> bool {
    find(pattern).is_none_or(|pattern| pattern.regex.is_match(text))
}

/// Returns a compiled pattern; `None` for one that cannot be compiled.
pub fn find(pattern: &str) -> Option<Arc<CompiledPattern>> {
    let known = COMPILED.lock().ignore_poison().get(pattern).cloned();
    known.unwrap_or_else(|| compile_and_keep(pattern))
}

/// Returns those patterns that this process has not compiled yet.
pub fn not_compiled<'p>(patterns: impl IntoIterator<Item = &'p str>) -> Vec<String> {
    let compiled = COMPILED.lock().ignore_poison();
    patterns.into_iter().filter(|pattern| !compiled.contains_key(*pattern)).map(str::to_owned).collect()
}

/// Compiles a pattern and caches it.
pub fn compile_and_keep(pattern: &str) -> Option<Arc<CompiledPattern>> {
    let compiled = regexp::compile(pattern).ok().map(Arc::new);
    let mut all = COMPILED.lock().ignore_poison();
    if all.len() >= MAX_CACHED {
        all.clear();
    }
    all.insert(pattern.to_owned(), compiled.clone());
    compiled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_matched_by_a_cached_pattern() {
        assert!(matches(r"\pL{1000}", "1"), "it was refused with its definition");
        assert!(matches("^a$", "a") && !matches("^a$", "b"));
    }
}
