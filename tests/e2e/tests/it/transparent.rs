//! Unmodified applications call by name: each workload has a network namespace of its own, with real firewall rules,
//! a real Envoy and the agent's DNS server.

mod exclusions;
mod ipv6;
mod machines;
mod networks;

use std::{net::IpAddr, thread};

use e2e::{Setup, eventually};
use serde_json::{Value, json};

use machines::{BY_SERVICE, Mesh, http, tcp, url, version};

/// The examples of the design document, as they are written there.
const EXAMPLES: [&str; 4] = [
    include_str!("../../../../crates/resources/tests/proposal/my-service.yaml"),
    include_str!("../../../../crates/resources/tests/proposal/my-service-by-version.yaml"),
    include_str!("../../../../crates/resources/tests/proposal/default.yaml"),
    include_str!("../../../../crates/resources/tests/proposal/service-by-zone.yaml"),
];

#[test]
fn every_example_of_the_document_is_called_by_name() {
    let zone = Setup::default().with("KUMA_MULTIZONE_ZONE_NAME", "east");
    let Some(mut mesh) = Mesh::start_with(zone) else { return };
    let versioned = |mut tags: Value, version: &str| {
        tags["version"] = version.into();
        tags
    };
    let _backends = [
        mesh.machine("backend-1", &versioned(http("backend"), "v1")),
        mesh.machine("backend-2", &versioned(http("backend"), "v2")),
    ];
    let _httpbin = mesh.machine("my-service-1", &http("my-service"));
    let _queue = mesh.machine("queue-1", &versioned(tcp("queue"), "v1"));
    let client = mesh.machine("client-1", &http("client"));
    EXAMPLES.iter().for_each(|example| mesh.apply(example));
    for version in ["-4", "-6"] {
        client.reaches(version, "http://v1.backend.mesh:8080/", "backend-1");
        client.reaches(version, "http://v2.backend.mesh:8080/", "backend-2");
        client.reaches(version, "http://backend.mesh/", "backend-");
        client.reaches(version, "http://backend.east.mesh:80/", "backend-");
        client.reaches(version, "http://httpbin.mesh:8080/", "my-service-1");
        client.reaches(version, "http://my-service.svc.mesh.local/", "my-service-1");
        client.sends_line(version, "v1.queue.mesh", 8080, "queue-1");
        client.sends_line(version, "queue.mesh", 80, "queue-1");
        client.sends_line(version, "queue.east.mesh", 80, "queue-1");
    }
    let (found, said) = client.addresses("ahostsv4", "backend.mesh");
    assert!(found && said.starts_with("240."), "{said}");
    let (found, said) = client.addresses("ahostsv4", "backend.svc.mesh.local");
    assert!(found && said.starts_with("241."), "{said}");
    let (found, said) = client.addresses("ahosts", "v3.backend.mesh");
    assert!(!found, "there is no such version: {said}");
}

/// Waits until exactly these URLs are answered from outside of the mesh.
fn open(client: &machines::Machine, all: &[(IpAddr, u16)], expected: &[(IpAddr, u16)], why: &str) {
    let mut last = Vec::new();
    eventually(why, || {
        let answered = |&(ip, port): &(IpAddr, u16)| client.curl(version(ip), &url(ip, port)).0;
        last = all.iter().copied().filter(answered).collect();
        last == expected
    })
    .unwrap_or_else(|error| panic!("{error}: {last:?} instead of {expected:?}"));
    // What is the mesh's is answered whatever else is shut.
    let (done, said) = client.curl("-4", "http://client.mesh/");
    assert!(done && machines::is_from(&said, "client-1"), "{why}: {said}");
}

