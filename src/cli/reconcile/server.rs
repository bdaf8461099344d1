//! The API server beside the loops: for `--serve`, for the pods of this machine, and as the kubelet of its node.
//!
//! Never: answers requests; [`crate::serve`] does. Start reading at [`start_pod_api`].

use super::Args;
use crate::cli::{CliResult, CommandContext, serve};
use crate::joined_node;
use crate::reconcile::ControlSettings;
use crate::serve::http::{HttpServer, KubeletListener};
use std::io;
use std::net::TcpListener;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// Port at which this machine's node answers as a kubelet; any other when it is taken. It is not 10250: in a pod, localhost leads to the
/// pod itself first, and a metrics server listens at 10250 itself.
const KUBELET_PORT: u16 = 10246;

/// Starts the API server of `--serve`. With `--watch` it serves this machine's pods as well, and answers as the kubelet of its node.
pub fn start_at(
    port: u16,
    args: &Args,
    settings: &mut ControlSettings,
    context: &mut CommandContext,
) -> CliResult<RunningServer> {
    let address = settings.node.as_ref().filter(|_| args.watch).map(|node| node.address);
    let opened = serve::open(serve::Args::for_port(port, args.audit.clone()), address, context)?;
    let opened = if args.watch { serve_as_kubelet(opened, settings) } else { opened };
    RunningServer::start(opened, settings)
}

/// Starts the API server for the pods of this machine, where there are any and the machine lets it.
pub fn start_pod_api(
    settings: &mut ControlSettings,
    audit: &serve::AuditFlags,
    context: &mut CommandContext,
) -> CliResult<Option<RunningServer>> {
    let Some(address) = settings.node.as_ref().map(|node| node.address) else { return Ok(None) };
    let server = match serve::open_for_pods(audit, address, context) {
        Ok(server) => server,
        Err(error) => {
            context.print_notice(&format!("hint: no API server for pods on this machine: {error}"));
            return Ok(None);
        }
    };
    settings.pod_api = server.listener.local_addr().ok();
    let server = serve_as_kubelet(server, settings);
    RunningServer::start(server, settings).map(Some)
}

/// Makes a server also answer as the kubelet of this machine's node, at the node's address and a port that is set in the node's status.
/// Without a free port, other programs cannot reach a kubelet of the node. A joined node has its server already.
fn serve_as_kubelet(server: HttpServer, settings: &mut ControlSettings) -> HttpServer {
    let Some(node) = settings.node.as_mut().filter(|_| !joined_node::is_copy(&settings.state)) else { return server };
    let bind = |port| TcpListener::bind((node.address, port));
    let Ok(listener) = bind(KUBELET_PORT).or_else(|_| bind(0)) else { return server };
    node.kubelet_port = listener.local_addr().map_or(0, |own| own.port());
    HttpServer { kubelet: Some(KubeletListener { listener, node: node.name.clone() }), ..server }
}

/// A server on a thread of its own.
pub struct RunningServer {
    /// Dropped, it stops the server.
    stop: oneshot::Sender<()>,
    thread: JoinHandle<io::Result<()>>,
}

impl RunningServer {
    fn start(server: HttpServer, settings: &ControlSettings) -> CliResult<RunningServer> {
        let server = HttpServer { control_plane: Some(settings.metrics.clone()), ..server };
        let (stop, stopped) = oneshot::channel();
        let serve = move || server.run(async { drop(stopped.await) });
        Ok(RunningServer { stop, thread: std::thread::Builder::new().name("serve".into()).spawn(serve)? })
    }

    /// Stops it, and waits for its end.
    pub fn end(self) {
        drop(self.stop);
        // A panic has been printed; the cluster is as the loops left it.
        let _ = self.thread.join();
    }
}
