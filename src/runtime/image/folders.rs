//! Folders of the machine that a container with a private view sees, and folders that its image declares as volumes.

use super::ResolvedImage;
use crate::runtime::view;
use crate::world::start::Start;
use std::path::Path;

/// Returns the folders of the machine that a container with a private view sees and changes as they are.
pub fn private_folders(start: &Start, beside: Option<String>) -> Vec<String> {
    let of_image = start.requested_image.as_ref().and_then(|image| image.folder.clone());
    let within = |folder: &String| start.working_dir.as_ref().is_some_and(|dir| Path::new(dir).starts_with(folder));
    let mut own: Vec<String> = beside.into_iter().chain(of_image.filter(within)).collect();
    own.dedup();
    own
}

/// Returns the image's volumes: each is an empty folder of the container, unless the pod mounts something at or above its path.
pub fn image_volumes(start: &Start) -> Vec<String> {
    let volumes = start.requested_image.iter().flat_map(|image| &image.volumes);
    let is_mounted = |path: &&String| {
        let targets = start.files.mounts.iter().map(|mount| Path::new(&mount.path));
        targets.filter(|target| target.parent().is_some()).any(|target| Path::new(path).starts_with(target))
    };
    volumes.filter(|path| !is_mounted(path)).cloned().collect()
}

/// Returns the paths in the machine's `/tmp` and `/dev/shm` that a container with a private view needs for its start: its folders, and
/// paths in words of its command, also after a `=`.
pub fn shown(start: &Start, found: &ResolvedImage, env: &[(String, String)]) -> Vec<String> {
    let value = |wanted: &str| env.iter().rev().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let of_image = start.requested_image.as_ref().and_then(|image| image.folder.as_deref());
    let folders = [start.manifest_dir.as_deref(), of_image, value("HOME")].into_iter().flatten();
    let path = value("PATH").unwrap_or_default().split(':');
    let words = found.argv.iter().flat_map(|word| [word.as_str(), word.split_once('=').map_or("", |(_, value)| value)]);
    let mut shown: Vec<String> =
        folders.chain(path).chain(words).filter(|path| view::is_in_own(path)).map(str::to_owned).collect();
    shown.sort();
    shown.dedup();
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::testing::start_request;
    use crate::world::start::StartImage;
    use crate::world::volume::VolumeMountPoint;

    #[test]
    fn mounted_volume_replaces_the_image_volume() {
        let volumes_with = |mounts: &[&str]| {
            let mount = |path: &&str| VolumeMountPoint {
                volume: "v".into(),
                path: path.to_string(),
                sub_path: String::new(),
                read_only: false,
            };
            let volumes = vec!["/var/lib/postgresql/data".to_owned(), "/run/postgresql".to_owned()];
            let mut start = Start {
                requested_image: Some(StartImage { volumes, ..StartImage::default() }),
                ..start_request("u", "c", 0)
            };
            start.files.mounts = mounts.iter().map(mount).collect();
            image_volumes(&start).join(" ")
        };
        assert_eq!(volumes_with(&["/etc/hosts"]), "/var/lib/postgresql/data /run/postgresql");
        for mounted in ["/var/lib/postgresql/data", "/var/lib/postgresql/data/", "/var/lib/postgresql"] {
            assert_eq!(volumes_with(&[mounted]), "/run/postgresql", "{mounted}");
        }
        let within = volumes_with(&["/var/lib/postgresql/data/pgdata", "/run/postgresql/sub"]);
        assert_eq!(within, "/var/lib/postgresql/data /run/postgresql");
    }
}
