//! Reads files that a user names, up to a limit, because a device or a pipe may never end.

use std::fs::File;
use std::io::{Error, Read, Result};
use std::path::Path;

/// The largest file for one object, in bytes. The API accepts objects up to 3 MiB and ConfigMap
/// data up to 1 MiB.
pub const MAX_BYTES: u64 = 16 << 20;

/// Reads a whole file. Fails if it is larger than any object can be.
pub fn read(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    bounded(File::open(path)?, MAX_BYTES)
}

/// Reads a UTF-8 file like [`read`].
pub fn read_to_string(path: impl AsRef<Path>) -> Result<String> {
    String::from_utf8(read(path)?).map_err(|_| Error::other("it is not UTF-8"))
}

/// Reads to the end. Fails after more than `most` bytes.
pub fn bounded(reader: impl Read, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(Error::other(format!("it is larger than {} MiB, or never ends", most >> 20)));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_input_is_refused() {
        let error = read("/dev/zero").unwrap_err();
        assert_eq!(error.to_string(), "it is larger than 16 MiB, or never ends");
        assert_eq!(bounded(&b"abc"[..], 3).unwrap(), b"abc");
        assert!(bounded(std::io::repeat(1), 1 << 20).is_err());
        assert_eq!(read("/dev/null").unwrap(), b"");
    }
}
