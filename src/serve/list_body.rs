//! Lists as JSON text in pieces: only one piece is in memory, however long the list is.
//!
//! All pieces show the same revision. No snapshot is open between two pieces, so a slow client does not block other work. Items in their
//! stored form are copied without parsing. Start reading at [`ListBody::next_piece`].

use super::ServeResult;
use super::continue_token::ContinueToken;
use super::form::AnswerShape;
use super::list_frame::ListFrame;
use super::presentation::ReadPresentation;
use super::protobuf::list::ListEncoder;
use super::table::IncludeObject;
use crate::apiserver::Api;
use crate::apiserver::page::{self, ListPosition, ListRequest};
use crate::apiserver::read::ListSelection;
use crate::kinds::Kind;
use crate::kinds::view::UNREAD_BY_CELLS;
use crate::object::{Object, Reason, Status, Str, sparse};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;

/// Stored bytes per piece; a longer object is a piece of its own.
const PIECE: usize = 512 << 10;

/// A list being written.
pub struct ListBody {
    kind: &'static Kind,
    namespace: Option<String>,
    wanted: ListSelection,
    show: ReadPresentation,
    frame: ListFrame,
    /// The revision that it shows; `None` for the current one, before the first piece.
    revision: Option<u64>,
    after: Option<ListPosition>,
    /// Number of items that it may still get; `None` without a limit.
    left: Option<usize>,
    /// The last item; `None` before the first one.
    last: Option<ListPosition>,
    /// Whether objects follow for which it has no room.
    is_cut: bool,
    is_begun: bool,
    /// Whether all of it was returned.
    is_over: bool,
    packer: Option<GzEncoder<Vec<u8>>>,
}

impl ListBody {
    /// Makes a list that begins after a continue position, of a revision or the current one.
    pub fn new(listing: &ListRequest<'_>, show: ReadPresentation) -> ListBody {
        ListBody {
            kind: listing.kind,
            namespace: listing.namespace.map(str::to_owned),
            wanted: listing.wanted.clone(),
            frame: show.list_frame(),
            show,
            revision: listing.at,
            after: listing.after.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
            left: listing.limit,
            last: None,
            is_cut: false,
            is_begun: false,
            is_over: false,
            packer: None,
        }
    }

