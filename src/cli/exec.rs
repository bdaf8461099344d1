//! `kloop exec`: a command beside a running container; the pod's shim starts it, no control plane needs to run.

use super::{Context, Failure, Outcome, one_pod};
use crate::object::Object;
use crate::runtime::session::{self, Ended, Streams};

/// Execute a command in a container.
#[derive(clap::Args)]
#[command(
    override_usage = "(POD | TYPE/NAME) [-c CONTAINER] [flags] -- COMMAND [args...]",
    after_help = "\
# Get output from running the 'date' command from pod mypod, using the first container by default
kloop exec mypod -- date

# Get output from running the 'date' command in ruby-container from pod mypod
kloop exec mypod -c ruby-container -- date

# Switch to raw terminal mode; sends stdin to 'bash' in ruby-container from pod mypod and sends stdout/stderr from 'bash' back
kloop exec mypod -c ruby-container -i -t -- bash -il

# List contents of /usr from the first container of pod mypod and sort by modification time
kloop exec mypod -i -t -- ls -t /usr

# Get output from running 'date' command from the first pod of the deployment mydeployment, using the first container by default
kloop exec deploy/mydeployment -- date

# Get output from running 'date' command from the first pod of the service myservice, using the first container by default
kloop exec svc/myservice -- date"
)]
pub struct Args {
    /// POD or TYPE/NAME.
    words: Vec<String>,
    /// Container name. If omitted, the first container in the pod will be chosen.
    #[arg(short, long, value_name = "CONTAINER")]
    container: Option<String>,
    /// Pass stdin to the container.
    #[arg(short = 'i', long)]
    stdin: bool,
    /// Stdin is a TTY.
    #[arg(short, long)]
    tty: bool,
    /// Only print output from the remote session.
    #[arg(short, long)]
    quiet: bool,
    /// The length of time (like 5s, 2m, or 3h, higher than zero) to wait until at least one pod is running.
    #[arg(long, default_value = "1m0s", value_name = "DURATION")]
    pod_running_timeout: String,
    /// The command and its arguments.
    #[arg(last = true)]
    command: Vec<String>,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut Context) -> Outcome {
    let usage = |text: &str| Err(Failure::Usage("exec".into(), text.into()));
    let word = match &args.words[..] {
        [] => return usage("pod, type/name or --filename must be specified"),
        [_] if args.command.is_empty() => {
            return Err(Failure::plain("you must specify at least one command for the container"));
        }
        [word] => word,
        _ => return usage("exec [POD] [COMMAND] is not supported anymore. Use exec [POD] -- [COMMAND] instead"),
    };
    let pod = one_pod::find(word, &args.pod_running_timeout, context)?;
    let container = one_pod::container(&pod, args.container.as_ref(), args.quiet, "exec into", context)?;
    let streams = streams(args.stdin, args.tty, context);
    run_in(&pod, &container, &args.command, streams, context)
}

/// The streams that the flags ask for: a terminal only for who has one to give.
pub fn streams(stdin: bool, tty: bool, context: &mut Context) -> Streams {
    let terminal = stdin && tty && session::is_terminal();
    if stdin && tty && !terminal {
        context.tell("Unable to use a TTY - input is not a terminal or the right kind of file");
    }
    Streams { stdin, terminal }
}

/// Runs a command beside a container and passes its exit code on.
fn run_in(pod: &Object, container: &str, command: &[String], streams: Streams, context: &mut Context) -> Outcome {
    let state = context.api()?.store().home().to_owned();
    match session::run(&state, pod.uid(), container, command, streams)? {
        Ended::Exited(0) => Ok(()),
        Ended::Exited(code) => {
            context.tell(&format!("command terminated with exit code {code}"));
            Err(Failure::Code(u8::try_from(code).unwrap_or(1)))
        }
        Ended::Told(signal) => Err(Failure::Code(u8::try_from(128 + signal).unwrap_or(1))),
        Ended::Missing => {
            Err(Failure::plain(format!("unable to upgrade connection: container not found ({container:?})")))
        }
        Ended::Failed(why) => {
            Err(Failure::plain(format!("Internal error occurred: error executing command in container: {why}")))
        }
    }
}
