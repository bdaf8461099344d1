//! The zygote: one small process that shims are forked from.
//!
//! A fork of a process that has one thread and a few megabytes costs a tenth of executing this binary again for every pod, and the pages of
//! all shims stay shared.
//! The zygote serves one control plane and ends with it. It does not manage the shims after their fork.

use super::super::process;
use super::super::send_descriptors::receive_with;
use super::super::spawn::open_dev_null;
use super::super::view::base_mounts::BaseMountsState;
use super::inherited_code::InheritedCode;
use crate::object::io_error_text;
use rustix::net::RecvFlags;
use rustix::process::setsid;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Longest path of a pod's folder.
const PATH: usize = 4096;

/// Serves until the control plane is gone: each message is a pod's folder and the shim's connection.
pub fn main() -> io::Result<()> {
    // SAFETY: this process has opened only standard input, output and error; inherited descriptors have no owner here.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    rustix::stdio::dup2_stdin(open_dev_null()?)?;
    let _ = rustix::thread::set_name(c"shims");
    // Sets the mask of the shims and of all containers; container runtimes use the same mask.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    // Only so may an ordinary user's processes put themselves under a filter. Root's may without, and can have setuid programs.
    if !rustix::process::geteuid().is_root() {
        rustix::thread::set_no_new_privs(true)?;
    }
    let mut base_mounts = BaseMountsState::default();
    base_mounts.prepare_for_forks();
    set_child_reaping(false);
    ask_about_processor();
    // Read once for all shims.
    let _ = process::boot_id();
    let mut code = InheritedCode::default();
    while let Some((folder, leader)) = receive(&control)? {
        base_mounts.prepare_for_forks();
        code.prepare_for_forks();
        // SAFETY: this process has one thread, so the child's copy of its memory is consistent.
        match unsafe { libc::fork() } {
            0 => {
                drop(control);
                return run_shim(&folder, leader, base_mounts);
            }
            pid => {
                // When the fork has failed, the control plane sees its connection close and asks again.
                drop(leader);
                if pid > 0 {
                    code.note_shim(pid);
                }
            }
        }
    }
    Ok(())
}

fn run_shim(folder: &[u8], leader: OwnedFd, mut base_mounts: BaseMountsState) -> io::Result<()> {
    set_child_reaping(true);
    setsid()?;
    base_mounts.inherit();
    std::env::set_current_dir(Path::new(std::ffi::OsStr::from_bytes(folder)))?;
    // The shim has no output: its error is written to the pod's folder.
    super::serve(leader, base_mounts)
        .inspect_err(|error| drop(std::fs::write("shim.error", format!("{error}\n", error = io_error_text(error)))))
}

/// Makes the libraries ask for the processor's abilities, once for all shims: in a virtual machine the answer takes 30 microseconds.
fn ask_about_processor() {
    std::hint::black_box(memchr::memchr(b'\n', std::hint::black_box(&[0; 64])));
}

/// Sets whether ended children stay until they are reaped. The zygote does not reap its shims.
fn set_child_reaping(wait: bool) {
    let action = if wait { libc::SIG_DFL } else { libc::SIG_IGN };
    // SAFETY: both are dispositions that run no code.
    unsafe { libc::signal(libc::SIGCHLD, action) };
}

fn receive(control: &OwnedFd) -> io::Result<Option<(Vec<u8>, OwnedFd)>> {
    let mut folder = vec![0; PATH];
    let (length, descriptors) = receive_with(control, &mut folder, RecvFlags::empty())?;
    folder.truncate(length);
    Ok(descriptors.into_iter().next().map(|leader| (folder, leader)))
}
