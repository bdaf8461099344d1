//! Random numbers of a run, all from one seed.

use kloop::object::random::splitmix64;

/// A random number generator.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    fn next(&mut self) -> u64 {
        splitmix64(&mut self.0)
    }

    /// Returns a number from 0 to below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { (self.next() % end as u64) as usize }
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as usize) as i64
    }

    /// Returns true with the probability 1/`times`.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Returns one of these.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }

    /// Returns one of these, with a probability proportional to its weight.
    pub fn weighted<T: Copy>(&mut self, items: &[(usize, T)]) -> T {
        let mut at = self.below(items.iter().map(|(weight, _)| weight).sum());
        for (weight, item) in items {
            if at < *weight {
                return *item;
            }
            at -= weight;
        }
        items[0].1
    }
}
