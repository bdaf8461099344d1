//! The thread of a client, which does all transfers; other threads wait for their results.

use super::error::{ClientError, ClientResult};
use std::future::Future;
use std::sync::mpsc::channel;
use std::thread;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// The thread that does the transfers of a client.
pub struct TransferThread {
    handle: Handle,
    _end: oneshot::Sender<()>,
}

impl TransferThread {
    /// Starts the thread.
    pub fn start() -> std::io::Result<TransferThread> {
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(8).build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let run = move || {
            // An error means that the client was dropped.
            let _ = runtime.block_on(ended);
            // A look-up of a name may still block a thread: nothing waits for it.
            runtime.shutdown_background();
        };
        thread::Builder::new().name("client".to_owned()).stack_size(1 << 20).spawn(run)?;
        Ok(TransferThread { handle, _end: end })
    }

    /// Runs a transfer, and waits for its result.
    pub fn wait<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> ClientResult<T> {
        let (sender, result) = channel();
        self.handle.spawn(async move {
            // The caller waits.
            let _ = sender.send(work.await);
        });
        result.recv().map_err(|_| ClientError::Local("the client's thread has ended".to_owned()))
    }

    /// Runs a transfer in the background.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.handle.spawn(work).abort_handle()
    }
}
