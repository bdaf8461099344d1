//! The lines of a log file: the CRI format, and the search for the last lines.

use super::BLOCK;
use crate::object::Time;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// The last lines of a file.
pub struct FileTail {
    /// Offset of the first line in the file.
    pub at: u64,
    /// Number of lines.
    pub lines: usize,
}

/// Finds the last `wanted` lines of a file, searching from the end.
pub fn tail_start(file: &mut File, wanted: usize) -> io::Result<FileTail> {
    let size = file.metadata()?.len();
    if wanted == 0 {
        return Ok(FileTail { at: size, lines: 0 });
    }
    let mut lines = 0;
    let mut to = size;
    let mut block = vec![0; BLOCK];
    while to > 0 {
        let from = to.saturating_sub(BLOCK as u64);
        let block = &mut block[..(to - from) as usize];
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(block)?;
        for at in memchr::memrchr_iter(b'\n', block) {
            // The newline at the end of the file begins no line.
            let begins = from + at as u64 + 1;
            if begins == size {
                continue;
            }
            lines += 1;
            if lines == wanted {
                return Ok(FileTail { at: begins, lines });
            }
        }
        to = from;
    }
    Ok(FileTail { at: 0, lines: lines + usize::from(size > 0) })
}

/// One line of a log file.
pub struct LogFileLine<'a> {
    /// The time, as text.
    pub stamp: &'a [u8],
    /// Whether the next entry continues the line.
    pub is_part: bool,
    /// Content of the line.
    pub content: &'a [u8],
}

impl<'a> LogFileLine<'a> {
    /// Parses `<time> <stream> <F or P> <content>`; `None` for a damaged line.
    pub fn parse(line: &'a [u8]) -> Option<LogFileLine<'a>> {
        let mut fields = line.splitn(4, |byte| *byte == b' ');
        let (stamp, _stream, kind) = (fields.next()?, fields.next()?, fields.next()?);
        Some(LogFileLine { stamp, is_part: kind == b"P", content: fields.next()? })
    }

    /// The time.
    pub fn time(&self) -> Option<Time> {
        std::str::from_utf8(self.stamp).ok()?.parse().ok()
    }
}
