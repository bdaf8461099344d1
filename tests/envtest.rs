//! kloop under the names `kube-apiserver` and `etcd`, with the flags of controller-runtime's envtest.

use crate::cluster::free_port;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

/// A program that is killed when a test fails.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Program {
    fn start(assets: &Path, name: &str, flags: &[String]) -> Program {
        let mut command = Command::new(assets.join(name));
        Program(command.args(flags).stdout(Stdio::null()).spawn().expect("started"))
    }

    /// Ends it as envtest does.
    fn stop(mut self) -> Option<i32> {
        let pid = i32::try_from(self.0.id()).expect("a pid");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM).expect("signalled");
        self.0.wait().expect("ended").code()
    }
}

/// An authority that signs certificates of servers and clients, as envtest's.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new(Vec::new()).expect("parameters");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(DnType::CommonName, "envtest-environment");
        let pem = parameters.self_signed(&key).expect("signed").pem();
        Authority { pem, issuer: Issuer::new(parameters, key) }
    }

    /// A certificate and its key in PEM format.
    fn sign(&self, names: &[&str], common_name: &str, organization: &str) -> (String, String) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut parameters = CertificateParams::new(names).expect("names");
        parameters.distinguished_name.push(DnType::CommonName, common_name);
        parameters.distinguished_name.push(DnType::OrganizationName, organization);
        let usage = if organization.is_empty() {
            rcgen::ExtendedKeyUsagePurpose::ServerAuth
        } else {
            rcgen::ExtendedKeyUsagePurpose::ClientAuth
        };
        parameters.extended_key_usages = vec![usage];
        let key = KeyPair::generate().expect("a key");
        (parameters.signed_by(&key, &self.issuer).expect("signed").pem(), key.serialize_pem())
    }
}

