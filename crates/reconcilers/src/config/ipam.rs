//! The settings of virtual addresses.

use resources::duration::GoDuration;
use settings::section;
use topology::{
    cidr::{Ipv4Range, Ipv6Prefix},
    services::Addresses,
};

/// Fewer would be used up by a handful of services that come and go.
const SMALLEST: u64 = 16;

section! {
    /// Virtual addresses of services.
    pub struct Ipam {
        /// Time for which the address of a service or hostname that is gone is not given to another one: clients may
        /// still have it in their caches.
        quarantine: GoDuration = GoDuration::from_secs(3600), "quarantine", "KUMA_IPAM_QUARANTINE";
        /// A range of unique local addresses with a prefix of 96 bits, such as fd00:240::/96. Each virtual address has
        /// an IPv6 address beside it: the prefix, then the 32 bits of the virtual address. Machines without IPv4 need
        /// one. Agents of kuma-rs on a machine with a route for IPv6 answer AAAA queries with it; without a range, and
        /// for others, answers are IPv4-mapped. No machine that applications call may have an address in the range.
        ipv6_cidr: Option<Ipv6Prefix> = None, "ipv6CIDR", "KUMA_IPAM_IPV6_CIDR";
        section mesh_service: MeshServiceAddresses, "meshService";
        section mesh_external_service: MeshExternalServiceAddresses, "meshExternalService";
        section mesh_multi_zone_service: MeshMultiZoneServiceAddresses, "meshMultiZoneService";
    }
}

section! {
    /// Addresses of MeshServices.
    pub struct MeshServiceAddresses {
        /// The range that addresses are given from. A service with an address outside of it gets a new one.
        cidr: Ipv4Range = Ipv4Range::class_a(241), "cidr", "KUMA_IPAM_MESH_SERVICE_CIDR";
    }
}

section! {
    /// Addresses of MeshExternalServices.
    pub struct MeshExternalServiceAddresses {
        /// The range that addresses are given from. A service with an address outside of it gets a new one.
        cidr: Ipv4Range = Ipv4Range::class_a(242), "cidr", "KUMA_IPAM_MESH_EXTERNAL_SERVICE_CIDR";
    }
}

section! {
    /// Addresses of MeshMultiZoneServices.
    pub struct MeshMultiZoneServiceAddresses {
        /// The range that addresses are given from. A service with an address outside of it gets a new one.
        cidr: Ipv4Range = Ipv4Range::class_a(243), "cidr", "KUMA_IPAM_MESH_MULTI_ZONE_SERVICE_CIDR";
    }
}

impl Ipam {
    /// The ranges by the keys of their settings.
    pub fn ranges(&self) -> [(&'static str, Ipv4Range); 3] {
        [
            ("ipam.meshService.cidr", self.mesh_service.cidr),
            ("ipam.meshExternalService.cidr", self.mesh_external_service.cidr),
            ("ipam.meshMultiZoneService.cidr", self.mesh_multi_zone_service.cidr),
        ]
    }

    pub fn addresses(&self) -> Addresses {
        Addresses {
            services: self.mesh_service.cidr,
            external: self.mesh_external_service.cidr,
            multi_zone: self.mesh_multi_zone_service.cidr,
            quarantine: self.quarantine.to_std().unwrap_or_default(),
        }
    }

    /// Ranges that would give one address to two services, or hardly any.
    pub(super) fn check(&self, refuse: &mut impl FnMut(bool, &str)) {
        let ranges = self.ranges();
        for (i, (key, range)) in ranges.iter().enumerate() {
            let size = range.size();
            let problem = format!("{key}: {range} has {size} addresses; at least {SMALLEST} are needed");
            refuse(size < SMALLEST, &problem);
            for (other_key, other) in &ranges[i + 1..] {
                let problem = format!(
                    "{key} and {other_key}: {range} and {other} overlap; give each kind of service its own range"
                );
                refuse(range.overlaps(other), &problem);
            }
        }
    }
}
