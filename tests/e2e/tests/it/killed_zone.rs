//! `kill -9` of a zone whose policies are on their way to other zones.

use e2e::{ControlPlane, Setup, eventually, own_port};
use resources::naming::kds::hashed_name;
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::tempdir;

use crate::federated::joining;

const KILLS: usize = 20;
/// Name of the policies that other zones may get: about calls to a service of the zone.
const LAWFUL: &str = "lawful";

/// A policy, without its name.
struct Policy {
    kind: &'static str,
    path: &'static str,
    spec: Value,
}

/// Policies of the zone that would do harm elsewhere, kind by kind.
fn attacks() -> [Policy; 4] {
    let mesh = json!({ "kind": "Mesh" });
    let remove = json!({ "cluster": { "operation": "Remove", "match": { "name": "none" } } });
    let all = json!([{ "targetRef": mesh, "default": { "action": "Allow" } }]);
    let permissive = json!([{ "default": { "mode": "Permissive" } }]);
    [
        Policy {
            kind: "MeshTrafficPermission",
            path: "meshtrafficpermissions",
            spec: json!({ "targetRef": mesh, "from": all }),
        },
        Policy {
            kind: "MeshTLS",
            path: "meshtlses",
            spec: json!({ "targetRef": mesh, "rules": permissive }),
        },
        Policy {
            kind: "MeshProxyPatch",
            path: "meshproxypatches",
            spec: json!({ "targetRef": mesh, "default": { "appendModifications": [remove] } }),
        },
        Policy { kind: "MeshTimeout", path: "meshtimeouts", spec: timeout_to(&mesh) },
    ]
}

fn timeout_to(target: &Value) -> Value {
    json!({ "to": [{ "targetRef": target, "default": { "connectionTimeout": "7s" } }] })
}

fn write(zone: &ControlPlane, policy: &Policy, name: &str) {
    let Policy { kind, path, spec } = policy;
    let labels = json!({ "kuma.io/origin": "zone" });
    let body = json!({ "type": kind, "mesh": "default", "name": name, "labels": labels, "spec": spec });
    let answer = zone.client().put(&format!("/meshes/default/{path}/{name}"), &body).unwrap();
    assert_eq!(answer.status, 201, "{kind}: {}", answer.body);
}

/// Makes policies of the zone those of a producer, which its API refuses.
fn claim_to_produce(zone: &ControlPlane) {
    let database = Connection::open(zone.work_dir().join("kuma.db")).unwrap();
    let role = "UPDATE resources SET labels = json_set(labels, '$.\"kuma.io/policy-role\"', 'producer') \
                WHERE kind IN ('MeshTrafficPermission', 'MeshTLS', 'MeshProxyPatch', 'MeshTimeout') \
                AND json_extract(labels, '$.\"kuma.io/origin\"') = 'zone'";
    assert!(database.execute(role, []).unwrap() > 0);
}

/// The display names of what a control plane has of zone west.
fn of_west(control_plane: &ControlPlane) -> Vec<String> {
    let mut found = Vec::new();
    for Policy { path, .. } in attacks() {
        let list = control_plane.client().get(&format!("/{path}")).unwrap().json();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let of_west = items.iter().filter(|item| item["labels"]["kuma.io/zone"] == "west");
        found.extend(of_west.map(|item| item["labels"]["kuma.io/display-name"].as_str().unwrap().to_owned()));
    }
    found
}

#[test]
fn policies_of_a_killed_zone_affect_others_only_in_calls_to_it() {
    let dirs = [tempdir().unwrap(), tempdir().unwrap(), tempdir().unwrap()];
    let port = own_port().unwrap();
    let of_global = Setup::default()
        .with("KUMA_MODE", "global")
        .with("KUMA_MULTIZONE_GLOBAL_KDS_GRPC_PORT", port.to_string());
    let global = ControlPlane::start(dirs[0].path(), of_global).unwrap();
    let east = ControlPlane::start(dirs[1].path(), joining("east", &global, port)).unwrap();
    let mut west = ControlPlane::start(dirs[2].path(), joining("west", &global, port)).unwrap();
    for zone in [&east, &west] {
        eventually("the zone has the mesh", || {
            zone.client().get("/meshes/default").is_ok_and(|answer| answer.status == 200)
        })
        .unwrap();
    }
    let service = json!({ "kind": "MeshService", "name": "kv" });
    let lawful = Policy { kind: "MeshTimeout", path: "meshtimeouts", spec: timeout_to(&service) };
    let allowed = |names: Vec<String>| names.iter().all(|name| name == LAWFUL);
    for round in 0..KILLS {
        let attack = &attacks()[round % 4];
        let name = format!("attack-{round}");
        write(&west, attack, &name);
        if round == 0 {
            write(&west, &lawful, LAWFUL);
        }
        // Killed on the way, or when global has taken it as the zone's own.
        if round % 2 == 1 {
            let there = hashed_name("default", &name, Some("west"), None);
            let path = format!("/meshes/default/{}/{there}", attack.path);
            eventually("global has the policy", || {
                global.client().get(&path).is_ok_and(|answer| answer.status == 200)
            })
            .unwrap();
        }
        west.kill().unwrap();
        claim_to_produce(&west);
        assert!(allowed(of_west(&east)), "round {round}: {:?}", of_west(&east));
        west.start_again().unwrap();
    }
    eventually("the policy for callers is in the other zone", || of_west(&east) == [LAWFUL]).unwrap();
    let overview = || global.client().get("/zones/west/_overview").unwrap().json();
    eventually("global says what it refuses", || {
        let problems = overview()["zoneInsight"]["problems"].to_string();
        attacks().iter().all(|attack| problems.contains(attack.kind)) && problems.contains("of a producer")
    })
    .unwrap();
    assert_eq!(of_west(&east), [LAWFUL]);
}
