//! Finds the program that executes a file: the one after `#!`, or the loader that an ELF file names.
//!
//! Never: decides whether a file can be executed. A file that cannot be read has no interpreter.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Number of bytes to read: headers are at the beginning of a file.
const HEAD: usize = 4096;
/// The type of the ELF header that names the loader (`PT_INTERP`).
const LOADER: u32 = 3;

/// The interpreter of a program, if it has one.
pub fn interpreter_of_program(program: &Path) -> Option<PathBuf> {
    let mut head = Vec::with_capacity(HEAD);
    File::open(program).ok()?.take(HEAD as u64).read_to_end(&mut head).ok()?;
    let name = match head.strip_prefix(b"#!") {
        Some(line) => {
            let line = line.split(|byte| *byte == b'\n').next()?.trim_ascii_start();
            line.split(u8::is_ascii_whitespace).next()?
        }
        None => loader(&head)?,
    };
    (!name.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(name)))
}

/// Returns the loader of a 64-bit ELF file (elf(5)).
fn loader(file: &[u8]) -> Option<&[u8]> {
    let number = |at: usize, bytes: usize| {
        let bytes = file.get(at..at.checked_add(bytes)?)?;
        Some(bytes.iter().rev().fold(0, |number: usize, byte| number << 8 | usize::from(*byte)))
    };
    // ELF, of 64 bits, the lowest byte first.
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (first, size, count) = (number(0x20, 8)?, number(0x36, 2)?, number(0x38, 2)?);
    let headers = (0..count).map_while(|one| first.checked_add(one * size));
    let is_it = |header: &usize| number(*header, 4) == Some(LOADER as usize);
    let header = headers.into_iter().find(is_it)?;
    let (at, length) = (number(header + 8, 8)?, number(header + 32, 8)?);
    file.get(at..at.checked_add(length)?)?.split(|byte| *byte == 0).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_and_programs_tell_what_executes_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        for (content, wanted) in [
            (&b"#!/bin/sh\necho"[..], Some("/bin/sh")),
            (b"#! /usr/bin/env python3\n", Some("/usr/bin/env")),
            (b"#!", None),
            (b"", None),
            (b"\x7fELF\x02\x01", None),
            (b"plain", None),
        ] {
            std::fs::write(&file, content).expect("written");
            assert_eq!(interpreter_of_program(&file).as_deref(), wanted.map(Path::new), "{content:?}");
        }
        let loader = interpreter_of_program(Path::new("/bin/sh"));
        assert!(
            loader.is_none_or(|loader| loader.is_absolute() && loader.exists()),
            "a shell is static, or has a loader"
        );
        assert_eq!(interpreter_of_program(Path::new("/no/such")), None);
    }
}
