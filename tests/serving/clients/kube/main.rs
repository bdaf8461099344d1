//! Stories of the crate `kube`. The cluster has a ready pod `web` that serves HTTP on port 8080 and has logged `ready`, a pod `reader` that
//! answers lines, and a Deployment `still`. Prints a line after each story.

mod boats;
mod objects;
mod pods;

use kube::Client;
use std::future::Future;
use std::time::Duration;

/// Time limit of a story. Only a failing one needs it.
const PATIENCE: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "default";

type Told = anyhow::Result<()>;

async fn tell(name: &str, story: impl Future<Output = Told>) -> Told {
    let told = tokio::time::timeout(PATIENCE, story).await;
    told.map_err(anyhow::Error::from).and_then(|told| told).map_err(|error| error.context(name.to_owned()))?;
    println!("{name}");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Told {
    let client = Client::try_default().await?;
    let new = || client.clone();
    tell("objects_are_created_read_changed_and_deleted", objects::change(new())).await?;
    tell("errors_name_their_reason", objects::fail(new())).await?;
    tell("pages_cover_a_list", objects::list_pages(new())).await?;
    tell("reflector_follows_changes", objects::reflect(new())).await?;
    tell("objects_are_applied", objects::apply(new())).await?;
    tell("lease_is_taken_and_renewed", objects::lease(new())).await?;
    tell("recorder_writes_events", objects::record(new())).await?;
    tell("deployment_is_scaled_and_restarted", objects::scale(new())).await?;
    tell("discovery_lists_kinds", objects::discover(new())).await?;
    tell("commands_run_in_pods", pods::exec(new())).await?;
    tell("streams_are_attached", pods::attach(new())).await?;
    tell("ports_are_forwarded", pods::forward(new())).await?;
    tell("logs_are_read_and_followed", pods::log(new())).await?;
    tell("pod_is_awaited_and_evicted", pods::evict(new())).await?;
    tell("custom_kind_has_subresources", boats::define(new())).await?;
    tell("finalizer_holds_an_object", boats::finalize(new())).await?;
    tell("controller_reconciles_objects", boats::control(new())).await
}
