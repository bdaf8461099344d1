//! `etcd`: answers health checks, and holds the folder in which `kube-apiserver` keeps its state.
//!
//! Never: stores anything. Start reading at [`run`].

use super::flags::ProgramFlags;
use crate::cli::serve::{interrupt, wait_for_interrupt};
use crate::cli::{CliResult, Failure};
use crate::client::standard_error;
use crate::object::io_error_text;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::net::{TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The path at which `kube-apiserver` asks for the place of the state: a [`DataFolder`] in JSON.
pub const PLACE: &str = "/kloop/state";

/// The place of the state.
#[derive(Debug, Serialize, Deserialize)]
pub struct DataFolder {
    /// The folder.
    pub folder: PathBuf,
    /// Whether the state may be lost with the power, so that writes need not wait for the disk.
    pub is_unsynced: bool,
}

/// Flags that envtest asks the help for, or sets.
const KNOWN: [&str; 9] = [
    "listen-client-urls",
    "advertise-client-urls",
    "listen-peer-urls",
    "initial-advertise-peer-urls",
    "initial-cluster",
    "data-dir",
    "unsafe-no-fsync",
    "name",
    "log-level",
];
/// Time limit for one connection.
const CONNECTION: Duration = Duration::from_secs(30);

/// Runs the program until a signal ends it.
pub fn run(flags: &ProgramFlags) -> CliResult {
    if flags.get("help").is_some() || flags.get("h").is_some() {
        KNOWN.iter().for_each(|flag| println!("  --{flag}"));
        return Ok(());
    }
    if flags.get("version").is_some() {
        println!("etcd Version: 3.6.0 (kloop {})", env!("CARGO_PKG_VERSION"));
        return Ok(());
    }
    for flag in flags.unknown(&[&KNOWN]) {
        standard_error::print_line(format_args!("warning: unknown flag --{flag} is ignored"));
    }
    let folder = PathBuf::from(flags.get("data-dir").unwrap_or("default.etcd"));
    let folder = std::path::absolute(&folder)?;
    std::fs::create_dir_all(&folder)
        .map_err(|error| Failure::plain(format!("cannot create {}: {}", folder.display(), io_error_text(error))))?;
    let urls = flags.get("listen-client-urls").unwrap_or("http://localhost:2379");
    let listeners = urls.split(',').map(listen).collect::<CliResult<Vec<_>>>()?;
    let interrupt = interrupt()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let is_unsynced = flags.get("unsafe-no-fsync").is_some_and(|value| value != "false");
    let place = serde_json::to_string(&DataFolder { folder, is_unsynced });
    let place: Arc<str> = place.map_err(|error| Failure::plain(format!("--data-dir: {error}")))?.into();
    runtime.block_on(async {
        for listener in listeners {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tokio::spawn(serve(listener, place.clone()));
        }
        wait_for_interrupt(interrupt).await;
        Ok(())
    })
}

fn listen(url: &str) -> CliResult<TcpListener> {
    let refuse = |why: String| Failure::plain(format!("cannot listen on {url}: {why}"));
    let place = url.strip_prefix("http://").ok_or_else(|| refuse("only http:// is served".to_owned()))?;
    let places = place.trim_end_matches('/').to_socket_addrs().map_err(|error| refuse(io_error_text(error)))?;
    let listener = TcpListener::bind(&places.collect::<Vec<_>>()[..]).map_err(|error| refuse(io_error_text(error)))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

async fn serve(listener: tokio::net::TcpListener, place: Arc<str>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let place = place.clone();
        let service = service_fn(move |request| {
            let place = place.clone();
            async move { Ok::<_, Infallible>(answer(&request, &place)) }
        });
        let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(client), service);
        tokio::spawn(timeout(CONNECTION, connection));
    }
}

fn answer(request: &Request<Incoming>, place: &str) -> Response<Full<Bytes>> {
    let text = match request.uri().path() {
        "/health" | "/livez" | "/readyz" => r#"{"health":"true","reason":""}"#.to_owned(),
        "/version" => r#"{"etcdserver":"3.6.0","etcdcluster":"3.6.0"}"#.to_owned(),
        PLACE => place.to_owned(),
        _ => {
            let mut missing = Response::new(Full::from("404 page not found\n"));
            *missing.status_mut() = hyper::StatusCode::NOT_FOUND;
            return missing;
        }
    };
    Response::new(Full::from(text))
}
