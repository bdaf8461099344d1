//! CronJobs start a Job at every scheduled time, and keep a few finished ones.

use super::controller_ref::Owner;
use super::{pods, status};
use crate::kinds::cron_job::schedule::{Schedule, zone};
use crate::object::{Key, Object, Time, time};
use crate::world::{EventType, Loop, Plan, Row, World, WriteVerb};
use jiff::SignedDuration;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

const ROOT: &str = "cronjobs.batch";
const JOBS: &str = "jobs.batch";
/// Annotation with the scheduled time of a Job.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// Number of missed times above which an event reports a likely fault, such as clock skew.
const MANY: usize = 100;

/// The loop of CronJobs.
pub const LOOP: Loop = Loop { name: "cronjob-controller", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    Loop::owner_or_self(ROOT, "CronJob", row)
        .into_iter()
        .filter(|_| matches!(row.key.resource.0, ROOT | JOBS))
        .filter(|key| world.get(key).is_some())
        .collect()
}

/// A Job of a CronJob.
struct Started<'w> {
    row: &'w Arc<Row>,
    object: Object,
}

impl Started<'_> {
    /// `Complete` or `Failed`.
    fn end(&self) -> Option<&'static str> {
        ["Complete", "Failed"].into_iter().find(|kind| self.object.has_condition(kind))
    }

    fn start(&self) -> Option<Time> {
        self.object.time(&["status", "startTime"]).or(self.row.created)
    }

    /// Whether the CronJob's status lists the Job as active.
    fn is_listed(&self, cron_job: &Object) -> bool {
        cron_job.items(&["status", "active"]).iter().any(|active| active["uid"] == *self.row.uid)
    }

    /// Whether the Job was started for a scheduled time. A manually created Job with this owner counts for the history
    /// limits once it has ended, and is ignored while it runs (`syncCronJob`: `UnexpectedJob`).
    fn is_of_schedule(&self, cron_job: &Row) -> bool {
        let scheduled = self.object.annotation(SCHEDULED).and_then(|text| text.parse::<Time>().ok());
        scheduled.is_some_and(|at| *self.row.key.name == *name(cron_job, at))
    }
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key).filter(|row| !row.is_deleting()) else { return plan };
    let object = row.object();
    let owner = Owner { row, api_version: "batch/v1", kind: "CronJob" };
    let jobs: Vec<Started> =
        world.controlled(JOBS, &row.uid).map(|row| Started { row, object: row.object() }).collect();
    let mut new = status::status_map(&object);
    let trimmed = trim(row, &object, &jobs, &mut plan);
    report_finished(row, &object, &jobs, &trimmed, &mut plan);
    note_last_success(&object, &jobs, &mut new);
    let is_own = |job: &Started| job.is_listed(&object) || job.is_of_schedule(row);
    let (mut own, foreign): (Vec<Started>, Vec<Started>) = jobs.into_iter().partition(is_own);
    for job in foreign.iter().filter(|job| job.end().is_none()) {
        let message = format!("Saw a job that the controller did not create or forgot: {}", job.row.key.name);
        plan.event(row, EventType::Warning, "UnexpectedJob", message);
    }
    if object.value_at(&["spec", "suspend"]) == Some(&Value::Bool(true)) {
        plan.wait("the CronJob is suspended");
    } else if let Some(due) = due(world, row, &object, &mut plan)
        && start(world, &owner, &object, &mut own, due, &mut plan)
    {
        new.insert("lastScheduleTime".into(), time::rfc3339(due).into());
    }
    update_active(&object, &own, &mut new);
    status::write(&mut plan, object, new.into(), "its Jobs changed");
    plan
}

/// Reports each formerly active Job that has finished or no longer exists, except those that `trim` deletes.
fn report_finished(row: &Row, object: &Object, jobs: &[Started], trimmed: &BTreeSet<&str>, plan: &mut Plan) {
    for active in object.items(&["status", "active"]) {
        let name = active["name"].as_str().unwrap_or_default();
        match jobs.iter().find(|job| active["uid"] == *job.row.uid) {
            None => plan.event(row, EventType::Normal, "MissingJob", format!("Active job went missing: {name}")),
            Some(job) => {
                if let Some(end) = job.end().filter(|_| !trimmed.contains(&*job.row.uid)) {
                    let message = format!("Saw completed job: {name}, condition: {end}");
                    plan.event(row, EventType::Normal, "SawCompletedJob", message);
                }
            }
        }
    }
}

