//! From an image to a command: images are resolved, not pulled.
//!
//! An Image object that says what the program is comes first. Then the images that are known anyway ([`BUILT_IN`]): bare base images
//! (busybox, debian ...) bring a shell and nothing else. `./server` is a program beside the manifest, `/usr/bin/x` one of the machine.
//! Any other image is the program on PATH that is named like the last part of its repository.
//! A container that sets `command` needs its image only to be well-formed. Start reading at [`resolve`], then [`find`].

mod built_in;

pub use built_in::{BUILT_IN, BuiltIn};

use super::wire::{Launch, View};
use super::{folder, process, user, view};
use crate::kinds::image::pattern::is_path;
use crate::kinds::image::reference;
use crate::world::start::{Image, Start};
use crate::world::{Processes, User, volume};
use rustix::fs::{Access, access};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Why an attempt cannot be started.
#[derive(Debug, PartialEq)]
pub struct Refusal {
    /// `ErrImagePull`, `ErrImageNeverPull`, `InvalidImageName`, `CreateContainerError`.
    pub reason: &'static str,
    /// What is wrong and what to write instead.
    pub message: String,
}

/// What containers inherit from the control plane: where programs are, whose home it is, how time and text look. Nothing more.
#[derive(Clone, Debug, Default)]
pub struct Environment(pub Vec<(String, String)>);

impl Environment {
    /// The same with more variables, or with other values.
    pub fn with(mut self, more: Vec<(String, String)>) -> Environment {
        for (name, value) in more {
            self.0.retain(|(known, _)| *known != name);
            self.0.push((name, value));
        }
        self
    }

    /// The part of this process's environment that is passed on.
    pub fn of_this_process() -> Environment {
        let is_passed_on = |name: &str| matches!(name, "PATH" | "HOME" | "TZ" | "LANG") || name.starts_with("LC_");
        let vars =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Environment(vars.filter(|(name, _)| is_passed_on(name)).collect())
    }

    /// Where programs are looked for.
    pub fn path(&self) -> &str {
        self.0.iter().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value)
    }
}

/// What an image is looked for with.
pub struct Asked<'a> {
    /// The image as written.
    pub image: &'a str,
    /// What an Image object says of it.
    pub object: Option<&'a Image>,
    /// The folder of the pod's manifest.
    pub manifest_dir: Option<&'a str>,
    /// Where programs are looked for.
    pub path: &'a str,
    /// `args` of the container.
    pub args: &'a [String],
}

/// What an image is.
#[derive(Debug, Default, PartialEq)]
pub struct Found {
    /// Which rule has won, and with what: `Image web`.
    pub rule: String,
    /// The program and its arguments, those of the container included.
    pub argv: Vec<String>,
    /// The folder that it is relative to, which the container also starts in.
    pub folder: Option<String>,
}

