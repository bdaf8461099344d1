//! A container's own view of files: the machine's under a private layer that takes every write, with volumes mounted.
//!
//! It is made by the process that becomes the container, in a mount namespace of its own (as an ordinary user in a user namespace
//! that maps the user to itself), so it ends with the container and nothing is left to unmount. Everything that is written lies in
//! one tmpfs: a restart starts fresh. Never: changes a file of the machine, or a mount that anybody else sees.
//! Start reading at [`enter`]; `base_mounts` is what all of them begin with, `compose` lays the machine's files out below the new root,
//! `layer` takes what is written, `private_dirs` are the folders that they do not share with it (`shm` the one that a pod's containers share),
//! `bind` puts the volumes there.

pub mod base_mounts;
mod bind;
mod compose;
mod devices;
mod layer;
mod make_shm;
mod mounted;
mod name;
mod private_dirs;
mod services;
mod shm;

pub use base_mounts::BaseMounts;
pub use bind::check as check_mounts;
pub use name::call_it;
pub use private_dirs::{SHM, is_within as is_in_own};
pub use shm::PodShm;

use super::file_tree::path_of;
use super::wire::MountView;
use super::{folder, trial};
use crate::object::io_error_text;
use crate::world::volume::Volume;
use mounted::Mounted;
use private_dirs::PrivateDir;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change, mount_move};
use rustix::process::{chdir, chroot, fchdir, getegid, geteuid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The namespaces that a container may have of its own, by their names in `/proc`, in the order in which they are entered: the first
/// gives the right to the others.
const SPACES: [(&str, LinkNameSpaceType); 3] = [
    ("user", LinkNameSpaceType::User),
    ("mnt", LinkNameSpaceType::Mount),
    ("uts", LinkNameSpaceType::HostNameAndNISDomainName),
];
/// Uid that no other process has (Kubernetes' pause uses it, too).
const NOBODY: u32 = 65535;
/// The hidden command that tries whether namespaces can be had.
pub const TRY: &str = "try-view";

/// State of a process that has entered its view.
pub struct EnteredView {
    /// The machine's mounts.
    mounts: Vec<Mounted>,
    /// Its pod's memory.
    shm: Option<OwnedFd>,
}

/// Takes this process, which has one thread and is about to become a container, among mounts of its own: those of a ground, or from
/// nothing. `counted`: its user namespace, if it needs one, is nobody else's, so that its processes are counted apart. `has_space`: it is
/// in a process namespace other than the machine's. `shm`: what it is to share with its pod.
pub fn start_view(
    ground: Option<&BaseMounts>,
    counted: bool,
    has_space: bool,
    shm: Option<&PodShm>,
) -> Result<EnteredView, String> {
    if let Some(ground) = ground {
        return ground.enter(counted, has_space, shm).map(|shm| EnteredView { mounts: ground.mounts(), shm });
    }
    let mounts = mounted::read_mounts();
    let shm = shm.map(take_from_here).transpose()?;
    base_mounts::prepare()?;
    if has_space {
        show_processes()?;
    }
    Ok(EnteredView { mounts, shm })
}

/// Takes what a pod shares, and comes back: for root, who may.
fn take_from_here(shm: &PodShm) -> Result<OwnedFd, String> {
    let here = space_of_ours("mnt").map_err(describe_error("open its mounts"))?;
    let taken = shm.clone_mount()?;
    move_into_link_name_space(here.as_fd(), Some(LinkNameSpaceType::Mount))
        .map_err(describe_error("go back to its mounts"))?;
    Ok(taken)
}

/// Has `/proc` tell of the processes in this process's own namespace.
fn show_processes() -> Result<(), Failure> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(failed("mount /proc"))
}

