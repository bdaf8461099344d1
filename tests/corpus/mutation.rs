//! Accepted objects, changed field by field: kloop accepts and refuses the same as Kubernetes.
//!
//! `rules.txt` lists the valid values of each field, `siblings.txt` the valid combinations of fields, both from Kubernetes' own validation;
//! `seeds.yaml` has objects with fields that are rare in the corpus.

use super::{admit, files_below, folder, objects};
use kloop::apiserver::Api;
use kloop::kinds;
use kloop::object::yaml;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Paths of the pod spec in the kinds with one; a pod itself first.
const POD_SPECS: &[(&str, &str)] = &[
    ("Pod", "spec"),
    ("Deployment", "spec.template.spec"),
    ("StatefulSet", "spec.template.spec"),
    ("DaemonSet", "spec.template.spec"),
    ("Job", "spec.template.spec"),
    ("CronJob", "spec.jobTemplate.spec.template.spec"),
];
/// Number of objects of one kind for each rule; one where the rule is for a pod template.
const OBJECTS_FOR_A_RULE: usize = 2;
/// Maximum number of objects of one kind.
const OBJECTS_OF_A_KIND: usize = 60;
/// Percentage of mutations that kloop may judge differently.
const ALLOWED_PERCENT: usize = 1;
/// Minimum number of mutations; may only rise.
const TRIED_AT_LEAST: usize = 9_500;

/// The name of a tried value, and the value.
type Tried = (&'static str, fn() -> Value);

/// The tried texts and numbers, in the order of [`verdicts`].
const TRIED: &[Tried] = &[
    ("empty", || json!("")),
    ("overlong", || json!("a".repeat(300))),
    ("bad name", || json!("Bad_Name!")),
    ("unknown word", || json!("Odd")),
    ("negative", || json!(-1)),
    ("zero", || json!(0)),
    ("70000", || json!(70_000)),
    ("huge", || json!(3_000_000_000_i64)),
];

/// Returns the verdict for each of [`TRIED`]: `a`ccepted, `r`efused, `.` not stated. Numbers are invalid in texts, and texts in numbers.
fn verdicts(form: &str) -> &'static str {
    match form {
        "list" | "map" | "bool" => "rrrrrrrr",
        "text" => "aaaarrrr",
        "filled" => "raaarrrr",
        "enum" => ".rrrrrrr",
        "known" | "fieldpath" | "ip" | "cidr" | "schedule" | "limittype" | "sysctl" => "rrrrrrrr",
        "oddenum" => ".rrrrrrr",
        "label" | "label1035" | "subdomain" | "domain" => "rrrrrrrr",
        "cidr0" | "label0" | "subdomain0" | "portname0" | "enum0" => "arrrrrrr",
        "httpheader" => "rararrrr",
        "needed" => "r...rrrr",
        "positive64" => "rrrrrraa",
        "kindnamemaybe" => "arr.rrrr",
        "labelmaybe" | "enum0maybe" | "label1035maybe" | "groupversion" => ".rrrrrrr",
        "affinityseconds" => "rrrrrrar",
        "window" => "rrrrrarr",
        "window1" => "rrrrrrrr",
        "path1" => "arrrrrrr",
        "base64" => "a.rrrrrr",
        "targetport" => "arrrrarr",
        "segment" => "raaarrrr",
        "lun" => "rrrrrarr",
        "within32" => "rrrrrrar",
        "sleep" => "rrrrr.rr",
        "csiname" => "rrrarrrr",
        "kindname" => "rrr.rrrr",
        "group0" => ".rrrrrrr",
        "host0" => ".rrrrrrr",
        "path0" => "...rrrrr",
        "path" => "rrrrrrrr",
        "qualified" => "rrrarrrr",
        "qualified0" => ".rrarrrr",
        "qualifiedany" => "rrrarrrr",
        "controller" => "rrrrrrrr",
        "labelvalue" => "arrarrrr",
        "rbacgroup" => ".rrrrrrr",
        "envname" => "raaarrrr",
        "configkey" => "rrrarrrr",
        "clusterip" => ".rrrrrrr",
        "quantity" => "rrrrr...",
        "amount" => "rrrrrraa",
        "port" => "rrrrrrrr",
        "port0" => "rrrrrarr",
        "portorname" => "rrrrr.rr",
        "nodeport" => "rrrrrarr",
        "amountorpercent" => "rrrrr..r",
        "count" => "rrrrraar",
        "count0" => "rrrrraar",
        "seconds" => "rrrr.a..",
        "one" => "rrrrrarr",
        "positive" => "rrrrrr.r",
        "weight" => "rrrrrrrr",
        "timeout" => "rrrrrrrr",
        "percent" => "rrrrrarr",
        "precedence" => "rrrrrarr",
        "count64" => "rrrrraaa",
        "queues" => "rrrrra.r",
        "mode" => "rrrrrarr",
        "tokenage" => "rrrrrraa",
        "userid" => "rrrrraar",
        "number" => "rrrraaar",
        "anynumber" => "rrrraaar",
        other => panic!("{other} is not a form"),
    }
}