/// The rules that were asked before, and why they did not do; the last one is the one that failed when nothing was found.
pub type Tried = Vec<(&'static str, String)>;

/// What to execute for a start.
pub fn resolve(start: &Start, environment: &Environment) -> Result<Launch, Refusal> {
    let found = if start.command.is_empty() { by_image(start, environment)? } else { by_command(start)? };
    let cwd = start.working_dir.clone().filter(|folder| !folder.is_empty());
    let cwd = cwd.or_else(|| found.folder.clone());
    let (user, home) = user(start)?;
    let mut env = merged(environment, start);
    if let (Some(home), Some((_, known))) = (home, env.iter_mut().find(|(name, _)| name == "HOME"))
        && start.env.iter().all(|(name, _)| name != "HOME")
    {
        *known = home;
    }
    let view = (start.files.view == volume::View::Private).then(|| View {
        mounts: start.files.mounts.clone(),
        shown: shown(start, &found, &env),
        own: own(start, found.folder.clone()),
        read_only: start.files.read_only,
    });
    // Among the machine's files `/proc` tells of the machine's processes.
    let processes = if view.is_some() { start.processes.clone() } else { Processes::Machine };
    Ok(Launch {
        container: start.container.to_string(),
        attempt: start.attempt,
        argv: found.argv,
        env,
        volumes: start.files.volumes.to_vec(),
        view,
        volume_paths: start.volume_paths.clone(),
        file_keys: start.file_keys.clone(),
        cwd,
        groups: Vec::new(),
        watched: Default::default(),
        oom_score: start.limits.oom_score,
        stdin: start.stdin,
        stdin_once: start.stdin_once,
        tty: start.tty,
        user,
        rights: start.rights.clone(),
        names: start.names.clone(),
        processes,
        hostname: if start.host_network { String::new() } else { start.hostname.to_string() },
        image: start.brought.as_ref().map(|image| image.tried()).unwrap_or_default(),
        again: start.again,
        stop_signal: process::signal_number(&start.stop_signal).unwrap_or(15),
        message_path: start.termination_message_path.clone(),
        message_from_logs: start.termination_from_logs,
    })
}

/// Who the container runs as, and where their home is when its Image object says who it is. Only root can be anybody else.
fn user(start: &Start) -> Result<(Option<User>, Option<String>), Refusal> {
    let said = start.user.as_ref().is_some_and(|user| user.user.is_some());
    let of_image = start.brought.as_ref().and_then(|image| image.user.as_deref());
    let Some(named) = of_image.filter(|_| !said && rustix::process::geteuid().is_root()) else {
        let other =
            start.user.as_ref().and_then(|user| user.user).filter(|id| *id != rustix::process::geteuid().as_raw());
        return Ok((start.user.clone(), other.map(user::home)));
    };
    let (user, home) = user::of_image(named, start.user.clone().unwrap_or_default())
        .map_err(|message| Refusal { reason: "CreateContainerError", message })?;
    Ok((Some(user), home))
}

/// Folders of the machine that a container with a view of its own sees, and changes, as they are.
fn own(start: &Start, beside: Option<String>) -> Vec<String> {
    let of_image = start.brought.as_ref().and_then(|image| image.folder.clone());
    let within = |folder: &String| start.working_dir.as_ref().is_some_and(|dir| Path::new(dir).starts_with(folder));
    let mut own: Vec<String> = beside.into_iter().chain(of_image.filter(within)).collect();
    own.dedup();
    own
}

/// Paths in the machine's `/tmp` and `/dev/shm` that a container with a view of its own was started with: folders that belong to it,
/// and whatever a word of its command names, also behind a `=`.
fn shown(start: &Start, found: &Found, env: &[(String, String)]) -> Vec<String> {
    let value = |wanted: &str| env.iter().rev().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let of_image = start.brought.as_ref().and_then(|image| image.folder.as_deref());
    let folders = [start.manifest_dir.as_deref(), of_image, value("HOME")].into_iter().flatten();
    let path = value("PATH").unwrap_or_default().split(':');
    let words = found.argv.iter().flat_map(|word| [word.as_str(), word.split_once('=').map_or("", |(_, value)| value)]);
    let mut shown: Vec<String> =
        folders.chain(path).chain(words).filter(|path| view::is_in_own(path)).map(str::to_owned).collect();
    shown.sort();
    shown.dedup();
    shown
}

/// A container that says itself what to run needs its image only to be well-formed.
fn by_command(start: &Start) -> Result<Found, Refusal> {
    check(&start.image)?;
    let argv = [start.command.clone(), start.args.clone()].concat();
    let beside = is_path(&start.image) || argv.first().is_some_and(|name| is_relative(name));
    Ok(Found { rule: "command".into(), argv, folder: start.manifest_dir.clone().filter(|_| beside) })
}

fn by_image(start: &Start, environment: &Environment) -> Result<Found, Refusal> {
    check(&start.image)?;
    let declared = start.env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_str());
    let asked = Asked {
        image: &start.image,
        object: start.brought.as_ref(),
        manifest_dir: start.manifest_dir.as_deref(),
        path: declared.unwrap_or_else(|| environment.path()),
        args: &start.args,
    };
    let (found, tried) = find(&asked);
    let why = tried.last().map(|(_, why)| why.as_str()).unwrap_or_default();
    let found = found.ok_or_else(|| refusal(start, why))?;
    if found.argv.is_empty() {
        return Err(Refusal { reason: "CreateContainerError", message: "no command specified".into() });
    }
    Ok(found)
}

