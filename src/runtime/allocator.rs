//! The memory allocator. Shims use the C library's, which keeps them small. A control plane uses mimalloc, because the C library's took a
//! quarter of each tick.
//!
//! Both are linked in. A process begins with the C library's; [`use_mimalloc`] switches once. Each block is freed by the allocator that
//! allocated it.

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

#[global_allocator]
static MEMORY: ProcessAllocator = ProcessAllocator;

/// Whether memory comes from mimalloc from now on.
static USES_MIMALLOC: AtomicBool = AtomicBool::new(false);

/// Switches this process to mimalloc.
pub fn use_mimalloc() {
    USES_MIMALLOC.store(true, Ordering::Relaxed);
}

/// Gives memory that this thread has freed back to the system; otherwise it is kept until the thread allocates again or ends.
pub fn release_unused() {
    if uses_mimalloc() {
        mi_collect(true);
    }
}

/// Both allocators.
struct ProcessAllocator;

// SAFETY: the signature is that of mimalloc, which is linked in; the function only compares the pointer.
unsafe extern "C" {
    /// Whether a pointer is into memory of mimalloc; any pointer may be asked about.
    safe fn mi_is_in_heap_region(pointer: *const c_void) -> bool;
    /// Gives memory that the calling thread does not use back to the system.
    safe fn mi_collect(force: bool);
}

fn uses_mimalloc() -> bool {
    USES_MIMALLOC.load(Ordering::Relaxed)
}

/// Whether a block was allocated by mimalloc. A thread that has such a block also sees that the process has switched.
fn is_from_mimalloc(pointer: *mut u8) -> bool {
    uses_mimalloc() && mi_is_in_heap_region(pointer.cast())
}

// SAFETY: each call is forwarded to an allocator that keeps the contract; a block goes back to the allocator that it came from.
unsafe impl GlobalAlloc for ProcessAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract, which is theirs.
        unsafe { if uses_mimalloc() { MiMalloc.alloc(layout) } else { System.alloc(layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { if uses_mimalloc() { MiMalloc.alloc_zeroed(layout) } else { System.alloc_zeroed(layout) } }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; the block is of the allocator that is asked.
        unsafe {
            if is_from_mimalloc(pointer) { MiMalloc.dealloc(pointer, layout) } else { System.dealloc(pointer, layout) }
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            if is_from_mimalloc(pointer) {
                MiMalloc.realloc(pointer, layout, size)
            } else {
                System.realloc(pointer, layout, size)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_memory_is_freed_by_its_own_allocator() {
        let before: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
        assert!(!mi_is_in_heap_region(before[7].as_ptr().cast()));
        // Frees this one block without switching allocators: other tests run in this process.
        let layout = Layout::from_size_align(100, 8).unwrap();
        // SAFETY: the block is written within its size, and given back once, to where it came from.
        unsafe {
            let block = MiMalloc.alloc(layout);
            assert!(mi_is_in_heap_region(block.cast()));
            block.write_bytes(7, 100);
            let block = MiMalloc.realloc(block, layout, 5000);
            assert_eq!(*block.add(99), 7);
            MiMalloc.dealloc(block, Layout::from_size_align(5000, 8).unwrap());
        }
    }
}
