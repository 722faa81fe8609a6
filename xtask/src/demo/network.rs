//! A network namespace for each service, joined by a bridge in a namespace of its own.
//!
//! The bridge is not in the machine's namespace, because the firewall there may refuse what is forwarded. The machine
//! has one end of a cable to it, and its names are written to a file before they are used: `demo down` removes what the
//! file names, and nothing else.

use std::{
    collections::hash_map::RandomState,
    fs::{self, File},
    hash::BuildHasher as _,
    net::Ipv4Addr,
    path::Path,
    process::Command,
};

use anyhow::{Context, anyhow, ensure};
use nix::{
    sched::{CloneFlags, setns, unshare},
    unistd::geteuid,
};
use serde_json::Value;

use super::AGENT;
use crate::run;

const FILE: &str = "network";
/// Folder of the namespaces that `ip` made.
const NAMESPACES: &str = "/var/run/netns";
/// Files that `ip netns exec` shows in place of those in `/etc`, in a folder for each namespace.
const SHOWN_FILES: &str = "/etc/netns";
const SERVICES: [&str; 2] = ["kv", "web"];
/// Becomes another user who may read what root may, because the files of the demo can be below root's home; `sh` has the
/// right already when it looks for the program there.
const AS_USER: [&str; 6] = [
    "--clear-groups",
    "--inh-caps=-all,+dac_read_search",
    "--ambient-caps=-all,+dac_read_search",
    "sh",
    "-c",
    "exec \"$0\" \"$@\"",
];

/// Says why this machine cannot do it, before anything is changed.
pub fn check() -> anyhow::Result<()> {
    const INSTEAD: &str = "`cargo xtask demo` shows the same mesh without it, and needs no rights";
    ensure!(
        geteuid().is_root(),
        "--transparent makes network namespaces and firewall rules in them, which takes root: run \
         `sudo env \"PATH=$PATH\" cargo xtask demo --transparent`; {INSTEAD}"
    );
    for (program, package) in [("ip", "iproute2"), ("iptables", "iptables"), ("setpriv", "util-linux")] {
        let found = Command::new(program).arg("-V").output().is_ok_and(|said| said.status.success());
        ensure!(
            found,
            "--transparent needs the program {program}: install it (Debian, Ubuntu: `apt-get install {package}`); \
             {INSTEAD}"
        );
    }
    let made = std::thread::spawn(|| unshare(CloneFlags::CLONE_NEWNET)).join();
    made.map_err(|_| anyhow!("the thread of a namespace ended"))?.with_context(|| {
        format!("this machine does not let root make network namespaces, as in a container; {INSTEAD}")
    })
}

/// Network namespaces of a demo.
pub struct Network {
    /// Part of every name, so that two demos do not meet.
    tag: String,
    /// The first three numbers of all addresses.
    prefix: [u8; 3],
}

impl Network {
    /// Makes it; what was made when it fails is in the file.
    pub fn make(home: &Path) -> anyhow::Result<Network> {
        let tag = format!("{:08x}", RandomState::new().hash_one(std::process::id()) >> 32);
        let network = Network { tag, prefix: free_prefix()? };
        let bridge = network.namespace("bridge");
        let cable = network.cable();
        let namespaces = SERVICES.iter().map(|service| network.namespace(service)).chain([bridge.clone()]);
        let lines = namespaces.map(|name| format!("netns {name}\n")).chain([format!("link {cable}\n")]);
        let shown = SERVICES.iter().map(|service| format!("etc {}\n", network.namespace(service)));
        let lines = lines.chain(shown);
        fs::write(home.join(FILE), lines.collect::<String>()).context("writing what is to be removed")?;

        ip(&format!("netns add {bridge}"))?;
        ip(&format!("-n {bridge} link add br0 type bridge"))?;
        ip(&format!("-n {bridge} link set br0 up"))?;
        ip(&format!("link add {cable} type veth peer name machine netns {bridge}"))?;
        ip(&format!("-n {bridge} link set machine master br0 up"))?;
        ip(&format!("addr add {}/24 dev {cable}", network.host()))?;
        ip(&format!("link set {cable} up"))?;
        for service in SERVICES {
            network.join(service, &bridge)?;
        }
        Ok(network)
    }