/// Finds out what an image is. The order is: an Image object that says what the program is; the built-in images; the path of a program;
/// the program on PATH that is named like the last part of the repository.
pub fn find(asked: &Asked) -> (Option<Found>, Tried) {
    let mut tried = Tried::new();
    let defaults = asked.object.map(|object| object.command.as_slice()).unwrap_or_default();
    match asked.object.map(|object| (object, &object.entrypoint)) {
        None => tried.push(("Image objects", "none has a pattern that fits".into())),
        Some((object, None)) => {
            tried.push(("Image objects", format!("Image {} does not say what the entrypoint is", object.name)));
        }
        Some((object, Some(entrypoint))) => {
            return match of_object(asked, object, entrypoint) {
                Ok(found) => (Some(found), tried),
                Err(why) => (None, [tried, vec![("Image objects", format!("Image {}: {why}", object.name))]].concat()),
            };
        }
    }
    let with = |rule: String, program: String, own: &[&str], folder| {
        let own = own.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let own = if defaults.is_empty() { own } else { defaults.to_vec() };
        let args = if asked.args.is_empty() { own } else { asked.args.to_vec() };
        Some(Found { rule, argv: [vec![program], args].concat(), folder })
    };
    if is_path(asked.image) {
        return match beside(asked.image, asked.manifest_dir) {
            Ok(program) => {
                let folder = asked.manifest_dir.map(str::to_owned);
                (with("path of a program".into(), program, &[], folder), tried)
            }
            Err(why) => (None, [tried, vec![("path of a program", why)]].concat()),
        };
    }
    let name = last_part(asked.image);
    if let Some(known) = BUILT_IN.iter().find(|known| known.name == name) {
        let rule = format!("built-in image {name}");
        let args = if asked.args.is_empty() { defaults } else { asked.args };
        if known.is_bare && !args.is_empty() {
            return (Some(Found { rule, argv: args.to_vec(), folder: None }), tried);
        }
        return match known.programs.iter().find(|name| is_on_path(name, asked.path)) {
            Some(program) => (with(rule, (*program).to_owned(), known.command, None), tried),
            None => (None, [tried, vec![("built-in images", absent(asked.image, known.programs[0]))]].concat()),
        };
    }
    tried.push(("built-in images", format!("none is named {name}")));
    tried.push(("path of a program", "the image does not begin with ./ or /".into()));
    if is_on_path(name, asked.path) {
        return (with("program on PATH".into(), name.to_owned(), &[], None), tried);
    }
    tried.push(("program on PATH", absent(asked.image, name)));
    (None, tried)
}

/// What an Image object says is done as it says, or not at all.
fn of_object(asked: &Asked, object: &Image, entrypoint: &[String]) -> Result<Found, String> {
    let args = if asked.args.is_empty() { &object.command } else { asked.args };
    let mut found = Found { rule: format!("Image {}", object.name), ..Found::default() };
    let mut entrypoint = entrypoint.to_vec();
    if let Some(program) = entrypoint.first_mut() {
        if is_path(program) {
            found.folder = object.folder.clone().filter(|_| is_relative(program));
            *program = beside(program, object.folder.as_deref())?;
        } else if !is_on_path(program, asked.path) {
            return Err(format!(
                "there is no {program:?} on the PATH of kloop reconcile; install it, or correct spec.entrypoint: kloop edit image {}",
                object.name
            ));
        }
    }
    found.argv = [&entrypoint[..], args].concat();
    Ok(found)
}

/// The base first, then what is declared; a name that is declared again keeps its last value.
fn merged(environment: &Environment, start: &Start) -> Vec<(String, String)> {
    let mut env: Vec<(String, String)> = environment.0.clone();
    env.push(("HOSTNAME".into(), start.hostname.to_string()));
    // Thousands, where there are thousands of Services.
    let mut places: HashMap<String, usize> = env.iter().enumerate().map(|(at, (name, _))| (name.clone(), at)).collect();
    for (name, value) in &start.env {
        match places.get(name) {
            Some(at) => env[*at].1.clone_from(value),
            None => {
                places.insert(name.clone(), env.len());
                env.push((name.clone(), value.clone()));
            }
        }
    }
    env.retain(|(name, _)| name != folder::TERMINATION_LOG);
    env
}

