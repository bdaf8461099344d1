//! From an image to a command: images are resolved, not pulled.
//!
//! An Image object with an entrypoint has precedence, then the recipe of a common image ([`recipe`](crate::kinds::image::recipe)); the
//! kubelet passes either. `./server` is a program in the manifest's folder, `/usr/bin/x` a program of the machine. Any other image is the
//! program on PATH that has the name of the last part of its repository. A container that sets `command` needs its image only to be
//! well-formed. Start reading at [`resolve`], then [`find`]; [`programs`] looks for programs.

mod environment;
mod folders;
pub mod programs;
mod shell;

pub use environment::Environment;

use super::wire::{LaunchRequest, MountView};
use super::{folder, process, user};
use crate::kinds::image::pattern::is_path;
use crate::kinds::image::reference;
use crate::world::start::{Start, StartImage};
use crate::world::{ContainerUser, ProcessNamespace, volume};
use std::collections::HashMap;
use std::path::PathBuf;

/// Variable for the program of an image with volumes that sees the machine's files: its volume folders are not private then.
const SEES_MACHINE: [&str; 2] = ["KLOOP_FILES", "host"];

/// Variable with the container's image, for the program of an Image object that matches several.
const NAMED_IMAGE: &str = "KLOOP_IMAGE";

/// Why an attempt cannot be started.
#[derive(Debug, PartialEq)]
pub struct ImageRefusal {
    /// `ErrImagePull`, `ErrImageNeverPull`, `InvalidImageName`, `CreateContainerError`.
    pub reason: &'static str,
    /// The problem and its remedy.
    pub message: String,
}

impl ImageRefusal {
    /// Whether only a missing program is the reason, so that a later attempt may succeed.
    pub fn is_program_missing(&self) -> bool {
        matches!(self.reason, "ErrImagePull" | "ErrImageNeverPull")
    }
}

/// Whether the program of a container without `command` can be found.
pub fn can_be_found(start: &Start, environment: &Environment) -> bool {
    by_image(start, environment, false).is_ok()
}

/// Returns why a preview of this start fails. Unlike for [`resolve`], the program of an image with a build may be missing.
pub fn preview_refusal(start: &Start, environment: &Environment) -> Option<ImageRefusal> {
    let found = match start.command.is_empty() {
        true => by_image(start, environment, true),
        false => by_command(start, environment),
    };
    found.and_then(|_| user(start)).err()
}

/// Input for resolving an image.
pub struct ImageQuery<'a> {
    /// The image as written.
    pub image: &'a str,
    /// Settings from the Image object.
    pub object: Option<&'a StartImage>,
    /// The folder of the pod's manifest.
    pub manifest_dir: Option<&'a str>,
    /// Returns the search path for programs.
    pub path: &'a str,
    /// `args` of the container.
    pub args: &'a [String],
    /// Whether the build of the image may still have to make the program.
    pub is_before_build: bool,
}

impl ImageQuery<'_> {
    /// Whether the program of this Image may be missing.
    fn may_be_missing(&self, object: &StartImage) -> bool {
        self.is_before_build && object.build.is_some()
    }
}

/// Result of resolving an image.
#[derive(Debug, Default, PartialEq)]
pub struct ResolvedImage {
    /// The rule that matched: `Image web`.
    pub rule: String,
    /// The program and its arguments, those of the container included.
    pub argv: Vec<String>,
    /// The folder that the program's path is relative to; also the container's working folder.
    pub folder: Option<String>,
}

