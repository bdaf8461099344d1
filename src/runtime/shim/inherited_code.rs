//! Code that a shim begins with: the zygote maps what its first shims have used.
//!
//! A fork copies the table of a mapped file's pages only if one of them is private memory. Otherwise the new process takes a page fault for
//! every 64 KB of code that it uses, two hundred times, which was an eighth of what the start of a pod cost. So the zygote makes a page of each
//! file private and maps the pages that a shim has mapped. Forks take longer by half of what the faults took; with all code mapped they would
//! take longer than the faults.
//! Never: changes the content of a page. Where the kernel refuses writable code, each shim maps its code itself, as it does until the zygote
//! has learned.

use procfs::process::{MMPermissions, MemoryPageFlags, PageInfo, PageMap, Process};
use std::ops::Range;

/// Number of forks after which the zygote looks at the first shim: by then that has started its containers. Less would not pay.
const FORKS: u32 = 10;

/// Knowledge of the code that the shims of a zygote use.
#[derive(Default)]
pub struct InheritedCode {
    /// The shim to learn from.
    model: Option<i32>,
    /// Number of forks since that one's.
    forks: u32,
    is_learned: bool,
}

impl InheritedCode {
    /// Takes note of a new shim.
    pub fn note_shim(&mut self, pid: i32) {
        self.model.get_or_insert(pid);
        self.forks += 1;
    }

    /// Maps the code for the forks to come, once enough shims were started. Only for a process with one thread.
    pub fn prepare_for_forks(&mut self) {
        if self.is_learned || self.forks < FORKS {
            return;
        }
        // The shim may have ended: the next one takes its place.
        self.is_learned = self.model.is_some_and(|model| map_code_of(model).is_some());
        (self.model, self.forks) = (None, 0);
    }
}

/// Maps the pages of files that another process of this program has mapped. `None` when it is gone.
fn map_code_of(model: i32) -> Option<()> {
    let mut mapped = Process::new(model).and_then(|model| model.pagemap()).ok()?;
    for file in mapped_files()? {
        let pages = present_pages(&mut mapped, &file)?;
        if !pages.is_empty() && file.copy_at_fork() {
            pages.into_iter().for_each(touch);
        }
    }
    Some(())
}

/// A part of a file that is mapped to be read or executed, as code and constants are.
struct MappedFile {
    addresses: Range<usize>,
    protection: libc::c_int,
}

fn mapped_files() -> Option<Vec<MappedFile>> {
    let is_file = |inode: u64, rights: MMPermissions| {
        inode != 0
            && rights.contains(MMPermissions::READ | MMPermissions::PRIVATE)
            && !rights.contains(MMPermissions::WRITE)
    };
    let maps = Process::myself().and_then(|own| own.maps()).ok()?;
    let files = maps.into_iter().filter(|map| is_file(map.inode, map.perms)).filter_map(|map| {
        let executable = if map.perms.contains(MMPermissions::EXECUTE) { libc::PROT_EXEC } else { 0 };
        let addresses = usize::try_from(map.address.0).ok()?..usize::try_from(map.address.1).ok()?;
        Some(MappedFile { addresses, protection: libc::PROT_READ | executable })
    });
    Some(files.collect())
}

impl MappedFile {
    /// Makes the first page private, which makes forks copy the table of all. Returns false where the kernel refuses it.
    fn copy_at_fork(&self) -> bool {
        let start = std::ptr::with_exposed_provenance_mut::<u8>(self.addresses.start);
        let protect = |more| {
            // SAFETY: the range is a whole mapping of this process, which stays readable and executable.
            unsafe { libc::mprotect(start.cast(), self.addresses.len(), self.protection | more) == 0 }
        };
        if !protect(libc::PROT_WRITE) {
            return false;
        }
        // SAFETY: the page is mapped and writable, and keeps its content; the process has one thread.
        unsafe { start.write_volatile(start.read_volatile()) };
        protect(0)
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
