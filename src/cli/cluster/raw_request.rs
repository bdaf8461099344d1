//! `--raw` of verbs that write: sends a file to a path of the REST API, without a server.
//!
//! Start reading at [`RawFlag::send`]. `get --raw` has lists and watches, and is a file of its own.

use super::rest;
use crate::cli::manifests::files::FileFlags;
use crate::cli::manifests::input;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::client::ClientRequest;
use crate::object::io_error_text;
use crate::serve::{self, AnswerBody, ApiRequest};
use std::io::Read;
use std::path::Path;

/// `--raw`.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct RawFlag {
    /// Raw URI of the REST API to send the file of -f to; no server needs to run.
    #[arg(long, value_name = "PATH")]
    raw: Option<String>,
}

/// Largest body of a request, in bytes. The API takes objects of 3 MiB.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

impl RawFlag {
    /// Whether the flag is given.
    pub fn is_set(&self) -> bool {
        self.raw.is_some()
    }

    /// Sends the request if the flag is given, and prints the answer; false without the flag. `output` is the value of `-o`.
    pub fn send(
        &self,
        method: &str,
        files: &FileFlags,
        output: Option<&str>,
        context: &mut CommandContext,
    ) -> CliResult<bool> {
        let Some(path) = &self.raw else { return Ok(false) };
        let body = check(method, path, files, output)?.map(read_body).transpose()?.unwrap_or_default();
        let is_json = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
        let content_type = if is_json { "application/json" } else { "application/yaml" };
        if context.client().is_some() {
            let method = method.parse().map_err(|_| Failure::plain(format!("{method:?} is not an HTTP method")))?;
            let request = ClientRequest::new(method, path.as_str()).with_body(content_type, body);
            if let Some(reply) = rest::send_to_server(context, request)? {
                context.print(&String::from_utf8_lossy(&reply.body))?;
            }
            return Ok(true);
        }
        let request = ApiRequest {
            host: "localhost".into(),
            content_type: content_type.into(),
            body,
            ..ApiRequest::new(method, path)
        };
        match serve::handle_request(context.api()?, &request)?.body {
            AnswerBody::Whole(bytes) => context.print(&String::from_utf8_lossy(&bytes))?,
            _ => return Err(Failure::plain(format!("--raw cannot print the answer of {path}"))),
        }
        Ok(true)
    }
}

/// Refuses the same combinations of flags as kubectl. Returns the file of the body.
fn check<'a>(method: &str, path: &str, files: &'a FileFlags, output: Option<&str>) -> CliResult<Option<&'a str>> {
    let fits = match files.filenames.len() {
        0 => method == "DELETE",
        1 => true,
        _ => false,
    };
    let first = files.filenames.first().map(String::as_str);
    let is_unnamed = files.is_empty() && method != "DELETE";
    let wrong = if is_unnamed {
        "must specify one of -f and -k".to_owned()
    } else if !fits || !files.kustomize.is_empty() {
        "--raw can only use a single local file or stdin".to_owned()
    } else if first.is_some_and(|name| name.starts_with("http://") || name.starts_with("https://")) {
        "--raw cannot read from a url".to_owned()
    } else if files.recursive {
        "--raw and --recursive are mutually exclusive".to_owned()
    } else if output.is_some_and(|output| !output.is_empty()) {
        "--raw and --output are mutually exclusive".to_owned()
    } else if !path.starts_with('/') {
        format!("--raw must be a valid URL path: parse {path:?}: invalid URI for request")
    } else {
        return Ok(first);
    };
    Err(Failure::plain(wrong))
}

fn read_body(name: &str) -> CliResult<Vec<u8>> {
    let mut body = Vec::new();
    if name == "-" {
        std::io::stdin().take(MAX_BYTES).read_to_end(&mut body)?;
        return Ok(body);
    }
    input::read(Path::new(name)).map_err(|error| {
        Failure::plain(match error.kind() {
            std::io::ErrorKind::NotFound => format!("open {name}: no such file or directory"),
            _ => format!("open {name}: {}", io_error_text(error)),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_kubectl_refuses_are_refused() {
        let files = |names: &[&str], recursive| FileFlags {
            filenames: names.iter().map(|name| (*name).to_owned()).collect(),
            recursive,
            ..FileFlags::default()
        };
        let single = "error: --raw can only use a single local file or stdin";
        for (method, path, files, output, expected) in [
            ("POST", "/api", files(&[], false), None, Some("error: must specify one of -f and -k")),
            ("DELETE", "/api", files(&[], false), None, None),
            ("PUT", "/api", files(&["a", "b"], false), None, Some(single)),
            ("POST", "/api", files(&["https://a"], false), None, Some("error: --raw cannot read from a url")),
            ("POST", "/api", files(&["a"], true), None, Some("error: --raw and --recursive are mutually exclusive")),
            (
                "POST",
                "/api",
                files(&["a"], false),
                Some("json"),
                Some("error: --raw and --output are mutually exclusive"),
            ),
            (
                "POST",
                "api",
                files(&["a"], false),
                None,
                Some("error: --raw must be a valid URL path: parse \"api\": invalid URI for request"),
            ),
            ("POST", "/api", files(&["a"], false), None, None),
        ] {
            let refused = check(method, path, &files, output).err().map(|failure| failure.to_string());
            assert_eq!(refused.as_deref(), expected);
        }
    }
}
