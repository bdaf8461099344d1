//! Resource usage of pods and the machine, measured on request only.
//!
//! A container's memory and CPU time are those of its control group where it has one, else those that `/proc` shows for its processes: CPU
//! time with that of ended threads and children, memory by proportional share, so that shared pages count once.
//! CPU time counts from a process's start: two samples make a rate. Start reading at [`sample_pod`].
//!
//! The module reads `/proc` itself and not with the crate `procfs`, because a sample needs only a few fields of hundreds of processes.

use super::process::{self, ProcessIdentity};
use super::{folder, reap_dead_shim};
use crate::world::usage::{Throttling, UsageSample};
use procfs::{CurrentSI, KernelStats};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Nanoseconds of one tick of `/proc/pid/stat`; the kernel always reports 100 ticks a second.
const TICK: u64 = 10_000_000;

/// Returns the cumulative usage of each running container of a pod, by name; empty for a pod that does not run here.
pub fn sample_pod(state: &Path, uid: &str) -> BTreeMap<String, UsageSample> {
    let pod = folder::pod_path(state, uid);
    let Some(record) = folder::read_record(&pod).filter(|record| record.boot == process::boot_id()) else {
        return BTreeMap::new();
    };
    let orphans: Vec<ProcessIdentity> = record.shim.map_or(Vec::new(), orphans);
    let running = record.containers.iter().filter_map(|(name, known)| Some((name, known.process()?, known.attempt)));
    let sample = |(name, main, attempt): (&String, ProcessIdentity, u32)| {
        let mark = pod.join(name);
        let own =
            |orphan: &&ProcessIdentity| reap_dead_shim::mark(orphan.pid).is_some_and(|found| found.starts_with(&mark));
        let tops = orphans.iter().filter(|orphan| orphan.pid != main.pid).filter(own).copied();
        Some((name.clone(), sample_container(main, tops, attempt == 0)?))
    };
    running.filter_map(sample).collect()
}

/// Returns the children of a shim, with the children of its pause process in its place.
fn children_of_shim(shim: i32) -> Vec<i32> {
    let is_pause = |pid: i32| std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name == b"pause\n");
    let children = process::children(shim).into_iter();
    children.flat_map(|pid| if is_pause(pid) { process::children(pid) } else { vec![pid] }).collect()
}

/// Returns the children that a shim adopted: main processes, and daemons whose parents have ended.
fn orphans(shim: ProcessIdentity) -> Vec<ProcessIdentity> {
    if !shim.lives() {
        return Vec::new();
    }
    children_of_shim(shim.pid).into_iter().filter_map(ProcessIdentity::from_pid).collect()
}

/// Returns the usage of a container. `is_first`: no earlier attempt can have left CPU time in the container's control group.
fn sample_container(
    main: ProcessIdentity,
    others: impl Iterator<Item = ProcessIdentity>,
    is_first: bool,
) -> Option<UsageSample> {
    if !main.lives() {
        return None;
    }
    let tops: Vec<ProcessIdentity> = [main].into_iter().chain(others).collect();
    let below = tops.iter().flat_map(|top| process::descendants(top.pid)).map(|stat| stat.identity);
    let all: Vec<i32> = tops.iter().copied().chain(below).map(|one| one.pid).collect();
    let of_group = is_first.then(|| group_cpu_time(main.pid)).flatten();
    let cpu_nanos = of_group.unwrap_or_else(|| all.iter().map(|pid| cpu_time(*pid)).sum());
    let memory = working_set(main.pid).unwrap_or_else(|| all.iter().map(|pid| memory(*pid)).sum());
    let swap = all.iter().map(|pid| swapped(*pid)).sum();
    Some(UsageSample { cpu_nanos, memory, swap, throttling: throttling(main.pid).unwrap_or_default() })
}

/// Returns the CPU time that a container's own group has counted, also that of processes whose parents never reaped them.
fn group_cpu_time(pid: i32) -> Option<u64> {
    let read = |controller, file| fs::read_to_string(own_group(pid, controller)?.1.join(file)).ok();
    let unified = || counter(&read("cpu", "cpu.stat")?, "usage_usec ").map(|micros| micros.saturating_mul(1000));
    let legacy = || read("cpuacct", "cpuacct.usage")?.trim().parse().ok();
    unified().or_else(legacy)
}