fn wait_until_ok(agent: &ureq::Agent, url: &str) {
    let begun = Instant::now();
    while !agent.get(url).call().is_ok_and(|answer| answer.status() == 200) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{url} does not answer");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn envtest_programs_serve_an_api_for_client_certificates() {
    let folder = tempfile::tempdir().expect("folder");
    let [assets, data, certificates] = ["assets", "data", "certificates"].map(|name| folder.path().join(name));
    for folder in [&assets, &certificates] {
        fs::create_dir(folder).expect("made");
    }
    for name in ["kube-apiserver", "etcd"] {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kloop"), assets.join(name)).expect("linked");
    }
    let help = Command::new(assets.join("etcd")).arg("--help").output().expect("helped").stdout;
    assert!(String::from_utf8_lossy(&help).contains("--unsafe-no-fsync"));
    let flag = |name: &str, value: &str| format!("--{name}={value}");
    let client_url = format!("http://127.0.0.1:{}", free_port());
    let etcd = Program::start(
        &assets,
        "etcd",
        &[
            flag("advertise-client-urls", &client_url),
            flag("data-dir", &data.display().to_string()),
            flag("listen-client-urls", &client_url),
            flag("listen-peer-urls", "http://localhost:0"),
            flag("unsafe-no-fsync", "true"),
        ],
    );
    let insecure = ureq::Agent::config_builder().http_status_as_error(false).proxy(None);
    let insecure = insecure.tls_config(TlsConfig::builder().disable_verification(true).build());
    let insecure = ureq::Agent::new_with_config(insecure.build());
    wait_until_ok(&insecure, &format!("{client_url}/health"));

    let (serving, clients) = (Authority::new(), Authority::new());
    let (chain, key) = serving.sign(&["localhost", "127.0.0.1"], "apiserver", "");
    let write = |name: &str, text: &str| {
        let path = certificates.join(name);
        fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    write("apiserver.crt", &chain);
    write("apiserver.key", &key);
    let client_authority = write("client-cert-auth-ca.crt", &clients.pem);
    let port = free_port();
    let server = Program::start(
        &assets,
        "kube-apiserver",
        &[
            flag("allow-privileged", "true"),
            flag("authorization-mode", "RBAC"),
            flag("bind-address", "127.0.0.1"),
            flag("cert-dir", &certificates.display().to_string()),
            flag("client-ca-file", &client_authority),
            flag("disable-admission-plugins", "ServiceAccount"),
            flag("etcd-servers", &client_url),
            flag("secure-port", &port.to_string()),
            flag("service-account-issuer", &format!("https://127.0.0.1:{port}/")),
            flag("service-account-key-file", &certificates.join("sa-signer.crt").display().to_string()),
            flag("service-account-signing-key-file", &certificates.join("sa-signer.key").display().to_string()),
            flag("service-cluster-ip-range", "10.0.0.0/24"),
        ],
    );
    let url = format!("https://127.0.0.1:{port}");
    wait_until_ok(&insecure, &format!("{url}/readyz"));

    let agent = |name: &str, group: &str| {
        let (chain, key) = clients.sign(&[], name, group);
        let chain = vec![Certificate::from_pem(chain.as_bytes()).expect("a certificate").to_owned()];
        let client = ClientCert::new_with_certs(&chain, PrivateKey::from_pem(key.as_bytes()).expect("a key"));
        let trusted = Certificate::from_pem(serving.pem.as_bytes()).expect("a certificate").to_owned();
        let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&[trusted])).client_cert(Some(client));
        let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).tls_config(tls.build());
        ureq::Agent::new_with_config(config.build())
    };
    let (admin, stranger) = (agent("admin", "system:masters"), agent("ann", "team"));
    let ask = |agent: &ureq::Agent, path: &str, body: Option<&Value>| -> (u16, Value) {
        let url = format!("{url}{path}");
        let mut answer = match body {
            Some(body) => agent.post(&url).header("Content-Type", "application/json").send(body.to_string()),
            None => agent.get(&url).call(),
        }
        .expect("an answer");
        let text = answer.body_mut().read_to_string().expect("text");
        (answer.status().as_u16(), serde_json::from_str(&text).unwrap_or_default())
    };
    assert_eq!(ask(&admin, "/api/v1/namespaces/default", None).0, 200);
    assert_eq!(ask(&stranger, "/api/v1/namespaces/default", None).0, 403);
    // The plugin ServiceAccount is disabled.
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"serviceAccountName": "absent", "containers": [{"name": "c", "image": "x"}]}});
    let (code, made) = ask(&admin, "/api/v1/namespaces/default/pods", Some(&pod));
    assert_eq!((code, made["spec"].get("volumes")), (201, None));
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    let (code, made) = ask(&admin, "/api/v1/nodes", Some(&node));
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    assert_eq!((code, &made["spec"]["taints"]), (201, &json!([taint])));
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "boats.sea.dev"},
        "spec": {"group": "sea.dev", "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"}, "versions": [version]},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(ask(&admin, definitions, Some(&definition)).0, 201);
    let begun = Instant::now();
    loop {
        let (_, read) = ask(&admin, &format!("{definitions}/boats.sea.dev"), None);
        let conditions = read["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if conditions.iter().any(|one| one["type"] == "Established" && one["status"] == "True") {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "the definition is not established: {read}");
        thread::sleep(Duration::from_millis(5));
    }
    let boat = json!({"apiVersion": "sea.dev/v1", "kind": "Boat", "metadata": {"name": "a", "namespace": "default"}, "length": 5});
    assert_eq!(ask(&admin, "/apis/sea.dev/v1/namespaces/default/boats", Some(&boat)).0, 201);
    let rule =
        json!({"apiGroups": ["sea.dev"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["boats"]});
    let hook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "boats"},
        "webhooks": [{"name": "boats.sea.dev", "clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": [rule],
            "sideEffects": "None", "admissionReviewVersions": ["v1"]}],
    });
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(ask(&admin, hooks, Some(&hook)).0, 201);
    let mut other = boat.clone();
    other["metadata"]["name"] = "b".into();
    let (code, refused) = ask(&admin, "/apis/sea.dev/v1/namespaces/default/boats", Some(&other));
    assert_eq!(code, 500);
    let message = refused["message"].as_str().expect("a message");
    assert!(message.starts_with("Internal error occurred: failed calling webhook \"boats.sea.dev\""), "{message}");
    assert_eq!([server.stop(), etcd.stop()], [Some(0), Some(0)]);
    assert!(data.join("state.db").exists());
}
