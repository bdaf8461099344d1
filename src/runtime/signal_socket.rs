//! Signals as sockets that become readable, for tasks that wait for other things as well.

use std::io;
use std::os::unix::net::UnixStream;

/// Returns a socket that becomes readable on one of these signals.
pub fn readable_on(signals: &[i32]) -> io::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, writer.try_clone()?)?;
    }
    Ok(reader)
}
