//! Writes the control plane's log without blocking on its reader.
//!
//! A separate thread writes to standard output. If the pipe is not read, or the terminal is
//! stopped, lines wait in a bounded queue. If the queue is full, lines are dropped, and their
//! number is logged when there is room again.
//! Start reading at [`LogWriter::write`].

use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::Builder;
use std::time::Duration;

/// Most lines in the queue.
const QUEUE: usize = 10_000;

/// The longest wait for pending lines when the command ends.
const FLUSH: Duration = Duration::from_secs(2);

/// A message to the thread.
enum Request {
    Line(String),
    /// Confirm that all previous lines were written.
    Flush(SyncSender<()>),
}

/// A queue of lines, and the thread that writes them.
pub struct LogWriter {
    requests: SyncSender<Request>,
    dropped: Arc<AtomicUsize>,
}

impl LogWriter {
    /// The writer to standard output; `None` if no thread can be started.
    pub fn for_stdout() -> Option<&'static LogWriter> {
        static SINK: OnceLock<Option<LogWriter>> = OnceLock::new();
        let start = || LogWriter::start(File::from(rustix::io::dup(rustix::stdio::stdout()).ok()?)).ok();
        SINK.get_or_init(start).as_ref()
    }

    fn start(output: impl Write + Send + 'static) -> io::Result<LogWriter> {
        let (requests, inbox) = sync_channel(QUEUE);
        let dropped = Arc::new(AtomicUsize::new(0));
        let counted = dropped.clone();
        Builder::new().name("log".into()).spawn(move || run(inbox, &counted, output))?;
        Ok(LogWriter { requests, dropped })
    }

    /// Queues a line without blocking.
    pub fn write(&self, line: String) {
        if let Err(TrySendError::Full(_)) = self.requests.try_send(Request::Line(line)) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all lines are written, at most for [`FLUSH`].
    pub fn flush(&self) {
        let (done, written) = sync_channel(1);
        if self.requests.try_send(Request::Flush(done)).is_ok() {
            let _: Result<(), RecvTimeoutError> = written.recv_timeout(FLUSH);
        }
    }
}

/// Writes lines until the sender is dropped. Ignores errors, because the control plane continues
/// without a reader.
fn run(inbox: Receiver<Request>, dropped: &AtomicUsize, mut output: impl Write) {
    for order in inbox {
        match order {
            Request::Line(line) => drop(writeln!(output, "{line}")),
            Request::Flush(done) => drop(done.try_send(())),
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

    /// An output that accepts a line only after a message on `open`.
    struct Gate {
        open: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // A dropped sender opens it permanently.
            let _ = self.open.recv();
            self.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn full_queue_drops_lines_and_logs_their_number() {
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
