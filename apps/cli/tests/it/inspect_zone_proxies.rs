//! `inspect` of zone ingresses and egresses.

use serde_json::json;

use crate::{control_plane::ZoneControlPlane, inspect::check_table};

#[test]
fn zone_proxies_have_their_tables() {
    let control_plane = ZoneControlPlane::start();
    let connected = json!({
        "subscriptions": [{"id": "1", "connectTime": "2999-01-01T00:00:00Z",
            "status": {"total": {"responsesSent": "7"}},
            "version": {"kumaDp": {"version": "2.14.3"}, "envoy": {"version": "1.40.0"}}}],
        "metadata": {"features": ["feature-unified-resource-naming"]}});
    control_plane.overview(
        &json!({"type": "ZoneIngressOverview", "name": "gate", "zoneIngressInsight": connected, "zoneIngress": {
            "zone": "east", "networking": {"address": "10.0.0.5", "port": 10001,
                "advertisedAddress": "203.0.113.5", "advertisedPort": 20001}}}),
    );
    check_table(
        &control_plane,
        "zone-ingresses",
        "/zoneingresses/_overview",
        "ZONE | NAME | ADVERTISED | STATUS | LAST CONNECTED AGO | LAST UPDATED AGO | TOTAL UPDATES | TOTAL ERRORS | NAMES | ADDRESS | KUMA-DP VERSION | ENVOY VERSION",
        "east | gate | 203.0.113.5:20001 | Online | 0s | never | 7 | 0 | unified | 10.0.0.5:10001 | 2.14.3 | 1.40.0",
    );
    control_plane.overview(&json!({"type": "ZoneEgressOverview", "name": "exit", "zoneEgress": {
        "zone": "east", "networking": {"address": "10.0.0.6", "port": 10002}}}));
    check_table(
        &control_plane,
        "zone-egresses",
        "/zoneegresses/_overview",
        "ZONE | NAME | ADDRESS | STATUS | LAST CONNECTED AGO | LAST UPDATED AGO | TOTAL UPDATES | TOTAL ERRORS | NAMES | KUMA-DP VERSION | ENVOY VERSION",
        "east | exit | 10.0.0.6:10002 | Offline | never | never | 0 | 0 | - | - | -",
    );
}
