//! Stories of built-in kinds.

use super::{NAMESPACE, Told};
use anyhow::{Context, bail, ensure};
use futures::{TryStreamExt, pin_mut};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::api::events::v1::Event as WrittenEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::core::Status;
use kube::discovery::{Discovery, Scope};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Error, Resource, ResourceExt};
use serde_json::json;

/// A ConfigMap with a label for its story.
fn map(name: &str, story: &str, value: &str) -> ConfigMap {
    let metadata = json!({"name": name, "labels": {"story": story}});
    serde_json::from_value(json!({"metadata": metadata, "data": {"k": value}})).expect("a ConfigMap")
}

/// Returns the error that the server answered with.
fn refusal<T>(answer: kube::Result<T>) -> anyhow::Result<Box<Status>> {
    match answer {
        Err(Error::Api(status)) => Ok(status),
        Err(error) => Err(error.into()),
        Ok(_) => bail!("not refused"),
    }
}

pub async fn change(client: Client) -> Told {
    let maps: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let options = PostParams::default();
    let made = maps.create(&options, &map("a", "change", "v")).await?;
    ensure!(made.uid().is_some() && made.data == map("a", "", "v").data);
    ensure!(maps.get("a").await? == made);
    let mut changed = made.clone();
    changed.data.get_or_insert_default().insert("k".into(), "w".into());
    let replaced = maps.replace("a", &options, &changed).await?;
    ensure!(replaced.resource_version() != made.resource_version());
    let status = refusal(maps.replace("a", &options, &changed).await)?;
    ensure!((status.code, status.reason.as_str()) == (409, "Conflict"), "{status:?}");
    let none = PatchParams::default();
    maps.patch("a", &none, &Patch::Merge(json!({"data": {"m": "1"}}))).await?;
    maps.patch("a", &none, &Patch::Strategic(json!({"data": {"s": "2"}}))).await?;
    let operations = serde_json::from_value(json!([{"op": "remove", "path": "/data/k"}]))?;
    let patched = maps.patch("a", &none, &Patch::Json::<()>(operations)).await?;
    ensure!(json!(patched.data) == json!({"m": "1", "s": "2"}), "{patched:?}");
    ensure!(maps.get_metadata("a").await?.uid() == made.uid());
    ensure!(maps.delete("a", &DeleteParams::default()).await?.is_right(), "a Status");
    ensure!(maps.get_opt("a").await?.is_none());
    // An entry creates an object, and replaces it.
    let entry = maps.entry("e").await?.or_insert(|| map("e", "change", "1"));
    let mut entry = entry.and_modify(|object| object.data = map("", "", "2").data);
    entry.commit(&options).await?;
    ensure!(maps.get("e").await?.data == map("", "", "2").data);
    let gone = maps.delete_collection(&DeleteParams::default(), &ListParams::default().labels("story=change")).await?;
    ensure!(gone.left().is_some_and(|list| list.items.len() == 1));
    Ok(())
}

