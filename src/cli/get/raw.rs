//! `kloop get --raw`: answers a request to the REST API without a server.

use super::Args;
use crate::cli::cluster::deadline::Deadline;
use crate::cli::cluster::rest;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::client::ClientRequest;
use crate::serve::{ActiveWatch, AnswerBody};

/// Handles the request, and prints the answer unchanged.
pub fn run(path: &str, args: &Args, context: &mut CommandContext) -> CliResult {
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
        return Err(Failure::plain(format!("--raw must be a valid URL path: parse {path:?}: invalid URI for request")));
    }
    if let Some(reply) = rest::send_to_server(context, ClientRequest::get(path).accepting("application/json, */*"))? {
        return context.print(&String::from_utf8_lossy(&reply.body));
    }
    match rest::answer_from_state(context, path, "")?.body {
        AnswerBody::Whole(bytes) => context.print(&String::from_utf8_lossy(&bytes)),
        AnswerBody::Packed(document) => context.print(&String::from_utf8_lossy(&document.unpack()?)),
        AnswerBody::List(first, mut list) => {
            let mut next = Some(first);
            while let Some(piece) = next {
                context.print(&String::from_utf8_lossy(&piece))?;
                next = list.next_piece(context.api()?, Vec::new())?;
            }
            Ok(())
        }
        AnswerBody::Watch(watching) => follow(*watching, context),
        AnswerBody::Log(logs) => {
            logs.into_iter().try_for_each(|piece| context.print(&String::from_utf8_lossy(&piece?)))
        }
        AnswerBody::Proxied(target) => {
            Err(Failure::plain(format!("--raw does not proxy requests: send the request to {}", target.place)))
        }
        // Only requests over a connection have such an answer.
        AnswerBody::Streams(_) => Ok(()),
        AnswerBody::Overview(mut feed) => {
            while let Some(piece) = feed.next_piece() {
                context.print(&String::from_utf8_lossy(&piece))?;
            }
            Ok(())
        }
    }
}

fn follow(mut watching: ActiveWatch, context: &mut CommandContext) -> CliResult {
    let patience = Deadline::new(context, Some(watching.timeout))?;
    let mut lines = std::mem::take(&mut watching.first);
    loop {
        context.print(&String::from_utf8_lossy(&lines))?;
        let (has_read, more) = watching.read(context.api()?)?;
        if watching.is_over() {
            return context.print(&String::from_utf8_lossy(&more));
        }
        if !has_read && !patience.wait() {
            return Ok(());
        }
        lines = more;
    }
}
