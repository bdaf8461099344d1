//! A container's private view of files: the machine's under a private layer that receives all writes, with volumes mounted.
//!
//! The process that becomes the container makes it, in its own mount namespace (for an ordinary user in a user namespace that maps the user
//! to itself). So it ends with the container and needs no unmounting. All writes go to one tmpfs: a restart begins without them. Never:
//! changes a file of the machine, or a mount that other processes see.
//! Start reading at [`compose_view`]; `base_mounts` is the common base, `compose` builds the new root, `layer` makes overlays,
//! `private_dirs` makes folders that are not shared with the machine (`shm` is the one that a pod's containers share), `bind` mounts the
//! volumes, `cloned_mount` attaches open files and folders, `visit` enters another mount namespace and returns.

pub mod base_mounts;
mod bind;
mod cloned_mount;
mod compose;
mod devices;
mod layer;
mod mounted;
mod name;
mod private_dirs;
mod real_path;
mod services;
mod shm;
mod visit;

pub use base_mounts::BaseMounts;
pub use bind::{check as check_mounts, count_machine_procs};
pub use name::set_host_name;
pub use private_dirs::{SHM, is_within as is_in_own};
pub use real_path::real_path;
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
use visit::Home;

/// The namespaces that a container may have of its own, by their names in `/proc`, in the order of entering them: the first one permits the
/// others.
const SPACES: [(&str, LinkNameSpaceType); 3] = [
    ("user", LinkNameSpaceType::User),
    ("mnt", LinkNameSpaceType::Mount),
    ("uts", LinkNameSpaceType::HostNameAndNISDomainName),
];
/// Uid without other processes (Kubernetes' pause uses it, too).
const NOBODY: u32 = 65535;
/// The hidden command that tries whether namespaces are possible.
pub const TRY: &str = "try-view";

/// State of a process that has entered its own mount namespace.
pub struct EnteredView {
    /// The machine's mounts.
    mounts: Vec<Mounted>,
    /// The pod's shared memory.
    shm: Option<OwnedFd>,
    /// Copies of the machine's `/proc`, where the process sees another, for host paths.
    machine_procs: Vec<OwnedFd>,
    /// Whether it is root of the machine.
    is_root: bool,
}

/// The PID namespace of a process that enters a view.
#[derive(Clone, Copy)]
pub enum ViewProcesses {
    /// It sees the machine's `/proc`.
    Machine,
    /// It is in its own PID namespace, and its host paths show the machine's `/proc` at so many places.
    Own(usize),
}

/// Moves this process, which has one thread and is about to become a container, into its own mount namespace: from base mounts, or from
/// scratch. `counted`: its user namespace, if it needs one, is private, so that its processes are counted separately. `shm`: the pod's
/// shared memory.
pub fn start_view(
    base_mounts: Option<&BaseMounts>,
    counted: bool,
    processes: ViewProcesses,
    shm: Option<&PodShm>,
) -> Result<EnteredView, String> {
    if let Some(base_mounts) = base_mounts {
        let (shm, machine_procs) = base_mounts.enter(counted, processes, shm)?;
        return Ok(EnteredView { mounts: base_mounts.mounts(), shm, machine_procs, is_root: base_mounts.is_root() });
    }
    let mounts = mounted::read_mounts();
    let shm = shm.map(clone_shm).transpose()?;
    base_mounts::prepare()?;
    let machine_procs = show_processes(processes)?;
    Ok(EnteredView { mounts, shm, machine_procs, is_root: compose::is_machines_root() })
}

/// Clones the pod's shared memory and returns to the own namespace; only root may do that.
fn clone_shm(shm: &PodShm) -> Result<OwnedFd, String> {
    let home = Home::if_may_return().ok_or("cannot return to its mount namespace")?;
    home.visit(|| shm.clone_mount())
}

/// Mounts `/proc` for the PID namespace of this process, if it has its own. Returns copies of the machine's `/proc`, as far as the machine
/// permits them.
fn show_processes(processes: ViewProcesses) -> Result<Vec<OwnedFd>, Failure> {
    let ViewProcesses::Own(copies) = processes else { return Ok(Vec::new()) };
    let copies = (0..copies).map_while(|_| cloned_mount::clone_at("/proc").ok()).collect();
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(failed("mount /proc"))?;
    Ok(copies)
}

