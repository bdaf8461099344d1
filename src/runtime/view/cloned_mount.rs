//! Mounts of files and folders that are open already.
//!
//! mount(2) takes paths, and what is open has one only in `/proc`: to look such a path up in a container's new `/proc` takes a third as
//! long as the mount itself. A clone of a mount is attached by descriptors alone (open_tree(2), move_mount(2)).

use super::path_of;
use rustix::fs::CWD;
use rustix::io::{Errno, Result};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, mount_bind, mount_bind_recursive, move_mount, open_tree};
use std::os::fd::OwnedFd;

/// Mounts an open file or folder, with the mounts below it, at an open mount point.
pub fn bind_recursive(source: &OwnedFd, place: &OwnedFd) -> Result<()> {
    let bound = clone(source, OpenTreeFlags::AT_RECURSIVE).and_then(|clone| attach(&clone, place));
    if is_refused(bound) { mount_bind_recursive(path_of(source), path_of(place)) } else { bound }
}

/// Mounts an open file or folder at an open place.
pub fn bind(source: &OwnedFd, place: &OwnedFd) -> Result<()> {
    let bound = clone(source, OpenTreeFlags::empty()).and_then(|clone| attach(&clone, place));
    if is_refused(bound) { mount_bind(path_of(source), path_of(place)) } else { bound }
}

/// Whether a sandbox does not implement or permit these system calls. It may permit mount(2).
fn is_refused(bound: Result<()>) -> bool {
    matches!(bound, Err(Errno::NOSYS | Errno::PERM))
}

/// Clones the mount at a path, with the mounts below it.
pub fn clone_at(path: &str) -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    open_tree(CWD, path, flags)
}

fn clone(source: &OwnedFd, flags: OpenTreeFlags) -> Result<OwnedFd> {
    let always = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(source, "", flags | always)
}

/// Attaches a cloned mount at an open place.
pub fn attach(clone: &OwnedFd, place: &OwnedFd) -> Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(clone, "", place, "", flags)
}
