//! Ports that stay free until the program they are for listens there.

use std::{
    net::{Ipv4Addr, Ipv6Addr, TcpListener},
    sync::atomic::{AtomicU16, Ordering},
};

/// Between the ports that tests write down (8080, 10001 and the like below; 15001, 15006, 18080 above): a program
/// that listens on all addresses there would keep a proxy from listening on its own. Test databases are above
/// these, and so are the ports that the system gives to outgoing connections, of which tests make many.
const FIRST: u16 = 10_100;
const COUNT: u16 = 4_800;

/// A port that no other part of this test run has, and no other program at the moment.
pub fn own_port() -> anyhow::Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Another run has another process id, and most likely another place to begin.
    let start = std::process::id().wrapping_mul(97) % u32::from(COUNT);
    for _ in 0..COUNT {
        let next = start + u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = FIRST + u16::try_from(next % u32::from(COUNT))?;
        if is_free(port) {
            return Ok(port);
        }
    }
    anyhow::bail!("every port from {FIRST} on is taken")
}

/// For IPv4, and for IPv6 where there is such a thing.
fn is_free(port: u16) -> bool {
    let has_ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
        && (!has_ipv6 || TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).is_ok())
}
