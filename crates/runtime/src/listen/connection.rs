//! HTTP on one connection, until it ends for a reason.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, Bytes, HttpBody};
use http::{Request, Response};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Notify,
    time::Instant,
};
use tower::ServiceExt;

use super::{
    End, Limits, Peer, SHED, Server,
    head_timeout::{HeadProgress, HeadTimeoutStream},
    refusal::{self, Grpc},
    roster::Roster,
};

/// Bytes that a client may send ahead of its reader: on one stream, and on a connection, as HTTP/2 allows no
/// less there. They bound the memory of a connection whose requests wait. The speed of answers depends on the
/// client's window, not on this one.
pub(super) const STREAM_WINDOW: u32 = 32 << 10;
pub(super) const CONNECTION_WINDOW: u32 = 65_535;
/// Bytes of an answer that may wait in HTTP/2 for the socket: two discovery responses of the usual size.
/// hyper's 400 KiB times some thousand slow readers would be gigabytes.
const SEND_BUFFER: usize = 128 << 10;
/// All headers of a request; a token is the largest of them.
const HEADERS: u32 = 16 << 10;
/// Time for a client to answer a ping of HTTP/2. The kernel finds peers that vanished; this is for those
/// behind something that answers for them, so it is patient with busy ones.
const PONG: Duration = Duration::from_secs(60);
/// Time for a connection that is asked to end.
const FAREWELL: Duration = Duration::from_secs(10);

/// The connection a request came on.
#[derive(Debug, Clone, Default)]
pub struct Connection(Arc<ConnectionUse>);

#[derive(Debug, Default)]
pub(super) struct ConnectionUse {
    /// Requests, and handshakes that wait for us.
    open: AtomicUsize,
    begun: AtomicBool,
    changed: Notify,
    head: HeadProgress,
    roster: Option<Arc<Roster>>,
    /// The roster lists the connection as unused; changed under the roster's lock only.
    queued: AtomicBool,
    /// The connection must make room for another one.
    shed: AtomicBool,
}

impl Connection {
    /// Requests whose answer is not complete yet, the one that asks included.
    pub fn open_requests(&self) -> usize {
        self.0.open.load(Ordering::Relaxed)
    }

    /// A connection that joins a roster, as unused.
    pub(super) fn enter(roster: &Arc<Roster>) -> Connection {
        let connection =
            Connection(Arc::new(ConnectionUse { roster: Some(roster.clone()), ..ConnectionUse::default() }));
        roster.unused(&connection);
        connection
    }

    pub(super) fn weak(&self) -> Weak<ConnectionUse> {
        Arc::downgrade(&self.0)
    }

    pub(super) fn of(weak: &Weak<ConnectionUse>) -> Option<Connection> {
        weak.upgrade().map(Connection)
    }

    pub(super) fn is_used(&self) -> bool {
        self.open_requests() > 0
    }

    /// True while a client reads an answer that is complete on our side.
    pub(super) fn is_sending(&self) -> bool {
        self.0.head.sending()
    }

    /// Says whether it was marked before.
    pub(super) fn mark_queued(&self, queued: bool) -> bool {
        self.0.queued.swap(queued, Ordering::Relaxed)
    }

    /// Ends it unless it is taken up meanwhile.
    pub(super) fn shed(&self) {
        self.0.shed.store(true, Ordering::Relaxed);
        self.0.changed.notify_one();
    }

    /// Waits until the connection must make room.
    pub(super) async fn must_go(&self) {
        while !self.0.shed.load(Ordering::Relaxed) {
            self.0.changed.notified().await;
        }
    }

    /// In use until this is dropped, though there is no request yet.
    pub(super) fn busy(&self) -> Open {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        Open(self.clone())
    }

    fn begin(&self) -> Open {
        self.0.begun.store(true, Ordering::Relaxed);
        if self.0.open.fetch_add(1, Ordering::Relaxed) == 0 {
            self.0.changed.notify_one();
        }
        Open(self.clone())
    }

    /// Waits until the connection has been without requests for too long.
    async fn unused(&self, limits: &Limits) -> End {
        let opened = Instant::now();
        loop {
            if self.is_used() {
                self.0.changed.notified().await;
                continue;
            }
            if self.0.shed.load(Ordering::Relaxed) {
                return End::Shed;
            }
            let begun = self.0.begun.load(Ordering::Relaxed);
            let silent = !self.0.head.started() && limits.first_byte < limits.first_request;
            let (deadline, end) = match (begun, silent) {
                (true, _) => (Instant::now() + limits.idle, End::Idle),
                (false, true) => (opened + limits.first_byte, End::Silent),
                (false, false) => (opened + limits.first_request, End::NoRequest),
            };
            tokio::select! {
                biased;
                () = self.0.changed.notified() => {}
                () = tokio::time::sleep_until(deadline) => {
                    let spoke = end == End::Silent && self.0.head.started();
                    if !spoke && !self.is_sending() {
                        return end;
                    }
                }
            }
        }
    }
}

