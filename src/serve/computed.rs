//! Objects that are computed when they are read, and never stored: ComponentStatuses, NodeMetrics and PodMetrics.
//!
//! Knows: their resources and columns, and how each is computed. They can be got and listed, nothing else.
//! Start reading at [`COMPUTED`].

use super::form::{AnswerForm, AnswerShape};
use super::path::PathTarget;
use super::protobuf;
use super::remote_stats::RemoteKubelets;
use super::request::ApiRequest;
use super::resource_metrics::{WINDOW, measure_nodes, measure_pods};
use super::table::{self, IncludeObject};
use super::{HttpAnswer, ServeResult, not_allowed, options, unknown_path};
use crate::apiserver::{Api, read};
use crate::kinds::view::{Column, TableCell};
use crate::kinds::{self, Kind};
use crate::object::api_version;
use crate::object::{Object, Reason, Status, Time, time};
use crate::reconcile::leader;
use crate::world::usage::Usage;
use serde_json::{Value, json};

/// A kind whose objects are computed, not stored.
pub struct ComputedKind {
    /// Empty for the core group.
    pub group: &'static str,
    /// `v1beta1`.
    pub version: &'static str,
    /// `componentstatuses`.
    pub plural: &'static str,
    /// `componentstatus`.
    pub singular: &'static str,
    /// `ComponentStatus`.
    pub kind: &'static str,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Short names.
    pub short: &'static [&'static str],
    warning: Option<&'static str>,
    columns: &'static [Column],
    cells: fn(&Object) -> Vec<TableCell>,
    /// The resource in the error about an object that is not there.
    missing: &'static str,
    compute: fn(&mut Api, &ApiRequest, &PathTarget) -> ServeResult<Vec<Object>>,
}

const METRICS: &[Column] = &[Column::text("Name"), Column::text("CPU"), Column::text("Memory"), Column::text("Window")];

/// All computed kinds.
pub static COMPUTED: [ComputedKind; 3] = [
    ComputedKind {
        group: "",
        version: "v1",
        plural: "componentstatuses",
        singular: "componentstatus",
        kind: "ComponentStatus",
        namespaced: false,
        short: &["cs"],
        warning: Some("v1 ComponentStatus is deprecated in v1.19+"),
        columns: &[Column::text("Name"), Column::text("Status"), Column::text("Message"), Column::text("Error")],
        cells: component_cells,
        missing: "componentstatus",
        compute: component_statuses,
    },
    ComputedKind {
        group: "metrics.k8s.io",
        version: "v1beta1",
        plural: "nodes",
        singular: "",
        kind: "NodeMetrics",
        namespaced: false,
        short: &[],
        warning: None,
        columns: METRICS,
        cells: metrics_cells,
        missing: "nodemetrics.metrics.k8s.io",
        compute: node_metrics,
    },
    ComputedKind {
        group: "metrics.k8s.io",
        version: "v1beta1",
        plural: "pods",
        singular: "",
        kind: "PodMetrics",
        namespaced: true,
        short: &[],
        warning: None,
        columns: METRICS,
        cells: metrics_cells,
        missing: "podmetrics.metrics.k8s.io",
        compute: pod_metrics,
    },
];

/// Answers a request for a computed kind; `None` for other kinds.
pub fn answer(api: &mut Api, request: &ApiRequest, named: &PathTarget) -> Option<ServeResult> {
    let is_meant = |kind: &&ComputedKind| {
        (kind.group, kind.version, kind.plural) == (&*named.group, &*named.version, &*named.plural)
    };
    let kind = COMPUTED.iter().find(is_meant)?;
    let answer = kind.answer(api, request, named);
    Some(answer.map(|answer| answer.warning(&Vec::from_iter(kind.warning.map(str::to_owned)))))
}

impl ComputedKind {
    /// Whether a command can name the kind so: by its names, which also need the group where it is not the core one, or by its kind.
    pub fn has_name(&self, word: &str) -> bool {
        let word = word.to_ascii_lowercase();
        let (word, group) = word.split_once('.').unwrap_or((&word, ""));
        let version = self.version;
        // As in kubectl, the beginning of a group is enough: `nodes.metrics`.
        let is_named = group == self.group || !group.is_empty() && self.group.starts_with(group);
        let is_group = is_named || group.strip_prefix(version) == Some(&format!(".{}", self.group));
        let is_kind = word == self.kind.to_ascii_lowercase() && (is_group || group.is_empty());
        let names = [self.plural, self.singular];
        is_kind || is_group && !word.is_empty() && (names.contains(&word) || self.short.contains(&word))
    }

