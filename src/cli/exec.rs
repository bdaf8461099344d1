//! `kloop exec`: runs a command in a container. The pod's shim starts it; this needs no control
//! plane.

use super::cluster::one_pod::{self, SessionFlags};
use super::cluster::server_session::{self, ServerSession};
use super::manifests::files::FileFlags;
use super::{CliResult, CommandContext, Failure};
use crate::object::Object;
use crate::runtime::session::{self, SessionEnd, SessionStreams};
use serde_json::json;

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
kloop exec svc/myservice -- date

# Get output from running 'date' command from the pod that a file names
kloop exec -f pod.yaml -- date"
)]
pub struct Args {
    /// POD or TYPE/NAME.
    words: Vec<String>,
    /// To use to exec into the resource.
    #[arg(short, long = "filename", value_name = "FILE", value_delimiter = ',')]
    filenames: Vec<String>,
    #[command(flatten)]
    session: SessionFlags,
    /// The command and its arguments.
    #[arg(last = true)]
    command: Vec<String>,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let usage = |text: &str| Err(Failure::Usage("exec".into(), text.into()));
    let files = FileFlags { filenames: args.filenames, ..FileFlags::default() };
    let word = match (&args.words[..], files.is_empty()) {
        ([], true) => return usage("pod, type/name or --filename must be specified"),
        ([] | [_], _) if args.command.is_empty() => {
            return Err(Failure::plain("you must specify at least one command for the container"));
        }
        ([], false) => None,
        ([word], _) => {
            files.names_objects_instead_of(&args.words)?;
            Some(word)
        }
        _ => return usage("exec [POD] [COMMAND] is not supported anymore. Use exec [POD] -- [COMMAND] instead"),
    };
    let (pod, container) = match word {
        Some(word) => args.session.find(word, "exec into", context)?,
        None => args.session.find_of_files(&files, "exec into", context)?,
    };
    let options = json!({
        "kind": "PodExecOptions", "apiVersion": "v1", "container": container, "command": args.command, "stdout": true, "stderr": true,
    });
    one_pod::admit_connection(context, &pod, "exec", options)?;
    let streams = args.session.options().streams(context);
    run_in(&pod, &container, &args.command, streams, context)
}

/// Runs a command in a container and passes on its exit code.
fn run_in(
    pod: &Object,
    container: &str,
    command: &[String],
    streams: SessionStreams,
    context: &mut CommandContext,
) -> CliResult {
    let session = ServerSession { pod, container, subresource: "exec", command, streams, detach: None };
    let end = match server_session::run(context, &session, || ()) {
        Some(ended) => ended?,
        None => {
            let state = context.api()?.store().home().to_owned();
            session::run(&state, pod.local_uid(), container, command, streams)?
        }
    };
    match end {
        SessionEnd::Exited(0) | SessionEnd::Detached => Ok(()),
        SessionEnd::Exited(code) => {
            context.print_notice(&format!("command terminated with exit code {code}"));
            Err(Failure::Code(u8::try_from(code).unwrap_or(1)))
        }
        SessionEnd::Signaled(signal) => Err(Failure::signaled(signal)),
        SessionEnd::Missing => Err(Failure::plain(session::session_not_possible(container))),
        SessionEnd::Failed(why) => {
            Err(Failure::plain(format!("Internal error occurred: error executing command in container: {why}")))
        }
    }
}