struct Rule {
    kind: String,
    path: Vec<String>,
    form: String,
    need: String,
    unique: bool,
}

fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Reads the table, with a row for each kind that has the field.
fn rules() -> Vec<Rule> {
    let (mut rules, mut turn) = (Vec::new(), 0);
    for line in lines(include_str!("rules.txt")) {
        let words: Vec<&str> = line.split(' ').collect();
        let [kinds, path, form, need, ref rest @ ..] = words[..] else { panic!("{line}") };
        let places: Vec<(&str, String)> = match kinds {
            // Pods, and the kinds with a template in turn: they share their checks.
            "podspec" => {
                turn = turn % (POD_SPECS.len() - 1) + 1;
                [0, turn].map(|index| POD_SPECS[index]).map(|(kind, at)| (kind, format!("{at}.{path}"))).into()
            }
            "meta" => {
                ["Pod", "Deployment", "ConfigMap", "Service", "Ingress"].map(|kind| (kind, path.to_owned())).into()
            }
            kind => vec![(kind, path.to_owned())],
        };
        rules.extend(places.into_iter().map(|(kind, path)| Rule {
            kind: kind.to_owned(),
            // A tilde replaces a dot in a key.
            path: path.replace("[]", ".0").split('.').map(|step| step.replace('~', ".")).collect(),
            form: form.to_owned(),
            need: need.to_owned(),
            unique: rest == ["unique"],
        }));
    }
    rules
}

/// Returns a seed; for a pod also an object of each other kind with the same pod spec.
fn with_templates(seed: Value) -> Vec<Value> {
    if seed["kind"] != "Pod" {
        return vec![seed];
    }
    let labels = json!({"app": "seed"});
    let template = |ends: bool| {
        let mut spec = seed["spec"].clone();
        if ends {
            spec["restartPolicy"] = json!("Never");
        }
        json!({"metadata": {"labels": labels}, "spec": spec})
    };
    let object = |version: &str, kind: &str, spec: Value| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "seed", "namespace": "default"}, "spec": spec});
    let selects = json!({"selector": {"matchLabels": labels}, "template": template(false)});
    let job = json!({"template": template(true)});
    // Kinds whose pods restart do not allow a pod that ends.
    let kinds: &[&str] =
        if seed["spec"]["restartPolicy"].is_null() { &["Deployment", "StatefulSet", "DaemonSet"] } else { &[] };
    let mut all: Vec<Value> = kinds.iter().map(|kind| object("apps/v1", kind, selects.clone())).collect();
    all.push(object("batch/v1", "Job", job.clone()));
    all.push(object("batch/v1", "CronJob", json!({"schedule": "* * * * *", "jobTemplate": {"spec": job}})));
    all.push(seed);
    all
}

/// Returns accepted objects by kind: the seeds, then those of the corpus.
fn accepted_objects(api: &mut Api, corpus: &Path, score: &mut Score) -> BTreeMap<String, Vec<Value>> {
    let seeds = yaml::documents(include_str!("seeds.yaml")).expect("seeds").into_iter();
    let mut all: Vec<Value> = seeds.flat_map(|document| with_templates(document.value)).collect();
    all.iter().for_each(|seed| score.judge(api, &format!("seed {}", seed["kind"]), seed, true));
    let mut files = Vec::new();
    files_below(corpus, &mut files);
    all.extend(files.iter().flat_map(|file| objects(file).unwrap_or_default()));
    let mut by_kind: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for body in all {
        let known =
            kinds::by_kind(body["apiVersion"].as_str().unwrap_or_default(), body["kind"].as_str().unwrap_or_default());
        let Some(kind) = known.filter(|kind| kind.custom.is_none()) else { continue };
        let found = by_kind.entry(kind.kind.to_owned()).or_default();
        if found.len() >= OBJECTS_OF_A_KIND || body["metadata"]["name"].is_null() {
            continue;
        }
        if refusal(api, &body).is_none() {
            found.push(body);
        }
    }
    by_kind
}

/// Returns why an object is refused; `None` when it is accepted. A dry run.
fn refusal(api: &mut Api, body: &Value) -> Option<String> {
    let kind = kinds::by_kind(body["apiVersion"].as_str()?, body["kind"].as_str()?)?;
    let mut refused = None;
    let done = api.write(true, |txn| {
        refused = admit(txn, kind, body).err().map(|status| status.message);
        Ok(())
    });
    done.expect("the transaction");
    refused
}

fn value_at<'v>(value: &'v mut Value, path: &[String]) -> Option<&'v mut Value> {
    path.iter().try_fold(value, |value, step| match value {
        Value::Array(items) => items.get_mut(step.parse::<usize>().ok()?),
        Value::Object(map) => map.get_mut(step),
        _ => None,
    })
}

