//! Plans that wait for answers of webhooks.
//!
//! A plan whose write needs an answer is undone, and its key is set aside. Once the answers are there, the loop plans again with the time
//! and the random numbers of the first attempt. If no relevant object has changed, it plans the same writes, and the answers apply to
//! them. Ticks continue meanwhile. Never: waits. Start reading at [`WaitingPlans::begin`].

use super::queue::Item;
use crate::apiserver::outside::{Answer, QuestionId, WebhookQuestion, WriteInputs};
use crate::apiserver::outside_client::OutsideClient;
use crate::object::Time;
use hashbrown::HashMap;
use jiff::SignedDuration;

/// Maximum number of plans that wait.
const MAX_PLANS: usize = 4096;
/// Time after which a plan is made again with the current time, although its first attempt still waits for answers.
const REPLAN_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// Sends a request to a webhook for a plan. [`WaitingPlans::put`] receives the answer.
type Asker = Box<dyn Fn(Item, QuestionId, WebhookQuestion) + Send>;

/// The plans that wait.
#[derive(Default)]
pub struct WaitingPlans {
    asker: Option<Asker>,
    plans: HashMap<Item, WaitingPlan>,
}

struct WaitingPlan {
    inputs: WriteInputs,
    /// The World's revision at the first attempt, from which names follow.
    revision: u64,
    /// Number of missing answers.
    open: usize,
}

/// The inputs with which a key is planned.
pub enum PlanInputs {
    /// The plan waits for answers, so the key is not planned now.
    Waits,
    /// The inputs of the attempt before, or new ones, and the World's revision at the first attempt.
    Inputs(WriteInputs, u64),
    /// Webhooks cannot be called: this is a simulation.
    Unavailable,
}

impl WaitingPlans {
    /// Asks webhooks from here on; `answer` gets each answer, on another thread.
    pub fn ask_webhooks(&mut self, answer: impl Fn(Item, QuestionId, Answer) + Clone + Send + 'static) {
        let client = OutsideClient::default();
        self.asker = Some(Box::new(move |item, id, question| {
            let answer = answer.clone();
            client.start(id, question, Box::new(move |answered| answer(item, id, answered)));
        }));
    }

    /// Begins to plan a key.
    pub fn begin(&mut self, item: &Item, revision: u64, now: Time) -> PlanInputs {
        if self.asker.is_none() {
            return PlanInputs::Unavailable;
        }
        if self.plans.get(item).is_some_and(|plan| plan.open > 0) {
            return PlanInputs::Waits;
        }
        let known = self.plans.remove(item).filter(|plan| now.duration_since(plan.inputs.time(now)) <= REPLAN_AFTER);
        let (mut inputs, first) =
            known.map_or_else(|| (WriteInputs::default(), revision), |plan| (plan.inputs, plan.revision));
        inputs.begin();
        PlanInputs::Inputs(inputs, first)
    }

    /// Sets a key aside whose writes need answers. Returns false when too many wait.
    pub fn set_aside(&mut self, item: &Item, mut inputs: WriteInputs, revision: u64) -> bool {
        let Some(asker) = self.asker.as_ref().filter(|_| self.plans.len() < MAX_PLANS) else { return false };
        let missing = inputs.take_missing();
        let open = missing.len();
        for (id, question) in missing {
            asker(item.clone(), id, question);
        }
        self.plans.insert(item.clone(), WaitingPlan { inputs, revision, open });
        true
    }

    /// Takes an answer. Returns whether it was the last that the key waits for.
    pub fn put(&mut self, item: &Item, id: QuestionId, answer: Answer) -> bool {
        let Some(plan) = self.plans.get_mut(item) else { return false };
        plan.inputs.put(id, answer);
        plan.open = plan.open.saturating_sub(1);
        plan.open == 0
    }
}
