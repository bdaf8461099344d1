//! From an image to a command: images are resolved, not pulled.
//!
//! `./server` is a program beside the manifest, `/usr/bin/x` one of the machine. Bare base images (busybox, debian ...) bring a shell
//! and nothing else. Any other image is the program on PATH that is named like the last part of its repository.
//! A container that sets `command` needs its image only to be well-formed.

use super::wire::{Launch, View};
use super::{folder, process, reference};
use crate::world::plan::Start;
use crate::world::volume;
use rustix::fs::{Access, access};
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
    /// The part of this process's environment that is passed on.
    pub fn of_this_process() -> Environment {
        let is_passed_on = |name: &str| matches!(name, "PATH" | "HOME" | "TZ" | "LANG") || name.starts_with("LC_");
        let vars =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Environment(vars.filter(|(name, _)| is_passed_on(name)).collect())
    }

    fn path(&self) -> &str {
        self.0.iter().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value)
    }
}

/// Programs by the last part of a repository, where they differ from it, and what the image's own command adds.
const KNOWN: [(&str, &[&str], &[&str]); 20] = [
    ("alpine", &["sh"], &[]),
    ("bash", &["bash", "sh"], &[]),
    ("busybox", &["sh"], &[]),
    ("debian", &["bash", "sh"], &[]),
    ("eclipse-temurin", &["java"], &[]),
    ("golang", &["go"], &[]),
    ("httpd", &["httpd", "apache2"], &["-DFOREGROUND"]),
    ("mariadb", &["mariadbd", "mysqld"], &[]),
    ("mongo", &["mongod"], &[]),
    ("mysql", &["mysqld"], &[]),
    ("nginx", &["nginx"], &["-g", "daemon off;"]),
    ("nginx-unprivileged", &["nginx"], &["-g", "daemon off;"]),
    ("node", &["node", "nodejs"], &[]),
    ("openjdk", &["java"], &[]),
    ("pause", &["sleep"], &["infinity"]),
    ("pause-amd64", &["sleep"], &["infinity"]),
    ("postgres", &["postgres"], &[]),
    ("python", &["python3", "python"], &[]),
    ("redis", &["redis-server"], &[]),
    ("ubuntu", &["bash", "sh"], &[]),
];

/// Images without an entrypoint: `args` alone are the whole command.
const BARE: [&str; 5] = ["busybox", "alpine", "debian", "ubuntu", "bash"];

/// What to execute for a start.
pub fn resolve(start: &Start, environment: &Environment) -> Result<Launch, Refusal> {
    let is_path = is_path(&start.image);
    let repository = if is_path { "" } else { repository(&start.image)? };
    let argv = if start.command.is_empty() {
        from_image(start, repository, environment)?
    } else {
        [start.command.clone(), start.args.clone()].concat()
    };
    let beside = is_path || argv.first().is_some_and(|name| name.starts_with("./") || name.starts_with("../"));
    let cwd = start.working_dir.clone().filter(|folder| !folder.is_empty());
    let cwd = cwd.or_else(|| start.manifest_dir.clone().filter(|_| beside));
    Ok(Launch {
        container: start.container.to_string(),
        attempt: start.attempt,
        argv,
        env: merged(environment, start),
        volumes: start.files.volumes.to_vec(),
        view: (start.files.view == volume::View::Private).then(|| View {
            mounts: start.files.mounts.clone(),
            own: start.manifest_dir.clone().filter(|_| beside).into_iter().collect(),
        }),
        volume_paths: start.volume_paths.clone(),
        cwd,
        groups: Vec::new(),
        oom_score: start.limits.oom_score,
        stdin: start.stdin,
        user: start.user.clone(),
        stop_signal: process::signal_number(&start.stop_signal).unwrap_or(15),
        message_path: start.termination_message_path.clone(),
        message_from_logs: start.termination_from_logs,
    })
}

/// The base first, then what is declared; a name that is declared again keeps its last value.
fn merged(environment: &Environment, start: &Start) -> Vec<(String, String)> {
    let mut env: Vec<(String, String)> = environment.0.clone();
    env.push(("HOSTNAME".into(), start.hostname.to_string()));
    for (name, value) in &start.env {
        match env.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => known.clone_from(value),
            None => env.push((name.clone(), value.clone())),
        }
    }
    env.retain(|(name, _)| name != folder::TERMINATION_LOG);
    env
}

fn is_path(image: &str) -> bool {
    ["./", "../", "/"].iter().any(|start| image.starts_with(start))
}

/// The last part of the repository of a well-formed image.
fn repository(image: &str) -> Result<&str, Refusal> {
    match reference::parse(image) {
        Ok(parsed) => Ok(parsed.path.rsplit('/').next().unwrap_or(parsed.path)),
        Err(why) => Err(Refusal {
            reason: "InvalidImageName",
            message: format!("Failed to apply default image tag {image:?}: couldn't parse image name {image:?}: {why}"),
        }),
    }
}

fn from_image(start: &Start, repository: &str, environment: &Environment) -> Result<Vec<String>, Refusal> {
    if is_path(&start.image) {
        let program = beside(start)?;
        return Ok([vec![program], start.args.clone()].concat());
    }
    if BARE.contains(&repository) && !start.args.is_empty() {
        return Ok(start.args.clone());
    }
    let own = [repository];
    let known = KNOWN.iter().find(|(name, ..)| *name == repository);
    let (programs, defaults) = known.map_or((&own[..], &[][..]), |(_, programs, defaults)| (*programs, *defaults));
    let program = programs.iter().find(|name| is_on_path(name, environment.path()));
    let Some(program) = program else { return Err(absent(start, programs[0])) };
    let args =
        if start.args.is_empty() { defaults.iter().map(|arg| arg.to_string()).collect() } else { start.args.clone() };
    Ok([vec![program.to_string()], args].concat())
}

/// The program of an image that is a path; `./server:v2` is `./server` when there is no file of that whole name.
fn beside(start: &Start) -> Result<String, Refusal> {
    let image = &start.image;
    let base = match (&start.manifest_dir, image.starts_with('/')) {
        (_, true) => PathBuf::new(),
        (Some(folder), _) => PathBuf::from(folder),
        (None, _) => {
            let why = "its manifest was not applied from a file, so nobody knows what it is relative to; write an absolute path";
            return Err(refusal(start, why));
        }
    };
    let untagged = image.rsplit_once(':').map_or(image.as_str(), |(path, _)| path);
    let file = [image.as_str(), untagged].into_iter().map(|path| base.join(path)).find(|path| path.exists());
    let Some(file) = file else {
        let why = format!("there is no file {}; build it, or correct the path", base.join(image).display());
        return Err(refusal(start, &why));
    };
    let shown = file.display();
    if file.is_dir() {
        return Err(refusal(start, &format!("{shown} is a folder; write the path of a program in it")));
    }
    if !may_run(&file) {
        return Err(refusal(start, &format!("{shown} may not be executed; run: chmod +x {shown}")));
    }
    Ok(file.to_string_lossy().into_owned())
}

fn absent(start: &Start, program: &str) -> Refusal {
    let why = format!(
        "kloop runs images as local programs, and there is no {program:?} on the PATH of kloop reconcile; \
         install it, set `command:`, or write the path of a program as the image (`image: ./{program}`)"
    );
    refusal(start, &why)
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
