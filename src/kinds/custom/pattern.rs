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
/// States that a pattern counts for at least: also a tiny one takes some KB and time to compile.
pub const MIN_STATES: usize = 32;
/// Maximum estimated size of all cached patterns, in states: about 100 MB, and at least two schemas of the maximum size in each half.
const MAX_CACHED_STATES: usize = 4 * MAX_STATES_OF_A_SCHEMA;

/// The compiled patterns of this process.
static COMPILED: LazyLock<Mutex<PatternCache>> = LazyLock::new(Mutex::default);

/// A compiled pattern; `None` for one that cannot be compiled.
type Compiled = Option<Arc<CompiledPattern>>;

/// Compiled patterns by their text in schemas. When the recent ones fill their half, the older half is dropped: a schema with thousands of
/// patterns does not drop those that others use all the time.
#[derive(Default)]
struct PatternCache {
    recent: HashMap<String, Compiled>,
    recent_states: usize,
    older: HashMap<String, Compiled>,
}

impl PatternCache {
    /// Returns a cached pattern, which becomes a recent one.
    fn get(&mut self, pattern: &str) -> Option<Compiled> {
        if let Some(known) = self.recent.get(pattern) {
            return Some(known.clone());
        }
        let (text, compiled) = self.older.remove_entry(pattern)?;
        self.insert(text, compiled.clone());
        Some(compiled)
    }

    fn insert(&mut self, pattern: String, compiled: Compiled) {
        if self.recent_states >= MAX_CACHED_STATES / 2 {
            self.older = std::mem::take(&mut self.recent);
            self.recent_states = 0;
        }
        let states = compiled.as_ref().map_or(0, |compiled| compiled.states).max(MIN_STATES);
        if self.recent.insert(pattern, compiled).is_none() {
            self.recent_states += states;
        }
    }
}

/// Whether a text matches a pattern. A pattern that cannot be compiled matches everything, since its definition was
/// refused.
pub fn matches(pattern: &str, text: &str) -> bool {
    find(pattern).is_none_or(|pattern| pattern.regex.is_match(text))
}

/// Returns a compiled pattern; `None` for one that cannot be compiled.
pub fn find(pattern: &str) -> Option<Arc<CompiledPattern>> {
    let known = COMPILED.lock().ignore_poison().get(pattern);
    known.unwrap_or_else(|| compile_and_keep(pattern))
}

/// Returns those patterns that this process has not compiled yet.
pub fn not_compiled<'p>(patterns: impl IntoIterator<Item = &'p str>) -> Vec<String> {
    let mut compiled = COMPILED.lock().ignore_poison();
    patterns.into_iter().filter(|pattern| compiled.get(pattern).is_none()).map(str::to_owned).collect()
}

/// Compiles a pattern and caches it.
pub fn compile_and_keep(pattern: &str) -> Option<Arc<CompiledPattern>> {
    let compiled = regexp::compile(pattern).ok().map(Arc::new);
    COMPILED.lock().ignore_poison().insert(pattern.to_owned(), compiled.clone());
    compiled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_keeps_patterns_in_use_when_others_fill_it() {
        let mut cache = PatternCache::default();
        cache.insert("used".into(), None);
        let most = MAX_CACHED_STATES / MIN_STATES;
        for number in 0..3 * most {
            cache.insert(number.to_string(), None);
            assert!(cache.recent.len() + cache.older.len() <= most);
            if number % 100 == 0 {
                assert!(cache.get("used").is_some(), "after {number} others");
            }
        }
        assert!(cache.get("0").is_none());
    }

    #[test]
    fn text_is_matched_by_a_cached_pattern() {
        assert!(matches(r"\pL{1000}", "1"), "it was refused with its definition");
        assert!(matches("^a$", "a") && !matches("^a$", "b"));
    }
}
