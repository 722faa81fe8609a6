//! Listeners that serve an axum router over HTTP/1.1 and HTTP/2, plain or with TLS.
//!
//! Every request carries two extensions: a [`Peer`], which says who is on the other side of the
//! connection, and a [`Connection`], which says how many requests are open on it. Connections,
//! handshakes and streams have [`Limits`]; a client over a limit gets an answer with a reason where
//! that is possible, and a [`Tally`] counts and logs every connection's end. When the shutdown
//! begins, open requests are finished and idle connections closed.

mod connection;
mod handshake;
mod head_timeout;
mod owner;
mod refusal;
mod roster;
mod tally;

use std::{future::Future, io, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use axum::Router;
use rustls::{ServerConfig, pki_types::CertificateDer};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};

use self::roster::{CountedConnection, Roster};
pub use self::{
    connection::Connection,
    owner::Owner,
    refusal::RETRY_AFTER_MS,
    tally::{End, Tally},
};
use crate::{Backoff, Error, Shutdown};

/// Sender of a request.
#[derive(Debug, Clone)]
pub struct Peer {
    pub addr: SocketAddr,
    /// The connection is encrypted.
    pub tls: bool,
    /// The verified certificate the client showed, if it did.
    pub client_certificate: Option<CertificateDer<'static>>,
    /// The user of this machine behind the connection; `None` for clients on other machines.
    pub owner: Option<Owner>,
}

/// Limits of the clients served at a time, and of the time each may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// Connections at a time from one address.
    pub per_peer: usize,
    /// TLS handshakes that are computed at a time; others wait in line.
    pub handshakes: usize,
    /// Requests open at a time on one HTTP/2 connection. Clients know it and hold back the others.
    pub streams: u32,
    /// Time for a client's part of a TLS handshake, and for each half of it.
    pub handshake: Duration,
    /// Longest wait of a handshake in line.
    pub handshake_wait: Duration,
    /// From the beginning of a connection to its first byte.
    pub first_byte: Duration,
    /// From the beginning of a connection to its first request.
    pub first_request: Duration,
    /// From the first byte of a request's head to its last.
    pub header_read: Duration,
    /// Between two requests on one connection.
    pub idle: Duration,
    /// From the end of a request's head to the beginning of its answer.
    pub request: Duration,
    /// Time that a client may read nothing of what is sent to it.
    pub send: Duration,
    /// Time that a connection must have been unused before it makes room for a new one.
    pub spare: Duration,
    /// Time that an HTTP/2 client may be silent before a ping, and time for its answer. `None` pings rarely:
    /// the kernel finds clients that vanished.
    pub ping: Option<(Duration, Duration)>,
    /// Bytes of one HTTP/2 request that may be on their way, and of all requests of a connection.
    pub windows: (u32, u32),
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 4096,
            per_peer: 4096,
            handshakes: handshakes_at_once(),
            streams: 100,
            handshake: Duration::from_secs(30),
            handshake_wait: Duration::from_secs(60),
            first_byte: Duration::from_secs(10),
            first_request: Duration::from_secs(30),
            header_read: Duration::from_secs(10),
            idle: Duration::from_secs(120),
            request: Duration::from_secs(40),
            send: Duration::from_secs(60),
            spare: Duration::from_secs(1),
            ping: None,
            windows: (connection::STREAM_WINDOW, connection::CONNECTION_WINDOW),
        }
    }
}

/// Half of the processors: when all clients come at once, the other half serves those that are in.
pub fn handshakes_at_once() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| processors.get().div_ceil(2))
}

/// Connections that wait for us in the kernel. What is over it is not refused but retried by the client's
/// kernel after seconds; the system may allow less.
const BACKLOG: u32 = 4096;

/// Number of clients over the limit that get an answer at a time. The others are disconnected.
const TURNED_AWAY_AT_ONCE: usize = 16;
/// Time for the answer to a client over the limit, its handshake included.
const TURNING_AWAY: Duration = Duration::from_secs(10);
/// Longest wait of a client for the place of a connection that is being closed.
const MAKING_ROOM: Duration = Duration::from_secs(1);
/// Reason for closing an unused connection.
const SHED: &str = "it was not used, and another one needed its place";
/// Delay after which a client over the limit should come back.
const COME_BACK_AFTER: Duration = Duration::from_secs(5);

/// A connection without traffic is probed by the kernel after this time, ...
const PROBE_AFTER: Duration = Duration::from_secs(20);
/// ... this often, ...
const PROBE_EVERY: Duration = Duration::from_secs(10);
/// ... and is over when this many probes stay without an answer: 50 s after the peer has vanished.
const PROBES: u32 = 3;
/// Time that sent bytes may stay unacknowledged by the peer's kernel. A live peer acknowledges while its
/// process is busy; one that takes nothing at all for this long is stuck and may come back.
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);