/// Returns every mutation for a rule: its name, the changed object, and whether Kubernetes accepts it.
fn mutations(rule: &Rule, body: &Value) -> Vec<(String, Value, bool)> {
    let mut found = Vec::new();
    let mut add = |name: &str, accepted: bool, change: &dyn Fn(&mut Value)| {
        let mut changed = body.clone();
        change(&mut changed);
        found.push((name.to_owned(), changed, accepted));
    };
    let set = |value: Value| {
        move |body: &mut Value| {
            if let Some(field) = value_at(body, &rule.path) {
                *field = value.clone();
            }
        }
    };
    let wrong = if rule.form == "map" { json!("text") } else { json!({"wrong": ["type"]}) };
    add("wrong type", false, &set(wrong));
    for ((name, value), verdict) in TRIED.iter().zip(verdicts(&rule.form).chars()) {
        if verdict != '.' {
            add(name, verdict == 'a', &set(value()));
        }
    }
    if rule.need != "-" {
        let (last, parent) = rule.path.split_last().expect("a path");
        add("null", rule.need == "optional", &set(Value::Null));
        add("removed", rule.need == "optional", &|body| {
            if let Some(Value::Object(map)) = value_at(body, parent) {
                map.remove(last);
            }
        });
    }
    if rule.unique {
        add("first item twice", false, &|body| {
            if let Some(Value::Array(items)) = value_at(body, &rule.path) {
                items.extend(items.first().cloned());
            }
        });
    }
    found
}

/// Counts verdicts, and keeps those that differ from Kubernetes.
#[derive(Default)]
struct Score {
    tried: usize,
    other: Vec<String>,
}

impl Score {
    fn judge(&mut self, api: &mut Api, what: &str, body: &Value, accepted: bool) {
        let refused = refusal(api, body);
        self.tried += 1;
        if refused.is_none() != accepted {
            let wanted = if accepted { "accepts" } else { "refuses" };
            self.other.push(format!("{what}: Kubernetes {wanted} it, kloop says {refused:?}"));
        }
    }
}

#[test]
fn mutated_objects_are_judged_as_kubernetes_does() {
    let Some(corpus) = folder("accept") else { return };
    let mut api = Api::in_memory("test").expect("a cluster in memory");
    let (mut score, mut untried) = (Score::default(), Vec::new());
    let objects = accepted_objects(&mut api, &corpus, &mut score);
    for rule in rules() {
        let of_kind = objects.get(&rule.kind).map_or(&[][..], Vec::as_slice);
        let most = if rule.path.iter().any(|step| step == "template") { 1 } else { OBJECTS_FOR_A_RULE };
        let has_field =
            |body: &&Value| value_at(&mut (*body).clone(), &rule.path).is_some_and(|value| !value.is_null());
        let chosen: Vec<&Value> = of_kind.iter().filter(has_field).take(most).collect();
        if chosen.is_empty() {
            untried.push(format!("{} {}", rule.kind, rule.path.join(".")));
        }
        for body in chosen {
            let place = format!("{} {} {}", rule.kind, body["metadata"]["name"], rule.path.join("."));
            for (name, changed, accepted) in mutations(&rule, body) {
                score.judge(&mut api, &format!("{place}: {name}"), &changed, accepted);
            }
        }
    }
    for line in lines(include_str!("siblings.txt")) {
        let [verdict, kind, patch] = line.splitn(3, ' ').collect::<Vec<&str>>()[..] else { panic!("{line}") };
        let patch: Value = serde_json::from_str(patch).expect(line);
        let plain = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain", "namespace": "default"}, "spec": {}});
        let base = if kind == "Pod" { Some(&plain) } else { objects.get(kind).and_then(|all| all.first()) };
        let base = match (kind, base) {
            ("Namespace", None) => Some(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "seed"}})),
            (_, base) => base.cloned(),
        };
        let Some(mut body) = base else {
            untried.push(line.to_owned());
            continue;
        };
        json_patch::merge(&mut body, &patch);
        score.judge(&mut api, line, &body, verdict == "accepted");
    }
    untried.iter().for_each(|line| eprintln!("no object has: {line}"));
    score.other.iter().for_each(|line| eprintln!("{line}"));
    let alike = score.tried - score.other.len();
    let percent = alike as f64 * 100.0 / score.tried as f64;
    eprintln!(
        "mutations: {} tried, {alike} ({percent:.2} %) judged as Kubernetes does, {} fields in no object",
        score.tried,
        untried.len()
    );
    assert!(score.tried >= TRIED_AT_LEAST, "{} mutations are tried, before it was {TRIED_AT_LEAST}", score.tried);
    assert!(
        score.other.len() * 100 <= score.tried * ALLOWED_PERCENT,
        "{} of {} differ",
        score.other.len(),
        score.tried
    );
}
