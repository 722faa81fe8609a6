//! A stream that loses patience with a client that does not finish the head of its request.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU32, Ordering},
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

/// What the connection is doing, told by the service and read by the stream below it.
#[derive(Debug, Default)]
pub(super) struct Patience {
    doing: AtomicU8,
    /// How many heads were completed: an answer may be over before the stream is read again.
    heads: AtomicU32,
}

impl Patience {
    pub(super) fn head_complete(&self, version: Version) {
        let doing = if version == Version::HTTP_2 { MULTIPLEXED } else { ANSWERING };
        self.doing.store(doing, Ordering::Relaxed);
        self.heads.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn answered(&self) {
        let _ = self.doing.compare_exchange(ANSWERING, HEAD, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn in_head(&self) -> bool {
        self.doing.load(Ordering::Relaxed) == HEAD
    }
}

/// The stream: fails a read when a head was begun and not completed in time.
pub(super) struct Patient<S> {
    inner: S,
    patience: Arc<Patience>,
    limit: Duration,
    heads_seen: u32,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub(super) fn new(inner: S, patience: Arc<Patience>, limit: Duration) -> Self {
        Patient { inner, patience, limit, heads_seen: 0, timer: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let heads = self.patience.heads.load(Ordering::Relaxed);
        if heads != self.heads_seen {
            self.heads_seen = heads;
            self.timer = None;
        }
        if !self.patience.in_head() {
            return Pin::new(&mut self.inner).poll_read(cx, buf);
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if buf.filled().len() > before && self.timer.is_none() {
            let deadline = Instant::now() + self.limit;
            self.timer = Some(Box::pin(tokio::time::sleep_until(deadline)));
        }
        if read.is_pending()
            && let Some(timer) = &mut self.timer
            && timer.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
