//! Writes the control plane's log without ever waiting for whoever reads it.
//!
//! A thread of its own writes to standard output. When nobody reads the pipe, or a terminal is stopped, lines wait in a bounded queue;
//! when that is full, lines are dropped and counted, and the count is logged once there is room again.
//! Start reading at [`LogWriter::write`].

use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::Builder;
use std::time::Duration;

/// Most lines that wait to be written.
const QUEUE: usize = 10_000;

/// Time that the end of the command waits for lines that are still to be written.
const FLUSH: Duration = Duration::from_secs(2);

/// A request to the thread.
enum Order {
    Line(String),
    /// Confirm that all lines before were written.
    Flush(SyncSender<()>),
}

/// A queue of lines, and the thread that writes them.
pub struct LogWriter {
    orders: SyncSender<Order>,
    dropped: Arc<AtomicUsize>,
}

impl LogWriter {
    /// The sink of standard output. None when no thread can be started.
    pub fn of_stdout() -> Option<&'static LogWriter> {
        static SINK: OnceLock<Option<LogWriter>> = OnceLock::new();
        let start = || LogWriter::start(File::from(rustix::io::dup(rustix::stdio::stdout()).ok()?)).ok();
        SINK.get_or_init(start).as_ref()
    }

    fn start(output: impl Write + Send + 'static) -> io::Result<LogWriter> {
        let (orders, inbox) = sync_channel(QUEUE);
        let dropped = Arc::new(AtomicUsize::new(0));
        let counted = dropped.clone();
        Builder::new().name("log".into()).spawn(move || run(inbox, &counted, output))?;
        Ok(LogWriter { orders, dropped })
    }

    /// Queues a line; returns at once.
    pub fn write(&self, line: String) {
        if let Err(TrySendError::Full(_)) = self.orders.try_send(Order::Line(line)) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all lines are written; not for long when nobody reads them.
    pub fn flush(&self) {
        let (done, written) = sync_channel(1);
        if self.orders.try_send(Order::Flush(done)).is_ok() {
            let _: Result<(), RecvTimeoutError> = written.recv_timeout(FLUSH);
        }
    }
}

/// Writes lines until the sink is gone. Errors are ignored: the work goes on when the reader is gone.
fn run(inbox: Receiver<Order>, dropped: &AtomicUsize, mut output: impl Write) {
    for order in inbox {
        match order {
            Order::Line(line) => drop(writeln!(output, "{line}")),
            Order::Flush(done) => drop(done.try_send(())),
        }
        let count = dropped.swap(0, Ordering::Relaxed);
        if count > 0 {
            drop(writeln!(output, "reconcile: {count} lines are missing here: standard output was not read in time"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    /// An output that takes a line only after it was let in.
    struct Gate {
        open: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Open for good once the other side is dropped.
            let _ = self.open.recv();
            self.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn log_sink_drops_lines_that_nobody_reads_and_counts_them() {
        let (key, open) = channel();
        let written = Arc::new(Mutex::new(Vec::new()));
        let sink = LogWriter::start(Gate { open, written: written.clone() }).unwrap();
        let more = QUEUE + 5;
        (0..more).for_each(|number| sink.write(format!("line {number}")));
        let lost = sink.dropped.load(Ordering::Relaxed);
        assert!((4..=5).contains(&lost), "{lost}");
        drop(key);
        while !String::from_utf8_lossy(&written.lock().unwrap()).contains("line 9999\n") {
            std::thread::yield_now();
        }
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        assert!(text.contains(&format!("reconcile: {lost} lines are missing here")), "{}", &text[..500]);
        sink.write("later".into());
        sink.flush();
        assert!(String::from_utf8_lossy(&written.lock().unwrap()).ends_with("later\n"));
    }
}
