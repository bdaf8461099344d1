//! The names of objects by the rules of their kinds.
//!
//! The forms of names and short texts are in [`crate::object::names`].
//! Never: knows the field of a text; the caller adds it with [`super::super::FieldErrors::each_invalid`].
//! Start reading at [`check_name`].

use super::field::NameRule;
pub use crate::object::names::*;

/// Validates a name by a kind's rule.
pub fn check_name(rule: NameRule, name: &str) -> Vec<String> {
    match rule {
        NameRule::Subdomain => subdomain(name),
        NameRule::Label => label(name),
        NameRule::Label1035 => label_1035(name),
        NameRule::PathSegment => path_segment(name),
    }
}

/// Validates `generateName`: like a name, but it may end in a dash, since a suffix follows.
pub fn check_name_prefix(rule: NameRule, prefix: &str) -> Vec<String> {
    let mut masked = prefix.to_owned();
    if masked.len() > 1 && masked.ends_with('-') {
        masked.truncate(masked.len() - 1);
        masked.pop();
        masked.push('a');
    }
    match rule {
        NameRule::PathSegment => path_segment_prefix(prefix),
        rule => check_name(rule, &masked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_may_end_in_a_dash() {
        assert!(check_name_prefix(NameRule::Subdomain, "gen-").is_empty());
        assert!(check_name_prefix(NameRule::Subdomain, "a-").is_empty());
        assert!(!check_name_prefix(NameRule::Subdomain, "Gen_").is_empty());
        assert!(!check_name_prefix(NameRule::Subdomain, "-").is_empty());
    }
}
