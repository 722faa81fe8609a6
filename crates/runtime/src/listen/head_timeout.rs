//! A stream that fails when a client does not finish the head of its request in time, or reads nothing of its answer,
//! and that remembers how it failed.

use std::{
    future::Future,
    io,
    ops::Deref,
    pin::Pin,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::Version;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

const HEAD: u8 = 0;
const ANSWERING: u8 = 1;
/// HTTP/2 has many heads at once and its own limits.
const MULTIPLEXED: u8 = 2;

/// First bytes of an HTTP/2 connection. Its first request may come much later.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";

/// State of the connection, written by the service and read by the stream below it.
#[derive(Debug, Default)]
pub(super) struct HeadProgress {
    doing: AtomicU8,
    /// Number of completed heads: an answer may be over before the stream is read again.
    heads: AtomicU32,
    /// The first byte has come.
    started: AtomicBool,
    /// A head took too long.
    lost: AtomicBool,
    /// Bytes wait for the client to read them.
    sending: AtomicBool,
    /// The client read nothing for too long.
    stuck: AtomicBool,
    broken: OnceLock<io::ErrorKind>,
}

impl HeadProgress {
    pub(super) fn head_complete(&self, version: Version) {
        let doing = if version == Version::HTTP_2 { MULTIPLEXED } else { ANSWERING };
        self.doing.store(doing, Ordering::Relaxed);
        self.heads.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn answered(&self) {
        let _ = self.doing.compare_exchange(ANSWERING, HEAD, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// True if the connection was given up because of a head.
    pub(super) fn lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    pub(super) fn started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    /// True while an answer, though complete on our side, is still on its way.
    pub(super) fn sending(&self) -> bool {
        self.sending.load(Ordering::Relaxed)
    }

    /// True if the connection was given up because its answers were not read.
    pub(super) fn stuck(&self) -> bool {
        self.stuck.load(Ordering::Relaxed)
    }

    /// Error of reading or writing, if there was one.
    pub(super) fn broken(&self) -> Option<io::ErrorKind> {
        self.broken.get().copied()
    }

    /// Remembers the first failure.
    fn note<T>(&self, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &done {
            let _ = self.broken.set(error.kind());
        }
        done
    }

    fn begins_with(&self, bytes: &[u8]) {
        if bytes.len() >= 3 && PREFACE.starts_with(&bytes[..bytes.len().min(PREFACE.len())]) {
            self.doing.store(MULTIPLEXED, Ordering::Relaxed);
        }
    }

    fn in_head(&self) -> bool {
        self.doing.load(Ordering::Relaxed) == HEAD
    }
}

/// The stream: fails a read when a head was begun and not completed in time.
pub(super) struct HeadTimeoutStream<S, P> {
    inner: S,
    progress: P,
    limit: Duration,
    /// Time that the client may read nothing.
    send: Duration,
    heads_seen: u32,
    timer: Option<Pin<Box<Sleep>>>,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S, P> HeadTimeoutStream<S, P> {
    pub(super) fn new(inner: S, progress: P, limit: Duration, send: Duration) -> Self {
        HeadTimeoutStream { inner, progress, limit, send, heads_seen: 0, timer: None, stalled: None }
    }
}

impl<S, P: Deref<Target = HeadProgress>> HeadTimeoutStream<S, P> {
    /// Sees that something is taken now and then.
    fn sent<T>(&mut self, cx: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            if self.stalled.take().is_some() {
                self.progress.sending.store(false, Ordering::Relaxed);
            }
            return self.progress.note(done);
        }
        let send = self.send;
        self.progress.sending.store(true, Ordering::Relaxed);
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(send)));
        if stalled.as_mut().poll(cx).is_pending() {
            return done;
        }
        self.progress.stuck.store(true, Ordering::Relaxed);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin, P: Deref<Target = HeadProgress> + Unpin> AsyncRead for HeadTimeoutStream<S, P> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let heads = self.progress.heads.load(Ordering::Relaxed);
        if heads != self.heads_seen {
            self.heads_seen = heads;
            self.timer = None;
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        let read = self.progress.note(read);
        let came = buf.filled().len() > before;
        if came && heads == 0 {
            self.progress.started.store(true, Ordering::Relaxed);
        }
        if came && heads == 0 && self.timer.is_none() {
            self.progress.begins_with(&buf.filled()[before..]);
        }
        if !self.progress.in_head() {
            return read;
        }
        if came && self.timer.is_none() {
            let deadline = Instant::now() + self.limit;
            self.timer = Some(Box::pin(tokio::time::sleep_until(deadline)));
        }
        if read.is_pending()
            && let Some(timer) = &mut self.timer
            && timer.as_mut().poll(cx).is_ready()
        {
            self.progress.lost.store(true, Ordering::Relaxed);
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin, P: Deref<Target = HeadProgress> + Unpin> AsyncWrite for HeadTimeoutStream<S, P> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.sent(cx, done)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.inner).poll_flush(cx);
        self.sent(cx, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.sent(cx, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