impl End {
    /// Time for the client to notice the end. One that never asked has nothing to wait for.
    fn farewell(self) -> Duration {
        if matches!(self, End::Silent | End::Shed) { Duration::ZERO } else { FAREWELL }
    }
}

/// A request that is not answered completely yet.
pub(super) struct Open(Connection);

impl Drop for Open {
    fn drop(&mut self) {
        let shared = &self.0.0;
        if shared.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            shared.changed.notify_one();
            if let Some(roster) = &shared.roster {
                roster.unused(&self.0);
            }
        }
    }
}

/// The body of an answer, which keeps its request open.
struct Answer {
    body: Body,
    _open: Open,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Serves requests until the connection ends; says why it did.
///
/// A connection of a proxy is idle nearly always and there are thousands, so its size counts. What is
/// built here goes into one box; in an `async fn` every value that is moved on would keep its first place too.
pub(super) fn serve<S>(
    server: Arc<Server>,
    stream: S,
    peer: Peer,
    connection: Connection,
) -> impl Future<Output = (End, String)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = server.limits;
    let shutdown = server.shutdown.clone();
    let stream =
        HeadTimeoutStream::new(stream, WatchedStream(connection.clone()), limits.header_read, limits.send);
    let used = connection.clone();
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        // Here and not in the future, which runs later: by then a deadline may have passed.
        used.0.head.head_complete(request.version());
        // In a box, because a stream that is answered by now has no use for its memory.
        Box::pin(respond(server.clone(), request, peer.clone(), used.begin()))
    });
    let builder = builder(&limits);
    let http = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
    let mut http = Box::pin(http);
    async move {
        let (end, deadline) = tokio::select! {
            // Requests that have arrived count, even if we were too busy to read them in time.
            biased;
            ended = http.as_mut() => return connection.verdict(ended),
            end = connection.unused(&limits) => (end, Some(end.farewell())),
            () = shutdown.begun() => (End::Shutdown, None),
        };
        http.as_mut().graceful_shutdown();
        let _ended = match deadline {
            Some(deadline) => tokio::time::timeout(deadline, http).await.unwrap_or(Ok(())),
            None => http.await,
        };
        let detail = match end {
            End::NoRequest => format!("no request came within {:?}", limits.first_request),
            End::Silent => format!("nothing came within {:?}", limits.first_byte),
            End::Shed => SHED.to_owned(),
            _ => String::new(),
        };
        (end, detail)
    }
}

fn builder(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let (ping, pong) = limits.ping.unwrap_or((limits.idle.max(PONG), PONG));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // How long a head may take is decided by `HeadTimeoutStream`, and how long a pause may be that of `unused`.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(ping)
        .keep_alive_timeout(pong)
        .max_concurrent_streams(limits.streams)
        .initial_stream_window_size(limits.windows.0)
        .initial_connection_window_size(limits.windows.1)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(HEADERS);
    builder
}

async fn respond(
    server: Arc<Server>,
    mut request: Request<Incoming>,
    peer: Peer,
    open: Open,
) -> Result<Response<Body>, Infallible> {
    let limit = server.limits.request;
    let addr = peer.addr;
    let connection = open.0.clone();
    let late = refusal::LateAnswer::to(&request);
    request.extensions_mut().insert(peer);
    request.extensions_mut().insert(connection.clone());
    let answering = server.router.clone().oneshot(request.map(Body::new));
    let answer = tokio::time::timeout(limit, answering).await;
    connection.0.head.answered();
    let response = match answer {
        Ok(Ok(response)) => response,
        Err(_) => {
            let why = format!("the request took longer than {limit:?}");
            server.tally.rejected(Some(addr), "request_timeout", &why);
            late.answer(Grpc::Unavailable, &why, Duration::from_secs(1))
        }
    };
    Ok(response.map(|body| Body::new(Answer { body, _open: open })))
}

impl Connection {
    fn verdict(&self, ended: Result<(), Box<dyn std::error::Error + Send + Sync>>) -> (End, String) {
        let Err(error) = ended else { return (End::Closed, String::new()) };
        let mut detail = error.to_string();
        let mut cause = error.source();
        while let Some(deeper) = cause {
            detail = format!("{detail}: {deeper}");
            cause = deeper.source();
        }
        let pinged_in_vain = error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_timeout);
        let end = match self.0.head.broken() {
            _ if self.0.head.lost() => End::SlowHead,
            _ if self.0.head.stuck() => End::SlowReader,
            Some(std::io::ErrorKind::TimedOut) => End::Vanished,
            Some(_) => End::Reset,
            None if pinged_in_vain => End::Vanished,
            None => End::Protocol,
        };
        (end, detail)
    }
}

/// The progress of a connection, for the stream below it.
pub(super) struct WatchedStream(Connection);

impl std::ops::Deref for WatchedStream {
    type Target = HeadProgress;

    fn deref(&self) -> &HeadProgress {
        &self.0.0.head
    }
}
