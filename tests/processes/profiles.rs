//! Profiles of the scheduler, from a Kubernetes scheduler configuration.

use super::pod;
use crate::cluster::Cluster;
use std::fs;

#[test]
fn pods_are_placed_by_the_profile_that_they_ask_for() {
    let cluster = Cluster::new();
    for node in ["a", "b"] {
        cluster.ok(&format!("node add {node} --cpu 4 --memory 8Gi --label zone={node} --simulated"));
    }
    let file = cluster.home().join("scheduler.yaml");
    let affinity = "{requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [\
        {matchExpressions: [{key: zone, operator: In, values: [b]}]}]}}";
    let config = format!(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: default-scheduler\n\
         - schedulerName: in-b\n  pluginConfig: [{{name: NodeAffinity, args: {{addedAffinity: {affinity}}}}}]\n"
    );
    fs::write(&file, config.replace("addedAffinity", "more")).unwrap();
    let path = file.display().to_string();
    let refused = cluster.run(&["reconcile", "--no-local-node", "--scheduler-config", &path], "");
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(
        refused.err.contains("scheduler.yaml: profiles[1].pluginConfig[0].args.more: not supported"),
        "{}",
        refused.err
    );
    fs::write(&file, config).unwrap();
    let _plane = cluster.watch_with(&["--no-local-node", "--scheduler-config", &path]);
    let named = |name: &str, scheduler: &str| {
        pod(name, "Always", 1, "sleep 1000").replace("spec:\n", &format!("spec:\n  schedulerName: {scheduler}\n"))
    };
    for name in ["one", "two", "three"] {
        cluster.apply(&named(name, "in-b"));
        cluster.until_reads(&format!("pod/{name}"), "{.spec.nodeName}", "b");
    }
    cluster.until("the profile's event exists", || {
        let told =
            cluster.ok("get events --field-selector reason=Scheduled -o jsonpath={.items[*].reportingComponent}");
        told.contains("in-b")
    });
    cluster.apply(&named("stray", "nobody"));
    let said = cluster.kloop("why pod/stray");
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    assert!(said.out.contains("no scheduler is named \"nobody\"; known: default-scheduler, in-b"), "{}", said.out);
    assert_eq!(cluster.read("pod/stray", "{.spec.nodeName}{.status.conditions}"), "");
}
