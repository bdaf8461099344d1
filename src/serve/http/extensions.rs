//! The loop that asks extension API servers whether they answer, and keeps their documents (k8s.io/kube-aggregator: status/remote).
//!
//! Knows: an extension server is asked while its Service has endpoints: every few seconds while it does not answer, seldom once it does.
//! Each server has its own task with a time limit, so that a slow server does not delay others. The result is the condition `Available` of
//! its APIService. The loop also updates the ConfigMap by which extension servers identify this server. Never: answers a client. Start
//! reading at [`keep_up`].

use super::ServerState;
use super::proxy::connect::connect;
use super::proxy::identity::set_headers;
use crate::apiserver::aggregation::documents::{ExtensionDocuments, VersionDocuments};
use crate::apiserver::aggregation::open_api::OpenApiPart;
use crate::apiserver::aggregation::{self, Availability, Extension, ExtensionServer};
use crate::apiserver::create::create;
use crate::apiserver::tokens::front_proxy::CLIENT;
use crate::apiserver::update::{UpdatePart, update};
use crate::apiserver::user::{ADMINISTRATORS, User};
use crate::apiserver::{Api, ApiResult, WriteOptions};
use crate::kinds::config_map::KIND;
use crate::object::{IgnorePoison, Key, Object, Time};
use crate::runtime::https::trust::TlsClientKey;
use crate::serve::extension::tls;
use crate::serve::target::{ProxyTarget, ProxyTls};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::header::{ACCEPT, HOST, USER_AGENT};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Interval between checks of the APIServices, also while none has a Service.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
const EMPTY_CHECK_INTERVAL: Duration = Duration::from_secs(3);
/// Intervals between questions to a server that answers, and to a server that does not.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);
const AGAIN_UNAVAILABLE: Duration = Duration::from_secs(2);
/// Time limit of a question.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of bytes of a document.
const MAX_BYTES: usize = 4 << 20;
/// Maximum number of resources of a version that discovery shows.
const MAX_RESOURCES: usize = 2000;
/// Lifetime of the client certificate of this server in seconds, and the time after which a new one is issued.
const CERTIFICATE: i64 = 365 * 24 * 3600;
const RENEWAL: Duration = Duration::from_secs(24 * 3600);
/// Interval between repairs of the ConfigMap.
const REPAIR: Duration = Duration::from_secs(10);

/// The state of the loop, which requests share.
#[derive(Default)]
pub struct Extensions {
    /// The documents of extension servers.
    pub documents: ExtensionDocuments,
    identity: Mutex<Option<(TlsClientKey, Instant)>>,
}