/// Returns the CPU time of a process in nanoseconds: of all its threads, ended ones included, and of the children that it has reaped.
fn cpu_time(pid: i32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_thread = |text: String| text.split_ascii_whitespace().next()?.parse::<u64>().ok();
    let living: Option<u64> =
        threads.map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok().and_then(of_thread)).sum();
    parse_cpu_time(&fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default(), living.unwrap_or(0))
}

/// Reads `/proc/PID/stat` (proc(5)): `utime`, `stime`, `cutime` and `cstime`. The first two count ended threads too, but in whole ticks.
/// Without ended threads the nanoseconds of the `living` threads are larger and more exact.
fn parse_cpu_time(stat: &str, living: u64) -> u64 {
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    let nanos = |first: usize| ticks(first).saturating_add(ticks(first + 1)).saturating_mul(TICK);
    living.max(nanos(11)).saturating_add(nanos(13))
}

/// Returns the memory of a process in bytes, shared pages in proportion; resident memory when the kernel does not show the proportion.
fn memory(pid: i32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    bytes(&rollup, "Pss:").unwrap_or_else(|| resident(pid).0)
}

/// Returns the swapped-out bytes of a process, shared pages in proportion.
fn swapped(pid: i32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    bytes(&rollup, "SwapPss:").unwrap_or(0)
}

/// As [`memory`], without pages of files, which the kernel would reclaim before it kills a process.
pub fn kept_memory(pid: i32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let kept = || Some(bytes(&rollup, "Pss:")?.saturating_sub(bytes(&rollup, "Pss_File:")?));
    kept().unwrap_or_else(|| {
        let (all, shared) = resident(pid);
        all.saturating_sub(shared)
    })
}

/// Returns the resident bytes of a process, and how many of them are shared or of files. Cheap to read, and never too low.
pub fn resident(pid: i32) -> (u64, u64) {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let mut pages = text.split(' ').skip(1).map(|field| field.parse::<u64>().unwrap_or(0));
    let mut next = || pages.next().unwrap_or(0).saturating_mul(rustix::param::page_size() as u64);
    (next(), next())
}

fn bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().split(' ').next()?.parse::<u64>().ok()? * 1024)
}

/// Returns the working set of a process's own group, without inactive file pages, as Kubernetes counts it.
fn working_set(pid: i32) -> Option<u64> {
    let (is_unified, folder) = own_group(pid, "memory")?;
    let number = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
    let stat = fs::read_to_string(folder.join("memory.stat")).ok()?;
    let (usage, inactive) = match is_unified {
        true => (number("memory.current")?, "inactive_file "),
        false => (number("memory.usage_in_bytes")?, "total_inactive_file "),
    };
    Some(usage.saturating_sub(counter(&stat, inactive).unwrap_or(0)))
}

/// Returns the throttling of a process's own group; `None` without such a group.
fn throttling(pid: i32) -> Option<Throttling> {
    let (_, folder) = own_group(pid, "cpu")?;
    parse_throttling(&fs::read_to_string(folder.join("cpu.stat")).ok()?)
}

/// Parses the throttling counters: version 1 counts nanoseconds, version 2 microseconds.
fn parse_throttling(stat: &str) -> Option<Throttling> {
    let nanos =
        counter(stat, "throttled_time ").or_else(|| Some(counter(stat, "throttled_usec ")?.saturating_mul(1000)));
    let (periods, throttled) = (counter(stat, "nr_periods ")?, counter(stat, "nr_throttled ")?);
    Some(Throttling { periods, throttled, nanos: nanos.unwrap_or(0) })
}

fn counter(stat: &str, name: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
}

/// Returns the control group of a container under a controller, and whether it is of version 2; `None` without a group of its own.
fn own_group(pid: i32, controller: &str) -> Option<(bool, PathBuf)> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let of_container = |path: &str| path.rsplit('/').next().is_some_and(|last| last.starts_with("c."));
    let mut found = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let is_it = controllers.is_empty() || controllers.split(',').any(|one| one == controller);
        (is_it && of_container(path)).then_some((controllers.is_empty(), path))
    });
    let (is_unified, path) = found.next()?;
    Some((is_unified, mounted(is_unified, controller)?.join(path.trim_start_matches('/'))))
}

