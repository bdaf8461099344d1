//! Keeps a panic from ending more than the work on one object.
//!
//! A panic is a mistake in kloop. The caller learns its message and its place in the source, logs them with the object's key, and goes on
//! with the other objects. Memory exhaustion and stack overflow end the process and cannot be contained.
//! Start reading at [`contain`].

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether this thread runs contained work: its panics are returned instead of printed.
    static CONTAINING: Cell<bool> = const { Cell::new(false) };
    /// The last contained panic of this thread.
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs work on one object. If it panics, returns the message and the place of the panic, and prints nothing.
///
/// The work must leave shared data usable after a panic, or the caller must repair it.
pub fn contain<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(install_hook);
    let outer = CONTAINING.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    CONTAINING.set(outer);
    done.map_err(|_| LAST.take())
}

/// Sets a panic hook that records the panics of contained work, and leaves all others to the hook before it.
fn install_hook() {
    let previous = take_hook();
    set_hook(Box::new(move |info| match CONTAINING.try_with(Cell::get) {
        Ok(true) => LAST.set(describe(info)),
        _ => previous(info),
    }));
}

/// `internal error: attempt to divide by zero (src/x.rs:10)`.
fn describe(info: &PanicHookInfo<'_>) -> String {
    let message = info.payload_as_str().unwrap_or("panic without a message");
    let place = info.location().map(|at| format!(" ({}:{})", at.file(), at.line())).unwrap_or_default();
    format!("internal error: {message}{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contain_returns_the_message_and_the_place_of_a_panic() {
        assert_eq!(contain(|| 5), Ok(5));
        let number = std::hint::black_box(0);
        let error = contain(|| 1 / number).unwrap_err();
        assert!(error.starts_with("internal error: attempt to divide by zero (src/runtime/contain.rs:"), "{error}");
        let inner = contain(|| contain(|| panic!("inner")).map(|()| 1)).expect("the outer work goes on");
        assert!(inner.unwrap_err().starts_with("internal error: inner ("));
        assert!(contain(|| panic!("{}", "formatted")).map(|()| 1).unwrap_err().contains("formatted"));
    }
}
