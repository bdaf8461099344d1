//! The server of a joined node's kubelet: logs, streams and measurements for the API server, over TLS.
//!
//! Knows: it starts with the first certificate, and shows a renewed one to new clients; links use the same. Start reading at
//! [`KubeletServer::use_certificates`].

use crate::cli::output::server_log::log_server;
use crate::cli::reconcile;
use crate::joined_node::ServingIdentity;
use crate::reconcile::link_certificates::LinkCertificateFeed;
use crate::runtime::https::trust::LinkCertificates;
use crate::serve::http::HttpServer;
use crate::serve::http::guard::AccessGuard;
use crate::serve::http::identity::{self, ServerTls};
use crate::serve::http::kubelet_guard::KubeletGuard;
use std::net::TcpListener;
use std::path::PathBuf;
use tokio::sync::oneshot;

/// The server of one node.
pub struct KubeletServer {
    /// The node's own state.
    pub state: PathBuf,
    /// The socket, and the end of the server, until it runs.
    pub start: Option<(TcpListener, oneshot::Receiver<()>)>,
    /// The access.
    pub guard: KubeletGuard,
    /// Receives the certificates for links.
    pub certificates: LinkCertificateFeed,
    /// Its TLS side, once it runs.
    pub tls: Option<ServerTls>,
}

impl KubeletServer {
    /// Serves with these certificates from now on.
    pub fn use_certificates(&mut self, own: ServingIdentity) {
        if let Err(error) = self.try_certificates(own) {
            log_unserved(&error);
        }
    }

    fn try_certificates(&mut self, own: ServingIdentity) -> anyhow::Result<()> {
        let (chain, key) = (own.key.certificate.as_bytes(), own.key.key.as_bytes());
        match &self.tls {
            Some(tls) => tls.replace(chain, key)?,
            None => {
                let tls = identity::read_certificate(chain, key, &own.authority)?;
                self.tls = Some(tls.clone());
                self.run(tls)?;
            }
        }
        let authority = String::from_utf8_lossy(&own.authority).into();
        self.certificates.provide(LinkCertificates { client: own.client, server: own.key, authority });
        Ok(())
    }

    /// Starts the server on a thread of its own.
    fn run(&mut self, tls: ServerTls) -> anyhow::Result<()> {
        let Some((listener, stopped)) = self.start.take() else { return Ok(()) };
        let server = HttpServer {
            state: self.state.clone(),
            listener,
            entry: None,
            kubelet: None,
            guard: AccessGuard::Kubelet(self.guard.clone()),
            tls: Some(tls),
            audit: None,
            keeps_up: false,
            control_plane: None,
            log: log_server,
        };
        let serve = move || {
            if let Err(error) = server.run(async { drop(stopped.await) }) {
                log_unserved(&error.into());
            }
        };
        std::thread::Builder::new().name("kubelet".into()).spawn(serve)?;
        Ok(())
    }
}

fn log_unserved(error: &anyhow::Error) {
    reconcile::log::print_by("node", &format!("serves no logs and streams to the server: {error:#}"));
}
