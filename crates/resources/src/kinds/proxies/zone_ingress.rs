//! The proxy through which other zones reach the services of a zone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    NoStatus, Path, Schema, Subject, Violations,
    kinds::{
        proto::{is_default, number},
        tags::{self, Need, Tags},
    },
};

/// A zone ingress proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ZoneIngress {
    /// The zone that the proxy runs in; set by the control plane.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// Addresses of the proxy: its own, and the one for other zones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub networking: Option<ZoneIngressNetworking>,
    /// Services that other zones can call through this proxy; set by the control plane.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub available_services: Vec<AvailableService>,
}

/// Addresses of a zone ingress: its own, and the one for other zones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ZoneIngressNetworking {
    /// The IP address or host name at which the proxy listens.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// The address at which other zones reach the proxy.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub advertised_address: String,
    /// The port at which the proxy listens.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub port: u32,
    /// The port at which other zones reach the proxy.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub advertised_port: u32,
    /// Envoy's admin API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin: Option<EnvoyAdmin>,
}

/// Settings of the admin API of a proxy's Envoy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyAdmin {
    /// The port of the admin API, on the loopback interface.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub port: u32,
}

/// Instances of one combination of tags.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AvailableService {
    /// The tags of the instances.
    #[serde(skip_serializing_if = "Tags::is_empty")]
    pub tags: Tags,
    /// Number of instances with these tags.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub instances: u32,
    /// The mesh of the instances.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mesh: String,
    /// Set for services outside the mesh.
    #[serde(skip_serializing_if = "is_default")]
    pub external_service: bool,
}

impl ZoneIngress {
    /// Other zones can use the ingress only when they know both its address and its port.
    pub fn has_public_address(&self) -> bool {
        self.networking.as_ref().is_some_and(|n| !n.advertised_address.is_empty() && n.advertised_port != 0)
    }

    pub fn is_remote(&self, local_zone: &str) -> bool {
        !self.zone.is_empty() && self.zone != local_zone
    }
}

impl Schema for ZoneIngress {
    type Status = NoStatus;

    fn validate(&self, _subject: Subject<'_>, found: &mut Violations) {
        let absent = ZoneIngressNetworking::default();
        let networking = self.networking.as_ref().unwrap_or(&absent);
        networking.validate(&Path::new("networking"), found);
        for (i, service) in self.available_services.iter().enumerate() {
            let path = Path::new("availableService").index(i).field("tags");
            tags::check_tags(&service.tags, Need::Service, &path, found);
        }
    }
}

impl ZoneIngressNetworking {
    fn validate(&self, path: &Path, found: &mut Violations) {
        if let Some(admin) = &self.admin {
            let taken = admin.port == self.port && tags::overlaps_loopback(&self.address)
                || admin.port == self.advertised_port && tags::overlaps_loopback(&self.advertised_address);
            found.require(!taken, path.field("admin").field("port"), "must differ from port");
        }
        let address = path.field("advertisedAddress");
        let port = path.field("advertisedPort");
        if self.advertised_address.is_empty() && self.advertised_port != 0 {
            found.add(&address, "has to be defined with advertisedPort");
        }
        if self.advertised_port == 0 && !self.advertised_address.is_empty() {
            found.add(&port, "has to be defined with advertisedAddress");
        }
        if !self.address.is_empty() {
            tags::check_address(&self.address, &path.field("address"), found);
        }
        if !self.advertised_address.is_empty() {
            tags::check_address(&self.advertised_address, &address, found);
        }
        tags::check_port(self.port, &path.field("port"), found);
        if self.advertised_port != 0 {
            tags::check_port(self.advertised_port, &port, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{
        Kind,
        kinds::testing::{check, draft, round_trips, valid},
    };

    const PORT_RANGE: &str = "port must be in the range [1, 65535]";

    fn rejected(spec: Value, expect: &[(&str, &str)]) {
        check(Kind::ZoneIngress, spec, expect);
    }

    fn full() -> Value {
        json!({
            "zone": "east",
            "networking": {
                "address": "127.0.0.1",
                "advertisedAddress": "ingress.example.com",
                "port": 10001,
                "advertisedPort": 10002,
                "admin": { "port": 9901 }
            },
            "availableServices": [{
                "tags": { "kuma.io/service": "backend", "version": "1" },
                "instances": 2,
                "mesh": "default",
                "externalService": true
            }]
        })
    }

    #[test]
    fn a_full_zone_ingress_is_valid_and_written_as_it_was_read() {
        valid(Kind::ZoneIngress, full());
        round_trips(Kind::ZoneIngress, full());
        valid(Kind::ZoneIngress, json!({ "networking": { "port": "10001" } }));
    }

    #[test]
    fn a_port_is_required() {
        rejected(json!({}), &[("networking.port", PORT_RANGE)]);
        rejected(json!({ "networking": { "port": 65536 } }), &[("networking.port", PORT_RANGE)]);
    }

    #[test]
    fn the_advertised_address_and_port_go_together() {
        rejected(
            json!({ "networking": { "port": 1, "advertisedPort": 2 } }),
            &[("networking.advertisedAddress", "has to be defined with advertisedPort")],
        );
        rejected(
            json!({ "networking": { "port": 1, "advertisedAddress": "10.0.0.1" } }),
            &[("networking.advertisedPort", "has to be defined with advertisedAddress")],
        );
        rejected(
            json!({ "networking": { "port": 1, "advertisedAddress": "10.0.0.1", "advertisedPort": 70000 } }),
            &[("networking.advertisedPort", PORT_RANGE)],
        );
    }

    #[test]
    fn addresses_are_checked() {
        rejected(
            json!({ "networking": {
                "port": 1, "address": "0.0.0.0", "advertisedAddress": "a b", "advertisedPort": 2
            } }),
            &[
                ("networking.address.address", "must not be 0.0.0.0 or ::"),
                ("networking.advertisedAddress.address", "address has to be valid IP address or domain name"),
            ],
        );
    }

    #[test]
    fn the_admin_port_must_be_free() {
        for networking in [
            json!({ "address": "127.0.0.1", "port": 9901, "admin": { "port": 9901 } }),
            json!({
                "port": 1, "advertisedAddress": "127.0.0.1", "advertisedPort": 9901, "admin": { "port": 9901 }
            }),
        ] {
            rejected(
                json!({ "networking": networking }),
                &[("networking.admin.port", "must differ from port")],
            );
        }
    }

    #[test]
    fn available_services_need_the_service_tag() {
        rejected(
            json!({ "networking": { "port": 1 }, "availableServices": [{ "tags": { "version": "" } }] }),
            &[
                ("availableService[0].tags[\"version\"]", "tag value must be non-empty"),
                ("availableService[0].tags", "mandatory tag \"kuma.io/service\" is missing"),
            ],
        );
    }

    #[test]
    fn other_zones_need_both_the_advertised_address_and_port() {
        let ingress = draft(Kind::ZoneIngress, full()).spec;
        let ingress: &super::ZoneIngress = ingress.get().unwrap();
        assert!(ingress.has_public_address());
        assert!(ingress.is_remote("west"));
        assert!(!ingress.is_remote("east"));
        assert!(!super::ZoneIngress::default().has_public_address());
        assert!(!super::ZoneIngress::default().is_remote("west"));
    }
}
