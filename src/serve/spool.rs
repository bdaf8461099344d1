//! Bytes between their writing and their reading: a few in memory, the rest in a file without a name.
//!
//! Knows: the order of the bytes. Never: fails for want of a file; then the bytes stay in memory.
//! Start reading at [`Spool`].

use rustix::fs::{Mode, OFlags};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes that are kept in memory.
const MAX_MEMORY_BYTES: usize = 256 << 10;
/// Bytes per read.
const READ_BYTES: usize = 128 << 10;

/// A queue of bytes: all are written, then all are read.
pub struct Spool {
    folder: PathBuf,
    memory: VecDeque<u8>,
    file: Option<File>,
    /// The part of the file that was read.
    read: u64,
    written: u64,
}

impl Spool {
    /// Makes an empty queue, whose file belongs to the file system of this folder.
    pub fn new(folder: &Path) -> Spool {
        Spool { folder: folder.to_owned(), memory: VecDeque::new(), file: None, read: 0, written: 0 }
    }

    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() && self.memory.len() + bytes.len() > MAX_MEMORY_BYTES {
            self.file = unnamed_file(&self.folder);
        }
        match &self.file {
            None => self.memory.extend(bytes),
            Some(file) => {
                file.write_all_at(bytes, self.written)?;
                self.written += bytes.len() as u64;
            }
        }
        Ok(())
    }

    /// Whether no bytes wait to be read.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty() && self.read == self.written
    }

    /// Takes the next bytes and adds them to others.
    pub fn pop(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        if !self.memory.is_empty() {
            let count = self.memory.len().min(READ_BYTES);
            into.extend(self.memory.drain(..count));
            return Ok(());
        }
        let left = usize::try_from(self.written - self.read).unwrap_or(READ_BYTES).min(READ_BYTES);
        let Some(file) = self.file.as_ref().filter(|_| left > 0) else { return Ok(()) };
        let start = into.len();
        into.resize(start + left, 0);
        file.read_exact_at(&mut into[start..], self.read)?;
        self.read += left as u64;
        Ok(())
    }
}

/// Makes a file without a name, which the kernel removes with its last descriptor.
fn unnamed_file(folder: &Path) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR).ok().map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in() {
        for folder in [std::env::temp_dir(), PathBuf::from("/missing")] {
            let mut spool = Spool::new(&folder);
            let mut all = Vec::new();
            spool.pop(&mut all).unwrap();
            assert!(spool.is_empty() && all.is_empty());
            let pieces = || (0..12_u8).map(|number| vec![number; 300_001]);
            pieces().for_each(|piece| spool.push(&piece).unwrap());
            assert!(spool.memory.len() <= MAX_MEMORY_BYTES || spool.file.is_none());
            while !spool.is_empty() {
                spool.pop(&mut all).unwrap();
            }
            assert!(all.iter().eq(pieces().flatten().collect::<Vec<_>>().iter()));
        }
    }
}
