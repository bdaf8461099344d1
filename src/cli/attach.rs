//! `kloop attach`: in front of a running container, reading what it writes and typing what it reads; no control plane needs to run.

use super::one_pod::{SessionFlags, SessionOptions};
use super::{CliResult, CommandContext, Failure};
use crate::object::Object;
use crate::runtime::logs::{self, LogOptions};
use crate::runtime::session::{self, AttachMode, SessionEnd, SessionStreams};
use serde_json::Value;
use std::io::Write;

/// Attach to a process that is already running inside an existing container.
#[derive(clap::Args)]
#[command(
    override_usage = "(POD | TYPE/NAME) -c CONTAINER",
    after_help = "\
# Get output from running pod mypod; use the 'kubectl.kubernetes.io/default-container' annotation
# for selecting the container to be attached or the first container in the pod will be chosen
kloop attach mypod

# Get output from ruby-container from pod mypod
kloop attach mypod -c ruby-container

# Switch to raw terminal mode; sends stdin to 'bash' in ruby-container from pod mypod and sends stdout/stderr from 'bash' back
kloop attach mypod -c ruby-container -i -t

# Get output from the first pod of a replica set named nginx
kloop attach rs/nginx"
)]
pub struct Args {
    /// POD or TYPE/NAME.
    words: Vec<String>,
    #[command(flatten)]
    session: SessionFlags,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let usage = |text: String| Err(Failure::Usage("attach".into(), text));
    let word = match &args.words[..] {
        [] => return usage("at least 1 argument is required for attach".into()),
        [word] => word,
        words => {
            return usage(format!(
                "expected POD, TYPE/NAME, or TYPE NAME, (at most 2 arguments) saw {}: {words:?}",
                words.len()
            ));
        }
    };
    let (pod, container) = args.session.find(word, "attach", context)?;
    match join(&pod, &container, args.session.wish(), false, context)? {
        AttachResult::Done => Ok(()),
        AttachResult::Missing => {
            Err(Failure::plain(format!("unable to upgrade connection: container not found ({container:?})")))
        }
    }
}

/// Result of attaching.
#[derive(PartialEq)]
pub enum AttachResult {
    /// The container has ended, or there was nothing more to type.
    Done,
    /// It did not run any more, or not yet.
    Missing,
}

/// Attaches us to a container, with `replay` from the first of its words on.
pub fn join(
    pod: &Object,
    container: &str,
    wish: SessionOptions,
    replay: bool,
    context: &mut CommandContext,
) -> CliResult<AttachResult> {
    let (spec, is_ephemeral) = find(pod, container);
    let has = |field: &str| spec.is_some_and(|spec| spec[field] == true);
    if wish.tty && !has("tty") && !wish.quiet {
        context.print_notice(&format!("error: Unable to use a TTY - container {container} did not allocate one"));
    }
    // A container with a terminal is met in one, asked for or not; one that reads nothing is listened to only.
    let streams = SessionOptions { tty: has("tty"), stdin: wish.stdin && has("stdin"), ..wish }.streams(context);
    // To a container that was started for this, the end of a file or a pipe is the end of its input, and its output is awaited.
    let types_end = replay && has("tty") && streams.stdin && !streams.terminal;
    let mode = AttachMode { streams, replay, types_end };
    let state = context.api()?.store().home().to_owned();
    let ready = || {
        if !wish.quiet {
            context.print_notice(PROMPT);
        }
    };
    match session::attach(&state, pod.local_uid(), container, mode, ready)? {
        SessionEnd::Missing => Ok(AttachResult::Missing),
        SessionEnd::Failed(why) => Err(Failure::plain(format!("unable to upgrade connection: {why}"))),
        SessionEnd::Signaled(signal) => Err(Failure::Code(u8::try_from(128 + signal).unwrap_or(1))),
        SessionEnd::Exited(_) | SessionEnd::Detached => {
            if let Some(how) = how_to_come_back(pod, container, is_ephemeral, streams).filter(|_| !wish.quiet) {
                context.print_line(&how)?;
            }
            Ok(AttachResult::Done)
        }
    }
}

/// Attaches us to a container that we have started, from its first word on. Of one that has ended already only the words are left, and
/// so it is with one to which there is no way: kubectl says so, and prints its log.
pub fn meet(pod: &Object, container: &str, wish: SessionOptions, context: &mut CommandContext) -> CliResult {
    if has_ended(pod, container) {
        return print_log(pod, container, context);
    }
    let why = match join(pod, container, wish, true, context) {
        Ok(AttachResult::Done) => return Ok(()),
        // It has ended since.
        Ok(AttachResult::Missing) => return print_log(pod, container, context),
        Err(Failure::Plain(why)) => why,
        Err(other) => return Err(other),
    };
    context.print_notice(&format!(
        "warning: couldn't attach to pod/{}, falling back to streaming logs: {why}",
        pod.name()
    ));
    print_log(pod, container, context)
}

/// Whether status tells that the container has ended for good, or for now.
fn has_ended(pod: &Object, container: &str) -> bool {
    let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let mut statuses = lists.iter().flat_map(|list| pod.items(&["status", list]));
    statuses.any(|status| status["name"] == container && status["state"]["terminated"].is_object())
}

fn print_log(pod: &Object, container: &str, context: &mut CommandContext) -> CliResult {
    let state = context.api()?.store().home().to_owned();
    let Ok(log) = logs::open(&state, pod.local_uid(), container, LogOptions::default()) else { return Ok(()) };
    let mut out = std::io::stdout().lock();
    for piece in log {
        out.write_all(&piece?)?;
    }
    Ok(out.flush()?)
}

/// kubectl's words since 1.34.
const PROMPT: &str = "All commands and output from this session will be recorded in container logs, including credentials and sensitive information passed through the command prompt.\n\
If you don't see a command prompt, try pressing enter.";

/// A container's spec, and whether it is an ephemeral one.
fn find<'a>(pod: &'a Object, container: &str) -> (Option<&'a Value>, bool) {
    let of = |list: &str| pod.items(&["spec", list]).iter().find(|one| one["name"] == container);
    let ephemeral = of("ephemeralContainers");
    (ephemeral.or_else(|| of("containers")).or_else(|| of("initContainers")), ephemeral.is_some())
}

fn how_to_come_back(pod: &Object, container: &str, is_ephemeral: bool, streams: SessionStreams) -> Option<String> {
    if !streams.terminal || pod.text(&["spec", "restartPolicy"]).unwrap_or("Always") != "Always" {
        return None;
    }
    let command = format!("kloop attach {} -c {container} -i -t", pod.name());
    Some(match is_ephemeral {
        true => format!(
            "Session ended, the ephemeral container will not be restarted but may be reattached using '{command}' if it is still running"
        ),
        false => format!("Session ended, resume using '{command}' command when the pod is running"),
    })
}
