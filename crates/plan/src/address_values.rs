//! Addresses and ports from users, which may be invalid.

use std::net::IpAddr;

use crate::{Code, Problem};

/// A port number, or a problem that says whose it is.
pub(crate) fn port_of(value: u32, whose: &str, problems: &mut Vec<Problem>) -> Option<u16> {
    let port = u16::try_from(value).ok().filter(|port| *port != 0);
    if port.is_none() {
        problems.push(Problem::new(
            Code::InvalidAddress,
            format!("{whose}: port {value} is not in the range 1 to 65535"),
        ));
    }
    port
}

/// An IP address, or a problem that says whose it is.
pub(crate) fn ip_of(value: &str, whose: &str, problems: &mut Vec<Problem>) -> Option<IpAddr> {
    let ip = value.parse().ok();
    if ip.is_none() {
        problems.push(Problem::new(
            Code::InvalidAddress,
            format!("{whose}: address {value:?} is not an IP address"),
        ));
    }
    ip
}
