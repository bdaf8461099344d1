//! RBAC over HTTP: tokens of service accounts, impersonation, reviews, and escalation: users can grant only permissions that they have.

use super::endpoints::{ask, bearer};
use super::{JSON, Server};
use crate::cluster::Cluster;
use serde_json::{Value, json};

const MERGE: &str = "application/merge-patch+json";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";

/// A cluster whose account `bot` may read pods and write roles.
fn cluster() -> Cluster {
    let cluster = Cluster::new();
    cluster.ok("create serviceaccount bot");
    cluster.ok("create role reader --verb=get,list,watch --resource=pods");
    cluster.ok("create role makes --verb=create,update --resource=roles");
    for role in ["reader", "makes"] {
        cluster.ok(&format!("create rolebinding bot-{role} --role={role} --serviceaccount=default:bot"));
    }
    cluster
}

#[test]
fn creation_by_another_verb_needs_the_right_to_create() {
    let cluster = cluster();
    cluster.ok("create role changes --verb=get,patch,update --resource=configmaps,services");
    cluster.ok("create rolebinding bot-changes --role=changes --serviceaccount=default:bot");
    let server = Server::start(&cluster, &[]);
    let bot = [("Impersonate-User", "system:serviceaccount:default:bot")];
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}).to_string();
    let path = "/api/v1/namespaces/default/configmaps/a?fieldManager=test";
    let apply = || server.ask_with("PATCH", path, "application/apply-patch+yaml", &map, &bot);
    assert_eq!(apply().0, 403);
    cluster.ok("create configmap a");
    assert_eq!(apply().0, 200);
    let ports = json!([{"port": 80}]);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": ports}});
    let path = "/api/v1/namespaces/default/services/s";
    assert_eq!(server.ask_with("PUT", path, JSON, &service.to_string(), &bot).0, 403);
    assert_eq!(server.ask("PUT", path, JSON, &service.to_string()).0, 201);
}

