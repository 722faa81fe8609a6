//! A machine whose traffic is redirected, another one beside it, and servers that say who was reached.
//!
//! Everything in this process is root, which stands for the user of kuma-dp; applications are programs of
//! another user.

use std::{
    collections::BTreeSet,
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::unix::process::CommandExt as _,
    process::Command,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use socket2::{Domain, Socket, Type};
use testkit::netns::{Namespace, Network, Workload};
use transparent_proxy::{Config, Failure, Installation, Layers, uninstall};

/// The user of an application.
pub const APPLICATION: u32 = 61_234;
/// The user that the rules take for kuma-dp.
pub const KUMA_DP: u32 = 0;
/// Ports with a server on every machine.
pub const PORTS: [u16; 2] = [8080, 9090];

pub struct World {
    pub network: Network,
    /// The machine with the rules.
    pub here: Workload,
    pub there: Workload,
}

impl World {
    /// Nothing where this machine has no namespaces.
    pub fn new() -> Option<World> {
        if !testkit::netns::available().unwrap() {
            return None;
        }
        let mut network = Network::new().unwrap();
        let here = network.workload().unwrap();
        let there = network.workload().unwrap();
        for workload in [&here, &there] {
            for port in PORTS {
                serve(&workload.namespace, port, move |_| "direct".into());
            }
        }
        for port in [15001, 15006] {
            serve(&here.namespace, port, move |stream| format!("{port} {}", original(stream)));
        }
        for (ip, namespace, who) in [
            (IpAddr::V4(Ipv4Addr::LOCALHOST), &here.namespace, "kuma-dp"),
            (IpAddr::V6(Ipv6Addr::LOCALHOST), &here.namespace, "kuma-dp"),
        ] {
            answer(namespace, SocketAddr::new(ip, 15053), who);
        }
        for (ip, who) in [(IpAddr::V4(there.v4), "there"), (IpAddr::V6(there.v6), "there")] {
            answer(&there.namespace, SocketAddr::new(ip, 53), who);
        }
        let (v4, v6) = network.gateway();
        for ip in [IpAddr::V4(v4), IpAddr::V6(v6)] {
            answer(network.hub(), SocketAddr::new(ip, 53), "hub");
        }
        Some(World { network, here, there })
    }

    /// Installs the rules that the settings ask for.
    pub fn install(&self, settings: &str) -> Result<Vec<String>, Failure> {
        let config = config(settings);
        self.here
            .namespace
            .enter(|| {
                let installation = Installation::prepare(&config)?;
                installation.install(&|_| {})?;
                Ok(installation.warnings)
            })
            .unwrap()
    }

    pub fn uninstall(&self, settings: &str) -> Result<bool, Failure> {
        let config = config(settings);
        self.here.namespace.enter(|| uninstall(&config, &|_| {})).unwrap()
    }

    /// The output of a program that root runs here, which must succeed.
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.here.namespace.output(Command::new(program).args(arguments)).unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// All rules of both families without what counts and dates.
    pub fn saved(&self, mode: &str) -> String {
        let mut text = String::new();
        for family in ["iptables", "ip6tables"] {
            let saved = self.run(&format!("{family}-{mode}-save"), &[]);
            for line in saved.lines().filter(|line| !line.starts_with('#')) {
                // `:CHAIN POLICY [packets:bytes]`
                let line = if line.starts_with(':') { line.split(" [").next().unwrap() } else { line };
                text.push_str(&format!("{family} {line}\n"));
            }
        }
        text
    }

    /// Calls as an application here, and returns the answer of the server that it reaches.
    pub fn call(&self, ip: impl Into<IpAddr>, port: u16) -> String {
        call(&self.here.namespace, APPLICATION, ip.into(), port)
    }

    /// The same as the user of kuma-dp.
    pub fn call_as_kuma_dp(&self, ip: impl Into<IpAddr>, port: u16) -> String {
        call(&self.here.namespace, KUMA_DP, ip.into(), port)
    }

    /// Calls as an application on the other machine, and returns the answer of the server that it reaches.
    pub fn call_from_there(&self, ip: impl Into<IpAddr>, port: u16) -> String {
        call(&self.there.namespace, APPLICATION, ip.into(), port)
    }

    /// Sends a query as a user here, and returns the answer.
    pub fn ask(&self, user: u32, ip: impl Into<IpAddr>) -> String {
        ask(&self.here.namespace, user, ip.into())
    }
}

/// Sends a query as a user in a namespace, and returns the answer.
pub fn ask(namespace: &Namespace, user: u32, ip: IpAddr) -> String {
    let script = format!(
        "exec 3<>/dev/udp/{ip}/53 && printf query >&3 && timeout 5 dd bs=512 count=1 status=none <&3"
    );
    bash(namespace, user, &script)
}

/// Calls one after the other until stopped: what was said to them, and how many there were.
pub fn call_until(
    namespace: &Namespace,
    target: SocketAddr,
    stop: &AtomicBool,
    calls: &AtomicUsize,
) -> BTreeSet<String> {
    let one = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&target, Duration::from_secs(20))?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text.trim().to_owned())
    };
    let all = || {
        let mut said = BTreeSet::new();
        while !stop.load(Ordering::Relaxed) {
            said.insert(one().unwrap_or_else(|error| error.to_string()));
            calls.fetch_add(1, Ordering::Relaxed);
            // The kernel remembers each of them for minutes; tens of thousands would be too many.
            thread::sleep(Duration::from_millis(1));
        }
        said
    };
    namespace.enter(all).unwrap()
}