/// Gives this process, which has begun, its view. `message` is the file in its pod's folder that it also finds where it is to leave its
/// termination message; of the folders that it `lives` in, where it begins and its home, the first is made when it is missing.
pub fn enter(
    begun: EnteredView,
    pod: &Path,
    message: (&Path, &str),
    lives: [&Path; 2],
    view: &MountView,
    volumes: &[Volume],
) -> Result<(), String> {
    let [cwd, _] = lives;
    let mut binds = bind::all_binds(pod, view, volumes)?;
    // Its last words are kept; what else it writes in its own folder is as fresh after a restart as everything is.
    let places = [&*message.0.to_string_lossy(), message.1];
    for place in places.into_iter().filter(|place| !place.is_empty()) {
        binds.push(bind::BindMount::file_at(message.0, place)?);
    }
    for folder in &view.own {
        binds.push(bind::BindMount::as_it_is(Path::new(folder))?);
    }
    let base = base_of(pod)?;
    for (number, path) in view.fresh.iter().enumerate() {
        binds.push(bind::BindMount::fresh(&base.join(format!("v{number}")), path, view.fresh_owner)?);
    }
    let mut wanted: Vec<layer::RequiredPath> = binds.iter().map(bind::BindMount::required_path).collect();
    wanted.push(layer::RequiredPath { path: cwd.to_owned(), is_folder: true });
    let pods = pod.parent().unwrap_or(pod);
    let mounts = begun.mounts.into_iter().filter(|one| !one.at.starts_with(pods)).collect();
    let shown: Vec<&Path> = view.shown.iter().map(Path::new).chain([pod, cwd]).collect();
    let targets: Vec<&Path> = binds.iter().map(|bind| &*bind.target).collect();
    let root =
        compose::compose(&base, mounts, &wanted, lives, &PrivateDir::plan_private_dirs(&shown, &targets, begun.shm))?;
    binds.sort_by(|a, b| a.target.cmp(&b.target));
    if view.read_only {
        // A failure here is reported when the mount is made.
        bind::make_folder(&root, cwd);
        binds.iter().for_each(|bind| drop(bind.place(&root)));
        compose::close(&base)?;
    }
    for step in [bind::BindMount::mount, bind::BindMount::finish] {
        for bind in &binds {
            step(bind, &root).map_err(|why| format!("error mounting {:?}: {why}", bind.target))?;
        }
    }
    // It may lie in a volume (as in runc: made after everything is mounted).
    bind::make_folder(&root, cwd);
    // Over the old root, which nobody can see from here on. To unmount that one as well (`pivot_root`) would wait for all processors.
    fchdir(&root).map_err(describe_error("enter the new root"))?;
    mount_move(".", "/").map_err(describe_error("put it in the place of the root"))?;
    chroot(".").map_err(describe_error("enter the new root"))?;
    chdir("/").map_err(describe_error("enter the new root"))
}

/// A fresh tmpfs for everything that the container writes.
fn base_of(pod: &Path) -> Result<PathBuf, String> {
    // One place for all of them, which none sees of any other.
    let base = pod.parent().unwrap_or(pod).with_file_name(folder::ROOT);
    folder::private_folder(&base).map_err(|error| format!("{error:#}"))?;
    mount("tmpfs", &base, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(c"mode=0755"))
        .map_err(describe_error("mount a tmpfs"))?;
    Ok(base)
}

/// Keeps a process's mounts, when they are not ours: whoever lets go of mounts last has to unmount them all.
pub fn hold_namespace(process: i32) -> Option<OwnedFd> {
    space_of(process, "mnt").ok().flatten()
}

/// Leaves this process, which has one thread, an empty folder in place of all files, and nobody's rights: for one whose `/proc` others may
/// look into. What cannot be had is left as it is.
pub fn hide() {
    // SAFETY: the flag does not touch the table of descriptors, which is what makes this call unsafe.
    let alone = unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.is_ok();
    let quietly = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    if alone && mount_change("/", quietly).is_ok() {
        let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let _ = mount("tmpfs", "/proc", "tmpfs", flags, Some(c"size=4k"))
            .and_then(|()| chdir("/proc"))
            .and_then(|()| mount_move(".", "/"))
            .and_then(|()| chroot("."));
    }
    let _ = chdir("/");
    let _ = rustix::thread::set_no_new_privs(true);
    if geteuid().is_root() {
        // SAFETY: plain system calls of a process of one thread. First the group: who is nobody may not change it.
        unsafe {
            libc::setgroups(0, std::ptr::null());
            libc::setgid(NOBODY);
            libc::setuid(NOBODY);
        }
    }
}

/// The namespaces of a process that are not ours. They are opened early: a process namespace of our own may not know its number.
pub struct ForeignNamespaces(Vec<(OwnedFd, LinkNameSpaceType)>);

