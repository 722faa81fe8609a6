//! The settings of virtual addresses.

use resources::duration::GoDuration;
use topology::{cidr::Ipv4Range, services::Addresses};

use super::section::section;

/// Fewer would be used up by a handful of services that come and go.
const SMALLEST: u64 = 16;

section! {
    /// Virtual addresses of services.
    pub struct Ipam {
        /// How long the address of a service or hostname that is gone is not given to another one: clients may still
        /// have it in their caches.
        quarantine: GoDuration = GoDuration::from_secs(3600), "quarantine", "KUMA_IPAM_QUARANTINE";
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
