//! Ports: which are in use, which are free, and whether a server answers.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    time::Duration,
};

use anyhow::{Context, bail};

/// Chooses free ports, each once.
#[derive(Default)]
pub struct Chooser {
    /// Held until all are chosen, so that none is given twice.
    held: Vec<TcpListener>,
}

impl Chooser {
    /// A port for a DNS server, which takes packets and connections.
    pub fn choose_for_names(&mut self, host: Ipv4Addr, expected: u16) -> anyhow::Result<SocketAddr> {
        for expected in std::iter::once(expected).chain(std::iter::repeat_n(0, 100)) {
            let chosen = self.choose(host, expected)?;
            if UdpSocket::bind(chosen).is_ok() {
                return Ok(chosen);
            }
        }
        bail!("no port of {host} is free for packets and connections")
    }

    /// A loopback address on which all these ports are free.
    pub fn own_address(&mut self, ports: &[u16]) -> anyhow::Result<Ipv4Addr> {
        let all = (0..=255).flat_map(|block| (2..=254).map(move |host| Ipv4Addr::new(127, 0, block, host)));
        for address in all {
            let bound: Result<Vec<_>, _> =
                ports.iter().map(|&port| TcpListener::bind((address, port))).collect();
            if let Ok(listeners) = bound {
                self.held.extend(listeners);
                return Ok(address);
            }
        }
        bail!("no address from 127.0.0.2 to 127.0.255.254 has the ports {ports:?} free")
    }

    /// The port people expect if it is free, any other if not.
    pub fn choose(&mut self, host: Ipv4Addr, expected: u16) -> anyhow::Result<SocketAddr> {
        let bound = TcpListener::bind((host, expected)).or_else(|_| TcpListener::bind((host, 0)));
        let listener = bound.with_context(|| format!("looking for a free port on {host}"))?;
        let address = listener.local_addr()?;
        self.held.push(listener);
        Ok(address)
    }
}

/// True if a GET of this path is answered with 200.
pub fn answers_ok(address: SocketAddr, path: &str) -> bool {
    status(address, path).is_some_and(|status| status == 200)
}

fn status(address: SocketAddr, path: &str) -> Option<u16> {
    let patience = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&address, patience).ok()?;
    stream.set_read_timeout(Some(patience)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.take(64 * 1024).read_to_end(&mut answer).ok()?;
    let head = String::from_utf8_lossy(&answer);
    head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}