impl ForeignNamespaces {
    /// Those of the process of this number.
    pub fn open(process: i32) -> Result<ForeignNamespaces, String> {
        let spaces = SPACES.into_iter().filter_map(|(name, kind)| match space_of(process, name) {
            Ok(space) => space.map(|space| Ok((space, kind))),
            Err(error) => Some(Err(error)),
        });
        spaces
            .collect::<Result<_, _>>()
            .map(ForeignNamespaces)
            .map_err(describe_error("open the container's namespaces"))
    }
}

/// A namespace of a process, by its name in `/proc`; none when it is ours.
fn space_of(process: i32, name: &str) -> rustix::io::Result<Option<OwnedFd>> {
    let (theirs, ours) = (open_space(&process.to_string(), name)?, space_of_ours(name)?);
    Ok((fstat(&theirs)?.st_ino != fstat(&ours)?.st_ino).then_some(theirs))
}

fn space_of_ours(name: &str) -> rustix::io::Result<OwnedFd> {
    open_space("self", name)
}

fn open_space(whose: &str, name: &str) -> rustix::io::Result<OwnedFd> {
    openat(CWD, format!("/proc/{whose}/ns/{name}"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Takes this process, which has one thread, into the namespaces of another one, but for that of its processes.
pub fn join(other: &ForeignNamespaces) -> Result<(), String> {
    let enter = |(space, kind): &(OwnedFd, LinkNameSpaceType)| {
        match move_into_link_name_space(space.as_fd(), Some(*kind)) {
            // Without namespaces there are no private mounts either, and a host name is not worth an error.
            Err(_) if *kind == LinkNameSpaceType::HostNameAndNISDomainName => Ok(()),
            entered => entered,
        }
    };
    other.0.iter().try_for_each(enter).map_err(describe_error("enter the container's namespaces"))
}

/// Whether this machine lets us do all this. Tried in a process of its own, because namespaces are entered for good.
pub fn is_possible(program: &Path) -> bool {
    trial::is_possible(program, TRY)
}

/// The process that [`is_possible`] starts.
pub fn attempt() -> ExitCode {
    let _ = rustix::thread::set_no_new_privs(true);
    let overlay = || {
        separate().map_err(|failure| failure.error)?;
        // A sandbox may let namespaces be made and none be entered.
        space_of_ours("mnt").and_then(|own| move_into_link_name_space(own.as_fd(), None))?;
        Ok(mount("tmpfs", "/proc", "tmpfs", MountFlags::empty(), None)?)
    };
    trial::exit_code(overlay())
}

/// A step that failed, and why.
struct Failure {
    what: &'static str,
    error: io::Error,
}

impl From<Failure> for String {
    fn from(failure: Failure) -> String {
        describe_error(failure.what)(failure.error)
    }
}

fn failed<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> Failure {
    move |error| Failure { what, error: error.into() }
}

/// Mounts of its own for this process; the machine's keep coming in and none goes out.
fn separate() -> Result<(), Failure> {
    // SAFETY: the flag does not touch the table of descriptors, which is what makes this call unsafe.
    if unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.is_err() {
        among_own_users()?;
    }
    let quietly = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", quietly).map_err(failed("part from the machine's mounts"))
}

/// A user namespace for this process that maps the user to itself, and mounts that belong to it.
fn among_own_users() -> Result<(), Failure> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: neither flag touches the table of descriptors, which is what makes this call unsafe.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }.map_err(failed("make a user namespace"))?;
    let write = |file: &str, text: String| fs::write(format!("/proc/self/{file}"), text);
    let map = |id: u32| format!("{id} {id} 1\n");
    write("setgroups", "deny".into())
        .and_then(|()| write("uid_map", map(user)))
        .and_then(|()| write("gid_map", map(group)))
        .map_err(failed("map the user to itself"))
}

/// Makes a folder unless it is there.
fn create_folder(path: &Path, mode: u32) -> Result<(), String> {
    match fs::DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(format!("cannot make {}: {error}", path.display(), error = io_error_text(error)))
        }
        _ => Ok(()),
    }
}

fn describe_error<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> String {
    move |error| format!("cannot {what}: {error}", error = io_error_text(error))
}
