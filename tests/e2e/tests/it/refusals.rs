//! Random permissions on real Envoys: who is refused is refused by the server's Envoy, and what a proxy may not call it
//! does not have.

use std::{collections::BTreeSet, net::Ipv4Addr};

use e2e::{
    Setup, eventually,
    proxy::{Options, RunningProxy, own_address},
    service::{Service, call, dataplane, with_outbound},
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};

use crate::world::{UNIFIED, World, by_tags, mesh};

const SERVICES: usize = 6;
const SEEDS: u64 = 5;
const VERSIONS: [&str; 2] = ["v1", "v2"];

/// A service with a proxy, which lists all services by their tags, from port 10001 on. What is listed is not trimmed, so
/// that it can be called though it is refused; what else is generated is.
struct Member {
    name: String,
    address: Ipv4Addr,
    proxy: RunningProxy,
    _app: Service,
}

fn member(world: &World, number: usize) -> Member {
    let name = format!("s{number}");
    let address = own_address();
    let app = Service::start(&name, "http", (own_address(), 9000).into()).unwrap();
    let mut own = dataplane(&name, &name, address, "http", app.address);
    own["networking"]["inbound"][0]["tags"]["version"] = json!(VERSIONS[number % 2]);
    own["labels"] = json!({"app": name});
    for (port, other) in (10001..).zip(0..SERVICES) {
        own = with_outbound(own, address, port, by_tags(&format!("s{other}")));
    }
    // Virtual addresses are bound, and some of the loopback network, so that nothing needs to be redirected.
    let variables = [UNIFIED, ("KUMA_DATAPLANE_RUNTIME_BIND_OUTBOUNDS", "true")];
    let environment = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let options = Options { environment, ..Options::default() };
    let proxy = RunningProxy::start(&world.control_plane, &own, &options)
        .unwrap_or_else(|error| panic!("{error:#}\n{}", world.control_plane.log()));
    Member { name, address, proxy, _app: app }
}

/// A permission of either form about some services and some clients.
fn permission(rng: &mut StdRng, name: &str) -> Value {
    let mut service = || format!("s{}", rng.random_range(0..=SERVICES));
    let server = service();
    let client = service();
    let other = service();
    let version = VERSIONS[rng.random_range(0..2)];
    let target = match rng.random_range(0..6) {
        0 => json!({"kind": "MeshSubset", "tags": {"version": version}}),
        1 | 2 => json!({"kind": "MeshService", "name": server}),
        3 => json!({"kind": "Dataplane", "name": server, "sectionName": "main"}),
        4 => json!({"kind": "Dataplane", "labels": {"app": server}}),
        _ => json!({"kind": "Mesh"}),
    };
    let mut spec = json!({"targetRef": target});
    if rng.random_bool(0.5) {
        let action = ["Allow", "Allow", "AllowWithShadowDeny", "Deny"][rng.random_range(0..4)];
        let entry = |target: Value, action: &str| json!({"targetRef": target, "default": {"action": action}});
        let subset = json!({"kind": "MeshSubset", "tags": {"version": version}});
        let by_name = |name: &str| json!({"kind": "MeshService", "name": name});
        spec["from"] =
            json!([entry(by_name(&client), "Allow"), entry(subset, action), entry(by_name(&other), action)]);
    } else {
        let id = |name: &str| json!([{"spiffeID": {"type": "Exact", "value": format!("spiffe://default/{name}")}}]);
        let list = ["allow", "allowWithShadowDeny", "deny"][rng.random_range(0..3)];
        spec["rules"] = json!([{"default": {"allow": id(&client)}}, {"default": {list: id(&other)}}]);
    }
    json!({"type": "MeshTrafficPermission", "mesh": "default", "name": name, "spec": spec})
}

/// Replaces all permissions.
fn permit(world: &World, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    for number in 0..6 {
        let name = format!("p-{number}");
        let policy = permission(&mut rng, &name);
        world.put(&format!("/meshes/default/meshtrafficpermissions/{name}"), &policy);
    }
}

/// True if one may call the other, as the control plane says.
fn allowed(world: &World, from: &str, to: &str) -> bool {
    let path = format!("/meshes/default/_access?from={from}&to={to}");
    let answer = world.control_plane.client().get(&path).unwrap();
    match answer.json()["verdict"].as_str() {
        Some("Allowed") => true,
        Some("Denied") => false,
        _ => panic!("{path}: {} {}", answer.status, answer.body),
    }
}

/// The services of which the proxy has a generated cluster.
pub fn generated(proxy: &RunningProxy) -> BTreeSet<String> {
    let clusters = proxy.admin("/clusters").unwrap_or_default();
    let names = clusters.lines().filter_map(|line| line.split("::").next());
    let of_services = names.filter_map(|name| name.strip_prefix("kri_msvc_"));
    of_services.filter_map(|name| Some(name.rsplit_once('_')?.0.rsplit_once('_')?.1.to_owned())).collect()
}

#[test]
fn what_is_trimmed_is_refused_by_real_envoys_and_what_is_not_is_answered() {
    let setup = Setup::default()
        .with("KUMA_IPAM_MESH_SERVICE_CIDR", "127.250.0.0/16")
        .with("KUMA_XDS_SERVER_PERMISSIONS_DRAIN", "1s");
    let world = World::start(setup);
    let gone = world.control_plane.client().delete("/meshes/default/meshtrafficpermissions/every-client");
    assert_eq!(gone.unwrap().status, 200);
    permit(&world, 0);
    let mut enforcing = mesh("STRICT");
    enforcing["labels"] = json!({"reachability.kuma.io/mode": "enforce"});
    world.put("/meshes/default", &enforcing);
    let members: Vec<Member> = (0..SERVICES).map(|number| member(&world, number)).collect();
    let mut answered = 0;
    let mut refused = 0;
    for seed in 1..=SEEDS {
        permit(&world, seed);
        for client in &members {
            let mut expected = BTreeSet::new();
            for (port, server) in (10001..).zip(&members) {
                let allowed = allowed(&world, &client.name, &server.name);
                let status = if allowed { 200 } else { 403 };
                let mut last = None;
                eventually(&format!("seed {seed}: {} to {}: {status}", client.name, server.name), || {
                    last = call(client.address, port).ok().map(|answer| answer.status);
                    last == Some(status)
                })
                .unwrap_or_else(|error| panic!("{error}: {last:?}"));
                if allowed {
                    expected.insert(server.name.clone());
                    answered += 1;
                } else {
                    refused += 1;
                }
            }
            let mut found = BTreeSet::new();
            eventually(&format!("seed {seed}: what {} is offered", client.name), || {
                found = generated(&client.proxy);
                found == expected
            })
            .unwrap_or_else(|error| panic!("{error}: {found:?} instead of {expected:?}"));
        }
    }
    // Whatever the seeds are, some of both must be there.
    assert!(answered > 20 && refused > 20, "{answered} answered, {refused} refused");
}
