//! A resolver of the machine.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use hickory_proto::{
    op::{Message, OpCode, ResponseCode},
    rr::{RData, Record, rdata::SOA},
};

use super::client::{read_framed, write_framed};

#[derive(Debug, Clone, Copy)]
pub enum Behaviour {
    Silent,
    Refuse,
    NoSuchName,
    Address(Ipv4Addr),
    /// So many addresses.
    Many(u8),
    /// Wrong answers first.
    Forged(Ipv4Addr),
}

pub struct Resolver {
    pub port: u16,
    behaviour: Arc<Mutex<Behaviour>>,
    asked: Arc<AtomicUsize>,
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Resolver {
    pub fn start(behaviour: Behaviour) -> Resolver {
        let port = testkit::ports::own_port().unwrap();
        let behaviour = Arc::new(Mutex::new(behaviour));
        let asked = Arc::new(AtomicUsize::new(0));
        let ends = Arc::new(AtomicBool::new(false));
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        udp.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        tcp.set_nonblocking(true).unwrap();
        let behave = behaviour.clone();
        let count = asked.clone();
        let ended = ends.clone();
        let over_udp = std::thread::spawn(move || {
            let mut buffer = vec![0; 4096];
            while !ended.load(Ordering::Relaxed) {
                let Ok((length, peer)) = udp.recv_from(&mut buffer) else { continue };
                count.fetch_add(1, Ordering::SeqCst);
                let behaviour = *behave.lock().unwrap();
                respond(behaviour, &buffer[..length], &udp, peer);
            }
        });
        let behave = behaviour.clone();
        let count = asked.clone();
        let ended = ends.clone();
        let over_tcp = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let Ok((mut stream, _)) = tcp.accept() else {
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                };
                stream.set_nonblocking(false).unwrap();
                let Ok(packet) = read_framed(&mut stream) else { continue };
                count.fetch_add(1, Ordering::SeqCst);
                let behaviour = *behave.lock().unwrap();
                for answer in answers(behaviour, &packet) {
                    write_framed(&mut stream, &answer);
                }
            }
        });
        Resolver { port, behaviour, asked, ends, threads: vec![over_udp, over_tcp] }
    }

    pub fn behave(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }

    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Closes its port, which it tells.
    pub fn end(mut self) -> u16 {
        self.ends.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
        self.port
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

fn respond(behaviour: Behaviour, packet: &[u8], socket: &UdpSocket, peer: SocketAddr) {
    for answer in answers(behaviour, packet) {
        socket.send_to(&answer, peer).unwrap();
    }
}

fn answers(behaviour: Behaviour, packet: &[u8]) -> Vec<Vec<u8>> {
    let Ok(asked) = Message::from_vec(packet) else { return Vec::new() };
    let name = asked.queries[0].name().clone();
    let mut response = Message::response(asked.metadata.id, OpCode::Query);
    response.metadata.recursion_available = true;
    response.add_queries(asked.queries.clone());
    let address = |address: Ipv4Addr| Record::from_rdata(name.clone(), 60, RData::A(address.into()));
    match behaviour {
        Behaviour::Silent => return Vec::new(),
        Behaviour::Refuse => response.metadata.response_code = ResponseCode::ServFail,
        Behaviour::NoSuchName => {
            response.metadata.response_code = ResponseCode::NXDomain;
            let soa =
                SOA::new("ns.example.".parse().unwrap(), "admin.example.".parse().unwrap(), 1, 2, 3, 4, 5);
            response.add_authority(Record::from_rdata(name.clone(), 60, RData::SOA(soa)));
        }
        Behaviour::Address(one) => {
            response.add_answer(address(one));
        }
        Behaviour::Many(count) => {
            response.add_answers((0..count).map(|i| address(Ipv4Addr::new(192, 0, 2, i))));
        }
        Behaviour::Forged(right) => {
            let mut other = response.clone();
            other.queries[0].set_name("other.example.".parse().unwrap());
            other.add_answer(address(Ipv4Addr::new(203, 0, 113, 1)));
            let mut guessed = response.clone();
            guessed.metadata.id = asked.metadata.id.wrapping_add(1);
            guessed.add_answer(address(Ipv4Addr::new(203, 0, 113, 2)));
            response.add_answer(address(right));
            return [other, guessed, response].iter().map(|message| message.to_vec().unwrap()).collect();
        }
    }
    vec![response.to_vec().unwrap()]
}