/// A view that is complete and not entered yet.
pub struct ComposedView {
    root: OwnedFd,
    /// The paths at which it differs from the machine's files.
    changed: Vec<PathBuf>,
}

impl ComposedView {
    /// Whether a folder or anything below it may differ from the machine's. The path has no symbolic links.
    pub fn may_differ(&self, folder: &Path) -> bool {
        self.changed.iter().any(|changed| folder.starts_with(changed) || changed.starts_with(folder))
    }

    /// Makes the root of the view the root of this process.
    pub fn enter(self) -> Result<(), String> {
        // Covers the old root, which is invisible from here on. Unmounting it (`pivot_root`) would wait for all processors.
        fchdir(&self.root).map_err(describe_error("enter the new root"))?;
        mount_move(".", "/").map_err(describe_error("move it over the old root"))?;
        chroot(".").map_err(describe_error("enter the new root"))?;
        chdir("/").map_err(describe_error("enter the new root"))
    }
}

/// Builds the view of this process. `message` is the termination message file in the pod's folder and its path in the view. `lives` are the
/// working folder, which is created when it is missing, and the home.
pub fn compose_view(
    begun: EnteredView,
    pod: &Path,
    message: (&Path, &str),
    lives: [&Path; 2],
    view: &MountView,
    volumes: &[Volume],
) -> Result<ComposedView, String> {
    let [cwd, _] = lives;
    let mut binds = bind::all_binds(pod, view, volumes, begun.machine_procs)?;
    // A volume above the pod's folder hides it: nothing of the folder is made in the volume.
    let is_hidden = binds.iter().any(|bind| bind.covers(pod));
    let cwd = Some(cwd).filter(|cwd| !is_hidden || !cwd.starts_with(pod));
    // The termination message is kept; other writes in the container's folder are gone after a restart like all others.
    let own_path = message.0.to_string_lossy();
    let places = [if is_hidden { "" } else { &own_path }, message.1];
    for place in places.into_iter().filter(|place| !place.is_empty()) {
        binds.push(bind::BindMount::file_at(message.0, place)?);
    }
    for folder in &view.own {
        binds.push(bind::BindMount::same_path(Path::new(folder))?);
    }
    mount_layer_tmpfs(pod)?;
    // From here on the parts of the view are in the working folder, so their paths are short even if the pod's path is long.
    let base = Path::new("");
    for (number, path) in view.new_folders.iter().enumerate() {
        binds.push(bind::BindMount::new_folder(&base.join(format!("v{number}")), path, view.new_folders_owner)?);
    }
    let mut wanted: Vec<layer::RequiredPath> = binds.iter().map(bind::BindMount::required_path).collect();
    wanted.extend(cwd.map(|cwd| layer::RequiredPath { path: cwd.to_owned(), is_folder: true }));
    let pods = pod.parent().unwrap_or(pod);
    let mounts = begun.mounts.into_iter().filter(|one| !one.at.starts_with(pods)).collect();
    let shown: Vec<&Path> = view.shown.iter().map(Path::new).chain([pod]).chain(cwd).collect();
    let targets: Vec<&Path> = binds.iter().map(|bind| &*bind.target).collect();
    let own = PrivateDir::plan_private_dirs(&shown, &targets, begun.shm);
    let is_nested = targets.iter().any(|at| targets.iter().any(|other| at != other && at.starts_with(other)));
    let (root, mut changed) = compose::compose(base, mounts, begun.is_root, wanted, lives, &own)?;
    if is_nested {
        // A link in the outer volume may lead the mount point of the inner one anywhere.
        changed.push("/".into());
    }
    binds.sort_by(|a, b| a.target.cmp(&b.target));
    if view.read_only {
        // A failure here is reported when the mount is made.
        cwd.iter().for_each(|cwd| bind::make_folder(&root, cwd));
        binds.iter().for_each(|bind| drop(bind.open_mount_point(&root)));
        compose::close(&root)?;
    }
    for step in [bind::BindMount::mount, bind::BindMount::finish] {
        for bind in &binds {
            step(bind, &root).map_err(|why| format!("error mounting {:?}: {why}", bind.target))?;
        }
    }
    // The working folder may be in a volume (as in runc: created after all mounts).
    cwd.iter().for_each(|cwd| bind::make_folder(&root, cwd));
    Ok(ComposedView { root, changed })
}

