//! An extension API server, a pod behind an APIService, as clients of the API see it.

use super::{JSON, Server, told};
use crate::cluster::Cluster;
use serde_json::{Value, json};
use std::io::{Read, Write};

/// Serves `sea.dev/v1` over TLS to clients of the front proxy's authority, and `slow.dev/v1`, whose answers never come.
const SERVER: &str = r##"
import http.server, json, ssl, threading

def resource(name, kind, verbs):
    return {"name": name, "singularName": "", "namespaced": True, "kind": kind, "verbs": verbs}

FISH = {"apiVersion": "sea.dev/v1", "kind": "Fish", "metadata": {"name": "cod", "namespace": "default"}}
DOCUMENTS = {
    "/apis/sea.dev/v1": {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "sea.dev/v1", "resources": [
        resource("fish", "Fish", ["get", "list", "watch"]), resource("fish/status", "Fish", ["get"])]},
    "/openapi/v3": {"paths": {"apis/sea.dev/v1": {"serverRelativeURL": "/openapi/v3/apis/sea.dev/v1?hash=A1"}}},
    "/openapi/v3/apis/sea.dev/v1": {"openapi": "3.0.0", "paths": {}},
    "/openapi/v2": {"swagger": "2.0", "definitions": {"sea.Fish": {"type": "object"}}, "paths": {
        "/version/": {"get": {"operationId": "theirs"}},
        "/apis/sea.dev/v1/fish": {"get": {"responses": {"200": {"schema": {"$ref": "#/definitions/sea.Fish"}}}}}}},
}

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def answer(self, document, code=200):
        body = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        path, _, query = self.path.partition("?")
        if path.startswith("/apis/slow.dev"):
            threading.Event().wait()
        if self.headers.get("Upgrade") == "echo":
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
            while line := self.rfile.readline():
                self.wfile.write(line)
            self.close_connection = True
        elif path in DOCUMENTS:
            self.answer(DOCUMENTS[path])
        elif "watch=true" in query:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for event in "ADDED", "MODIFIED":
                line = json.dumps({"type": event, "object": FISH}).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.write(b"0\r\n\r\n")
        elif path == "/apis/sea.dev/v1/namespaces/default/fish":
            user = {name: self.headers.get_all("X-Remote-" + name) for name in ("User", "Group", "Extra-scope")}
            client = dict(pair[0] for pair in self.connection.getpeercert()["subject"])["commonName"]
            self.answer({"kind": "FishList", "apiVersion": "sea.dev/v1", "items": [FISH], "user": user, "client": client,
                         "token": self.headers.get("Authorization"), "query": query})
        else:
            self.answer({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no such fish", "code": 404}, 404)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(json.loads(body), 201)

server = http.server.ThreadingHTTPServer(("", 8443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/srv/pem")
context.load_verify_locations("/auth/requestheader-client-ca-file")
context.verify_mode = ssl.CERT_REQUIRED
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"##;

/// Returns the manifests of the extension server, and the bundle of its certificate.
fn manifests() -> (String, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let parameters = rcgen::CertificateParams::new(vec!["sea.kube-system.svc".to_owned()]).expect("a name");
    let certificate = parameters.self_signed(&key).expect("a certificate");
    let pem = format!("{}{}", key.serialize_pem(), certificate.pem());
    let place = |name: &str| json!({"name": name, "namespace": "kube-system", "labels": {"app": "sea"}});
    let files = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": place("sea"), "data": {"server.py": SERVER, "pem": pem}});
    let container = json!({
        "name": "main", "image": "python", "command": ["python3", "/srv/server.py"],
        "volumeMounts": [{"name": "srv", "mountPath": "/srv"}, {"name": "auth", "mountPath": "/auth"}],
        "readinessProbe": {"tcpSocket": {"port": 8443}, "periodSeconds": 1},
    });
    let volumes = json!([{"name": "srv", "configMap": {"name": "sea"}},
        {"name": "auth", "configMap": {"name": "extension-apiserver-authentication"}}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": place("sea"),
        "spec": {"containers": [container], "volumes": volumes}});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": place("sea"),
        "spec": {"selector": {"app": "sea"}, "ports": [{"port": 443, "targetPort": 8443}]}});
    (format!("{files}\n---\n{pod}\n---\n{service}\n"), certificate.pem())
}

fn api_service(group: &str, bundle: &str, service: &str) -> String {
    use base64::Engine;
    let bundle = base64::prelude::BASE64_STANDARD.encode(bundle);
    json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": format!("v1.{group}")},
        "spec": {"group": group, "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 15, "caBundle": bundle,
            "service": {"namespace": "kube-system", "name": service}}})
    .to_string()
}

const REASON: &str = "{.status.conditions[0].reason}";
const FISH: &str = "/apis/sea.dev/v1/namespaces/default/fish";

