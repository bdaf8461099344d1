//! Ranges of sizes and costs. Sums and products saturate.
//!
//! Never: knows the unit. Start reading at [`Range`].

/// A least and a greatest number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The lower bound.
    pub min: u64,
    /// The upper bound.
    pub max: u64,
}

impl Range {
    /// Any number.
    pub const UNKNOWN: Range = Range { min: 0, max: u64::MAX };
    /// The empty range, with which a union starts.
    pub const NOTHING: Range = Range { min: u64::MAX, max: 0 };

    /// Makes a range of one number.
    pub const fn exactly(number: u64) -> Range {
        Range { min: number, max: number }
    }

    /// Makes a range from zero to a number.
    pub const fn up_to(max: u64) -> Range {
        Range { min: 0, max }
    }

    /// Returns the range of sums.
    pub fn plus(self, other: Range) -> Range {
        Range { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    /// Returns the range of products.
    pub fn multiply(self, other: Range) -> Range {
        Range { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// Multiplies by a factor, and rounds up.
    pub fn scale(self, factor: f64) -> Range {
        // A conversion of a float to an integer stops at the largest one, too.
        let scale = |number: u64| (number as f64 * factor).ceil() as u64;
        Range { min: scale(self.min), max: scale(self.max) }
    }

    /// Returns the smallest range that contains both.
    pub fn union(self, other: Range) -> Range {
        Range { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}
