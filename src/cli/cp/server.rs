//! Copies through a server: tar in the container, its archive over the streams of a command, as kubectl copies.
//!
//! Knows: links are left out and named, and no name of an archive leads out of its destination. Start reading at [`copy_out`] and [`put`].

use super::{CopyContainer, print_skipped};
use crate::apiserver::remote::refusal;
use crate::cli::cluster::server_session::{Channel, ServerSession, read_end};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::client::{ApiClient, ChannelSocket, SocketSender};
use crate::object::{Object, io_error_text};
use crate::runtime::session::{SessionEnd, SessionStreams};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// Longest wait for the next bytes of a command.
const READ_TIMEOUT: Duration = Duration::from_secs(300);
/// Bytes of an archive that are sent at once.
const PIECE_BYTES: usize = 32 << 10;
/// Maximum number of bytes of a command's errors that are kept.
const MAX_ERRORS: usize = 64 << 10;

/// A command in a container, whose output is read.
struct TarCommand<'a> {
    client: &'a ApiClient,
    socket: ChannelSocket,
    piece: bytes::Bytes,
    errors: Vec<u8>,
    end: Option<SessionEnd>,
}

impl<'a> TarCommand<'a> {
    fn start(
        client: &'a ApiClient,
        pod: &Object,
        container: &str,
        words: &[&str],
        stdin: bool,
    ) -> CliResult<TarCommand<'a>> {
        let command: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let streams = SessionStreams { stdin, terminal: false };
        let session = ServerSession { pod, container, subresource: "exec", command: &command, streams, detach: None };
        let socket = session.open(client)?;
        Ok(TarCommand { client, socket, piece: bytes::Bytes::new(), errors: Vec::new(), end: None })
    }

    /// Receives the next bytes of the output; false at the end.
    fn receive(&mut self) -> io::Result<bool> {
        loop {
            match self.socket.receive(READ_TIMEOUT) {
                Ok(None) => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "timed out waiting for data from the container",
                    ));
                }
                Ok(Some(message)) => match Channel::from_number(message.channel) {
                    Some(Channel::Stdout) if !message.bytes.is_empty() => {
                        self.piece = message.bytes;
                        return Ok(true);
                    }
                    Some(Channel::Stderr) => {
                        let room = MAX_ERRORS.saturating_sub(self.errors.len());
                        self.errors.extend_from_slice(&message.bytes[..message.bytes.len().min(room)]);
                    }
                    Some(Channel::Status) => self.end = Some(read_end(&message.bytes)),
                    _ => {}
                },
                Err(None) => return Ok(false),
                Err(Some(_)) if self.end.is_some() => return Ok(false),
                Err(Some(error)) => return Err(io::Error::other(refusal(self.client, error).message)),
            }
        }
    }

    /// Waits for the end. Prints the command's errors, and returns its exit code.
    fn finish(mut self, context: &mut CommandContext) -> CliResult<i32> {
        while self.receive()? {}
        let errors = String::from_utf8_lossy(&self.errors);
        errors.lines().for_each(|line| context.print_notice(line));
        match self.end {
            Some(SessionEnd::Exited(code)) => Ok(code),
            Some(SessionEnd::Failed(why)) => Err(Failure::plain(why)),
            _ => Err(Failure::plain("the command in the container ended without a status")),
        }
    }
}

impl Read for TarCommand<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() && !self.receive()? {
            return Ok(0);
        }
        let count = buffer.len().min(self.piece.len());
        buffer[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}

/// Sends an archive to a command.
struct ArchiveSender(SocketSender);

