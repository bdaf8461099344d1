//! The licences of all crates: each allows building, changing and distributing the binary under MIT.

use std::process::Command;

/// The allowed licences by SPDX name. MPL-2.0 only concerns changes to the crate itself.
const ALLOWED: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-3-Clause",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MPL-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Whether one of the alternatives has only allowed licences. A slash is an older form of OR. In an expression with parentheses, all
/// licences have to be allowed.
fn is_allowed(expression: &str) -> bool {
    let is_listed = |licence: &str| ALLOWED.contains(&licence.trim());
    let expression = expression.replace('/', " OR ");
    match expression.contains('(') {
        true => expression.replace(['(', ')'], "").replace(" AND ", " OR ").split(" OR ").all(is_listed),
        false => expression.split(" OR ").any(|each| each.split(" AND ").all(is_listed)),
    }
}

#[test]
fn licences_of_all_crates_are_allowed() {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--edges", "normal,build,dev", "--prefix", "none"])
        .args(["--format", "{l}|{p}", "--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")])
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let lines = String::from_utf8(tree.stdout).unwrap();
    assert!(lines.lines().count() > 100, "the crates were listed:\n{lines}");
    let refused: Vec<&str> =
        lines.lines().filter(|line| !is_allowed(line.split('|').next().unwrap_or_default())).collect();
    assert!(refused.is_empty(), "crates with licences that are not allowed:\n{}", refused.join("\n"));
}

#[test]
fn licence_expressions_need_one_allowed_alternative() {
    for allowed in
        ["MIT", "GPL-3.0 OR MIT", "Unlicense/MIT", "(MIT OR Apache-2.0) AND Unicode-3.0", "Apache-2.0 AND ISC"]
    {
        assert!(is_allowed(allowed), "{allowed}");
    }
    for refused in ["", "GPL-3.0", "MIT AND GPL-3.0", "AGPL-3.0 OR SSPL-1.0", "(MIT OR Apache-2.0) AND GPL-3.0"] {
        assert!(!is_allowed(refused), "{refused}");
    }
}
