//! A service with two endpoints that tests can break one by one, called through a real Envoy.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use envoy::bootstrap::ClusterNames;
use plan::ProxyTraits;

use crate::{
    enforcement::free_port,
    live::Live,
    support::{PLAIN, plan, unified, web},
};

const PATIENCE: Duration = Duration::from_secs(30);
/// So many answers in a row are by one endpoint only if the other one gets nothing.
const ROW: usize = 20;

/// An application that says its name, whatever it speaks.
#[derive(Clone)]
pub struct EndpointApplication {
    name: &'static str,
    /// It answers health checks that it is well.
    pub well: Arc<AtomicBool>,
    /// The status of its answers to requests.
    pub status: Arc<AtomicUsize>,
    /// Requests that reached it, checks not counted.
    pub asked: Arc<AtomicUsize>,
}

/// The service, its endpoints `one` and `two`, and the proxy that calls it.
pub struct ServiceOfTwo {
    _envoy: Live,
    pub endpoints: [EndpointApplication; 2],
    outbound: u16,
    protocol: &'static str,
}

impl ServiceOfTwo {
    pub fn start(protocol: &'static str, policies: &str) -> ServiceOfTwo {
        let endpoints = ["one", "two"].map(|name| EndpointApplication {
            name,
            well: Arc::new(AtomicBool::new(true)),
            status: Arc::new(AtomicUsize::new(200)),
            asked: Arc::default(),
        });
        let port = free_port();
        let outbound = free_port();
        let tags = format!("tags: {{ kuma.io/service: pair, kuma.io/protocol: {protocol} }}");
        let inbounds: Vec<String> = endpoints
            .iter()
            .zip(["127.0.0.1", "127.0.0.3"])
            .map(|(endpoint, address)| {
                let name = endpoint.name;
let application = endpoint.clone().listen(protocol);
                format!("{{ name: {name}, address: {address}, port: {port}, serviceAddress: 127.0.0.1, servicePort: {application}, {tags} }}")
            })
            .collect();
        let service = format!(
            "type: MeshService\nmesh: default\nname: pair\nspec:\n\
             \x20 selector: {{ dataplaneTags: {{ kuma.io/service: pair }} }}\n\
             \x20 ports: [{{ port: 80, targetPort: {port}, appProtocol: {protocol} }}]"
        );
        let web = web(&format!(
            "inbound: [{}]\noutbound: [{{ port: {outbound}, backendRef: {{ kind: MeshService, name: pair, port: 80 }} }}]",
            inbounds.join(", ")
        ));
        let traits = ProxyTraits { admin_port: 0, ..unified("web") };
        let plan = plan(&[PLAIN, policies, &service, &web], &traits);
        assert_eq!(plan.findings(), Vec::new());
        assert_eq!(plan.outgoing.backends[0].endpoints.0.len(), 2);
        ServiceOfTwo { _envoy: Live::start(&plan, ClusterNames::UNIFIED), endpoints, outbound, protocol }
    }

