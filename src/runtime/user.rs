//! Users other than the shim's: their ids on this machine, and the files that they own before a container starts.

use super::file_tree::{self, Mounts, WalkEvent, set_mode, set_owner, walk};
use super::spawn::UserAndGroups;
use super::{folder, volumes};
use crate::object::io_error_text;
use crate::world::ContainerUser;
use crate::world::volume::{Volume, VolumeContent};
use rustix::fs::{CWD, FileType, fstat};
use rustix::io::Errno;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Maximum walks through a volume for `fsGroup` when containers change it meanwhile.
const MAX_WALKS: u32 = 3;

/// A line of `/etc/passwd` (passwd(5)).
struct PasswdEntry<'a> {
    name: &'a str,
    user: u32,
    group: u32,
    home: &'a str,
}

impl<'a> PasswdEntry<'a> {
    /// Reads the valid lines.
    fn read_all(passwd: &'a str) -> impl Iterator<Item = PasswdEntry<'a>> {
        passwd.lines().filter_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, user, group, _, home, ..] = fields[..] else { return None };
            Some(PasswdEntry { name, user: user.parse().ok()?, group: group.parse().ok()?, home })
        })
    }

    fn find(passwd: &'a str, user: u32) -> Option<PasswdEntry<'a>> {
        PasswdEntry::read_all(passwd).find(|entry| entry.user == user)
    }
}

/// A line of `/etc/group` (group(5)).
struct GroupEntry<'a> {
    name: &'a str,
    group: u32,
    members: &'a str,
}

impl<'a> GroupEntry<'a> {
    /// Reads the valid lines.
    fn read_all(groups: &'a str) -> impl Iterator<Item = GroupEntry<'a>> {
        groups.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let (name, group) = (fields.next()?, fields.nth(1)?.parse().ok()?);
            Some(GroupEntry { name, group, members: fields.next().unwrap_or_default() })
        })
    }
}

/// Reads the machine's user database; empty when it has none.
fn read_passwd() -> String {
    fs::read_to_string("/etc/passwd").unwrap_or_default()
}

fn read_groups() -> String {
    fs::read_to_string("/etc/group").unwrap_or_default()
}

/// Resolves a user. Without a group, the group is that of the machine's user database, else 0, as in a container.
pub fn identity(wanted: &ContainerUser) -> UserAndGroups {
    let user = wanted.user.unwrap_or_else(|| rustix::process::geteuid().as_raw());
    let of_machine = || PasswdEntry::find(&read_passwd(), user).map_or(0, |entry| entry.group);
    let group = wanted.group.unwrap_or_else(of_machine);
    let mut groups = [&[group][..], &wanted.groups].concat();
    if !wanted.strict {
        let more = memberships(&read_passwd(), &read_groups(), user);
        groups.extend(more.into_iter().filter(|more| !wanted.groups.contains(more) && *more != group));
    }
    UserAndGroups { user, group, groups }
}

/// Returns the groups that the machine lists the user in (`supplementalGroupsPolicy: Merge`).
fn memberships(passwd: &str, groups: &str, user: u32) -> Vec<u32> {
    let Some(entry) = PasswdEntry::find(passwd, user) else { return Vec::new() };
    let lists_user = |group: &GroupEntry| group.members.split(',').any(|member| member == entry.name);
    GroupEntry::read_all(groups).filter(lists_user).map(|group| group.group).collect()
}

/// Returns the home of a user; `/` for an unknown user, as in a container.
pub fn home(user: u32) -> String {
    PasswdEntry::find(&read_passwd(), user).map_or("/", |entry| entry.home).to_owned()
}

/// Resolves the user of an Image object, `postgres` or `999:999`; the container's own settings take precedence. Also returns the user's
/// home.
pub fn resolve_image_user(named: &str, said: ContainerUser) -> Result<(ContainerUser, Option<String>), String> {
    let (user, group) = named.split_once(':').map_or((named, None), |(user, group)| (user, Some(group)));
    let passwd = read_passwd();
    let number: Option<u32> = user.parse().ok();
    let is_named = |entry: &PasswdEntry| entry.name == user || number == Some(entry.user);
    let entry = PasswdEntry::read_all(&passwd).find(is_named);
    let id = number.or(entry.as_ref().map(|entry| entry.user));
    let id = id.ok_or_else(|| format!("unable to find user {user}: no matching entries in passwd file"))?;
    let find_group =
        |name: &str| GroupEntry::read_all(&read_groups()).find(|entry| entry.name == name).map(|entry| entry.group);
    let group = match group.filter(|_| said.group.is_none()) {
        Some(name) => Some(
            name.parse()
                .ok()
                .or_else(|| find_group(name))
                .ok_or_else(|| format!("unable to find group {name}: no matching entries in group file"))?,
        ),
        None => said.group,
    };
    Ok((ContainerUser { user: Some(id), group, ..said }, entry.map(|entry| entry.home.to_owned())))
}

