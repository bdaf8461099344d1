//! A container's process that shares the shim's memory until its exec leaves nothing behind in the shim.

use super::*;

fn shim(rig: &Rig) -> i32 {
    folder::holder(&rig.pod("many")).expect("a shim").pid
}

/// Runs an attempt that ends, and one that is refused.
fn two_attempts(rig: &mut Rig, number: u32) {
    rig.start(script("many", 2 * number, "exit 0"));
    assert_eq!(rig.ended("many", 2 * number).code, 0);
    rig.start(Start { command: vec!["/no/such".into()], ..start_request("many", "c", 2 * number + 1) });
    rig.until("many", 2 * number + 1, |state| matches!(state, ContainerState::Refused { .. }).then_some(()));
}

fn open_descriptors(process: i32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).expect("readable").count()
}

/// Returns the size of the memory that a process has mapped, in KiB.
fn mapped_memory(process: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("readable");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("a size");
    size.trim_end_matches("kB").trim().parse().expect("a number")
}

#[test]
fn many_starts_cost_the_shim_no_descriptor_and_no_memory() {
    let mut rig = Rig::new();
    two_attempts(&mut rig, 0);
    let shim_process = shim(&rig);
    let (descriptors, memory) = (open_descriptors(shim_process), mapped_memory(shim_process));
    (1..20).for_each(|number| two_attempts(&mut rig, number));
    assert_eq!(shim(&rig), shim_process);
    // The mounts of an ended attempt stay open for a moment.
    eventually("no more descriptors are open", || open_descriptors(shim_process) <= descriptors);
    let growth = mapped_memory(shim_process).saturating_sub(memory);
    assert!(growth < 512, "{growth} KiB more");
}

#[test]
fn signals_reach_the_shim_and_the_container_after_a_start() {
    let mut rig = Rig::new();
    rig.start(script("many", 0, "exec sleep 1000"));
    let pid = rig.running("many", 0);
    let mask = |process: i32, name: &str| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).expect("readable");
        let mask = status.lines().find_map(|line| line.strip_prefix(name)).expect("a mask");
        u64::from_str_radix(mask.trim(), 16).expect("a number")
    };
    // The shell catches some until it executes the command.
    eventually("the command blocks and catches none", || {
        (mask(pid as i32, "SigBlk:"), mask(pid as i32, "SigCgt:")) == (0, 0)
    });
    // The bit of a signal is that of its number less one.
    let read_by_the_shim =
        [Signal::HUP, Signal::INT, Signal::TERM, Signal::CHILD].map(|signal| 1 << (signal.as_raw() - 1));
    assert_eq!(mask(shim(&rig), "SigBlk:"), read_by_the_shim.into_iter().sum::<u64>(), "as before the start");
}