pub async fn fail(client: Client) -> Told {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let options = PostParams::default();
    let status = refusal(maps.get("missing").await)?;
    ensure!((status.code, status.reason.as_str()) == (404, "NotFound"), "{status:?}");
    ensure!(status.message == r#"configmaps "missing" not found"#, "{status:?}");
    let status = refusal(maps.create(&options, &map("kube-root-ca.crt", "", "")).await)?;
    ensure!((status.code, status.reason.as_str()) == (409, "AlreadyExists"), "{status:?}");
    let status = refusal(maps.create(&options, &map("Bad_", "", "")).await)?;
    ensure!((status.code, status.reason.as_str()) == (422, "Invalid"), "{status:?}");
    let fields: Vec<_> = status.details.iter().flat_map(|details| &details.causes).map(|cause| &*cause.field).collect();
    ensure!(fields == ["metadata.name"], "{status:?}");
    let elsewhere: Api<ConfigMap> = Api::namespaced(client.clone(), "nowhere");
    let status = refusal(elsewhere.create(&options, &map("a", "", "")).await)?;
    ensure!(status.message == r#"namespaces "nowhere" not found"#, "{status:?}");
    let status = refusal(maps.list(&ListParams::default().fields("data.k=v")).await)?;
    ensure!((status.code, status.reason.as_str()) == (400, "BadRequest"), "{status:?}");
    let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
    let status = refusal(pods.get_subresource("nothing", "web").await)?;
    ensure!(status.code == 404 && status.message == "the server could not find the requested resource", "{status:?}");
    Ok(())
}

pub async fn list_pages(client: Client) -> Told {
    let maps: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    for number in 0..5 {
        maps.create(&PostParams::default(), &map(&format!("page-{number}"), "pages", "")).await?;
    }
    let (mut names, mut options) = (Vec::new(), ListParams::default().labels("story=pages").limit(2));
    loop {
        let page = maps.list(&options).await?;
        names.extend(page.items.iter().map(ResourceExt::name_any));
        options.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if options.continue_token.is_none() {
            break;
        }
    }
    ensure!(names == ["page-0", "page-1", "page-2", "page-3", "page-4"], "{names:?}");
    let metadata = maps.list_metadata(&ListParams::default().labels("story=pages")).await?;
    ensure!(metadata.items.len() == 5);
    Ok(())
}

/// Follows changes, beginning with a list in pages and with a list that is part of the watch.
pub async fn reflect(client: Client) -> Told {
    let maps: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let config = watcher::Config::default().labels("story=reflector");
    for (name, config) in [("paged", config.clone().page_size(1)), ("streamed", config.streaming_lists())] {
        let first = format!("{name}-0");
        maps.create(&PostParams::default(), &map(&first, "reflector", "0")).await?;
        let (reader, writer) = reflector::store::<ConfigMap>();
        let changes = watcher(maps.clone(), config).default_backoff().reflect(writer).touched_objects();
        pin_mut!(changes);
        changes.try_next().await?.context("the first object")?;
        // The store is filled while the changes are read.
        tokio::select! {
            ready = reader.wait_until_ready() => ready?,
            change = changes.try_next() => bail!("{change:?}"),
        }
        let place = ObjectRef::new(&first).within(NAMESPACE);
        ensure!(reader.get(&place).is_some());
        let second = format!("{name}-1");
        maps.create(&PostParams::default(), &map(&second, "reflector", "1")).await?;
        ensure!(changes.try_next().await?.context("the second object")?.name_any() == second);
        maps.patch(&first, &PatchParams::default(), &Patch::Merge(json!({"data": {"k": "2"}}))).await?;
        changes.try_next().await?.context("a change")?;
        ensure!(reader.get(&place).is_some_and(|object| object.data == map("", "", "2").data));
        for name in [&first, &second] {
            maps.delete(name, &DeleteParams::default()).await?;
            changes.try_next().await?.context("a deletion")?;
        }
        ensure!(reader.is_empty());
    }
    Ok(())
}

pub async fn apply(client: Client) -> Told {
    let maps: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    maps.patch(
        "applied",
        &PatchParams::apply("one"),
        &Patch::Apply(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"a": "1"},
        })),
    )
    .await?;
    // An object that exists needs no name in the body.
    let body = |value: &str| Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": value}}));
    let status = refusal(maps.patch("applied", &PatchParams::apply("two"), &body("2")).await)?;
    ensure!(status.code == 409 && status.message.contains(r#"conflict with "one""#), "{status:?}");
    let dry = maps.patch("applied", &PatchParams::apply("two").force().dry_run(), &body("2")).await?;
    ensure!(json!(dry.data) == json!({"a": "2"}));
    let applied = maps.patch("applied", &PatchParams::apply("two").force(), &body("3")).await?;
    ensure!(json!(applied.data) == json!({"a": "3"}));
    let managers: Vec<_> = applied.managed_fields().iter().filter_map(|entry| entry.manager.as_deref()).collect();
    ensure!(managers == ["two"], "{managers:?}");
    Ok(())
}

pub async fn lease(client: Client) -> Told {
    let leases: Api<Lease> = Api::namespaced(client, NAMESPACE);
    let time = |text: &str| text.parse::<Timestamp>().map(MicroTime);
    let mut lease = Lease::default();
    lease.metadata.name = Some("kube-leader".into());
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some("one".into());
    spec.lease_duration_seconds = Some(15);
    spec.renew_time = Some(time("2026-01-02T03:04:05.678901Z")?);
    let mut taken = leases.create(&PostParams::default(), &lease).await?;
    ensure!(taken.spec == lease.spec, "{taken:?}");
    taken.spec.get_or_insert_default().renew_time = Some(time("2026-01-02T03:04:06.000001Z")?);
    let renewed = leases.replace("kube-leader", &PostParams::default(), &taken).await?;
    // Another candidate has the lease as it was.
    let status = refusal(leases.replace("kube-leader", &PostParams::default(), &taken).await)?;
    ensure!(status.code == 409 && renewed.spec == taken.spec, "{status:?}");
    Ok(())
}

pub async fn record(client: Client) -> Told {
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    let reference = services.get("kubernetes").await?.object_ref(&());
    let recorder = Recorder::new(client.clone(), "kube-stories".into());
    for note in ["once", "again"] {
        let (reason, action) = ("Seen".into(), "Look".into());
        let event = Event { type_: EventType::Normal, reason, note: Some(note.into()), action, secondary: None };
        recorder.publish(&event, &reference).await?;
    }
    let events: Api<WrittenEvent> = Api::namespaced(client, NAMESPACE);
    let found = events.list(&ListParams::default().fields("reportingController=kube-stories")).await?.items;
    let [event] = found.as_slice() else { bail!("{found:?}") };
    ensure!(event.note.as_deref() == Some("once") && event.series.as_ref().is_some_and(|series| series.count == 2));
    Ok(())
}

pub async fn scale(client: Client) -> Told {
    let deployments: Api<Deployment> = Api::namespaced(client, NAMESPACE);
    await_condition(deployments.clone(), "still", conditions::is_deployment_completed()).await?;
    let to = |count: i32| Patch::Merge(json!({"spec": {"replicas": count}}));
    let scaled = deployments.patch_scale("still", &PatchParams::default(), &to(2)).await?;
    ensure!(scaled.spec.context("a spec")?.replicas == Some(2));
    let mut scale = deployments.get_scale("still").await?;
    scale.spec.get_or_insert_default().replicas = Some(1);
    // The controller changes the Deployment meanwhile.
    scale.metadata.resource_version = None;
    ensure!(deployments.replace_scale("still", &PostParams::default(), &scale).await?.metadata.name.is_some());
    let restarted = deployments.restart("still").await?;
    ensure!(restarted.spec.as_ref().is_some_and(|spec| spec.replicas == Some(1)));
    await_condition(deployments.clone(), "still", conditions::is_deployment_completed()).await?;
    // A status does not change the specification, nor the specification the status.
    let status = json!({"spec": {"replicas": 7}, "status": {"conditions": [{"type": "Kept", "status": "True"}]}});
    let patched = deployments.patch_status("still", &PatchParams::default(), &Patch::Merge(status)).await?;
    ensure!(patched.spec.is_some_and(|spec| spec.replicas == Some(1)));
    Ok(())
}

pub async fn discover(client: Client) -> Told {
    for discovery in
        [Discovery::new(client.clone()).run().await?, Discovery::new(client.clone()).run_aggregated().await?]
    {
        let kinds: Vec<_> = discovery.groups().flat_map(|group| group.recommended_resources()).collect();
        let find = |kind: &str| kinds.iter().find(|(resource, _)| resource.kind == kind);
        for kind in ["Pod", "Deployment", "Ingress", "Lease", "CustomResourceDefinition"] {
            ensure!(find(kind).is_some(), "{kind}");
        }
        let (resource, abilities) = find("Node").context("Node")?;
        ensure!(abilities.scope == Scope::Cluster);
        let nodes: Api<DynamicObject> = Api::all_with(client.clone(), resource);
        ensure!(nodes.list(&ListParams::default()).await?.items.len() == 1);
    }
    // A watch from an invalid revision.
    let maps: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let status = refusal(maps.watch(&WatchParams::default(), "first").await.map(drop))?;
    ensure!((status.code, status.reason.as_str()) == (400, "BadRequest"), "{status:?}");
    Ok(())
}
