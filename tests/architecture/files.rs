//! Files: each is documented and short enough, as are functions, and unsafe code is only in `runtime`, with a `SAFETY` comment.

use super::assert_none;
use super::sources::{Source, every_file, product, tests};

/// Maximum number of lines of a file.
const MAX_FILE_LINES: usize = 600;

/// Maximum number of columns of a line that is a comment.
const MAX_COMMENT_COLUMNS: usize = 140;

/// Maximum number of lines of a function, from its name to its last brace. Tests may be longer.
const MAX_FUNCTION_LINES: usize = 60;

/// Longer functions, each one `match` with an arm for every entry of a list that Kubernetes gives.
const TABLES: [(&str, &str); 2] = [
    // The functions of CEL's libraries, and the cost of each.
    ("src/cel/estimate/calls.rs", "estimate_library_call"),
    // The nodes of a compiled expression.
    ("src/cel/eval.rs", "eval"),
];

#[test]
fn unsafe_code_is_only_in_runtime() {
    let files = every_file().iter().filter(|source| !source.is_in("runtime"));
    let wrong: Vec<String> =
        files.flat_map(|source| source.parsed.unsafe_lines.iter().map(|line| source.locate(*line, "unsafe"))).collect();
    assert_none(&wrong, "unsafe outside runtime");
}

/// Whether a comment directly above the statement of a line has the reason for unsafe code.
fn has_reason(source: &Source, line: usize) -> bool {
    let lines: Vec<&str> = source.text.lines().take(line).map(str::trim).collect();
    let above = lines[..line - 1].iter().rev().take_while(|line| !line.is_empty() && !line.ends_with([';', '}']));
    above.take(8).any(|line| line.contains("// SAFETY") || line.contains("/// # Safety"))
}

#[test]
fn unsafe_code_has_its_reason_beside_it() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for source in every_file() {
        seen += source.parsed.unsafe_lines.len();
        let lines = source.parsed.unsafe_lines.iter().filter(|line| !has_reason(source, **line));
        wrong.extend(
            lines.map(|line| source.locate(*line, source.text.lines().nth(line - 1).unwrap_or_default().trim())),
        );
    }
    assert_none(&wrong, "unsafe code without a comment `SAFETY:`");
    assert!(seen > 50, "unsafe code was found: {seen}");
}

#[test]
fn every_module_has_documentation() {
    let undocumented = product().filter(|source| !source.text.starts_with("//!"));
    assert_none(&undocumented.map(|source| source.path.clone()).collect::<Vec<_>>(), "modules without documentation");
}

#[test]
fn skipped_tests_are_reported_with_the_macro() {
    let is_silent = |line: &str| line.to_lowercase().contains("println!(\"skip");
    assert!(is_silent("return eprintln!(\"skipped: why\")") && !is_silent("skip!(\"why\")"));
    let mut wrong = Vec::new();
    // This file has an example.
    for source in every_file().iter().chain(tests()).filter(|source| source.path != "tests/architecture/files.rs") {
        let lines = source.text.lines().enumerate().filter(|(_, line)| is_silent(line));
        wrong.extend(lines.map(|(index, line)| source.locate(index + 1, line.trim())));
    }
    assert_none(&wrong, "skipped tests that `.ci/run` does not count: write `skip!(\"why\")`");
}

#[test]
fn files_have_at_most_600_lines() {
    let lines = |source: &Source| source.text.lines().count();
    let long = every_file().iter().filter(|source| lines(source) > MAX_FILE_LINES);
    let long: Vec<String> = long.map(|source| format!("{}: {} lines", source.path, lines(source))).collect();
    assert_none(&long, "files that should be folders");
}

#[test]
fn comments_have_at_most_140_columns() {
    let is_long = |line: &str| line.trim_start().starts_with("//") && line.chars().count() > MAX_COMMENT_COLUMNS;
    assert!(is_long(&format!("    /// {}", "a".repeat(140))) && !is_long(&format!("//! {}", "a".repeat(136))));
    let mut wrong = Vec::new();
    for source in every_file().iter().chain(tests()) {
        let lines = source.text.lines().enumerate().filter(|(_, line)| is_long(line));
        wrong.extend(lines.map(|(index, line)| source.locate(index + 1, line.trim())));
    }
    assert_none(&wrong, "comments that do not fit a screen");
}

#[test]
fn functions_have_at_most_60_lines() {
    let mut wrong = Vec::new();
    for source in product() {
        let is_table = |name: &str| TABLES.contains(&(&*source.path, name));
        let long = source.parsed.functions.iter().filter(|function| function.lines > MAX_FUNCTION_LINES);
        let long = long.filter(|function| !is_table(&function.name));
        wrong.extend(
            long.map(|function| source.locate(function.line, format!("{}: {} lines", function.name, function.lines))),
        );
    }
    assert_none(&wrong, "functions that should be several");
}