impl Extensions {
    /// The certificate that extension servers get to see; `None` before the first request for it.
    pub fn identity(&self) -> Option<TlsClientKey> {
        let known = self.lock();
        known.as_ref().filter(|(_, made)| made.elapsed() < RENEWAL).map(|(own, _)| own.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Option<(TlsClientKey, Instant)>> {
        self.identity.lock().ignore_poison()
    }
}

/// Returns the certificate that extension servers get to see; makes it when it is old.
pub async fn own_identity(shared: &Arc<ServerState>) -> Option<TlsClientKey> {
    if let Some(own) = shared.extensions.identity() {
        return Some(own);
    }
    let made = shared.run_server_job(|api| api.front_proxy()?.issue_client(CERTIFICATE, Time::now())).await;
    let made = made.and_then(|made| made);
    let made = shared.problems.note("issue the certificate by which extension servers know this server", made)?;
    let own = TlsClientKey { certificate: made.certificate.into(), key: made.key.into() };
    *shared.extensions.lock() = Some((own.clone(), Instant::now()));
    Some(own)
}

/// The last question to an extension server.
struct Asked {
    at: Instant,
    server: String,
    task: tokio::task::JoinHandle<bool>,
}

/// Asks extension servers until the server ends.
pub async fn keep_up(shared: Arc<ServerState>) {
    let mut asked: BTreeMap<String, Asked> = BTreeMap::new();
    let mut repaired: Option<Instant> = None;
    loop {
        if repaired.is_none_or(|at| at.elapsed() >= REPAIR) {
            let published = shared.run_server_job(publish_authorities).await.and_then(|done| done);
            shared.problems.note("publish the authorities of clients for extension servers", published);
            repaired = Some(Instant::now());
        }
        let found = shared.run_server_job(look).await.and_then(|found| found);
        if let Some(found) = shared.problems.note("look for extension servers", found) {
            let names: Vec<String> = found.iter().map(|(extension, _)| extension.name.clone()).collect();
            shared.extensions.documents.retain(&names);
            asked.retain(|name, _| names.contains(name));
            for (extension, server) in found {
                ask_if_due(&shared, extension, server, &mut asked).await;
            }
        }
        sleep(if asked.is_empty() { EMPTY_CHECK_INTERVAL } else { CHECK_INTERVAL }).await;
    }
}

/// An extension with its server, if that can be reached.
type FoundExtension = (Extension, Result<ExtensionServer, Availability>);

fn look(api: &mut Api) -> ApiResult<Vec<FoundExtension>> {
    let all = api.extensions()?;
    if all.is_empty() {
        return Ok(Vec::new());
    }
    api.read_view(|txn| {
        all.into_iter()
            .map(|one| {
                let server = aggregation::find_server(txn, &one)?;
                Ok((one, server))
            })
            .collect()
    })
}

async fn ask_if_due(
    shared: &Arc<ServerState>,
    extension: Extension,
    server: Result<ExtensionServer, Availability>,
    asked: &mut BTreeMap<String, Asked>,
) {
    let server = match server {
        Ok(server) => server,
        Err(why) => {
            asked.remove(&extension.name);
            return set(shared, &extension.name, why).await;
        }
    };
    let place = server.place.to_string();
    if let Some(last) = asked.get_mut(&extension.name) {
        if !last.task.is_finished() {
            return;
        }
        let wait = if extension.is_available { PROBE_INTERVAL } else { AGAIN_UNAVAILABLE };
        if last.server == place && last.at.elapsed() < wait {
            return;
        }
    }
    let (own, name) = (shared.clone(), extension.name.clone());
    let task = tokio::spawn(async move { ask(&own, extension, server).await });
    asked.insert(name, Asked { at: Instant::now(), server: place, task });
}

async fn set(shared: &Arc<ServerState>, name: &str, found: Availability) {
    if found.status != "True" {
        shared.extensions.documents.mark_stale(name);
    }
    let name = name.to_owned();
    let write = move |api: &mut Api| {
        let is_same = api.read_view(|txn| aggregation::has_availability(txn, &name, &found))?;
        if is_same {
            return Ok(());
        }
        api.write(false, |txn| aggregation::set_availability(txn, &name, &found)).map(drop)
    };
    // When another process writes at the moment, the next round writes.
    let _: Result<ApiResult<()>, _> = shared.run_server_job(write).await;
}

/// Asks a server for its documents. Returns whether it answers.
async fn ask(shared: &Arc<ServerState>, extension: Extension, server: ExtensionServer) -> bool {
    let own = own_identity(shared).await;
    let path = extension.path();
    let url = format!("https://{}{path}", server.shown);
    let found = match get(&extension, &server, own.as_ref(), &path).await {
        Ok((status, body)) if (200..300).contains(&status) => {
            let open_api = read_open_api(&extension, &server, own.as_ref()).await;
            let known = shared.extensions.documents.find(&extension.name);
            let open_api_2 = match known.open_api_2 {
                // The hash of OpenAPI 3 is unchanged, so the document is, too.
                Some(part) if open_api.is_some() && known.open_api == open_api => Some(part),
                _ => read_open_api_2(&extension, &server, own.as_ref()).await,
            };
            let resources = Arc::new(read_resources(&body));
            let documents = VersionDocuments { resources, open_api, open_api_2, is_current: true };
            shared.extensions.documents.put(&extension.name, documents);
            Availability::passed()
        }
        Ok((status, _)) => {
            let why = format!("bad status from {url}: {status}");
            Availability::failed_check(format!("failing or missing response from {url}: {why}"))
        }
        Err(why) => Availability::failed_check(format!("failing or missing response from {url}: Get {url:?}: {why}")),
    };
    let is_passed = found.status == "True";
    set(shared, &extension.name, found).await;
    is_passed
}

fn read_resources(body: &[u8]) -> Vec<Value> {
    let list: Value = serde_json::from_slice(body).unwrap_or_default();
    list["resources"].as_array().into_iter().flatten().take(MAX_RESOURCES).cloned().collect()
}

/// Returns the hash of a version's OpenAPI document in version 3.
async fn read_open_api(extension: &Extension, server: &ExtensionServer, own: Option<&TlsClientKey>) -> Option<String> {
    let (status, body) = get(extension, server, own, "/openapi/v3").await.ok()?;
    let index: Value = serde_json::from_slice(&body).ok().filter(|_| status == 200)?;
    let path = extension.path();
    let url = index["paths"][path.trim_start_matches('/')]["serverRelativeURL"].as_str()?;
    Some(url.split_once("?hash=").map(|(_, hash)| hash).unwrap_or_default().to_owned())
}

/// Returns a version's part of the server's OpenAPI document in version 2.
async fn read_open_api_2(
    extension: &Extension,
    server: &ExtensionServer,
    own: Option<&TlsClientKey>,
) -> Option<Arc<OpenApiPart>> {
    let (status, body) = get(extension, server, own, "/openapi/v2").await.ok()?;
    let document: Value = serde_json::from_slice(&body).ok().filter(|_| status == 200)?;
    OpenApiPart::select(&document, &extension.path()).map(Arc::new)
}

/// Gets a document of an extension server, as the user that Kubernetes asks as.
async fn get(
    extension: &Extension,
    server: &ExtensionServer,
    own: Option<&TlsClientKey>,
    path: &str,
) -> Result<(u16, Vec<u8>), String> {
    let user = User { name: "system:kube-aggregator".into(), groups: vec![ADMINISTRATORS.into()], ..User::default() };
    let user = Arc::new(user);
    let tls = ProxyTls::Extension(tls(extension, user.clone()));
    let target =
        ProxyTarget { place: server.place, tls, path: path.to_owned(), prefix: None, query: None, body: Vec::new() };
    let asked = async {
        let stream = TokioIo::new(connect(&target, own).await?);
        let failed = |error: hyper::Error| error.to_string();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.map_err(failed)?;
        tokio::spawn(connection);
        let request = Request::get(path)
            .header(HOST, extension.host())
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, "kube-aggregator");
        let mut request = request.body(Full::new(Bytes::new())).map_err(|error| error.to_string())?;
        set_headers(request.headers_mut(), &user);
        let response = sender.send_request(request).await.map_err(failed)?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), MAX_BYTES).collect().await.map_err(|error| error.to_string())?;
        Ok((status, body.to_bytes().to_vec()))
    };
    let late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
    timeout(ANSWER_TIMEOUT, asked).await.unwrap_or_else(|_| Err(late.to_owned()))
}

