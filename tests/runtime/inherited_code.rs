//! The code that shims begin with.

use super::*;
use std::os::unix::fs::FileExt;

/// Number of pods that are started together: each of two zygotes learns after ten.
const AT_ONCE: usize = 24;
/// Number of times that pods are started.
const TIMES: usize = 8;

/// Whether the kernel makes a page of a program private, as the zygote needs it.
fn may_copy_code() -> bool {
    let memory = fs::OpenOptions::new().read(true).write(true).open("/proc/self/mem").expect("opened");
    let (mut first, at) = ([0], may_copy_code as fn() -> bool as usize as u64);
    memory.read_exact_at(&mut first, at).expect("read");
    memory.write_all_at(&first, at).is_ok()
}

/// Whether a process has private memory in the code of its program, which only the zygote puts there.
fn has_inherited_code(pid: i32) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/smaps")).expect("it runs");
    let mut is_code = false;
    maps.lines().any(|line| {
        if line.contains(" r-xp ") {
            is_code = line.contains("kloop");
        } else if line.contains("-p ") {
            is_code = false;
        }
        is_code && line.strip_prefix("Anonymous:").is_some_and(|size| size.trim() != "0 kB")
    })
}

#[test]
fn later_shims_begin_with_the_code_that_the_first_ones_used() {
    if !may_copy_code() {
        return skip!("the kernel makes no page of a program private");
    }
    let mut rig = Rig::new();
    let shim = |pid: u32| process::stat(pid as i32).expect("it runs").parent;
    let mut start = |time: usize| -> Vec<i32> {
        for number in 0..AT_ONCE {
            rig.start(script(&format!("pod-{time}-{number}"), 0, "exec sleep 1000"));
        }
        (0..AT_ONCE).map(|_| shim(rig.any_running())).collect()
    };
    let first = start(0);
    assert!(!first.iter().all(|pid| has_inherited_code(*pid)), "the first ones map their code themselves");
    // On a loaded machine a shim may be too old to learn from when ten others have been started.
    assert!((1..TIMES).any(|time| start(time).into_iter().any(has_inherited_code)));
}
