//! A client of the DNS server.

use std::{
    io::{Read, Write},
    net::{TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use hickory_proto::{
    op::{Message, Query},
    rr::{Name, RecordType},
};

/// Long enough for a machine that is busy with other tests; nothing waits this long when all is well.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn query(name: &str, kind: RecordType) -> Message {
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

pub fn read(packet: &[u8]) -> Message {
    Message::from_vec(packet).unwrap()
}

/// The packet that answers a packet.
pub fn send(port: u16, packet: &[u8]) -> std::io::Result<Vec<u8>> {
    send_once(port, packet, PATIENCE)
}

/// The answer to a query that is sent again when it is lost, as applications do: a socket that is flooded loses packets.
pub fn ask_again(port: u16, query: &Message) -> Message {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match send_once(port, &query.to_vec().unwrap(), Duration::from_millis(500)) {
            Ok(answer) => return read(&answer),
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    }
}

fn send_once(port: u16, packet: &[u8], patience: Duration) -> std::io::Result<Vec<u8>> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(patience))?;
    socket.send_to(packet, ("127.0.0.1", port))?;
    let mut answer = vec![0; 65_536];
    let length = socket.recv(&mut answer)?;
    answer.truncate(length);
    Ok(answer)
}

pub fn ask(port: u16, query: &Message) -> Message {
    read(&send(port, &query.to_vec().unwrap()).unwrap())
}

pub fn ask_tcp(port: u16, query: &Message) -> Message {
    ask_tcp_at(("127.0.0.1", port), query)
}

/// Over both kinds of transport, at the loopback address of IPv6.
pub fn ask_v6(port: u16, query: &Message) -> [Message; 2] {
    let socket = UdpSocket::bind("[::1]:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send_to(&query.to_vec().unwrap(), ("::1", port)).unwrap();
    let mut answer = vec![0; 65_536];
    let length = socket.recv(&mut answer).unwrap();
    [read(&answer[..length]), ask_tcp_at(("::1", port), query)]
}

fn ask_tcp_at(server: (&str, u16), query: &Message) -> Message {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write_framed(&mut stream, &query.to_vec().unwrap());
    read(&read_framed(&mut stream).unwrap())
}

pub fn write_framed(stream: &mut TcpStream, packet: &[u8]) {
    let length = u16::try_from(packet.len()).unwrap();
    let _ = stream.write_all(&[&length.to_be_bytes(), packet].concat());
}

pub fn read_framed(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut packet = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut packet)?;
    Ok(packet)
}

/// Sends what need not be answered.
pub fn throw(port: u16, packet: &[u8], tcp: bool) {
    if tcp {
        write_framed(&mut TcpStream::connect(("127.0.0.1", port)).unwrap(), packet);
    } else {
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(packet, ("127.0.0.1", port)).unwrap();
    }
}

#[track_caller]
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Asks for new names without end.
pub struct Flood(Arc<AtomicBool>, JoinHandle<()>);

impl Flood {
    pub fn start(port: u16) -> Flood {
        let ends = Arc::new(AtomicBool::new(false));
        let ended = ends.clone();
        let asking = std::thread::spawn(move || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            for number in 0_u64.. {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let packet = query(&format!("{number}.example."), RecordType::A).to_vec().unwrap();
                socket.send_to(&packet, ("127.0.0.1", port)).unwrap();
                std::thread::yield_now();
            }
        });
        Flood(ends, asking)
    }

    pub fn end(self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.join().unwrap();
    }
}

/// The same numbers each time.
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }

    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit).unwrap()).unwrap()
    }
}
