//! Requests and answers in Kubernetes' protobuf, as generated clients use them.

use super::{JSON, MAPS, Server};
use crate::cluster::Cluster;
use kloop::serve::protobuf::{PROTOBUF, PROTOBUF_WATCH, decode_document, encode_document};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The media types that client-go's typed clients accept.
const TYPED: &str = "application/vnd.kubernetes.protobuf,application/json";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

/// An answer: code, media type and body.
struct Answer {
    code: u16,
    media: String,
    body: Vec<u8>,
}

impl Answer {
    /// Decodes the protobuf document.
    #[track_caller]
    fn document(&self) -> Value {
        assert_eq!(self.media, PROTOBUF, "{}", String::from_utf8_lossy(&self.body));
        decode_document(&self.body, "v1", "Unknown").unwrap_or_else(|error| panic!("{error:?}"))
    }
}

impl Server<'_> {
    fn send(&self, method: &str, path: &str, (media, accept): (&str, &str), body: Vec<u8>) -> Answer {
        let request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header("Authorization", format!("Bearer {}", self.token))
            .header("Accept", accept)
            .header("Content-Type", media);
        let answer = self.agent.run(request.body(body).expect("a request"));
        let mut answer = answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let media = answer.headers()["content-type"].to_str().expect("text").to_owned();
        Answer { code: answer.status().as_u16(), media, body: answer.body_mut().read_to_vec().expect("a body") }
    }

    /// Sends a document as a typed client does.
    fn send_document(&self, method: &str, path: &str, document: &Value) -> Answer {
        self.send(method, path, (PROTOBUF, TYPED), encode_document(document).expect("an encoding"))
    }

    fn read(&self, path: &str, accept: &str) -> Answer {
        self.send("GET", path, ("", accept), Vec::new())
    }
}

fn map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": value}})
}

#[test]
fn protobuf_writes_and_reads_objects() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let one = format!("{MAPS}/one");
    let made = server.send_document("POST", MAPS, &map("one", "1"));
    assert_eq!((made.code, &made.document()["data"]["a"]), (201, &json!("1")));
    let mut object = made.document();
    assert_eq!(object, server.get(&one), "the same object as JSON");
    object["data"]["a"] = "2".into();
    let replaced = server.send_document("PUT", &one, &object);
    assert_eq!((replaced.code, &replaced.document()["data"]["a"]), (200, &json!("2")));
    let late = server.send_document("PUT", &one, &object);
    let status = late.document();
    assert_eq!((late.code, &status["kind"], &status["reason"]), (409, &json!("Status"), &json!("Conflict")));
    let patched = server.send("PATCH", &one, ("application/merge-patch+json", TYPED), br#"{"data":{"b":"3"}}"#.into());
    assert_eq!(patched.document()["data"], json!({"a": "2", "b": "3"}));

    let list = server.read(MAPS, TYPED).document();
    let as_json = server.get(MAPS);
    assert_eq!((&list["kind"], &list["items"]), (&json!("ConfigMapList"), &as_json["items"]));
    let metadata = server.read(&one, "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    assert_eq!(metadata.document()["metadata"]["name"], "one");
    let table = server.read(MAPS, "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json");
    assert_eq!(table.media, JSON, "tables have no protobuf encoding");

    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "other"}});
    let refused = server.send_document("DELETE", &one, &options);
    assert_eq!((refused.code, &refused.document()["reason"]), (409, &json!("Conflict")));
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
    let gone = server.send_document("DELETE", &one, &options);
    assert_eq!((gone.code, &gone.document()["status"]), (200, &json!("Success")));
    assert_eq!(server.read(&one, TYPED).code, 404);
}

#[test]
fn subresources_and_reviews_accept_protobuf() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    cluster.ok("create deployment web --image=sleep --replicas=0");
    let path = "/apis/apps/v1/namespaces/default/deployments/web/scale";
    let mut scale = server.read(path, TYPED).document();
    assert_eq!((&scale["apiVersion"], &scale["kind"]), (&json!("autoscaling/v1"), &json!("Scale")));
    scale["spec"]["replicas"] = 2.into();
    assert_eq!(server.send_document("PUT", path, &scale).document()["spec"]["replicas"], 2);
    assert_eq!(cluster.read("deploy/web", "{.spec.replicas}"), "2");

    let pods = "/api/v1/namespaces/default/pods";
    let containers = json!([{"name": "c", "image": "sleep"}]);
    let pod = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers}});
    let made = server.send_document("POST", pods, &pod("p"));
    let mut made = made.document();
    assert_eq!(made, server.get(&format!("{pods}/p")));
    made["status"]["message"] = "hello".into();
    let status = server.send_document("PUT", &format!("{pods}/p/status"), &made);
    assert_eq!(status.document()["status"]["message"], "hello");
    let target = json!({"kind": "Node", "name": "nowhere"});
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": target});
    let bound = server.send_document("POST", &format!("{pods}/p/binding"), &binding);
    assert_eq!((bound.code, &bound.document()["kind"]), (201, &json!("Status")), "{}", bound.document());
    for version in ["policy/v1", "policy/v1beta1"] {
        server.send_document("POST", pods, &pod("q"));
        let eviction = json!({"apiVersion": version, "kind": "Eviction", "metadata": {"name": "q"}});
        assert_eq!(server.send_document("POST", &format!("{pods}/q/eviction"), &eviction).code, 201, "{version}");
    }

    let attributes = json!({"verb": "get", "resource": "pods"});
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {},
        "spec": {"resourceAttributes": attributes},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(server.send_document("POST", path, &review).document()["status"]["allowed"], true);
    let groups = server.read("/apis", PROTOBUF).document();
    assert!(groups["groups"].as_array().is_some_and(|groups| groups.iter().any(|group| group["name"] == "apps")));
    let resources = server.read("/api/v1", PROTOBUF).document();
    assert!(resources["resources"].as_array().is_some_and(|resources| resources.len() > 20), "{resources}");
}

