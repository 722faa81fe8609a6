//! The settings of hostnames that VirtualOutbounds make.

use topology::{
    cidr::Ipv4Range,
    virtual_hosts::vips::{Pool, TooSmall},
};

use super::{Ipam, section::section};

section! {
    /// Hostnames that VirtualOutbounds create.
    pub struct DnsServer {
        /// The range that their virtual addresses are taken from, without the ranges of services that are in it. At
        /// least 65536 addresses must be left. A hostname with an address outside of it gets a new one.
        cidr: Ipv4Range = Ipv4Range::class_a(240), "CIDR", "KUMA_DNS_SERVER_CIDR";
    }
}

impl DnsServer {
    /// The addresses that hostnames may have: none that a service may have.
    pub fn pool(&self, services: &Ipam) -> Result<Pool, TooSmall> {
        Pool::new(self.cidr, &services.ranges().map(|(_, range)| range))
    }

    pub(super) fn check(&self, services: &Ipam, refuse: &mut impl FnMut(bool, &str)) {
        if let Err(problem) = self.pool(services) {
            refuse(true, &format!("dnsServer.CIDR: {problem}"));
        }
    }
}