fn message(body: &[u8]) -> String {
    serde_json::from_slice::<Value>(body).expect("JSON")["message"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn service_account_may_do_what_its_roles_say() {
    let cluster = cluster();
    let token = cluster.ok("create token bot");
    let server = Server::start(&cluster, &[]);
    let own = format!("Bearer {}", token.trim());
    let get = |path: &str| ask(&server, path, &[("Authorization", &own)]);
    for (path, code) in [
        ("/api/v1/namespaces/default/pods", 200),
        ("/api/v1/namespaces/default/pods/none", 404),
        ("/api/v1/namespaces/default/pods/none/log", 403),
        ("/api/v1/namespaces/default/secrets", 403),
        ("/api/v1/namespaces/kube-system/pods", 403),
        ("/api/v1/pods", 403),
        ("/api", 200),
        ("/metrics", 403),
    ] {
        assert_eq!(get(path).code, code, "{path}");
    }
    let text = message(&get("/api/v1/namespaces/default/secrets?watch=true").body);
    let user = "User \"system:serviceaccount:default:bot\"";
    let place = "in API group \"\" in the namespace \"default\"";
    assert_eq!(text, format!("secrets is forbidden: {user} cannot watch resource \"secrets\" {place}"));
    cluster.ok("delete rolebinding bot-reader");
    assert_eq!(get("/api/v1/namespaces/default/pods").code, 403);
}

#[test]
fn administrator_acts_as_other_users() {
    let cluster = cluster();
    let server = Server::start(&cluster, &[]);
    let token = bearer(&server);
    let pods = "/api/v1/namespaces/default/pods";
    let get = |headers: &[(&str, &str)]| {
        let all: Vec<(&str, &str)> = [("Authorization", token.as_str())].iter().chain(headers).copied().collect();
        ask(&server, pods, &all)
    };
    assert_eq!(get(&[("Impersonate-User", "system:serviceaccount:default:bot")]).code, 200);
    assert_eq!(get(&[("Impersonate-User", "ann")]).code, 403);
    assert_eq!(get(&[("Impersonate-User", "ann"), ("Impersonate-Group", "system:masters")]).code, 200);
    assert_eq!(get(&[("Impersonate-Group", "dev")]).code, 400, "a group without a user");
    // An account may act as others only where a rule says so.
    let bot = format!("Bearer {}", cluster.ok("create token bot").trim());
    let as_ann = ask(&server, pods, &[("Authorization", &bot), ("Impersonate-User", "ann")]);
    let user = "User \"system:serviceaccount:default:bot\"";
    let why = "cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" in the namespace \"default\"";
    assert_eq!((as_ann.code, message(&as_ann.body)), (403, format!("pods is forbidden: {user} {why}")));
    cluster.ok("create clusterrole actor --verb=impersonate --resource=users");
    cluster.ok("create clusterrolebinding actor --clusterrole=actor --serviceaccount=default:bot");
    cluster.ok("create rolebinding ann --clusterrole=view --user=ann");
    assert_eq!(ask(&server, pods, &[("Authorization", &bot), ("Impersonate-User", "ann")]).code, 200);
}

#[test]
fn account_acts_as_others_for_single_requests() {
    let cluster = cluster();
    let server = Server::start(&cluster, &[]);
    let bot = format!("Bearer {}", cluster.ok("create token bot").trim());
    let pods = "/api/v1/namespaces/default/pods";
    let code = |path: &str, headers: &[(&str, &str)]| {
        let all: Vec<(&str, &str)> = [("Authorization", bot.as_str())].iter().chain(headers).copied().collect();
        ask(&server, path, &all).code
    };
    let rule = |verb: &str, group: &str, resource: &str| json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
    let identity = "authentication.k8s.io";
    let rules = json!([
        rule("impersonate-on:user-info:list", "", "pods"),
        rule("impersonate:user-info", identity, "users"),
        rule("impersonate:user-info", identity, "groups"),
        rule("impersonate-on:arbitrary-node:get", "", "nodes"),
        rule("impersonate:arbitrary-node", identity, "nodes"),
        rule("impersonate-on:serviceaccount:list", "", "pods"),
        rule("impersonate:serviceaccount", identity, "serviceaccounts"),
    ]);
    let version = "rbac.authorization.k8s.io/v1";
    cluster.apply(
        &json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": "actor"}, "rules": rules})
            .to_string(),
    );
    cluster.ok("create clusterrolebinding actor --clusterrole=actor --serviceaccount=default:bot");
    cluster.ok("create rolebinding ann --clusterrole=view --user=ann");
    for (path, headers, expected) in [
        (pods, &[("Impersonate-User", "ann")][..], 200),
        ("/api/v1/namespaces/default/services", &[("Impersonate-User", "ann")], 403),
        (pods, &[("Impersonate-User", "ann"), ("Impersonate-Group", "dev")], 200),
        (pods, &[("Impersonate-User", "ann"), ("Impersonate-Group", "system:masters")], 403),
        (pods, &[("Impersonate-User", "ann"), ("Impersonate-Uid", "1")], 403),
        // A node gets the groups of nodes.
        ("/api/v1/nodes/a", &[("Impersonate-User", "system:node:a")], 404),
        ("/api/v1/nodes/b", &[("Impersonate-User", "system:node:a")], 403),
        (pods, &[("Impersonate-User", "system:serviceaccount:default:bot")], 200),
        (pods, &[("Impersonate-User", "system:serviceaccount:default:bot"), ("Impersonate-Group", "dev")], 403),
    ] {
        assert_eq!(code(path, headers), expected, "{path} {headers:?}");
    }
}

#[test]
fn nobody_gives_rights_that_they_lack() {
    let cluster = cluster();
    let server = Server::start(&cluster, &[]);
    let create = |name: &str, resource: &str| {
        let rules = json!([{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}]);
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules,
        });
        let bot = [("Impersonate-User", "system:serviceaccount:default:bot")];
        server.ask_with("POST", ROLES, JSON, &role.to_string(), &bot)
    };
    let (code, refused) = create("more", "secrets");
    let groups = "[\"system:serviceaccounts\" \"system:serviceaccounts:default\" \"system:authenticated\"]";
    let text = format!(
        "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"system:serviceaccount:default:bot\" (groups={groups}) is \
         attempting to grant RBAC permissions not currently held:\n{{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}}"
    );
    assert_eq!((code, refused["message"].as_str()), (403, Some(text.as_str())));
    assert_eq!(create("less", "pods").0, 201);
}

/// A label makes a role part of an aggregated one: also an update that leaves the rules alone gives rights.
#[test]
fn role_is_labelled_only_by_users_who_hold_its_rights() {
    let cluster = cluster();
    let server = Server::start(&cluster, &[]);
    cluster
        .ok("create clusterrole role-editor --verb=get,update,patch --resource=clusterroles.rbac.authorization.k8s.io");
    cluster.ok("create clusterrolebinding ann --clusterrole=role-editor --user=ann");
    let patch = |role: &str, patch: Value| {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}");
        server.ask_with("PATCH", &path, MERGE, &patch.to_string(), &[("Impersonate-User", "ann")])
    };
    let labels = json!({"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}});
    let (code, refused) = patch("cluster-admin", labels.clone());
    assert_eq!(code, 403, "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("attempting to grant RBAC permissions not currently held"));
    let (code, refused) = patch("view", labels.clone());
    assert_eq!(code, 403, "{refused}");
    assert_eq!(patch("role-editor", labels).0, 200);
    // The garbage collector's fields give no rights.
    assert_eq!(patch("cluster-admin", json!({"metadata": {"finalizers": ["example.com/a"]}})).0, 200);
    let rule = json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}});
    let (code, refused) = patch("role-editor", rule);
    let text = "clusterroles.rbac.authorization.k8s.io \"role-editor\" is forbidden: must have cluster-admin privileges to use the \
                aggregationRule";
    assert_eq!((code, refused["message"].as_str()), (403, Some(text)));
}
