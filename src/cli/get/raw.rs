//! `kloop get --raw`: the answer of the REST API to a path, without any server.

use super::Args;
use crate::cli::patience::Patience;
use crate::cli::{Context, Failure, Outcome};
use crate::serve::{self, Body, Request, Watching};

/// Asks, and prints what comes back as it is.
pub fn run(path: &str, args: &Args, context: &mut Context) -> Outcome {
    if !args.which.is_empty() || !args.which.files.is_empty() {
        return Err(Failure::plain("arguments may not be passed when --raw is specified"));
    }
    if args.print.output.is_some() {
        return Err(Failure::plain("--raw and --output are mutually exclusive"));
    }
    if args.watch || args.watch_only {
        return Err(Failure::plain(
            "--raw may not be specified with other flags that filter the server request or alter the output",
        ));
    }
    if !path.starts_with('/') {
        return Err(Failure::plain(format!("parse {path:?}: invalid URI for request")));
    }
    let request = Request { host: "localhost".into(), ..Request::new("GET", path) };
    match serve::ask(context.api_for(true)?, &request)?.body {
        Body::Whole(bytes) => context.print(&String::from_utf8_lossy(&bytes)),
        Body::Watch(watching) => follow(*watching, context),
        Body::Log(logs) => logs.into_iter().try_for_each(|piece| context.print(&String::from_utf8_lossy(&piece?))),
    }
}

fn follow(mut watching: Watching, context: &mut Context) -> Outcome {
    let patience = Patience::new(context, watching.timeout)?;
    let mut lines = std::mem::take(&mut watching.first);
    loop {
        context.print(&String::from_utf8_lossy(&lines))?;
        let (count, more) = watching.read(context.api()?)?;
        if count == 0 && !patience.wait() {
            return Ok(());
        }
        lines = more;
    }
}
