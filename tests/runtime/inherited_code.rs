//! The code that shims begin with.

use super::*;
use std::collections::BTreeMap;

/// Number of pods: each zygote learns from the first of ten shims, and there are a few zygotes.
const PODS: usize = 64;
/// Number of shims at the beginning and at the end to compare.
const COMPARED: usize = 5;

/// The page faults of a process that needed no disk (field 10 of `/proc/pid/stat`), without those of its children.
fn page_faults(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let mut fields = stat.rsplit_once(')').expect("a name").1.split_whitespace();
    fields.nth(7).expect("a field").parse().expect("a number")
}

#[test]
fn later_shims_begin_with_the_code_that_the_first_ones_used() {
    let mut rig = Rig::new();
    let mut of_zygotes: BTreeMap<i32, Vec<u64>> = BTreeMap::new();
    for number in 0..PODS {
        let uid = format!("pod-{number}");
        rig.start(script(&uid, 0, "exec sleep 1000"));
        let shim = process::stat(rig.running(&uid, 0) as i32).expect("it runs").parent;
        let zygote = process::stat(shim).expect("it runs").parent;
        of_zygotes.entry(zygote).or_default().push(page_faults(shim));
    }
    let faults = of_zygotes.values().max_by_key(|faults| faults.len()).expect("a zygote");
    assert!(faults.len() >= 3 * COMPARED, "a zygote of many shims: {of_zygotes:?}");
    let first: u64 = faults[..COMPARED].iter().sum();
    let last: u64 = faults[faults.len() - COMPARED..].iter().sum();
    assert!(last * 4 < first * 3, "{faults:?}");
}
