//! Stories of the crate `kube`. The cluster has a ready pod `web` that serves HTTP on port 8080 and has logged `ready`, a pod `reader` that
//! answers lines, and a Deployment `still`. Prints a line after each story.

mod boats;
mod objects;
mod pods;

use kube::Client;
use std::future::Future;
use std::time::Duration;

/// Time limit of a story. Only a failing one needs it.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "default";

type Told = anyhow::Result<()>;

async fn run_story(name: &str, story: impl Future<Output = Told>) -> Told {
    let told = tokio::time::timeout(WAIT_TIMEOUT, story).await;
    told.map_err(anyhow::Error::from).and_then(|told| told).map_err(|error| error.context(name.to_owned()))?;
    println!("{name}");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Told {
    let client = Client::try_default().await?;
    let new = || client.clone();
    run_story("objects_are_created_read_changed_and_deleted", objects::change(new())).await?;
    run_story("errors_name_their_reason", objects::fail(new())).await?;
    run_story("pages_cover_a_list", objects::list_pages(new())).await?;
    run_story("reflector_follows_changes", objects::reflect(new())).await?;
    run_story("objects_are_applied", objects::apply(new())).await?;
    run_story("lease_is_taken_and_renewed", objects::lease(new())).await?;
    run_story("recorder_writes_events", objects::record(new())).await?;
    run_story("deployment_is_scaled_and_restarted", objects::scale(new())).await?;
    run_story("discovery_lists_kinds", objects::discover(new())).await?;
    run_story("commands_run_in_pods", pods::exec(new())).await?;
    run_story("streams_are_attached", pods::attach(new())).await?;
    run_story("ports_are_forwarded", pods::forward(new())).await?;
    run_story("logs_are_read_and_followed", pods::log(new())).await?;
    run_story("pod_is_awaited_and_evicted", pods::evict(new())).await?;
    run_story("custom_kind_has_subresources", boats::define(new())).await?;
    run_story("finalizer_holds_an_object", boats::finalize(new())).await?;
    run_story("controller_reconciles_objects", boats::control(new())).await
}
