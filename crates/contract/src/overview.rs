//! Proxies and zones with what is known of their connections: answers of the `_overview` endpoints, which
//! `resources::overview` writes.

use resources::kinds::{
    dataplane::Dataplane,
    dataplane_insight::DataplaneInsight,
    zone::Zone,
    zone_egress::ZoneEgress,
    zone_ingress::ZoneIngress,
    zone_insight::ZoneInsight,
    zone_proxy_insight::{ZoneEgressInsight, ZoneIngressInsight},
};
use serde::Deserialize;

/// A Dataplane and its connections; none if it never had any.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DataplaneOverview {
    pub dataplane: Dataplane,
    pub dataplane_insight: DataplaneInsight,
}

/// A zone and the connections of its control planes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ZoneOverview {
    pub zone: Zone,
    pub zone_insight: ZoneInsight,
}

/// A zone ingress and its connections.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ZoneIngressOverview {
    pub zone_ingress: ZoneIngress,
    pub zone_ingress_insight: ZoneIngressInsight,
}

/// A zone egress and its connections.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ZoneEgressOverview {
    pub zone_egress: ZoneEgress,
    pub zone_egress_insight: ZoneEgressInsight,
}

#[cfg(test)]
mod tests {
    use resources::{Key, Kind, overview::overview};
    use serde_json::{Value, json};
    use testkit::resource::stored;

    use super::*;
    use crate::resource::ShownResource;

    fn shown(kind: Kind, spec: Value, insight: Value) -> Value {
        let resource = stored(Key::new(kind, "default", "one"), &[("team", "a")], spec);
        let kind = kind.descriptor().insight.unwrap();
        overview(&resource, Some(&stored(Key::new(kind, "default", "one"), &[], insight))).unwrap()
    }

    #[test]
    fn every_overview_is_read_as_it_is_written() {
        let connected = json!({ "subscriptions": [{ "id": "1", "connectTime": "2024-05-01T10:00:00Z" }] });
        let networking = json!({ "networking": { "address": "10.0.0.1" } });

        let proxy: ShownResource<DataplaneOverview> =
            ShownResource::read(&shown(Kind::Dataplane, networking.clone(), connected.clone()));
        assert_eq!((proxy.metadata.mesh.as_str(), proxy.metadata.label("team")), ("default", "a"));
        assert_eq!(proxy.of.dataplane.networking.unwrap().address, "10.0.0.1");
        assert!(proxy.of.dataplane_insight.is_online());

        let zone: ShownResource<ZoneOverview> =
            ShownResource::read(&shown(Kind::Zone, json!({ "enabled": false }), connected.clone()));
        assert!(!zone.of.zone.is_enabled() && zone.of.zone_insight.is_online());

        let ingress: ShownResource<ZoneIngressOverview> =
            ShownResource::read(&shown(Kind::ZoneIngress, networking.clone(), connected.clone()));
        assert_eq!(ingress.of.zone_ingress.networking.unwrap().address, "10.0.0.1");
        assert!(ingress.of.zone_ingress_insight.is_online());

        let egress: ShownResource<ZoneEgressOverview> =
            ShownResource::read(&shown(Kind::ZoneEgress, networking, connected));
        assert_eq!(egress.of.zone_egress.networking.unwrap().address, "10.0.0.1");
        assert!(egress.of.zone_egress_insight.is_online());
    }
}
