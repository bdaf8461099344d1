//! Times and durations come from users' objects, and their operators panic on overflow; `Shift::later` and `Shift::earlier` do not.

use super::assert_none;
use super::sources::product;
use super::syntax::Sum;

/// Modules that calculate with times of objects.
const COMPUTING: [&str; 9] =
    ["kinds", "world", "controllers", "scheduler", "kubelet", "network", "apiserver", "reconcile", "diagnosis"];

/// Files that may add constants to the current time.
const BY_CLOCK: [&str; 5] = [
    "src/controllers/horizontalpodautoscaler/mod.rs",
    "src/controllers/statefulset/claims.rs",
    "src/kubelet/resize.rs",
    "src/reconcile/control_plane.rs",
    "src/reconcile/tick.rs",
];

/// Names of variables, fields and methods that are times.
const MOMENTS: [&str; 9] = ["now", "since", "asked", "finished", "started", "deadline", "created", "begun", "kill_at"];

fn can_leave_range(sum: &Sum) -> bool {
    let is_duration =
        matches!(&sum.right[..], [.., kind, made] if kind == "SignedDuration" && made.starts_with("from_"));
    // A constant, such as `since + UNANSWERED`.
    let is_constant = sum.right.last().is_some_and(|name| !name.contains(|letter: char| letter.is_ascii_lowercase()));
    is_duration || is_constant && MOMENTS.contains(&&*sum.left)
}

#[test]
fn moments_are_moved_without_overflow() {
    let mut wrong = Vec::new();
    for source in product().filter(|source| COMPUTING.iter().any(|module| source.is_in(module))) {
        let sums = source.parsed.sums.iter().filter(|sum| can_leave_range(sum) && !BY_CLOCK.contains(&&*source.path));
        wrong.extend(sums.map(|sum| source.locate(sum.line, format!("{} and {}", sum.left, sum.right.join("::")))));
    }
    assert_none(&wrong, "moments that can leave their range");
}

#[test]
fn files_that_may_add_to_times_of_the_clock_exist() {
    let gone = BY_CLOCK.iter().filter(|path| !product().any(|source| source.path == **path));
    assert_none(&gone.map(|path| path.to_string()).collect::<Vec<_>>(), "take these files off the list");
}
