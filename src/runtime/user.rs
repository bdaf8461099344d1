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
const TRIES: u32 = 3;

/// Resolves a user. Without a group, the group is that of the machine's user database, else 0, as in a container.
pub fn identity(wanted: &ContainerUser) -> UserAndGroups {
    let user = wanted.user.unwrap_or_else(|| rustix::process::geteuid().as_raw());
    let of_machine = || primary_group(&fs::read_to_string("/etc/passwd").unwrap_or_default(), user).unwrap_or(0);
    let group = wanted.group.unwrap_or_else(of_machine);
    let mut groups = [&[group][..], &wanted.groups].concat();
    if !wanted.strict {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let more = memberships(&read("/etc/passwd"), &read("/etc/group"), user);
        groups.extend(more.into_iter().filter(|more| !wanted.groups.contains(more) && *more != group));
    }
    UserAndGroups { user, group, groups }
}

/// Returns the groups that the machine lists the user in (`supplementalGroupsPolicy: Merge`).
fn memberships(passwd: &str, groups: &str, user: u32) -> Vec<u32> {
    let is_user = |fields: &Vec<&str>| fields.get(2).is_some_and(|id| id.parse() == Ok(user));
    let Some(entry) = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(is_user) else {
        return Vec::new();
    };
    let listed = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        fields.get(3)?.split(',').any(|member| member == entry[0]).then(|| fields[2].parse().ok())?
    };
    groups.lines().filter_map(listed).collect()
}

/// Returns the home of a user; `/` for an unknown user, as in a container.
pub fn home(user: u32) -> String {
    home_in(&fs::read_to_string("/etc/passwd").unwrap_or_default(), user).unwrap_or_else(|| "/".into())
}

fn home_in(passwd: &str, user: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.get(2)?.parse() == Ok(user)).then(|| fields.get(5).map(|home| home.to_string()))?
    })
}

/// Resolves the user of an Image object, `postgres` or `999:999`; the container's own settings take precedence. Also returns the user's
/// home.
pub fn resolve_image_user(named: &str, said: ContainerUser) -> Result<(ContainerUser, Option<String>), String> {
    let (user, group) = named.split_once(':').map_or((named, None), |(user, group)| (user, Some(group)));
    let lines = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let passwd = lines("/etc/passwd");
    let number = user.parse().ok();
    let entry = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| {
        fields.len() > 5 && (fields[0] == user || number.is_some_and(|number: u32| fields[2].parse() == Ok(number)))
    });
    let id = number.or_else(|| entry.as_ref()?[2].parse().ok());
    let id = id.ok_or_else(|| format!("unable to find user {user}: no matching entries in passwd file"))?;
    let of_name = |name: &str| {
        let groups = lines("/etc/group");
        let fields = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let mut found = fields.filter(|fields| fields.first() == Some(&name));
        found.next().and_then(|fields| fields.get(2)?.parse().ok())
    };
    let group = match group.filter(|_| said.group.is_none()) {
        Some(name) => Some(
            name.parse()
                .ok()
                .or_else(|| of_name(name))
                .ok_or_else(|| format!("unable to find group {name}: no matching entries in group file"))?,
        ),
        None => said.group,
    };
    Ok((ContainerUser { user: Some(id), group, ..said }, entry.map(|fields| fields[5].to_owned())))
}

fn primary_group(passwd: &str, user: u32) -> Option<u32> {
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.get(2)?.parse() == Ok(user)).then(|| fields.get(3)?.parse().ok())?
    })
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
    (1..TRIES).find_map(|_| attempt().ok()).map_or_else(attempt, Ok)
}

/// Sets group and mode as Kubernetes does: the group owns every file and folder, has the owner's permissions, and new files in folders
/// inherit it. Changes the open file, whatever its name refers to by now.
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
            assert_eq!(primary_group(passwd, user), group);
        }
        assert_eq!((home_in(passwd, 0).as_deref(), home_in(passwd, 5)), (Some("/root"), None));
        let groups = "root:x:0:\nkvm:x:78:nobody\nodd\nwheel:x:10:root,nobody\n";
        for (user, expected) in [(0, vec![10]), (65534, vec![78, 10]), (5, vec![])] {
            assert_eq!(memberships(passwd, groups, user), expected);
        }
    }
}
