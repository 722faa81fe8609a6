//! The proxy through which a zone reaches other zones and external services.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    NoStatus, Path, Schema, Subject, Violations,
    kinds::{
        proto::{is_default, number},
        tags,
        zone_ingress::EnvoyAdmin,
    },
};

/// A zone egress proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ZoneEgress {
    /// The zone that the proxy runs in; set by the control plane.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// Addresses of the proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub networking: Option<ZoneEgressNetworking>,
}

/// Addresses of a zone egress.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ZoneEgressNetworking {
    /// The IP address or host name at which proxies of the zone reach this one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// The port at which the proxy listens.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "number")]
    pub port: u32,
    /// Envoy's admin API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin: Option<EnvoyAdmin>,
}

impl Schema for ZoneEgress {
    type Status = NoStatus;

    fn validate(&self, _subject: Subject<'_>, found: &mut Violations) {
        let path = Path::new("networking");
        let absent = ZoneEgressNetworking::default();
        let networking = self.networking.as_ref().unwrap_or(&absent);
        if let Some(admin) = &networking.admin {
            let taken = admin.port == networking.port && tags::overlaps_loopback(&networking.address);
            found.require(!taken, path.field("admin").field("port"), "must differ from port");
        }
        if !networking.address.is_empty() {
            tags::check_address(&networking.address, &path.field("address"), found);
        }
        tags::check_port(networking.port, &path.field("port"), found);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{
        Kind,
        kinds::testing::{check, round_trips, valid},
    };

    #[test]
    fn a_full_zone_egress_is_valid_and_written_as_it_was_read() {
        let full = json!({
            "zone": "east",
            "networking": { "address": "127.0.0.1", "port": 10002, "admin": { "port": 9901 } }
        });
        valid(Kind::ZoneEgress, full.clone());
        round_trips(Kind::ZoneEgress, full);
    }

    #[test]
    fn the_port_the_address_and_the_admin_port_are_checked() {
        let range = ("networking.port", "port must be in the range [1, 65535]");
        check(Kind::ZoneEgress, json!({}), &[range]);
        check(
            Kind::ZoneEgress,
            json!({ "networking": { "address": "::", "port": 65536 } }),
            &[("networking.address.address", "must not be 0.0.0.0 or ::"), range],
        );
        check(
            Kind::ZoneEgress,
            json!({ "networking": { "address": "127.0.0.1", "port": 9901, "admin": { "port": 9901 } } }),
            &[("networking.admin.port", "must differ from port")],
        );
    }
}
