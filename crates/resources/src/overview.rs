//! A proxy or a zone together with what is known of its connection, as the `_overview` endpoints of
//! the REST API show it.

use serde_json::{Map, Value, json};

use crate::{Kind, Resource, Spec, format::universal, kinds::zone_insight::Presence};

/// Joins a resource and its insight. `None` for kinds that have no insight.
pub fn overview(resource: &Resource, insight: Option<&Resource>) -> Option<Value> {
    let (resource_field, insight_field) = fields(resource.kind())?;
    let Value::Object(mut out) = universal::render(resource) else { return None };
    let spec = resource.spec.to_json();
    // None of these kinds has a field called like a part of the metadata.
    for field in spec.as_object().into_iter().flat_map(Map::keys) {
        out.shift_remove(field);
    }
    out.insert("type".into(), format!("{}Overview", resource.kind()).into());
    out.insert(resource_field.into(), spec);
    if let Some(insight) = insight {
        out.insert(insight_field.into(), insight.spec.to_json());
        if let (Spec::Zone(zone), Spec::ZoneInsight(insight)) = (&resource.spec, &insight.spec) {
            // Kuma leaves it to its clients to work this out.
            let (presence, since) = match zone.enabled {
                Some(false) => (Presence::Offline, None),
                _ => insight.presence(),
            };
            let mut shown = json!({ "status": presence.name() });
            if let Some(since) = since {
                shown["since"] = json!(since);
            }
            out.insert("presence".into(), shown);
        }
    }
    Some(Value::Object(out))
}

fn fields(kind: Kind) -> Option<(&'static str, &'static str)> {
    match kind {
        Kind::Dataplane => Some(("dataplane", "dataplaneInsight")),
        Kind::Zone => Some(("zone", "zoneInsight")),
        Kind::ZoneIngress => Some(("zoneIngress", "zoneIngressInsight")),
        Kind::ZoneEgress => Some(("zoneEgress", "zoneEgressInsight")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::{Key, Labels, Spec};

    fn resource(kind: Kind, spec: Value) -> Resource {
        Resource {
            key: Key::new(kind, "default", "one"),
            labels: Labels::from([("team".to_owned(), "a".to_owned())]),
            created: Timestamp::UNIX_EPOCH,
            modified: Timestamp::UNIX_EPOCH,
            version: 1,
            owner: None,
            spec: Spec::from_json(kind, spec, &mut Vec::new()).unwrap(),
            status: None,
        }
    }

    /// The overview without the parts every resource has.
    fn joined(kind: Kind, spec: Value, insight: Option<Value>) -> Value {
        let resource = resource(kind, spec);
        let insight = insight.map(|spec| super::tests::resource(kind.descriptor().insight.unwrap(), spec));
        let mut out = overview(&resource, insight.as_ref()).unwrap();
        let metadata = ["mesh", "name", "creationTime", "modificationTime", "labels", "kri"];
        for field in metadata {
            out.as_object_mut().unwrap().shift_remove(field);
        }
        out
    }

    #[test]
    fn each_kind_with_an_insight_is_shown_with_it() {
        let subscriptions = json!({ "subscriptions": [{ "id": "1" }] });
        let dataplane = json!({ "networking": { "address": "10.0.0.1" } });
        assert_eq!(
            joined(Kind::Dataplane, dataplane.clone(), Some(subscriptions.clone())),
            json!({ "type": "DataplaneOverview", "dataplane": dataplane, "dataplaneInsight": subscriptions })
        );
        assert_eq!(
            joined(Kind::Zone, json!({ "enabled": true }), Some(subscriptions.clone())),
            json!({ "type": "ZoneOverview", "zone": { "enabled": true }, "zoneInsight": subscriptions,
                "presence": { "status": "Offline" } })
        );
        let ingress = json!({ "zone": "east", "networking": { "port": 10001 } });
        assert_eq!(
            joined(Kind::ZoneIngress, ingress.clone(), Some(subscriptions.clone())),
            json!({ "type": "ZoneIngressOverview", "zoneIngress": ingress, "zoneIngressInsight": subscriptions })
        );
        assert_eq!(
            joined(Kind::ZoneEgress, ingress.clone(), Some(subscriptions.clone())),
            json!({ "type": "ZoneEgressOverview", "zoneEgress": ingress, "zoneEgressInsight": subscriptions })
        );
    }

    #[test]
    fn what_never_connected_has_no_insight() {
        assert_eq!(joined(Kind::Zone, json!({}), None), json!({ "type": "ZoneOverview", "zone": {} }));
    }

    #[test]
    fn the_metadata_is_that_of_the_resource() {
        let out = overview(&resource(Kind::Dataplane, json!({})), None).unwrap();
        let out = out.as_object().unwrap();
        let start: Vec<&str> = out.keys().map(String::as_str).take(6).collect();
        assert_eq!(start, ["type", "mesh", "name", "creationTime", "modificationTime", "labels"]);
        assert_eq!(out["name"], "one");
        assert_eq!(out["labels"], json!({ "team": "a" }));
    }

    #[test]
    fn exactly_the_kinds_with_an_insight_have_an_overview() {
        for &kind in Kind::ALL {
            assert_eq!(fields(kind).is_some(), kind.descriptor().insight.is_some(), "{kind}");
        }
    }
}
