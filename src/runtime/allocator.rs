//! The C library's allocator, set up for a process that takes objects apart and puts them together all the time.

/// Small parts that are given back are joined with their neighbours at once. Otherwise the C library gathers them, and goes through
/// all of them whenever a text of more than a kilobyte is asked for, which is with every object: a seventh of what a beat computes.
/// Elsewhere than with glibc nothing is to be set.
pub fn suit_objects() {
    // SAFETY: sets a number of the allocator, which does so under its own lock.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MXFAST, 0);
    }
}
