//! The shell of images that stand for BusyBox: its own passes every variable on, the machine's `sh` may drop some.
//!
//! dash, which is `sh` on Debian, drops variables whose names are not shell identifiers (`my.name`). BusyBox' shell and bash keep them.

use super::programs;
use crate::world::start::Start;

/// Name of the recipe that stands for BusyBox.
const BUSYBOX: &str = "busybox";

/// Whether a shell can have a variable of this name.
fn is_identifier(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    name.starts_with(is_letter) && name.chars().all(|letter| is_letter(letter) || letter.is_ascii_digit())
}

/// Replaces the machine's `sh` by a shell that passes all variables of the container on, where one is needed and installed.
pub fn keep_variables(start: &Start, argv: Vec<String>, path: &str) -> Vec<String> {
    let image = start.requested_image.as_ref();
    let is_busybox = image.is_some_and(|image| image.is_recipe && *image.name == *BUSYBOX)
        && argv.first().is_some_and(|program| matches!(program.as_str(), "sh" | "/bin/sh"));
    if !is_busybox || start.env.iter().all(|(name, _)| is_identifier(name)) {
        return argv;
    }
    let shell = if programs::is_on_path(BUSYBOX, path) {
        [BUSYBOX, "sh"]
    } else if programs::is_on_path("bash", path) {
        ["bash", "--posix"]
    } else {
        return argv;
    };
    shell.into_iter().map(str::to_owned).chain(argv.into_iter().skip(1)).collect()
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
    fn shell_that_keeps_all_variables_is_used_where_one_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let mut start = crate::runtime::testing::start_request("u", "c", 0);
        start.requested_image = Some(StartImage { name: BUSYBOX.into(), is_recipe: true, ..StartImage::default() });
        let argv = |start: &Start, program: &str| {
            let argv = [program, "-c", "env"].map(str::to_owned).to_vec();
            keep_variables(start, argv, path).join(" ")
        };
        let install = |name: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        };
        start.env = vec![("my.name".into(), "1".into())];
        assert_eq!(argv(&start, "sh"), "sh -c env", "nothing else is installed");
        install("bash");
        assert_eq!(argv(&start, "/bin/sh"), "bash --posix -c env");
        install("busybox");
        assert_eq!(argv(&start, "sh"), "busybox sh -c env");
        assert_eq!(argv(&start, "env"), "env -c env");
        start.env = vec![("my_name".into(), "1".into())];
        assert_eq!(argv(&start, "sh"), "sh -c env", "any shell does");
    }
}