fn note_last_success(object: &Object, jobs: &[Started], new: &mut serde_json::Map<String, Value>) {
    let last = jobs.iter().filter_map(|job| job.object.time(&["status", "completionTime"])).max();
    if last > object.time(&["status", "lastSuccessfulTime"]) {
        new.insert("lastSuccessfulTime".into(), json!(last.map(time::rfc3339)));
    }
}

/// Updates `status.active`. Known entries stay unchanged; a Job that was removed and still terminates is not added
/// again.
fn update_active(object: &Object, jobs: &[Started], new: &mut serde_json::Map<String, Value>) {
    let known = object.items(&["status", "active"]);
    let reference = |job: &Started| {
        let old = known.iter().find(|active| active["uid"] == *job.row.uid).cloned();
        old.unwrap_or_else(|| {
            json!({
                "apiVersion": "batch/v1", "kind": "Job", "name": *job.row.key.name, "namespace": *job.row.key.namespace,
                "uid": *job.row.uid, "resourceVersion": job.row.revision.to_string(),
            })
        })
    };
    let runs = |job: &&Started| job.end().is_none() && (!job.row.is_deleting() || job.is_listed(object));
    let active: Vec<Value> = jobs.iter().filter(runs).map(reference).collect();
    if active.is_empty() {
        new.remove("active");
    } else {
        new.insert("active".into(), active.into());
    }
}

/// Deletes finished Jobs beyond the limits, those that started first. Returns their uids.
fn trim<'w>(row: &Row, object: &Object, jobs: &[Started<'w>], plan: &mut Plan) -> BTreeSet<&'w str> {
    let mut trimmed = BTreeSet::new();
    for (end, field) in [("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")] {
        let Some(limit) = object.int(&["spec", field]) else { continue };
        let mut ended: Vec<&Started> =
            jobs.iter().filter(|job| job.end() == Some(end) && !job.row.is_deleting()).collect();
        ended.sort_by_key(|job| (job.start(), job.row.key.clone()));
        let excess = ended.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        for job in ended.into_iter().take(excess.min(pods::BURST)) {
            plan.event(row, EventType::Normal, "SuccessfulDelete", format!("Deleted job {}", job.row.key.name));
            plan.delete(job.row, format!("more than {limit} finished Jobs ({end})"));
            trimmed.insert(&*job.row.uid);
        }
    }
    trimmed
}

/// The latest scheduled time that is due and has no Job yet. Earlier missed times are skipped.
fn due(world: &World, row: &Row, object: &Object, plan: &mut Plan) -> Option<Time> {
    let text = object.text(&["spec", "schedule"]).unwrap_or_default();
    let schedule = match Schedule::parse(text) {
        Ok(schedule) => schedule,
        Err(error) => {
            plan.wait(format!("unparseable schedule: {text:?} : {error}"));
            return None;
        }
    };
    let zone = object.text(&["spec", "timeZone"]).and_then(zone).unwrap_or(TimeZone::UTC);
    let deadline = object.int(&["spec", "startingDeadlineSeconds"]).map(SignedDuration::from_secs);
    let answered = object.time(&["status", "lastScheduleTime"]).or(row.created)?;
    let oldest = deadline.and_then(|deadline| world.now.checked_sub(deadline).ok());
    let since = oldest.map_or(answered, |oldest| answered.max(oldest));
    let last = schedule.last_between(answered, world.now, &zone);
    // An interval counts from the last scheduled time, so that plans in between do not postpone the next one.
    if let Some(next) = schedule.next_after(last.unwrap_or(answered), &zone) {
        plan.wait(format!("the next Job is due at {}", time::rfc3339(next)));
        plan.wake_at(next);
    } else {
        // The schedule names a day that no month has. The message is that of Kubernetes' controller.
        let why = "time difference between two schedules is less than 1 second";
        let message = format!("invalid schedule: {text} : {why}");
        plan.event(row, EventType::Warning, "InvalidSchedule", message);
        plan.wait(format!("the schedule {text:?} names no time"));
    }
    let due = last.filter(|last| *last > since)?;
    let missed = std::iter::successors(schedule.next_after(since, &zone), |last| schedule.next_after(*last, &zone));
    if missed.take_while(|time| *time <= world.now).take(MANY + 1).count() > MANY {
        let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        plan.event(row, EventType::Warning, "TooManyMissedTimes", message);
    }
    Some(due)
}

/// Returns the name of the Job for a scheduled time.
fn name(cron_job: &Row, at: Time) -> String {
    format!("{}-{}", cron_job.key.name, at.as_second().div_euclid(60))
}

