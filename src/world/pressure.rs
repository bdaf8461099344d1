//! Remaining amounts of shared resources, and the eviction thresholds below which a node acts.
//!
//! Thresholds are written as for the kubelet: a signal, `<`, and a quantity or a percentage. Start reading at
//! [`NodePressure::update`].

use crate::object::{Quantity, Time};
use jiff::SignedDuration;
use std::collections::BTreeMap;

/// Resources that can run out, in the order in which they are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PressureSignal {
    /// Memory.
    Memory,
    /// Space on the file system that holds the pods' folders.
    Storage,
    /// Inodes on the file system that holds the pods' folders.
    Inodes,
    /// Process numbers.
    Pids,
}

impl PressureSignal {
    /// Every signal.
    pub const ALL: [PressureSignal; 4] =
        [PressureSignal::Memory, PressureSignal::Storage, PressureSignal::Inodes, PressureSignal::Pids];

    /// The kubelet's name.
    pub fn name(self) -> &'static str {
        match self {
            PressureSignal::Memory => "memory.available",
            PressureSignal::Storage => "nodefs.available",
            PressureSignal::Inodes => "nodefs.inodesFree",
            PressureSignal::Pids => "pid.available",
        }
    }

    /// The resource that is short, as messages name it.
    pub fn resource(self) -> &'static str {
        match self {
            PressureSignal::Memory => "memory",
            PressureSignal::Storage => "ephemeral-storage",
            PressureSignal::Inodes => "inodes",
            PressureSignal::Pids => "pids",
        }
    }

    /// The condition of a node on which it is short.
    pub fn condition(self) -> &'static str {
        match self {
            PressureSignal::Memory => "MemoryPressure",
            PressureSignal::Storage | PressureSignal::Inodes => "DiskPressure",
            PressureSignal::Pids => "PIDPressure",
        }
    }

    /// An amount of the resource as a quantity.
    pub fn amount(self, amount: i64) -> Quantity {
        match self {
            PressureSignal::Memory | PressureSignal::Storage => Quantity::from_bytes(amount),
            PressureSignal::Inodes | PressureSignal::Pids => Quantity::from_int(amount),
        }
    }
}

/// Remaining amount of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceLevel {
    /// Available amount.
    pub available: i64,
    /// Total amount.
    pub capacity: i64,
}

/// Measured levels by signal.
pub type ResourceLevels = BTreeMap<PressureSignal, ResourceLevel>;

/// The amount of a threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ThresholdAmount {
    /// An absolute amount.
    Exactly(i64),
    /// A percentage of the capacity.
    Percent(f64),
}

impl ThresholdAmount {
    /// Returns the absolute amount for a capacity.
    pub fn resolve(self, capacity: i64) -> i64 {
        match self {
            ThresholdAmount::Exactly(amount) => amount,
            ThresholdAmount::Percent(percent) => (capacity as f64 * percent / 100.0) as i64,
        }
    }

    fn parse(text: &str) -> Result<ThresholdAmount, String> {
        let Some(percent) = text.strip_suffix('%') else {
            let amount = Quantity::parse(text).map_err(|error| error.to_string())?;
            return match amount.is_negative() {
                true => Err(format!("eviction threshold value {text:?} must be positive")),
                false => Ok(ThresholdAmount::Exactly(amount.value())),
            };
        };
        match percent.parse::<f64>() {
            Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(ThresholdAmount::Percent(percent)),
            _ => Err(format!("eviction percentage threshold {text:?} must be between 0% and 100%")),
        }
    }
}

/// A threshold for evictions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvictionThreshold {
    /// The measured resource.
    pub signal: PressureSignal,
    /// The threshold.
    pub amount: ThresholdAmount,
    /// Time that the threshold may stay crossed before eviction; zero for a hard threshold.
    pub grace: SignedDuration,
    /// Minimum amount to reclaim before eviction stops.
    pub reclaim: Option<ThresholdAmount>,
}

/// All thresholds of a node; without any, no pod is evicted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvictionThresholds {
    /// The thresholds.
    pub list: Vec<EvictionThreshold>,
    /// Time that a node condition outlasts its cause (`evictionPressureTransitionPeriod`).
    pub transition: SignedDuration,
}

