//! TLS handshakes, a few at a time and in order.
//!
//! The processor is scarce, because asymmetric cryptography needs it. A handshake therefore needs
//! one of [`Limits::handshakes`](super::Limits) slots for that part, and waits in line
//! for it. It has no slot while it waits for the client: a client that sends half a handshake holds up
//! no other, and a distant one does not slow down the rest.

use std::{future::Future, io, pin::pin, sync::Arc, task::Poll, time::Duration};

use rustls::{ServerConfig, server::Acceptor};
use tokio::net::TcpStream;
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};

use super::{Connection, End, Server};

type Shaken = Result<TlsStream<TcpStream>, (End, String)>;

pub(super) async fn perform(
    server: &Server,
    tls: Arc<ServerConfig>,
    stream: TcpStream,
    connection: &Connection,
) -> Shaken {
    let limit = server.limits.handshake;
    let first = limit.min(server.limits.first_byte);
    let hello = tokio::time::timeout(first, LazyConfigAcceptor::new(Acceptor::default(), stream)).await;
    let hello = hello.map_err(|_| late("no ClientHello came", first))?.map_err(|error| failed(&error))?;
    // While the client waits for us, its connection is not one that could make room for another.
    let busy = connection.busy();
    let waiting = server.tally.handshake_waits();
    let slot = tokio::time::timeout(server.limits.handshake_wait, server.handshakes.acquire()).await;
    drop(waiting);
    let Ok(slot) = slot else {
        let waited = format!("waited in line for {:?}", server.limits.handshake_wait);
        return Err((End::HandshakeWait, waited));
    };
    // Computes our part, and the first poll sends it.
    let mut accept = pin!(hello.into_stream(tls));
    let sent = std::future::poll_fn(|cx| Poll::Ready(accept.as_mut().poll(cx))).await;
    drop((slot, busy));
    let accepted = match sent {
        Poll::Ready(accepted) => accepted,
        Poll::Pending => {
            let rest = tokio::time::timeout(limit, accept).await;
            rest.map_err(|_| late("the client did not finish its handshake", limit))?
        }
    };
    accepted.map_err(|error| failed(&error))
}

fn late(what: &str, limit: Duration) -> (End, String) {
    (End::HandshakeTimeout, format!("{what} within {limit:?}"))
}

/// A client that only connects and leaves, as health checks do, is worth less than one that is refused.
fn failed(error: &io::Error) -> (End, String) {
    let left = matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    );
    (if left { End::HandshakeAbandoned } else { End::HandshakeFailed }, error.to_string())
}

#[cfg(test)]
mod tests {
    use rustls::{ClientConfig, ClientConnection, RootCertStore, pki_types::ServerName};
    use tokio::{io::AsyncWriteExt, net::TcpListener, sync::Semaphore};

    use super::*;
    use crate::{
        Shutdown,
        listen::{Limits, Tally},
        tls,
    };

    #[tokio::test]
    async fn a_handshake_that_waits_in_line_for_too_long_ends_with_that_reason() {
        tls::install_provider();
        let builder = ClientConfig::builder().with_root_certificates(RootCertStore::empty());
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(Arc::new(builder.with_no_client_auth()), name).unwrap();
        let mut hello = Vec::new();
        client.write_tls(&mut hello).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        stream.write_all(&hello).await.unwrap();

        let config = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let own = tls::ServerTls {
            certificate_pem: config.cert.pem(),
            key_pem: config.signing_key.serialize_pem(),
            min_version: tls::MinVersion::Tls12,
            client_certificates: Vec::new(),
        };
        let server = Server {
            router: axum::Router::new(),
            tls: None,
            limits: Limits { handshake_wait: Duration::from_millis(1), ..Limits::default() },
            handshakes: Arc::new(Semaphore::new(0)),
            tally: Tally::default(),
            roster: Arc::default(),
            shutdown: Shutdown::default(),
        };
        let accepted = listener.accept().await.unwrap().0;
        let shaken = perform(&server, own.to_config().unwrap(), accepted, &Connection::default()).await;
        let (end, detail) = shaken.unwrap_err();
        assert_eq!((end, detail.as_str()), (End::HandshakeWait, "waited in line for 1ms"));
    }
}
