//! Number and shape of the pods that a Job needs now.

use super::backoff::{FAILURE_COUNT, IGNORED_COUNT};
use super::{INDEX, JobState, LOOP, TRACKING, index_of, is_terminating, is_tracked, release};
use crate::controllers::pods::{self, BURST, PodCreationBudget, from_template};
use crate::object::{Object, Time};
use crate::world::{EventType, Phase, Row, WriteVerb, free_name};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl<'w> JobState<'w> {
    /// Creates missing pods, and deletes excess ones.
    pub(super) fn run(&mut self) {
        let active: Vec<&Arc<Row>> = self.active().collect();
        let wanted = if self.spec.suspended { 0 } else { self.desired_active(active.len() as i64) };
        let excess = self.excess(&active, wanted);
        for pod in &excess {
            self.delete_uncounted(pod);
        }
        let waiting_for = if self.spec.replace_only_failed { self.terminating() as i64 } else { 0 };
        let missing = wanted - waiting_for - (active.len() - excess.len()) as i64;
        let creates = missing > 0 && !self.spec.suspended;
        // Each new failure is seen here, also when no pod is missing.
        let (failures, last) = match creates || !self.uncounted.failed.is_empty() {
            true => self.failures_since_success(),
            false => (0, None),
        };
        if creates && !self.must_back_off(failures, self.end_of_pause(failures, last)) {
            self.create_pods(usize::try_from(missing).unwrap_or(0).min(BURST));
        }
        let (succeeded, all) = (self.all_succeeded(), self.spec.completions);
        let goal = all.map_or("one".to_owned(), |all| all.to_string());
        self.plan.wait(match self.spec.suspended {
            true => "the Job is suspended".to_owned(),
            false => format!("{succeeded} of {goal} pods have succeeded, {} are active", active.len()),
        });
    }

    fn desired_active(&self, active: i64) -> i64 {
        match self.spec.completions {
            // A work queue: once a pod has succeeded, the others finish and no new ones are created.
            None if self.all_succeeded() > 0 => active,
            None => self.spec.parallelism,
            Some(completions) => {
                let left = completions - self.all_succeeded() - self.failed_indexes.len();
                left.min(self.spec.parallelism).max(0)
            }
        }
    }

    /// Returns active pods to delete: those with a duplicate, finished or unwanted index first, then pending ones, then
    /// any.
    fn excess(&self, active: &[&'w Arc<Row>], wanted: i64) -> Vec<&'w Arc<Row>> {
        let mut seen = BTreeSet::new();
        let surplus = |pod: &Row| match index_of(pod) {
            Some(index) if self.spec.indexed => {
                !seen.insert(index)
                    || Some(index) >= self.spec.completions
                    || self.completed.has(index)
                    || self.failed_indexes.has(index)
            }
            _ => self.spec.indexed,
        };
        let mut oldest_first = active.to_vec();
        oldest_first.sort_by(|a, b| a.created.cmp(&b.created).then_with(|| a.key.cmp(&b.key)));
        let (mut excess, mut others): (Vec<_>, Vec<_>) = oldest_first.into_iter().partition({
            let mut surplus = surplus;
            move |pod| surplus(pod)
        });
        let more = (active.len() as i64 - wanted).max(0) as usize;
        others.sort_by_key(|pod| {
            (
                pod.pod().map(|pod| (pod.node.is_some(), pod.phase == Phase::Running, pod.ready)),
                std::cmp::Reverse(pod.created),
            )
        });
        excess.extend(others.into_iter().take(more.saturating_sub(excess.len())));
        excess.truncate(BURST);
        excess
    }

    /// Deletes a surplus pod. Without the finalizer it does not count as failed.
    fn delete_uncounted(&mut self, pod: &Row) {
        let why = "more pods are active than desired";
        if is_tracked(pod) {
            release(pod, why, &mut self.plan);
        }
        self.delete(pod, why);
    }

    pub(super) fn delete(&mut self, pod: &Row, why: &str) {
        self.event(EventType::Normal, "SuccessfulDelete", &format!("Deleted pod: {}", pod.key.name));
        self.plan.delete(pod, why);
    }

    fn create_pods(&mut self, missing: usize) {
        let pods = self.pods.iter().copied();
        let allowance = PodCreationBudget::new(self.world, LOOP.name, self.owner.row, pods, missing, &mut self.plan);
        allowance.report_refusal(self.owner.row, &mut self.plan);
        let mut indexes = if self.spec.indexed { self.free_indexes(missing) } else { vec![None; missing] };
        indexes.truncate(allowance.limit(pods::creation_batch(self.pods.len())));
        for (slot, index) in indexes.into_iter().enumerate() {
            let pod = self.pod(slot, index);
            self.event(EventType::Normal, "SuccessfulCreate", &format!("Created pod: {}", pod.name()));
            self.plan.write(WriteVerb::Create(pod), "fewer pods are active than desired");
        }
    }

    /// The pods of every index. Only these indexes can have failures, and a Job can have very many indexes.
    pub(super) fn pods_by_index(&self) -> BTreeMap<i64, Vec<&'w Arc<Row>>> {
        let mut all: BTreeMap<i64, Vec<&Arc<Row>>> = BTreeMap::new();
        for pod in &self.pods {
            let index = index_of(pod).filter(|index| (0..self.spec.completions.unwrap_or(0)).contains(index));
            index.into_iter().for_each(|index| all.entry(index).or_default().push(pod));
        }
        all
    }

    /// Those of the lowest missing indexes that may have a pod now: they have no active one, are neither completed nor
    /// failed, and no failure requires a pause. Indexes in their pause block those beyond the parallelism.
    fn free_indexes(&mut self, missing: usize) -> Vec<Option<i64>> {
        let pods = self.pods_by_index();
        let waits = |pod: &&Arc<Row>| pod.is_active_pod() || (self.spec.replace_only_failed && is_terminating(pod));
        let used: BTreeSet<i64> =
            pods.iter().filter(|(_, pods)| pods.iter().any(waits)).map(|(index, _)| *index).collect();
        let (all, mut free, mut index) = (self.spec.completions.unwrap_or(0), Vec::new(), 0);
        let (mut waiting, mut until) = (0, None);
        while index < all && free.len() + waiting < missing {
            let done = self.completed.end_of_run(index).or_else(|| self.failed_indexes.end_of_run(index));
            if done.is_none() && !used.contains(&index) {
                match pods.get(&index).and_then(|pods| self.end_of_index_pause(pods)) {
                    None => free.push(Some(index)),
                    Some(end) => {
                        waiting += 1;
                        until = until.map_or(Some(end), |until: Time| Some(until.min(end)));
                    }
                }
            }
            index = done.unwrap_or(index) + 1;
        }
        self.must_back_off(u32::try_from(waiting).unwrap_or(u32::MAX), until);
        free
    }

    /// A pod of this Job, with its index if it has one.
    fn pod(&self, slot: usize, index: Option<i64>) -> Object {
        let template = self.object.value_at(&["spec", "template"]).unwrap_or(&Value::Null);
        let mut pod = from_template(&self.owner, template);
        let job = &*self.owner.row.key.name;
        pod.add_finalizer(TRACKING);
        let mut base = format!("{job}-");
        if let Some(index) = index {
            base = format!("{job}-{index}-");
            set_index(&mut pod, job, index);
            if self.spec.backoff_limit_per_index.is_some() {
                let (failures, ignored) = self.index_failures(index);
                pod.set(&["metadata", "annotations", FAILURE_COUNT], failures.to_string());
                if ignored > 0 {
                    pod.set(&["metadata", "annotations", IGNORED_COUNT], ignored.to_string());
                }
            }
        }
        pod.set(&["metadata", "generateName"], base.as_str());
        let name = free_name(self.world, "pods", self.owner.row, &base, slot);
        pod.set(&["metadata", "name"], name);
        pod
    }
}

fn set_index(pod: &mut Object, job: &str, index: i64) {
    pod.set(&["metadata", "annotations", INDEX], index.to_string());
    pod.set(&["metadata", "labels", INDEX], index.to_string());
    pod.set(&["spec", "hostname"], format!("{job}-{index}"));
    let env = json!({
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": format!("metadata.labels['{INDEX}']") } },
    });
    for list in ["initContainers", "containers"] {
        let mut containers = pod.items(&["spec", list]).to_vec();
        for container in containers.iter_mut().filter(|container| container.is_object()) {
            let mut variables = container["env"].as_array().cloned().unwrap_or_default();
            if variables.iter().all(|known| known["name"] != env["name"]) {
                variables.push(env.clone());
                container["env"] = variables.into();
            }
        }
        if !containers.is_empty() {
            pod.set(&["spec", list], containers);
        }
    }
}
