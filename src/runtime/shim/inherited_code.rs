//! Page table entries for code that a shim inherits: the zygote maps the pages that one of its first shims has used.
//!
//! A fork copies the table of a mapped file's pages only if one of them is private memory. Otherwise the new process takes a page fault for
//! every 64 KB of code that it uses, a hundred and fifty times: an eighth of the time to start a pod. So the zygote makes a
//! page of each file private and maps the pages that a shim has mapped. Forks take longer by half of the time of those faults; with all
//! code mapped they would take longer than the faults.
//! Never: changes the content of a page. Where the kernel refuses to make one private, each shim maps its code itself, as it does until the
//! zygote has learned.

use procfs::process::{MMPermissions, MemoryPageFlags, PageInfo, PageMap, Process};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Number of forks after which the zygote learns; less would not pay.
const FORKS: u32 = 10;
/// Least age of the shim to learn from: it has started its containers by then.
const OLD_ENOUGH: Duration = Duration::from_millis(50);
/// Greatest age. A shim gives its code back later, and its pid may be another process's.
const YOUNG_ENOUGH: Duration = Duration::from_secs(8);

/// Knowledge of the code that the shims of a zygote use.
#[derive(Default)]
pub struct InheritedCode {
    /// The shim to learn from, and when it was forked.
    model: Option<(i32, Instant)>,
    /// Number of forks since the fork of that shim.
    forks: u32,
    is_learned: bool,
}

impl InheritedCode {
    /// Takes note of a new shim.
    pub fn note_shim(&mut self, pid: i32) {
        self.model.get_or_insert_with(|| (pid, Instant::now()));
        self.forks += 1;
    }

    /// Maps the code for later forks, once enough shims were started. Only for a process with one thread.
    pub fn prepare_for_forks(&mut self) {
        let Some((model, since)) = self.model.filter(|_| !self.is_learned && self.forks >= FORKS) else { return };
        let age = since.elapsed();
        if age < OLD_ENOUGH {
            return;
        }
        self.is_learned = age <= YOUNG_ENOUGH && map_code_of(model).is_some();
        // The next shim is the next to learn from.
        (self.model, self.forks) = (None, 0);
    }
}

/// Maps the pages of files that another process of this program has mapped. `None` when it has mapped none, as one that is gone.
fn map_code_of(model: i32) -> Option<()> {
    let mut mapped = Process::new(model).and_then(|model| model.pagemap()).ok()?;
    let mut count = 0;
    for file in mapped_files()? {
        let pages = present_pages(&mut mapped, &file)?;
        count += pages.len();
        if !pages.is_empty() && file.copy_at_fork() {
            pages.into_iter().for_each(touch);
        }
    }
    (count > 0).then_some(())
}

/// A part of a file that is mapped to be read or executed, as code and constants are.
struct MappedFile {
    addresses: Range<usize>,
}

fn mapped_files() -> Option<Vec<MappedFile>> {
    let is_file = |inode: u64, rights: MMPermissions| {
        inode != 0
            && rights.contains(MMPermissions::READ | MMPermissions::PRIVATE)
            && !rights.contains(MMPermissions::WRITE)
    };
    let maps = Process::myself().and_then(|own| own.maps()).ok()?;
    let files = maps.into_iter().filter(|map| is_file(map.inode, map.perms)).filter_map(|map| {
        let addresses = usize::try_from(map.address.0).ok()?..usize::try_from(map.address.1).ok()?;
        Some(MappedFile { addresses })
    });
    Some(files.collect())
}

impl MappedFile {
    /// Makes the first page private, which makes forks copy the table of all. Returns false where the kernel refuses it.
    ///
    /// The write through `/proc` copies the page although it is read-only. To make it writable for a moment would do the same, and count
    /// the whole file as memory of every shim.
    fn copy_at_fork(&self) -> bool {
        let write = || {
            let memory = File::options().read(true).write(true).open("/proc/self/mem")?;
            let (mut first, at) = ([0], self.addresses.start as u64);
            memory.read_exact_at(&mut first, at)?;
            memory.write_all_at(&first, at)
        };
        write().is_ok()
    }
}

/// Returns the addresses of the pages of a file that a process has mapped.
fn present_pages(mapped: &mut PageMap, file: &MappedFile) -> Option<Vec<usize>> {
    let page = rustix::param::page_size();
    let numbers = file.addresses.start / page..file.addresses.end / page;
    let pages = mapped.get_range_info(numbers.clone()).ok()?;
    let is_present =
        |info: &PageInfo| matches!(info, PageInfo::MemoryPage(flags) if flags.contains(MemoryPageFlags::PRESENT));
    Some(numbers.zip(pages).filter(|(_, info)| is_present(info)).map(|(number, _)| number * page).collect())
}

/// Reads a byte, which maps its page.
fn touch(address: usize) {
    // SAFETY: the address is in a readable mapping of this process.
    unsafe { std::ptr::with_exposed_provenance::<u8>(address).read_volatile() };
}
