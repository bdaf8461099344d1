//! A thread that drops the objects of finished ticks on another core: an object has hundreds of allocations, and a tick has hundreds of objects.

use std::sync::LazyLock;
use std::sync::mpsc::{SyncSender, sync_channel};

/// Maximum number of loads that wait for the thread; the caller drops further ones itself.
const LOADS: usize = 8;

type DropLoad = Box<dyn Send>;

/// Channel to the thread; `None` when no thread could be started.
static SENDER: LazyLock<Option<SyncSender<DropLoad>>> = LazyLock::new(|| {
    let (sender, loads) = sync_channel::<DropLoad>(LOADS);
    let work = move || loads.iter().for_each(drop);
    std::thread::Builder::new().name("drop".into()).spawn(work).ok().map(|_| sender)
});

/// Hands a load to the thread to drop, and does not wait for it.
pub fn discard(load: impl Send + 'static) {
    if let Some(sender) = &*SENDER {
        drop(sender.try_send(Box::new(load)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    struct DropNotice(Sender<()>);

    impl Drop for DropNotice {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
        }
    }

    #[test]
    fn discard_drops_every_load() {
        let (sender, drops) = channel();
        (0..100).for_each(|_| discard(DropNotice(sender.clone())));
        drop(sender);
        assert_eq!(drops.iter().count(), 100);
    }
}
