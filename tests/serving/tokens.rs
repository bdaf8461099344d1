//! The API for programs in pods: the Service `kubernetes`, tokens of service accounts, and the authority's certificate.

use super::endpoints::{Reply, ask, bearer};
use super::{JSON, Server};
use crate::cluster::Cluster;
use serde_json::{Value, json};

const ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts/default";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1";

/// Asks for a token of the account `default`; returns the code and the answer.
fn request_token(server: &Server<'_>, spec: Value) -> (u16, Value) {
    let body = json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec});
    server.ask("POST", &format!("{ACCOUNT}/token"), JSON, &body.to_string())
}

/// Returns the status of a review of a token.
fn review(server: &Server<'_>, token: &str, audiences: &[&str]) -> Value {
    let spec = json!({"token": token, "audiences": audiences});
    let body = json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": spec});
    server.ask("POST", &format!("{REVIEWS}/tokenreviews"), JSON, &body.to_string()).1["status"].clone()
}

/// Sends a request with another token than the administrator's.
fn ask_as(server: &Server<'_>, token: &str, path: &str) -> Reply {
    ask(server, path, &[("Authorization", &format!("Bearer {token}"))])
}

#[test]
fn service_kubernetes_leads_to_the_server_while_it_runs() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    cluster.until_reads("endpointslice/kubernetes", "{.endpoints[0].addresses[0]}", "127.0.0.1");
    let slice = server.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes");
    let port: u16 = server.address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    assert_eq!(slice["ports"], json!([{"name": "https", "port": port, "protocol": "TCP"}]));
    assert_eq!(slice["metadata"]["labels"], json!({"kubernetes.io/service-name": "kubernetes"}));
    let endpoints = server.get("/api/v1/namespaces/default/endpoints/kubernetes");
    assert_eq!(endpoints["metadata"]["labels"], json!({"endpointslice.kubernetes.io/skip-mirror": "true"}));
    assert_eq!(endpoints["subsets"][0]["ports"], slice["ports"]);
    assert_eq!(server.plane.end("TERM"), 0);
    assert_eq!(cluster.ok("get endpoints,endpointslices -o name"), "");
    let plane = cluster.watch_with(&["--serve=0"]);
    cluster.until_reads("endpoints/kubernetes", "{.subsets[0].addresses[0].ip}", "127.0.0.1");
    assert_eq!(plane.end("INT"), 0);
    assert_eq!(cluster.ok("get endpoints,endpointslices -o name"), "");
}

#[test]
fn command_in_a_pod_asks_the_server_of_its_cluster() {
    let cluster = Cluster::new();
    let _plane = cluster.watch_with(&["--serve=0"]);
    cluster.ok("create namespace team");
    cluster.ok("create configmap note -n team");
    cluster.ok("create rolebinding readers -n team --clusterrole=view --serviceaccount=team:default");
    cluster.until_reads("endpoints/kubernetes", "{.subsets[0].addresses[0].ip}", "127.0.0.1");
    let script = format!("{0} get configmap note -o name; {0} get secrets", env!("CARGO_BIN_EXE_kloop"));
    let command = "run asks -n team --image=debian --restart=Never -- sh -c".split(' ').chain([&*script]);
    assert_eq!(cluster.run(&command.collect::<Vec<_>>(), "").code, 0);
    cluster.until_reads("pod/asks -n team", "{.status.phase}", "Failed");
    let said = cluster.ok("logs asks -n team");
    let refused = "User \"system:serviceaccount:team:default\" cannot list resource \"secrets\"";
    assert!(said.starts_with("configmap/note\n") && said.contains(refused), "{said}");
}

#[test]
fn server_without_tls_is_not_advertised() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &["--no-token"]);
    assert_eq!(server.get("/version")["minor"], "36");
    assert_eq!(cluster.ok("get endpointslices -o name"), "");
}

