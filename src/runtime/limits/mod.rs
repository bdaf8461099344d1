//! Resource limits of processes, enforced by the kernel's control groups.
//!
//! Knows: where groups can be made on this machine ([`CgroupTree::find`]), which ones a container needs ([`CgroupTree::groups`]), and how
//! they are created, entered, read and removed ([`group`]). The control plane chooses them; the pod's shim creates them, and the
//! container's process enters them before exec. A group exists only for an existing limit: a pod without limits has at most one, which
//! limits its number of processes.
//! The shim watches the limits that no group enforces on this machine ([`CgroupTree::watched`]).
//! Never: enforces memory or CPU limits with rlimits, which have another meaning: address space or data of one process, where each thread's
//! stack counts in full; total seconds of CPU. Only the number of processes uses one, see [`processes`].

mod cgroup_path;
pub mod group;
pub mod processes;
pub mod storage_watch;

use super::wire::{ControlGroup, ControlGroupFile, SoftBounds};
use crate::world::limits::{GroupLimits, Limits};
use std::fs;
use std::path::{Path, PathBuf};

/// Period of CPU quotas, in microseconds.
const PERIOD: i64 = 100_000;

/// Prefix of the clusters' folder names.
const PREFIX: &[u8] = b"kloop-";

/// Location of a cluster's groups.
#[derive(Clone, Debug, PartialEq)]
pub struct CgroupTree {
    /// One hierarchy for everything (v2), or one for each controller (v1).
    branches: Vec<CgroupBranch>,
    unified: bool,
}

/// A hierarchy in which the cluster has a folder.
#[derive(Clone, Debug, PartialEq)]
struct CgroupBranch {
    /// Its controllers: `cpu`, `memory`, `pids`.
    controllers: Vec<&'static str>,
    /// The cluster's folder.
    base: PathBuf,
}

impl CgroupTree {
    /// Finds a place for groups, and creates the cluster's folders there; the error says why there is none.
    pub fn find(state: &Path) -> Result<CgroupTree, String> {
        cgroup_path::tree(Path::new("/"), &name(state))
    }

    /// Describes the limits that cannot be enforced here; `None` when all can.
    pub fn lacks(&self) -> Option<String> {
        let missing: Vec<&str> = cgroup_path::WANTED.into_iter().filter(|wanted| !self.has(wanted)).collect();
        let why = format!("no cgroup controller for {} can be used", missing.join(" and "));
        (!missing.is_empty()).then(|| describe_fallback(&missing, &why))
    }

    fn has(&self, controller: &str) -> bool {
        self.branches.iter().any(|branch| branch.has(controller))
    }

    /// Returns the limits that the groups do not enforce, for the shim to watch.
    pub fn watched(&self, limits: &Limits) -> SoftBounds {
        let all = watched(limits);
        let memory = |bound: Option<i64>| bound.filter(|_| !self.has("memory"));
        SoftBounds {
            memory: memory(all.memory),
            pod_memory: memory(all.pod_memory),
            pids: all.pids.filter(|_| !self.has("pids")),
        }
    }

    /// Returns the groups of a container, those of its pod first.
    pub fn groups(&self, pod: &str, container: &str, limits: &Limits) -> Vec<ControlGroup> {
        let mut groups = Vec::new();
        for branch in &self.branches {
            branch.groups(self.unified, pod, container, limits, &mut groups);
        }
        groups
    }

    /// Removes the remaining groups of a pod that has no process.
    pub fn remove_pod(&self, pod: &str) {
        self.branches.iter().for_each(|branch| group::remove_pod(&branch.pod(pod)));
    }

    /// Removes the groups of deleted pods, without waiting. Returns those that still contain processes: they belong to an earlier cluster
    /// at the same path, whose folder was removed while its pods ran.
    pub fn sweep(&self, lives: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        let occupied = |branch: &CgroupBranch| {
            let gone = branch.pods().into_iter().filter(|uid| !lives(uid)).map(|uid| branch.pod(&uid));
            gone.filter(|pod| !group::try_remove_pod(pod)).collect::<Vec<_>>()
        };
        self.branches.iter().map(occupied).max_by_key(Vec::len).unwrap_or_default()
    }
}

/// Returns the limits to watch where there are no groups.
pub fn watched(limits: &Limits) -> SoftBounds {
    SoftBounds { memory: limits.container.memory, pod_memory: limits.pod.memory, pids: limits.pod.pids }
}

/// Describes the consequences where there are no groups.
pub fn without_groups(why: &str) -> String {
    describe_fallback(&cgroup_path::WANTED, why)
}

/// Describes the replacement for missing controllers.
fn describe_fallback(missing: &[&str], why: &str) -> String {
    let fallbacks = [
        ("cpu", "CPU is not limited"),
        ("memory", "memory is checked every second"),
        ("pids", "processes are counted"),
    ];
    let fallbacks = fallbacks.into_iter().filter(|(name, _)| missing.contains(name));
    let texts: Vec<&str> = fallbacks.map(|(_, text)| text).collect();
    format!("{} ({why})", texts.join("; "))
}

