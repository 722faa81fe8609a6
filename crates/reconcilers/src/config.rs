//! The settings of services and hostnames that the control plane makes.

mod dns_server;
mod ipam;

use resources::duration::GoDuration;
use settings::section;

pub use self::{dns_server::DnsServer, ipam::Ipam};

section! {
    /// Services and hostnames, and their addresses.
    pub struct Config {
        section mesh_service: MeshServices, "meshService";
        section ipam: Ipam, "ipam";
        section dns_server: DnsServer, "dnsServer";
    }
}

section! {
    /// MeshServices made from Dataplanes.
    pub struct MeshServices {
        /// Time for which a service without any Dataplane is kept.
        deletion_grace_period: GoDuration = GoDuration::from_secs(3600), "deletionGracePeriod",
            "KUMA_MESH_SERVICE_DELETION_GRACE_PERIOD";
    }
}

impl Config {
    /// Names settings that cannot work.
    pub fn check(&self, refuse: &mut impl FnMut(bool, &str)) {
        self.ipam.check(refuse);
        self.dns_server.check(&self.ipam, refuse);
    }
}
