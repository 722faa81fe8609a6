//! From a packet to its answer. Names of the mesh are answered at once; what resolvers must be asked for waits in a
//! task, of which there is a bounded number.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    net::{TcpListener, TcpStream, UdpSocket},
    sync::Semaphore,
    time::timeout,
};

use transparent_proxy::Range;

use super::{
    dns_metrics::{DnsMetrics, RefusalReason, Source},
    forward::{Forwarder, QueryTransport, read_framed, write_framed},
    message::{self, Query, QueryError},
    table::DnsNames,
};

/// Queries that wait for resolvers at a time. Each has a socket; agents may open thousands.
const WAITING: usize = 512;
const CONNECTIONS: usize = 64;
/// Time after which a connection without a query is closed.
const IDLE: Duration = Duration::from_secs(10);
/// After an error of the socket, which may come again at once.
const PAUSE: Duration = Duration::from_millis(20);
/// No query is larger.
const MAX_QUERY: usize = 4096;

pub struct QueryAnswerer {
    names: Arc<DnsNames>,
    forwarder: Forwarder,
    dns_metrics: DnsMetrics,
    log_queries: bool,
    waiting: Arc<Semaphore>,
    connections: Arc<Semaphore>,
    said_returned: AtomicBool,
}

/// Next step for a packet.
enum PacketStep {
    Nothing,
    Answer(Vec<u8>),
    Ask(Box<Query>),
}

impl QueryAnswerer {
    pub fn new(
        names: Arc<DnsNames>,
        forwarder: Forwarder,
        dns_metrics: DnsMetrics,
        log_queries: bool,
    ) -> QueryAnswerer {
        QueryAnswerer {
            names,
            forwarder,
            dns_metrics,
            log_queries,
            waiting: Arc::new(Semaphore::new(WAITING)),
            connections: Arc::new(Semaphore::new(CONNECTIONS)),
            said_returned: AtomicBool::new(false),
        }
    }

    /// Answers at both sockets for as long as the runtime lives; where `from` is given, only what comes from there.
    pub fn serve(
        self: &Arc<Self>,
        udp: std::net::UdpSocket,
        tcp: Option<std::net::TcpListener>,
        from: Option<Vec<Range>>,
    ) -> std::io::Result<()> {
        let udp = UdpSocket::from_std(udp)?;
        let tcp = tcp.map(TcpListener::from_std).transpose()?;
        tokio::spawn(self.clone().serve_udp(Arc::new(udp), from));
        if let Some(tcp) = tcp {
            tokio::spawn(self.clone().serve_tcp(tcp));
        }
        Ok(())
    }

