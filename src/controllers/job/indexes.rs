//! Sets of completion indexes in the text form of Job statuses: `0,2-5`.

use std::collections::BTreeMap;
use std::fmt;

/// A set of completion indexes, stored as runs of consecutive ones, since a Job can have 2147483647 indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes {
    /// Maps the first index of each run to the last. Runs neither overlap nor touch.
    runs: BTreeMap<i64, i64>,
}

impl Indexes {
    /// Parses the text form. Skips malformed parts and indexes outside of `0..below`.
    pub fn parse(text: &str, below: i64) -> Indexes {
        let mut indexes = Indexes::default();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.parse::<i64>(), last.parse::<i64>()) {
                indexes.insert_run(first.max(0), last.min(below.saturating_sub(1)));
            }
        }
        indexes
    }

    /// Adds an index.
    pub fn insert(&mut self, index: i64) {
        self.insert_run(index, index);
    }

    /// Adds the indexes from `first` to `last`; does nothing when `first` is greater.
    fn insert_run(&mut self, mut first: i64, mut last: i64) {
        if first > last {
            return;
        }
        // Runs that overlap or touch the new one become part of it.
        while let Some((known, end)) = self.runs.range(..=last.saturating_add(1)).next_back().map(|(a, b)| (*a, *b)) {
            if end.saturating_add(1) < first {
                break;
            }
            self.runs.remove(&known);
            (first, last) = (first.min(known), last.max(end));
        }
        self.runs.insert(first, last);
    }

    /// Whether the set contains an index.
    pub fn has(&self, index: i64) -> bool {
        self.end_of_run(index).is_some()
    }

    /// The last index of the run that contains this index.
    pub fn end_of_run(&self, index: i64) -> Option<i64> {
        let (_, last) = self.runs.range(..=index).next_back()?;
        (*last >= index).then_some(*last)
    }

    /// Counts the indexes that are also in the other set.
    pub fn count_common(&self, other: &Indexes) -> i64 {
        let (mut mine, mut theirs) = (self.runs.iter().peekable(), other.runs.iter().peekable());
        let mut count = 0;
        while let (Some((first, last)), Some((their_first, their_last))) = (mine.peek(), theirs.peek()) {
            count += (*last.min(their_last) - *first.max(their_first) + 1).max(0);
            if last < their_last {
                mine.next()
            } else {
                theirs.next()
            };
        }
        count
    }

    /// Number of indexes.
    pub fn len(&self) -> i64 {
        self.runs.iter().map(|(first, last)| last - first + 1).sum()
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.runs.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                // Kubernetes writes two consecutive indexes as a list, three or more as a range.
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
    fn indexes_parse_and_print() {
        for (text, wanted) in [
            ("", ""),
            ("0", "0"),
            ("0,1", "0,1"),
            ("0-2", "0-2"),
            ("0,2-5", "0,2-5"),
            ("3,4,5,9", "3-5,9"),
            ("5,3,4,9,6-8", "3-9"),
            ("0-7,2-3,9", "0-7,9"),
            ("-1,a,2-b,7-5,4", "4"),
            ("8-20", "8,9"),
        ] {
            assert_eq!(Indexes::parse(text, 10).to_string(), wanted);
        }
        assert_eq!(Indexes::parse("0-9999999999999", 3).len(), 3);
    }

    #[test]
    fn completion_indexes_of_a_huge_job_need_little_memory() {
        let mut all = Indexes::parse("0-9,20-2147483646", 2147483647);
        assert_eq!((all.len(), all.end_of_run(5), all.end_of_run(10)), (2147483637, Some(9), None));
        (10..20).for_each(|index| all.insert(index));
        assert_eq!(all.count_common(&Indexes::parse("5-24,2147483646", 2147483647)), 21);
        assert_eq!(all.count_common(&Indexes::default()), 0);
        assert_eq!((all.to_string().as_str(), all.runs.len()), ("0-2147483646", 1));
    }
}
