//! The memory allocator. Shims use the C library's, which keeps them small. Threads that work on the state use mimalloc, because the C
//! library's took a quarter of each tick.
//!
//! Both are linked in. A thread begins with the C library's; [`use_mimalloc`] switches it once. A thread that uses mimalloc takes 2 MB and
//! more, zeroed at once, which is much for the many threads that only pass messages on. Each block is freed by the allocator that allocated
//! it. Blocks of more than [`MIMALLOC_MAX_SIZE`] are always the C library's.

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

#[global_allocator]
static MEMORY: ProcessAllocator = ProcessAllocator;

/// Whether any thread has switched to mimalloc.
static USES_MIMALLOC: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread has switched to mimalloc.
    static HAS_SWITCHED: Cell<bool> = const { Cell::new(false) };
}

/// Maximum size of a block of mimalloc, in bytes: `MI_LARGE_OBJ_SIZE_MAX`. For a larger one mimalloc maps a segment, which it does not
/// recognise later when the kernel has chosen a high address for it; the C library would then free a block that is not its own.
const MIMALLOC_MAX_SIZE: usize = 16 << 20;

/// Switches this thread to mimalloc.
pub fn use_mimalloc() {
    USES_MIMALLOC.store(true, Ordering::Relaxed);
    HAS_SWITCHED.set(true);
}

/// Gives memory that this thread has freed back to the system; otherwise it is kept until the thread allocates again or ends.
pub fn release_unused() {
    if HAS_SWITCHED.get() {
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

/// Whether this thread asks mimalloc for a block of this size.
fn asks_mimalloc(size: usize) -> bool {
    size <= MIMALLOC_MAX_SIZE && HAS_SWITCHED.get()
}

/// Whether a block of this size was allocated by mimalloc. A thread that has such a block also sees that a thread has switched.
fn is_from_mimalloc(pointer: *mut u8, size: usize) -> bool {
    size <= MIMALLOC_MAX_SIZE && USES_MIMALLOC.load(Ordering::Relaxed) && mi_is_in_heap_region(pointer.cast())
}

// SAFETY: each call is forwarded to an allocator that keeps the contract; a block is freed by the allocator that returned it.
unsafe impl GlobalAlloc for ProcessAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the contract of `GlobalAlloc`, which the caller keeps, is that of both allocators.
        unsafe { if asks_mimalloc(layout.size()) { MiMalloc.alloc(layout) } else { System.alloc(layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            if asks_mimalloc(layout.size()) { MiMalloc.alloc_zeroed(layout) } else { System.alloc_zeroed(layout) }
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; the block is of the allocator that is asked.
        unsafe {
            if is_from_mimalloc(pointer, layout.size()) {
                MiMalloc.dealloc(pointer, layout)
            } else {
                System.dealloc(pointer, layout)
            }
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            match (is_from_mimalloc(pointer, layout.size()), size <= MIMALLOC_MAX_SIZE) {
                (true, true) => MiMalloc.realloc(pointer, layout, size),
                // At any size: mimalloc recognises its own small blocks, and this is not one of them.
                (false, _) => System.realloc(pointer, layout, size),
                (true, false) => {
                    let moved = System.alloc(Layout::from_size_align_unchecked(size, layout.align()));
                    if !moved.is_null() {
                        std::ptr::copy_nonoverlapping(pointer, moved, layout.size());
                        MiMalloc.dealloc(pointer, layout);
                    }
                    moved
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_switched_thread_uses_mimalloc_and_each_block_goes_back_to_its_allocator() {
        let is_ours = |block: &[u8]| mi_is_in_heap_region(block.as_ptr().cast());
        let work = move || {
            let mut before = vec![7; 100];
            use_mimalloc();
            assert!(!is_ours(&before) && is_ours("x".repeat(100).as_bytes()));
            // A block that grows stays with its allocator.
            before.resize(5000, 8);
            assert!(!is_ours(&before) && before[99] == 7);
            let mut after = vec![9; 100];
            after.resize(5000, 8);
            assert!(is_ours(&after) && after[99] == 9);
            (before, after)
        };
        let (before, after) = std::thread::spawn(work).join().unwrap();
        assert!(!is_ours("x".repeat(100).as_bytes()));
        drop((before, after));
        assert!(!is_ours("x".repeat(100).as_bytes()));
    }

    #[test]
    fn blocks_too_large_for_mimalloc_are_the_c_librarys() {
        let work = || {
            use_mimalloc();
            let is_ours = |block: &[u8]| mi_is_in_heap_region(block.as_ptr().cast());
            let mut block = vec![1_u8; MIMALLOC_MAX_SIZE];
            assert!(is_ours(&block));
            block.push(2);
            assert!(!is_ours(&block) && block.capacity() > MIMALLOC_MAX_SIZE);
            assert!(block[..MIMALLOC_MAX_SIZE].iter().all(|byte| *byte == 1) && block[MIMALLOC_MAX_SIZE] == 2);
            block.truncate(10);
            block.shrink_to_fit();
            assert_eq!(block, [1; 10]);
        };
        std::thread::spawn(work).join().unwrap();
    }
}