/// The rules that were tried before, each with the reason why it did not match. When no program was found, the last one is the error.
pub type TriedRules = Vec<(&'static str, String)>;

/// Returns the command for a start.
pub fn resolve(start: &Start, environment: &Environment) -> Result<LaunchRequest, ImageRefusal> {
    let found =
        if start.command.is_empty() { by_image(start, environment, false)? } else { by_command(start, environment)? };
    let cwd = start.working_dir.clone().filter(|folder| !folder.is_empty()).or_else(|| found.folder.clone());
    let (user, home) = user(start)?;
    let mut env = merged(environment, start);
    if !declares_path(start) {
        let path = search_path(start, environment);
        env.iter_mut().filter(|(name, _)| name == "PATH").for_each(|(_, value)| value.clone_from(&path));
    }
    if let (Some(home), Some((_, known))) = (home, env.iter_mut().find(|(name, _)| name == "HOME"))
        && start.env.iter().all(|(name, _)| name != "HOME")
    {
        *known = home;
    }
    let view = (start.files.view == volume::FilesystemView::Private).then(|| MountView {
        mounts: start.files.mounts.clone(),
        shown: folders::shown(start, &found, &env),
        own: folders::private_folders(start, found.folder.clone()),
        new_folders: folders::image_volumes(start),
        new_folders_owner: user.as_ref().map(user::identity).map(|identity| (identity.user, identity.group)),
        read_only: start.files.read_only,
    });
    if start.requested_image.is_some() {
        env.push((NAMED_IMAGE.to_owned(), start.image.clone()));
    }
    if view.is_none() && start.requested_image.as_ref().is_some_and(|image| !image.volumes.is_empty()) {
        env.push(SEES_MACHINE.map(str::to_owned).into());
    }
    // A container that sees the machine's files needs the machine's `/proc` to match, so it gets no PID namespace.
    let processes = if view.is_some() { start.processes.clone() } else { ProcessNamespace::Machine };
    Ok(LaunchRequest {
        container: start.container.to_string(),
        attempt: start.attempt,
        argv: found.argv,
        shell: shell::find(start, environment),
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
        image: start.requested_image.as_ref().map(|image| image.tried()).unwrap_or_default(),
        again: start.again,
        stop_signal: process::signal_number(&start.stop_signal).unwrap_or(15),
        message_path: start.termination_message_path.clone(),
        message_from_logs: start.termination_from_logs,
    })
}

/// Returns the user of the container, and the home folder when the Image object sets the user. Only root can run as
/// another user.
fn user(start: &Start) -> Result<(Option<ContainerUser>, Option<String>), ImageRefusal> {
    let has_user = start.user.as_ref().is_some_and(|user| user.user.is_some());
    let of_image = start.requested_image.as_ref().and_then(|image| image.user.as_deref());
    let Some(named) = of_image.filter(|_| !has_user && rustix::process::geteuid().is_root()) else {
        let other =
            start.user.as_ref().and_then(|user| user.user).filter(|id| *id != rustix::process::geteuid().as_raw());
        return Ok((start.user.clone(), other.map(user::home)));
    };
    let (user, home) = user::resolve_image_user(named, start.user.clone().unwrap_or_default())
        .map_err(|message| ImageRefusal { reason: "CreateContainerError", message })?;
    Ok((Some(user), home))
}

/// Whether the container declares PATH.
fn declares_path(start: &Start) -> bool {
    start.env.iter().any(|(name, _)| name == "PATH")
}

/// Returns the PATH of a container: its own if it declares one, else the folders of its image and those of the environment.
fn search_path(start: &Start, environment: &Environment) -> String {
    let declared = start.env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
    let of_image = start.requested_image.as_ref().map(|image| image.path.as_slice()).unwrap_or_default();
    declared.unwrap_or_else(|| programs::search_path(of_image, environment.path()))
}

/// Resolves a container with a `command`; its image only needs to be well-formed.
fn by_command(start: &Start, environment: &Environment) -> Result<ResolvedImage, ImageRefusal> {
    check(&start.image)?;
    let mut argv = [start.command.clone(), start.args.clone()].concat();
    if let Some(image) = &start.requested_image {
        programs::stand_in(&image.programs, [&mut argv], &search_path(start, environment));
        argv = through_entrypoint(image, argv);
    }
    let beside = is_path(&start.image) || argv.first().is_some_and(|name| is_relative(name));
    Ok(ResolvedImage { rule: "command".into(), argv, folder: start.manifest_dir.clone().filter(|_| beside) })
}

/// Passes a command that begins with the program of a recipe to the recipe's entrypoint, which sets the paths and defaults of the image.
/// The command may also name the entrypoint itself.
fn through_entrypoint(image: &StartImage, argv: Vec<String>) -> Vec<String> {
    let Some([shell, flags, script, name]) = image.entrypoint.as_deref().filter(|_| image.is_recipe) else {
        return argv;
    };
    let Some((first, rest)) = argv.split_first() else { return argv };
    let file = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let args = match file(first) == file(name) {
        true if rest.is_empty() => image.command.clone(),
        true => rest.to_vec(),
        false if image.programs.contains(first) || image.command.first() == Some(first) => argv,
        false => return argv,
    };
    [vec![shell.clone(), flags.clone(), script.clone(), name.clone()], args].concat()
}

fn by_image(start: &Start, environment: &Environment, is_before_build: bool) -> Result<ResolvedImage, ImageRefusal> {
    check(&start.image)?;
    let asked = ImageQuery {
        image: &start.image,
        object: start.requested_image.as_ref(),
        manifest_dir: start.manifest_dir.as_deref(),
        path: &search_path(start, environment),
        args: &start.args,
        is_before_build,
    };
    let (found, tried) = find(&asked);
    let why = tried.last().map(|(_, why)| why.as_str()).unwrap_or_default();
    let found = found.ok_or_else(|| refusal(start, why))?;
    if found.argv.is_empty() {
        return Err(ImageRefusal { reason: "CreateContainerError", message: "no command specified".into() });
    }
    Ok(found)
}

/// Finds the program of an image. The order is: an Image object with an entrypoint; the recipe of the image; the path of a program; the
/// program on PATH that has the name of the last part of the repository.
pub fn find(asked: &ImageQuery) -> (Option<ResolvedImage>, TriedRules) {
    let mut tried = TriedRules::new();
    if asked.object.is_none_or(|object| object.is_recipe) {
        tried.push(("Image objects", "no Image has a matching pattern".into()));
    }
    match asked.object.map(|object| (object, &object.entrypoint)) {
        None => {}
        Some((object, None)) => {
            tried.push(("Image objects", format!("Image {} has no entrypoint", object.name)));
        }
        Some((object, Some(entrypoint))) => {
            return match resolve_object(asked, object, entrypoint) {
                Ok(found) => (Some(found), tried),
                Err(why) if object.is_recipe => (None, [tried, vec![("recipes", why)]].concat()),
                Err(why) => (None, [tried, vec![("Image objects", format!("Image {}: {why}", object.name))]].concat()),
            };
        }
    }
    let defaults = asked.object.map(|object| object.command.as_slice()).unwrap_or_default();
    let args = if asked.args.is_empty() { defaults } else { asked.args };
    let with = |rule: &str, program: String, folder| {
        Some(ResolvedImage { rule: rule.into(), argv: [&[program], args].concat(), folder })
    };
    if is_path(asked.image) {
        return match program_at_path(asked.image, asked.manifest_dir, false) {
            Ok(program) => (with("path of a program", program, asked.manifest_dir.map(str::to_owned)), tried),
            Err(why) => (None, [tried, vec![("path of a program", why)]].concat()),
        };
    }
    let name = reference::name(asked.image);
    tried.push(("recipes", format!("there is no recipe for {name}")));
    tried.push(("path of a program", "the image does not begin with ./ or /".into()));
    if programs::is_on_path(name, asked.path) {
        return (with("program on PATH", name.to_owned(), None), tried);
    }
    tried.push(("program on PATH", absent(asked.image, name, "")));
    (None, tried)
}

/// Resolves an image by its Image object or recipe. Uses the given entrypoint, which may be empty.
fn resolve_object(asked: &ImageQuery, object: &StartImage, entrypoint: &[String]) -> Result<ResolvedImage, String> {
    let mut args = if asked.args.is_empty() { object.command.clone() } else { asked.args.to_vec() };
    let label = if object.is_recipe { "recipe" } else { "Image" };
    let mut found = ResolvedImage { rule: format!("{label} {}", object.name), ..ResolvedImage::default() };
    let mut entrypoint = entrypoint.to_vec();
    if let Some(usual) = object.programs.first() {
        let is_there = programs::stand_in(&object.programs, [&mut entrypoint, &mut args], asked.path);
        if !is_there
            && !asked.may_be_missing(object)
            && !args.first().is_some_and(|word| programs::is_there(word, asked.path))
        {
            return Err(missing(asked, object, usual));
        }
    }
    if let Some(program) = entrypoint.first_mut() {
        if is_path(program) {
            found.folder = object.folder.clone().filter(|_| is_relative(program));
            *program = program_at_path(program, object.folder.as_deref(), asked.may_be_missing(object))?;
        } else if !programs::is_on_path(program, asked.path) && !asked.may_be_missing(object) {
            return Err(missing(asked, object, program));
        }
    }
    found.argv = [entrypoint, args].concat();
    Ok(found)
}

/// Returns the error for a missing program that an Image object or a recipe names.
fn missing(asked: &ImageQuery, object: &StartImage, program: &str) -> String {
    if object.is_recipe {
        return absent(asked.image, program, &object.package);
    }
    format!(
        "there is no {program:?} on the PATH of kloop reconcile; install it{}, or correct spec.entrypoint: kloop edit image {}",
        with_apt(&object.package),
        object.name
    )
}

/// Returns the hint how to install a Debian package.
fn with_apt(package: &str) -> String {
    if package.is_empty() { String::new() } else { format!(" (on Debian and Ubuntu: apt-get install {package})") }
}

/// Merges the inherited variables and the container's own; the last value of a name counts.
fn merged(environment: &Environment, start: &Start) -> Vec<(String, String)> {
    let mut env: Vec<(String, String)> = environment.0.clone();
    env.push(("HOSTNAME".into(), start.hostname.to_string()));
    // A map, because thousands of Services make thousands of variables.
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

/// Checks that the image is well-formed; the error has Kubernetes' wording.
fn check(image: &str) -> Result<(), ImageRefusal> {
    let Err(why) = (if is_path(image) { Ok(()) } else { reference::parse(image).map(drop) }) else { return Ok(()) };
    let message = format!("Failed to apply default image tag {image:?}: couldn't parse image name {image:?}: {why}");
    Err(ImageRefusal { reason: "InvalidImageName", message })
}

fn is_relative(program: &str) -> bool {
    program.starts_with("./") || program.starts_with("../")
}

/// Returns the program of an image that is a path. `./server:v2` is `./server` when no file of the full name exists.
fn program_at_path(image: &str, folder: Option<&str>, may_be_missing: bool) -> Result<String, String> {
    let base = match (folder, image.starts_with('/')) {
        (_, true) => PathBuf::new(),
        (Some(folder), _) => PathBuf::from(folder),
        (None, _) => {
            return Err("its manifest was not applied from a file, so its folder is unknown; \
                        write an absolute path"
                .into());
        }
    };
    let untagged = image.rsplit_once(':').map_or(image, |(path, _)| path);
    let file = [image, untagged].into_iter().map(|path| base.join(path)).find(|path| path.exists());
    let Some(file) = file else {
        let file = base.join(image);
        if may_be_missing {
            return Ok(file.to_string_lossy().into_owned());
        }
        return Err(format!("there is no file {}; build it, or correct the path", file.display()));
    };
    let shown = file.display();
    if file.is_dir() {
        return Err(format!("{shown} is a folder; write the path of a program in it"));
    }
    if !programs::may_execute(&file) {
        return Err(format!("{shown} may not be executed; run: chmod +x {shown}"));
    }
    Ok(file.to_string_lossy().into_owned())
}

/// Returns the error for an image without a program, with a complete Image object as an example.
fn absent(image: &str, program: &str, package: &str) -> String {
    let name = reference::name(image);
    let parsed = reference::parse(image);
    let pattern = parsed.map_or_else(
        |_| image.to_owned(),
        |parsed| parsed.domain.map_or(parsed.path.to_owned(), |domain| format!("{domain}/{}", parsed.path)),
    );
    let object = name.replace('_', "-");
    format!(
        "kloop runs images as local programs, and there is no {program:?} on the PATH of kloop reconcile; \
         install it{}, set `command:`, or say what the image is: kloop image set {pattern} --entrypoint PROGRAM, which is \
         {{apiVersion: kloop.dev/v1alpha1, kind: Image, metadata: {{name: {object}}}, \
         spec: {{patterns: [\"{pattern}\"], entrypoint: [PROGRAM]}}}}",
        with_apt(package)
    )
}

fn refusal(start: &Start, why: &str) -> ImageRefusal {
    let image = &start.image;
    if start.pull_policy == "Never" {
        let message = format!("Container image {image:?} is not present with pull policy of Never: {why}");
        return ImageRefusal { reason: "ErrImageNeverPull", message };
    }
    ImageRefusal { reason: "ErrImagePull", message: format!("failed to pull image {image:?}: {why}") }
}

#[cfg(test)]
mod tests;
