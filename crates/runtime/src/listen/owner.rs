//! Lookup of the user that owns the other end of a connection that does not leave this machine.
//!
//! The kernel knows which user created a socket, and returns it for the four numbers of the connection
//! (`sock_diag`), at a cost that does not depend on how many sockets there are.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
};

/// The user behind a loopback connection, found out when it is asked for and once per connection.
#[derive(Debug, Clone)]
pub struct Owner(Arc<Ends>);

#[derive(Debug)]
struct Ends {
    client: SocketAddr,
    server: SocketAddr,
    found: OnceLock<Option<u32>>,
}

impl Owner {
    /// The owner of the client's socket; `None` when the client is on another machine.
    pub(super) fn of(client: SocketAddr, server: SocketAddr) -> Option<Owner> {
        let found = OnceLock::new();
        client.ip().to_canonical().is_loopback().then(|| Owner(Arc::new(Ends { client, server, found })))
    }

    /// A user who is known already, for requests that did not come through a listener.
    pub fn known(uid: u32) -> Owner {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let found = OnceLock::from(Some(uid));
        Owner(Arc::new(Ends { client: nowhere, server: nowhere, found }))
    }

    /// The user id. `None` when the kernel does not tell, or when no process has the socket any more: what
    /// a client sent before it was gone has no owner.
    pub async fn uid(&self) -> Option<u32> {
        if let Some(found) = self.0.found.get() {
            return *found;
        }
        let ends = self.0.clone();
        let asked = tokio::task::spawn_blocking(move || kernel::owner(ends.client, ends.server)).await;
        let found = match asked {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                tracing::info!(%error, "cannot ask the kernel which user owns a local connection (AF_NETLINK)");
                None
            }
            Err(_) => None,
        };
        *self.0.found.get_or_init(|| found)
    }
}

#[cfg(target_os = "linux")]
mod kernel {
    use std::{
        io::{self, Read, Write},
        net::{IpAddr, SocketAddr},
        time::Duration,
    };

    use socket2::{Domain, Protocol, Socket, Type};

    const NETLINK: i32 = 16;
    const SOCK_DIAG: i32 = 4;
    /// `SOCK_DIAG_BY_FAMILY`, as request and as answer.
    const BY_FAMILY: u16 = 20;
    const NLM_F_REQUEST: u16 = 1;
    const TCP: u8 = 6;
    const INET: u8 = 2;
    const INET6: u8 = 10;
    const LISTEN: u8 = 10;
    /// `struct nlmsghdr`
    const HEADER: usize = 16;
    /// Offsets of the ports, the user and the inode in `struct inet_diag_msg`.
    const PORTS: usize = HEADER + 4;
    const UID: usize = HEADER + 64;
    const INODE: usize = HEADER + 68;
    /// The kernel answers before the request returns.
    const PATIENCE: Duration = Duration::from_secs(1);

    pub fn owner(client: SocketAddr, server: SocketAddr) -> io::Result<Option<u32>> {
        let mut socket = Socket::new(Domain::from(NETLINK), Type::DGRAM, Some(Protocol::from(SOCK_DIAG)))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let request = request(client, server);
        socket.write_all(&request)?;
        let mut answer = [0; 4096];
        let length = socket.read(&mut answer)?;
        Ok(read(&request, &answer[..length]))
    }

    /// Asks for the one socket whose own end is the client's.
    fn request(client: SocketAddr, server: SocketAddr) -> Vec<u8> {
        let [source, destination] = [client, server].map(|end| match end.ip().to_canonical() {
            IpAddr::V4(ip) => (INET, [&ip.octets()[..], &[0; 12]].concat()),
            IpAddr::V6(ip) => (INET6, ip.octets().to_vec()),
        });
        let mut body = vec![source.0, TCP, 0, 0];
        // In whatever state it is.
        body.extend(u32::MAX.to_ne_bytes());
        body.extend(client.port().to_be_bytes());
        body.extend(server.port().to_be_bytes());
        body.extend(source.1);
        body.extend(destination.1);
        // On any interface; without a cookie.
        body.extend([0; 4]);
        body.extend([0xff; 8]);
        let mut request = u32::try_from(HEADER + body.len()).unwrap_or_default().to_ne_bytes().to_vec();
        request.extend(BY_FAMILY.to_ne_bytes());
        request.extend(NLM_F_REQUEST.to_ne_bytes());
        // A number for the answer, and no address: the kernel knows the receiver.
        request.extend([0; 8]);
        request.extend(body);
        request
    }

    fn read(request: &[u8], answer: &[u8]) -> Option<u32> {
        let number = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
        // When there is no such connection the kernel may name a listener on the port instead.
        let asked_ports = request.get(HEADER + 8..HEADER + 12)?;
        let is_it = kind == BY_FAMILY
            && *answer.get(HEADER + 1)? != LISTEN
            && answer.get(PORTS..PORTS + 4)? == asked_ports;
        // A socket that its process has closed has no inode, and is reported as root's.
        (is_it && number(INODE)? != 0).then(|| number(UID)).flatten()
    }
}

#[cfg(not(target_os = "linux"))]
mod kernel {
    use std::{io, net::SocketAddr};

    pub fn owner(_client: SocketAddr, _server: SocketAddr) -> io::Result<Option<u32>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(all(test, target_os = "linux"))]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::{
        io::Write,
        net::{TcpListener, TcpStream},
        os::unix::fs::MetadataExt,
    };

    use super::*;

    fn own_user() -> u32 {
        std::fs::metadata("/proc/self").unwrap().uid()
    }

    fn connected(listener: &TcpListener, to: SocketAddr) -> (TcpStream, Owner) {
        let client = TcpStream::connect(to).unwrap();
        let (server, addr) = listener.accept().unwrap();
        let owner = Owner::of(addr, server.local_addr().unwrap()).unwrap();
        (client, owner)
    }

    #[tokio::test]
    async fn the_kernel_tells_whose_a_loopback_connection_is_in_either_family() {
        for (bind, to) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("[::1]:0", "::1"),
            ("[::]:0", "127.0.0.1"),
            ("0.0.0.0:0", "127.0.0.9"),
        ] {
            let listener = TcpListener::bind(bind).unwrap();
            let port = listener.local_addr().unwrap().port();
            let (_client, owner) =
                connected(&listener, (to.parse::<std::net::IpAddr>().unwrap(), port).into());
            assert_eq!(owner.uid().await, Some(own_user()), "{bind}");
        }
    }

    #[tokio::test]
    async fn a_connection_that_its_process_has_closed_is_nobodys() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut client, owner) = connected(&listener, listener.local_addr().unwrap());
        client.write_all(b"PUT /meshes/mine").unwrap();
        drop(client);
        assert_eq!(owner.uid().await, None);
    }

    #[tokio::test]
    async fn a_listener_on_the_port_of_an_ended_connection_is_not_its_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listening = listener.local_addr().unwrap();
        let owner = Owner::of(listening, (listening.ip(), 1).into()).unwrap();
        assert_eq!(owner.uid().await, None);
    }

    #[test]
    fn clients_on_other_machines_have_no_owner_here() {
        let [far, near] = ["192.0.2.1:1", "192.0.2.2:1"].map(|addr| addr.parse().unwrap());
        assert!(Owner::of(far, near).is_none());
    }
}
