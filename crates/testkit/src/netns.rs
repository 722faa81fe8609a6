//! Network namespaces for tests: one for each workload, joined by a bridge in a namespace of its own.
//!
//! Nothing of it is visible in the network of the machine, and nothing is left behind: a namespace lives
//! as long as a process, a socket or a [`Namespace`] refers to it, and its interfaces go with it.
//!
//! A namespace belongs to threads. [`Namespace::enter`] runs a function in a thread that is inside: sockets
//! that it opens and programs that it starts stay there, whichever thread uses them.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, Ipv6Addr},
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output},
    thread,
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, setns, unshare},
    unistd::geteuid,
};

/// Returns the reason why this machine has no namespaces for tests, if it has none.
///
/// A test that gets a reason says it and ends; where CI is set it fails instead.
pub fn unavailable() -> Option<String> {
    let reason = if geteuid().is_root() {
        Namespace::new().err().map(|error| format!("{error:#}"))
    } else {
        Some("it takes root".to_owned())
    };
    reason.map(|reason| format!("network namespaces cannot be made here: {reason}"))
}

/// A test that needs namespaces can go on. If not, says why not; where CI is set, that is a failure.
pub fn available() -> Result<bool> {
    match unavailable() {
        None => Ok(true),
        Some(reason) if std::env::var_os("CI").is_some() => bail!(reason),
        Some(reason) => {
            crate::skip::say(&format!("{reason}; run it as root"));
            Ok(false)
        }
    }
}

/// One network namespace.
#[derive(Debug)]
pub struct Namespace {
    handle: File,
    /// File that programs inside find as `/etc/resolv.conf`.
    resolv_conf: Option<PathBuf>,
}

impl Namespace {
    /// A namespace with nothing but a loopback interface, which is up.
    pub fn new() -> Result<Namespace> {
        let made = thread::spawn(|| -> Result<File> {
            unshare(CloneFlags::CLONE_NEWNET).context("unshare")?;
            File::open("/proc/thread-self/ns/net").context("open the namespace")
        });
        let handle = made.join().map_err(|_| anyhow!("the thread of a namespace ended"))??;
        let namespace = Namespace { handle, resolv_conf: None };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// Programs inside ask the servers of this file for names.
    #[must_use]
    pub fn with_resolv_conf(mut self, path: &Path) -> Namespace {
        self.resolv_conf = Some(path.to_owned());
        self
    }

    /// Runs a function inside.
    pub fn enter<T: Send>(&self, inside: impl FnOnce() -> T + Send) -> Result<T> {
        thread::scope(|scope| {
            let entered = scope.spawn(|| {
                setns(&self.handle, CloneFlags::CLONE_NEWNET).context("enter a network namespace")?;
                if let Some(path) = &self.resolv_conf {
                    replace_resolv_conf(path)?;
                }
                Ok(inside())
            });
            entered.join().map_err(|_| anyhow!("what ran in a network namespace panicked"))?
        })
    }

    /// Starts a program inside and waits for its end.
    pub fn output(&self, command: &mut Command) -> Result<Output> {
        let program = format!("{command:?}");
        self.enter(|| command.output())?.with_context(|| format!("start {program}"))
    }

    /// Starts a program inside.
    pub fn spawn(&self, command: &mut Command) -> Result<Child> {
        let program = format!("{command:?}");
        self.enter(|| command.spawn())?.with_context(|| format!("start {program}"))
    }

    /// Runs `ip` with these words.
    pub fn ip(&self, words: &str) -> Result<()> {
        let output = self.output(Command::new("ip").args(words.split_whitespace()))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ip {words}: {}", stderr.trim());
        Ok(())
    }

    /// A path by which programs outside find the namespace.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.handle.as_raw_fd())
    }
}

/// In a view of the files that belongs to this thread and what it starts.
fn replace_resolv_conf(path: &Path) -> Result<()> {
    let nothing = None::<&str>;
    unshare(CloneFlags::CLONE_NEWNS).context("a view of the files of its own")?;
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing)
        .context("make it private")?;
    // It may be a link, and a link cannot be covered.
    let target = fs::canonicalize("/etc/resolv.conf").unwrap_or_else(|_| "/etc/resolv.conf".into());
    mount(Some(path), &target, nothing, MsFlags::MS_BIND, nothing)
        .with_context(|| format!("put {} in the place of {}", path.display(), target.display()))
}

