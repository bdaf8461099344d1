//! Deletion of one object and of collections.

use super::answer::{HttpAnswer, details};
use super::options;
use super::presentation::ReadPresentation;
use super::request::ApiRequest;
use super::resolve::ResolvedTarget;
use super::{ServeResult, not_allowed};
use crate::apiserver::delete::{DeleteOptions, delete};
use crate::apiserver::rules::names::key_of;
use crate::apiserver::{Api, WriteReply, read};
use crate::object::{Object, Reason, Status};

/// Deletes one object.
pub fn delete_object(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult {
    let show = ReadPresentation::from_request(request, asked)?;
    let (deletion, dry_run) = options::delete_options(request)?;
    let deletion = DeleteOptions { api_version: Some(asked.api_version.clone()), ..deletion };
    let key = asked.key();
    let (is_gone, reply) = api.write(dry_run, |txn| {
        let reply = delete(txn, asked.kind, &key, &deletion)?;
        Ok((!txn.exists(&key)?, reply))
    })?;
    let object = show.converted_object(api, Object::clone(&reply.object))?;
    Ok(answer(&show, asked, is_gone, WriteReply { object: object.into(), ..reply }))
}

fn answer(show: &ReadPresentation, asked: &ResolvedTarget<'_>, is_gone: bool, reply: WriteReply) -> HttpAnswer {
    if is_gone && !asked.kind.returns_deleted {
        return HttpAnswer::done(200, Some(details(asked.kind, &reply.object)), show.form());
    }
    show.answer_object(200, reply.into_object())
}

/// Deletes every selected object, and lists them as they were deleted.
pub fn delete_collection(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult {
    if asked.kind.resource == "namespaces" {
        return Err(not_allowed());
    }
    let show = ReadPresentation::from_request(request, asked)?;
    let (deletion, dry_run) = options::delete_options(request)?;
    let wanted = options::list_selection(request, &asked.api_version)?;
    let found = api.read_view(|txn| read::list(txn, asked.kind, asked.namespace, &wanted))?;
    let mut rest = found.into_iter().peekable();
    let mut deleted = Vec::new();
    while rest.peek().is_some() {
        let done = api.write_next(dry_run, &mut rest, |txn, object| {
            let api_version = Some(asked.api_version.clone());
            let own = DeleteOptions { uid: Some(object.uid().to_owned()), api_version, ..deletion.clone() };
            delete(txn, asked.kind, &key_of(asked.kind, object), &own)
        });
        for (_, outcome) in done {
            match outcome {
                Ok(reply) => deleted.push(reply.into_object()),
                // Another client was faster.
                Err(Status { reason: Reason::NotFound | Reason::Conflict, .. }) => {}
                Err(status) => return Err(status),
            }
        }
    }
    let revision = api.read(|snapshot| snapshot.revision())?;
    Ok(show.list(deleted, revision))
}