impl Write for ArchiveSender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(PIECE_BYTES);
        match self.0.send(Channel::Stdin as u8, &bytes[..count]) {
            true => Ok(count),
            // The command has ended; its exit status has the reason.
            false => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn check_exit(code: i32, context: &mut CommandContext) -> CliResult {
    if code == 0 {
        return Ok(());
    }
    context.print_notice(&format!("command terminated with exit code {code}"));
    Err(Failure::Code(u8::try_from(code).unwrap_or(1)))
}

/// Copies a file or a folder of a container to a local path.
pub fn copy_out(from: &CopyContainer, path: &Path, to: &Path, context: &mut CommandContext) -> CliResult {
    let client = context.require_client()?;
    let text = path.to_string_lossy();
    let command = TarCommand::start(&client, &from.pod, &from.container, &["tar", "cf", "-", &*text], false)?;
    let mut archive = tar::Archive::new(command);
    let prefix = plain_parts(path);
    let to = match (to.is_dir(), path.file_name()) {
        (true, Some(name)) => to.join(name),
        _ => to.to_owned(),
    };
    let mut links = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = plain_parts(&entry.path()?);
        // The container may send any name: skips a name outside of the requested path.
        let Ok(below) = name.strip_prefix(&prefix) else { continue };
        let place = if below.as_os_str().is_empty() { to.clone() } else { to.join(below) };
        match entry.header().entry_type() {
            tar::EntryType::Directory => fs::create_dir_all(&place)?,
            tar::EntryType::Regular | tar::EntryType::Continuous => write_file(&mut entry, &place)?,
            tar::EntryType::Symlink | tar::EntryType::Link => {
                links.push((place, entry.link_name()?.unwrap_or_default().into_owned()));
            }
            _ => {}
        }
    }
    print_skipped(from, path, &links, context);
    let code = archive.into_inner().finish(context)?;
    check_exit(code, context)
}

/// Returns a path without parts such as `..` and the root, which lead out of a folder.
fn plain_parts(path: &Path) -> PathBuf {
    let is_name = |part: &Component<'_>| matches!(part, Component::Normal(_));
    path.components().filter(is_name).collect()
}

fn write_file(entry: &mut tar::Entry<'_, impl Read>, place: &Path) -> CliResult {
    let failed =
        |error: io::Error| Failure::plain(format!("cannot write {}: {}", place.display(), io_error_text(error)));
    if let Some(parent) = place.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    let mut file = fs::File::create(place).map_err(failed)?;
    io::copy(entry, &mut file).map_err(failed)?;
    Ok(())
}

/// Copies a local file or folder into a container.
pub fn put(to: &CopyContainer, from: &Path, path: &Path, context: &mut CommandContext) -> CliResult {
    let client = context.require_client()?;
    let text = path.to_string_lossy();
    let mut look = TarCommand::start(&client, &to.pod, &to.container, &["test", "-d", &*text], false)?;
    while look.receive()? {}
    let is_folder = look.end == Some(SessionEnd::Exited(0));
    let own_name = || fs::canonicalize(from).ok()?.file_name().map(OsString::from);
    let (folder, name) = match is_folder {
        true => (path.to_owned(), own_name()),
        false => (path.parent().unwrap_or(Path::new("/")).to_owned(), path.file_name().map(OsString::from)),
    };
    let name = name.ok_or_else(|| Failure::plain(format!("{}: no name", path.display())))?;
    let folder = if folder.as_os_str().is_empty() { ".".into() } else { folder.to_string_lossy() };
    let command = TarCommand::start(&client, &to.pod, &to.container, &["tar", "-xmf", "-", "-C", &*folder], true)?;
    let sent = send_archive(from, Path::new(&name), ArchiveSender(command.socket.sender()));
    command.socket.sender().send(Channel::Close as u8, &[Channel::Stdin as u8]);
    let code = command.finish(context)?;
    check_exit(code, context)?;
    Ok(sent?)
}

/// Sends a file or a folder under this name. Links stay links.
fn send_archive(from: &Path, name: &Path, sender: ArchiveSender) -> io::Result<()> {
    let mut archive = tar::Builder::new(io::BufWriter::with_capacity(PIECE_BYTES, sender));
    archive.follow_symlinks(false);
    match fs::metadata(from)?.is_dir() {
        true => archive.append_dir_all(name, from)?,
        false => archive.append_path_with_name(from, name)?,
    }
    archive.into_inner()?.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_archives_stay_below_their_destination() {
        for (name, expected) in [("a/b", "a/b"), ("/a/b", "a/b"), ("../a", "a"), ("a/../../b", "a/b"), ("./a", "a")] {
            assert_eq!(plain_parts(Path::new(name)), Path::new(expected), "{name}");
        }
    }
}
