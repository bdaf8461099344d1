//! The Kubernetes REST API, for clients that speak HTTP and for `kloop get --raw`, which needs no socket.
//!
//! Knows: the paths, parameters, media types and documents of the API, and how answers look ([`Answer`]); what is asked for is done by
//! the API server, as it is for the command line.
//! Never: touches the store, or decides anything about objects.
//! Start reading at [`answer()`]: one request in, one answer out.

mod answer;
mod body;
mod discovery;
mod form;
mod options;
mod path;
mod read;
mod remove;
mod request;
mod resolve;
mod subresource;
mod table;
mod version;
mod write;

pub use answer::{Answer, Body};
pub use request::Request;

use crate::apiserver::Api;
use crate::object::{Reason, Status};
use path::{Named, Place};

/// What an attempt to answer comes to; a refusal becomes an answer, too.
pub type Result<T = Answer> = std::result::Result<T, Status>;

/// The Kubernetes that this is the API of.
pub const KUBERNETES: &str = "v1.36.2";

/// Answers one request.
pub fn answer(api: &mut Api, request: &Request) -> Answer {
    ask(api, request).unwrap_or_else(|status| Answer::refusal(&status))
}

/// The same for who wants to tell of a refusal in words of its own.
pub fn ask(api: &mut Api, request: &Request) -> Result {
    match path::parse(&request.path) {
        Some(Place::Document(document)) => discovery::answer(api, request, &document),
        Some(Place::Object(named)) => object(api, request, &named),
        None => Err(unknown_path()),
    }
}

fn object(api: &mut Api, request: &Request, named: &Named) -> Result {
    if let Some(answer) = subresource::without_kind(api, request, named) {
        return answer;
    }
    let kind = resolve::kind(api, named)?;
    let asked = resolve::asked(kind, named)?;
    if named.subresource.is_some() {
        return subresource::answer(api, request, &asked);
    }
    match (request.method.as_str(), asked.name.is_empty()) {
        ("GET", true) => read::list(api, request, &asked),
        ("GET", false) if request.flag("watch") || asked.watch => read::list(api, request, &asked),
        ("GET", false) => read::get(api, request, &asked),
        ("POST", true) if asked.is_placed() => write::create(api, request, &asked),
        ("PUT", false) => write::replace(api, request, &asked),
        ("PATCH", false) => write::patch(api, request, &asked),
        ("DELETE", false) => remove::one(api, request, &asked),
        ("DELETE", true) if asked.is_placed() => remove::all(api, request, &asked),
        _ => Err(not_allowed()),
    }
}

/// Nothing is served here.
fn unknown_path() -> Status {
    Status::new(Reason::NotFound, "the server could not find the requested resource")
}

/// It is, but not with this method.
fn not_allowed() -> Status {
    Status::new(Reason::MethodNotAllowed, "the server does not allow this method on the requested resource")
}