/// Writes the ConfigMap by which extension servers know clients and this server, where it differs.
fn publish_authorities(api: &mut Api) -> ApiResult<()> {
    const NAME: (&str, &str) = ("kube-system", "extension-apiserver-authentication");
    let (clients, front) = (api.keys()?.authority.clone(), api.front_proxy()?.authority);
    let list = |text: &str| json!([text]).to_string();
    let data = json!({
        "client-ca-file": clients,
        "requestheader-client-ca-file": front,
        "requestheader-allowed-names": list(CLIENT),
        "requestheader-username-headers": list("X-Remote-User"),
        "requestheader-uid-headers": list("X-Remote-Uid"),
        "requestheader-group-headers": list("X-Remote-Group"),
        "requestheader-extra-headers-prefix": list("X-Remote-Extra-"),
    });
    let key = Key::new(KIND.resource, NAME.0, NAME.1);
    let known = api.read_view(|txn| txn.get(&key))?;
    if known.as_ref().is_some_and(|known| known.0["data"] == data) {
        return Ok(());
    }
    api.write(false, |txn| match txn.get(&key)? {
        Some(mut known) => {
            known.set(&["data"], data.clone());
            update(txn, &KIND, &known, UpdatePart::Main, &WriteOptions::default()).map(drop)
        }
        None => {
            let metadata = json!({"namespace": NAME.0, "name": NAME.1});
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
            create(txn, &KIND, &Object(map), &WriteOptions::default()).map(drop)
        }
    })
}