    /// Returns the path of one of its objects, or of all of them.
    pub fn path(&self, name: &Option<String>, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        let place = namespace.filter(|_| self.namespaced).map(|name| format!("/namespaces/{name}")).unwrap_or_default();
        let name = name.as_ref().map(|name| format!("/{name}")).unwrap_or_default();
        format!("{root}/{}{place}/{}{name}", self.version, self.plural)
    }

    fn answer(&self, api: &mut Api, request: &ApiRequest, named: &PathTarget) -> ServeResult {
        let is_in_place = match named.name {
            Some(_) => self.namespaced == named.namespace.is_some(),
            None => self.namespaced || named.namespace.is_none(),
        };
        if named.subresource.is_some() || !is_in_place {
            return Err(unknown_path());
        }
        if request.method != "GET" || named.watch || request.flag("watch") {
            return Err(not_allowed());
        }
        let form = AnswerForm::negotiate(request, || protobuf::is_known(&self.api_version(), self.kind))?;
        let include = IncludeObject::from_request(request)?;
        let mut objects = (self.compute)(api, request, named)?;
        let Some(name) = &named.name else {
            return Ok(HttpAnswer::document(200, &self.list_value(objects, &form, include), &form));
        };
        objects.retain(|object| object.name() == name);
        let object = objects.pop().ok_or_else(|| self.not_found(named))?;
        Ok(HttpAnswer::document(200, &self.value(object, &form, include), &form))
    }

    fn api_version(&self) -> String {
        api_version(self.group, self.version)
    }

    fn value(&self, object: Object, form: &AnswerForm, include: IncludeObject) -> Value {
        match &form.shape {
            AnswerShape::Table(version) => self.table(&[object], include, version),
            AnswerShape::Metadata(version) => table::metadata(&object, version),
            AnswerShape::Whole | AnswerShape::Discovery(_) => object.0,
        }
    }

    fn list_value(&self, objects: Vec<Object>, form: &AnswerForm, include: IncludeObject) -> Value {
        let (kind, api_version) = match &form.shape {
            AnswerShape::Table(version) => return self.table(&objects, include, version),
            AnswerShape::Metadata(version) => ("PartialObjectMetadata", format!("meta.k8s.io/{version}")),
            AnswerShape::Whole | AnswerShape::Discovery(_) => (self.kind, self.api_version()),
        };
        let items: Vec<Value> = objects.into_iter().map(|object| self.value(object, form, include)).collect();
        json!({"kind": format!("{kind}List"), "apiVersion": api_version, "metadata": {}, "items": items})
    }

    fn table(&self, objects: &[Object], include: IncludeObject, version: &str) -> Value {
        let rows: Vec<Vec<TableCell>> = objects.iter().map(self.cells).collect();
        table::cells_table(self.columns, &rows, objects, include, version)
    }

    fn not_found(&self, named: &PathTarget) -> Status {
        let name = named.name.as_deref().unwrap_or_default();
        let full = match &named.namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        };
        Status::new(Reason::NotFound, format!("{} {full:?} not found", self.missing))
    }
}

/// The parts of a control plane under the names that Kubernetes gives them; the store answers, or this request would have failed.
fn component_statuses(api: &mut Api, _: &ApiRequest, _: &PathTarget) -> ServeResult<Vec<Object>> {
    let runs = leader::read_leader(api.store().home()).is_some();
    let component = |(name, is_healthy): (&str, bool)| {
        let mut condition = json!({"type": "Healthy", "status": if is_healthy { "True" } else { "False" }});
        match is_healthy {
            true => condition["message"] = "ok".into(),
            false => condition["message"] = "no control plane runs: kloop reconcile --watch".into(),
        }
        Object(json!({
            "kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": name}, "conditions": [condition],
        }))
    };
    Ok([("controller-manager", runs), ("etcd-0", true), ("scheduler", runs)].map(component).into())
}

