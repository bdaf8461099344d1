//! Streamed bodies: a watch, a followed log. Each ends when its client disconnects.

use super::ServerState;
use super::audit_log::{AuditExchange, EndOfAnswer};
use super::connections::{ActiveRequest, Client};
use super::log_tail::LogTail;
use super::request_metrics::Counted;
use crate::apiserver::Api;
use crate::apiserver::packed_documents::{DocumentReader, PackedDocument};
use crate::object::{Reason, Status};
use crate::runtime::logs::LogReader;
use crate::serve::overview_feed::OverviewFeed;
use crate::serve::watch::{self, ActiveWatch, BOOKMARK};
use crate::serve::{AnswerBody, HttpAnswer, ListBody, ServeResult};
use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use hyper::body::{Body, Frame, Incoming};
use hyper::header::CONTENT_LENGTH;
use std::future::Future;
use std::io::{self, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::sync::watch::Receiver as News;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Maximum number of pieces of a log that are buffered for their client.
const MAX_BUFFERED_PIECES: usize = 4;

/// Number of bytes of a document that are decompressed at a time, on the thread of all connections.
const DOCUMENT_PIECE_BYTES: u64 = 32 << 10;

/// The next lines of a watch and the stream for the lines after them; `None` at the end.
type NextLines = Pin<Box<dyn Future<Output = Option<(Bytes, Box<WatchStream>)>> + Send>>;

/// The next piece of a list and the stream for the pieces after it; `None` at the end.
type NextPiece = Pin<Box<dyn Future<Output = Option<io::Result<(Bytes, ListStream)>>> + Send>>;

/// The body of an answer during its transfer.
pub enum AnswerStream {
    /// A complete body.
    Whole(Full<Bytes>),
    /// A compressed document for a client that does not accept it so, and the number of bytes that are left.
    Unpacked { document: DocumentReader, left: u64 },
    /// Pieces of a list: the next one is being read.
    List(NextPiece),
    /// Lines of a watch: the next ones are being read.
    Watch(NextLines),
    /// Pieces that a thread reads: of a log or of the overview.
    Pieces(Receiver<io::Result<Vec<u8>>>),
    /// The answer of another server after the bytes of it that were read already, with its permit.
    Proxied { read: Bytes, body: Incoming, _permit: OwnedSemaphorePermit },
    /// A body during whose transfer the request is in progress, and whose end may be recorded in the audit log.
    Accompanied { body: Box<AnswerStream>, _request: ActiveRequest, _end: EndOfAnswer },
    /// The end of a watch.
    Ended,
}

/// Makes the answer to HEAD of the answer to GET: it has the same headers and no body, which in HTTP/2 would be an error.
pub fn remove_body(mut reply: Response<AnswerStream>) -> Response<AnswerStream> {
    let length = reply.body().size_hint().exact().filter(|length| *length > 0);
    if let Some(length) = length {
        reply.headers_mut().entry(CONTENT_LENGTH).or_insert(length.into());
    }
    reply.map(|_| AnswerStream::Ended)
}

impl AnswerStream {
    /// Makes a body of a compressed document.
    pub fn unpack(document: Arc<PackedDocument>) -> AnswerStream {
        let left = document.length();
        AnswerStream::Unpacked { document: DocumentReader::new(document), left }
    }

    /// The same body, with its request in progress until its end, which is recorded if the request is audited.
    pub fn with_request(self, request: ActiveRequest, audited: Option<Arc<AuditExchange>>) -> AnswerStream {
        if audited.is_none() && matches!(self, AnswerStream::Whole(_) | AnswerStream::Ended) {
            return self;
        }
        AnswerStream::Accompanied { body: Box::new(self), _request: request, _end: EndOfAnswer(audited) }
    }
}

impl Body for AnswerStream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let stream = self.get_mut();
        let piece = match stream {
            AnswerStream::Whole(whole) => {
                return Pin::new(whole).poll_frame(context).map_err(|never| match never {});
            }
            AnswerStream::Accompanied { body, .. } => return Pin::new(body.as_mut()).poll_frame(context),
            AnswerStream::Proxied { read, .. } if !read.is_empty() => Some(std::mem::take(read)),
            AnswerStream::Proxied { body, .. } => return Pin::new(body).poll_frame(context).map_err(io::Error::other),
            AnswerStream::Unpacked { document, left } => match read_piece(document, left) {
                Ok(piece) => piece,
                Err(error) => {
                    *stream = AnswerStream::Ended;
                    return Poll::Ready(Some(Err(error)));
                }
            },
            AnswerStream::Ended => None,
            // The client does not take a log that ends with an error for complete.
            AnswerStream::Pieces(pieces) => match ready!(pieces.poll_recv(context)) {
                Some(Err(error)) => {
                    *stream = AnswerStream::Ended;
                    return Poll::Ready(Some(Err(error)));
                }
                piece => piece.and_then(Result::ok).map(Bytes::from),
            },
            AnswerStream::List(next) => match ready!(next.as_mut().poll(context)) {
                Some(Ok((piece, list))) => {
                    *stream = AnswerStream::List(Box::pin(list.next_piece()));
                    Some(piece)
                }
                // A list that cannot be completed ends with an error, so that the client does not treat it as complete.
                Some(Err(error)) => {
                    *stream = AnswerStream::Ended;
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    *stream = AnswerStream::Ended;
                    None
                }
            },
            AnswerStream::Watch(next) => match ready!(next.as_mut().poll(context)) {
                Some((lines, telling)) => {
                    *stream = telling.into_stream();
                    Some(lines)
                }
                None => {
                    *stream = AnswerStream::Ended;
                    None
                }
            },
        };
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, AnswerStream::Ended | AnswerStream::Unpacked { left: 0, .. })
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        match self {
            AnswerStream::Whole(whole) => whole.size_hint(),
            AnswerStream::Unpacked { left, .. } => hyper::body::SizeHint::with_exact(*left),
            AnswerStream::Proxied { read, body, .. } if read.is_empty() => body.size_hint(),
            AnswerStream::Accompanied { body, .. } => body.size_hint(),
            _ => hyper::body::SizeHint::default(),
        }
    }
}

