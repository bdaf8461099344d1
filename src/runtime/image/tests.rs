//! Tests of images and commands, and the command lines that result.

use super::*;
use crate::runtime::testing::start_request;
use crate::world::start::BuildCommand;

fn here() -> Environment {
    Environment(vec![("PATH".into(), "/usr/bin:/bin".into())])
}

fn start(image: &str, command: &[&str], args: &[&str]) -> Start {
    let owned = |list: &[&str]| list.iter().map(|item| item.to_string()).collect();
    Start { image: image.into(), command: owned(command), args: owned(args), ..start_request("u", "c", 0) }
}

/// Returns the settings of an Image object, with a folder.
fn object(entrypoint: Option<&[&str]>, command: &[&str]) -> StartImage {
    let owned = |list: &[&str]| list.iter().map(|item| item.to_string()).collect::<Vec<_>>();
    StartImage {
        name: "x".into(),
        entrypoint: entrypoint.map(owned),
        command: owned(command),
        folder: Some("/bin".into()),
        ..StartImage::default()
    }
}

#[test]
fn image_object_comes_first() {
    /// Image, entrypoint and command of the object, arguments, and the resulting command line.
    type Row =
        (&'static str, Option<&'static [&'static str]>, &'static [&'static str], &'static [&'static str], &'static str);
    let table: [Row; 8] = [
        ("nosuch", Some(&["sleep", "1"]), &["2"], &[], "sleep 1 2"),
        ("nosuch", Some(&["sleep"]), &["2"], &["3"], "sleep 3"),
        ("busybox", Some(&["cat"]), &[], &[], "cat"),
        ("./nosuch", Some(&["./true"]), &[], &["a"], "/bin/./true a"),
        ("nosuch", Some(&[]), &["echo", "a"], &[], "echo a"),
        ("nosuch", Some(&[]), &["echo", "a"], &["true"], "true"),
        ("sleep", None, &["5"], &[], "sleep 5"),
        ("sleep", None, &["5"], &["6"], "sleep 6"),
    ];
    for (image, entrypoint, command, args, argv) in table {
        let start = Start { requested_image: Some(object(entrypoint, command)), ..start(image, &[], args) };
        let launch = resolve(&start, &here()).unwrap_or_else(|refusal| panic!("{image}: {refusal:?}"));
        assert_eq!(launch.argv.join(" "), argv, "{image}");
    }
    let own = Start { requested_image: Some(object(Some(&["nosuch"]), &[])), ..start("a", &["true"], &[]) };
    assert_eq!(resolve(&own, &here()).expect("the container's own command").argv, ["true"]);
}

#[test]
fn image_object_is_applied_or_refused() {
    let table = [
        (Some(&["nosuchprogram"][..]), "ErrImagePull", "Image x: there is no \"nosuchprogram\" on the PATH"),
        (Some(&["./nosuch"]), "ErrImagePull", "there is no file /bin/./nosuch"),
        (Some(&[]), "CreateContainerError", "no command specified"),
    ];
    for (entrypoint, reason, part) in table {
        // `sleep` is on the PATH, but the Image object takes precedence.
        let start = Start { requested_image: Some(object(entrypoint, &[])), ..start("sleep", &[], &[]) };
        let refusal = resolve(&start, &here()).expect_err(part);
        assert_eq!(refusal.reason, reason);
        assert!(refusal.message.contains(part), "{}", refusal.message);
    }
    let refusal = resolve(&start("ghcr.io/my_team/my_app:1", &[], &[]), &here()).expect_err("not there");
    let ready = "{apiVersion: kloop.dev/v1alpha1, kind: Image, metadata: {name: my-app}, \
                 spec: {patterns: [\"ghcr.io/my_team/my_app\"], entrypoint: [PROGRAM]}}";
    assert!(refusal.message.ends_with(ready), "{}", refusal.message);
}

/// An image, command, arguments, and the resulting command line.
type Row = (&'static str, &'static [&'static str], &'static [&'static str], &'static [&'static str]);

#[test]
fn images_become_commands() {
    let table: [Row; 6] = [
        ("nosuch/app:1", &["run"], &["x"], &["run", "x"]),
        ("example.com:5000/team/sleep@sha256:0123456789abcdef0123456789abcdef", &[], &["9"], &["sleep", "9"]),
        ("/bin/true", &[], &[], &["/bin/true"]),
        ("/bin/true:v2", &[], &["a"], &["/bin/true", "a"]),
        ("./true", &[], &[], &["/bin/./true"]),
        ("cat", &[], &[], &["cat"]),
    ];
    for (image, command, args, argv) in table {
        let start = Start { manifest_dir: Some("/bin".into()), ..start(image, command, args) };
        let launch = resolve(&start, &here()).unwrap_or_else(|refusal| panic!("{image}: {refusal:?}"));
        assert_eq!(launch.argv, argv, "{image}");
    }
}

#[test]
fn program_with_several_names_resolves_to_the_installed_one() {
    let image = |entrypoint: &[&str], command: &[&str]| StartImage {
        programs: vec!["nosuchprogram".into(), "cat".into()],
        package: "coreutils-nosuch".into(),
        is_recipe: true,
        ..object(Some(entrypoint), command)
    };
    /// Entrypoint and command of the recipe, command and arguments of the container, and the resulting command line.
    type Row = (
        &'static [&'static str],
        &'static [&'static str],
        &'static [&'static str],
        &'static [&'static str],
        &'static str,
    );
    let table: [Row; 6] = [
        (&["nosuchprogram", "-a"], &["b"], &[], &[], "cat -a b"),
        (&[], &["nosuchprogram"], &[], &[], "cat"),
        (&[], &["nosuchprogram"], &[], &["nosuchprogram", "x"], "cat x"),
        (&[], &["nosuchprogram"], &[], &["sh", "-c", "true"], "sh -c true"),
        (&["sh"], &[], &["nosuchprogram", "x"], &["y"], "cat x y"),
        (&["sh"], &[], &["other"], &["y"], "other y"),
    ];
    for (entrypoint, default, command, args, argv) in table {
        let start = Start { requested_image: Some(image(entrypoint, default)), ..start("team/x", command, args) };
        let launch = resolve(&start, &here()).unwrap_or_else(|refusal| panic!("{argv}: {refusal:?}"));
        assert_eq!(launch.argv.join(" "), argv);
    }
    let lacking = StartImage { programs: vec!["nosuchprogram".into()], ..image(&["sh"], &["-c"]) };
    for (args, is_found) in
        [(&[][..], false), (&["-x"], false), (&["server"], false), (&["cat", "-"], true), (&["/bin/cat"], true)]
    {
        let start = Start { requested_image: Some(lacking.clone()), ..start("team/x", &[], args) };
        let refusal = resolve(&start, &here()).err();
        assert_eq!(refusal.is_none(), is_found, "{args:?}");
        let message = refusal.map(|refusal| refusal.message).unwrap_or_default();
        let install = "install it (on Debian and Ubuntu: apt-get install coreutils-nosuch), set `command:`";
        assert!(is_found || message.contains(install), "{message}");
    }
}

#[test]
fn folders_of_an_image_come_first_on_path() {
    let image = StartImage { path: vec!["/usr/b*".into()], ..object(Some(&["cat"]), &[]) };
    let path = |env: Vec<(String, String)>| {
        let start = Start { requested_image: Some(image.clone()), env, ..start("team/x", &[], &[]) };
        let launch = resolve(&start, &here()).expect("resolved");
        launch.env.into_iter().find(|(name, _)| name == "PATH").expect("a PATH").1
    };
    assert_eq!(path(Vec::new()), "/usr/bin:/usr/bin:/bin");
    assert_eq!(path(vec![("PATH".into(), "/bin".into())]), "/bin", "a container that declares PATH");
}

#[test]
fn unresolvable_image_error_says_what_to_write() {
    let table = [
        ("team/Upper", "IfNotPresent", "InvalidImageName", "must be lowercase"),
        ("a b", "Always", "InvalidImageName", "invalid reference format"),
        ("", "Always", "InvalidImageName", "invalid reference format"),
        ("nosuchprogram:1", "Always", "ErrImagePull", "set `command:`"),
        ("nosuchprogram:1", "Never", "ErrImageNeverPull", "is not present with pull policy of Never"),
        ("./nosuch", "IfNotPresent", "ErrImagePull", "there is no file /m/./nosuch"),
        ("/etc/passwd", "IfNotPresent", "ErrImagePull", "chmod +x /etc/passwd"),
        ("/etc", "IfNotPresent", "ErrImagePull", "is a folder"),
    ];
    for (image, policy, reason, part) in table {
        let start = Start { manifest_dir: Some("/m".into()), pull_policy: policy.into(), ..start(image, &[], &[]) };
        let refusal = resolve(&start, &here()).expect_err(image);
        assert_eq!(refusal.reason, reason, "{image}");
        assert!(refusal.message.contains(part), "{image}: {}", refusal.message);
    }
}

#[test]
fn program_of_an_image_with_a_build_may_be_missing_in_a_preview_only() {
    let unbuilt = |entrypoint: &[&str], folder: Option<&str>| {
        let image = StartImage {
            build: Some(BuildCommand::default()),
            folder: folder.map(str::to_owned),
            ..object(Some(entrypoint), &[])
        };
        Start { requested_image: Some(image), ..start("a", &[], &[]) }
    };
    for entrypoint in ["./nosuch", "/nosuch", "nosuchprogram"] {
        let start = unbuilt(&[entrypoint], Some("/bin"));
        assert_eq!(preview_refusal(&start, &here()), None, "{entrypoint}");
        assert!(resolve(&start, &here()).is_err(), "{entrypoint}");
    }
    for (entrypoint, folder, part) in [("./nosuch", None, "not applied from a file"), ("/etc", None, "is a folder")] {
        let refusal = preview_refusal(&unbuilt(&[entrypoint], folder), &here()).expect(part);
        assert!(refusal.message.contains(part), "{}", refusal.message);
    }
    let without_build = Start { requested_image: Some(object(Some(&["./nosuch"]), &[])), ..start("a", &[], &[]) };
    assert!(preview_refusal(&without_build, &here()).is_some());
}

#[test]
fn declared_environment_wins_and_cannot_set_the_termination_log() {
    let mut start = start("x", &["env"], &[]);
    start.env = vec![("PATH".into(), "/mine".into()), (folder::TERMINATION_LOG.into(), "/etc".into())];
    let launch = resolve(&start, &here()).expect("resolved");
    assert_eq!(launch.env, [("PATH".to_owned(), "/mine".to_owned()), ("HOSTNAME".to_owned(), "p".to_owned())]);
}

#[test]
fn command_that_names_the_program_of_a_recipe_goes_through_its_entrypoint() {
    let recipe = StartImage {
        is_recipe: true,
        programs: vec!["cat".into()],
        ..object(Some(&["sh", "-ec", "exec \"$@\"", "/docker-entrypoint.sh"]), &["cat-foreground", "x"])
    };
    let table: [(&[&str], &[&str], &str); 6] = [
        (&["cat", "-a"], &["b"], "sh -ec exec \"$@\" /docker-entrypoint.sh cat -a b"),
        (&["cat-foreground"], &[], "sh -ec exec \"$@\" /docker-entrypoint.sh cat-foreground"),
        (&["docker-entrypoint.sh"], &["cat"], "sh -ec exec \"$@\" /docker-entrypoint.sh cat"),
        (&["/usr/local/bin/docker-entrypoint.sh"], &[], "sh -ec exec \"$@\" /docker-entrypoint.sh cat-foreground x"),
        (&["/bin/cat"], &[], "/bin/cat"),
        (&["sh", "-c", "cat"], &[], "sh -c cat"),
    ];
    for (command, args, argv) in table {
        let start = Start { requested_image: Some(recipe.clone()), ..start("cat", command, args) };
        assert_eq!(resolve(&start, &here()).expect("resolved").argv.join(" "), argv);
    }
    let start =
        Start { requested_image: Some(StartImage { is_recipe: false, ..recipe }), ..start("cat", &["cat"], &[]) };
    assert_eq!(
        resolve(&start, &here()).expect("resolved").argv,
        ["cat"],
        "an Image object applies to containers without a command"
    );
}