#[test]
fn extension_server_answers_its_version_of_the_api() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let server = Server::start(&cluster, &[]);
    cluster
        .until("authorities", || cluster.kloop("get cm extension-apiserver-authentication -n kube-system").code == 0);
    let (objects, bundle) = manifests();
    cluster.apply(&api_service("sea.dev", &bundle, "sea"));
    cluster.until_reads("apiservice/v1.sea.dev", REASON, "ServiceNotFound");
    assert_eq!(server.ask("GET", FISH, JSON, ""), (503, json!("service unavailable\n")));
    cluster.apply(&objects);
    cluster.until_reads("apiservice/v1.sea.dev", REASON, "Passed");
    requests_are_forwarded(&server);
    documents_are_merged(&server);
    // A slow server, and one with an untrusted certificate, do not delay other requests.
    cluster.apply(&api_service("slow.dev", &bundle, "sea"));
    let other = rcgen::generate_simple_self_signed(vec!["x".to_owned()]).expect("a certificate").cert.pem();
    cluster.apply(&api_service("strange.dev", &other, "sea"));
    cluster.until_reads("apiservice/v1.strange.dev", REASON, "FailedDiscoveryCheck");
    let why = cluster.read("apiservice/v1.strange.dev", "{.status.conditions[0].message}");
    assert!(why.starts_with("failing or missing response from https://") && why.contains("x509: "), "{why}");
    cluster.until_reads("apiservice/v1.slow.dev", REASON, "FailedDiscoveryCheck");
    let groups = server.get("/apis");
    let names: Vec<&str> = groups["groups"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
    assert!(
        names.contains(&"slow.dev") && names.contains(&"sea.dev") && names[0] == "apiregistration.k8s.io",
        "{names:?}"
    );
    assert_eq!(server.get(FISH)["items"][0]["metadata"]["name"], "cod");
    let said = cluster.kloop("get fish");
    let hint =
        "hint: extension servers answer for sea.dev/v1, slow.dev/v1, strange.dev/v1: use kubectl with kloop serve";
    assert!(said.code == 1 && said.err.contains(hint), "{}", said.err);
    let said = cluster.kloop(&format!("get --raw {FISH}"));
    assert!(said.code == 1 && said.err.contains("--raw does not proxy requests"), "{}", said.err);
}

fn requests_are_forwarded(server: &Server) {
    let list = server.get(&format!("{FISH}?limit=5"));
    assert_eq!(
        (&list["client"], &list["token"], &list["query"]),
        (&json!("front-proxy-client"), &Value::Null, &json!("limit=5"))
    );
    let groups = json!(["system:masters", "system:authenticated"]);
    assert_eq!((&list["user"]["User"], &list["user"]["Group"]), (&json!(["admin"]), &groups));
    let claims = [
        ("X-Remote-User", "root"),
        ("X-Remote-Group", "a"),
        ("Impersonate-User", "ann"),
        ("Impersonate-Group", "system:masters"),
        ("Impersonate-Extra-Scope", "read"),
    ];
    let (code, list) = server.ask_with("GET", FISH, JSON, "", &claims);
    assert_eq!(
        (code, &list["user"]["User"], &list["user"]["Extra-scope"]),
        (200, &json!(["ann"]), &json!(["read"])),
        "{list}"
    );
    // The authorizer of this server decides first.
    let (code, _) = server.ask_with("GET", FISH, JSON, "", &[("Impersonate-User", "bob")]);
    assert_eq!(code, 403);
    let (code, made) = server.ask("POST", FISH, JSON, r#"{"kind":"Fish","metadata":{"name":"eel"}}"#);
    assert_eq!((code, &made["metadata"]["name"]), (201, &json!("eel")));
    let (code, missing) = server.ask("GET", &format!("{FISH}/shark"), JSON, "");
    assert_eq!((code, &missing["message"]), (404, &json!("no such fish")));
    let events: Vec<String> = server.watch(&format!("{FISH}?watch=true")).map(|event| told(&event)).collect();
    assert_eq!(events, ["ADDED cod", "MODIFIED cod"]);
    let (mut stream, head) = server.upgrade(&format!("{FISH}/cod/exec"), "Upgrade: echo\r\n");
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    stream.write_all(b"one line\n").expect("sent");
    let mut answer = [0; 9];
    stream.read_exact(&mut answer).expect("repeated");
    assert_eq!(&answer, b"one line\n");
}

fn documents_are_merged(server: &Server) {
    let group = server.get("/apis/sea.dev");
    assert_eq!(group["preferredVersion"], json!({"groupVersion": "sea.dev/v1", "version": "v1"}));
    assert_eq!(server.get("/apis/sea.dev/v1")["resources"][0]["kind"], "Fish");
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let (_, groups) = server.ask_with("GET", "/apis", JSON, "", &[("Accept", aggregated)]);
    let own = groups["items"].as_array().expect("groups").iter().find(|group| group["metadata"]["name"] == "sea.dev");
    let version = &own.expect("the group")["versions"][0];
    assert_eq!((&version["freshness"], &version["resources"][0]["resource"]), (&json!("Current"), &json!("fish")));
    assert_eq!(version["resources"][0]["subresources"][0]["subresource"], "status");
    let url = &server.get("/openapi/v3")["paths"]["apis/sea.dev/v1"]["serverRelativeURL"];
    assert_eq!(url, "/openapi/v3/apis/sea.dev/v1?hash=A1");
    assert_eq!(server.get(url.as_str().expect("a URL"))["openapi"], "3.0.0");
    let all = server.get("/openapi/v2");
    let schema = &all["paths"]["/apis/sea.dev/v1/fish"]["get"]["responses"]["200"]["schema"];
    assert_eq!(
        (schema, &all["definitions"]["sea.Fish"]),
        (&json!({"$ref": "#/definitions/sea.Fish"}), &json!({"type": "object"}))
    );
    assert_ne!(all["paths"]["/version/"]["get"]["operationId"], "theirs");
}
