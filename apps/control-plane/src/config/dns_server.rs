//! The settings of hostnames that VirtualOutbounds make.

use topology::{
    cidr::Ipv4Range,
    virtual_hosts::vips::{Pool, TooSmall},
};

use super::section::section;

/// The ranges of services, whose addresses no hostname of a VirtualOutbound gets.
const OF_SERVICES: [Ipv4Range; 3] =
    [Ipv4Range::class_a(241), Ipv4Range::class_a(242), Ipv4Range::class_a(243)];

section! {
    /// Hostnames that VirtualOutbounds make.
    pub struct DnsServer {
        /// The range that their virtual addresses are taken from, without the ranges of services that are in it. At
        /// least 65536 addresses must be left. A hostname with an address outside of it gets a new one.
        cidr: Ipv4Range = Ipv4Range::class_a(240), "CIDR", "KUMA_DNS_SERVER_CIDR";
    }
}

impl DnsServer {
    /// The addresses that hostnames may have.
    pub fn pool(&self) -> Result<Pool, TooSmall> {
        Pool::new(self.cidr, &OF_SERVICES)
    }

    pub(super) fn check(&self, refuse: &mut impl FnMut(bool, &str)) {
        if let Err(problem) = self.pool() {
            refuse(true, &format!("dnsServer.CIDR: {problem}"));
        }
    }
}