/// Gives the container's user its scratch folder and its termination message file, and gives the volumes to the group of `fsGroup`.
pub fn hand_over_folders(
    wanted: &ContainerUser,
    message: &Path,
    scratch: Option<&Path>,
    pod: &Path,
    all: &[Volume],
) -> Result<(), String> {
    let identity_of_user = identity(wanted);
    let failure = |path: &Path, error: Errno| {
        format!(
            "cannot give {} to user {}: {error}",
            path.display(),
            identity_of_user.user,
            error = io_error_text(error)
        )
    };
    folder::make_file(message, 0o644)
        .map_err(|error| format!("cannot make {}: {}", message.display(), io_error_text(error)))?;
    for path in scratch.into_iter().chain([message]) {
        let given = file_tree::open_path(CWD, path)
            .and_then(|held| set_owner(held, Some(identity_of_user.user), Some(identity_of_user.group)));
        given.map_err(|error| failure(path, error))?;
    }
    let Some(group) = wanted.files else { return Ok(()) };
    // Files have their group from the start, also those that replace them later.
    let is_given = |volume: &&Volume| !matches!(volume.source, VolumeContent::Host { .. } | VolumeContent::Files(_));
    for volume in all.iter().filter(is_given) {
        let root = volumes::root_of(pod, &volume.name, all);
        give_all(&root, group).map_err(|error| failure(&root, error))?;
    }
    Ok(())
}

/// Gives a volume to a group; repeats that when containers of the pod moved folders of it meanwhile.
fn give_all(root: &Path, group: u32) -> rustix::io::Result<()> {
    let attempt = || {
        let root = file_tree::open_folder(CWD, root)?;
        set_group(&root, group)?;
        walk(root, Mounts::Skipped, &mut |found| match found {
            WalkEvent::Folder { folder, .. } => set_group(folder, group),
            WalkEvent::Other { folder, name, kind: FileType::RegularFile } => {
                match file_tree::open_path(folder, name) {
                    Err(Errno::NOENT) => Ok(()),
                    held => set_group(&held?, group),
                }
            }
            WalkEvent::Closed { error } => Err(error),
            WalkEvent::Other { .. } | WalkEvent::Left => Ok(()),
        })
    };
    (1..MAX_WALKS).find_map(|_| attempt().ok()).map_or_else(attempt, Ok)
}

/// Sets group and mode as Kubernetes does: the group owns every file and folder, has the owner's permissions, and new files in folders
/// inherit it. Changes the open file, even if its name now refers to another one.
fn set_group(held: &OwnedFd, group: u32) -> rustix::io::Result<()> {
    let before = fstat(held)?.st_mode;
    let more = match FileType::from_raw_mode(before) {
        FileType::RegularFile => 0,
        FileType::Directory => 0o2070,
        _ => return Ok(()),
    };
    set_owner(held, None, Some(group))?;
    let mode = before & 0o7777;
    set_mode(held, mode | ((mode & 0o600) >> 3) | more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn volume_ownership_never_follows_swapped_links() {
        let base = tempfile::tempdir().unwrap();
        let (volume, secret) = (base.path().join("volume"), base.path().join("secret"));
        fs::create_dir_all(volume.join("sub")).unwrap();
        fs::write(&secret, "").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let group = rustix::process::getegid().as_raw();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Simulates a hostile pod: one name is in turns a file and a link to the machine's file.
            scope.spawn(|| {
                let (file, link, name) = (volume.join("file"), volume.join("link"), volume.join("name"));
                while !over.load(Ordering::Relaxed) {
                    fs::write(&file, "").unwrap();
                    fs::rename(&file, &name).unwrap();
                    symlink(&secret, &link).unwrap();
                    fs::rename(&link, &name).unwrap();
                }
            });
            for _ in 0..2_000 {
                give_all(&volume, group).unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(mode(&secret), 0o600);
        assert_eq!((mode(&volume) & 0o2070, mode(&volume.join("sub")) & 0o2070), (0o2070, 0o2070));
        fs::remove_file(volume.join("name")).unwrap();
        fs::write(volume.join("name"), "").unwrap();
        fs::set_permissions(volume.join("name"), fs::Permissions::from_mode(0o600)).unwrap();
        give_all(&volume, group).unwrap();
        assert_eq!((mode(&volume.join("name")), fs::metadata(volume.join("name")).unwrap().gid()), (0o660, group));
    }

    #[test]
    fn user_has_the_groups_of_the_user_database() {
        let passwd = "root:x:0:0::/root:/bin/sh\nodd\nnobody:x:65534:65533::/:/bin/false\n";
        for (user, group) in [(0, Some(0)), (65534, Some(65533)), (5, None)] {
            assert_eq!(PasswdEntry::find(passwd, user).map(|entry| entry.group), group);
        }
        assert_eq!(PasswdEntry::find(passwd, 0).map(|entry| entry.home), Some("/root"));
        let groups = "root:x:0:\nkvm:x:78:nobody\nodd\nwheel:x:10:root,nobody\n";
        for (user, expected) in [(0, vec![10]), (65534, vec![78, 10]), (5, vec![])] {
            assert_eq!(memberships(passwd, groups, user), expected);
        }
    }
}