/// Thresholds as the kubelet's flags take them, one list each.
#[derive(Clone, Copy, Debug, Default)]
pub struct EvictionFlags<'a> {
    /// `memory.available<100Mi,nodefs.available<5%`.
    pub hard: &'a str,
    /// Soft thresholds, in the same form.
    pub soft: &'a str,
    /// `memory.available=1m30s`.
    pub soft_grace: &'a str,
    /// `memory.available=100Mi`.
    pub minimum_reclaim: &'a str,
}

impl EvictionThresholds {
    /// Reads settings.
    pub fn parse(words: EvictionFlags<'_>, transition: SignedDuration) -> Result<EvictionThresholds, String> {
        let graces = pairs(words.soft_grace, '=', crate::object::time::parse_duration)?;
        let reclaims = pairs(words.minimum_reclaim, '=', ThresholdAmount::parse)?;
        let mut list = Vec::new();
        for (signal, amount) in pairs(words.hard, '<', ThresholdAmount::parse)? {
            let reclaim = reclaims.get(&signal).copied();
            list.push(EvictionThreshold { signal, amount, grace: SignedDuration::ZERO, reclaim });
        }
        for (signal, amount) in pairs(words.soft, '<', ThresholdAmount::parse)? {
            let missing =
                || format!("grace period must be specified for the soft eviction threshold {}", signal.name());
            let grace = *graces.get(&signal).ok_or_else(missing)?;
            list.push(EvictionThreshold { signal, amount, grace, reclaim: reclaims.get(&signal).copied() });
        }
        Ok(EvictionThresholds { list, transition })
    }

    /// Signals that have to be measured.
    pub fn signals(&self) -> impl Iterator<Item = PressureSignal> {
        PressureSignal::ALL.into_iter().filter(|signal| self.list.iter().any(|line| line.signal == *signal))
    }
}

/// Parses a comma-separated list of signals, each followed by a sign and a value.
fn pairs<T, E: std::fmt::Display>(
    text: &str,
    sign: char,
    value: impl Fn(&str) -> Result<T, E>,
) -> Result<BTreeMap<PressureSignal, T>, String> {
    let mut found = BTreeMap::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, written) = part
            .split_once(sign)
            .ok_or_else(|| format!("invalid eviction threshold syntax {part}, expected <signal>{sign}<value>"))?;
        let signal = PressureSignal::ALL.into_iter().find(|signal| signal.name() == name).ok_or_else(|| {
            let known: Vec<&str> = PressureSignal::ALL.iter().map(|signal| signal.name()).collect();
            format!("unsupported eviction signal {name}; there are {}", known.join(", "))
        })?;
        let read = value(written).map_err(|error| format!("invalid value {written:?} of {name}: {error}"))?;
        if found.insert(signal, read).is_some() {
            return Err(format!("duplicate eviction threshold {name}"));
        }
    }
    Ok(found)
}

/// Current state of a machine against its thresholds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePressure {
    /// Last measured levels.
    pub levels: ResourceLevels,
    /// Time of the last measurement.
    pub at: Option<Time>,
    /// Crossed thresholds by index, and since when.
    crossed: BTreeMap<usize, Time>,
    /// When a threshold of this condition was last crossed.
    seen: BTreeMap<&'static str, Time>,
}

impl NodePressure {
    /// Records a measurement. True when a condition holds now or held before it.
    pub fn update(&mut self, levels: ResourceLevels, thresholds: &EvictionThresholds, now: Time) -> bool {
        let was = !self.seen.is_empty();
        for (place, line) in thresholds.list.iter().enumerate() {
            let since = self.crossed.remove(&place);
            let Some(level) = levels.get(&line.signal) else { continue };
            let more = line.reclaim.filter(|_| since.is_some()).map_or(0, |more| more.resolve(level.capacity));
            if level.available < line.amount.resolve(level.capacity).saturating_add(more) {
                self.crossed.insert(place, since.unwrap_or(now));
                self.seen.insert(line.signal.condition(), now);
            }
        }
        // One second of tolerance: the pause between measurements varies a little.
        let lasts =
            |last: Time| now.duration_since(last).saturating_add(SignedDuration::from_secs(1)) < thresholds.transition;
        self.seen.retain(|_, last| *last == now || lasts(*last));
        (self.levels, self.at) = (levels, Some(now));
        was || !self.seen.is_empty()
    }

