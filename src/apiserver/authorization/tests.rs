use super::testing::request;
use super::*;
use crate::apiserver::user::User;
use crate::apiserver::{Api, WriteOptions, create::create};
use crate::kinds;
use crate::object::{Object, yaml};
use std::collections::BTreeMap;

fn cluster(objects: &str) -> Api {
    let mut api = Api::in_memory("test").unwrap();
    for document in yaml::documents(objects).unwrap() {
        let object = Object(document.value);
        let kind = kinds::by_kind(object.api_version(), object.kind()).unwrap();
        api.write(false, |txn| create(txn, kind, &object, &WriteOptions::default())).unwrap();
    }
    api
}

fn user(name: &str) -> User {
    User::impersonated(name, "", &[], BTreeMap::new())
}

fn decide(api: &mut Api, user: &User, text: &str) -> AccessDecision {
    api.read_view(|txn| authorize(txn, user, &request(text))).unwrap()
}

const READER: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: default}
rules:
- {apiGroups: [""], resources: [pods, pods/log], verbs: [get, list]}
- {apiGroups: [""], resources: [secrets], resourceNames: [web], verbs: [get]}
- {apiGroups: [apps], resources: ["*/scale"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reads, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects:
- {kind: User, name: ann}
- {kind: Group, name: dev}
- {kind: ServiceAccount, name: bot, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: lost}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: gone}
subjects: [{kind: User, name: bob}]
"#;

#[test]
fn rules_allow_exactly_what_they_name() {
    let mut api = cluster(READER);
    for (text, expected) in [
        ("get pods web in default", true),
        ("get pods/log web in default", true),
        ("get pods/exec web in default", false),
        ("delete pods web in default", false),
        ("get pods web in other", false),
        ("list pods", false),
        ("get secrets web in default", true),
        ("get secrets other in default", false),
        ("list secrets in default", false),
        ("update deployments/scale.apps web in default", true),
        ("update deployments.apps web in default", false),
        ("get /healthz", true),
        ("get /apis/apps/v1", true),
        ("get /metrics", false),
        ("create selfsubjectaccessreviews.authorization.k8s.io", true),
    ] {
        assert_eq!(decide(&mut api, &user("ann"), text).is_allowed, expected, "{text}");
    }
}

#[test]
fn subjects_are_users_groups_and_service_accounts() {
    let mut api = cluster(READER);
    let dev = User::impersonated("eve", "", &["dev".to_owned()], BTreeMap::new());
    for (user, expected) in [
        (user("ann"), true),
        (dev, true),
        (user("system:serviceaccount:default:bot"), true),
        (user("system:serviceaccount:other:bot"), false),
        (user("bob"), false),
        (User::administrator(), true),
    ] {
        assert_eq!(decide(&mut api, &user, "list pods in default").is_allowed, expected, "{}", user.name);
    }
}

#[test]
fn decision_names_its_rule_or_the_missing_role() {
    let mut api = cluster(READER);
    let bot = decide(&mut api, &user("system:serviceaccount:default:bot"), "list pods in default");
    let reason = r#"RBAC: allowed by RoleBinding "reads/default" of Role "reader" to ServiceAccount "bot/default""#;
    assert_eq!(bot.reason, reason);
    let bob = decide(&mut api, &user("bob"), "list pods in default");
    assert_eq!(bob.reason, r#"RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found"#);
    let refused = refusal(&request("list pods in default"), &user("bob"), "");
    let text =
        r#"pods is forbidden: User "bob" cannot list resource "pods" in API group "" in the namespace "default""#;
    assert_eq!(refused.message, text);
    let refused = refusal(&request("get /metrics"), &user("bob"), "");
    assert_eq!(refused.message, r#"forbidden: User "bob" cannot get path "/metrics""#);
}

#[test]
fn default_roles_include_what_they_aggregate() {
    let mut api = cluster(
        r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: views, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: User, name: ann}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: rules, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{kind: User, name: bob}]
"#,
    );
    for (name, text, expected) in [
        ("ann", "list deployments.apps in default", true),
        ("ann", "get secrets a in default", false),
        ("ann", "create pods in default", false),
        ("bob", "list deployments.apps in default", true),
        ("bob", "get secrets a in default", true),
        ("bob", "create rolebindings.rbac.authorization.k8s.io in default", true),
        ("bob", "create resourcequotas in default", false),
    ] {
        assert_eq!(decide(&mut api, &user(name), text).is_allowed, expected, "{name}: {text}");
    }
}

#[test]
fn impersonated_user_gets_the_groups_of_the_account() {
    let bot = user("system:serviceaccount:shop:bot");
    assert_eq!(bot.groups, ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"]);
    assert_eq!(user("system:anonymous").groups, ["system:unauthenticated"]);
    let jane = User::impersonated("jane", "", &["devs".to_owned()], BTreeMap::new());
    assert_eq!(jane.groups, ["devs", "system:authenticated"]);
}