/// A bound port that does not accept yet.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    addr: SocketAddr,
    tally: Tally,
}

impl Listener {
    /// Port 0 binds any free port; [`Listener::addr`] says which.
    pub async fn bind(addr: SocketAddr) -> Result<Listener, Error> {
        let failed = |cause| Error::Bind { addr, cause };
        let socket = listen(addr).map_err(failed)?;
        let addr = socket.local_addr().map_err(failed)?;
        Ok(Listener { socket, addr, tally: Tally::default() })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Counts of the listener's connections.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Counts the listener's connections there.
    #[must_use]
    pub fn counted(self, tally: Tally) -> Listener {
        Listener { tally, ..self }
    }

    /// Serves until the shutdown begins and every open request is answered.
    pub fn serve(self, router: Router, tls: Option<Arc<ServerConfig>>, limits: Limits, shutdown: &Shutdown) {
        let handshakes = Arc::new(Semaphore::new(limits.handshakes.clamp(1, Semaphore::MAX_PERMITS)));
        let server = Server {
            router,
            tls,
            limits,
            handshakes,
            tally: self.tally,
            roster: Arc::default(),
            shutdown: shutdown.clone(),
        };
        shutdown.spawn(accept(Arc::new(server), self.socket));
    }
}

/// A connection that is being served, to its end.
type Http = Pin<Box<dyn Future<Output = (End, String)> + Send>>;

/// State that all connections of a listener share.
struct Server {
    router: Router,
    tls: Option<Arc<ServerConfig>>,
    limits: Limits,
    handshakes: Arc<Semaphore>,
    tally: Tally,
    roster: Arc<Roster>,
    shutdown: Shutdown,
}

/// Places that a connection occupies: one of the listener and one of its peer.
struct ConnectionPermit {
    _place: OwnedSemaphorePermit,
    _of_peer: CountedConnection,
}

async fn accept(server: Arc<Server>, socket: TcpListener) {
    let door = ConnectionAdmission::of(&server);
    let mut backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(1));
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = server.shutdown.begun() => return,
        };
        let (stream, addr) = match accepted {
            Ok(accepted) => accepted,
            // Out of file descriptors, usually: closing connections frees some.
            Err(error) => {
                server.tally.cannot_accept(&error);
                server.roster.shed(Duration::ZERO);
                tokio::time::sleep(backoff.next_delay()).await;
                continue;
            }
        };
        backoff.reset();
        // A socket without these options serves as well.
        let _ = tune(&stream);
        door.admit(&server, stream, addr);
    }
}

/// Admits connections, or rejects them with a reason.
struct ConnectionAdmission {
    places: Arc<Semaphore>,
    exits: Arc<Semaphore>,
    full: Arc<Server>,
    full_for_peer: Arc<Server>,
}

impl ConnectionAdmission {
    fn of(server: &Server) -> ConnectionAdmission {
        let Limits { connections, per_peer, .. } = server.limits;
        let full = format!("this server has {connections} connections open, which is its limit");
        let full_for_peer =
            format!("this server has {per_peer} connections open from your address, which is its limit");
        ConnectionAdmission {
            places: Arc::new(Semaphore::new(connections.min(Semaphore::MAX_PERMITS))),
            exits: Arc::new(Semaphore::new(TURNED_AWAY_AT_ONCE.min(connections / 8 + 2))),
            full: Arc::new(server.refusing(full)),
            full_for_peer: Arc::new(server.refusing(full_for_peer)),
        }
    }

    fn admit(&self, server: &Arc<Server>, stream: TcpStream, addr: SocketAddr) {
        let Limits { connections, per_peer, spare, .. } = server.limits;
        let place = self.places.clone().try_acquire_owned().ok();
        match (place, server.roster.enter(addr.ip(), per_peer)) {
            (Some(place), Some(of_peer)) => {
                let seat = ConnectionPermit { _place: place, _of_peer: of_peer };
                server.shutdown.spawn(serve(server.clone(), stream, addr, seat));
            }
            (None, Some(of_peer)) if server.roster.shed(spare) => {
                server.shutdown.spawn(serve_soon(server.clone(), self.places.clone(), stream, addr, of_peer));
            }
            (None, _) => {
                let detail = format!("{connections} connections are open already");
                server.tally.ended(addr, End::ConnectionLimit, &detail);
                self.turn_away(&self.full, stream, addr);
            }
            (Some(_), None) => {
                let detail = format!("{per_peer} connections are open from this address already");
                server.tally.ended(addr, End::PeerLimit, &detail);
                self.turn_away(&self.full_for_peer, stream, addr);
            }
        }
    }

    fn turn_away(&self, refusing: &Arc<Server>, stream: TcpStream, addr: SocketAddr) {
        if let Ok(exit) = self.exits.clone().try_acquire_owned() {
            refusing.shutdown.spawn(turn_away(refusing.clone(), stream, addr, exit));
        }
    }
}

