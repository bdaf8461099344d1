//! Another user than the shim's: who that is on this machine, and what has to be theirs before they start.

use super::spawn::Identity;
use super::volumes;
use crate::object::cause;
use crate::world::User;
use crate::world::volume::{Source, Volume};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, RawDir, Uid, chmodat, chownat, openat, statat};
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::Path;

/// Who it is: a user of whom no group is said has the one that the machine knows, else 0, as in a container.
pub fn identity(wanted: &User) -> Identity {
    let user = wanted.user.unwrap_or_else(|| rustix::process::geteuid().as_raw());
    let of_machine = || primary_group(&fs::read_to_string("/etc/passwd").unwrap_or_default(), user).unwrap_or(0);
    let group = wanted.group.unwrap_or_else(of_machine);
    let mut groups = [&[group][..], &wanted.groups].concat();
    if !wanted.strict {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let more = memberships(&read("/etc/passwd"), &read("/etc/group"), user);
        groups.extend(more.into_iter().filter(|more| !wanted.groups.contains(more) && *more != group));
    }
    Identity { user, group, groups }
}

/// The groups that the machine lists the user in (`supplementalGroupsPolicy: Merge`).
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

/// The home of a user; `/` for one that the machine does not know, as in a container.
pub fn home(user: u32) -> String {
    home_in(&fs::read_to_string("/etc/passwd").unwrap_or_default(), user).unwrap_or_else(|| "/".into())
}

fn home_in(passwd: &str, user: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.get(2)?.parse() == Ok(user)).then(|| fields.get(5).map(|home| home.to_string()))?
    })
}

/// The user of an Image object, `postgres` or `999:999`, where the container does not say more, and where their home is.
pub fn of_image(named: &str, said: User) -> Result<(User, Option<String>), String> {
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
    Ok((User { user: Some(id), group, ..said }, entry.map(|fields| fields[5].to_owned())))
}

fn primary_group(passwd: &str, user: u32) -> Option<u32> {
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.get(2)?.parse() == Ok(user)).then(|| fields.get(3)?.parse().ok())?
    })
}

/// Gives them their scratch folder, lets them write their termination message, and gives the volumes to the group of `fsGroup`.
pub fn own(wanted: &User, message: &Path, scratch: Option<&Path>, pod: &Path, all: &[Volume]) -> Result<(), String> {
    let who = identity(wanted);
    let said = |path: &Path, error: std::io::Error| {
        format!("cannot give {} to user {}: {error}", path.display(), who.user, error = cause(error))
    };
    if let Some(scratch) = scratch {
        std::os::unix::fs::chown(scratch, Some(who.user), Some(who.group)).map_err(|error| said(scratch, error))?;
    }
    fs::write(message, "").map_err(|error| said(message, error))?;
    std::os::unix::fs::chown(message, Some(who.user), Some(who.group)).map_err(|error| said(message, error))?;
    let Some(group) = wanted.files else { return Ok(()) };
    let is_given = |volume: &&Volume| !matches!(volume.source, Source::Host { .. });
    for volume in all.iter().filter(is_given) {
        let root = volumes::root_of(pod, &volume.name, all);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(CWD, &root, flags, Mode::empty()).map_err(|error| said(&root, error.into()))?;
        give(&opened, group).map_err(|error| said(&root, error.into()))?;
    }
    Ok(())
}

/// Kubernetes: the group owns everything, may do what the owner may, and what is made in folders is the group's too.
fn give(folder: impl AsFd, group: u32) -> rustix::io::Result<()> {
    give_one(&folder, c".", 0o2000, group)?;
    let mut space = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(&folder, &mut space);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if [c".", c".."].contains(&name) {
            continue;
        }
        match entry.file_type() {
            FileType::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                give(openat(&folder, name, flags, Mode::empty())?, group)?;
            }
            FileType::RegularFile => give_one(&folder, name, 0, group)?,
            _ => {}
        }
    }
    Ok(())
}

fn give_one(folder: &impl AsFd, name: &std::ffi::CStr, more: u32, group: u32) -> rustix::io::Result<()> {
    let found = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    chownat(folder, name, None::<Uid>, Some(Gid::from_raw(group)), AtFlags::SYMLINK_NOFOLLOW)?;
    let mode = found.st_mode & 0o7777;
    let wanted = mode | ((mode & 0o600) >> 3) | more | if more > 0 { 0o070 } else { 0 };
    chmodat(folder, name, Mode::from_raw_mode(wanted), AtFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_the_group_that_the_machine_knows() {
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