/// Whether the image is well-formed, in Kubernetes' words for one that is not.
fn check(image: &str) -> Result<(), Refusal> {
    let Err(why) = (if is_path(image) { Ok(()) } else { reference::parse(image).map(drop) }) else { return Ok(()) };
    let message = format!("Failed to apply default image tag {image:?}: couldn't parse image name {image:?}: {why}");
    Err(Refusal { reason: "InvalidImageName", message })
}

fn is_relative(program: &str) -> bool {
    program.starts_with("./") || program.starts_with("../")
}

/// The last part of an image's repository.
fn last_part(image: &str) -> &str {
    let path = reference::parse(image).map_or(image, |parsed| parsed.path);
    path.rsplit('/').next().unwrap_or(path)
}

/// The program of an image that is a path; `./server:v2` is `./server` when there is no file of that whole name.
fn beside(image: &str, folder: Option<&str>) -> Result<String, String> {
    let base = match (folder, image.starts_with('/')) {
        (_, true) => PathBuf::new(),
        (Some(folder), _) => PathBuf::from(folder),
        (None, _) => {
            return Err("its manifest was not applied from a file, so nobody knows what it is relative to; \
                        write an absolute path"
                .into());
        }
    };
    let untagged = image.rsplit_once(':').map_or(image, |(path, _)| path);
    let file = [image, untagged].into_iter().map(|path| base.join(path)).find(|path| path.exists());
    let Some(file) = file else {
        return Err(format!("there is no file {}; build it, or correct the path", base.join(image).display()));
    };
    let shown = file.display();
    if file.is_dir() {
        return Err(format!("{shown} is a folder; write the path of a program in it"));
    }
    if !may_run(&file) {
        return Err(format!("{shown} may not be executed; run: chmod +x {shown}"));
    }
    Ok(file.to_string_lossy().into_owned())
}

/// What to write when nothing was found: an Image object, whole, for one.
fn absent(image: &str, program: &str) -> String {
    let name = last_part(image);
    let parsed = reference::parse(image);
    let pattern = parsed.map_or_else(
        |_| image.to_owned(),
        |parsed| parsed.domain.map_or(parsed.path.to_owned(), |domain| format!("{domain}/{}", parsed.path)),
    );
    let object = name.replace('_', "-");
    format!(
        "kloop runs images as local programs, and there is no {program:?} on the PATH of kloop reconcile; \
         install it, set `command:`, or say what the image is: kloop image set {pattern} --entrypoint PROGRAM, which is \
         {{apiVersion: kloop.dev/v1alpha1, kind: Image, metadata: {{name: {object}}}, \
         spec: {{patterns: [\"{pattern}\"], entrypoint: [PROGRAM]}}}}"
    )
}

fn refusal(start: &Start, why: &str) -> Refusal {
    let image = &start.image;
    if start.pull_policy == "Never" {
        let message = format!("Container image {image:?} is not present with pull policy of Never: {why}");
        return Refusal { reason: "ErrImageNeverPull", message };
    }
    Refusal { reason: "ErrImagePull", message: format!("failed to pull image {image:?}: {why}") }
}

fn is_on_path(name: &str, path: &str) -> bool {
    let folders = path.split(':').filter(|folder| !folder.is_empty());
    folders.map(|folder| Path::new(folder).join(name)).any(|file| file.is_file() && may_run(&file))
}