/// Starts the Job for a scheduled time. Returns true when that time is handled. Replaced Jobs are removed from `jobs`
/// at once, so that they are not reported missing (`syncCronJob`: `deleteFromActiveList`).
fn start(world: &World, owner: &Owner, object: &Object, jobs: &mut Vec<Started>, due: Time, plan: &mut Plan) -> bool {
    let row = owner.row;
    let name = name(row, due);
    if world.find(JOBS, &row.key.namespace, &name).is_some() {
        return true;
    }
    let running: Vec<&Started> = jobs.iter().filter(|job| job.end().is_none()).collect();
    match object.text(&["spec", "concurrencyPolicy"]) {
        Some("Forbid") if !running.is_empty() => {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            plan.event(row, EventType::Normal, "JobAlreadyActive", message);
            plan.wait("the previous Job is still running");
            return false;
        }
        Some("Replace") => {
            for job in running.into_iter().filter(|job| !job.row.is_deleting()) {
                plan.event(row, EventType::Normal, "SuccessfulDelete", format!("Deleted job {}", job.row.key.name));
                plan.delete(job.row, "its successor is due");
            }
            jobs.retain(|job| job.end().is_some());
        }
        _ => {}
    }
    plan.event(row, EventType::Normal, "SuccessfulCreate", format!("Created job {name}"));
    plan.write(WriteVerb::Create(job(owner, object, &name, due)), format!("it is due since {}", time::rfc3339(due)));
    true
}

fn job(owner: &Owner, object: &Object, name: &str, due: Time) -> Object {
    let template = object.value_at(&["spec", "jobTemplate"]).unwrap_or(&Value::Null);
    let mut job = Object(json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": *owner.row.key.namespace,
            "ownerReferences": [owner.reference().to_value()],
        },
        "spec": template["spec"],
    }));
    for field in ["labels", "annotations"] {
        if let Some(map) = template["metadata"].get(field).filter(|map| map.is_object()) {
            job.set(&["metadata", field], map.clone());
        }
    }
    let zone = object.text(&["spec", "timeZone"]).and_then(zone).unwrap_or(TimeZone::UTC);
    let stamp = match zone == TimeZone::UTC {
        true => time::rfc3339(due),
        false => due.to_zoned(zone).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
    };
    job.set(&["metadata", "annotations", SCHEDULED], stamp);
    job
}

#[cfg(test)]
mod tests {
    use crate::controllers::testing::{Cluster, cluster};
    use serde_json::json;

    fn tick(spec: &str, annotations: &str) -> Cluster {
        cluster(&format!(
            "
apiVersion: batch/v1
kind: CronJob
metadata: {{name: tick}}
spec:
  schedule: '*/5 * * * *'
  successfulJobsHistoryLimit: 3
  failedJobsHistoryLimit: 1
  {spec}
  jobTemplate:
    metadata: {{labels: {{from: tick}}}}
    spec: {{template: {{metadata: {{annotations: {{{annotations}}}}}, spec: {{restartPolicy: Never, containers: [{{name: c}}]}}}}}}
"
        ))
    }

    #[test]
    fn schedule_starts_one_job_for_every_time() {
        let mut cluster = tick("concurrencyPolicy: Allow", "");
        cluster.settle();
        assert_eq!(cluster.count("jobs.batch"), 0);
        cluster.pass(301);
        let minutes = cluster.world.now.as_second() / 300 * 5;
        assert_eq!(cluster.names("jobs.batch"), format!("tick-{minutes}"));
        assert!(cluster.logged(&format!("event: SuccessfulCreate Created job tick-{minutes}")));
        assert!(
            cluster.logged(&format!("event: SawCompletedJob Saw completed job: tick-{minutes}, condition: Complete"))
        );
        let status = cluster.value("cronjobs.batch", "tick", "/status");
        assert_eq!((&status["lastScheduleTime"], status.get("active")), (&json!("2026-01-01T00:05:00Z"), None));
        cluster.pass(1500);
        assert_eq!(cluster.count("jobs.batch"), 3);
    }

    #[test]
    fn finished_job_beyond_the_limits_goes_without_a_report() {
        let mut cluster = tick("concurrencyPolicy: Allow", "");
        cluster.patch("cronjobs.batch", "tick", json!({"spec": {"successfulJobsHistoryLimit": 0}}));
        cluster.pass(301);
        assert!(cluster.logged("event: SuccessfulDelete Deleted job tick-"));
        assert!(!cluster.logged("event: SawCompletedJob"));
        let status = cluster.value("cronjobs.batch", "tick", "/status");
        assert_eq!((status.get("active"), status["lastSuccessfulTime"].is_string()), (None, true));
    }