    async fn serve_udp(self: Arc<Self>, socket: Arc<UdpSocket>, from: Option<Vec<Range>>) {
        let mut buffer = vec![0; MAX_QUERY];
        loop {
            let (length, peer) = match socket.recv_from(&mut buffer).await {
                Ok(received) => received,
                Err(error) => {
                    tracing::debug!(%error, "cannot receive a query");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            if from.as_ref().is_some_and(|from| !from.iter().any(|range| range.contains(peer.ip()))) {
                self.dns_metrics.refused(RefusalReason::Outside);
                continue;
            }
            let packet = &buffer[..length];
            let began = Instant::now();
            match self.step(packet, peer, QueryTransport::Udp, began) {
                PacketStep::Nothing => {}
                PacketStep::Answer(answer) => send(&socket, &answer, peer).await,
                PacketStep::Ask(query) => self.ask_later(&socket, query, packet, peer, began).await,
            }
        }
    }

    async fn ask_later(
        self: &Arc<Self>,
        socket: &Arc<UdpSocket>,
        query: Box<Query>,
        packet: &[u8],
        peer: SocketAddr,
        began: Instant,
    ) {
        let Ok(turn) = self.waiting.clone().try_acquire_owned() else {
            self.dns_metrics.refused(RefusalReason::TooMany);
            return send(socket, &query.failure(), peer).await;
        };
        let answering = self.clone();
        let socket = socket.clone();
        let packet = packet.to_vec();
        tokio::spawn(async move {
            let answer = query.fitted(answering.ask(&query, &packet, QueryTransport::Udp, began).await);
            send(&socket, &answer, peer).await;
            drop(turn);
        });
    }

    async fn serve_tcp(self: Arc<Self>, listener: TcpListener) {
        loop {
            // It is never closed.
            let Ok(turn) = self.connections.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let answering = self.clone();
                    tokio::spawn(async move {
                        answering.serve_connection(stream, peer).await;
                        drop(turn);
                    });
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a connection");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// One query after another, until the client has no more.
    async fn serve_connection(&self, mut stream: TcpStream, peer: SocketAddr) {
        while let Ok(Ok(packet)) = timeout(IDLE, read_framed(&mut stream)).await {
            let began = Instant::now();
            let answer = match self.step(&packet, peer, QueryTransport::Tcp, began) {
                PacketStep::Nothing => return,
                PacketStep::Answer(answer) => answer,
                PacketStep::Ask(query) => self.ask(&query, &packet, QueryTransport::Tcp, began).await,
            };
            if !matches!(timeout(IDLE, write_framed(&mut stream, &answer)).await, Ok(Ok(()))) {
                return;
            }
        }
    }

    fn step(&self, packet: &[u8], peer: SocketAddr, over: QueryTransport, began: Instant) -> PacketStep {
        let query = match Query::read(packet) {
            Ok(query) => query,
            Err(unreadable) => {
                self.dns_metrics.refused(RefusalReason::Malformed);
                return match unreadable {
                    QueryError::Ignored => PacketStep::Nothing,
                    QueryError::Answered(answer) => PacketStep::Answer(answer),
                };
            }
        };
        if self.forwarder.asks_from(peer) {
            self.say_returned();
            return PacketStep::Answer(query.failure());
        }
        let Some(name) = query.name() else { return PacketStep::Ask(Box::new(query)) };
        let table = self.names.current();
        let Some(addresses) = table.find(&name) else { return PacketStep::Ask(Box::new(query)) };
        let answer = query.answer(addresses, table.ttl());
        self.note(&query, Source::Mesh, &answer, began);
        PacketStep::Answer(if over == QueryTransport::Udp { query.fitted(answer) } else { answer })
    }

    async fn ask(&self, query: &Query, packet: &[u8], over: QueryTransport, began: Instant) -> Vec<u8> {
        let answer = self.forwarder.ask(query, packet, over).await.unwrap_or_else(|| query.failure());
        self.note(query, Source::Resolver, &answer, began);
        answer
    }

    fn note(&self, query: &Query, source: Source, answer: &[u8], began: Instant) {
        let code = message::code(answer);
        self.dns_metrics.answered(query.kind(), source, code, began.elapsed());
        if self.log_queries {
            tracing::info!(name = query.shown(), kind = %query.kind(), ?source, code, "DNS query");
        }
    }

    /// Once is enough: the firewall does not change by itself.
    fn say_returned(&self) {
        self.dns_metrics.refused(RefusalReason::Returned);
        if !self.said_returned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the firewall redirects the agent's own DNS queries to the agent, so names outside of the mesh are \
                 not resolved; run the agent as the user that the redirection excludes (--kuma-dp-user of \
                 `kumactl install transparent-proxy`)"
            );
        }
    }
}

async fn send(socket: &UdpSocket, answer: &[u8], peer: SocketAddr) {
    if let Err(error) = socket.send_to(answer, peer).await {
        tracing::debug!(%error, "cannot send an answer");
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::{
        op::{Message, Query as Question, ResponseCode},
        rr::RecordType,
    };
    use runtime::metrics::Metrics;

    use super::*;
    use crate::dns::resolvers::Resolvers;

    #[test]
    fn a_query_that_the_firewall_sends_back_is_not_asked_again() {
        let metrics = Metrics::default();
        let dns_metrics = DnsMetrics::register(&metrics);
        let forwarder = Forwarder::new(Resolvers::new("/nowhere".into(), Vec::new()), dns_metrics.clone());
        let answering = QueryAnswerer::new(Arc::default(), forwarder, dns_metrics, false);
        let mut query = Message::query();
        query.add_query(Question::query("shop.example.".parse().unwrap(), RecordType::A));
        let packet = query.to_vec().unwrap();
        let own: SocketAddr = "10.0.0.5:40000".parse().unwrap();
        let asking = answering.forwarder.asking_from(own);
        // The firewall changes the receiver of a packet and leaves its sender.
        let PacketStep::Answer(answer) = answering.step(&packet, own, QueryTransport::Udp, Instant::now())
        else {
            panic!("asked again")
        };
        assert_eq!(Message::from_vec(&answer).unwrap().metadata.response_code, ResponseCode::ServFail);
        assert!(metrics.encode().contains(r#"kuma_dp_dns_refused_queries_total{reason="returned"} 1"#));
        drop(asking);
        assert!(matches!(
            answering.step(&packet, own, QueryTransport::Udp, Instant::now()),
            PacketStep::Ask(_)
        ));
    }
}