fn component_cells(component: &Object) -> Vec<TableCell> {
    let condition = component.items(&["conditions"]).first().cloned().unwrap_or_default();
    let status = if condition["status"] == "True" { "Healthy" } else { "Unhealthy" };
    let text = |field: &str| condition[field].as_str().unwrap_or_default();
    vec![component.name().into(), status.into(), text("message").into(), text("error").into()]
}

/// The objects of a kind that a request selects by name, namespace, labels and fields.
fn selected(api: &Api, kind: &'static Kind, request: &ApiRequest, named: &PathTarget) -> ServeResult<Vec<Object>> {
    let wanted = options::list_selection(request, (kind, &kind.api_version()))?;
    let mut objects = api.read_view(|txn| read::list(txn, kind, named.namespace.as_deref(), &wanted))?;
    if let Some(name) = &named.name {
        objects.retain(|object| object.name() == name);
    }
    Ok(objects)
}

fn node_metrics(api: &mut Api, request: &ApiRequest, named: &PathTarget) -> ServeResult<Vec<Object>> {
    let nodes = selected(api, &kinds::node::KIND, request, named)?;
    if nodes.is_empty() {
        return Ok(Vec::new());
    }
    let pods = api.read_view(|txn| txn.list(kinds::pod::KIND.resource, None))?;
    let kubelets = RemoteKubelets::find(api, &nodes)?;
    let measured = measure_nodes(Some(api.store().home()), &kubelets, &nodes, &pods);
    let now = Time::now();
    let metrics = nodes.iter().filter_map(|node| {
        let mut metrics = metrics_of("NodeMetrics", node, now);
        metrics["usage"] = usage_value(measured.get(node.name())?);
        Some(Object(metrics))
    });
    Ok(metrics.collect())
}

fn pod_metrics(api: &mut Api, request: &ApiRequest, named: &PathTarget) -> ServeResult<Vec<Object>> {
    let pods = selected(api, &kinds::pod::KIND, request, named)?;
    if pods.is_empty() {
        return Ok(Vec::new());
    }
    let kubelets = RemoteKubelets::find_for_pods(api, &pods)?;
    let measured = measure_pods(api.store().home(), &kubelets, &pods);
    let now = Time::now();
    let running = pods.iter().zip(measured).filter(|(_, containers)| !containers.is_empty());
    let metrics = running.map(|(pod, containers)| {
        let container = |(name, usage): &(String, Usage)| json!({"name": name, "usage": usage_value(usage)});
        let mut metrics = metrics_of("PodMetrics", pod, now);
        metrics["containers"] = containers.iter().map(container).collect();
        Object(metrics)
    });
    Ok(metrics.collect())
}

/// The fields that metrics of pods and of nodes share.
fn metrics_of(kind: &str, measured: &Object, now: Time) -> Value {
    let mut metadata = json!({"name": measured.name(), "creationTimestamp": time::rfc3339(now)});
    if !measured.namespace().is_empty() {
        metadata["namespace"] = measured.namespace().into();
    }
    if let Some(labels) = measured.value_at(&["metadata", "labels"]) {
        metadata["labels"] = labels.clone();
    }
    json!({
        "kind": kind, "apiVersion": "metrics.k8s.io/v1beta1", "metadata": metadata,
        "timestamp": time::rfc3339(now), "window": format!("{}ms", WINDOW.as_millis()),
    })
}

fn usage_value(usage: &Usage) -> Value {
    json!({"cpu": format!("{}m", usage.cpu_milli), "memory": format!("{}Ki", usage.memory / 1024)})
}

fn metrics_cells(metrics: &Object) -> Vec<TableCell> {
    let quantity = |usage: &Value, name: &str, unit: &str| -> i64 {
        usage[name].as_str().and_then(|text| text.strip_suffix(unit)?.parse().ok()).unwrap_or_default()
    };
    let own = metrics.value_at(&["usage"]);
    let usages = || own.into_iter().chain(metrics.items(&["containers"]).iter().map(|container| &container["usage"]));
    let cpu: i64 = usages().map(|usage| quantity(usage, "cpu", "m")).sum();
    let memory: i64 = usages().map(|usage| quantity(usage, "memory", "Ki")).sum();
    let window = metrics.text(&["window"]).unwrap_or_default();
    vec![metrics.name().into(), format!("{cpu}m").into(), format!("{memory}Ki").into(), window.into()]
}