    #[test]
    fn concurrency_policy_applies_while_a_job_is_running() {
        for (policy, jobs) in [("Allow", 3), ("Forbid", 1), ("Replace", 1)] {
            let mut cluster = tick(&format!("concurrencyPolicy: {policy}"), "fake/stay: ''");
            cluster.pass(920);
            assert_eq!(cluster.count("jobs.batch"), jobs, "{policy}");
            assert_eq!(cluster.object("cronjobs.batch", "tick").items(&["status", "active"]).len(), jobs, "{policy}");
            assert!(!cluster.logged("event: MissingJob"), "{policy}: a replaced Job is not reported missing");
        }
    }

    #[test]
    fn manually_created_job_is_reported_and_ignored_while_it_runs() {
        let mut cluster = tick("concurrencyPolicy: Forbid", "fake/stay: ''");
        cluster.settle();
        let uid = cluster.value("cronjobs.batch", "tick", "/metadata/uid");
        let template = json!({"metadata": {"annotations": {"fake/stay": ""}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}});
        cluster.create(json!({
            "apiVersion": "batch/v1", "kind": "Job", "spec": {"template": template},
            "metadata": {
                "name": "by-hand", "namespace": "default",
                "annotations": {"cronjob.kubernetes.io/instantiate": "manual"},
                "ownerReferences": [{
                    "apiVersion": "batch/v1", "kind": "CronJob", "name": "tick", "uid": uid, "controller": true,
                }],
            },
        }));
        cluster.settle();
        assert!(cluster.logged("event: UnexpectedJob Saw a job that the controller did not create or forgot: by-hand"));
        let active = cluster.value("cronjobs.batch", "tick", "/status/active");
        assert!(active.is_null(), "{active}");
        cluster.pass(301);
        assert_eq!(cluster.count("jobs.batch"), 2, "it does not delay the scheduled Job");
        let active = cluster.object("cronjobs.batch", "tick");
        let names: Vec<_> = active.items(&["status", "active"]).iter().map(|one| &one["name"]).collect();
        assert_eq!(names.len(), 1);
        assert_ne!(names[0], "by-hand");
    }

    #[test]
    fn cron_job_starts_only_the_latest_of_many_missed_times() {
        let mut cluster = tick("suspend: true", "");
        cluster.settle();
        cluster.world.now += jiff::SignedDuration::from_hours(1000);
        cluster.patch("cronjobs.batch", "tick", json!({"spec": {"suspend": false}}));
        cluster.settle();
        assert_eq!(cluster.count("jobs.batch"), 1);
        assert!(cluster.logged("event: TooManyMissedTimes"));
        let mut late = tick("suspend: true\n  startingDeadlineSeconds: 60", "");
        late.settle();
        late.world.now += jiff::SignedDuration::from_secs(400);
        late.patch("cronjobs.batch", "tick", json!({"spec": {"suspend": false}}));
        late.settle();
        assert_eq!(late.count("jobs.batch"), 0);
    }

    #[test]
    fn schedule_that_names_no_time_is_reported() {
        let mut cluster = tick("concurrencyPolicy: Allow", "");
        cluster.patch("cronjobs.batch", "tick", json!({"spec": {"schedule": "59 23 31 2 *"}}));
        cluster.settle();
        assert!(cluster.logged("event: InvalidSchedule invalid schedule: 59 23 31 2 * : time difference between"));
    }

    #[test]
    fn schedule_of_an_interval_counts_from_the_last_scheduled_time() {
        let mut cluster = tick("concurrencyPolicy: Allow", "");
        cluster.patch("cronjobs.batch", "tick", json!({"spec": {"schedule": "@every 90s"}}));
        for round in 1..5 {
            cluster.pass(50);
            // Any change makes the controller plan the CronJob again.
            cluster.patch("cronjobs.batch", "tick", json!({"metadata": {"labels": {"round": round.to_string()}}}));
            cluster.pass(40);
            let start: crate::object::Time = "2026-01-01T00:00:00Z".parse().unwrap();
            let last = crate::object::time::rfc3339(start + jiff::SignedDuration::from_secs(90 * round));
            assert_eq!(cluster.value("cronjobs.batch", "tick", "/status/lastScheduleTime"), last);
        }
    }
}
