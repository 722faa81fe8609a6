//! Ports that stay free until whoever they are for listens there.

use std::{
    net::{Ipv4Addr, Ipv6Addr, TcpListener},
    sync::atomic::{AtomicU16, Ordering},
};

/// Below these the system gives no port to outgoing connections, of which tests make many.
const FIRST: u16 = 10_000;
const COUNT: u16 = 22_000;

/// A port that no other part of this test run has, and nobody else at the moment.
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
