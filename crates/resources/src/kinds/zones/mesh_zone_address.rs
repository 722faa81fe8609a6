//! Address at which other zones reach the services of a mesh in this zone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{NoStatus, Schema, Subject, Violations};

/// The public address of a zone proxy. It is kept and synchronised, so that zones of Kuma find each other; calls
/// between zones of this project use the addresses of ZoneIngresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["address", "port"]))]
pub struct MeshZoneAddress {
    /// The IP address or host name at which other zones reach the zone.
    #[schemars(length(min = 1))]
    pub address: String,
    /// The port at which other zones reach the zone.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u32,
}

impl Schema for MeshZoneAddress {
    type Status = NoStatus;

    fn validate(&self, _: Subject<'_>, _: &mut Violations) {}
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{
        Kind,
        kinds::testing::{resource, round_trips, valid},
    };

    #[test]
    fn an_address_is_kept_as_it_is() {
        for address in ["203.0.113.5", "lb.example.com", "2001:db8::1"] {
            valid(Kind::MeshZoneAddress, resource(json!({ "address": address, "port": 10001 })));
        }
        round_trips(Kind::MeshZoneAddress, json!({ "address": "lb.example.com", "port": 10001 }));
    }
}