/// The numbers of a network: `10.<v4>.0.0/24` and `<v6>::/64`.
#[derive(Debug, Clone, Copy)]
struct Subnet {
    v4: u8,
    v6: u16,
}

const MACHINES: Subnet = Subnet { v4: 77, v6: 0xfd77 };
const GUESTS: Subnet = Subnet { v4: 88, v6: 0xfd88 };

impl Subnet {
    fn addresses(self, host: u8) -> (Ipv4Addr, Ipv6Addr) {
        let v6 = Ipv6Addr::new(self.v6, 0, 0, 0, 0, 0, 0, u16::from(host));
        (Ipv4Addr::new(10, self.v4, 0, host), v6)
    }
}

/// A bridge, with an address of its own, that workloads are joined by.
#[derive(Debug)]
pub struct Network {
    hub: Namespace,
    bridge: String,
    subnet: Subnet,
    workloads: u8,
}

/// A namespace with addresses that all others of its network reach.
#[derive(Debug)]
pub struct Workload {
    pub namespace: Namespace,
    pub v4: Ipv4Addr,
    pub v6: Ipv6Addr,
}

impl Network {
    pub fn new() -> Result<Network> {
        Network::with(Namespace::new()?, "br0", MACHINES)
    }

    /// A network behind a machine, as its containers have one: all they send elsewhere arrives at this bridge, and
    /// the machine does not forward it.
    pub fn behind(machine: &Namespace, bridge: &str) -> Result<Network> {
        let handle = machine.handle.try_clone().context("keep a namespace")?;
        Network::with(Namespace { handle, resolv_conf: None }, bridge, GUESTS)
    }

    fn with(hub: Namespace, bridge: &str, subnet: Subnet) -> Result<Network> {
        hub.ip(&format!("link add {bridge} type bridge"))?;
        hub.ip(&format!("link set {bridge} up"))?;
        let network = Network { hub, bridge: bridge.to_owned(), subnet, workloads: 0 };
        let (v4, v6) = network.gateway();
        network.hub.ip(&format!("addr add {v4}/24 dev {bridge}"))?;
        network.hub.ip(&format!("addr add {v6}/64 dev {bridge} nodad"))?;
        Ok(network)
    }

    /// The namespace of the bridge: a place for what is no workload.
    pub fn hub(&self) -> &Namespace {
        &self.hub
    }

    /// The addresses of the hub.
    pub fn gateway(&self) -> (Ipv4Addr, Ipv6Addr) {
        self.subnet.addresses(1)
    }

    /// All addresses of the network, of both families.
    pub fn ranges(&self) -> (String, String) {
        let (v4, v6) = self.subnet.addresses(0);
        (format!("{v4}/24"), format!("{v6}/64"))
    }

    /// One more workload.
    pub fn workload(&mut self) -> Result<Workload> {
        self.workloads += 1;
        let bridge = &self.bridge;
        let port = format!("{bridge}p{}", self.workloads);
        let namespace = Namespace::new()?;
        self.hub.ip(&format!("link add {port} type veth peer name peer0"))?;
        self.hub.ip(&format!("link set peer0 netns {}", namespace.path()))?;
        self.hub.ip(&format!("link set {port} master {bridge} up"))?;
        let (v4, v6) = self.subnet.addresses(self.workloads + 1);
        let (gateway4, gateway6) = self.gateway();
        namespace.ip("link set peer0 name eth0")?;
        namespace.ip(&format!("addr add {v4}/24 dev eth0"))?;
        namespace.ip(&format!("addr add {v6}/64 dev eth0 nodad"))?;
        namespace.ip("link set eth0 up")?;
        namespace.ip(&format!("route add default via {gateway4}"))?;
        namespace.ip(&format!("-6 route add default via {gateway6}"))?;
        Ok(Workload { namespace, v4, v6 })
    }
}
