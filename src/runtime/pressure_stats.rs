//! Remaining amounts of shared resources, read from `/proc` and by one `statvfs`, so that measuring is cheap.

use crate::world::pressure::{PressureSignal, ResourceLevel, ResourceLevels};
use procfs::sys::kernel;
use procfs::{Current, LoadAverage};
use std::fs;
use std::path::Path;

/// Measures the wanted resources, and leaves out those that cannot be read. Pods write to the file system that holds the state.
pub fn measure(state: &Path, wanted: impl Iterator<Item = PressureSignal>) -> ResourceLevels {
    wanted.filter_map(|signal| Some((signal, measure_level(signal, state)?))).collect()
}

fn measure_level(signal: PressureSignal, state: &Path) -> Option<ResourceLevel> {
    match signal {
        PressureSignal::Memory => memory(&fs::read_to_string("/proc/meminfo").ok()?),
        PressureSignal::Storage => {
            let found = rustix::fs::statvfs(state).ok()?;
            let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(found.f_frsize)).unwrap_or(i64::MAX);
            Some(ResourceLevel { available: bytes(found.f_bavail), capacity: bytes(found.f_blocks) })
        }
        PressureSignal::Inodes => {
            // File systems that make inodes as they are needed count none.
            let found = rustix::fs::statvfs(state).ok().filter(|found| found.f_files > 0)?;
            let count = |files: u64| i64::try_from(files).unwrap_or(i64::MAX);
            Some(ResourceLevel { available: count(found.f_favail), capacity: count(found.f_files) })
        }
        PressureSignal::Pids => {
            let most = i64::from(kernel::pid_max().ok()?).min(kernel::threads_max().ok()?.into());
            let used = i64::from(LoadAverage::current().ok()?.max);
            Some(ResourceLevel { available: most.saturating_sub(used), capacity: most })
        }
    }
}

/// Reads two lines of `/proc/meminfo`; sandboxes leave out others, which the crate `procfs` insists on.
fn memory(text: &str) -> Option<ResourceLevel> {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().split(' ').next()?.parse::<i64>().ok()? * 1024)
    };
    Some(ResourceLevel { available: bytes("MemAvailable")?, capacity: bytes("MemTotal")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_something_left() {
        let found = measure(
            Path::new("/"),
            [PressureSignal::Memory, PressureSignal::Storage, PressureSignal::Pids].into_iter(),
        );
        assert_eq!(found.len(), 3);
        let odd = found.iter().find(|(_, level)| level.available <= 0 || level.available > level.capacity);
        assert_eq!(odd, None);
    }
}
