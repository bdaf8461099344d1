//! Ranges of sizes and costs; sums and products stop at the largest number.

/// A least and a greatest number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The least.
    pub min: u64,
    /// The greatest.
    pub max: u64,
}

impl Range {
    /// Any number.
    pub const UNKNOWN: Range = Range { min: 0, max: u64::MAX };
    /// No number: the start of a union.
    pub const NOTHING: Range = Range { min: u64::MAX, max: 0 };

    /// One number.
    pub const fn exactly(number: u64) -> Range {
        Range { min: number, max: number }
    }

    /// Up to a number.
    pub const fn upto(max: u64) -> Range {
        Range { min: 0, max }
    }

    /// The sum.
    pub fn plus(self, other: Range) -> Range {
        Range { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    /// The product.
    pub fn multiply(self, other: Range) -> Range {
        Range { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// The product with a factor, rounded up.
    pub fn scale(self, factor: f64) -> Range {
        // Conversion of a float to an integer stops at the largest one, too.
        let scale = |number: u64| (number as f64 * factor).ceil() as u64;
        Range { min: scale(self.min), max: scale(self.max) }
    }

    /// The range that contains both.
    pub fn union(self, other: Range) -> Range {
        Range { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}
