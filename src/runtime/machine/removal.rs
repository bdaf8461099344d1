//! Removal of the folders of pods and persistent volumes, on threads of its own.
//!
//! A pod can create any number of files, so their removal can take any time: no other work may wait for it.
//! Start reading at [`Remover::remove_pod`].

use super::super::{folder, volumes};
use crate::object::{IgnorePoison, Str};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

/// Folders of pods that are removed at the same time.
const WORKERS: usize = 4;
/// Delay before a failed removal of a volume is tried again; doubled each time, up to [`MAX_RETRY`].
const RETRY: Duration = Duration::from_secs(5);
const MAX_RETRY: Duration = Duration::from_secs(300);
/// A removal does not recurse, so little is enough.
const STACK: usize = 256 * 1024;

/// Receives the result of a removal; the error names the files that are left, and why.
type Done = Box<dyn FnOnce(Result<(), String>) + Send>;

/// The threads that remove folders. When it is dropped, each thread ends after its current folder.
pub struct Remover {
    pods: Sender<(Str, Done)>,
    volumes: Sender<()>,
    state: PathBuf,
}

impl Remover {
    /// Starts the threads, which first remove the rest of volumes that were deleted earlier. `report` receives the errors.
    pub fn start(state: &Path, report: impl Fn(String) + Send + 'static) -> std::io::Result<Remover> {
        let (pods, orders) = channel();
        let orders = Arc::new(Mutex::new(orders));
        for number in 0..WORKERS {
            let (orders, state) = (orders.clone(), state.to_owned());
            let builder = Builder::new().name(format!("removal-{number}")).stack_size(STACK);
            builder.spawn(move || remove_pods(&state, &orders))?;
        }
        let (volumes, orders) = channel();
        let place = state.to_owned();
        let builder = Builder::new().name("removal-volumes".into()).stack_size(STACK);
        builder.spawn(move || remove_volumes(&place, &orders, &report))?;
        Ok(Remover { pods, volumes, state: state.to_owned() })
    }

    /// Removes the folder of a pod of which nothing runs.
    pub fn remove_pod(&self, uid: Str, done: impl FnOnce(Result<(), String>) + Send + 'static) {
        // The threads live as long as this.
        let _ = self.pods.send((uid, Box::new(done)));
    }

    /// Removes the folder of a persistent volume, again and again until it is gone.
    pub fn discard_volume(&self, name: &str) -> Result<(), String> {
        volumes::discard(&self.state, name)?;
        let _ = self.volumes.send(());
        Ok(())
    }
}

fn remove_pods(state: &Path, orders: &Mutex<Receiver<(Str, Done)>>) {
    let next = || orders.lock().ignore_poison().recv();
    while let Ok((uid, done)) = next() {
        done(volumes::remove(&folder::pod_path(state, &uid)));
    }
}

fn remove_volumes(state: &Path, orders: &Receiver<()>, report: &dyn Fn(String)) {
    let (mut pause, mut told) = (RETRY, None);
    loop {
        let ordered = match volumes::clear_discarded(state) {
            Ok(()) => {
                (pause, told) = (RETRY, None);
                orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
            }
            Err(why) => {
                if told.as_ref() != Some(&why) {
                    report(why.clone());
                    told = Some(why);
                }
                let ordered = orders.recv_timeout(pause);
                pause = MAX_RETRY.min(pause * 2);
                ordered
            }
        };
        if ordered == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    }
}
