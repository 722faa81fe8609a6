//! Five hundred hostile connections beside fifty proxies: the proxies notice nothing, and the control plane
//! keeps only as much as it decided to.

use std::{fs, net::Ipv4Addr};

use bytes::Bytes;
use e2e::{
    DEADLINE, Setup,
    discovery::{Address, Identity, KnownVersions, Stream, connect_from},
    proxy::own_address,
    service::dataplane,
};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    runtime::Runtime,
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use xds::Type;

use crate::world::{World, every_client};

const PROXIES: usize = 50;
/// As many connections of each kind of attack; ten kinds make five hundred.
const EACH: usize = 50;
/// Bytes that five hundred connections may cost: 128 KiB each, and the allocator's share.
const BUDGET: u64 = 500 * (128 << 10) + (32 << 20);

/// Memory the process holds now.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// A connection from an address that no proxy has.
async fn attacker(port: u16, number: usize) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    let number = u8::try_from(number % 200).unwrap() + 1;
    socket.bind((Ipv4Addr::new(127, 10, 0, number), 0).into()).unwrap();
    socket.connect((Ipv4Addr::LOCALHOST, port).into()).await.ok()
}

/// Sends some bytes and then nothing; the attacker reads nothing.
async fn says(port: u16, number: usize, bytes: &[u8]) -> Option<TcpStream> {
    let mut stream = attacker(port, number).await?;
    // A control plane that closes at once has won already.
    stream.write_all(bytes).await.ok()?;
    Some(stream)
}

/// A discovery stream without a token that announces a long message and sends it slowly, or never.
async fn long_introduction(address: &Address, number: usize) -> Option<JoinHandle<()>> {
    let source = Ipv4Addr::new(127, 10, 1, u8::try_from(number % 200).unwrap() + 1);
    let mut connection = connect_from(address, source).await.ok()?;
    let (sender, body) = mpsc::channel::<Result<Frame<Bytes>, std::io::Error>>(1);
    let request = http::Request::post(address.discovery())
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(StreamBody::new(ReceiverStream::new(body))))
        .unwrap();
    Some(tokio::spawn(async move {
        let head = [0, 0, 3, 0, 0];
        let _ = sender.send(Ok(Frame::data(Bytes::copy_from_slice(&head)))).await;
        if let Ok(response) = connection.send_request(request).await {
            let _ = response.into_body().collect().await;
        }
        drop(sender);
    }))
}

/// Connections and streams that attack the control plane.
struct Attack {
    /// Connections that only waste time.
    sockets: Vec<(&'static str, TcpStream)>,
    /// Answers and watches that are never read; they may stay as long as little waits for them.
    unread: Vec<TcpStream>,
    streams: Vec<JoinHandle<()>>,
}

impl Attack {
    async fn begin(world: &World, address: &Address) -> Attack {
        let [api, health, proxies] = world.control_plane.ports();
        let watch = b"GET /meshes/default/dataplanes?watch=true HTTP/1.1\r\nhost: x\r\n\r\n";
        let lists = b"GET /meshes/default/dataplanes?size=1000 HTTP/1.1\r\nhost: x\r\n\r\n".repeat(50);
        let body = [
            b"PUT /meshes/default/meshtimeouts/t HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
                .as_slice(),
            b"content-length: 4000000\r\n\r\n{\"type\": \"",
        ]
        .concat();
        let attacks: [(&str, u16, &[u8]); 7] = [
            ("nothing to the API", api, b""),
            ("nothing to the server of proxies", proxies, b""),
            ("nothing to the diagnostics", health, b""),
            ("half a head", api, b"GET /meshes HTTP/1.1\r\nhost: lo"),
            ("half a handshake", proxies, &[0x16, 3, 1, 2, 0, 1]),
            ("no handshake", proxies, b"PRI * HTTP/2.0 and then something else entirely\r\n\r\n"),
            ("half a body", api, &body),
        ];
        let mut sockets = Vec::new();
        let mut unread = Vec::new();
        let mut streams = Vec::new();
        for number in 0..EACH {
            for (what, port, bytes) in attacks {
                sockets.extend(says(port, number, bytes).await.map(|socket| (what, socket)));
            }
            for request in [watch.as_slice(), &lists] {
                unread.extend(says(api, number, request).await);
            }
            streams.extend(long_introduction(address, number).await);
        }
        Attack { sockets, unread, streams }
    }

    /// Waits until the control plane has ended every connection that only wastes its time.
    async fn wait_for_the_control_plane_to_end_it(self) {
        for (what, mut socket) in self.sockets {
            let mut rest = Vec::new();
            // Closed with or without a word; an error is a connection that was reset.
            let ended = timeout(DEADLINE, socket.read_to_end(&mut rest)).await;
            assert!(ended.is_ok(), "the connection goes on: {what}");
        }
        for stream in self.streams {
            timeout(DEADLINE, stream).await.expect("the stream ends").unwrap();
        }
    }
}

/// Fifty proxies that are connected and configured.
async fn connected(address: &Address, identities: &[Identity]) -> Vec<Stream> {
    let mut streams = Vec::new();
    for identity in identities {
        let mut stream = Stream::open(address, identity, KnownVersions::default()).await.unwrap();
        stream.until(Type::Listener).await.unwrap();
        streams.push(stream);
    }
    streams
}

/// Changes what every proxy enforces, and waits until each has it on the stream it has had all along.
async fn all_hear_of(world: &World, streams: &mut [Stream], action: &str) {
    world.put("/meshes/default/meshtrafficpermissions/every-client", &every_client(action));
    for stream in streams {
        stream.until(Type::Listener).await.unwrap();
    }
}

#[test]
fn proxies_do_not_notice_five_hundred_hostile_connections() {
    let world = World::start(Setup::default());
    let own = |name: String| dataplane(&name, "fakes", own_address(), "http", (own_address(), 9000).into());
    let identity = |number| Identity::of(&world.control_plane, own(format!("fake-{number}"))).unwrap();
    let identities: Vec<Identity> = (0..PROXIES).map(identity).collect();
    let late = identity(PROXIES);
    let address = Address::of(&world.control_plane);
    let pid = world.control_plane.pid();
    Runtime::new().unwrap().block_on(async {
        let mut streams = connected(&address, &identities).await;
        all_hear_of(&world, &mut streams, "Deny").await;
        let before = resident(pid);

        let attack = Attack::begin(&world, &address).await;
        let reached = attack.sockets.len() + attack.streams.len() + attack.unread.len();
        assert!(reached > 5 * EACH, "only {reached} connections were made");
        all_hear_of(&world, &mut streams, "Allow").await;
        connected(&address, std::slice::from_ref(&late)).await;
        assert_eq!(world.control_plane.diagnostics().get("/ready").unwrap().status, 200);
        let grown = resident(pid).saturating_sub(before);
        assert!(grown < BUDGET, "{grown} bytes for {reached} connections, {BUDGET} are budgeted");

        attack.wait_for_the_control_plane_to_end_it().await;
        all_hear_of(&world, &mut streams, "Deny").await;
    });
}
