//! `kloop attach`: what a container writes from now on, line by line, from its log; no control plane needs to run.

use super::{Context, Failure, Outcome, one_pod};
use crate::runtime::logs::{self, Options};
use std::io::{IsTerminal, Write};

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

# Get output from the first pod of a replica set named nginx
kloop attach rs/nginx"
)]
pub struct Args {
    /// POD or TYPE/NAME.
    words: Vec<String>,
    /// Container name. If omitted, the first container in the pod will be chosen.
    #[arg(short, long, value_name = "CONTAINER")]
    container: Option<String>,
    /// Pass stdin to the container. Not supported yet.
    #[arg(short = 'i', long)]
    stdin: bool,
    /// Stdin is a TTY. Without stdin it changes nothing.
    #[arg(short, long)]
    tty: bool,
    /// Only print output from the remote session.
    #[arg(short, long)]
    quiet: bool,
    /// The length of time (like 5s, 2m, or 3h, higher than zero) to wait until at least one pod is running.
    #[arg(long, default_value = "1m0s", value_name = "DURATION")]
    pod_running_timeout: String,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut Context) -> Outcome {
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
    if args.stdin {
        return Err(Failure::plain(
            "attach passes no standard input yet: use 'kloop exec -i', which runs a command of its own",
        ));
    }
    let pod = one_pod::find(word, &args.pod_running_timeout, context)?;
    let container = one_pod::container(&pod, args.container.as_ref(), args.quiet, "attach", context)?;
    let state = context.api()?.store().home().to_owned();
    let options = Options { follow: true, tail: Some(0), ..Options::default() };
    let output = logs::open(&state, pod.uid(), &container, options)
        .map_err(|_| Failure::plain(format!("unable to upgrade connection: container not found ({container:?})")))?;
    if !args.quiet {
        context.tell("If you don't see a command prompt, try pressing enter.");
    }
    let mut out = std::io::stdout().lock();
    for piece in output {
        let piece = piece?;
        let piece = if out.is_terminal() { crate::show::escape::output(&piece) } else { piece };
        out.write_all(&piece)?;
        out.flush()?;
    }
    Ok(())
}