pub fn config(settings: &str) -> Config {
    let mut layers = Layers::default();
    layers.text("settings", "kumaDPUser: root\nretry: {maxRetries: 0}").unwrap();
    layers.text("settings", settings).unwrap();
    layers.config().unwrap()
}

/// A connection from an address of this machine, as Envoy makes them; what the server says.
pub fn call_from(namespace: &Namespace, source: IpAddr, target: SocketAddr) -> String {
    namespace
        .enter(|| {
            let socket = Socket::new(Domain::for_address(target), Type::STREAM, None).unwrap();
            socket.bind(&SocketAddr::new(source, 0).into()).unwrap();
            socket.connect_timeout(&target.into(), Duration::from_secs(10)).unwrap();
            let mut text = String::new();
            TcpStream::from(socket).read_to_string(&mut text).unwrap();
            text.trim().to_owned()
        })
        .unwrap()
}

pub fn call(namespace: &Namespace, user: u32, ip: IpAddr, port: u16) -> String {
    bash(namespace, user, &format!("exec 3<>/dev/tcp/{ip}/{port} && cat <&3"))
}

fn bash(namespace: &Namespace, user: u32, script: &str) -> String {
    let mut command = Command::new("timeout");
    command.args(["20", "bash", "-c", script]).uid(user).gid(user).current_dir("/");
    let output = namespace.output(&mut command).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() { text } else { format!("{output:?}") }
}

/// Takes connections of both families on a port, and says something to each.
fn serve(namespace: &Namespace, port: u16, what: impl Fn(&TcpStream) -> String + Send + Clone + 'static) {
    for ip in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
        let listener: TcpListener = namespace
            .enter(|| {
                let socket =
                    Socket::new(if ip.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 }, Type::STREAM, None)
                        .unwrap();
                if ip.is_ipv6() {
                    socket.set_only_v6(true).unwrap();
                }
                socket.bind(&SocketAddr::new(ip, port).into()).unwrap();
                socket.listen(16).unwrap();
                socket.into()
            })
            .unwrap();
        let what = what.clone();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let text = what(&stream);
                // A client that has left hears nothing.
                let _ = writeln!(stream, "{text}");
            }
        });
    }
}

/// Original destination of a redirected connection.
fn original(stream: &TcpStream) -> SocketAddr {
    let socket = socket2::SockRef::from(stream);
    let original = match stream.local_addr().unwrap() {
        SocketAddr::V4(_) => socket.original_dst_v4(),
        SocketAddr::V6(_) => socket.original_dst_v6(),
    };
    original.unwrap().as_socket().unwrap()
}

/// Answers every datagram with a name.
pub fn answer(namespace: &Namespace, address: SocketAddr, who: &'static str) {
    let socket = namespace.enter(|| UdpSocket::bind(address).unwrap()).unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((_, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(format!("{who}\n").as_bytes(), from);
        }
    });
}
