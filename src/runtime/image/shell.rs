//! The shell of images with BusyBox: scripts for it use `[[`, `echo -e` and `${name//a/b}`, which dash, Debian's `sh`, lacks.
//!
//! BusyBox' own shell is preferred; bash supports all that, too. A container with variables whose names are not shell identifiers
//! (`my.name`) prefers bash, since other shells do not pass these on. Never: runs anything; the shim starts the shell under the name in the
//! command.

use super::Environment;
use super::programs;
use crate::world::start::Start;

/// Name of BusyBox' recipe and program.
const BUSYBOX: &str = "busybox";
/// The shell that passes every variable on.
const BASH: &str = "bash";

/// Whether a shell can have a variable of this name.
fn is_identifier(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    name.starts_with(is_letter) && name.chars().all(|letter| is_letter(letter) || letter.is_ascii_digit())
}

/// Returns the file of the shell of a container; `None` for the machine's `sh`. The container's own PATH does not matter, since `/bin/sh`
/// does not depend on it either.
pub fn find(start: &Start, environment: &Environment) -> Option<String> {
    let is_busybox = start.requested_image.as_ref().is_some_and(|image| image.is_recipe && *image.name == *BUSYBOX);
    let has_only_identifiers = || start.env.iter().all(|(name, _)| is_identifier(name));
    let shells = match is_busybox {
        true if has_only_identifiers() => [BUSYBOX, BASH],
        true => [BASH, BUSYBOX],
        false => return None,
    };
    let mut files = shells.iter().filter_map(|name| programs::find(name, environment.path()));
    files.find_map(|file| file.into_os_string().into_string().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::start::StartImage;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn identifiers_are_those_of_shells() {
        let names = ["a", "_A1", "my.name", "a-b", "1x", ""];
        assert_eq!(names.map(is_identifier), [true, true, false, false, false, false]);
    }

    #[test]
    fn containers_that_stand_for_busybox_get_its_shell_or_bash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let environment = Environment(vec![("PATH".to_owned(), path.to_owned())]);
        let shell_with = |image: &str, is_recipe, variable: &str| {
            let mut start = crate::runtime::testing::start_request("u", "c", 0);
            start.requested_image = Some(StartImage { name: image.into(), is_recipe, ..StartImage::default() });
            start.env = vec![(variable.into(), "1".into())];
            find(&start, &environment).map(|file| file.rsplit('/').next().unwrap_or_default().to_owned())
        };
        let shell = |image: &str, is_recipe| shell_with(image, is_recipe, "my_name");
        let install = |name: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        };
        assert_eq!(shell(BUSYBOX, true), None, "nothing else is installed");
        install("bash");
        assert_eq!(shell(BUSYBOX, true).as_deref(), Some("bash"));
        install(BUSYBOX);
        assert_eq!(shell(BUSYBOX, true).as_deref(), Some(BUSYBOX));
        assert_eq!(shell_with(BUSYBOX, true, "my.name").as_deref(), Some(BASH));
        assert_eq!(shell(BUSYBOX, false), None, "an Image object of that name is the user's");
        assert_eq!(shell("debian", true), None);
    }
}