#[test]
fn malformed_protobuf_is_refused() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let send = |path: &str, body: &[u8]| {
        let answer = server.send("POST", path, (PROTOBUF, TYPED), body.into());
        (answer.code, answer.document()["message"].as_str().unwrap_or_default().to_owned())
    };
    let (code, message) = send(MAPS, b"{}");
    assert_eq!(code, 400);
    assert!(
        message.starts_with("the object provided is unrecognized (must be of type ConfigMap): provided data"),
        "{message}"
    );
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    let (code, message) = send(MAPS, &encode_document(&secret).expect("an encoding"));
    let text = "converting (v1.Secret) to (core.ConfigMap): unknown conversion";
    assert_eq!((code, message), (400, format!("Secret in version \"v1\" cannot be handled as a ConfigMap: {text}")));

    cluster.apply(include_str!("boats.yaml"));
    cluster.apply("apiVersion: example.com/v1\nkind: Boat\nmetadata: {name: b}\nspec: {sails: 3}\n");
    let boats = "/apis/example.com/v1/namespaces/default/boats";
    assert_eq!(server.send("POST", boats, (PROTOBUF, TYPED), encode_document(&secret).expect("an encoding")).code, 415);
    assert_eq!(server.read(boats, PROTOBUF).code, 406);
    let fallback = server.read(boats, TYPED);
    assert_eq!((fallback.code, fallback.media.as_str()), (200, JSON));
    // Metadata has an encoding for every kind, which metadata informers request.
    let accept = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    assert_eq!(server.read(boats, accept).document()["items"][0]["metadata"]["name"], "b");
}

/// Reads the frames of a watch.
struct Frames(TcpStream);

impl Frames {
    fn open(server: &Server<'_>, path: &str) -> Frames {
        let mut stream = TcpStream::connect(&server.address).expect("connected");
        // Only a failing test waits so long.
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        let (address, token) = (&server.address, &server.token);
        let head = format!(
            "GET {path} HTTP/1.0\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nAccept: {TYPED}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("asked");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a head");
            answer.push(byte[0]);
        }
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.contains(&format!("content-type: {PROTOBUF_WATCH}\r\n")), "{answer}");
        Frames(stream)
    }

    /// Returns the next event, and its object.
    fn next(&mut self) -> (String, Value) {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).expect("a length");
        let length = u32::from_be_bytes(length) as usize;
        assert!(length < 1 << 20, "a frame of {length} bytes");
        let mut frame = vec![0; length];
        self.0.read_exact(&mut frame).expect("a frame");
        let word = String::from_utf8_lossy(&frame[2..2 + usize::from(frame[1])]).into_owned();
        let start = frame.windows(4).position(|bytes| bytes == b"k8s\0").expect("a document");
        (word, decode_document(&frame[start..], "v1", "Unknown").unwrap_or_else(|error| panic!("{error:?}")))
    }
}

#[test]
fn protobuf_watches_have_frames() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    server.send_document("POST", MAPS, &map("one", "1"));
    let marks = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut frames = Frames::open(&server, &format!("{MAPS}?watch=1&{marks}"));
    let mut next = || {
        let (word, object) = frames.next();
        (word, object["kind"].clone(), object["metadata"]["name"].clone())
    };
    let event = |word: &str, name: Value| (word.to_owned(), json!("ConfigMap"), name);
    assert_eq!(next(), event("ADDED", "one".into()));
    assert_eq!(next(), event("BOOKMARK", Value::Null));
    server.send_document("POST", MAPS, &map("two", "2"));
    assert_eq!(next(), event("ADDED", "two".into()));
    server.send("DELETE", &format!("{MAPS}/two"), ("", TYPED), Vec::new());
    assert_eq!(next(), event("DELETED", "two".into()));
}

#[test]
fn protobuf_lease_can_be_created_and_renewed() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let lease = format!("{LEASES}/leader");
    assert_eq!(server.read(&lease, TYPED).document()["reason"], "NotFound");
    let spec = json!({"holderIdentity": "me", "leaseDurationSeconds": 15, "acquireTime": "2026-01-02T03:04:05.000006Z", "leaseTransitions": 0});
    let wish =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "leader"}, "spec": spec});
    assert_eq!(server.send_document("POST", LEASES, &wish).code, 201);
    for second in 10..15 {
        let mut held = server.read(&lease, TYPED).document();
        let now = format!("2026-01-02T03:04:{second}.123456Z");
        held["spec"]["renewTime"] = now.clone().into();
        let renewed = server.send_document("PUT", &lease, &held);
        assert_eq!((renewed.code, &renewed.document()["spec"]["renewTime"]), (200, &json!(now)));
    }
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
        "regarding": {"kind": "Lease", "name": "leader", "namespace": "default"}, "reason": "LeaderElection", "note": "me became leader",
        "type": "Normal", "action": "Elect", "reportingController": "kloop.dev/test", "reportingInstance": "one",
        "eventTime": "2026-01-02T03:04:05.000006Z",
    });
    let made = server.send_document("POST", "/apis/events.k8s.io/v1/namespaces/default/events", &event);
    assert_eq!((made.code, &made.document()["note"]), (201, &json!("me became leader")), "{}", made.document());
}
