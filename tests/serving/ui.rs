//! The page at `/ui`, and its requests.

use super::endpoints::{ask, bearer};
use super::{JSON, Server};
use crate::cluster::Cluster;
use serde_json::{Value, json};

#[test]
fn page_needs_no_token_and_its_data_does() {
    let cluster = Cluster::new();
    cluster.ok("create serviceaccount bot");
    cluster.ok("create role reader --verb=get,list,watch --resource=pods");
    cluster.ok("create rolebinding bot --role=reader --serviceaccount=default:bot");
    let token = cluster.ok("create token bot");
    let server = Server::start(&cluster, &[]);
    for path in ["/ui", "/ui/"] {
        let page = ask(&server, path, &[]);
        assert_eq!((page.code, page.header("content-type")), (200, "text/html; charset=utf-8"));
        let policy = page.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
        assert!(String::from_utf8(page.body).unwrap().contains("<script>"));
        assert_eq!(ask(&server, path, &[("Authorization", "Bearer wrong")]).code, 401);
    }
    for path in ["/ui/watch", "/ui/text?verb=why&object=pods/a", "/ui/other"] {
        assert_eq!(ask(&server, path, &[]).code, 401, "{path}");
        let bot = format!("Bearer {}", token.trim());
        assert_eq!(ask(&server, path, &[("Authorization", &bot)]).code, 403, "{path}");
    }
    let own = bearer(&server);
    for (path, code) in [
        ("/ui/other", 404),
        ("/ui/text?verb=delete&object=pods/a", 400),
        ("/ui/text?verb=why&object=--state=/x/y", 400),
        ("/ui/text?verb=why&object=pods/a&namespace=-A", 400),
        ("/ui/plan", 405),
    ] {
        assert_eq!(ask(&server, path, &[("Authorization", &own)]).code, code, "{path}");
    }
}

#[test]
fn page_gets_rows_as_they_change_texts_and_plans() {
    let cluster = Cluster::new();
    cluster.ok("create deployment web --image=busybox");
    let server = Server::start(&cluster, &[]);
    let mut lines = server.lines("/ui/watch").filter(|line| !line.is_empty());
    let mut next = || -> Value { serde_json::from_str(&lines.next().expect("a line")).expect("JSON") };
    let ready = |line: &Value| {
        let mut rows = line["rows"].as_array().expect("rows").iter();
        rows.find(|row| row["id"] == "deployments.apps/default/web").map(|row| row["ready"].clone())
    };
    let first = next();
    assert_eq!((&first["reset"], ready(&first)), (&json!(true), Some(json!("0/1"))), "{first}");
    cluster.ok("scale deployment web --replicas=3");
    // The server writes, too, when it starts.
    let later = (0..20).map(|_| next()).find(|line| ready(line).is_some()).expect("a change");
    assert_eq!((&later["reset"], ready(&later)), (&json!(false), Some(json!("0/3"))), "{later}");
    let describe = "/ui/text?verb=describe&object=deployments.apps/web&namespace=default";
    let own = bearer(&server);
    let text = ask(&server, describe, &[("Authorization", &own)]);
    assert!(text.code == 200 && String::from_utf8(text.body).unwrap().starts_with("Name:  "));
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}).to_string();
    let (code, plan) = server.ask("POST", "/ui/plan", "application/yaml", &manifest);
    assert_eq!((code, &plan["created"]), (200, &json!(["configmaps default/a"])), "{plan}");
    let (code, refused) = server.ask("POST", "/ui/plan", JSON, "{\"kind\": \"Nothing\"}");
    assert_eq!(code, 400, "{refused}");
}