    /// Returns the answer of the service.
    pub fn ask(&self, path: &str, headers: &str) -> String {
        let mut socket = TcpStream::connect(("127.0.0.1", self.outbound)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let question = match self.protocol {
            "tcp" => "who?\n".to_owned(),
            _ => format!("GET {path} HTTP/1.1\r\nhost: pair\r\nconnection: close\r\n{headers}\r\n"),
        };
        socket.write_all(question.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // A connection that is reset has no answer.
        let _ = socket.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Returns the name of the endpoint that answers; empty without an answer.
    pub fn who(&self, path: &str, headers: &str) -> &'static str {
        let answer = self.ask(path, headers);
        let names = self.endpoints.iter().map(|endpoint| endpoint.name);
        names.into_iter().find(|name| answer.contains(&format!("by {name}"))).unwrap_or_default()
    }

    /// Waits until only these answer, and all of them do.
    #[track_caller]
    pub fn wait_for(&self, expected: &[&str]) {
        let expected: BTreeSet<&str> = expected.iter().copied().collect();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answered: BTreeSet<&str> = (0..ROW).map(|_| self.who("/", "")).collect();
            if answered == expected {
                return;
            }
            assert!(Instant::now() < deadline, "{answered:?} answer instead of {expected:?}");
        }
    }
}

impl EndpointApplication {
    /// Answers at a port of its own.
    fn listen(self, protocol: &'static str) -> u16 {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for client in socket.incoming().flatten() {
                let endpoint = self.clone();
                std::thread::spawn(move || match protocol {
                    "tcp" => endpoint.lines(client),
                    "grpc" => endpoint.calls(client),
                    _ => endpoint.requests(client),
                });
            }
        });
        port
    }

    fn is_well(&self) -> bool {
        self.well.load(Ordering::SeqCst)
    }

    fn lines(&self, client: TcpStream) -> Option<()> {
        let mut client = BufReader::new(client);
        loop {
            let mut line = String::new();
            if client.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let answer = match line.trim_end() {
                "ping" if self.is_well() => "pong\n".to_owned(),
                "ping" => return None,
                _ => {
                    client.get_mut().write_all(format!("by {}\n", self.name).as_bytes()).ok()?;
                    return None;
                }
            };
            client.get_mut().write_all(answer.as_bytes()).ok()?;
        }
    }

    fn requests(&self, client: TcpStream) -> Option<()> {
        let mut client = BufReader::new(client);
        loop {
            let mut asked = String::new();
            if client.read_line(&mut asked).ok()? == 0 {
                return None;
            }
            let mut head = String::new();
            while client.read_line(&mut head).ok()? > 2 {}
            let check = asked.contains(" /health ");
            // Who checks says so in a header that the policy adds.
            let well = self.is_well() && head.contains("x-check: 100%");
            let status = match (check, well) {
                (true, true) => 204,
                (true, false) => 503,
                (false, _) => self.status.load(Ordering::SeqCst),
            };
            if !check {
                self.asked.fetch_add(1, Ordering::SeqCst);
            }
            if asked.contains("/slow") {
                // Until the client has gone.
                client.read_line(&mut head).ok()?;
                return None;
            }
            let said = if check { String::new() } else { format!("by {}", self.name) };
            let length = said.len();
            write!(client.get_mut(), "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{said}").ok()?;
        }
    }

    /// HTTP/2, as much of it as a call of the health service takes.
    fn calls(&self, mut client: TcpStream) -> Option<()> {
        const SETTINGS: u8 = 4;
        const PING: u8 = 6;
        let mut preface = [0; 24];
        client.read_exact(&mut preface).ok()?;
        client.write_all(&frame(SETTINGS, 0, 0, &[])).ok()?;
        loop {
            let mut head = [0; 9];
            client.read_exact(&mut head).ok()?;
            let mut body = vec![0; (usize::from(head[1]) << 8) | usize::from(head[2])];
            client.read_exact(&mut body).ok()?;
            let kind = head[3];
            let flags = head[4];
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            match kind {
                SETTINGS | PING if flags & 1 == 0 => {
                    let echo = if kind == PING { &body[..] } else { &[] };
                    client.write_all(&frame(kind, 1, 0, echo)).ok()?;
                }
                // The end of a request, by headers or data.
                0 | 1 if flags & 1 == 1 => client.write_all(&self.health(stream)).ok()?,
                _ => {}
            }
        }
    }

    /// `grpc.health.v1.HealthCheckResponse`, signed.
    fn health(&self, stream: u32) -> Vec<u8> {
        let literal = |name: &str, value: &str| {
            let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
            [vec![0], text(name), text(value)].concat()
        };
        // 0x88 is `:status: 200`.
        let by = literal("x-signed", &format!("by {}", self.name));
        let head = [vec![0x88], literal("content-type", "application/grpc"), by].concat();
        let serving = if self.is_well() { 1 } else { 2 };
        let end = literal("grpc-status", "0");
        [
            frame(1, 4, stream, &head),
            frame(0, 0, stream, &[0, 0, 0, 0, 2, 8, serving]),
            frame(1, 5, stream, &end),
        ]
        .concat()
    }
}

fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), body].concat()
}