    /// A namespace for a service, with a cable to the bridge.
    fn join(&self, service: &str, bridge: &str) -> anyhow::Result<()> {
        let namespace = self.namespace(service);
        self.show_files(&namespace)?;
        ip(&format!("netns add {namespace}"))?;
        ip(&format!("-n {namespace} link set lo up"))?;
        ip(&format!("-n {bridge} link add {service} type veth peer name eth0 netns {namespace}"))?;
        ip(&format!("-n {bridge} link set {service} master br0 up"))?;
        ip(&format!("-n {namespace} addr add {}/24 dev eth0", self.address(service)))?;
        ip(&format!("-n {namespace} link set eth0 up"))?;
        ip(&format!("-n {namespace} route add default via {}", self.host()))
    }

    /// Has every program that `ip netns exec` starts in a namespace ask the agent there for names. For those that the mesh
    /// does not have, the machine is asked. It answers none, and says so at once.
    fn show_files(&self, namespace: &str) -> anyhow::Result<()> {
        let folder = Path::new(SHOWN_FILES).join(namespace);
        let making = || format!("making {}", folder.display());
        fs::create_dir_all(&folder).with_context(making)?;
        fs::write(folder.join("resolv.conf"), format!("nameserver {}\n", self.host()))
            .with_context(making)?;
        // A resolver of the machine that is asked by other ways than queries knows nothing of the mesh.
        if Path::new("/etc/nsswitch.conf").exists() {
            let sources = "passwd: files\ngroup: files\nhosts: files dns\n";
            fs::write(folder.join("nsswitch.conf"), sources).with_context(making)?;
        }
        // The firewall wants a user that there is.
        let users = fs::read_to_string("/etc/passwd").context("reading the users of this machine")?;
        let agent = format!("kuma-demo-dp:x:{AGENT}:{AGENT}::/nonexistent:/usr/sbin/nologin");
        let users = format!("{}\n{agent}\n", users.trim_end());
        fs::write(folder.join("passwd"), users).with_context(making)?;
        Ok(())
    }

    pub fn namespace(&self, service: &str) -> String {
        format!("kuma-demo-{}-{service}", self.tag)
    }

    /// The machine's end of the cable; names of links have at most 15 bytes.
    fn cable(&self) -> String {
        format!("kd-{}", self.tag)
    }

    /// The address of the machine.
    pub fn host(&self) -> Ipv4Addr {
        self.at(1)
    }

    pub fn address(&self, service: &str) -> Ipv4Addr {
        let place = SERVICES.iter().position(|known| *known == service).unwrap_or_default();
        self.at(u8::try_from(place).unwrap_or_default() + 2)
    }

    fn at(&self, last: u8) -> Ipv4Addr {
        let [first, second, third] = self.prefix;
        Ipv4Addr::new(first, second, third, last)
    }

    /// The same program, inside.
    pub fn inside(&self, service: &str, program: &Command) -> Command {
        started_by(&["ip", "netns", "exec", &self.namespace(service)], program)
    }

    /// The same program, inside, as another user.
    pub fn inside_as(&self, user: &str, service: &str, program: &Command) -> Command {
        let namespace = self.namespace(service);
        let enter = ["ip", "netns", "exec", &namespace, "setpriv", "--reuid", user, "--regid", user];
        started_by(&[&enter[..], &AS_USER].concat(), program)
    }

    /// Runs a function inside; `None` when the namespace is gone.
    pub fn enter<T: Send>(&self, service: &str, look: impl FnOnce() -> T + Send) -> Option<T> {
        let namespace = File::open(Path::new(NAMESPACES).join(self.namespace(service))).ok()?;
        std::thread::scope(|scope| {
            let entered = scope.spawn(|| setns(&namespace, CloneFlags::CLONE_NEWNET).ok().map(|()| look()));
            entered.join().ok().flatten()
        })
    }
}

