//! Addresses of names: asked for at one DNS server, for machines whose own resolver knows nothing of the mesh.

use std::{
    future::Future,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
    vec,
};

use hickory_proto::{
    op::{Message, Query, ResponseCode},
    rr::{Name as DnsName, RData, RecordType},
};
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tokio::{net::UdpSocket, time::timeout};
use tower::Service;

/// Time limit for an answer of the server. A packet is lost at times, so it is asked again.
const PATIENCE: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 3;
/// No answer in one packet is longer, unless more is asked for (RFC 1035).
const LONGEST_PACKET: usize = 512;

/// Resolver of names.
#[derive(Debug, Clone)]
pub enum NameResolver {
    OfTheMachine(GaiResolver),
    At(SocketAddr),
}

impl NameResolver {
    pub fn at(server: Option<SocketAddr>) -> NameResolver {
        server.map_or_else(|| NameResolver::OfTheMachine(GaiResolver::new()), NameResolver::At)
    }
}

impl Service<Name> for NameResolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            NameResolver::OfTheMachine(resolver) => resolver.poll_ready(context),
            NameResolver::At(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, name: Name) -> Self::Future {
        match self {
            NameResolver::OfTheMachine(resolver) => {
                let asked = resolver.call(name);
                Box::pin(async { Ok(asked.await?.collect::<Vec<_>>().into_iter()) })
            }
            NameResolver::At(server) => {
                let server = *server;
                Box::pin(async move { Ok(addresses(server, name.as_str()).await?.into_iter()) })
            }
        }
    }
}

/// The addresses of a name; their port is that of the URL, which the caller adds.
async fn addresses(server: SocketAddr, name: &str) -> io::Result<Vec<SocketAddr>> {
    let mut found = Vec::new();
    for kind in [RecordType::A, RecordType::AAAA] {
        let answer = ask(server, name, kind).await?;
        found.extend(answer.answers.iter().filter_map(|record| match &record.data {
            RData::A(address) => Some(SocketAddr::from((Ipv4Addr::from(*address), 0))),
            RData::AAAA(address) => Some(SocketAddr::from((Ipv6Addr::from(*address), 0))),
            _ => None,
        }));
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, format!("{server} knows no address of {name}")))
}

async fn ask(server: SocketAddr, name: &str, kind: RecordType) -> io::Result<Message> {
    let mut question = DnsName::from_ascii(name).map_err(io::Error::other)?;
    question.set_fqdn(true);
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(question, kind));
    let packet = message.to_vec().map_err(io::Error::other)?;
    let here: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // Connected, so that only the server's packets arrive, and a port that is shut is an error.
    let socket = UdpSocket::bind((here, 0)).await?;
    socket.connect(server).await?;
    for _ in 0..ATTEMPTS {
        socket.send(&packet).await?;
        let mut answer = [0; LONGEST_PACKET];
        let Ok(received) = timeout(PATIENCE, socket.recv(&mut answer)).await else { continue };
        let read = Message::from_vec(&answer[..received?]).map_err(io::Error::other)?;
        if read.metadata.id != message.metadata.id {
            continue;
        }
        return match read.metadata.response_code {
            ResponseCode::NoError | ResponseCode::NXDomain => Ok(read),
            code => Err(io::Error::other(format!("{server} answers for {name}: {code}"))),
        };
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, format!("{server} does not answer for {name}")))
}
