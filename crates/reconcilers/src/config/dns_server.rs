//! The settings of hostnames that VirtualOutbounds make, and meshes whose services are called by tags.

use resources::naming::{dns, service_hosts::ServiceHosts};
use settings::section;
use topology::{
    cidr::Ipv4Range,
    virtual_hosts::vips::{Pool, TooSmall},
};

use super::Ipam;

section! {
    /// Hostnames that VirtualOutbounds create, and those of services that are called by `kuma.io/service`.
    pub struct DnsServer {
        /// The range that their virtual addresses are taken from, without the ranges of services that are in it. At
        /// least 65536 addresses must be left. A hostname with an address outside of it gets a new one.
        cidr: Ipv4Range = Ipv4Range::class_a(240), "CIDR", "KUMA_DNS_SERVER_CIDR";
        /// Ending of `<service>.mesh`, the hostname of a service in meshes whose `meshServices.mode` is not `Exclusive`.
        domain: String = "mesh".to_owned(), "domain", "KUMA_DNS_SERVER_DOMAIN";
        /// Services have such hostnames. Without them they are called by what VirtualOutbounds create.
        service_vip_enabled: bool = true, "serviceVipEnabled", "KUMA_DNS_SERVER_SERVICE_VIP_ENABLED";
        /// The port at which services are called by such hostnames.
        service_vip_port: u16 = 80, "serviceVipPort", "KUMA_DNS_SERVER_SERVICE_VIP_PORT";
    }
}

impl DnsServer {
    /// The addresses that hostnames may have: none that a service may have.
    pub fn pool(&self, services: &Ipam) -> Result<Pool, TooSmall> {
        Pool::new(self.cidr, &services.ranges().map(|(_, range)| range))
    }

    /// The hostnames of services that are called by tags; `None` where they are switched off.
    pub fn service_hosts(&self) -> Option<ServiceHosts> {
        let domain = self.domain.as_str().into();
        let port = self.service_vip_port;
        self.service_vip_enabled.then_some(ServiceHosts { domain, port })
    }

    pub(super) fn check(&self, services: &Ipam, refuse: &mut impl FnMut(bool, &str)) {
        if let Err(problem) = self.pool(services) {
            refuse(true, &format!("dnsServer.CIDR: {problem}"));
        }
        let domain = dns::rfc1123_subdomain_errors(&self.domain);
        refuse(
            !domain.is_empty(),
            &format!("dnsServer.domain: {:?} is no domain: {}", self.domain, domain.join(", ")),
        );
        refuse(self.service_vip_port == 0, "dnsServer.serviceVipPort: must be in the range [1, 65535]");
    }
}
