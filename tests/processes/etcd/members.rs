//! Three members of a real etcd, as Debian installs it, on ports of this machine.

use crate::cluster::{Cluster, free_port, signal};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Longest time that a test waits for the members. Only a failing test waits that long.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// The members, which end with the test.
pub struct Members {
    folder: tempfile::TempDir,
    /// The address at which clients reach them.
    host: String,
    /// The ports of each member: for clients, and for the other members.
    ports: [(u16, u16); 3],
    children: Mutex<[Option<Child>; 3]>,
    has_tls: bool,
}

impl Members {
    /// Starts three members; `None`, with a loud notice, where etcd is not installed.
    pub fn start() -> Option<Members> {
        Members::start_members("127.0.0.1", false)
    }

    /// Starts three members that clients reach at another address of this machine.
    pub fn start_at(host: &str) -> Option<Members> {
        Members::start_members(host, false)
    }

    /// Starts three members that ask clients for certificates.
    pub fn start_with_tls() -> Option<Members> {
        Members::start_members("127.0.0.1", true)
    }

    fn start_members(host: &str, has_tls: bool) -> Option<Members> {
        let version = Command::new("etcd").arg("--version").stdin(Stdio::null()).output();
        if !version.is_ok_and(|version| String::from_utf8_lossy(&version.stdout).starts_with("etcd Version")) {
            skip!("etcd is not installed");
            return None;
        }
        // Ports that are free now may be taken by another test a moment later.
        for _ in 0..5 {
            let ports = [(); 3].map(|()| (free_port(), free_port()));
            let folder = tempfile::tempdir().expect("a folder");
            let members = Members { folder, host: host.to_owned(), ports, children: Mutex::default(), has_tls };
            if has_tls {
                write_certificates(members.folder.path());
            }
            (0..3).for_each(|member| members.spawn(member));
            if members.wait_until_healthy() {
                return Some(members);
            }
        }
        panic!("etcd does not start");
    }

