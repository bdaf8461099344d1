//! `kloop cp`: copies files and folders to and from containers. On this machine that needs neither tar nor a control plane; containers
//! behind a server need tar.

mod server;

use super::cluster::one_pod;
use super::{CliResult, CommandContext, Failure};
use crate::object::{Object, io_error_text};
use crate::runtime::copy::{ContainerFilesystem, CopyRefusal};
use crate::runtime::session;
use jiff::SignedDuration;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Copy files and directories to and from containers.
#[derive(clap::Args)]
#[command(
    override_usage = "<file-spec-src> <file-spec-dest>",
    after_help = "\
# Copy /tmp/foo_dir local directory to /tmp/bar_dir in a remote pod in the default namespace
kloop cp /tmp/foo_dir <some-pod>:/tmp/bar_dir

# Copy /tmp/foo local file to /tmp/bar in a remote pod in a specific container
kloop cp /tmp/foo <some-pod>:/tmp/bar -c <specific-container>

# Copy /tmp/foo local file to /tmp/bar in a remote pod in namespace <some-namespace>
kloop cp /tmp/foo <some-namespace>/<some-pod>:/tmp/bar

# Copy /tmp/foo from a remote pod to /tmp/bar locally
kloop cp <some-namespace>/<some-pod>:/tmp/foo /tmp/bar"
)]
pub struct Args {
    /// Source and destination: a path, or [NAMESPACE/]POD:PATH.
    words: Vec<String>,
    /// Container name. If omitted, the first container in the pod will be chosen.
    #[arg(short, long, value_name = "CONTAINER")]
    container: Option<String>,
    /// Accepted for compatibility with kubectl; files belong to the container's user, and modes are kept.
    #[arg(long)]
    no_preserve: bool,
    /// Accepted for compatibility with kubectl; no network is involved.
    #[arg(long, default_value_t = 0, value_name = "N", allow_negative_numbers = true)]
    retries: i32,
}

/// One end of a copy.
#[derive(Debug, PartialEq)]
struct CopySpec<'a> {
    namespace: Option<&'a str>,
    /// `None` for a local path.
    pod: Option<&'a str>,
    path: &'a str,
}

fn spec(word: &str) -> CliResult<CopySpec<'_>> {
    let malformed = || Failure::plain("filespec must match the canonical format: [[namespace/]pod:]file/path");
    let Some((pod, path)) = word.split_once(':') else {
        return Ok(CopySpec { namespace: None, pod: None, path: word });
    };
    match pod.split('/').collect::<Vec<_>>()[..] {
        [""] => Err(malformed()),
        [pod] => Ok(CopySpec { namespace: None, pod: Some(pod), path }),
        [namespace, pod] => Ok(CopySpec { namespace: Some(namespace), pod: Some(pod), path }),
        _ => Err(malformed()),
    }
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let [from, to] = &args.words[..] else {
        return Err(Failure::Usage("cp".into(), "source and destination are required".into()));
    };
    let (from, to) = (spec(from)?, spec(to)?);
    let plain = |text: &str| Err(Failure::plain(text));
    let remote = match (from.pod, to.pod) {
        (Some(_), Some(_)) => return plain("one of src or dest must be a local file specification"),
        (None, None) => return plain("one of src or dest must be a remote file specification"),
        _ if from.path.is_empty() || to.path.is_empty() => return plain("filepath can not be empty"),
        (Some(_), None) => &from,
        (None, Some(_)) => {
            if !Path::new(from.path).exists() {
                return Err(Failure::plain(format!("{} doesn't exist in local filesystem", from.path)));
            }
            &to
        }
    };
    let place = place(&args, remote, context)?;
    let is_put = from.pod.is_none();
    let (from, to) = (Path::new(from.path), Path::new(to.path));
    let Some(files) = &place.files else {
        return if is_put {
            server::put(&place, from, to, context)
        } else {
            server::copy_out(&place, from, to, context)
        };
    };
    if is_put {
        let put = files.put(from, to);
        return put.map_err(|error| failed(error, "Error is not recoverable: exiting now", context));
    }
    let links = files
        .copy_out(from, to)
        .map_err(|error| failed(error, "Exiting with failure status due to previous errors", context))?;
    let links: Vec<(PathBuf, PathBuf)> = links.into_iter().map(|link| (link.at, link.to)).collect();
    print_skipped(&place, from, &links, context);
    Ok(())
}

/// Prints the links that were not copied: their paths and targets.
fn print_skipped(place: &CopyContainer, from: &Path, links: &[(PathBuf, PathBuf)], context: &mut CommandContext) {
    for (index, (at, to)) in links.iter().enumerate() {
        let text = |path: &Path| path.display().to_string();
        let advice = format!(
            " (consider using \"kloop exec -n {:?} {:?} -- tar cf - {:?} | tar xf -\")",
            place.pod.namespace(),
            place.pod.name(),
            text(from)
        );
        let advice = if index == 0 { &*advice } else { "" };
        context.print_notice(&format!("warning: skipping symlink: {:?} -> {:?}{advice}", text(at), text(to)));
    }
}

/// Converts an error in the container to kubectl's output: tar's message, and the exit code of tar.
fn failed(error: std::io::Error, last: &str, context: &mut CommandContext) -> Failure {
    if error.get_ref().is_some_and(|inner| inner.is::<CopyRefusal>()) {
        context.print_notice(&format!("{error}\ntar: {last}\ncommand terminated with exit code 2"));
        return Failure::Code(2);
    }
    Failure::plain(io_error_text(error))
}

/// The container, and the pod it belongs to.
struct CopyContainer {
    /// Its files; `None` for one behind a server.
    files: Option<ContainerFilesystem>,
    pod: Object,
    container: String,
}

fn place(args: &Args, remote: &CopySpec, context: &mut CommandContext) -> CliResult<CopyContainer> {
    if let Some(namespace) = remote.namespace {
        context.globals.namespace = Some(namespace.to_owned());
    }
    let pod = one_pod::find(remote.pod.unwrap_or_default(), SignedDuration::ZERO, context)?;
    let container = one_pod::container(&pod, args.container.as_ref(), false, "exec into", context)?;
    if context.client().is_some() {
        return Ok(CopyContainer { files: None, pod, container });
    }
    let options = json!({
        "kind": "PodExecOptions", "apiVersion": "v1", "container": container, "command": ["tar"], "stdout": true, "stderr": true,
    });
    one_pod::admit_connection(context, &pod, "exec", options)?;
    let state = context.api()?.store().home().to_owned();
    let missing = || Failure::plain(session::session_not_possible(&container));
    let files = ContainerFilesystem::find(&state, pod.local_uid(), &container)?.ok_or_else(missing)?;
    Ok(CopyContainer { files: Some(files), pod, container })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_apart() {
        let of = |namespace, pod, path| CopySpec { namespace, pod, path };
        let read = |word| spec(word).map_err(|failure| failure.to_string());
        assert_eq!(read("a/b"), Ok(of(None, None, "a/b")));
        assert_eq!(read("web:/a"), Ok(of(None, Some("web"), "/a")));
        assert_eq!(read("ns/web:a"), Ok(of(Some("ns"), Some("web"), "a")));
        for word in [":a", "a/b/c:d"] {
            assert!(read(word).is_err(), "{word}");
        }
    }
}
