//! Stories of a custom kind.

use super::{NAMESPACE, Told};
use anyhow::{Context as _, bail, ensure};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{Event, finalizer};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, CustomResource, CustomResourceExt, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const FINALIZER: &str = "sea.example.com/held";

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "sea.example.com",
    version = "v1",
    kind = "Vessel",
    namespaced,
    status = "VesselStatus",
    shortname = "vs"
)]
#[kube(scale(spec_replicas_path = ".spec.size", status_replicas_path = ".status.afloat"))]
#[kube(printcolumn = r#"{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}"#)]
struct VesselSpec {
    #[schemars(range(min = 0, max = 9))]
    size: i32,
    cargo: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct VesselStatus {
    afloat: i32,
}

fn vessel(name: &str, size: i32) -> Vessel {
    Vessel::new(name, VesselSpec { size, cargo: None })
}

pub async fn define(client: Client) -> Told {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = Vessel::crd_name();
    definitions.patch(name, &PatchParams::apply("stories").force(), &Patch::Apply(Vessel::crd())).await?;
    await_condition(definitions, name, conditions::is_crd_established()).await?;
    let vessels: Api<Vessel> = Api::namespaced(client, NAMESPACE);
    let options = PostParams::default();
    // The status in a request for a new object is dropped.
    let mut new = vessel("v", 2);
    new.status = Some(VesselStatus { afloat: 9 });
    ensure!(vessels.create(&options, &new).await?.status.is_none());
    let refused = vessels.create(&options, &vessel("huge", 10)).await;
    ensure!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 422), "{refused:?}");
    let status = json!({"spec": {"size": 7}, "status": {"afloat": 1}});
    let changed = vessels.patch_status("v", &PatchParams::default(), &Patch::Merge(status)).await?;
    ensure!(changed.spec.size == 2 && changed.status.is_some_and(|status| status.afloat == 1));
    let mut current = vessels.get_status("v").await?;
    current.status = Some(VesselStatus { afloat: 2 });
    vessels.replace_status("v", &options, &current).await?;
    let scale = vessels.get_scale("v").await?;
    ensure!(scale.spec.and_then(|spec| spec.replicas) == Some(2) && scale.status.context("a status")?.replicas == 2);
    vessels.patch_scale("v", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 3}}))).await?;
    let changed = vessels.get("v").await?;
    ensure!((changed.spec.size, changed.metadata.generation) == (3, Some(2)), "{changed:?}");
    vessels.delete("v", &DeleteParams::default()).await?;
    Ok(())
}

pub async fn finalize(client: Client) -> Told {
    let vessels: Api<Vessel> = Api::namespaced(client, NAMESPACE);
    let options = PostParams::default();
    for others in [vec![], vec!["sea.example.com/other".to_owned()]] {
        let mut new = vessel("held", 1);
        new.metadata.finalizers = Some(others.clone());
        let mut object = vessels.create(&options, &new).await?;
        let reconcile = async |object: Vessel| {
            let act = |event: Event<Vessel>| async move {
                let is_right = match event {
                    Event::Apply(object) => object.metadata.deletion_timestamp.is_none(),
                    Event::Cleanup(object) => object.metadata.deletion_timestamp.is_some(),
                };
                if is_right { Ok(Action::await_change()) } else { Err(std::fmt::Error) }
            };
            finalizer(&vessels, FINALIZER, Arc::new(object), act).await
        };
        reconcile(object).await?;
        object = vessels.get("held").await?;
        ensure!(object.finalizers().iter().any(|name| name == FINALIZER), "{object:?}");
        reconcile(object).await?;
        ensure!(vessels.delete("held", &DeleteParams::foreground()).await?.is_left(), "it is held");
        reconcile(vessels.get("held").await?).await?;
        let left = vessels.get_opt("held").await?;
        ensure!(left.as_ref().map_or(&[][..], |object| object.finalizers()) == others, "{left:?}");
        if left.is_some() {
            let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            vessels.patch("held", &PatchParams::default(), &none).await?;
        }
        ensure!(vessels.get_opt("held").await?.is_none());
    }
    Ok(())
}

/// Keeps a ConfigMap for each vessel.
async fn reconcile(object: Arc<Vessel>, client: Arc<Client>) -> kube::Result<Action> {
    let maps: Api<ConfigMap> = Api::namespaced((*client).clone(), NAMESPACE);
    let mut map = ConfigMap::default();
    map.metadata.name = Some(object.name_any());
    map.metadata.owner_references = object.controller_owner_ref(&()).map(|owner| vec![owner]);
    map.data = Some([("size".to_owned(), object.spec.size.to_string())].into());
    maps.patch(&object.name_any(), &PatchParams::apply("controller").force(), &Patch::Apply(map)).await?;
    Ok(Action::await_change())
}

pub async fn control(client: Client) -> Told {
    let vessels: Api<Vessel> = Api::namespaced(client.clone(), NAMESPACE);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let controller = Controller::new(vessels.clone(), watcher::Config::default())
        .owns(maps.clone(), watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(100)), Arc::new(client))
        .for_each(|_| std::future::ready(()));
    let story = async {
        let has_size = |size: &'static str| {
            move |map: Option<&ConfigMap>| {
                map.is_some_and(|map| map.data.as_ref().is_some_and(|data| data["size"] == size))
            }
        };
        vessels.create(&PostParams::default(), &vessel("kept", 4)).await?;
        await_condition(maps.clone(), "kept", has_size("4")).await?;
        vessels.patch("kept", &PatchParams::default(), &Patch::Merge(json!({"spec": {"size": 5}}))).await?;
        await_condition(maps.clone(), "kept", has_size("5")).await?;
        // The owned object is created again, and deleted with its owner.
        let uid = maps.get("kept").await?.uid().context("a uid")?;
        maps.delete("kept", &DeleteParams::default()).await?;
        let is_new = |map: Option<&ConfigMap>| map.is_some_and(|map| map.metadata.uid.as_ref() != Some(&uid));
        await_condition(maps.clone(), "kept", is_new).await?;
        let uid = maps.get("kept").await?.uid().context("a uid")?;
        vessels.delete("kept", &DeleteParams::default()).await?;
        await_condition(maps.clone(), "kept", conditions::is_deleted(&uid)).await?;
        anyhow::Ok(())
    };
    tokio::select! {
        () = controller => bail!("the controller has ended"),
        told = story => told,
    }
}
