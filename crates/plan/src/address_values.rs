//! Addresses and ports from users, which may be invalid.

use std::net::IpAddr;

use crate::{Code, Finding};

/// A port number, or a finding that says whose it is.
pub(crate) fn port_of(value: u32, whose: &str, findings: &mut Vec<Finding>) -> Option<u16> {
    let port = u16::try_from(value).ok().filter(|port| *port != 0);
    if port.is_none() {
        findings.push(Finding::new(
            Code::InvalidAddress,
            format!("{whose}: port {value} is not in the range 1 to 65535"),
        ));
    }
    port
}

/// An IP address, or a finding that says whose it is.
pub(crate) fn ip_of(value: &str, whose: &str, findings: &mut Vec<Finding>) -> Option<IpAddr> {
    let ip = value.parse().ok();
    if ip.is_none() {
        findings.push(Finding::new(
            Code::InvalidAddress,
            format!("{whose}: address {value:?} is not an IP address"),
        ));
    }
    ip
}
