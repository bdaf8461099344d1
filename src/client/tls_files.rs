//! Reads the files that a kubeconfig names: certificates, keys, tokens.

use crate::object::io_error_text;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Maximum number of bytes of such a file.
const MAX_BYTES: u64 = 1 << 20;

/// Reads a file as text.
pub fn read_bounded(path: &Path) -> Result<String, String> {
    let problem = |why: String| format!("cannot read {}: {why}", path.display());
    let mut text = String::new();
    let file = File::open(path).map_err(|error| problem(io_error_text(error)))?;
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| problem(io_error_text(error)))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(problem(format!("it has more than {MAX_BYTES} bytes")));
    }
    Ok(text)
}
