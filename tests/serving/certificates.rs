//! Client certificates: users of one's own, requests for certificates, and certificates that do not count.

use super::{JSON, Server};
use crate::cluster::Cluster;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// A client with a certificate: over TLS, trusting the cluster's authority.
struct CertifiedClient {
    agent: ureq::Agent,
    server: String,
}

impl CertifiedClient {
    fn new(config: &Value, certificate: &str, key: &str) -> CertifiedClient {
        let cluster = &config["clusters"][0]["cluster"];
        let authority = decode(&cluster["certificate-authority-data"]);
        let root = Certificate::from_pem(authority.as_bytes()).expect("an authority").to_owned();
        let own = Certificate::from_pem(certificate.as_bytes()).expect("a certificate").to_owned();
        let key = PrivateKey::from_pem(key.as_bytes()).expect("a key").to_owned();
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::new_with_certs(&[root]))
            .client_cert(Some(ClientCert::new_with_certs(&[own], key)))
            .build();
        let agent = ureq::Agent::config_builder().tls_config(tls).http_status_as_error(false);
        let agent = agent.allow_non_standard_methods(true).build().into();
        CertifiedClient { agent, server: cluster["server"].as_str().expect("a server").to_owned() }
    }

    /// The client of a kubeconfig.
    fn from_config(text: &str) -> CertifiedClient {
        let config: Value = serde_yaml::from_str(text).expect("a kubeconfig");
        let user = &config["users"][0]["user"];
        let (certificate, key) = (decode(&user["client-certificate-data"]), decode(&user["client-key-data"]));
        CertifiedClient::new(&config, &certificate, &key)
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.server));
        let request = request.header("Content-Type", JSON).body(body.to_string()).expect("a request");
        let mut answer = self.agent.run(request).expect("an answer");
        let text = answer.body_mut().read_to_string().expect("a body");
        (answer.status().as_u16(), serde_json::from_str(&text).expect("JSON"))
    }

    fn whoami(&self) -> (u16, Value) {
        let (code, review) = self.ask("POST", WHOAMI, &json!({}));
        (code, review["status"]["userInfo"].clone())
    }
}

fn decode(data: &Value) -> String {
    String::from_utf8(STANDARD.decode(data.as_str().expect("data")).expect("base64")).expect("PEM")
}

#[test]
fn user_of_a_certificate_may_do_what_roles_say() {
    let cluster = Cluster::new();
    cluster.ok("create role reader --verb=list --resource=configmaps");
    cluster.ok("create rolebinding dev-reads --role=reader --group=dev");
    let server = Server::start(&cluster, &[]);
    let ann = CertifiedClient::from_config(&cluster.ok("kubeconfig --user=ann --group=dev --group=ops"));
    let (code, user) = ann.whoami();
    assert_eq!((code, &user["username"]), (201, &json!("ann")), "{user}");
    assert_eq!(user["groups"], json!(["dev", "ops", "system:authenticated"]));
    assert_eq!(ann.ask("GET", "/api/v1/namespaces/default/configmaps", &json!(null)).0, 200);
    let (code, refused) = ann.ask("GET", "/api/v1/namespaces/default/secrets", &json!(null));
    let text = "secrets is forbidden: User \"ann\" cannot list resource \"secrets\" in API group \"\" in the namespace \"default\"";
    assert_eq!((code, &refused["message"]), (403, &json!(text)));
    let admin = CertifiedClient::from_config(&cluster.ok("kubeconfig"));
    assert_eq!(admin.whoami().1["username"], "kubernetes-admin");
    assert_eq!(admin.ask("GET", "/api/v1/namespaces/default/secrets", &json!(null)).0, 200);
    // The authority and the administrator's token outlive the server.
    let token = server.token.clone();
    assert_eq!(server.plane.end("TERM"), 0);
    let again = Server::start(&cluster, &[]);
    assert_eq!(again.token, token);
    let config = cluster.ok("kubeconfig --user=ann");
    assert_eq!(CertifiedClient::from_config(&config).whoami().1["username"], "ann");
    // One of another cluster.
    let other = Cluster::new();
    let foreign: Value = serde_yaml::from_str(&other.ok("kubeconfig --user=ann")).expect("a kubeconfig");
    let own: Value = serde_yaml::from_str(&config).expect("a kubeconfig");
    let user = &foreign["users"][0]["user"];
    let stranger =
        CertifiedClient::new(&own, &decode(&user["client-certificate-data"]), &decode(&user["client-key-data"]));
    assert_eq!(stranger.whoami().0, 401);
    assert_eq!(stranger.ask("GET", "/version", &json!(null)).0, 401);
}

#[test]
fn approved_request_is_signed() {
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    let server = Server::start(&cluster, &[]);
    let key = KeyPair::generate().expect("a key");
    let request = |name: &str, group: &str| {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.distinguished_name.push(DnType::CommonName, "bob");
        let pem = params.serialize_request(&key).expect("a request").pem().expect("PEM");
        json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name}, "spec": {
            "request": STANDARD.encode(pem), "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"],
            "expirationSeconds": 3600, "username": "forged",
        }})
    };
    let (code, made) = server.ask("POST", REQUESTS, JSON, &request("bob", "dev").to_string());
    assert_eq!((code, &made["spec"]["username"]), (201, &json!("admin")), "{made}");
    let (code, refused) = server.ask("POST", REQUESTS, JSON, &request("root", "system:masters").to_string());
    let text = "certificatesigningrequests.certificates.k8s.io \"root\" is forbidden: use of kubernetes.io/kube-apiserver-client \
                signer with system:masters group is not allowed";
    assert_eq!((code, &refused["message"]), (403, &json!(text)));
    cluster.ok("certificate approve bob");
    cluster.until("the certificate is there", || !cluster.read("csr/bob", "{.status.certificate}").is_empty());
    let certificate = decode(&json!(cluster.read("csr/bob", "{.status.certificate}")));
    let config: Value = serde_yaml::from_str(&cluster.ok("kubeconfig")).expect("a kubeconfig");
    let bob = CertifiedClient::new(&config, &certificate, &key.serialize_pem());
    assert_eq!(bob.whoami().1["groups"], json!(["dev", "system:authenticated"]));
}
