//! Inputs of a write from outside of the state: the answers of webhooks, the time and random numbers.
//!
//! Knows: a write that needs a missing answer ends without effect, and is made again once the answer is there. The time and the
//! numbers of the first attempt are kept, so that the second one asks the same question. An answer belongs to one question, which
//! contains the revisions of the objects: when an object has changed in between, the write asks another question.
//! Never: makes a request; [`super::outside_client`] does, while no lock is held. Start reading at [`WriteInputs`].

use crate::object::{Status, Time, format_uid};
use crate::runtime::https::{HttpsReply, HttpsTarget};
use ring::digest::{SHA256, digest};
use serde_json::Value;
use std::collections::HashMap;
use std::time::Duration;

/// Identifies a question by its content.
pub type QuestionId = [u8; 32];

/// A question to a webhook.
#[derive(Clone, Debug)]
pub struct WebhookQuestion {
    /// The server.
    pub target: HttpsTarget,
    /// Time limit.
    pub timeout: Duration,
    /// The body, whose `request.uid` is empty.
    pub body: Value,
    /// The place of the question in the write: webhooks are asked again at another one, also when the rest is equal.
    pub place: String,
}

/// The answer to a question, or the reason why there is none.
pub type Answer = Result<HttpsReply, String>;

/// The result of a question in the middle of a write.
pub enum Asked {
    /// The answer, and the uid of the question.
    Answered(Answer, String),
    /// The write has to end; it is made again once the answer is there.
    Deferred,
    /// No webhook can be asked, as in a preview.
    Unavailable,
}

/// Maximum number of bytes of the answers that one write keeps.
const MAX_ANSWER_BYTES: usize = 256 << 20;
/// Maximum number of annotations of one request.
const MAX_ANNOTATIONS: usize = 256;

/// An annotation of a request's event in the audit log.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditAnnotation {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Whether only audit events with the body of the request contain it.
    pub is_detail: bool,
}

impl AuditAnnotation {
    /// Makes an annotation for every event.
    pub fn new(key: impl Into<String>, value: impl Into<String>) -> AuditAnnotation {
        AuditAnnotation { key: key.into(), value: value.into(), is_detail: false }
    }
}

/// The inputs of one write, kept between its attempts, and the audit annotations of its last attempt.
#[derive(Debug, Default)]
pub struct WriteInputs {
    now: Option<Time>,
    /// The random numbers that each part of the write has taken.
    numbers: Vec<Vec<u64>>,
    /// The current part, and the numbers that it has taken in this attempt.
    taken: (usize, usize),
    answers: HashMap<QuestionId, Answer>,
    /// Bytes of the bodies of all answers.
    answer_bytes: usize,
    missing: Vec<(QuestionId, WebhookQuestion)>,
    annotations: Vec<AuditAnnotation>,
}

impl WriteInputs {
    /// Begins another attempt.
    pub fn begin(&mut self) {
        self.begin_part(0);
        self.missing.clear();
        self.annotations.clear();
    }

    /// Adds an annotation; the first one with a key stays.
    pub fn annotate(&mut self, annotation: AuditAnnotation) {
        let is_repeated = self.annotations.iter().any(|earlier| earlier.key == annotation.key);
        if !is_repeated && self.annotations.len() < MAX_ANNOTATIONS {
            self.annotations.push(annotation);
        }
    }

    /// Takes the annotations of the last attempt.
    pub fn take_annotations(&mut self) -> Vec<AuditAnnotation> {
        std::mem::take(&mut self.annotations)
    }

    /// Begins a part of the write, whose numbers do not depend on how far the parts before it get.
    pub fn begin_part(&mut self, part: usize) {
        self.taken = (part, 0);
    }

    /// Whether an attempt has asked something.
    pub fn has_asked(&self) -> bool {
        self.now.is_some()
    }

    /// Returns the time of the first attempt that asked something; `now` when none has.
    pub fn time(&self, now: Time) -> Time {
        self.now.unwrap_or(now)
    }

    /// Returns the next random number: that of the first attempt, or a new one.
    pub fn number(&mut self, random: impl FnOnce() -> u64) -> u64 {
        let (part, taken) = self.taken;
        self.numbers.resize(self.numbers.len().max(part + 1), Vec::new());
        let numbers = &mut self.numbers[part];
        if taken == numbers.len() {
            numbers.push(random());
        }
        self.taken.1 += 1;
        numbers[taken]
    }

    /// Returns the answer to a question, or records that it is missing.
    pub fn ask(&mut self, question: WebhookQuestion, now: Time) -> Asked {
        let id = question.id();
        match self.answers.get(&id) {
            Some(answer) => Asked::Answered(answer.clone(), uid_of(&id)),
            None => {
                self.now.get_or_insert(now);
                if !self.missing.iter().any(|(missing, _)| *missing == id) {
                    self.missing.push((id, question));
                }
                Asked::Deferred
            }
        }
    }

    /// Takes the requests whose answers the last attempt lacked.
    pub fn take_missing(&mut self) -> Vec<(QuestionId, WebhookQuestion)> {
        std::mem::take(&mut self.missing)
    }

    /// Counts the answers that the last attempt lacked.
    pub fn missing_count(&self) -> usize {
        self.missing.len()
    }

    /// Whether the last attempt ended because of a missing answer.
    pub fn is_missing(&self) -> bool {
        !self.missing.is_empty()
    }

    /// Keeps an answer for the next attempt. When all answers are too large together, the earlier ones are forgotten and asked for
    /// again.
    pub fn put(&mut self, id: QuestionId, answer: Answer) {
        let bytes = answer.as_ref().map_or(0, |reply| reply.body.len());
        if self.answer_bytes + bytes > MAX_ANSWER_BYTES {
            self.answers.clear();
            self.answer_bytes = 0;
        }
        self.answer_bytes += bytes;
        self.answers.insert(id, answer);
    }
}

impl WebhookQuestion {
    /// Computes its identity.
    pub fn id(&self) -> QuestionId {
        // The address of the server may change between the attempts.
        let HttpsTarget { host, port, path, .. } = &self.target;
        let text = format!("{host}:{port}{path}\n{}\n{}", self.place, self.body);
        let mut id = QuestionId::default();
        id.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
        id
    }

    /// Returns the body as it is sent.
    pub fn into_body(mut self, id: &QuestionId) -> Vec<u8> {
        if let Some(request) = self.body.get_mut("request") {
            request["uid"] = uid_of(id).into();
        }
        self.body.to_string().into_bytes()
    }
}

/// Returns the uid of a question, which its answer repeats.
pub fn uid_of(id: &QuestionId) -> String {
    let word = |from: usize| u64::from_be_bytes(std::array::from_fn(|at| id[from + at]));
    format_uid(word(0), word(8))
}

/// Returns the error of a write that ends because an answer is missing. It is never shown: the write is made again.
pub fn missing_answer_error() -> Status {
    Status::bug("the answer of a webhook is not there yet")
}