/// Reads the next piece of a compressed document; `None` at its end.
fn read_piece(document: &mut DocumentReader, left: &mut u64) -> io::Result<Option<Bytes>> {
    let mut piece = vec![0; (*left).min(DOCUMENT_PIECE_BYTES) as usize];
    document.read_exact(&mut piece)?;
    *left -= piece.len() as u64;
    Ok((!piece.is_empty()).then(|| Bytes::from(piece)))
}

/// A list and the server state to read it from.
pub struct ListStream {
    list: Box<ListBody>,
    shared: Arc<ServerState>,
    client: Arc<Client>,
}

/// Makes a body of a long list: a piece is read when the client has taken the one before.
pub fn list(first: Vec<u8>, list: Box<ListBody>, (shared, client): (Arc<ServerState>, Arc<Client>)) -> AnswerStream {
    let first = shared.buffers.make_bytes(first);
    let stream = ListStream { list, shared, client };
    AnswerStream::List(Box::pin(async move { Some(Ok((first, stream))) }))
}

impl ListStream {
    async fn next_piece(self) -> Option<io::Result<(Bytes, ListStream)>> {
        let ListStream { mut list, shared, client } = self;
        if list.is_over() {
            return None;
        }
        let buffer = shared.buffers.take_buffer();
        let work = move |api: &mut Api| list.next_piece(api, buffer).map(|piece| (piece, list));
        match shared.work_on_list(&client, work).await.and_then(|read| read) {
            Ok((piece, list)) => Some(Ok((shared.buffers.make_bytes(piece?), ListStream { list, shared, client }))),
            Err(status) => Some(Err(io::Error::other(status))),
        }
    }
}

/// A watch and its notifications.
pub struct WatchStream {
    watching: ActiveWatch,
    shared: Arc<ServerState>,
    client: Arc<Client>,
    news: News<u64>,
    until: Instant,
    /// When the next bookmark is due.
    bookmark: Instant,
    /// Whether nothing follows.
    is_over: bool,
    _counted: Counted,
}