/// Removes every group of a finished cluster. None of its pods may run.
pub fn discard(state: &Path) {
    if let Some(tree) = fs::canonicalize(state).ok().and_then(|state| CgroupTree::find(&state).ok()) {
        let pods = |branch: &CgroupBranch| branch.pods().into_iter().map(|uid| branch.pod(&uid)).collect::<Vec<_>>();
        tree.branches.iter().flat_map(pods).for_each(|pod| group::remove_pod(&pod));
    }
}

impl CgroupBranch {
    /// Returns the uids of the pods that have groups.
    fn pods(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.base).into_iter().flatten().flatten();
        entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_prefix("pod")?.to_owned())).collect()
    }
}

impl Drop for CgroupBranch {
    /// Removes the cluster's own folder if no pod is left.
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.base);
    }
}

impl CgroupBranch {
    fn pod(&self, uid: &str) -> PathBuf {
        self.base.join(format!("pod{uid}"))
    }

    fn has(&self, controller: &str) -> bool {
        self.controllers.contains(&controller)
    }

    fn groups(&self, unified: bool, pod: &str, container: &str, limits: &Limits, groups: &mut Vec<ControlGroup>) {
        let files = |caps| if unified { self.files_of_v2(caps) } else { self.files_of_v1(caps) };
        let (of_pod, mut of_container) = (files(&limits.pod), files(&limits.container));
        if of_pod.is_empty() && of_container.is_empty() {
            return;
        }
        // The kernel counts OOM kills in the group of the killed process, also at the limit of the pod.
        let is_memory_limited =
            self.has("memory") && (limits.pod.memory.is_some() || limits.container.memory.is_some());
        if unified && is_memory_limited {
            // All processes of a container are killed together; those of the pod's other containers are not.
            of_container.push(ControlGroupFile::optional("memory.oom.group", "1"));
        }
        // In version 2 a group with child groups cannot contain processes, so each container gets its own.
        let is_split = unified || is_memory_limited || !of_container.is_empty();
        let folder = self.pod(pod);
        let own = folder.join(group::folder_of(container));
        let procs_file = if unified { "cgroup.procs" } else { "tasks" };
        let mut files = of_pod;
        if unified {
            files.push(ControlGroupFile::required(
                "cgroup.subtree_control",
                &format!("+{}", self.controllers.join(" +")),
            ));
        }
        groups.push(ControlGroup {
            folder: folder.to_string_lossy().into_owned(),
            files,
            procs_file: (!is_split).then(|| procs_file.to_owned()),
            oom: None,
        });
        if is_split {
            let counter = if unified { "memory.events" } else { "memory.oom_control" };
            groups.push(ControlGroup {
                folder: own.to_string_lossy().into_owned(),
                files: of_container,
                procs_file: Some(procs_file.to_owned()),
                oom: self.has("memory").then(|| counter.to_owned()),
            });
        }
    }

    /// Settings for a hierarchy of version 1.
    fn files_of_v1(&self, caps: &GroupLimits) -> Vec<ControlGroupFile> {
        let mut files = Vec::new();
        if let Some(milli) = caps.cpu_request_milli.filter(|_| self.has("cpu")) {
            files.push(ControlGroupFile::required("cpu.shares", &shares(milli).to_string()));
        }
        if let Some(milli) = caps.cpu_milli.filter(|_| self.has("cpu")) {
            files.push(ControlGroupFile::required("cpu.cfs_period_us", &PERIOD.to_string()));
            files.push(ControlGroupFile::required("cpu.cfs_quota_us", &quota(milli).to_string()));
        }
        if let Some(bytes) = caps.memory.filter(|_| self.has("memory")) {
            // Memory plus swap must never be below memory. The previous limits decide which one has to be written first, so memory is
            // written twice.
            files.push(ControlGroupFile::optional("memory.limit_in_bytes", &bytes.to_string()));
            files.push(ControlGroupFile::optional("memory.memsw.limit_in_bytes", &bytes.to_string()));
            files.push(ControlGroupFile::required("memory.limit_in_bytes", &bytes.to_string()));
        }
        if let Some(most) = caps.pids.filter(|_| self.has("pids")) {
            files.push(ControlGroupFile::required("pids.max", &most.to_string()));
        }
        files
    }

    /// Settings for the hierarchy of version 2.
    fn files_of_v2(&self, caps: &GroupLimits) -> Vec<ControlGroupFile> {
        let mut files = Vec::new();
        if let Some(milli) = caps.cpu_request_milli.filter(|_| self.has("cpu")) {
            files.push(ControlGroupFile::required("cpu.weight", &weight(milli).to_string()));
        }
        if let Some(milli) = caps.cpu_milli.filter(|_| self.has("cpu")) {
            files.push(ControlGroupFile::required("cpu.max", &format!("{} {PERIOD}", quota(milli))));
        }
        if let Some(bytes) = caps.memory.filter(|_| self.has("memory")) {
            files.push(ControlGroupFile::required("memory.max", &bytes.to_string()));
            files.push(ControlGroupFile::optional("memory.swap.max", "0"));
        }
        if let Some(most) = caps.pids.filter(|_| self.has("pids")) {
            files.push(ControlGroupFile::required("pids.max", &most.to_string()));
        }
        files
    }
}

