//! Asking the machine's resolvers, one after another until one answers.

use std::{
    collections::{HashSet, hash_map::RandomState},
    hash::BuildHasher,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
    time::{Instant, timeout},
};

use super::{
    dns_metrics::DnsMetrics,
    message::{self, Query},
    resolvers::Resolvers,
};

/// No further resolver is asked after this; the application has asked again meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);

/// Transport of a query, on which it is also passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryTransport {
    Udp,
    Tcp,
}

#[derive(Debug)]
pub struct Forwarder {
    resolvers: Resolvers,
    dns_metrics: DnsMetrics,
    numbers: QueryNumbers,
    /// From where resolvers are being asked.
    asking: Mutex<HashSet<SocketAddr>>,
}

/// Numbers of queries that cannot be guessed: a forged answer needs the number of its query.
#[derive(Debug, Default)]
struct QueryNumbers {
    key: RandomState,
    next: AtomicU64,
}

/// Remembers an address while a query is under way from it.
pub struct InFlightQuery<'a>(&'a Forwarder, SocketAddr);

impl Drop for InFlightQuery<'_> {
    fn drop(&mut self) {
        self.0.asking.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

impl Forwarder {
    pub fn new(resolvers: Resolvers, dns_metrics: DnsMetrics) -> Forwarder {
        Forwarder { resolvers, dns_metrics, numbers: QueryNumbers::default(), asking: Mutex::default() }
    }

    /// True if a query for a resolver comes from this address: then the firewall redirects the agent's own queries to
    /// the agent.
    pub fn asks_from(&self, address: SocketAddr) -> bool {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner).contains(&address)
    }

    /// Answer of a resolver, if any answers. A refusal is an answer when no other resolver has a better one.
    pub async fn ask(&self, query: &Query, packet: &[u8], over: QueryTransport) -> Option<Vec<u8>> {
        let began = Instant::now();
        let answer = self.ask_all(query, packet, over).await;
        self.dns_metrics.asked(began.elapsed(), answer.is_some());
        answer
    }

    async fn ask_all(&self, query: &Query, packet: &[u8], over: QueryTransport) -> Option<Vec<u8>> {
        let began = Instant::now();
        let list = self.resolvers.current();
        for _ in 0..list.attempts {
            let mut refusal = None;
            for resolver in list.in_order(std::time::Instant::now()) {
                if began.elapsed() >= PATIENCE {
                    return refusal;
                }
                let asked = async {
                    match over {
                        QueryTransport::Udp => self.exchange_udp(resolver.address, query, packet).await,
                        QueryTransport::Tcp => self.exchange_tcp(resolver.address, query, packet).await,
                    }
                };
                match timeout(list.timeout, asked).await {
                    Ok(Ok(answer)) => {
                        resolver.answered();
                        if !message::is_refusal(&answer) {
                            return Some(answer);
                        }
                        refusal = Some(answer);
                    }
                    Ok(Err(error)) => {
                        tracing::debug!(resolver = %resolver.address, %error, "cannot query a resolver");
                        resolver.was_silent();
                    }
                    Err(_) => {
                        tracing::debug!(resolver = %resolver.address, "a resolver did not answer in time");
                        resolver.was_silent();
                    }
                }
            }
            // A second attempt would be refused, too.
            if refusal.is_some() {
                return refusal;
            }
        }
        None
    }

    async fn exchange_udp(&self, resolver: SocketAddr, query: &Query, packet: &[u8]) -> io::Result<Vec<u8>> {
        // The kernel picks the port, another one for each query.
        let any = match resolver {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = UdpSocket::bind(any).await?;
        socket.connect(resolver).await?;
        let _asking = self.asking_from(socket.local_addr()?);
        let number = self.numbers.next();
        socket.send(&numbered(packet, number)).await?;
        // One byte more than the client takes tells that there was more.
        let mut answer = vec![0; query.limit() + 1];
        loop {
            let length = socket.recv(&mut answer).await?;
            // Anything else is no answer to this query, and the answer may still come.
            if query.is_answered_by(number, &answer[..length]) {
                answer.truncate(length);
                break;
            }
        }
        message::set_id(&mut answer, [packet[0], packet[1]]);
        Ok(answer)
    }

    async fn exchange_tcp(&self, resolver: SocketAddr, query: &Query, packet: &[u8]) -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(resolver).await?;
        let number = self.numbers.next();
        write_framed(&mut stream, &numbered(packet, number)).await?;
        let mut answer = read_framed(&mut stream).await?;
        if !query.is_answered_by(number, &answer) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is to another question"));
        }
        message::set_id(&mut answer, [packet[0], packet[1]]);
        Ok(answer)
    }

    /// Holds for as long as what it gives back lives.
    pub fn asking_from(&self, address: SocketAddr) -> InFlightQuery<'_> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner).insert(address);
        InFlightQuery(self, address)
    }
}

impl QueryNumbers {
    fn next(&self) -> u16 {
        let hashed = self.key.hash_one(self.next.fetch_add(1, Ordering::Relaxed));
        let [high, low, ..] = hashed.to_be_bytes();
        u16::from_be_bytes([high, low])
    }
}

fn numbered(packet: &[u8], number: u16) -> Vec<u8> {
    let mut packet = packet.to_vec();
    message::set_id(&mut packet, number.to_be_bytes());
    packet
}

/// A message over TCP has its length in front.
pub async fn write_framed(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    let framed = [&length.to_be_bytes(), message].concat();
    stream.write_all(&framed).await
}

pub async fn read_framed(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u16().await?;
    let mut message = vec![0; usize::from(length)];
    stream.read_exact(&mut message).await?;
    Ok(message)
}