#[test]
fn token_is_that_of_its_account_until_the_account_is_gone() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    cluster.until_reads("serviceaccount/default", "{.metadata.name}", "default");
    plane.end("INT");
    let server = Server::start(&cluster, &[]);
    let (code, issued) = request_token(&server, json!({"expirationSeconds": 600}));
    assert_eq!((code, &issued["spec"]["expirationSeconds"]), (201, &json!(600)), "{issued}");
    let token = issued["status"]["token"].as_str().expect("a token");
    let status = review(&server, token, &[]);
    let uid = cluster.read("serviceaccount/default", "{.metadata.uid}");
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:default");
    assert_eq!((&status["authenticated"], &status["user"]["uid"]), (&json!(true), &json!(uid)));
    let groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
    assert_eq!(status["user"]["groups"], json!(groups));
    let id = &status["user"]["extra"]["authentication.kubernetes.io/credential-id"][0];
    assert!(id.as_str().is_some_and(|id| id.starts_with("JTI=") && id.len() == 40), "{id}");
    assert_eq!(status["audiences"], json!(["https://kubernetes.default.svc.cluster.local"]));
    assert_eq!(
        review(&server, token, &["shop"])["error"],
        "[invalid bearer token, token audiences [\"https://kubernetes.default.svc.cluster.local\"] is invalid for the target \
         audiences [\"shop\"]]"
    );
    // It is let in, and has the rights of every user.
    for path in ["/version", "/api", "/apis/apps/v1", "/openapi/v2", "/openid/v1/jwks"] {
        assert_eq!(ask_as(&server, token, path).code, 200, "{path}");
    }
    let refused: Value = serde_json::from_slice(&ask_as(&server, token, "/api/v1/pods").body).expect("JSON");
    assert_eq!(
        refused["message"],
        "pods is forbidden: User \"system:serviceaccount:default:default\" cannot list resource \"pods\" in API group \"\" at the \
         cluster scope"
    );
    for path in ["/metrics", "/apis-other", "/"] {
        assert_eq!(ask_as(&server, token, path).code, 403, "{path}");
    }
    let shop = cluster.ok("create token default --audience=shop");
    assert_eq!(ask_as(&server, &shop, "/api").code, 401, "it is for another audience");
    assert_eq!(review(&server, &shop, &["shop", "x"])["audiences"], json!(["shop"]));
    cluster.ok("delete serviceaccount default");
    assert_eq!(ask_as(&server, token, "/api").code, 401);
    assert_eq!(review(&server, token, &[])["error"], "[invalid bearer token, serviceaccounts \"default\" not found]");
}

#[test]
fn token_is_bound_to_a_pod_or_a_secret() {
    let cluster = Cluster::new();
    let plane = cluster.watch();
    cluster.until_reads("serviceaccount/default", "{.metadata.name}", "default");
    plane.end("INT");
    let server = Server::start(&cluster, &[]);
    cluster.ok("create secret generic anchor");
    cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: busybox}]}}");
    for (kind, name) in [("Pod", "p"), ("Secret", "anchor")] {
        let reference = json!({"kind": kind, "apiVersion": "v1", "name": name});
        let (_, issued) = request_token(&server, json!({"boundObjectRef": reference}));
        let token = issued["status"]["token"].as_str().expect("a token");
        assert_eq!(ask_as(&server, token, "/api").code, 200);
        let extra = review(&server, token, &[])["user"]["extra"].clone();
        let pod = extra.get("authentication.kubernetes.io/pod-name");
        assert_eq!(pod, (kind == "Pod").then(|| json!(["p"])).as_ref());
        cluster.ok(&format!("delete {kind} {name} --now --wait=false"));
        assert_eq!(ask_as(&server, token, "/api").code, 401, "{kind}");
    }
    let problems = [
        (json!({"kind": "Pod", "apiVersion": "v1", "name": "no"}), 404, "pods \"no\" not found"),
        (
            json!({"kind": "ConfigMap", "apiVersion": "v1", "name": "no"}),
            400,
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
    ];
    for (reference, code, message) in problems {
        let (found, refused) = request_token(&server, json!({"boundObjectRef": reference}));
        assert_eq!((found, &refused["message"]), (code, &json!(message)));
    }
    assert_eq!(server.ask("GET", &format!("{ACCOUNT}/token"), JSON, "").0, 405);
}

#[test]
fn issuer_describes_itself_for_those_who_verify_tokens() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let about = server.get("/.well-known/openid-configuration");
    assert_eq!(about["issuer"], "https://kubernetes.default.svc.cluster.local");
    assert_eq!(about["jwks_uri"], format!("https://{}/openid/v1/jwks", server.address));
    let keys = ask(&server, "/openid/v1/jwks", &[("Authorization", &bearer(&server))]);
    assert_eq!(keys.header("content-type"), "application/jwk-set+json");
    let key: Value = serde_json::from_slice(&keys.body).expect("JSON");
    assert_eq!((&key["keys"][0]["alg"], &key["keys"][0]["crv"]), (&json!("ES256"), &json!("P-256")));
    assert_eq!(ask(&server, "/openid/v1/jwks", &[]).code, 401);
}

#[test]
fn token_of_a_secret_counts_as_long_as_the_secret_exists() {
    let cluster = Cluster::new();
    let server = Server::of(&cluster, cluster.watch_with(&["--serve=0"]));
    cluster.until_reads("serviceaccount/default", "{.metadata.name}", "default");
    cluster.apply(
        "{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: legacy,
        annotations: {kubernetes.io/service-account.name: default}}}",
    );
    cluster.until("the token", || !cluster.read("secret/legacy", "{.data.token}").is_empty());
    let decoded = |key: &str| {
        let encoded = cluster.read("secret/legacy", &format!("{{.data.{key}}}"));
        cluster.run_program(cluster.program("base64").arg("-d"), &encoded).out
    };
    assert_eq!(decoded("namespace"), "default");
    assert!(decoded("ca\\.crt").starts_with("-----BEGIN CERTIFICATE-----"));
    let token = decoded("token");
    assert_eq!(review(&server, &token, &[])["user"]["username"], "system:serviceaccount:default:default");
    assert_eq!(ask_as(&server, &token, "/api").code, 200);
    cluster.ok("delete secret legacy");
    assert_eq!(ask_as(&server, &token, "/api").code, 401);
    let why = "[invalid bearer token, service account token has been invalidated]";
    assert_eq!(review(&server, &token, &[])["error"], why);
}