/// The same program, started by others.
fn started_by(words: &[&str], program: &Command) -> Command {
    let mut words = words.iter();
    let mut command = Command::new(words.next().copied().unwrap_or_default());
    command.args(words).arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

pub fn is_recorded(home: &Path) -> bool {
    home.join(FILE).exists()
}

/// Removes what the file names, once nothing runs in it.
pub fn remove_recorded(home: &Path) -> anyhow::Result<()> {
    let path = home.join(FILE);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        read => read.with_context(|| format!("reading {}", path.display()))?,
    };
    for (kind, name) in text.lines().filter_map(|line| line.split_once(' ')) {
        // Some may never have been made, and a reboot ends them all.
        match kind {
            "netns" if Path::new(NAMESPACES).join(name).exists() => ip(&format!("netns del {name}"))?,
            "link" if Path::new("/sys/class/net").join(name).exists() => remove_link(name)?,
            "etc" => remove_shown_files(name)?,
            _ => {}
        }
    }
    fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))
}

fn remove_shown_files(namespace: &str) -> anyhow::Result<()> {
    let folder = Path::new(SHOWN_FILES).join(namespace);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    // Others may have theirs in it.
    let _ = fs::remove_dir(SHOWN_FILES);
    Ok(())
}

/// It goes by itself with the namespace of its other end, at a moment of the kernel's choice.
fn remove_link(name: &str) -> anyhow::Result<()> {
    let removed = ip(&format!("link del {name}"));
    if Path::new("/sys/class/net").join(name).exists() { removed } else { Ok(()) }
}

fn ip(words: &str) -> anyhow::Result<()> {
    run::output(Command::new("ip").args(words.split_whitespace())).map(drop)
}

/// Addresses that this machine has no way to yet.
fn free_prefix() -> anyhow::Result<[u8; 3]> {
    let routes = run::output(Command::new("ip").args(["-j", "-4", "route", "show"]))?;
    let routes: Value = serde_json::from_str(&routes).context("reading the machine's routes")?;
    let known: Vec<&str> =
        routes.as_array().into_iter().flatten().filter_map(|route| route["dst"].as_str()).collect();
    let candidates = (77..=255).map(|second| [10, second, 0]).chain((0..=255).map(|third| [192, 168, third]));
    candidates
        .into_iter()
        .find(|prefix| !known.iter().any(|route| overlaps(*prefix, route)))
        .context("the machine has routes to 10.77.0.0/24 and all that the demo would take in its place")
}

/// True if a route, such as `10.0.0.0/8`, `10.1.2.3` or `default`, leads to some of 256 addresses.
fn overlaps([first, second, third]: [u8; 3], route: &str) -> bool {
    let (address, length) = route.split_once('/').unwrap_or((route, "32"));
    let (Ok(address), Ok(length)) = (address.parse::<Ipv4Addr>(), length.parse::<u32>()) else {
        return false;
    };
    let common = length.clamp(1, 24);
    let difference = u32::from(address) ^ u32::from(Ipv4Addr::new(first, second, third, 0));
    difference >> (32 - common) == 0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn addresses_are_taken_that_no_route_leads_to() {
        for (route, expected) in [
            ("default", false),
            ("10.0.0.0/8", true),
            ("10.77.0.0/16", true),
            ("10.77.0.128/25", true),
            ("10.77.0.9", true),
            ("10.77.1.0/24", false),
            ("172.17.0.0/16", false),
        ] {
            assert_eq!(overlaps([10, 77, 0], route), expected, "{route}");
        }
    }

    #[test]
    fn what_was_never_made_is_no_reason_to_fail() {
        let home = tempfile::tempdir().unwrap();
        remove_recorded(home.path()).unwrap();
        fs::write(
            home.path().join(FILE),
            "netns kuma-demo-none-web\nlink kd-none\netc kuma-demo-none-web\nnonsense\n",
        )
        .unwrap();
        assert!(is_recorded(home.path()));
        remove_recorded(home.path()).unwrap();
        assert!(!is_recorded(home.path()));
    }
}
