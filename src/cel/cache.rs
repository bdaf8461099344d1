//! Compiled expressions, kept for each process: compiling a long one takes milliseconds, and nothing is compiled under the write lock of
//! the state.
//!
//! Never: decides how long an expression may be; its kind does. Start reading at [`compile_and_keep`].

use super::{Declarations, Program, compile};
use crate::object::IgnorePoison;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

/// Maximum number of kept programs, and of the bytes of their expressions.
const MAX_KEPT: usize = 4096;
const MAX_BYTES: usize = 8 << 20;

/// A program, or the issues of its expression.
pub type Compiled = Result<Arc<Program>, Arc<str>>;

#[derive(Default)]
struct ProgramCache {
    programs: HashMap<ProgramKey, Compiled>,
    bytes: usize,
}

/// The declarations and the text of an expression.
#[derive(PartialEq, Eq, Hash)]
struct ProgramKey {
    digest: [u8; 32],
    mutates: bool,
    text: Box<str>,
}

impl ProgramKey {
    fn new(text: &str, declared: &Declarations) -> ProgramKey {
        ProgramKey { digest: declared.digest(), mutates: declared.mutates, text: text.into() }
    }

    fn size(&self) -> usize {
        size_of::<ProgramKey>() + self.text.len()
    }
}

static COMPILED: LazyLock<Mutex<ProgramCache>> = LazyLock::new(Mutex::default);

fn kept() -> MutexGuard<'static, ProgramCache> {
    COMPILED.lock().ignore_poison()
}

/// Returns the program of an expression, if this process has compiled it.
pub fn find_compiled(text: &str, declared: &Declarations) -> Option<Compiled> {
    kept().programs.get(&ProgramKey::new(text, declared)).cloned()
}

/// Returns the program of an expression; compiles it unless this process has done so before.
pub fn compile_and_keep(text: &str, declared: &Declarations) -> Compiled {
    let key = ProgramKey::new(text, declared);
    if let Some(known) = kept().programs.get(&key) {
        return known.clone();
    }
    let compiled = compile(text, declared, None).map(Arc::new).map_err(|issues| Arc::from(issues.to_string().as_str()));
    let mut kept = kept();
    if kept.programs.len() >= MAX_KEPT || kept.bytes + key.size() > MAX_BYTES {
        *kept = ProgramCache::default();
    }
    kept.bytes += key.size();
    kept.programs.insert(key, compiled.clone());
    compiled
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cel::Type;

    #[test]
    fn program_belongs_to_its_declarations() {
        let with = |ty| Declarations::default().declare("cached", ty);
        let text = "cached + 1 == 2";
        assert!(find_compiled(text, &with(Type::Int)).is_none());
        assert!(compile_and_keep(text, &with(Type::Int)).is_ok());
        assert!(find_compiled(text, &with(Type::Int)).is_some_and(|known| known.is_ok()));
        assert!(find_compiled(text, &with(Type::String)).is_none());
        let issues = compile_and_keep(text, &with(Type::String)).unwrap_err();
        assert!(issues.contains("no matching overload"), "{issues}");
    }

    #[test]
    fn expressions_are_found_beside_many_variables() {
        let declare = |declared: Declarations, number| declared.declare(&format!("many{number}"), Type::Int);
        let mut declared = Declarations::default();
        for number in 0..60_000 {
            declared = declare(declared, number);
            assert!(find_compiled("many0 == many59999", &declared).is_none());
        }
        assert!(compile_and_keep("many0 == many59999", &declared).is_ok());
        assert!(find_compiled("many0 == many59999", &declared).is_some());
        assert!(find_compiled("many0 == many59999", &declare(declared.clone(), 0)).is_none());
    }
}
