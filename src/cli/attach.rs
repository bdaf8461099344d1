//! `kloop attach`: connects the terminal to a running container. This needs no control plane.

use super::cluster::one_pod::{self, DetachFlag, SessionFlags, SessionOptions};
use super::cluster::server_session::{self, ServerSession};
use super::logs::lines::{LineStyle, LineWriter};
use super::logs::streams::{LogPlace, copy_log};
use super::{CliResult, CommandContext, Failure};
use crate::object::Object;
use crate::runtime::logs::{self, LogOptions};
use crate::runtime::session::{self, AttachMode, SessionEnd, SessionStreams};
use serde_json::{Value, json};
use std::io::Write;
use std::sync::Arc;

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
    #[command(flatten)]
    detach: DetachFlag,
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
    let options = SessionOptions { detach: args.detach.parse()?, ..args.session.options() };
    let (pod, container) = args.session.find(word, "attach", context)?;
    admit(&pod, &container, options, context)?;
    match attach_session(&pod, &container, options, false, context)? {
        AttachResult::Done => Ok(()),
        AttachResult::Missing => Err(Failure::plain(session::session_not_possible(&container))),
    }
}

/// Asks whether the user may attach.
fn admit(pod: &Object, container: &str, session: SessionOptions, context: &mut CommandContext) -> CliResult {
    let options = json!({
        "kind": "PodAttachOptions", "apiVersion": "v1", "container": container,
        "stdin": session.stdin, "stdout": true, "stderr": !session.tty, "tty": session.tty,
    });
    one_pod::admit_connection(context, pod, "attach", options)
}

/// Result of attaching.
#[derive(PartialEq)]
pub enum AttachResult {
    /// The session ended, because the container exited or the input ended.
    Done,
    /// The container does not run.
    Missing,
}

/// Attaches to a container. With `replay`, the output starts at the container's first byte.
pub fn attach_session(
    pod: &Object,
    container: &str,
    options: SessionOptions,
    replay: bool,
    context: &mut CommandContext,
) -> CliResult<AttachResult> {
    let (spec, is_ephemeral) = find(pod, container);
    let has = |field: &str| spec.is_some_and(|spec| spec[field] == true);
    if options.tty && !has("tty") && !options.quiet {
        context.print_notice(&format!("error: Unable to use a TTY - container {container} did not allocate one"));
    }
    // Use a terminal if and only if the container has one. A server ignores input for a container that reads none.
    let stdin = options.stdin && (has("stdin") || context.client().is_some());
    let streams = SessionOptions { tty: has("tty"), stdin, ..options }.streams(context);
    // If the container was started for this session, end of input closes its stdin, and the session
    // waits for the remaining output.
    let types_end = replay && has("tty") && streams.stdin && !streams.terminal;
    let detach = options.detach;
    let mode = AttachMode { streams, replay, types_end, detach };
    let session = ServerSession { pod, container, subresource: "attach", command: &[], streams, detach: Some(detach) };
    let tell = |context: &mut CommandContext| {
        if !options.quiet {
            context.print_notice(PROMPT);
        }
    };
    if context.client().is_some() {
        tell(context);
    }
    let end = match server_session::run(context, &session, || ()) {
        Some(ended) => ended?,
        None => {
            let state = context.api()?.store().home().to_owned();
            session::attach(&state, pod.local_uid(), container, mode, || tell(context))?
        }
    };
    match end {
        SessionEnd::Missing => Ok(AttachResult::Missing),
        SessionEnd::Failed(why) => Err(Failure::plain(format!("unable to upgrade connection: {why}"))),
        SessionEnd::Signaled(signal) => Err(Failure::signaled(signal)),
        SessionEnd::Exited(_) | SessionEnd::Detached => {
            if let Some(hint) = reattach_hint(pod, container, is_ephemeral, streams).filter(|_| !options.quiet) {
                context.print_line(&hint)?;
            }
            Ok(AttachResult::Done)
        }
    }
}

/// Attaches to a container that this command started, and shows its output from the start. If the
/// container has ended, or attaching fails, prints its log, as kubectl does.
pub fn attach_from_start(
    pod: &Object,
    container: &str,
    options: SessionOptions,
    context: &mut CommandContext,
) -> CliResult {
    if has_ended(pod, container) {
        return print_log(pod, container, context);
    }
    let asked =
        admit(pod, container, options, context).and_then(|()| attach_session(pod, container, options, true, context));
    let why = match asked {
        Ok(AttachResult::Done) => return Ok(()),
        // The container has ended since its status was read.
        Ok(AttachResult::Missing) => return print_log(pod, container, context),
        Err(Failure::Plain(why) | Failure::WithoutProcess(why)) => why,
        Err(other) => return Err(other),
    };
    context.print_notice(&format!(
        "warning: couldn't attach to pod/{}, falling back to streaming logs: {why}",
        pod.name()
    ));
    print_log(pod, container, context)
}

/// Whether the container's status is `terminated`.
fn has_ended(pod: &Object, container: &str) -> bool {
    pod.container_status(container).is_some_and(|status| status["state"]["terminated"].is_object())
}

fn print_log(pod: &Object, container: &str, context: &mut CommandContext) -> CliResult {
    if context.client().is_some() {
        let place = LogPlace::from_context(context)?;
        let writer = LineWriter::new(None, Arc::new(LineStyle::default()));
        return copy_log(&place, pod, container, &LogOptions::default(), writer);
    }
    let state = context.api()?.store().home().to_owned();
    let Ok(log) = logs::open(&state, pod.local_uid(), container, LogOptions::default()) else { return Ok(()) };
    let mut out = std::io::stdout().lock();
    for piece in log {
        out.write_all(&piece?)?;
    }
    Ok(out.flush()?)
}

/// kubectl's text since 1.34.
const PROMPT: &str = "All commands and output from this session will be recorded in container logs, including credentials and sensitive information passed through the command prompt.\n\
If you don't see a command prompt, try pressing enter.";

/// Returns a container's spec, and whether the container is ephemeral.
fn find<'a>(pod: &'a Object, container: &str) -> (Option<&'a Value>, bool) {
    let find_in = |list: &str| pod.items(&["spec", list]).iter().find(|entry| entry["name"] == container);
    let ephemeral = find_in("ephemeralContainers");
    (ephemeral.or_else(|| find_in("containers")).or_else(|| find_in("initContainers")), ephemeral.is_some())
}

fn reattach_hint(pod: &Object, container: &str, is_ephemeral: bool, streams: SessionStreams) -> Option<String> {
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
