//! Output of log lines: into a bounded buffer that a thread of its own writes out.
//!
//! A log is read by another program, which may end, stop reading, or have no room left. None of that may
//! stop this process: a line that cannot be written is dropped and counted.

use std::{
    io::{self, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};
use tracing_subscriber::fmt::MakeWriter;

/// Bytes that may wait for a slow reader: some thousand lines.
const CAPACITY: usize = 1 << 20;
/// Delay before retrying a write that a descriptor in non-blocking mode refused.
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// There was no room for a line, because the reader does not keep up.
const OVERFLOW: &str = "overflow";
/// The reader is gone, or the disk is full.
const WRITE_FAILED: &str = "write_failed";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Labels {
    reason: &'static str,
}

/// Lines that were lost, by reason.
pub(super) type Lost = Family<Labels, Counter>;

/// Takes lines without ever blocking or failing. Clones share one buffer.
#[derive(Debug, Clone)]
pub(super) struct Sink(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// There are lines to write.
    filled: Condvar,
    /// The lines that were there are written or lost.
    emptied: Condvar,
    lost: Lost,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: Vec<u8>,
    /// Number of lines in `bytes`.
    lines: u64,
    /// Lines that found no room since the log last said so.
    overflowed: u64,
    writing: bool,
}

impl Sink {
    /// Starts the thread that writes to `out`.
    pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<Sink> {
        let sink = Sink(Arc::new(Shared::default()));
        // The first lost lines are an increase only where there was a value before.
        for reason in [OVERFLOW, WRITE_FAILED] {
            drop(sink.0.lost.get_or_create(&Labels { reason }));
        }
        let shared = sink.0.clone();
        thread::Builder::new().name("log".to_owned()).spawn(move || shared.write_to(out))?;
        Ok(sink)
    }

    pub(super) fn lost(&self) -> &Lost {
        &self.0.lost
    }

    pub(super) fn push(&self, line: &[u8]) {
        let mut queue = self.0.lock();
        if queue.bytes.len() + line.len() > CAPACITY {
            queue.overflowed += 1;
            drop(queue);
            self.0.count(OVERFLOW, 1);
            return;
        }
        queue.bytes.extend_from_slice(line);
        queue.lines += 1;
        self.0.filled.notify_one();
    }

    /// Waits until every line is written or lost; `false` when the reader took too long.
    pub(super) fn flush(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut queue = self.0.lock();
        while queue.lines > 0 || queue.writing {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.0.emptied.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing in there can be half done, so a panic elsewhere does not spoil it.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, reason: &'static str, lines: u64) {
        self.lost.get_or_create(&Labels { reason }).inc_by(lines);
    }

    fn write_to(&self, mut out: impl Write) {
        let mut batch = Vec::new();
        loop {
            let lines = self.take(&mut batch);
            if write(&mut out, &batch).is_err() {
                self.count(WRITE_FAILED, lines);
            }
            batch.clear();
            let overflowed = {
                let mut queue = self.lock();
                queue.writing = false;
                self.emptied.notify_all();
                std::mem::take(&mut queue.overflowed)
            };
            if overflowed > 0 {
                tracing::warn!(
                    lines = overflowed,
                    "log lines were dropped: the log was not read fast enough"
                );
            }
        }
    }

    /// Waits for lines and exchanges the buffers, so that writers never wait for the reader.
    fn take(&self, batch: &mut Vec<u8>) -> u64 {
        let mut queue = self.lock();
        while queue.lines == 0 {
            queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut queue.bytes, batch);
        queue.writing = true;
        std::mem::take(&mut queue.lines)
    }
}

fn write(out: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Another process that shares the terminal may have set this mode.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(TRY_AGAIN),
            Err(error) => return Err(error),
        }
    }
    out.flush()
}

/// One event; the subscriber writes each in one piece.
impl Write for &Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Sink {
    type Writer = &'a Sink;

    fn make_writer(&'a self) -> &'a Sink {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    fn lost(sink: &Sink, reason: &'static str) -> u64 {
        sink.lost().get_or_create(&Labels { reason }).get()
    }

    #[test]
    fn lines_whose_reader_is_gone_are_counted_and_disturb_no_one() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let sink = Sink::start(writer).unwrap();
        sink.push(b"into\n");
        sink.push(b"the void\n");
        assert!(sink.flush(SOON));
        assert_eq!(lost(&sink, "write_failed"), 2);
    }

    /// Takes bytes only when it is allowed to.
    struct Gate(mpsc::Receiver<()>, mpsc::Sender<Vec<u8>>);

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(io::Error::other)?;
            self.1.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_does_not_read_blocks_no_one_and_losses_are_counted() {
        let (allow, allowed) = mpsc::channel();
        let (written, reads) = mpsc::channel();
        let sink = Sink::start(Gate(allowed, written)).unwrap();
        let line = [b'x'; 1024];
        let pushed = 3 * CAPACITY / line.len();
        for _ in 0..pushed {
            sink.push(&line);
        }
        assert!(!sink.flush(Duration::ZERO), "the reader has read nothing");
        let overflowed = lost(&sink, "overflow");
        // The thread may hold one buffer while the other one fills.
        assert!(overflowed >= (CAPACITY / line.len()) as u64, "{overflowed}");
        allow.send(()).unwrap();
        allow.send(()).unwrap();
        assert!(sink.flush(SOON));
        let read: usize = reads.try_iter().map(|bytes| bytes.len() / line.len()).sum();
        assert_eq!(read as u64 + overflowed, pushed as u64);
    }
}
