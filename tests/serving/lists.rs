//! Long lists, which are written in pieces.

use super::endpoints::{ask, bearer};
use super::{JSON, MAPS, Server, map, told};
use crate::cluster::Cluster;
use flate2::read::GzDecoder;
use kloop::serve::protobuf::{PROTOBUF, decode_document};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// This many objects of this length exceed the buffers of sockets and server for a client that does not read.
const COUNT: usize = 80;
const LENGTH: usize = 200_000;

fn fill(server: &Server<'_>, length: usize) {
    for number in 0..COUNT {
        let (code, made) = server.ask("POST", MAPS, JSON, &map(&format!("m-{number:02}"), &"x\"{".repeat(length / 3)));
        assert_eq!(code, 201, "{made}");
    }
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().expect("items").iter();
    items.map(|item| item["metadata"]["name"].as_str().expect("a name").to_owned()).collect()
}

fn expected() -> Vec<String> {
    (0..COUNT).map(|number| format!("m-{number:02}")).collect()
}

#[test]
fn long_list_is_equal_in_every_form() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    fill(&server, 30_000);
    let list = server.get(MAPS);
    assert_eq!((names(&list), &list["kind"]), (expected(), &json!("ConfigMapList")));
    assert_eq!(list["items"][0]["kind"], Value::Null);
    assert_eq!(list["items"][7], {
        let mut one = server.get(&format!("{MAPS}/m-07"));
        one.as_object_mut().expect("an object").retain(|name, _| !["kind", "apiVersion"].contains(&name.as_str()));
        one
    });
    let token = bearer(&server);
    let get =
        |path: &str, headers: &[(&str, &str)]| ask(&server, path, &[&[("Authorization", &*token)], headers].concat());
    let pretty = get(&format!("{MAPS}?pretty=true"), &[]).text();
    assert!(pretty == serde_json::to_string_pretty(&list).expect("text") + "\n", "the text of the values");
    let packed = get(MAPS, &[("Accept-Encoding", "gzip")]);
    let mut text = String::new();
    GzDecoder::new(&packed.body[..]).read_to_string(&mut text).expect("gzip");
    assert!(serde_json::from_str::<Value>(&text).expect("JSON") == list);
    let table = get(MAPS, &[("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")]);
    let table: Value = serde_json::from_slice(&table.body).expect("JSON");
    let cells = table["rows"].as_array().expect("rows").iter().map(|row| row["cells"][0].as_str().unwrap_or_default());
    assert_eq!(cells.collect::<Vec<_>>(), expected());
    assert_eq!(table["metadata"]["resourceVersion"], list["metadata"]["resourceVersion"]);
    let metadata = get(MAPS, &[("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")]);
    let metadata: Value = serde_json::from_slice(&metadata.body).expect("JSON");
    assert_eq!((names(&metadata), &metadata["items"][0]["kind"]), (expected(), &json!("PartialObjectMetadata")));
    assert_eq!(metadata["items"][0]["data"], Value::Null);
    let encoded = get(MAPS, &[("Accept", PROTOBUF)]).body;
    assert_eq!(names(&decode_document(&encoded, "", "").expect("protobuf")), expected());
    // The second one consists of items that were encoded for the first one.
    assert!(get(MAPS, &[("Accept", PROTOBUF)]).body == encoded);
    let some = server.get(&format!("{MAPS}?fieldSelector=metadata.name%3Dm-55"));
    assert_eq!(names(&some), ["m-55"]);
    let none = get(&format!("{MAPS}?labelSelector=a%3Db&pretty=true"), &[]).text();
    assert!(none.contains("\"items\": [],\n"), "{none}");
}

