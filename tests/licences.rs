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

/// Checks the licences of the crates that a package needs; an error when cargo cannot list them.
fn check(manifest: &str) -> Result<(), String> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--edges", "normal,build,dev", "--prefix", "none"])
        .args(["--format", "{l}|{p}", "--manifest-path", &format!("{}/{manifest}", env!("CARGO_MANIFEST_DIR"))])
        .output()
        .unwrap();
    if !tree.status.success() {
        return Err(String::from_utf8_lossy(&tree.stderr).into_owned());
    }
    let lines = String::from_utf8(tree.stdout).unwrap();
    assert!(lines.lines().count() > 100, "the crates were listed:\n{lines}");
    let refused: Vec<&str> =
        lines.lines().filter(|line| !is_allowed(line.split('|').next().unwrap_or_default())).collect();
    assert!(refused.is_empty(), "crates with licences that are not allowed:\n{}", refused.join("\n"));
    Ok(())
}

#[test]
fn licences_of_all_crates_are_allowed() {
    check("Cargo.toml").unwrap();
}

#[test]
fn licences_of_the_test_client_are_allowed() {
    // Its crates are there only where it was built.
    if check("tests/serving/clients/kube/Cargo.toml").is_err() {
        skip!("the client of Rust is not installed");
    }
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