#[test]
fn traffic_that_is_not_the_meshs_passes_through_until_it_is_forbidden() {
    let Some(mut mesh) = Mesh::start() else { return };
    mesh.apply(BY_SERVICE);
    let client = mesh.machine("client-1", &http("client"));
    let outside = mesh.outside("outside", &[8000, 8001]);
    let v4 = IpAddr::from(outside.workload.v4);
    let v6 = IpAddr::from(outside.workload.v6);
    let all = [(v4, 8000), (v4, 8001), (v6, 8000), (v6, 8001)];
    client.reaches("-4", "http://client.mesh/", "client-1");
    let put = |mode: &str, matches: Value| {
        let default = json!({"passthroughMode": mode, "appendMatch": matches});
        let spec = json!({"targetRef": {"kind": "Mesh"}, "default": default});
        let policy = json!({"type": "MeshPassthrough", "mesh": "default", "name": "exits", "spec": spec});
        mesh.put("/meshes/default/meshpassthroughs/exits", &policy);
    };
    let one_of = |kind: &str, value: String, port: u16, protocol: &str| json!({"type": kind, "value": value, "port": port, "protocol": protocol});
    open(&client, &all, &all, "a mesh as it is made");
    put("None", json!([]));
    open(&client, &all, &[], "MeshPassthrough: None");
    let first = one_of("IP", v4.to_string(), 8000, "http");
    put("Matched", json!([first]));
    open(&client, &all, &all[..1], "MeshPassthrough: one address");
    put("Matched", json!([first, one_of("CIDR", format!("{v6}/64"), 8001, "tcp")]));
    open(&client, &all, &[all[0], all[3]], "MeshPassthrough: an address and a range");
    let mut closed = crate::world::mesh("STRICT");
    closed["networking"] = json!({"outbound": {"passthrough": false}});
    mesh.put("/meshes/default", &closed);
    put("All", json!([]));
    open(&client, &all, &all, "MeshPassthrough: All wins over the mesh");
    mesh.at_hub(|world| {
        let deleted = world.control_plane.client().delete("/meshes/default/meshpassthroughs/exits").unwrap();
        assert_eq!(deleted.status, 200);
    });
    open(&client, &all, &[], "the mesh has no passthrough");
}

#[test]
fn a_name_is_answered_by_its_service_while_others_come_and_go() {
    let Some(mut mesh) = Mesh::start() else { return };
    mesh.apply(BY_SERVICE);
    let _stable = mesh.machine("stable-1", &http("stable"));
    let client = mesh.machine("client-1", &http("client"));
    client.reaches("-4", "http://stable.mesh/", "stable-1");
    for round in 1..=3 {
        let name = format!("guest-{round}");
        let service = format!("guest{round}");
        let host = format!("{service}.mesh");
        assert!(!client.addresses("ahostsv4", &host).0, "{host} is not there yet");
        let calls = || {
            eventually(&format!("{host} to resolve"), || client.addresses("ahostsv4", &host).0).unwrap();
            for _ in 0..20 {
                for (host, expected) in [(&*host, &*name), ("stable.mesh", "stable-1")] {
                    let (done, said) = client.curl("-4", &format!("http://{host}/"));
                    assert!(done && said.contains(expected), "{host} in round {round}: {said}");
                }
            }
        };
        // The client calls from the moment the name is there, however far the other machine has come.
        let guest = thread::scope(|scope| {
            let called = scope.spawn(calls);
            let guest = mesh.machine(&name, &http(&service));
            called.join().unwrap();
            guest
        });
        drop(guest);
        let (done, said) = client.curl("-4", "http://stable.mesh/");
        assert!(done && said.contains("stable-1"), "{said}");
    }
}

#[test]
fn a_name_that_permissions_trim_resolves_and_is_answered_by_the_stub() {
    let Some(mut mesh) = Mesh::start() else { return };
    let mut trimming = crate::world::mesh("STRICT");
    trimming["labels"] = json!({"reachability.kuma.io/mode": "enforce", "reachability.kuma.io/stub": "true"});
    mesh.put("/meshes/default", &trimming);
    let _backend = mesh.machine("backend-1", &http("backend"));
    let client = mesh.machine("client-1", &http("client"));
    let name = "http://backend.svc.mesh.local/";
    client.reaches("-4", name, "backend-1");
    let from = json!([{"targetRef": {"kind": "Mesh"}, "default": {"action": "Deny"}}]);
    let deny = json!({"type": "MeshTrafficPermission", "mesh": "default", "name": "every-client", "spec": {"from": from}});
    mesh.put("/meshes/default/meshtrafficpermissions/every-client", &deny);
    for version in ["-4", "-6"] {
        let mut last = String::new();
        eventually("the stub to answer", || {
            let flags = [version, "--silent", "--include", "--noproxy", "*", "--max-time", "5", name];
            last = client.run("curl", &flags).1;
            last.starts_with("HTTP/1.1 403 ") && last.contains("x-kuma-trimmed-by: kri_mtp_default_")
        })
        .unwrap_or_else(|error| panic!("{error}: {last}"));
        assert!(last.contains("Called: backend.svc.mesh.local at 241."), "{last}");
    }
}
