//! Permissions and who clients are: what a graph of reachability follows.

use std::collections::BTreeSet;

use resources::{Kind, Resource};
use serde_json::{Value, json};
use topology::{Affected, ClientClass, DestinationId, MeshSnapshot};

use crate::fixtures::{resource, with_status};

/// A permission of either form, for some.
pub fn permission(name: u8, [whom, client, effect, form]: [u8; 4]) -> Resource {
    let mut spec = json!({ "targetRef": target(name, whom) });
    let id = match client {
        0 => json!({ "type": "Exact", "value": "spiffe://default/a" }),
        1 => json!({ "type": "Prefix", "value": "spiffe://default/" }),
        2 => json!({ "type": "Exact", "value": "spiffe://td/x" }),
        _ => json!({ "type": "Exact", "value": "spiffe://default/b" }),
    };
    let list = ["allow", "deny", "allowWithShadowDeny", "allow"][usize::from(effect)];
    match form {
        0 => spec["rules"] = json!([{ "default": { list: [{ "spiffeID": id }] } }]),
        1 => {
            let sni = json!({ "type": "Exact", "value": format!("sni.msvc.default.s-{name}.80") });
            spec["rules"] = json!([{ "default": { list: [{ "spiffeID": id, "sni": sni }] } }]);
        }
        _ => {
            let action = ["Allow", "Deny", "AllowWithShadowDeny", "Allow"][usize::from(effect)];
            spec["from"] = json!([{ "targetRef": from(client), "default": { "action": action } }]);
        }
    }
    resource(Kind::MeshTrafficPermission, &format!("p-{name}"), &[], spec)
}

fn target(name: u8, whom: u8) -> Value {
    match (name % 2, whom) {
        (0, 0) => json!({ "kind": "Mesh" }),
        (0, 1) => json!({ "kind": "MeshService", "name": "a" }),
        (0, 2) => json!({ "kind": "MeshSubset", "tags": { "version": "*" } }),
        (0, _) => json!({ "kind": "MeshServiceSubset", "name": "b", "tags": { "version": "1" } }),
        (_, 0) => json!({ "kind": "Dataplane", "labels": { "team": "x" } }),
        (_, 1) => json!({ "kind": "Dataplane", "name": "dp-1", "sectionName": "web" }),
        (_, 2) => json!({ "kind": "Dataplane", "sectionName": "81" }),
        _ => json!({ "kind": "Dataplane", "name": "dp-2" }),
    }
}

fn from(client: u8) -> Value {
    match client {
        0 => json!({ "kind": "MeshService", "name": "a" }),
        1 => json!({ "kind": "Mesh" }),
        2 => json!({ "kind": "MeshSubset", "tags": { "version": "1" } }),
        _ => json!({ "kind": "MeshServiceSubset", "name": "b", "tags": { "kuma.io/protocol": "http" } }),
    }
}

/// An identity of the proxies of a team, or of all.
pub fn identity(name: u8, [whom, ready, ..]: [u8; 4]) -> Resource {
    let labels = if whom > 1 { json!({ "team": "x" }) } else { json!({}) };
    let selector = json!({ "dataplane": { "matchLabels": labels } });
    let provider = json!({ "type": "Bundled", "bundled": { "autogenerate": { "enabled": true } } });
    let id = json!({ "trustDomain": "td", "path": if name.is_multiple_of(2) { "/x" } else { "/y" } });
    let spec = json!({ "selector": selector, "spiffeID": id, "provider": provider });
    let ready = if ready == 0 { "False" } else { "True" };
    let status = json!({ "conditions": [{ "type": "Ready", "status": ready }] });
    with_status(resource(Kind::MeshIdentity, &format!("i-{name}"), &[], spec), status)
}

pub fn trust(name: u8) -> Resource {
    let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let bundle = json!({ "type": "Pem", "pem": { "value": pem } });
    let spec = json!({ "trustDomain": "td", "caBundles": [bundle] });
    resource(Kind::MeshTrust, &format!("t-{name}"), &[], spec)
}

/// A mode of trimming, in the words of labels.
pub fn mode(content: u8) -> &'static [(&'static str, &'static str)] {
    match content {
        0 => &[],
        1 => &[("reachability.kuma.io/mode", "enforce")],
        2 => &[("reachability.kuma.io/mode", "off"), ("east.reachability.kuma.io/mode", "enforce")],
        _ => &[("reachability.kuma.io/mode", "shadow"), ("reachability.kuma.io/force", "true")],
    }
}

/// Every class that may call something else than before is named.
pub fn callers_are_named(before: &MeshSnapshot, after: &MeshSnapshot, affected: &Affected) {
    let set = |mesh: &MeshSnapshot, class: &ClientClass| -> BTreeSet<DestinationId> {
        mesh.access.destinations(class).into_iter().cloned().collect()
    };
    let known: BTreeSet<&ClientClass> = before.access.classes().map(|(class, _)| class).collect();
    for (class, _) in after.access.classes().filter(|(class, _)| known.contains(class)) {
        let old = set(before, class);
        let new = set(after, class);
        let different: BTreeSet<&DestinationId> = old.symmetric_difference(&new).collect();
        // Destinations that appear or are gone are named themselves.
        let told = |id: &&DestinationId| affected.destinations.contains(*id);
        let silent = different.iter().all(told);
        let named =
            affected.whole_mesh || affected.reachability_by_default || affected.reachability.contains(class);
        assert!(silent || named, "{class:?}: {different:?}");
    }
}
