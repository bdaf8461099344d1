//! Devices: a pod gets one with its claim, and another pod waits until it is free.

use crate::cluster::Cluster;

#[test]
fn device_goes_from_pod_to_pod() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    cluster.ok("node add node-a --cpu 4 --memory 8Gi --simulated");
    cluster.apply(include_str!("../../fixtures/devices.yaml"));
    let phase = |pod: &str| cluster.read(&format!("pod/{pod}"), "{.status.phase}");
    cluster.until("one pod runs", || phase("first") == "Running" || phase("second") == "Running");
    let (one, other) = if phase("first") == "Running" { ("first", "second") } else { ("second", "first") };
    let why = "{.status.conditions[?(@.type=='PodScheduled')].message}";
    let waiting = format!("pod/{other}");
    cluster.until("the other waits", || cluster.read(&waiting, why).contains("cannot allocate all claims"));
    let name = cluster.read(&format!("pod/{one}"), "{.status.resourceClaimStatuses[0].resourceClaimName}");
    let claim = format!("resourceclaim/{name}");
    assert_eq!(cluster.read(&claim, "{.status.allocation.devices.results[0].device}"), "gpu-0");
    assert_eq!(cluster.read(&claim, "{.status.reservedFor[0].name}"), one);
    assert_eq!(cluster.read(&claim, "{.metadata.finalizers[0]}"), "resource.kubernetes.io/delete-protection");
    assert!(cluster.kloop(&format!("why {waiting}")).out.contains("DynamicResources: cannot allocate all claims"));
    cluster.ok(&format!("delete pod {one}"));
    cluster.until_reads(&waiting, "{.status.phase}", "Running");
    cluster.until("its claim is gone", || cluster.kloop(&format!("get {claim}")).code == 1);
}
