//! Sets of completion indexes, written as Jobs write them: `0,2-5`.

use std::collections::BTreeSet;
use std::fmt;

/// A set of completion indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes(pub BTreeSet<i64>);

impl Indexes {
    /// Reads the text form; what is no range, or lies outside of `0..below`, is left out.
    pub fn parse(text: &str, below: i64) -> Indexes {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse::<i64>().ok()?..=last.parse::<i64>().ok()?.min(below - 1))
        };
        Indexes(text.split(',').filter_map(range).flatten().filter(|index| *index >= 0).collect())
    }

    /// Whether the set contains an index.
    pub fn has(&self, index: i64) -> bool {
        self.0.contains(&index)
    }

    /// Number of indexes.
    pub fn len(&self) -> i64 {
        self.0.len() as i64
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut runs: Vec<(i64, i64)> = Vec::new();
        for index in &self.0 {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == *index => *last = *index,
                _ => runs.push((*index, *index)),
            }
        }
        for (at, (first, last)) in runs.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                // Two neighbours are a list, three a range (Kubernetes writes them so).
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Indexes;

    #[test]
    fn reads_and_writes() {
        for (text, wanted) in [
            ("", ""),
            ("0", "0"),
            ("0,1", "0,1"),
            ("0-2", "0-2"),
            ("0,2-5", "0,2-5"),
            ("3,4,5,9", "3-5,9"),
            ("8-20", "8,9"),
        ] {
            assert_eq!(Indexes::parse(text, 10).to_string(), wanted);
        }
        assert_eq!(Indexes::parse("0-9999999999999", 3).len(), 3);
    }
}
