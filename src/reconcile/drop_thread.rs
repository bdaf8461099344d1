//! A thread that drops the objects of finished ticks on another core: an object has hundreds of allocations, and a tick has hundreds of objects.

use std::sync::LazyLock;
use std::sync::mpsc::{SyncSender, sync_channel};

/// Maximum number of loads that wait for the thread; the caller drops further ones itself.
const LOADS: usize = 8;

type DropLoad = Box<dyn Send>;

/// Channel to the thread; `None` when no thread could be started.
static SENDER: LazyLock<Option<SyncSender<DropLoad>>> = LazyLock::new(|| {
    let (bin, loads) = sync_channel::<DropLoad>(LOADS);
    let work = move || loads.iter().for_each(drop);
    std::thread::Builder::new().name("waste".into()).spawn(work).ok().map(|_| bin)
});

/// Hands a load to the thread to drop, and does not wait for it.
pub fn discard(load: impl Send + 'static) {
    if let Some(bin) = &*SENDER {
        drop(bin.try_send(Box::new(load)));
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
    fn every_load_is_dropped_however_many_there_are() {
        let (tell, told) = channel();
        (0..100).for_each(|_| discard(DropNotice(tell.clone())));
        drop(tell);
        assert_eq!(told.iter().count(), 100);
    }
}
