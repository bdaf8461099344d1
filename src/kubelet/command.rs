//! `$(VAR)` in commands, arguments and values of variables: Kubernetes' expansion.
//!
//! Knows: the variables of a container, and the bytes that they may take. Never: reads an object. Start reading at [`Variables::expand`].

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

/// Maximum bytes of the variables, commands and arguments in all starts that one plan makes for a pod. Variables that name each other
/// double in length at each step. Linux passes a quarter of the stack's limit to a program (`execve(2)`), by default 2 MiB.
pub const MAX_START_BYTES: usize = 8 << 20;

/// Variables in order; of two with one name, the later one counts.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    list: Vec<(String, String)>,
    /// The last place of each name among the first `indexed` variables.
    places: HashMap<String, usize>,
    indexed: usize,
}

impl From<Vec<(String, String)>> for Variables {
    fn from(list: Vec<(String, String)>) -> Variables {
        Variables { list, ..Variables::default() }
    }
}

impl Variables {
    /// Adds a variable, and takes its bytes from those that are left.
    pub fn push(&mut self, name: String, value: String, left: &Cell<usize>) -> Result<(), String> {
        take_bytes(left, name.len() + value.len())?;
        self.list.push((name, value));
        Ok(())
    }

    /// Returns the variables, each name once: the last one, at its place.
    pub fn into_list(self) -> Vec<(String, String)> {
        let mut seen = HashSet::new();
        let is_last: Vec<bool> = self.list.iter().rev().map(|(name, _)| seen.insert(name.as_str())).collect();
        if is_last.iter().all(|is_last| *is_last) {
            return self.list;
        }
        let marked = self.list.into_iter().zip(is_last.into_iter().rev());
        marked.filter_map(|(one, is_last)| is_last.then_some(one)).collect()
    }

    /// Expands references to known variables. Unknown ones stay as they are written, `$$` is one dollar. The error is for a result that is
    /// longer than the bytes that are left.
    pub fn expand(&mut self, text: &str, left: &Cell<usize>) -> Result<String, String> {
        let mut expanded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            expanded.push_str(&rest[..at]);
            let after = &rest[at + 1..];
            let used = self.push_reference(after, &mut expanded);
            rest = &after[used..];
            check_bytes(left, expanded.len())?;
        }
        expanded.push_str(rest);
        check_bytes(left, expanded.len())?;
        Ok(expanded)
    }

    /// Expands the words of a command, and takes their bytes from those that are left.
    pub fn expand_words(&mut self, words: &[String], left: &Cell<usize>) -> Result<Vec<String>, String> {
        let mut expand = |word: &String| {
            let expanded = self.expand(word, left)?;
            take_bytes(left, expanded.len())?;
            Ok(expanded)
        };
        words.iter().map(&mut expand).collect()
    }

    /// Appends the value of a reference after a dollar sign. Returns the length of the reference, in bytes of `after`.
    fn push_reference(&mut self, after: &str, expanded: &mut String) -> usize {
        if after.starts_with('$') {
            expanded.push('$');
            return 1;
        }
        let Some((name, _)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) else {
            expanded.push('$');
            return 0;
        };
        match self.value(name) {
            Some(value) => expanded.push_str(value),
            None => expanded.extend(["$(", name, ")"]),
        }
        name.len() + 2
    }

    fn value(&mut self, name: &str) -> Option<&str> {
        for place in self.indexed..self.list.len() {
            self.places.insert(self.list[place].0.clone(), place);
        }
        self.indexed = self.list.len();
        let place = *self.places.get(name)?;
        Some(&self.list[place].1)
    }
}

fn check_bytes(left: &Cell<usize>, bytes: usize) -> Result<(), String> {
    match bytes <= left.get() {
        true => Ok(()),
        false => Err(format!(
            "environment variables, commands and arguments of the pod take more than {MAX_START_BYTES} bytes, with references expanded"
        )),
    }
}

fn take_bytes(left: &Cell<usize>, bytes: usize) -> Result<(), String> {
    check_bytes(left, bytes)?;
    left.set(left.get() - bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{MAX_START_BYTES, Variables};
    use std::cell::Cell;

    #[test]
    fn references() {
        let list = [("A", "1"), ("B_C", "two"), ("EMPTY", ""), ("A", "last"), ("X", "$(A)")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut variables = Variables::from(Vec::from(list));
        let left = Cell::new(MAX_START_BYTES);
        let cases = [
            ("", ""),
            ("plain", "plain"),
            ("$(A)", "last"),
            ("-$(A)-$(B_C)-", "-last-two-"),
            ("$(EMPTY)", ""),
            ("$(NOPE)", "$(NOPE)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$last"),
            ("$$$$(A)", "$$(A)"),
            ("$", "$"),
            ("$$", "$"),
            ("a$", "a$"),
            ("$A", "$A"),
            ("${A}", "${A}"),
            ("$(A", "$(A"),
            ("$()", "$()"),
            ("$(A))", "last)"),
            ("$($(A))", "$($(A))"),
            ("$(X)", "$(A)"),
            ("100% $(A) é", "100% last é"),
        ];
        for (text, expected) in cases {
            assert_eq!(variables.expand(text, &left).as_deref(), Ok(expected), "{text}");
        }
    }
}
