//! Ports that stay free until the program they are for listens there.
//!
//! Test programs run side by side, and a program under test is stopped and started again on its port. So each test
//! program leases blocks of ports; a port is handed out by the program that leases its block, and by no other.

use std::{
    net::{Ipv4Addr, Ipv6Addr, TcpListener},
    sync::{Mutex, PoisonError},
};

use anyhow::Context;

/// Above the ports that tests write down (8080, 10001, 15006, 25053 and the like): a program that listens on all
/// addresses there would keep a proxy from listening on its own. Below those that the system gives to outgoing
/// connections, of which tests make many.
const FIRST: u16 = 26_000;
const BLOCKS: u16 = 60;
const BLOCK: u16 = 100;

/// Above the loopback networks that tests write down.
const FIRST_NETWORK: u8 = 130;

static LEASES: Mutex<Leases> = Mutex::new(Leases { blocks: Vec::new(), next: 0 });

/// The blocks of this test program, and how many ports of them it has handed out.
struct Leases {
    blocks: Vec<Lease>,
    next: usize,
}

/// A block of ports, leased for as long as its first port is listened at. It ends with the process, however that ends.
struct Lease {
    block: u16,
    _guard: TcpListener,
}

/// A port that no other part of this test run has, and no other program at the moment.
pub fn own_port() -> anyhow::Result<u16> {
    let mut leases = LEASES.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..BLOCKS * BLOCK {
        let port = leases.next_port()?;
        if is_free(port) {
            return Ok(port);
        }
    }
    anyhow::bail!("every port that tests may use, from {FIRST} on, is taken")
}

/// The loopback network that no other test program has while this one runs: 127.n.0.0/16, of which this returns n.
pub fn own_network() -> u8 {
    let mut leases = LEASES.lock().unwrap_or_else(PoisonError::into_inner);
    if leases.blocks.is_empty() {
        leases.lease();
    }
    // A program that finds no block has the number after theirs. It fails when it asks for a port.
    let block = leases.blocks.first().map_or(BLOCKS, |lease| lease.block);
    FIRST_NETWORK + u8::try_from(block).unwrap_or_default()
}

impl Leases {
    /// The next port of the blocks in turn. When all have been handed out, it leases another block; when there is
    /// none, it begins again with the first.
    fn next_port(&mut self) -> anyhow::Result<u16> {
        // The first port of a block is its guard.
        let each = usize::from(BLOCK - 1);
        if self.next == self.blocks.len() * each && !self.lease() {
            self.next = 0;
        }
        let lease = self.blocks.get(self.next / each);
        let lease = lease.context("other programs hold every block of ports that tests may use")?;
        let port = FIRST + lease.block * BLOCK + 1 + u16::try_from(self.next % each)?;
        self.next += 1;
        Ok(port)
    }

    /// Leases one more block. Returns false if other programs hold the rest.
    fn lease(&mut self) -> bool {
        // What a killed test run has left behind is most likely elsewhere.
        let start = u16::try_from(std::process::id() % u32::from(BLOCKS)).unwrap_or_default();
        let lease = (start..BLOCKS).chain(0..start).find_map(|block| {
            let guard = TcpListener::bind((Ipv4Addr::LOCALHOST, FIRST + block * BLOCK)).ok()?;
            Some(Lease { block, _guard: guard })
        });
        let leased = lease.is_some();
        self.blocks.extend(lease);
        leased
    }
}

/// For IPv4, and for IPv6 where there is such a thing.
fn is_free(port: u16) -> bool {
    let has_ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
        && (!has_ipv6 || TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).is_ok())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::{collections::BTreeSet, process::Command};

    use super::*;

    const SIDE_BY_SIDE: &str = "TESTKIT_PRINTS_PORTS";

    /// Does nothing but when the test below runs it as another program.
    #[test]
    fn ports_are_printed_for_the_test_that_asks() {
        if std::env::var_os(SIDE_BY_SIDE).is_some() {
            (0..250).for_each(|_| println!("port={}", own_port().unwrap()));
            println!("network={}", own_network());
        }
    }

    #[test]
    fn programs_that_run_side_by_side_have_no_port_in_common() {
        let own: BTreeSet<String> = (0..250).map(|_| format!("port={}", own_port().unwrap())).collect();
        assert_eq!(own.len(), 250);
        let other = Command::new(std::env::current_exe().unwrap())
            .args(["ports_are_printed_for_the_test_that_asks", "--nocapture"])
            .env(SIDE_BY_SIDE, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&other.stdout).into_owned();
        // The runner of tests prints on the first of these lines, too.
        let others: BTreeSet<String> =
            said.lines().filter_map(|line| Some(line[line.find("port=")?..].to_owned())).collect();
        assert_eq!(others.len(), 250, "{said}");
        assert_eq!(own.intersection(&others).count(), 0);
        assert!(!said.contains(&format!("network={}\n", own_network())), "{said}");
    }
}