/// Mounts a new tmpfs for the container's writes, and makes it the working folder.
fn mount_layer_tmpfs(pod: &Path) -> Result<(), String> {
    // All containers use this path; none sees another's mount.
    let base = pod.parent().unwrap_or(pod).with_file_name(folder::ROOT);
    folder::private_folder(&base).map_err(|error| format!("{error:#}"))?;
    mount("tmpfs", &base, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(c"mode=0755"))
        .and_then(|()| chdir(&base))
        .map_err(describe_error("mount a tmpfs"))
}

/// Keeps the mount namespace of a process with a view open: the last user of a namespace has to wait for its unmounting.
pub fn hold_namespace(process: i32) -> Option<OwnedFd> {
    open_space(&process.to_string(), "mnt").ok()
}

/// Gives this process, which has one thread, an empty root and an unprivileged user, because others can read its `/proc` entry. Errors are
/// ignored.
pub fn drop_files_and_rights() {
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
        // SAFETY: plain system calls of a process with one thread. Groups are set first, because the unprivileged user may not change them.
        unsafe {
            libc::setgroups(0, std::ptr::null());
            libc::setgid(NOBODY);
            libc::setuid(NOBODY);
        }
    }
}

/// The namespaces of a process that differ from ours. They are opened early: in another PID namespace the pid is unknown.
pub struct ForeignNamespaces(Vec<(OwnedFd, LinkNameSpaceType)>);

impl ForeignNamespaces {
    /// Opens those of this process.
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

/// Opens a namespace of a process, by its name in `/proc`; `None` when it is ours.
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

/// Moves this process, which has one thread, into the namespaces of another one, except the PID namespace.
pub fn join(other: &ForeignNamespaces) -> Result<(), String> {
    let enter = |(space, kind): &(OwnedFd, LinkNameSpaceType)| {
        match move_into_link_name_space(space.as_fd(), Some(*kind)) {
            // Without namespaces there are no private mounts either; a host name alone is not worth an error.
            Err(_) if *kind == LinkNameSpaceType::HostNameAndNISDomainName => Ok(()),
            entered => entered,
        }
    };
    other.0.iter().try_for_each(enter).map_err(describe_error("enter the container's namespaces"))
}

/// Whether private views are possible on this machine. Tried in a separate process, because entering a namespace is irreversible.
pub fn is_possible(program: &Path) -> bool {
    trial::is_possible(program, TRY)
}

/// Body of the process that [`is_possible`] starts.
pub fn attempt() -> ExitCode {
    let _ = rustix::thread::set_no_new_privs(true);
    let overlay = || {
        separate().map_err(|failure| failure.error)?;
        // A sandbox may permit creating namespaces but not entering them.
        space_of_ours("mnt").and_then(|own| move_into_link_name_space(own.as_fd(), None))?;
        Ok(mount("tmpfs", "/proc", "tmpfs", MountFlags::empty(), None)?)
    };
    trial::exit_code(overlay())
}

/// A failed step and its error.
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

/// Gives this process its own mounts: changes of the machine's still arrive, and none propagates back.
fn separate() -> Result<(), Failure> {
    // SAFETY: the flag does not touch the table of descriptors, which is what makes this call unsafe.
    if unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.is_err() {
        enter_own_user_namespace()?;
    }
    let quietly = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", quietly).map_err(failed("separate its mounts from the machine's"))
}

/// Gives this process a user namespace that maps the user to itself, and a mount namespace that belongs to it.
fn enter_own_user_namespace() -> Result<(), Failure> {
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

/// Creates a folder unless it exists.
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