#[test]
fn limited_and_yaml_lists_are_written_in_pieces() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    fill(&server, 30_000);
    let token = bearer(&server);
    let get = |query: &str, accept: &str| {
        ask(&server, &format!("{MAPS}?{query}"), &[("Authorization", &*token), ("Accept", accept)])
    };
    let whole = server.get(MAPS);
    let yaml = get("", "application/yaml");
    let text = yaml.text();
    // Only a body of unknown length is chunked.
    assert_eq!((yaml.header("transfer-encoding"), yaml.header("content-type")), ("chunked", "application/yaml"));
    assert!(serde_yaml::from_str::<Value>(&text).expect("YAML") == whole);
    for accept in [JSON, "application/yaml", "application/json;as=Table;g=meta.k8s.io;v=v1"] {
        let (mut found, mut query) = (Vec::new(), "limit=50".to_owned());
        for left in [Some(30), None] {
            let page: Value = serde_yaml::from_str(&get(&query, accept).text()).expect("a list");
            let items = page["items"].as_array().or(page["rows"].as_array()).expect("items");
            let name =
                |item: &Value| item["metadata"]["name"].as_str().or(item["cells"][0].as_str()).map(str::to_owned);
            found.extend(items.iter().filter_map(name));
            assert_eq!(page["metadata"]["remainingItemCount"].as_u64(), left, "{accept}");
            let next = page["metadata"]["continue"].as_str();
            assert_eq!(next.is_some(), left.is_some());
            query = format!("limit=50&continue={}", next.unwrap_or_default());
        }
        assert_eq!(found, expected(), "{accept}");
    }
    // As many as there are: nothing follows.
    let page: Value = serde_json::from_str(&get("limit=80", JSON).text()).expect("a list");
    assert_eq!((names(&page), &page["metadata"]["continue"]), (expected(), &Value::Null));
    let selected: Value =
        serde_json::from_str(&get("limit=1&fieldSelector=metadata.name!%3Dm-00", JSON).text()).expect("a list");
    assert_eq!((names(&selected), &selected["metadata"]["remainingItemCount"]), (vec!["m-01".into()], &Value::Null));
    assert!(selected["metadata"]["continue"].is_string());
    let watch = get("watch=true", "application/yaml");
    let status: Value = serde_yaml::from_str(&watch.text()).expect("YAML");
    let message = "only the following media types are accepted: application/json;stream=watch, \
                   application/vnd.kubernetes.protobuf;stream=watch";
    assert_eq!((watch.code, &status["message"]), (406, &json!(message)));
}

#[test]
fn long_list_shows_one_revision_to_a_slow_client() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    fill(&server, LENGTH);
    let mut stream = TcpStream::connect(&server.address).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    let head = format!("GET {MAPS} HTTP/1.0\r\nHost: localhost\r\nAuthorization: {}\r\n\r\n", bearer(&server));
    stream.write_all(head.as_bytes()).expect("asked");
    let mut first = [0; 1000];
    stream.read_exact(&mut first).expect("a beginning");
    // Other clients write while this one does not read.
    assert_eq!(server.ask("DELETE", &format!("{MAPS}/m-79"), JSON, "").0, 200);
    assert_eq!(server.ask("POST", MAPS, JSON, &map("m-775", "new")).0, 201);
    assert_eq!(server.ask("PUT", &format!("{MAPS}/m-78"), JSON, &map("m-78", "changed")).0, 200);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the rest");
    let text = [&first[..], &rest].concat();
    let start = text.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head") + 4;
    let list: Value = serde_json::from_slice(&text[start..]).expect("a whole list");
    assert_eq!(names(&list), expected());
    assert_ne!(list["items"][78]["data"]["a"], "changed");
    let now =
        names(&serde_json::from_slice(&ask(&server, MAPS, &[("Authorization", &bearer(&server))]).body).expect("JSON"));
    assert!(now.contains(&"m-775".to_owned()) && !now.contains(&"m-79".to_owned()), "{now:?}");
}

#[test]
fn watch_begins_with_the_objects_of_one_revision() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    fill(&server, LENGTH);
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = server.watch(&format!("{MAPS}?watch=true&{initial}"));
    let first = events.next().expect("an event");
    // Other clients write while this one does not read.
    assert_eq!(server.ask("DELETE", &format!("{MAPS}/m-79"), JSON, "").0, 200);
    assert_eq!(server.ask("PUT", &format!("{MAPS}/m-78"), JSON, &map("m-78", "changed")).0, 200);
    let told: Vec<String> = [first].into_iter().chain(events).map(|event| told(&event)).take(COUNT + 3).collect();
    let added: Vec<String> = expected().iter().map(|name| format!("ADDED {name}")).collect();
    assert_eq!(told[..COUNT], added);
    assert_eq!(told[COUNT..], ["BOOKMARK ", "DELETED m-79", "MODIFIED m-78"]);
}

#[test]
fn bookmark_of_a_watch_of_tables_is_a_row() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let path = format!("/api/v1/namespaces/default/secrets?watch=true&timeoutSeconds=1&{initial}");
    let accept = ("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let body = ask(&server, &path, &[("Authorization", &bearer(&server)), accept]).body;
    let event: Value = serde_json::from_slice(body.split(|byte| *byte == b'\n').next().expect("a line")).expect("JSON");
    assert_eq!((&event["type"], &event["object"]["kind"]), (&json!("BOOKMARK"), &json!("Table")));
    let row = &event["object"]["rows"][0];
    assert_eq!(row["object"]["kind"], "PartialObjectMetadata", "{event}");
    assert_eq!(row["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(row["object"]["metadata"]["resourceVersion"], event["object"]["metadata"]["resourceVersion"]);
    assert_eq!(row["cells"].as_array().map(Vec::len), event["object"]["columnDefinitions"].as_array().map(Vec::len));
}