    /// Whether it is complete.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the media type.
    pub fn media_type(&self) -> &'static str {
        self.show.form().encoding.media_type()
    }

    fn request(&self) -> ListRequest<'_> {
        ListRequest {
            kind: self.kind,
            namespace: self.namespace.as_deref(),
            wanted: &self.wanted,
            at: self.revision,
            after: self.after.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str())),
            limit: None,
        }
    }

    /// Returns the next piece; `None` at the end.
    pub fn next_piece(&mut self, api: &Api) -> ServeResult<Option<Vec<u8>>> {
        if self.is_over {
            return Ok(None);
        }
        let batch = page::read_rows(api, &self.request(), PIECE)?;
        let mut text = Vec::with_capacity(2 * PIECE);
        if !std::mem::replace(&mut self.is_begun, true) {
            text.extend_from_slice(self.frame.head().as_bytes());
        }
        self.write_rows(&batch.rows, &mut text)?;
        self.revision = Some(batch.revision);
        self.is_over = batch.next.is_none() || self.is_cut;
        self.after = batch.next;
        if self.is_over {
            let metadata = self.metadata(api, batch.revision)?;
            text.extend_from_slice(self.frame.tail(metadata, self.last.is_some()).as_bytes());
        }
        match &self.packer {
            Some(_) => self.pack(&text).map(Some),
            None => Ok(Some(text)),
        }
    }

    /// Returns the metadata of the list, with the continue token and the number of further objects when there are any.
    fn metadata(&self, api: &Api, revision: u64) -> ServeResult<Value> {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        let Some(last) = self.last.as_ref().filter(|_| self.is_cut) else { return Ok(metadata) };
        let place = (last.0.as_str(), last.1.as_str());
        metadata["continue"] = ContinueToken::following(revision, place).to_string().into();
        if self.wanted.is_everything() {
            metadata["remainingItemCount"] = page::count_after(api, &self.request(), place)?.into();
        }
        Ok(metadata)
    }

    /// Compresses from here on; returns the compressed first piece.
    pub fn compress(&mut self, first: &[u8]) -> ServeResult<Vec<u8>> {
        self.packer = Some(GzEncoder::new(Vec::new(), Compression::fast()));
        self.pack(first)
    }

    fn pack(&mut self, text: &[u8]) -> ServeResult<Vec<u8>> {
        let Some(packer) = &mut self.packer else { return Ok(text.to_owned()) };
        let refuse = |error: std::io::Error| Status::new(Reason::InternalError, error.to_string());
        packer.write_all(text).map_err(refuse)?;
        match self.is_over {
            true => packer.try_finish().map_err(refuse)?,
            false => packer.flush().map_err(refuse)?,
        }
        Ok(std::mem::take(packer.get_mut()))
    }

    /// Writes the wanted objects of a batch, as far as there is room.
    fn write_rows(&mut self, rows: &[(ListPosition, Str)], text: &mut Vec<u8>) -> ServeResult<()> {
        if let AnswerShape::Table(version) = self.show.form().shape.clone() {
            return self.write_table_rows(rows, &version, text);
        }
        let is_copied = self.show.copies_items();
        for (place, body) in rows {
            let object = match is_copied && self.wanted.is_everything() {
                true => None,
                false => Some(self.parse::<Value>(body).map(Object)?),
            };
            if object.as_ref().is_some_and(|object| !self.wanted.admits(self.kind, object)) {
                continue;
            }
            if !self.has_room() {
                return Ok(());
            }
            let item = match object {
                Some(object) if !is_copied => self.show.list_item(object).to_string(),
                _ => self.copied(body)?,
            };
            self.write_item(&item, place, text);
        }
        Ok(())
    }

    /// Writes the rows of a table. Bodies are read without the fields that no cell needs, and the metadata in a row is copied.
    fn write_table_rows(&mut self, rows: &[(ListPosition, Str)], version: &str, text: &mut Vec<u8>) -> ServeResult<()> {
        let is_whole = self.show.include() == IncludeObject::Object;
        let unread = if is_whole || self.kind.custom.is_some() { &[] } else { UNREAD_BY_CELLS };
        let (mut objects, mut shown) = (Vec::new(), Vec::new());
        for (place, body) in rows {
            let object = Object(sparse::read_without(body, unread).map_err(|error| unreadable(self.kind, &error))?);
            if !self.wanted.admits(self.kind, &object) {
                continue;
            }
            if !self.has_room() {
                break;
            }
            shown.push((place, self.object_of_row(body, &object, version)?));
            objects.push(object);
        }
        for (cells, (place, shown)) in self.show.list_cells(objects).iter().zip(shown) {
            self.write_item(&format!(r#"{{"cells":{cells},"object":{shown}}}"#), place, text);
        }
        Ok(())
    }

    /// Takes the room for one more item; the list is cut where there is none.
    fn has_room(&mut self) -> bool {
        match &mut self.left {
            None => return true,
            Some(0) => self.is_cut = true,
            Some(left) => *left -= 1,
        }
        !self.is_cut
    }

    /// Returns the part of an object that its row contains, as JSON.
    fn object_of_row(&self, body: &str, object: &Object, version: &str) -> ServeResult<String> {
        Ok(match self.show.include() {
            IncludeObject::Nothing => "null".into(),
            IncludeObject::Metadata => {
                let fields: BTreeMap<String, &RawValue> = self.parse(body)?;
                partial_metadata(version, fields.get("metadata").map_or("{}", |metadata| metadata.get()))
            }
            IncludeObject::Object => self.show.shown(object.clone()).0.to_string(),
        })
    }

    /// Returns the text of an item in its stored form, without parsing its fields.
    fn copied(&self, body: &str) -> ServeResult<String> {
        let mut fields: BTreeMap<String, &RawValue> = self.parse(body)?;
        let own = ["apiVersion", "kind"];
        match &self.show.form().shape {
            AnswerShape::Metadata(version) => {
                let metadata = fields.get("metadata").map_or("{}", |metadata| metadata.get());
                return Ok(partial_metadata(version, metadata));
            }
            _ if self.kind.custom.is_none() => fields.retain(|name, _| !own.contains(&name.as_str())),
            _ => {}
        }
        let mut text = String::with_capacity(body.len());
        for (name, value) in &fields {
            text.push(if text.is_empty() { '{' } else { ',' });
            text.push_str(&json!(name).to_string());
            text.push(':');
            match name.as_str() {
                "apiVersion" => text.push_str(&json!(self.show.api_version()).to_string()),
                _ => text.push_str(value.get()),
            }
        }
        Ok(if text.is_empty() { "{}".into() } else { text + "}" })
    }

    fn write_item(&mut self, item: &str, place: &ListPosition, text: &mut Vec<u8>) {
        self.frame.write_item(item, self.last.is_none(), text);
        self.last = Some(place.clone());
    }

    fn parse<'a, T: serde::Deserialize<'a>>(&self, body: &'a str) -> ServeResult<T> {
        serde_json::from_str(body).map_err(|error| unreadable(self.kind, &error))
    }
}

/// Returns a list as protobuf; `None` where its kind has no such encoding. The objects are read piece by piece, and only their bytes kept.
pub fn protobuf_list(api: &Api, listing: &ListRequest<'_>, show: &ReadPresentation) -> ServeResult<Option<Vec<u8>>> {
    let Some(mut encoder) = ListEncoder::new(show.api_version(), listing.kind.kind) else { return Ok(None) };
    let mut position = listing.after.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
    let mut at = listing.at;
    loop {
        let after = position.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
        let batch = page::read_rows(api, &ListRequest { at, after, ..*listing }, PIECE)?;
        for (_, body) in &batch.rows {
            let object = Object(serde_json::from_str(body).map_err(|error| unreadable(listing.kind, &error))?);
            if listing.wanted.admits(listing.kind, &object) {
                encoder.push(&show.list_item(object));
            }
        }
        if at.replace(batch.revision).is_none()
            && let Some(next) = &batch.next
        {
            encoder.reserve(page::count_after(api, listing, (&next.0, &next.1))?);
        }
        position = batch.next;
        if position.is_none() {
            return Ok(Some(encoder.finish(&json!({"resourceVersion": batch.revision.to_string()}))));
        }
    }
}

/// The error for a stored body that is not JSON.
fn unreadable(kind: &Kind, error: &serde_json::Error) -> Status {
    Status::new(Reason::InternalError, format!("stored body of {}: {error}", kind.resource))
}

/// The text of a PartialObjectMetadata with this text of its metadata.
fn partial_metadata(version: &str, metadata: &str) -> String {
    format!(r#"{{"apiVersion":"meta.k8s.io/{version}","kind":"PartialObjectMetadata","metadata":{metadata}}}"#)
}