/// Returns the mount point of a controller's hierarchy, when it is mounted completely.
fn mounted(is_unified: bool, controller: &str) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let is_it = |line: &&str| {
        let Some((_, after)) = line.split_once(" - ") else { return false };
        let mut after = after.splitn(3, ' ');
        let (kind, options) = (after.next(), after.nth(1).unwrap_or_default());
        match is_unified {
            true => kind == Some("cgroup2"),
            false => kind == Some("cgroup") && options.split(',').any(|option| option == controller),
        }
    };
    let mut fields = mounts.lines().find(is_it)?.split(' ').skip(3);
    (fields.next()? == "/").then(|| fields.next().map(PathBuf::from))?
}

/// Returns the machine's swap space.
pub fn swap_of_machine() -> u64 {
    bytes(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), "SwapTotal:").unwrap_or(0)
}

/// Returns the cumulative usage of the whole machine.
pub fn sample_machine() -> Option<UsageSample> {
    let cpu = KernelStats::current().ok()?.total;
    let interrupts = [cpu.irq, cpu.softirq, cpu.steal].into_iter().flatten().sum::<u64>();
    let busy = cpu.user + cpu.nice + cpu.system + interrupts;
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kilobytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().split(' ').next()?.parse::<u64>().ok()
    };
    let taken = |all: &str, left: &str| Some(kilobytes(all)?.saturating_sub(kilobytes(left)?) * 1024);
    let (memory, swap) = (taken("MemTotal", "MemAvailable")?, taken("SwapTotal", "SwapFree").unwrap_or(0));
    Some(UsageSample { cpu_nanos: busy * TICK, memory, swap, throttling: Throttling::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_of_this_process_is_measured() {
        let own = ProcessIdentity::from_pid(std::process::id() as i32).unwrap();
        let sample = sample_container(own, std::iter::empty(), true).unwrap();
        assert!(sample.cpu_nanos > 0 && sample.memory > 0, "{sample:?}");
        let stranger = ProcessIdentity { start: own.start + 1, ..own };
        assert_eq!(
            sample_container(stranger, std::iter::empty(), true),
            None,
            "a reused pid is not a process of the pod"
        );
        let machine = sample_machine().unwrap();
        assert!(machine.cpu_nanos > 0 && machine.memory > 0, "{machine:?}");
    }

    #[test]
    fn cpu_time_of_ended_threads_and_children_counts() {
        let stat = "7 (a) b) S 3 7 5 0 -1 4194560 1 0 0 0 300 100 20 5 20 0 1 0 4242 99";
        let (own, children) = (400 * TICK, 25 * TICK);
        for (living, expected) in [(0, own), (own - 1, own), (own + 7, own + 7)] {
            assert_eq!(parse_cpu_time(stat, living), expected + children, "{living}");
        }
        assert_eq!(parse_cpu_time("", 0), 0);
    }

    #[test]
    fn cpu_time_does_not_fall_when_threads_end() {
        let ticks = |count: u64| move || while cpu_time_of_this_thread() < count * TICK {};
        let now = || cpu_time(std::process::id() as i32);
        let before = now();
        std::thread::spawn(ticks(8)).join().expect("it ends");
        // The kernel rounds user and system time down to whole ticks.
        assert!(now() + 2 * TICK >= before + 8 * TICK, "the time of the ended thread");
    }

    fn cpu_time_of_this_thread() -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    #[test]
    fn throttling_is_parsed_in_both_units() {
        let one = "nr_periods 120\nnr_throttled 90\nthrottled_time 4500000000\n";
        let two = "usage_usec 7\nuser_usec 5\nsystem_usec 2\nnr_periods 120\nnr_throttled 90\nthrottled_usec 4500000\n";
        let expected = Some(Throttling { periods: 120, throttled: 90, nanos: 4_500_000_000 });
        assert_eq!((parse_throttling(one), parse_throttling(two)), (expected, expected));
        assert_eq!(parse_throttling("usage_usec 7\n"), None, "no controller, no periods");
    }
}
