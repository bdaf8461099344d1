//! Makes the requests that writes wait for, while no lock is held.
//!
//! Never: interprets an answer; admission does. Start reading at [`OutsideClient::answer_missing`].

use super::outside::{Answer, QuestionId, WebhookQuestion, WriteInputs, uid_of};
use crate::runtime::https::{HttpsClient, HttpsPost};
use std::sync::mpsc::channel;

/// Maximum number of bytes of an answer.
const MAX_BYTES: usize = 3 << 20;

/// Asks webhooks.
#[derive(Default)]
pub struct OutsideClient {
    https: HttpsClient,
}

impl OutsideClient {
    /// Fetches all answers that the last attempt of a write lacked.
    pub fn answer_missing(&self, inputs: &mut WriteInputs) {
        let (sender, answers) = channel();
        for (id, question) in inputs.take_missing() {
            let sender = sender.clone();
            // The receiver lives until all senders are gone.
            self.start(id, question, Box::new(move |answer| drop(sender.send((id, answer)))));
        }
        drop(sender);
        answers.into_iter().for_each(|(id, answer)| inputs.put(id, answer));
    }

    /// Asks a question and waits. Returns the answer and the uid of the question.
    pub fn ask(&self, question: WebhookQuestion) -> (Answer, String) {
        let (id, (sender, answers)) = (question.id(), channel());
        self.start(id, question, Box::new(move |answer| drop(sender.send(answer))));
        let answer = answers.recv().unwrap_or_else(|_| Err("the client has ended".to_owned()));
        (answer, uid_of(&id))
    }

    /// Asks a question; `done` is called from another thread.
    pub fn start(&self, id: QuestionId, question: WebhookQuestion, done: Box<dyn FnOnce(Answer) + Send>) {
        let (target, timeout) = (question.target.clone(), question.timeout);
        let post = HttpsPost { target, body: question.into_body(&id), timeout, most_bytes: MAX_BYTES };
        self.https.post(post, done);
    }
}
