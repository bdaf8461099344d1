//! Semantic versions (`github.com/blang/semver`).
//!
//! Start reading at [`parse`] and [`compare`].

use std::cmp::Ordering;

/// A version.
#[derive(Debug)]
pub struct Semver {
    /// Major, minor and patch.
    pub numbers: [u64; 3],
    /// The parts after `-`.
    pre: Vec<String>,
}

/// Removes `v` and leading zeros of a version, and adds numbers until there are three.
pub fn normalize(text: &str) -> String {
    let text = text.trim();
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let mut numbers: Vec<String> = text[..end]
        .splitn(3, '.')
        .map(|number| match number.trim_start_matches('0') {
            "" if !number.is_empty() => "0".to_owned(),
            number => number.to_owned(),
        })
        .collect();
    while numbers.len() < 3 {
        numbers.push("0".into());
    }
    format!("{}{}", numbers.join("."), &text[end..])
}

/// Parses a version, with the errors of `blang/semver`.
pub fn parse(text: &str) -> Result<Semver, String> {
    if text.is_empty() {
        return Err("Version string empty".into());
    }
    let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
    let (text, pre) = text.split_once('-').map_or((text, None), |(text, pre)| (text, Some(pre)));
    let parts: Vec<&str> = text.splitn(3, '.').collect();
    let [major, minor, patch] = parts.as_slice() else { return Err("No Major.Minor.Patch elements found".into()) };
    let mut numbers = [0; 3];
    for (index, (name, part)) in [("major", major), ("minor", minor), ("patch", patch)].into_iter().enumerate() {
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!("Invalid character(s) found in {name} number {part:?}"));
        }
        if part.len() > 1 && part.starts_with('0') {
            let name = name[..1].to_uppercase() + &name[1..];
            return Err(format!("{name} number must not contain leading zeroes {part:?}"));
        }
        numbers[index] =
            part.parse().map_err(|_| format!("strconv.ParseUint: parsing {part:?}: value out of range"))?;
    }
    let is_part =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let pre: Vec<String> = pre.into_iter().flat_map(|pre| pre.split('.')).map(str::to_owned).collect();
    for part in pre.iter().map(String::as_str).chain(build.into_iter().flat_map(|build| build.split('.'))) {
        if !is_part(part) {
            return Err(format!("Invalid character(s) found in prerelease {part:?}"));
        }
    }
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(part) = pre.iter().find(|part| part.len() > 1 && part.starts_with('0') && is_number(part)) {
        return Err(format!("Numeric PreRelease version must not contain leading zeroes {part:?}"));
    }
    Ok(Semver { numbers, pre })
}

/// The order of two versions; a pre-release is lower than its version.
pub fn compare(one: &Semver, other: &Semver) -> Ordering {
    let order = one.numbers.cmp(&other.numbers);
    if order != Ordering::Equal {
        return order;
    }
    match (one.pre.is_empty(), other.pre.is_empty()) {
        (true, true) => return Ordering::Equal,
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    for (a, b) in one.pre.iter().zip(&other.pre) {
        let order = match (a.parse::<u64>(), b.parse::<u64>()) {
            (Ok(a), Ok(b)) => a.cmp(&b),
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
            (Err(_), Err(_)) => a.cmp(b),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    one.pre.len().cmp(&other.pre.len())
}
