//! Lists in pieces: only one piece is in memory, however long the list is.
//!
//! All pieces show the same revision. No snapshot is open between two pieces, so a slow client does not block other work. Items in their
//! stored form are copied without parsing. A list as protobuf has its length before its items, so that its items are encoded before they
//! are sent, and wait in a file when they are many. Start reading at [`ListBody::next_piece`].

use super::ServeResult;
use super::continue_token::ContinueToken;
use super::form::{AnswerEncoding, AnswerShape};
use super::list_frame::ListFrame;
use super::presentation::ReadPresentation;
use super::protobuf::list::ListEncoder;
use super::spool::Spool;
use super::table::IncludeObject;
use crate::apiserver::Api;
use crate::apiserver::page::{self, BodyAt, ListPosition, ListRequest, RowBatch};
use crate::apiserver::read::ListSelection;
use crate::kinds::Kind;
use crate::kinds::view::part_read_by_cells;
use crate::object::sparse::{self, ReadPart};
use crate::object::{Object, Reason, Status};
use crate::runtime::allocator;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

/// Stored bytes per piece; a longer object is a piece of its own. The allocator keeps several buffers of this size per thread.
const PIECE_BYTES: usize = 128 << 10;

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
    /// Whether the whole list was returned.
    is_over: bool,
    packer: Option<GzEncoder<Vec<u8>>>,
    /// The fields that cells read; `None` where they are not known.
    read_by_cells: ReadPart,
    /// The encoded list; `None` before the first piece, and for text.
    encoded: Option<Spool>,
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
            read_by_cells: part_read_by_cells(listing.kind, !listing.wanted.is_everything()),
            encoded: None,
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

    /// Returns the next piece in a buffer; `None` at the end.
    pub fn next_piece(&mut self, api: &Api, buffer: Vec<u8>) -> ServeResult<Option<Vec<u8>>> {
        let was_begun = self.is_begun || self.encoded.is_some();
        let piece = self.make_piece(api, buffer);
        // Long lists are read by many threads, and each thread would keep the memory that it has used.
        let is_long = was_begun || !self.is_over;
        if is_long && (!was_begun || self.is_over) {
            allocator::release_unused();
        }
        piece
    }

    /// Reads the next rows, and completes the custom resources that are older than their schemas.
    fn read_rows(&self, api: &Api) -> ServeResult<RowBatch> {
        let mut batch = page::read_rows(api, &self.request(), PIECE_BYTES)?;
        let Some(custom) = self.kind.custom else { return Ok(batch) };
        let is_newer = |revision: u64| !custom.is_older_than_schemas(revision);
        for (_, row) in batch.rows.iter_mut().filter(|(_, row)| !row.revision.is_some_and(is_newer)) {
            let mut object = self.parse::<Value>(&row.body).map(Object)?;
            custom.complete_stored(&mut object);
            row.body = object.0.to_string().into();
        }
        Ok(batch)
    }

    fn make_piece(&mut self, api: &Api, mut text: Vec<u8>) -> ServeResult<Option<Vec<u8>>> {
        if self.is_over {
            return Ok(None);
        }
        text.clear();
        if self.show.form().encoding == AnswerEncoding::Protobuf {
            return self.next_encoded_piece(api, text);
        }
        text.reserve(2 * PIECE_BYTES);
        let batch = self.read_rows(api)?;
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
        self.pack(text).map(Some)
    }

    /// Returns the next piece of a list as protobuf.
    fn next_encoded_piece(&mut self, api: &Api, mut piece: Vec<u8>) -> ServeResult<Option<Vec<u8>>> {
        if self.encoded.is_none() {
            let batch = self.read_rows(api)?;
            // A long list begins with an empty piece, because few of them are encoded at the same time.
            if !std::mem::replace(&mut self.is_begun, true) && batch.next.is_some() {
                return self.pack(piece).map(Some);
            }
            let (head, items) = self.encode_list(api, batch)?;
            self.encoded = Some(items);
            piece.extend_from_slice(&head);
        }
        if let Some(items) = &mut self.encoded {
            items.pop(&mut piece).map_err(|error| internal(&error))?;
            self.is_over = items.is_empty();
        }
        if self.is_over {
            ListEncoder::write_tail(&mut piece);
        }
        self.pack(piece).map(Some)
    }

    /// Encodes all items, of which the first were read: returns everything before them, and the items.
    fn encode_list(&mut self, api: &Api, mut batch: RowBatch) -> ServeResult<(Vec<u8>, Spool)> {
        let (api_version, kind) = self.show.item_kind();
        let none = || internal(&format!("{kind} has no protobuf encoding"));
        let mut encoder = ListEncoder::new(&api_version, kind).ok_or_else(none)?;
        let mut spool = Spool::new(api.store().home());
        let metadata = loop {
            self.encode_rows(api, &batch.rows, &mut encoder)?;
            encoder.drain_items(|items| spool.push(items)).map_err(|error| internal(&error))?;
            self.revision = Some(batch.revision);
            self.after = batch.next;
            if self.after.is_none() || self.is_cut {
                break self.metadata(api, batch.revision)?;
            }
            batch = self.read_rows(api)?;
        };
        Ok((encoder.head(&metadata).map_err(|error| internal(&error))?, spool))
    }

    /// Encodes the wanted objects of a batch, as far as there is room. Where objects are shown as stored, each is encoded once for all
    /// lists.
    fn encode_rows(
        &mut self,
        api: &Api,
        rows: &[(ListPosition, BodyAt)],
        encoder: &mut ListEncoder,
    ) -> ServeResult<()> {
        let is_shared = self.show.is_as_stored() && self.wanted.is_everything();
        let revisions = rows.iter().map(|(_, row)| row.revision.filter(|_| is_shared));
        let (known, mut new) = (api.encoded_bodies().find(revisions), Vec::new());
        for ((place, row), known) in rows.iter().zip(known) {
            let Some(item) = (match known {
                Some(encoded) => Some(ListItem::Encoded(encoded)),
                None => self.item_to_encode(&row.body)?.map(ListItem::Text),
            }) else {
                continue;
            };
            if !self.has_room() {
                break;
            }
            match item {
                ListItem::Encoded(encoded) => encoder.push_encoded(&encoded),
                ListItem::Text(text) => {
                    let encoded = encoder.push(&text).map_err(|error| unreadable(self.kind, &error))?;
                    new.extend(row.revision.filter(|_| is_shared).map(|revision| (revision, Arc::from(encoded))));
                }
            }
            self.last = Some(place.clone());
        }
        api.encoded_bodies().keep(new);
        Ok(())
    }

    /// Returns the text of an item that is encoded; `None` where it is not wanted.
    fn item_to_encode<'b>(&self, body: &'b str) -> ServeResult<Option<Cow<'b, str>>> {
        let is_whole = self.show.form().shape == AnswerShape::Whole;
        let is_copied = self.show.copies_items();
        if is_copied && self.wanted.is_everything() {
            return if is_whole { Ok(Some(body.into())) } else { Ok(Some(self.copied(body)?.into())) };
        }
        if !self.wanted.may_admit(body) {
            return Ok(None);
        }
        let object = self.parse::<Value>(body).map(Object)?;
        if !self.wanted.admits(self.kind, &object) {
            return Ok(None);
        }
        Ok(Some(match (is_copied, is_whole) {
            (true, true) => body.into(),
            (true, false) => self.copied(body)?.into(),
            (false, _) => self.show.list_item(object).to_string().into(),
        }))
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
    pub fn compress(&mut self, first: Vec<u8>) -> ServeResult<Vec<u8>> {
        self.packer = Some(GzEncoder::new(Vec::new(), Compression::fast()));
        self.pack(first)
    }

    /// Compresses a piece, if the list is compressed.
    fn pack(&mut self, mut piece: Vec<u8>) -> ServeResult<Vec<u8>> {
        let Some(packer) = &mut self.packer else { return Ok(piece) };
        let refuse = |error: std::io::Error| internal(&error);
        packer.write_all(&piece).map_err(refuse)?;
        match self.is_over {
            true => packer.try_finish().map_err(refuse)?,
            false => packer.flush().map_err(refuse)?,
        }
        piece.clear();
        piece.append(packer.get_mut());
        Ok(piece)
    }

    /// Writes the wanted objects of a batch, as far as there is room.
    fn write_rows(&mut self, rows: &[(ListPosition, BodyAt)], text: &mut Vec<u8>) -> ServeResult<()> {
        if let AnswerShape::Table(version) = self.show.form().shape.clone() {
            return self.write_table_rows(rows, &version, text);
        }
        let is_copied = self.show.copies_items();
        for (place, BodyAt { body, .. }) in rows {
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
    fn write_table_rows(
        &mut self,
        rows: &[(ListPosition, BodyAt)],
        version: &str,
        text: &mut Vec<u8>,
    ) -> ServeResult<()> {
        let (mut objects, mut shown) = (Vec::new(), Vec::new());
        for (place, BodyAt { body, .. }) in rows {
            let object = Object(self.read_for_cells(body).map_err(|error| unreadable(self.kind, &error))?);
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

    /// Reads a body for its row: as a whole where the row contains it.
    fn read_for_cells(&self, body: &str) -> serde_json::Result<Value> {
        match self.show.include() {
            IncludeObject::Object => serde_json::from_str(body),
            IncludeObject::Nothing | IncludeObject::Metadata => self.read_by_cells.read(body),
        }
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
            IncludeObject::Metadata => self.partial_metadata(version, body)?,
            IncludeObject::Object => self.show.shown(object.clone()).0.to_string(),
        })
    }

    /// Returns the text of a PartialObjectMetadata with the metadata of a stored body.
    fn partial_metadata(&self, version: &str, body: &str) -> ServeResult<String> {
        let metadata = sparse::read_field(body, "metadata").map_err(|error| unreadable(self.kind, &error))?;
        let metadata = metadata.unwrap_or("{}");
        Ok(format!(r#"{{"apiVersion":"meta.k8s.io/{version}","kind":"PartialObjectMetadata","metadata":{metadata}}}"#))
    }

    /// Returns the text of an item in its stored form, without parsing its fields.
    fn copied(&self, body: &str) -> ServeResult<String> {
        if let AnswerShape::Metadata(version) = &self.show.form().shape {
            return self.partial_metadata(version, body);
        }
        let mut fields: BTreeMap<String, &RawValue> = self.parse(body)?;
        if self.kind.custom.is_none() {
            fields.retain(|name, _| !["apiVersion", "kind"].contains(&name.as_str()));
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

    fn parse<'a, T: Deserialize<'a>>(&self, body: &'a str) -> ServeResult<T> {
        serde_json::from_str(body).map_err(|error| unreadable(self.kind, &error))
    }
}

/// An item of a list as protobuf.
enum ListItem<'b> {
    Encoded(Arc<[u8]>),
    Text(Cow<'b, str>),
}

fn internal(error: &dyn std::fmt::Display) -> Status {
    Status::new(Reason::InternalError, error.to_string())
}

/// The error for a stored body that is not JSON.
fn unreadable(kind: &Kind, error: &serde_json::Error) -> Status {
    Status::new(Reason::InternalError, format!("stored body of {}: {error}", kind.resource))
}
