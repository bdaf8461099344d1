//! A webhook server of the tests' own, over TLS.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Answers a review at a path: `response` of an AdmissionReview without its uid, or a whole body.
type Answer = dyn Fn(&str, &Value) -> Value + Send + Sync;

/// A server whose certificate is for 127.0.0.1 and `hook.default.svc`.
pub struct HookServer {
    /// `https://127.0.0.1:PORT`
    pub url: String,
    /// The authority in PEM format, encoded as in `caBundle`.
    pub bundle: String,
    reviews: Arc<Mutex<Vec<(String, Value)>>>,
}

impl HookServer {
    pub fn start(answer: impl Fn(&str, &Value) -> Value + Send + Sync + 'static) -> HookServer {
        let (authority, config) = certificates();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("https://{}", listener.local_addr().expect("an address"));
        let reviews = Arc::new(Mutex::new(Vec::new()));
        let (answer, seen): (Arc<Answer>, _) = (Arc::new(answer), reviews.clone());
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, config) = (client.expect("a client"), config.clone());
                let (answer, seen) = (answer.clone(), seen.clone());
                thread::spawn(move || serve(client, config, &*answer, &seen));
            }
        });
        HookServer { url, bundle: BASE64_STANDARD.encode(authority), reviews }
    }

    /// The requests at a path so far.
    pub fn asked(&self, path: &str) -> Vec<Value> {
        let reviews = self.reviews.lock().expect("reviews");
        reviews.iter().filter(|(known, _)| known == path).map(|(_, review)| review["request"].clone()).collect()
    }
}

fn certificates() -> (String, Arc<ServerConfig>) {
    let key = KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = authority.self_signed(&key).expect("signed");
    let issuer = Issuer::new(authority, key);
    let own = KeyPair::generate().expect("a key");
    let names = vec!["127.0.0.1".to_owned(), "hook.default.svc".to_owned()];
    let server = CertificateParams::new(names).expect("names").signed_by(&own, &issuer).expect("signed");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let secret = PrivateKeyDer::Pkcs8(own.serialize_der().into());
    let config = config.with_no_client_auth().with_single_cert(vec![server.der().clone()], secret).expect("a pair");
    (certificate.pem(), Arc::new(config))
}

/// Answers requests on one connection until the client closes it.
fn serve(client: TcpStream, config: Arc<ServerConfig>, answer: &Answer, seen: &Mutex<Vec<(String, Value)>>) {
    let connection = ServerConnection::new(config).expect("a connection");
    let mut stream = BufReader::new(StreamOwned::new(connection, client));
    while let Some((path, body)) = read_request(&mut stream) {
        let review: Value = serde_json::from_slice(&body).expect("JSON");
        let place = path.split('?').next().unwrap_or_default().to_owned();
        seen.lock().expect("reviews").push((place.clone(), review.clone()));
        let mut answered = answer(&place, &review);
        if answered["kind"].is_null() {
            answered["uid"] = review["request"]["uid"].clone();
            let version = review["apiVersion"].clone();
            answered = json!({"kind": "AdmissionReview", "apiVersion": version, "response": answered});
        }
        let text = answered.to_string();
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", text.len());
        if stream.get_mut().write_all((head + &text).as_bytes()).is_err() {
            return;
        }
    }
}

fn read_request(stream: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let (mut path, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" if !path.is_empty() => break,
            line if line.starts_with("POST ") => path = line.split(' ').nth(1)?.to_owned(),
            line => {
                if let Some((name, value)) = line.split_once(':')
                    && name.eq_ignore_ascii_case("content-length")
                {
                    length = value.trim().parse().ok()?;
                }
            }
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((path, body))
}

/// A patch as a webhook sends it.
pub fn patch(operations: Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": BASE64_STANDARD.encode(operations.to_string())})
}
