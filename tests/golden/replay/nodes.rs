//! The nodes of the recordings, as simulated nodes.

use serde_json::{Value, json};

/// Returns their manifests as one List.
pub fn manifests() -> String {
    let nodes = [node("node-a", "4", "8Gi", "z1", true), node("node-b", "4", "8Gi", "z1", false)];
    let nodes: Vec<Value> = nodes.into_iter().chain([node("node-c", "2", "4Gi", "z2", false)]).collect();
    json!({"apiVersion": "v1", "kind": "List", "items": nodes}).to_string()
}

/// Prepares the nodes of two recordings, which set a Ready condition, 2 cpu, 4Gi and 10 pods, and removed the taints.
pub fn prepare(cluster: &super::cluster::Cluster, said: &str) {
    let offers = json!({"cpu": "2", "memory": "4Gi", "pods": "10"});
    let since = "2026-01-01T00:00:00Z";
    let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok",
        "lastHeartbeatTime": since, "lastTransitionTime": since});
    let status = json!({"status": {"capacity": offers, "allocatable": offers, "conditions": [ready]}});
    for name in said.lines().filter_map(|line| line.strip_prefix("node/")?.strip_suffix(" created")) {
        cluster.run(&format!("kubectl patch node {name} --subresource=status -p '{status}'"), "");
        // A simulated node without a status would set its own.
        cluster.run(&format!("kubectl annotate node {name} kloop.dev/runtime=simulated"), "");
        cluster.run(&format!("kubectl taint node {name} node.kubernetes.io/not-ready-"), "");
    }
}

fn node(name: &str, cpu: &str, memory: &str, zone: &str, ssd: bool) -> Value {
    let mut labels = json!({
        "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": zone,
    });
    if ssd {
        labels["disk"] = "ssd".into();
    }
    let offers = json!({"cpu": cpu, "memory": memory, "ephemeral-storage": "100Gi", "pods": "110"});
    let since = "2026-01-01T00:00:00Z";
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": format!("kubelet {message}"),
            "lastHeartbeatTime": since, "lastTransitionTime": since})
    };
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {
            "kloop.dev/runtime": "simulated", "kloop.dev/simulate-missing": "ignore", "node.alpha.kubernetes.io/ttl": "0",
        }},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.0.0.97"}, {"type": "Hostname", "address": name}],
            "allocatable": offers, "capacity": offers,
            "conditions": [
                condition("Ready", "True", "KubeletReady", "is posting ready status"),
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "has sufficient memory available"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "has no disk pressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID", "has sufficient PID available"),
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": {
                "architecture": "amd64", "bootID": "b", "containerRuntimeVersion": "fake://1.0", "kernelVersion": "6.1.0",
                "kubeProxyVersion": "", "kubeletVersion": "v1.36.2", "machineID": "m", "operatingSystem": "linux",
                "osImage": "Debian GNU/Linux 12", "systemUUID": "s",
            },
        },
    })
}