    fn spawn(&self, member: usize) {
        let scheme = if self.has_tls { "https" } else { "http" };
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let client_url = format!("{scheme}://{}:{}", self.host, self.ports[member].0);
        let peers: Vec<String> =
            self.ports.iter().enumerate().map(|(index, (_, peer))| format!("m{index}={}", url(*peer))).collect();
        let file = |name: &str| self.folder.path().join(name);
        let log = std::fs::File::create(file(&format!("{member}.log"))).expect("a file");
        let mut command = Command::new("etcd");
        command.env_clear().stdin(Stdio::null()).stdout(log.try_clone().expect("a file")).stderr(log);
        command.arg("--name").arg(format!("m{member}")).arg("--data-dir").arg(file(&member.to_string()));
        command.args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url]);
        let peer_url = url(self.ports[member].1);
        command.args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url]);
        command.args(["--initial-cluster", &peers.join(","), "--initial-cluster-state", "new"]);
        // Tests run on loaded machines.
        command.args(["--heartbeat-interval", "100", "--election-timeout", "1000"]);
        if self.has_tls {
            command.arg("--cert-file").arg(file("server.pem")).arg("--key-file").arg(file("server.key"));
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(file("ca.pem"));
        }
        self.children.lock().expect("members")[member] = Some(command.spawn().expect("etcd starts"));
    }

    /// Waits until the members have a leader. False when one of them has ended.
    fn wait_until_healthy(&self) -> bool {
        let begun = Instant::now();
        loop {
            let has_ended = |child: &mut Option<Child>| {
                child.as_mut().is_some_and(|child| child.try_wait().expect("a child").is_some())
            };
            if self.children.lock().expect("members").iter_mut().any(has_ended) {
                return false;
            }
            let machine = Cluster::at_address(&self.address("probe"));
            if machine.kloop("get ns").err.contains("there is no cluster") {
                return true;
            }
            assert!(begun.elapsed() < WAIT_TIMEOUT, "etcd has no leader: {:?}", machine.kloop("get ns"));
        }
    }

    /// The address of the state with this prefix.
    pub fn address(&self, prefix: &str) -> String {
        self.address_with(prefix, "ca.pem", "client")
    }

    /// The address with other files of TLS.
    pub fn address_with(&self, prefix: &str, authority: &str, client: &str) -> String {
        let members: Vec<String> = self.ports.iter().map(|(port, _)| format!("{}:{port}", self.host)).collect();
        let address = format!("etcd://{}/{prefix}", members.join(","));
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        match self.has_tls {
            false => address,
            true => format!(
                "{address}?cacert={}&cert={}&key={}",
                file(authority),
                file(&format!("{client}.pem")),
                file(&format!("{client}.key"))
            ),
        }
    }

    /// Returns a machine of the cluster with this prefix.
    pub fn machine(&self, prefix: &str) -> Cluster {
        Cluster::at_address(&self.address(prefix))
    }

    /// Kills a member.
    pub fn kill(&self, member: usize) {
        if let Some(mut child) = self.children.lock().expect("members")[member].take() {
            child.kill().expect("killed");
            child.wait().expect("ended");
        }
    }

    /// Starts a killed member again.
    pub fn restart(&self, member: usize) {
        self.spawn(member);
    }

    /// Stops a member, so that its connections stay open and nothing is answered.
    pub fn pause(&self, member: usize) {
        self.signal(member, "STOP");
    }

    /// Lets a stopped member go on.
    pub fn resume(&self, member: usize) {
        self.signal(member, "CONT");
    }

    fn signal(&self, member: usize, name: &str) {
        let pid = self.children.lock().expect("members")[member].as_ref().expect("it runs").id();
        signal(pid, name);
    }

    /// Writes a key, as another program does.
    pub fn put(&self, key: &str, value: &str) {
        self.post("kv/put", &json!({"key": STANDARD.encode(key), "value": STANDARD.encode(value)}));
    }

    /// Number of keys below a prefix.
    pub fn keys(&self, prefix: &str) -> u64 {
        let end = format!("{prefix}0");
        let range = json!({"key": STANDARD.encode(format!("{prefix}/")), "range_end": STANDARD.encode(end), "count_only": true});
        self.post("kv/range", &range)["count"].as_str().map_or(0, |count| count.parse().expect("a number"))
    }

    /// Makes users necessary: `root`, and one with the right to the prefix `/shop`.
    pub fn enable_users(&self, name: &str, password: &str) {
        self.post("auth/user/add", &json!({"name": "root", "password": "root"}));
        self.post("auth/role/add", &json!({"name": "root"}));
        self.post("auth/user/grant", &json!({"user": "root", "role": "root"}));
        self.post("auth/user/add", &json!({"name": name, "password": password}));
        self.post("auth/role/add", &json!({"name": "shop"}));
        let (key, range_end) = (STANDARD.encode("/shop/"), STANDARD.encode("/shop0"));
        let right = json!({"permType": "READWRITE", "key": key, "range_end": range_end});
        self.post("auth/role/grant", &json!({"name": "shop", "perm": right}));
        self.post("auth/user/grant", &json!({"user": name, "role": "shop"}));
        self.post("auth/enable", &json!({}));
    }

    /// Asks a member by its JSON gateway.
    fn post(&self, path: &str, body: &Value) -> Value {
        let scheme = if self.has_tls { "https" } else { "http" };
        let url = format!("{scheme}://127.0.0.1:{}/v3/{path}", self.ports[0].0);
        let agent = ureq::Agent::config_builder().proxy(None);
        let agent = match self.has_tls {
            false => agent,
            true => agent.tls_config(self.client_tls()),
        };
        let agent = ureq::Agent::new_with_config(agent.build());
        let mut answer = agent.post(&url).send(body.to_string()).unwrap_or_else(|error| panic!("{path}: {error}"));
        serde_json::from_str(&answer.body_mut().read_to_string().expect("an answer")).expect("JSON")
    }

    fn client_tls(&self) -> ureq::tls::TlsConfig {
        use ureq::tls::{Certificate, ClientCert, PrivateKey, TlsConfig};
        let read = |name: &str| std::fs::read(self.folder.path().join(name)).expect("a file");
        let chain = vec![Certificate::from_pem(&read("client.pem")).expect("a certificate")];
        let key = PrivateKey::from_pem(&read("client.key")).expect("a key");
        TlsConfig::builder()
            .disable_verification(true)
            .client_cert(Some(ClientCert::new_with_certs(&chain, key)))
            .build()
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        (0..3).for_each(|member| self.kill(member));
    }
}

/// Writes an authority, a certificate of the members and one of a client, and the certificate of another authority.
fn write_certificates(folder: &Path) {
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("written");
    let authority = || {
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new(Vec::new()).expect("parameters");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = parameters.self_signed(&key).expect("signed").pem();
        (pem, Issuer::new(parameters, key))
    };
    let (pem, issuer) = authority();
    write("ca.pem", &pem);
    write("another-ca.pem", &authority().0);
    // etcd's JSON gateway is a client of the member, with the member's own certificate.
    let uses = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    for (name, common_name) in [("server", "member"), ("client", "")] {
        let mut parameters = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("names");
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        if !common_name.is_empty() {
            parameters.distinguished_name.push(DnType::CommonName, common_name);
        }
        parameters.extended_key_usages.clone_from(&uses);
        let key = KeyPair::generate().expect("a key");
        write(&format!("{name}.pem"), &parameters.signed_by(&key, &issuer).expect("signed").pem());
        write(&format!("{name}.key"), &key.serialize_pem());
    }
}
