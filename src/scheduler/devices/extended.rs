//! Extended resources that device classes provide: a pod that requests `example.com/gpu` gets devices of the class with that
//! `extendedResourceName`, on a node that does not offer the resource itself. One claim, which is made when the pod is placed, has the
//! devices of all its containers.
//!
//! Never: chooses a device. Start reading at [`ExtendedClaim::from_pod`].

use super::requests::ClaimRequests;
use crate::object::{Object, Str};
use crate::world::{Row, World, devices, free_name};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The prefix of the resource that each class provides by its own name.
const IMPLICIT: &str = "deviceclass.resource.kubernetes.io/";

/// The claim for the extended resources of a pod.
pub struct ExtendedClaim {
    /// Its requests, as if a node offered none of the resources itself.
    pub requests: ClaimRequests,
    claim: Object,
    /// The resource of each request.
    resources: BTreeMap<String, Str>,
    mappings: Vec<RequestMapping>,
}

/// The device request for an extended resource of a container.
#[derive(Clone)]
struct RequestMapping {
    container: String,
    resource: Str,
    request: String,
}

/// Returns the extended resources that a pod requests and that device classes provide, with their classes.
pub fn class_resources(world: &World, row: &Row) -> BTreeMap<Str, String> {
    let requested = row.pod().map(|fields| &fields.requests.others);
    let names = requested.into_iter().flatten().filter(|(name, amount)| **amount > 0 && name.contains('/'));
    names.filter_map(|(name, _)| Some((name.clone(), find_class(world, name)?))).collect()
}

/// Returns the class of an extended resource: the newest one that names it.
fn find_class(world: &World, resource: &str) -> Option<String> {
    if let Some(class) = resource.strip_prefix(IMPLICIT) {
        return world.find(devices::CLASSES, "", class).map(|class| class.key.name.to_string());
    }
    let classes = world.list(devices::CLASSES).filter(|class| class.mentions(resource));
    let named = classes.filter(|class| class.body().text(&["spec", "extendedResourceName"]) == Some(resource));
    // The list is in the order of names, and the first of classes of one age counts.
    let newest = named.reduce(|best, other| if other.created > best.created { other } else { best });
    newest.map(|class| class.key.name.to_string())
}

impl ExtendedClaim {
    /// Makes the claim of a pod for these resources; the error says why no node can meet it.
    pub fn from_pod(world: &World, row: &Row, classes: &BTreeMap<Str, String>) -> Result<ExtendedClaim, String> {
        let pod = row.body();
        let mut builder = RequestBuilder::default();
        classes.iter().for_each(|(resource, class)| builder.add_resource(&pod, resource, class));
        let RequestBuilder { mut requests, mappings, resources } = builder;
        requests.sort_by(|one, other| one["name"].as_str().cmp(&other["name"].as_str()));
        let base = format!("{}-extended-resources-", row.key.name);
        let owner =
            json!({"apiVersion": "v1", "kind": "Pod", "name": *row.key.name, "uid": *row.uid, "controller": true});
        let claim = Object(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {
                "name": free_name(world, devices::CLAIMS, row, &base, 0), "generateName": base, "namespace": *row.key.namespace,
                "annotations": {devices::EXTENDED_CLAIM: "true"}, "finalizers": [devices::FINALIZER], "ownerReferences": [owner],
            },
            "spec": {"devices": {"requests": requests}},
        }));
        let mut requests = ClaimRequests::read(world, &claim)?;
        // The claim has no uid yet.
        requests.identity = format!("{} {}", row.uid, row.revision);
        Ok(ExtendedClaim { requests, claim, resources, mappings })
    }

    /// Returns the requests for a node, which may offer some of the resources itself.
    pub fn requests_on(&self, node: &Row) -> ClaimRequests {
        let is_needed = |name: &str| self.resources.get(name).is_some_and(|resource| !offers(node, resource));
        self.requests.with_requests(|name| is_needed(name))
    }

    /// Returns the claim for a node, and the status of the pod that names it.
    pub fn objects_on(&self, node: &Row, pod: &Row) -> (Object, Object) {
        let is_needed = |resource: &Str| !offers(node, resource);
        let mut claim = self.claim.clone();
        let mut requests = claim.items(&["spec", "devices", "requests"]).to_vec();
        requests.retain(|request| {
            request["name"].as_str().and_then(|name| self.resources.get(name)).is_some_and(&is_needed)
        });
        claim.set(&["spec", "devices", "requests"], requests);
        let mappings = self.mappings.iter().filter(|mapping| is_needed(&mapping.resource)).map(|mapping| {
            json!({"containerName": mapping.container, "resourceName": *mapping.resource, "requestName": mapping.request})
        });
        let mappings: Vec<Value> = mappings.collect();
        let mut status = pod.object().status_alone();
        let own = json!({"requestMappings": mappings, "resourceClaimName": claim.name()});
        status.set(&["status", "extendedResourceClaimStatus"], own);
        (claim, status)
    }
}