    /// Whether a node condition holds: a threshold is crossed now or was recently.
    pub fn holds(&self, condition: &str) -> bool {
        self.seen.contains_key(condition)
    }

    /// Returns the crossed threshold that requires an eviction, with the remaining amount.
    pub fn due(&self, thresholds: &EvictionThresholds) -> Option<(EvictionThreshold, ResourceLevel)> {
        let at = self.at?;
        let late = |(place, since): (&usize, &Time)| {
            let line = thresholds.list.get(*place)?;
            (at.duration_since(*since) >= line.grace).then_some(*line)
        };
        let first = self.crossed.iter().filter_map(late).min_by_key(|line| line.signal)?;
        Some((first, *self.levels.get(&first.signal)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::testing::time_at;

    fn thresholds(words: EvictionFlags<'_>) -> EvictionThresholds {
        EvictionThresholds::parse(words, SignedDuration::from_secs(60)).unwrap()
    }

    #[test]
    fn settings_are_read_as_the_kubelet_reads_them() {
        let hard = |hard| EvictionFlags { hard, ..EvictionFlags::default() };
        let found = thresholds(hard("memory.available<100Mi,nodefs.available<5%"));
        let amounts: Vec<_> = found.list.iter().map(|line| (line.signal, line.amount)).collect();
        assert_eq!(
            amounts,
            [
                (PressureSignal::Memory, ThresholdAmount::Exactly(100 << 20)),
                (PressureSignal::Storage, ThresholdAmount::Percent(5.0))
            ]
        );
        assert_eq!(thresholds(hard("")).list, []);
        let soft = EvictionFlags { soft: "memory.available<1Gi", ..EvictionFlags::default() };
        let table = [
            (
                hard("memory.available>1"),
                "invalid eviction threshold syntax memory.available>1, expected <signal><<value>",
            ),
            (
                hard("cpu<1"),
                "unsupported eviction signal cpu; there are memory.available, nodefs.available, nodefs.inodesFree, pid.available",
            ),
            (hard("nodefs.available<200%"), "must be between 0% and 100%"),
            (hard("memory.available<x"), "quantities must match"),
            (hard("memory.available<1,memory.available<2"), "duplicate eviction threshold memory.available"),
            (soft, "grace period must be specified for the soft eviction threshold memory.available"),
        ];
        for (words, said) in table {
            let error = EvictionThresholds::parse(words, SignedDuration::ZERO).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn lines_are_crossed_and_kept_again() {
        let words = EvictionFlags {
            hard: "memory.available<100",
            soft: "memory.available<200",
            soft_grace: "memory.available=30s",
            minimum_reclaim: "memory.available=50",
        };
        let thresholds = thresholds(words);
        let mut pressure = NodePressure::default();
        // Time, remaining amount, whether the condition holds, and the threshold that requires an eviction.
        let table = [
            (0, 500, false, None),
            (10, 150, true, None),
            (30, 150, true, None),
            (40, 150, true, Some(200)),
            (50, 90, true, Some(100)),
            (60, 140, true, Some(100)),
            (70, 160, true, Some(200)),
            (80, 240, true, Some(200)),
            (90, 260, true, None),
            (138, 260, true, None),
            (140, 260, false, None),
        ];
        for (second, available, holds, line) in table {
            let levels = [(PressureSignal::Memory, ResourceLevel { available, capacity: 1000 })].into();
            pressure.update(levels, &thresholds, time_at(second));
            let due = pressure.due(&thresholds).map(|(line, _)| line.amount.resolve(1000));
            assert_eq!((pressure.holds("MemoryPressure"), due), (holds, line), "{second}");
        }
    }
}
