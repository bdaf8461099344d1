//! The page for browsers at `/ui`: the dashboard in one file, and the resources that it needs in addition to the API.
//!
//! Knows: the page and its headers ([`page`]), the rows of the overview as they change ([`super::overview_feed`]), and the texts of
//! `describe`, `why` and `plan` ([`commands`]). The page uses the API for everything else, and for every change.
//! Never: sends anything but the page to clients without access. Start reading at [`answer`].

mod commands;
mod page;

use super::overview_feed::OverviewFeed;
use super::{ApiRequest, HttpAnswer, ServeResult, not_allowed, unknown_path};
use crate::apiserver::Api;
use crate::apiserver::authorization::{AccessRequest, AccessedResource, check_access};

/// Answers a request for the page or a part of it.
pub fn answer(api: &mut Api, request: &ApiRequest, part: &str) -> ServeResult {
    match (request.method.as_str(), part) {
        ("GET" | "HEAD", "") => Ok(page::answer()),
        ("GET", "watch") => {
            check_reads_everything(api, request)?;
            OverviewFeed::open(api).map(HttpAnswer::overview)
        }
        ("GET", "text") => commands::text(api, request),
        ("POST", "plan") => commands::plan(api, request),
        (_, "" | "watch" | "text" | "plan") => Err(not_allowed()),
        _ => Err(unknown_path()),
    }
}

/// Refuses users who may not read all objects: the overview shows all of them.
fn check_reads_everything(api: &Api, request: &ApiRequest) -> ServeResult<()> {
    let Some(user) = &request.user else { return Ok(()) };
    let all = || "*".to_owned();
    let accessed = AccessedResource { group: all(), resource: all(), ..AccessedResource::default() };
    api.read_view(|txn| check_access(txn, user, &AccessRequest::for_resource("list", accessed))).map(drop)
}