/// Whether a node offers a resource itself, as device plugins make it.
pub fn offers(node: &Row, resource: &str) -> bool {
    node.node().is_some_and(|fields| fields.allocatable.others.get(resource).copied().unwrap_or_default() > 0)
}

/// Makes the requests for devices of all containers.
#[derive(Default)]
struct RequestBuilder {
    requests: Vec<Value>,
    mappings: Vec<RequestMapping>,
    resources: BTreeMap<String, Str>,
}

/// A container of a pod, by its place among all.
struct PlacedContainer<'p> {
    place: usize,
    body: &'p Value,
    /// Whether it ends before the others start.
    is_brief: bool,
}

/// A request for devices: its name and their number.
type CountedRequest = (String, i64);

impl RequestBuilder {
    /// Adds the requests for one resource. Containers that run at the same time get different devices. An init container that ends before
    /// the others uses their devices; one more request covers what such containers need in addition.
    fn add_resource(&mut self, pod: &Object, resource: &Str, class: &str) {
        let init = pod.items(&["spec", "initContainers"]).iter().map(|one| (one, one["restartPolicy"] != "Always"));
        let all = init.chain(pod.items(&["spec", "containers"]).iter().map(|one| (one, false)));
        let containers: Vec<PlacedContainer<'_>> =
            all.enumerate().map(|(place, (body, is_brief))| PlacedContainer { place, body, is_brief }).collect();
        let mut lasting: Vec<Option<CountedRequest>> = vec![None; containers.len()];
        for container in containers.iter().filter(|container| !container.is_brief) {
            let Some(count) = container.amount_of(resource) else { continue };
            let name = container.request_name(resource);
            self.map(container, resource, &name);
            lasting[container.place] = Some((name, count));
        }
        let first = self.mappings.len();
        let mut briefest: Option<CountedRequest> = None;
        let mut names = Vec::new();
        for container in containers.iter().filter(|container| container.is_brief) {
            let Some(mut left) = container.amount_of(resource) else { continue };
            for (name, count) in lasting[container.place..].iter().flatten() {
                if left > 0 {
                    self.map(container, resource, name);
                    left -= count;
                }
            }
            if left > 0 {
                let name = container.request_name(resource);
                self.map(container, resource, &name);
                names.push(name.clone());
                if briefest.as_ref().is_none_or(|(_, most)| *most < left) {
                    briefest = Some((name, left));
                }
            }
        }
        if let Some((largest, _)) = &briefest {
            let brief = self.mappings[first..].iter_mut().filter(|mapping| names.contains(&mapping.request));
            brief.for_each(|mapping| mapping.request.clone_from(largest));
        }
        for (name, count) in lasting.into_iter().flatten().chain(briefest) {
            let exactly = json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": count});
            self.requests.push(json!({"name": name, "exactly": exactly}));
            self.resources.insert(name, resource.clone());
        }
    }

    fn map(&mut self, container: &PlacedContainer<'_>, resource: &Str, request: &str) {
        let name = container.body["name"].as_str().unwrap_or_default().to_owned();
        self.mappings.push(RequestMapping { container: name, resource: resource.clone(), request: request.to_owned() });
    }
}

impl PlacedContainer<'_> {
    /// Returns the requested amount of a resource; `None` without one.
    fn amount_of(&self, resource: &str) -> Option<i64> {
        let text = &self.body["resources"]["requests"][resource];
        let amount = crate::object::Quantity::parse(text.as_str()?).ok()?.value();
        (amount > 0).then_some(amount)
    }

    /// `container-0-request-1`: the places of the container, and of the resource among its requests.
    fn request_name(&self, resource: &str) -> String {
        let requests = self.body["resources"]["requests"].as_object();
        let mut names: Vec<&String> = requests.into_iter().flat_map(|requests| requests.keys()).collect();
        names.sort();
        let place = names.iter().position(|name| *name == resource).unwrap_or_default();
        format!("container-{}-request-{place}", self.place)
    }
}