/// Makes a body of a watch.
pub fn watch(mut watching: ActiveWatch, (shared, client): (Arc<ServerState>, Arc<Client>)) -> AnswerStream {
    let news = match shared.tail() {
        Ok(tail) => tail.news(),
        Err(status) => {
            return AnswerStream::Whole(Full::new(Bytes::from(watching.failure(&status))));
        }
    };
    let now = Instant::now();
    let first = shared.buffers.make_bytes(std::mem::take(&mut watching.first));
    let until = now + watching.timeout;
    let (bookmark, counted) = (now + BOOKMARK, shared.metrics.requests.watches.count());
    let telling = WatchStream { watching, shared, client, news, until, bookmark, is_over: false, _counted: counted };
    let telling = Box::new(telling);
    // The headers are sent at once, even without events.
    AnswerStream::Watch(Box::pin(async move { Some((first, telling)) }))
}

impl WatchStream {
    fn into_stream(self: Box<Self>) -> AnswerStream {
        AnswerStream::Watch(Box::pin(self.next_lines()))
    }

    /// Returns the next lines; `None` at the end.
    async fn next_lines(mut self: Box<Self>) -> Option<(Bytes, Box<WatchStream>)> {
        while self.watching.has_initial_events() {
            let (shared, client) = (self.shared.clone(), self.client.clone());
            let buffer = shared.buffers.take_buffer();
            let encode = move |api: &mut Api| (self.watching.encode_initial_events(api, buffer), self);
            // Without a state the watch ends, and its client begins again.
            let (lines, stream) = shared.work_on_list(&client, encode).await.ok()?;
            self = stream;
            let lines = lines.unwrap_or_else(|status| self.end_with(&status));
            if !lines.is_empty() {
                return Some((shared.buffers.make_bytes(lines), self));
            }
            drop(shared.buffers.make_bytes(lines));
        }
        while !self.is_over {
            let lines = match self.next_chunk().await {
                Ok(lines) => lines,
                Err(status) => self.end_with(&status),
            };
            self.is_over |= self.watching.is_over();
            if !lines.is_empty() {
                self.bookmark = Instant::now() + BOOKMARK;
                return Some((lines.into(), self));
            }
            if self.watching.is_over() {
                return None;
            }
            let now = Instant::now();
            if self.until <= now {
                self.is_over = true;
            }
            if self.watching.bookmarks && (self.is_over || self.bookmark <= now) {
                self.bookmark = now + BOOKMARK;
                return Some((self.watching.bookmark().into(), self));
            }
            self.wait(now).await;
        }
        None
    }

    /// Ends the watch after an error; returns its last line.
    fn end_with(&mut self, status: &Status) -> Vec<u8> {
        self.is_over = true;
        self.watching.failure(status)
    }

    /// Waits for new entries, the next bookmark or the end.
    async fn wait(&mut self, now: Instant) {
        let due = if self.watching.bookmarks { self.until.min(self.bookmark) } else { self.until };
        let left = due.saturating_duration_since(now);
        // The sender lives as long as the server.
        let _ = tokio::time::timeout(left, self.news.changed()).await;
    }

    /// Returns the next lines of the watch.
    async fn next_chunk(&mut self) -> Result<Vec<u8>, Status> {
        loop {
            // Marked as seen before reading, so that an entry arriving meanwhile wakes the watch again.
            self.news.borrow_and_update();
            let tail: &Arc<LogTail> = self.shared.tail()?;
            let (count, lines) = match tail.entries_after(self.watching.revision()) {
                Some(entries) if entries.is_empty() || self.watching.conversion().is_none() => {
                    let lines = self.watching.encode_entries(entries.iter().map(|entry| &**entry))?;
                    (entries.len(), lines)
                }
                _ => self.read().await?,
            };
            if count == 0 || !lines.is_empty() || self.watching.is_over() {
                return Ok(lines);
            }
        }
    }

