//! Flags as Go's programs take them: `--name=value`, `--name value`, `--name`.
//!
//! Never: knows a flag; the programs list theirs. Start reading at [`ProgramFlags::parse`].

use crate::cli::{CliResult, Failure};

/// The flags of one of the programs, in their order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ProgramFlags(Vec<(String, String)>);

impl ProgramFlags {
    /// Splits arguments. A flag without a value is `true`.
    pub fn parse(words: &[String]) -> ProgramFlags {
        let mut flags = Vec::new();
        let mut words = words.iter().peekable();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix("--").or(word.strip_prefix('-')) else { continue };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None => {
                    let value = words.next_if(|next| !next.starts_with('-'));
                    (flag, value.cloned().unwrap_or_else(|| "true".to_owned()))
                }
            };
            flags.push((name.to_owned(), value));
        }
        ProgramFlags(flags)
    }

    /// Returns the last value of a flag.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(flag, _)| flag == name).map(|(_, value)| value.as_str())
    }

    /// The value of a flag that has to be there.
    pub fn required(&self, name: &str) -> CliResult<&str> {
        self.get(name).ok_or_else(|| Failure::plain(format!("--{name} is required")))
    }

    /// The names of flags that are in none of these lists.
    pub fn unknown(&self, known: &[&[&str]]) -> Vec<&str> {
        let is_known = |name: &str| known.iter().any(|list| list.contains(&name));
        self.0.iter().map(|(name, _)| name.as_str()).filter(|name| !is_known(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_values_in_three_forms() {
        let words = ["--a=1", "--b", "2", "--c", "--a=3", "-d", "-e=x=y"].map(str::to_owned);
        let flags = ProgramFlags::parse(&words);
        let values = ["a", "b", "c", "d", "e", "f"].map(|name| flags.get(name));
        assert_eq!(values, [Some("3"), Some("2"), Some("true"), Some("true"), Some("x=y"), None]);
        assert_eq!(flags.unknown(&[&["a", "b"], &["e"]]), ["c", "d"]);
    }
}