/// Returns the name of a cluster's folder.
fn name(state: &Path) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    format!("kloop-{:016x}", hasher.finish())
}

/// Kubernetes: MilliCPUToShares.
fn shares(milli: i64) -> i64 {
    (milli.saturating_mul(1024) / 1000).clamp(2, 262_144)
}

/// Shares on the scale of version 2 (KEP-2254).
fn weight(milli: i64) -> i64 {
    1 + (shares(milli) - 2) * 9999 / 262_142
}

/// Kubernetes: MilliCPUToQuota; the kernel takes no less than a millisecond.
fn quota(milli: i64) -> i64 {
    (milli.saturating_mul(PERIOD) / 1000).max(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch(controllers: &[&'static str], base: &str) -> CgroupBranch {
        CgroupBranch { controllers: controllers.to_vec(), base: base.into() }
    }

    fn written_limits(tree: &CgroupTree, limits: &Limits) -> Vec<String> {
        let line = |group: ControlGroup| {
            let files: Vec<String> = group.files.iter().map(|file| format!("{}={}", file.name, file.value)).collect();
            format!("{} [{}] {}", group.folder, files.join(", "), group.procs_file.unwrap_or_default())
        };
        tree.groups("u", "c", limits).into_iter().map(line).collect()
    }

    #[test]
    fn groups_are_made_for_the_limits() {
        let one = CgroupTree {
            unified: false,
            branches: vec![branch(&["cpu"], "/no/cpu"), branch(&["memory"], "/no/mem"), branch(&["pids"], "/no/pids")],
        };
        let mut limits = Limits { pod: GroupLimits { pids: Some(50), ..GroupLimits::default() }, ..Limits::default() };
        assert_eq!(written_limits(&one, &Limits::default()), [""; 0]);
        assert_eq!(written_limits(&one, &limits), ["/no/pids/podu [pids.max=50] tasks"]);
        limits.container =
            GroupLimits { cpu_milli: Some(250), cpu_request_milli: Some(100), memory: Some(4096), pids: None };
        let memory = "memory.limit_in_bytes=4096, memory.memsw.limit_in_bytes=4096, memory.limit_in_bytes=4096";
        let expected = [
            "/no/cpu/podu [] ".to_owned(),
            "/no/cpu/podu/c.c [cpu.shares=102, cpu.cfs_period_us=100000, cpu.cfs_quota_us=25000] tasks".into(),
            "/no/mem/podu [] ".into(),
            format!("/no/mem/podu/c.c [{memory}] tasks"),
            "/no/pids/podu [pids.max=50] tasks".into(),
        ];
        assert_eq!(written_limits(&one, &limits), expected);
        let two = CgroupTree { unified: true, branches: vec![branch(&["cpu", "memory", "pids"], "/no/two")] };
        let expected = [
            "/no/two/podu [pids.max=50, cgroup.subtree_control=+cpu +memory +pids] ",
            "/no/two/podu/c.c [cpu.weight=4, cpu.max=25000 100000, memory.max=4096, memory.swap.max=0, memory.oom.group=1] cgroup.procs",
        ];
        assert_eq!(written_limits(&two, &limits), expected);
    }

    #[test]
    fn container_of_a_pod_with_a_memory_limit_has_a_group_that_counts_kills() {
        let pod = GroupLimits { memory: Some(4096), ..GroupLimits::default() };
        let limits = Limits { pod, ..Limits::default() };
        let one =
            CgroupTree { unified: false, branches: vec![branch(&["cpu"], "/no/cpu"), branch(&["memory"], "/no/mem")] };
        let memory = "memory.limit_in_bytes=4096, memory.memsw.limit_in_bytes=4096, memory.limit_in_bytes=4096";
        let expected = [format!("/no/mem/podu [{memory}] "), "/no/mem/podu/c.c [] tasks".to_owned()];
        assert_eq!(written_limits(&one, &limits), expected);
        let counters: Vec<Option<String>> = one.groups("u", "c", &limits).into_iter().map(|group| group.oom).collect();
        assert_eq!(counters, [None, Some("memory.oom_control".to_owned())]);
        let two = CgroupTree { unified: true, branches: vec![branch(&["memory"], "/no/two")] };
        let expected = [
            "/no/two/podu [memory.max=4096, memory.swap.max=0, cgroup.subtree_control=+memory] ",
            "/no/two/podu/c.c [memory.oom.group=1] cgroup.procs",
        ];
        assert_eq!(written_limits(&two, &limits), expected, "one container's memory does not end the others");
    }

    #[test]
    fn cpu_conversions_match_kubernetes() {
        for (milli, expected) in [(0, 2), (1, 2), (100, 102), (1000, 1024), (4000, 4096)] {
            assert_eq!(shares(milli), expected, "{milli}");
        }
        assert_eq!((weight(0), weight(1000), weight(256_000)), (1, 39, 10_000));
        assert_eq!((quota(1), quota(500), quota(2000)), (1000, 50_000, 200_000));
    }
}
