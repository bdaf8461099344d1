//! Limits on the rate of scaling: stabilization windows and scaling policies per direction (Kubernetes:
//! normalizeDesiredReplicas and its variant with behaviors).

use crate::object::time::Shift;
use crate::object::{Object, Time};
use crate::world::loop_memory::AutoscalerMemory;
use jiff::SignedDuration;
use serde_json::Value;

/// Kubernetes' `--horizontal-pod-autoscaler-downscale-stabilization`.
const DOWNSCALE_WINDOW: i64 = 300;

/// A permitted size, with the conditions that explain it.
#[derive(Debug, PartialEq, Eq)]
pub struct NormalizedReplicas {
    /// The size.
    pub replicas: i64,
    /// Reason and message of `AbleToScale`.
    pub able: (&'static str, &'static str),
    /// Value, reason and message of `ScalingLimited`.
    pub limited: (&'static str, &'static str, &'static str),
}

const WITHIN: (&str, &str, &str) = ("False", "DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_FEW: (&str, &str, &str) =
    ("True", "TooFewReplicas", "the desired replica count is less than the minimum replica count");
const TOO_MANY: (&str, &str, &str) =
    ("True", "TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FAST_UP: (&str, &str, &str) =
    ("True", "ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const TOO_FAST_DOWN: (&str, &str, &str) =
    ("True", "ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");

/// Returns the size that stabilization and policies permit now, given the size that the metrics propose.
pub fn normalize(hpa: &Object, memory: &AutoscalerMemory, current: i64, wanted: i64, now: Time) -> NormalizedReplicas {
    let (stable, able) = stabilize(hpa, memory, current, wanted, now);
    let (replicas, limited) = limit_rate(hpa, memory, current, stable, now);
    NormalizedReplicas { replicas, able, limited }
}

fn window(hpa: &Object, direction: &str) -> i64 {
    let default = if direction == "scaleDown" { DOWNSCALE_WINDOW } else { 0 };
    hpa.int(&["spec", "behavior", direction, "stabilizationWindowSeconds"]).unwrap_or(default)
}

/// Up: the lowest recommendation of the window; down: the highest.
fn stabilize(
    hpa: &Object,
    memory: &AutoscalerMemory,
    current: i64,
    wanted: i64,
    now: Time,
) -> (i64, (&'static str, &'static str)) {
    let within = |seconds: i64| {
        let since = now.earlier(SignedDuration::from_secs(seconds));
        memory.recommendations.iter().filter(move |(at, _)| *at > since).map(|(_, replicas)| *replicas)
    };
    let up = within(window(hpa, "scaleUp")).fold(wanted, i64::min);
    let down = within(window(hpa, "scaleDown")).fold(wanted, i64::max);
    let stable = if current < up { up } else { current.min(down) };
    let able = match () {
        () if stable == wanted => ("ReadyForNewScale", "recommended size matches current size"),
        () if wanted >= current => (
            "ScaleUpStabilized",
            "recent recommendations were lower than current one, applying the lowest recent recommendation",
        ),
        () => (
            "ScaleDownStabilized",
            "recent recommendations were higher than current one, applying the highest recent recommendation",
        ),
    };
    (stable, able)
}

fn limit_rate(
    hpa: &Object,
    memory: &AutoscalerMemory,
    current: i64,
    wanted: i64,
    now: Time,
) -> (i64, (&'static str, &'static str, &'static str)) {
    let least = hpa.int(&["spec", "minReplicas"]).unwrap_or(1);
    let most = hpa.int(&["spec", "maxReplicas"]).unwrap_or(i64::MAX);
    if wanted > current {
        let fastest = fastest_up(hpa, memory, current, now).max(current);
        let (bound, why) = if most > fastest { (fastest, TOO_FAST_UP) } else { (most, TOO_MANY) };
        return if wanted > bound { (bound, why) } else { (wanted, WITHIN) };
    }
    let slowest = fastest_down(hpa, memory, current, now).min(current);
    let (bound, why) = if least < slowest { (slowest, TOO_FAST_DOWN) } else { (least, TOO_FEW) };
    if wanted < bound { (bound, why) } else { (wanted, WITHIN) }
}

fn fastest_up(hpa: &Object, memory: &AutoscalerMemory, current: i64, now: Time) -> i64 {
    let Some(rules) = hpa.value_at(&["spec", "behavior", "scaleUp"]) else { return (2 * current).max(4) };
    let bound = |kind: &str, value: i64, added: i64, removed: i64| {
        let start = current - added + removed;
        if kind == "Pods" { start.saturating_add(value) } else { percent_up(start, value) }
    };
    select_bound(rules, memory, now, bound, i64::max, i64::min).unwrap_or(current)
}

/// KEP-853: a percentage of the size at the start of the period, rounded up.
fn percent_up(start: i64, percent: i64) -> i64 {
    (start.saturating_mul(100 + percent) + 99) / 100
}

fn fastest_down(hpa: &Object, memory: &AutoscalerMemory, current: i64, now: Time) -> i64 {
    let Some(rules) = hpa.value_at(&["spec", "behavior", "scaleDown"]) else { return i64::MIN };
    let bound = |kind: &str, value: i64, added: i64, removed: i64| {
        let start = current - added + removed;
        if kind == "Pods" {
            start.saturating_sub(value)
        } else {
            start.saturating_mul(100_i64.saturating_sub(value)).max(0) / 100
        }
    };
    select_bound(rules, memory, now, bound, i64::min, i64::max).unwrap_or(current)
}

/// The bound of the policy that permits the largest or smallest change; `None` when scaling in this direction is
/// disabled.
fn select_bound(
    rules: &Value,
    memory: &AutoscalerMemory,
    now: Time,
    bound: impl Fn(&str, i64, i64, i64) -> i64,
    most: fn(i64, i64) -> i64,
    least: fn(i64, i64) -> i64,
) -> Option<i64> {
    let pick = match rules["selectPolicy"].as_str() {
        Some("Disabled") => return None,
        Some("Min") => least,
        _ => most,
    };
    let policies = rules["policies"].as_array().into_iter().flatten();
    let bounds = policies.map(|policy| {
        let since = now.earlier(SignedDuration::from_secs(policy["periodSeconds"].as_i64().unwrap_or(15)));
        let changes = || memory.scalings.iter().filter(move |(at, _)| *at > since).map(|(_, change)| *change);
        let added = changes().filter(|change| *change > 0).sum();
        let removed = -changes().filter(|change| *change < 0).sum::<i64>();
        bound(policy["type"].as_str().unwrap_or_default(), policy["value"].as_i64().unwrap_or(0), added, removed)
    });
    bounds.reduce(pick)
}

/// Relative deviation from the target that causes no scaling.
pub fn tolerance(hpa: &Object, is_up: bool) -> f64 {
    let direction = if is_up { "scaleUp" } else { "scaleDown" };
    let text = hpa.value_at(&["spec", "behavior", direction, "tolerance"]).and_then(Value::as_str);
    let own = text.and_then(|text| crate::object::Quantity::parse(text).ok());
    own.map_or(0.1, |amount| amount.milli() as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn time_at(second: i64) -> Time {
        Time::from_second(1_000_000 + second).unwrap()
    }

    fn sizes(spec: Value, memory: &AutoscalerMemory, cases: &[(i64, i64, i64, &str)]) {
        let hpa = Object(json!({"spec": spec}));
        for (current, wanted, expected, why) in cases {
            let found = normalize(&hpa, memory, *current, *wanted, time_at(0));
            let reason = if found.limited == WITHIN { found.able.0 } else { found.limited.1 };
            assert_eq!((found.replicas, reason), (*expected, *why), "{current} to {wanted}");
        }
    }

    #[test]
    fn default_behavior_doubles_at_most_and_delays_scale_down() {
        let spec = json!({"minReplicas": 2, "maxReplicas": 50});
        let fresh = AutoscalerMemory::default();
        let cases = [
            (1, 3, 3, "ReadyForNewScale"),
            (1, 9, 4, "ScaleUpLimit"),
            (10, 45, 20, "ScaleUpLimit"),
            (30, 60, 50, "TooManyReplicas"),
            (10, 1, 2, "TooFewReplicas"),
            (10, 5, 5, "ReadyForNewScale"),
        ];
        sizes(spec.clone(), &fresh, &cases);
        let busy = AutoscalerMemory {
            recommendations: vec![(time_at(-400), 10), (time_at(-200), 8)],
            ..AutoscalerMemory::default()
        };
        sizes(spec, &busy, &[(10, 5, 8, "ScaleDownStabilized"), (8, 9, 9, "ReadyForNewScale")]);
    }

    #[test]
    fn policies_limit_changes_within_a_period() {
        let policy = |kind: &str, value: i64| json!({"type": kind, "value": value, "periodSeconds": 60});
        let up = json!({"selectPolicy": "Min", "stabilizationWindowSeconds": 60, "policies": [policy("Pods", 3), policy("Percent", 100)]});
        let down = json!({"selectPolicy": "Max", "stabilizationWindowSeconds": 0, "policies": [policy("Percent", 50)]});
        let spec = json!({"maxReplicas": 100, "behavior": {"scaleUp": up, "scaleDown": down}});
        let cases = [(2, 9, 4, "ScaleUpLimit"), (10, 99, 13, "ScaleUpLimit"), (10, 1, 5, "ScaleDownLimit")];
        sizes(spec.clone(), &AutoscalerMemory::default(), &cases);
        let moved =
            AutoscalerMemory { scalings: vec![(time_at(-30), 2), (time_at(-90), 7)], ..AutoscalerMemory::default() };
        sizes(spec.clone(), &moved, &[(10, 99, 11, "ScaleUpLimit")]);
        let calm = AutoscalerMemory { recommendations: vec![(time_at(-30), 3)], ..AutoscalerMemory::default() };
        sizes(spec, &calm, &[(2, 9, 3, "ScaleUpStabilized")]);
        let off = json!({"maxReplicas": 9, "behavior": {"scaleDown": {"selectPolicy": "Disabled", "stabilizationWindowSeconds": 0}}});
        sizes(off, &AutoscalerMemory::default(), &[(5, 1, 5, "ScaleDownLimit")]);
    }
}