    /// Reads the log itself, when the watch is behind the kept entries.
    async fn read(&mut self) -> Result<(usize, Vec<u8>), Status> {
        let revision = self.watching.revision();
        let conversion = self.watching.conversion();
        let read = move |api: &mut Api| {
            let entries = watch::entries(api, revision)?;
            match conversion {
                Some(conversion) => conversion.convert(api, entries),
                None => Ok(entries),
            }
        };
        let entries = self.shared.continue_work(&self.client, read).await??;
        Ok((entries.len(), self.watching.encode_entries(&entries)?))
    }
}

/// Makes a body of a log.
pub fn log(mut logs: LogReader) -> AnswerStream {
    pieces("log", move || logs.piece())
}

/// Refuses another overview page while no stream is free. The answer asks the client to try again.
pub fn refuse_excess(answer: HttpAnswer, streams: &Semaphore) -> ServeResult<HttpAnswer> {
    match answer.body {
        AnswerBody::Overview(_) if streams.available_permits() == 0 => {
            let text = "too many pages and sessions are open: close some of them, and this one continues by itself";
            Err(Status::new(Reason::ServiceUnavailable, text))
        }
        _ => Ok(answer),
    }
}

/// Makes a body of the changes of the overview, which ends at once if another client took the last free stream.
pub fn overview(mut feed: OverviewFeed, streams: &Arc<Semaphore>) -> AnswerStream {
    let Ok(permit) = streams.clone().try_acquire_owned() else { return AnswerStream::Ended };
    pieces("overview", move || {
        let _held = &permit;
        feed.next_piece().map(Ok)
    })
}

/// Makes a body of pieces that a separate thread reads, because reading may block.
fn pieces(name: &str, mut next: impl FnMut() -> Option<io::Result<Vec<u8>>> + Send + 'static) -> AnswerStream {
    let (send, pieces) = channel(MAX_BUFFERED_PIECES);
    let failed = send.clone();
    let copy = move || {
        while let Some(piece) = next() {
            let is_unwanted = match &piece {
                Ok(bytes) if bytes.is_empty() => send.is_closed(),
                _ => send.blocking_send(piece).is_err(),
            };
            if is_unwanted {
                return;
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name(name.into()).spawn(copy) {
        // The channel is empty.
        let _ = failed.try_send(Err(error));
    }
    AnswerStream::Pieces(pieces)
}

#[cfg(test)]
mod tests {
    use super::{pieces, refuse_excess};
    use crate::apiserver::Api;
    use crate::object::Reason;
    use crate::serve::ApiRequest;
    use crate::serve::HttpAnswer;
    use crate::serve::form::AnswerForm;
    use crate::serve::overview_feed::OverviewFeed;
    use crate::store::OpenMode;
    use http_body_util::BodyExt;
    use std::io;
    use tokio::sync::Semaphore;

    #[test]
    fn log_that_cannot_be_read_on_ends_with_an_error() {
        let mut read = vec![Ok(b"one\n".to_vec()), Err(io::Error::other("gone"))].into_iter();
        let mut body = pieces("test", move || read.next());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut next = || runtime.block_on(body.frame());
        assert_eq!(next().unwrap().unwrap().into_data().unwrap(), "one\n");
        assert_eq!(next().unwrap().unwrap_err().to_string(), "gone");
        assert!(next().is_none());
    }

    #[test]
    fn page_without_a_free_stream_is_told_to_try_again() {
        let folder = tempfile::tempdir().unwrap();
        let api = Api::open(&folder.path().join("state.db"), OpenMode::Create, "test").unwrap();
        let answer = || HttpAnswer::overview(OverviewFeed::open(&api).unwrap());
        assert!(refuse_excess(answer(), &Semaphore::new(1)).is_ok());
        let Err(status) = refuse_excess(answer(), &Semaphore::new(0)) else { panic!("it is not refused") };
        assert_eq!(status.reason, Reason::ServiceUnavailable);
        let refusal = HttpAnswer::refusal(&status, &AnswerForm::negotiate_error(&ApiRequest::default()));
        assert_eq!(refusal.code, 503);
        assert!(refusal.headers.iter().any(|(name, _)| *name == "Retry-After"), "{:?}", refusal.headers);
    }
}