/// Prints answers of the API to a program that finds it as client libraries do.
const PROGRAM: &str = "
import json, os, ssl, urllib.request
folder = '/var/run/secrets/kubernetes.io/serviceaccount/'
context = ssl.create_default_context(cafile=folder + 'ca.crt')
host, port = os.environ['KUBERNETES_SERVICE_HOST'], os.environ['KUBERNETES_SERVICE_PORT']
body = json.dumps({'apiVersion': 'authentication.k8s.io/v1', 'kind': 'SelfSubjectReview'}).encode()
headers = {'Authorization': 'Bearer ' + open(folder + 'token').read(), 'Content-Type': 'application/json'}
for host in (host, 'kubernetes.default.svc'):
    url = 'https://%s:%s/apis/authentication.k8s.io/v1/selfsubjectreviews' % (host, port)
    answer = urllib.request.urlopen(urllib.request.Request(url, body, headers), context=context)
    user = json.load(answer)['status']['userInfo']
    print(user['username'], user['extra']['authentication.kubernetes.io/pod-name'][0])
";

#[test]
fn program_in_a_pod_finds_the_api_and_is_its_account() {
    let cluster = Cluster::new();
    let _plane = cluster.watch_with(&["--serve=0"]);
    cluster.until_reads("endpoints/kubernetes", "{.subsets[0].addresses[0].ip}", "127.0.0.1");
    run_in_a_pod(&cluster);
}

#[test]
fn program_in_a_pod_finds_the_api_of_the_control_plane() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    run_in_a_pod(&cluster);
    assert_eq!(cluster.ok("get endpoints,endpointslices -o name"), "", "nothing is served to the outside");
}

fn run_in_a_pod(cluster: &Cluster) {
    let container = json!({"name": "c", "image": "python", "command": ["python3", "-c", PROGRAM]});
    let spec = json!({"restartPolicy": "Never", "containers": [container]});
    cluster.apply(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}).to_string());
    cluster.until("the program ends", || ["Succeeded", "Failed"].contains(&&*cluster.read("pod/p", "{.status.phase}")));
    let line = "system:serviceaccount:default:default p\n";
    assert_eq!(cluster.ok("logs p"), line.repeat(2));
}

/// A kubelet gets tokens for the pods of its node, and for the audiences that they need.
#[test]
fn kubelet_gets_only_the_tokens_that_its_pods_need() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let create = |path: &str, object: Value| server.ask("POST", path, JSON, &object.to_string());
    cluster.ok("create serviceaccount default");
    assert_eq!(create("/api/v1/nodes", json!({"metadata": {"name": "n"}})).0, 201);
    let token = json!({"serviceAccountToken": {"audience": "vault", "path": "t"}});
    let spec = json!({
        "nodeName": "n", "containers": [{"name": "c", "image": "x"}], "volumes": [{"name": "v", "projected": {"sources": [token]}}],
    });
    let (code, pod) = create("/api/v1/namespaces/default/pods", json!({"metadata": {"name": "p"}, "spec": spec}));
    assert_eq!(code, 201, "{pod}");
    let kubelet = [("Impersonate-User", "system:node:n"), ("Impersonate-Group", "system:nodes")];
    let request = |reference: Value, audiences: Value| {
        let spec = json!({"boundObjectRef": reference, "audiences": audiences});
        let body = json!({"spec": spec}).to_string();
        let (code, answer) = server.ask_with("POST", &format!("{ACCOUNT}/token"), JSON, &body, &kubelet);
        let why = answer["message"].as_str().and_then(|text| text.split_once("is forbidden: "));
        (code, why.map_or_else(String::new, |(_, why)| why.to_owned()))
    };
    let unbound = json!({"kind": "Pod", "apiVersion": "v1", "name": "p"});
    let mut bound = unbound.clone();
    bound["uid"] = pod["metadata"]["uid"].clone();
    assert_eq!(request(bound.clone(), json!(["vault"])).0, 201);
    assert_eq!(request(bound.clone(), Value::Null).0, 201);
    let why = "node requested token with a pod binding without a uid";
    assert_eq!(request(unbound, json!(["vault"])), (403, why.to_owned()));
    let why = "audience \"other\" not found in pod spec volume, system:node:n is not authorized to request tokens for this audience";
    assert_eq!(request(bound.clone(), json!(["other"])), (403, why.to_owned()));
    let why = "node may only request 0 or 1 audiences";
    assert_eq!(request(bound, json!(["vault", "other"])), (403, why.to_owned()));
}

#[test]
fn token_request_of_wrong_types_is_refused() {
    let cluster = Cluster::new();
    let server = Server::start(&cluster, &[]);
    let (code, status) = request_token(&server, json!({"audiences": [1]}));
    let text = "TokenRequest in version \"v1\" cannot be handled as a TokenRequest: json: cannot unmarshal number into Go struct field \
                TokenRequestSpec.spec.audiences of type string";
    assert_eq!((code, status["message"].as_str()), (400, Some(text)));
}
