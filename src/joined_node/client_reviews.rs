//! Authentication and authorization of the clients of the kubelet's server, by the cluster's API server (TokenReview and
//! SubjectAccessReview).
//!
//! Knows: an answer is cached, as in the kubelet (`authentication.webhook.cacheTTL`, `authorization.webhook`). Never: admits a client
//! without a cached answer while the server does not answer. Start reading at [`ClientReviews`].

use super::node_context::NodeContext;
use crate::apiserver::ApiResult;
use crate::apiserver::kubelet_clients::KubeletClients;
use crate::apiserver::remote::refusal;
use crate::apiserver::user::User;
use crate::client::ClientRequest;
use crate::object::{IgnorePoison, Reason, Status};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time limit of a question.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which a token's user is remembered, and a right, and a right that a user does not have.
const TOKEN_TIME: Duration = Duration::from_secs(120);
const GRANT_TIME: Duration = Duration::from_secs(300);
const REFUSAL_TIME: Duration = Duration::from_secs(30);
/// Maximum number of answers of a kind that are remembered.
const MAX_ANSWERS: usize = 1024;

/// The answers of the API server.
pub struct ClientReviews {
    context: Arc<NodeContext>,
    /// Users by the checksum of their token.
    users: Answers<[u8; 32], Arc<User>>,
    /// Rights by user, verb and part of the Node.
    rights: Answers<String, bool>,
}

impl ClientReviews {
    /// Asks the server of this node.
    pub fn new(context: Arc<NodeContext>) -> ClientReviews {
        ClientReviews { context, users: Answers::default(), rights: Answers::default() }
    }

    /// Sends a review, and returns its status.
    fn review(&self, path: &str, kind: &str, spec: &Value) -> ApiResult<Value> {
        let (group, _) = path.trim_start_matches("/apis/").rsplit_once('/').unwrap_or_default();
        let review = json!({"apiVersion": group, "kind": kind, "spec": spec});
        let client = self.context.client();
        let reply = client.send(ClientRequest::post(path, &review).within(TIMEOUT)).and_then(|reply| reply.json());
        reply.map(|mut review| review["status"].take()).map_err(|error| refusal(&client, error))
    }
}

impl KubeletClients for ClientReviews {
    fn identify(&self, token: &str) -> ApiResult<Arc<User>> {
        let mut sum = [0; 32];
        sum.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        if let Some(user) = self.users.find(&sum) {
            return Ok(user);
        }
        let status =
            self.review("/apis/authentication.k8s.io/v1/tokenreviews", "TokenReview", &json!({"token": token}))?;
        if status["authenticated"] != true {
            return Err(Status::new(Reason::Unauthorized, "Unauthorized"));
        }
        let user = Arc::new(read_user(&status["user"]));
        self.users.remember(sum, user.clone(), TOKEN_TIME);
        Ok(user)
    }

    fn may_use(&self, user: &User, verb: &str, part: &str) -> ApiResult<bool> {
        let spec = json!({
            "user": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra,
            "resourceAttributes": {
                "verb": verb, "version": "v1", "resource": "nodes", "subresource": part, "name": self.context.node,
            },
        });
        let question = spec.to_string();
        if let Some(answer) = self.rights.find(&question) {
            return Ok(answer);
        }
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = self.review(path, "SubjectAccessReview", &spec)?["allowed"] == true;
        self.rights.remember(question, answer, if answer { GRANT_TIME } else { REFUSAL_TIME });
        Ok(answer)
    }
}

/// Reads the user of a review.
fn read_user(info: &Value) -> User {
    let text = |field: &str| info[field].as_str().unwrap_or_default().to_owned();
    let texts = |list: &Value| serde_json::from_value(list.clone()).unwrap_or_default();
    let extra = info["extra"].as_object().into_iter().flatten();
    User {
        name: text("username"),
        uid: text("uid"),
        groups: texts(&info["groups"]),
        extra: extra.map(|(name, values)| (name.clone(), texts(values))).collect(),
    }
}

/// Answers that are remembered until a time.
struct Answers<Q, A>(Mutex<HashMap<Q, (A, Instant)>>);

impl<Q, A> Default for Answers<Q, A> {
    fn default() -> Answers<Q, A> {
        Answers(Mutex::default())
    }
}

impl<Q: Eq + Hash, A: Clone> Answers<Q, A> {
    fn find(&self, question: &Q) -> Option<A> {
        let known = self.0.lock().ignore_poison();
        known.get(question).filter(|(_, until)| *until > Instant::now()).map(|(answer, _)| answer.clone())
    }

    fn remember(&self, question: Q, answer: A, time: Duration) {
        let mut known = self.0.lock().ignore_poison();
        let now = Instant::now();
        known.retain(|_, (_, until)| *until > now);
        if known.len() >= MAX_ANSWERS {
            known.clear();
        }
        known.insert(question, (answer, now + time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_end_and_are_bounded() {
        let answers = Answers::default();
        answers.remember(0, 'a', Duration::from_secs(60));
        answers.remember(1, 'b', Duration::ZERO);
        assert_eq!((answers.find(&0), answers.find(&1), answers.find(&2)), (Some('a'), None, None));
        for question in 2..10 * MAX_ANSWERS {
            answers.remember(question, 'c', Duration::from_secs(60));
        }
        assert!(answers.0.lock().unwrap().len() <= MAX_ANSWERS);
    }

    #[test]
    fn user_of_a_review_has_its_groups_and_facts() {
        let user = read_user(&json!({"username": "a", "uid": "1", "groups": ["g"], "extra": {"scope": ["x"]}}));
        let extra = [("scope".to_owned(), vec!["x".to_owned()])].into();
        assert_eq!(user, User { name: "a".into(), uid: "1".into(), groups: vec!["g".into()], extra });
    }
}
