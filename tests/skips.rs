//! Tests that this machine cannot run report that on standard error, and in the file that `KLOOP_SKIPS` names: `.ci/run` counts the lines
//! and fails on a reason that `.ci/expected-skips` does not list. Unit tests of the crate include this file, too.

use std::fmt::Arguments;
use std::io::Write as _;

/// Reports that the current test, or a part of it, is skipped, with the reason.
macro_rules! skip {
    ($($reason:tt)*) => { crate::skips::record(format_args!($($reason)*)) };
}

/// Writes a line directly, because the test harness shows only the output of failing tests.
pub fn record(reason: Arguments<'_>) {
    let thread = std::thread::current();
    let line = format!("SKIPPED {}: {reason}\n", thread.name().unwrap_or("a test"));
    std::io::stderr().write_all(line.as_bytes()).expect("standard error takes a line");
    if let Some(path) = std::env::var_os("KLOOP_SKIPS") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the file of KLOOP_SKIPS takes a line");
    }
}