fn may_run(file: &Path) -> bool {
    access(file, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::simulated::a_start;

    fn here() -> Environment {
        Environment(vec![("PATH".into(), "/usr/bin:/bin".into())])
    }

    fn start(image: &str, command: &[&str], args: &[&str]) -> Start {
        let owned = |list: &[&str]| list.iter().map(|item| item.to_string()).collect();
        Start { image: image.into(), command: owned(command), args: owned(args), ..a_start("u", "c", 0) }
    }

    /// What an Image object says, in a folder.
    fn object(entrypoint: Option<&[&str]>, command: &[&str]) -> Image {
        let owned = |list: &[&str]| list.iter().map(|item| item.to_string()).collect::<Vec<_>>();
        Image {
            name: "x".into(),
            entrypoint: entrypoint.map(owned),
            command: owned(command),
            folder: Some("/bin".into()),
            ..Image::default()
        }
    }

    #[test]
    fn an_image_object_comes_first() {
        /// Image, entrypoint and command of the object, arguments, and what they come to.
        type Row = (
            &'static str,
            Option<&'static [&'static str]>,
            &'static [&'static str],
            &'static [&'static str],
            &'static str,
        );
        let table: [Row; 9] = [
            ("nosuch", Some(&["sleep", "1"]), &["2"], &[], "sleep 1 2"),
            ("nosuch", Some(&["sleep"]), &["2"], &["3"], "sleep 3"),
            ("busybox", Some(&["cat"]), &[], &[], "cat"),
            ("./nosuch", Some(&["./true"]), &[], &["a"], "/bin/./true a"),
            ("nosuch", Some(&[]), &["echo", "a"], &[], "echo a"),
            ("nosuch", Some(&[]), &["echo", "a"], &["true"], "true"),
            ("sleep", None, &["5"], &[], "sleep 5"),
            ("busybox", None, &["true"], &[], "true"),
            ("sleep", None, &["5"], &["6"], "sleep 6"),
        ];
        for (image, entrypoint, command, args, argv) in table {
            let start = Start { brought: Some(object(entrypoint, command)), ..start(image, &[], args) };
            let launch = resolve(&start, &here()).unwrap_or_else(|refusal| panic!("{image}: {refusal:?}"));
            assert_eq!(launch.argv.join(" "), argv, "{image}");
        }
        let own = Start { brought: Some(object(Some(&["nosuch"]), &[])), ..start("a", &["true"], &[]) };
        assert_eq!(resolve(&own, &here()).expect("the container says it").argv, ["true"]);
    }

    #[test]
    fn what_an_image_object_says_is_done_or_refused() {
        let table = [
            (Some(&["nosuchprogram"][..]), "ErrImagePull", "Image x: there is no \"nosuchprogram\" on the PATH"),
            (Some(&["./nosuch"]), "ErrImagePull", "there is no file /bin/./nosuch"),
            (Some(&[]), "CreateContainerError", "no command specified"),
        ];
        for (entrypoint, reason, part) in table {
            // `sleep` is on the PATH: the object has the last word all the same.
            let start = Start { brought: Some(object(entrypoint, &[])), ..start("sleep", &[], &[]) };
            let refusal = resolve(&start, &here()).expect_err(part);
            assert_eq!(refusal.reason, reason);
            assert!(refusal.message.contains(part), "{}", refusal.message);
        }
        let refusal = resolve(&start("ghcr.io/my_team/my_app:1", &[], &[]), &here()).expect_err("not there");
        let ready = "{apiVersion: kloop.dev/v1alpha1, kind: Image, metadata: {name: my-app}, \
                     spec: {patterns: [\"ghcr.io/my_team/my_app\"], entrypoint: [PROGRAM]}}";
        assert!(refusal.message.ends_with(ready), "{}", refusal.message);
    }

    /// An image, command, arguments, and what they come to.
    type Row = (&'static str, &'static [&'static str], &'static [&'static str], &'static [&'static str]);

    #[test]
    fn images_become_commands() {
        let table: [Row; 9] = [
            ("nosuch/app:1", &["run"], &["x"], &["run", "x"]),
            ("busybox", &[], &["sh", "-c", "true"], &["sh", "-c", "true"]),
            ("docker.io/library/busybox:1.36", &[], &[], &["sh"]),
            ("registry.k8s.io/pause:3.10", &[], &[], &["sleep", "infinity"]),
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
    fn what_cannot_be_resolved_says_what_to_write() {
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
    fn declared_environment_wins_and_the_mark_cannot_be_forged() {
        let mut start = start("x", &["env"], &[]);
        start.env = vec![("PATH".into(), "/mine".into()), (folder::TERMINATION_LOG.into(), "/etc".into())];
        let launch = resolve(&start, &here()).expect("resolved");
        assert_eq!(launch.env, [("PATH".to_owned(), "/mine".to_owned()), ("HOSTNAME".to_owned(), "p".to_owned())]);
    }
}
