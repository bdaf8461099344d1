//! Makes room in a table of clients: where it is full, the client that has been idle longest leaves, as in conntrack.
//!
//! Never: closes a socket; the dropped entry does. Start reading at [`make_room`].

use std::collections::HashMap;
use std::hash::Hash;
use tokio::time::Instant;

/// Removes the entry that was used longest ago from a table with `max` entries or more, and returns it. A new entry fits afterwards.
pub fn make_room<K: Copy + Eq + Hash, V>(
    table: &mut HashMap<K, V>,
    max: usize,
    used: impl Fn(&V) -> Instant,
) -> Option<V> {
    if table.len() < max {
        return None;
    }
    let oldest = table.iter().min_by_key(|(_, entry)| used(entry)).map(|(key, _)| *key)?;
    table.remove(&oldest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn full_table_loses_the_entry_that_was_used_longest_ago() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut table = HashMap::from([("a", at(5)), ("b", at(1)), ("c", at(9))]);
        assert_eq!(make_room(&mut table, 4, |used| *used), None);
        assert_eq!(make_room(&mut table, 3, |used| *used), Some(at(1)));
        assert_eq!((table.len(), table.contains_key("b")), (2, false));
    }
}