/// As [`TcpListener::bind`], with a longer queue.
fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() }?;
    // A port is free again as soon as its listener is gone, whatever its last connections do.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

/// Detects peers that vanish without a word, at the cost of the kernel alone.
fn tune(stream: &TcpStream) -> io::Result<()> {
    // Answers are small and complete; waiting for more bytes to fill a packet only delays them.
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let probes = TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_EVERY).with_retries(PROBES);
    socket.set_tcp_keepalive(&probes)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    Ok(())
}

async fn serve(server: Arc<Server>, stream: TcpStream, addr: SocketAddr, seat: ConnectionPermit) {
    let _open = server.tally.open();
    let connection = Connection::enter(&server.roster);
    let (end, detail) = server.connection(stream, addr, connection).await;
    server.tally.ended(addr, end, &detail);
    drop(seat);
}

/// Serves a client for which another one makes room at this moment.
async fn serve_soon(
    server: Arc<Server>,
    places: Arc<Semaphore>,
    stream: TcpStream,
    addr: SocketAddr,
    of_peer: CountedConnection,
) {
    match tokio::time::timeout(MAKING_ROOM, places.acquire_owned()).await {
        Ok(Ok(place)) => {
            serve(server, stream, addr, ConnectionPermit { _place: place, _of_peer: of_peer }).await
        }
        _ => server.tally.ended(addr, End::ConnectionLimit, "no connection was closed in time to make room"),
    }
}

/// Answers one request of a client over the limit and closes its connection.
async fn turn_away(refusing: Arc<Server>, stream: TcpStream, addr: SocketAddr, exit: OwnedSemaphorePermit) {
    let answering = refusing.connection(stream, addr, Connection::default());
    let answered = tokio::time::timeout(TURNING_AWAY, answering).await;
    tracing::debug!(%addr, finished = answered.is_ok(), "closed a connection over the limit");
    drop(exit);
}

impl Server {
    async fn connection(
        self: &Arc<Self>,
        stream: TcpStream,
        addr: SocketAddr,
        connection: Connection,
    ) -> (End, String) {
        let owner = stream.local_addr().ok().and_then(|server| Owner::of(addr, server));
        let Some(tls) = self.tls.clone() else {
            let peer = Peer { addr, tls: false, client_certificate: None, owner };
            return connection::serve(self.clone(), stream, peer, connection).await;
        };
        // In a box, because its state is large and over soon.
        let shaken = tokio::select! {
            shaken = Box::pin(self.clone().shake_hands(tls, stream, addr, owner, connection.clone())) => shaken,
            () = self.shutdown.begun() => return (End::Shutdown, String::new()),
            () = connection.must_go() => return (End::Shed, SHED.to_owned()),
        };
        match shaken {
            Ok(http) => http.await,
            Err(ended) => ended,
        }
    }

    /// The TLS handshake; what comes after it is not begun yet.
    async fn shake_hands(
        self: Arc<Self>,
        tls: Arc<ServerConfig>,
        stream: TcpStream,
        addr: SocketAddr,
        owner: Option<Owner>,
        connection: Connection,
    ) -> Result<Http, (End, String)> {
        let stream = handshake::perform(&self, tls, stream, &connection).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let client_certificate = shown.map(|certificate| certificate.clone().into_owned());
        let peer = Peer { addr, tls: true, client_certificate, owner };
        Ok(Box::pin(connection::serve(self, stream, peer, connection)))
    }

    /// A server that answers every request with the reason why it is not served.
    fn refusing(&self, why: String) -> Server {
        let why: Arc<str> = format!("{why}; try again in {} s", COME_BACK_AFTER.as_secs()).into();
        let full = move |request: axum::extract::Request| async move {
            refusal::answer(request.headers(), refusal::Grpc::ResourceExhausted, &why, COME_BACK_AFTER)
        };
        Server {
            router: Router::new().fallback(full),
            tls: self.tls.clone(),
            // Without idle time the connection is closed after its first answer.
            limits: Limits { idle: Duration::ZERO, ..self.limits },
            handshakes: self.handshakes.clone(),
            tally: Tally::default(),
            roster: Arc::default(),
            shutdown: self.shutdown.clone(),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_kernel_notices_within_a_minute_that_a_peer_has_vanished() {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let _client = TcpStream::connect(listener.addr()).await.unwrap();
        let (stream, _) = listener.socket.accept().await.unwrap();
        tune(&stream).unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        let idle = socket.tcp_keepalive_time().unwrap();
        let probes = socket.tcp_keepalive_interval().unwrap() * socket.tcp_keepalive_retries().unwrap();
        assert_eq!(idle + probes, Duration::from_secs(50));
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(60)));
    }
}
