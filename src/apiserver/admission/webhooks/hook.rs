//! One webhook of a configuration.

use crate::apiserver::ApiResult;
use crate::apiserver::admission::matching::MatchCriteria;
use crate::apiserver::hook_client::HookClient;
use crate::kinds::custom::Uncompiled;
use crate::kinds::shared::policy_programs::{Expression, PolicyPrograms};
use crate::object::{Cause, IgnorePoison, Object, Reason, Status, Str};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

/// Number of configurations that are kept as they were read; all are forgotten when there are more.
const MAX_KEPT: usize = 256;

/// A webhook.
#[derive(Clone, Debug)]
pub struct Hook {
    /// The uid of the configuration, and the position of the webhook in it.
    pub id: String,
    /// The name of its configuration.
    pub configuration: String,
    /// Its name.
    pub name: String,
    /// The requests for which the webhook is called.
    pub criteria: MatchCriteria,
    /// The conditions as they are written.
    fields: Value,
    conditions: OnceLock<Vec<(String, Expression)>>,
    /// Its server.
    pub client: HookClient,
    /// Seconds until a call times out.
    pub timeout: u64,
    /// Whether a request passes when it cannot be asked.
    pub ignores_failure: bool,
    /// Whether it may be asked in a dry run.
    pub is_silent: bool,
    /// Whether it is asked again when others have changed the object after it.
    pub is_reinvoked: bool,
    /// The version of AdmissionReview that the webhook understands: `admission.k8s.io/v1`.
    pub review_version: &'static str,
}

/// The webhooks of configurations by uid and revision: a configuration at one revision always has the same.
static KEPT: LazyLock<Mutex<KeptHooks>> = LazyLock::new(Mutex::default);

type KeptHooks = HashMap<(Str, u64), Arc<Vec<Hook>>>;

/// The webhooks of configurations, read once per revision.
pub struct HookCache;

impl HookCache {
    /// Returns the webhooks of a configuration.
    pub fn get(uid: &str, revision: u64, read: &dyn Fn() -> ApiResult<Object>) -> ApiResult<Arc<Vec<Hook>>> {
        let key = (Str::from(uid), revision);
        let kept = || KEPT.lock().ignore_poison();
        if let Some(known) = kept().get(&key) {
            return Ok(known.clone());
        }
        let hooks = Arc::new(Hook::read_all(&read()?));
        let mut kept = kept();
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(key, hooks.clone());
        Ok(hooks)
    }
}

impl Hook {
    /// Reads the webhooks of a configuration, in their order.
    pub fn read_all(configuration: &Object) -> Vec<Hook> {
        let read = |(place, hook): (usize, &Value)| Hook::read(configuration, place, hook);
        configuration.items(&["webhooks"]).iter().enumerate().map(read).collect()
    }

    fn read(configuration: &Object, place: usize, hook: &Value) -> Hook {
        let versions = hook["admissionReviewVersions"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let known = |version| match version {
            "v1" => Some("admission.k8s.io/v1"),
            "v1beta1" => Some("admission.k8s.io/v1beta1"),
            _ => None,
        };
        Hook {
            id: format!("{}/{place}", configuration.uid()),
            configuration: configuration.name().to_owned(),
            name: hook["name"].as_str().unwrap_or_default().to_owned(),
            criteria: MatchCriteria::from_webhook(hook),
            fields: json!({"matchConditions": hook["matchConditions"]}),
            conditions: OnceLock::new(),
            client: HookClient::read(&hook["clientConfig"]),
            timeout: hook["timeoutSeconds"].as_u64().unwrap_or(10).clamp(1, 30),
            ignores_failure: hook["failurePolicy"] == "Ignore",
            is_silent: hook["sideEffects"] == "None" || hook["sideEffects"] == "NoneOnDryRun",
            is_reinvoked: hook["reinvocationPolicy"] == "IfNeeded",
            review_version: versions.filter_map(known).next().unwrap_or("admission.k8s.io/v1"),
        }
    }

    /// Further conditions by name; they are compiled once for each revision of the configuration.
    pub fn conditions(&self) -> &[(String, Expression)] {
        self.conditions.get_or_init(|| PolicyPrograms::compile(&self.fields, false).conditions)
    }

    /// The conditions, unless this process has compiled them.
    pub fn find_uncompiled(&self) -> Option<Uncompiled> {
        let is_known = self.conditions.get().is_some() || PolicyPrograms::are_compiled(&self.fields, false);
        (!is_known).then(|| Uncompiled::Policy(Box::new((self.fields.clone(), false))))
    }

    /// The text for a call that failed.
    pub fn call_failure(&self, url: &str, why: &str) -> String {
        format!("failed calling webhook {:?}: failed to call webhook: Post {url:?}: {why}", self.name)
    }

    /// The text for an answer that cannot be used.
    pub fn invalid_answer(&self, why: &str) -> String {
        format!("failed calling webhook {:?}: {why}", self.name)
    }

    /// Refuses a request whose webhook failed, unless its policy is to ignore that.
    pub fn tolerate(&self, failure: &str) -> ApiResult<()> {
        if self.ignores_failure { Ok(()) } else { Err(internal(failure)) }
    }
}

/// An internal error with its cause, as Kubernetes words it.
pub fn internal(why: &str) -> Status {
    let cause = Cause { reason: String::new(), field: String::new(), message: why.to_owned() };
    let status = Status::new(Reason::InternalError, format!("Internal error occurred: {why}"));
    Status { causes: vec![cause], ..status }
}
