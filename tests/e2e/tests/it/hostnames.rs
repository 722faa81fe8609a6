//! Hostnames of VirtualOutbounds, from the write to the agent, and with two control planes on one store.

use std::collections::{BTreeMap, BTreeSet};

use e2e::{ControlPlane, Setup, eventually, proxy::own_address, service::dataplane};
use serde_json::{Value, json};
use testkit::ports::own_port;

use crate::world::World;

fn virtual_outbound(host: &str, port: u16) -> Value {
    json!({"type": "VirtualOutbound", "mesh": "default", "name": "names",
        "selectors": [{"match": {"kuma.io/service": "*"}}],
        "conf": {"host": host, "port": port, "tags": {"kuma.io/service": "service"}}})
}

/// A Dataplane whose traffic would be redirected.
pub fn redirected(name: &str) -> Value {
    let mut own = dataplane(name, name, own_address(), "http", (own_address(), 9000).into());
    let [inbound, outbound] = [(); 2].map(|()| own_port().unwrap());
    own["networking"]["transparentProxying"] =
        json!({"redirectPortInbound": inbound, "redirectPortOutbound": outbound});
    own
}

fn hostnames(control_plane: &ControlPlane, dataplane: &str) -> Value {
    let path = format!("/meshes/default/dataplanes/{dataplane}/_hostnames");
    control_plane.client().get(&path).map(|answer| answer.json()).unwrap_or_default()
}

#[test]
fn a_hostname_taken_from_a_service_is_reported_and_follows_the_policy() {
    let world = World::start(Setup::default());
    let client = world.control_plane.client();
    let service = json!({"type": "MeshService", "mesh": "default", "name": "backend", "spec": {
        "selector": {"dataplaneTags": {"kuma.io/service": "backend"}},
        "ports": [{"port": 8080, "targetPort": 8080, "appProtocol": "http"}]}});
    world.put("/meshes/default/meshservices/backend", &service);
    let backend = dataplane("backend", "backend", own_address(), "http", (own_address(), 9000).into());
    world.put("/meshes/default/dataplanes/backend", &backend);
    eventually("the service to have a hostname", || {
        let service = client.get("/meshes/default/meshservices/backend").unwrap().json();
        service["status"]["addresses"][0]["hostname"] == "backend.svc.mesh.local"
    })
    .unwrap();

    let policy = virtual_outbound("{{service}}.svc.mesh.local", 8080);
    let answer = client.put("/meshes/default/virtual-outbounds/names", &policy).unwrap();
    assert_eq!(answer.status, 201, "{}", answer.body);
    let told = "backend.svc.mesh.local:8080 is claimed by VirtualOutbound \"names\" for kuma.io/service=backend and by \
                MeshService \"backend\"; the first one has it";
    let warnings = answer.json()["warnings"].clone();
    assert!(warnings.as_array().unwrap().iter().any(|warning| warning == told), "{warnings}");
    // No proxy is connected, so neither is offered to one.
    let problems = client.get("/meshes/default/_problems").unwrap().json();
    let found = problems["items"]
        .as_array()
        .unwrap()
        .iter()
        .any(|problem| problem["code"] == "hostname-conflict" && problem["message"] == told);
    assert!(found, "{problems:#}");

    let dns_port = own_port().unwrap().to_string();
    let proxy = world.proxy_with(&redirected("client"), &[("KUMA_DNS_PROXY_PORT", &dns_port)]);
    let mut address = String::new();
    eventually("the client to be offered the hostname", || {
        let items = hostnames(&world.control_plane, "client")["items"].clone();
        let item =
            items.as_array().into_iter().flatten().find(|item| item["hostname"] == "backend.svc.mesh.local");
        let Some(item) = item.filter(|item| item["ports"][0]["origin"]["kind"] == "VirtualOutbound") else {
            return false;
        };
        address = item["addresses"][0].as_str().unwrap_or_default().to_owned();
        address.starts_with("240.")
    })
    .unwrap();
    eventually("the agent's document to have it", || {
        let dump = proxy.admin("/config_dump?resource=dynamic_route_configs").unwrap_or_default();
        dump.contains("backend.svc.mesh.local") && dump.contains(&address)
    })
    .unwrap();
}

const ROUNDS: usize = 20;
const BATCH: usize = 10;

fn hostname(round: usize, i: usize) -> String {
    format!("s-{round}-{i}.mesh")
}

/// A Dataplane whose inbounds make the hostnames of a round.
fn servers(round: usize) -> Value {
    let inbound = |i: usize| {
        let service = format!("s-{round}-{i}");
        json!({"port": 8000 + i, "tags": {"kuma.io/service": service, "kuma.io/protocol": "http"}})
    };
    let inbounds: Vec<Value> = (0..BATCH).map(inbound).collect();
    let networking = json!({"address": own_address().to_string(), "inbound": inbounds});
    json!({"type": "Dataplane", "mesh": "default", "name": format!("dp-{round}"), "networking": networking})
}

/// The address of each hostname of the rounds, as this control plane tells it.
fn addresses(control_plane: &ControlPlane) -> BTreeMap<String, String> {
    let listed = hostnames(control_plane, "client");
    let of = |item: &Value| {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Some((text(&item["hostname"])?, text(&item["addresses"][0])?))
    };
    let items = listed["items"].as_array().into_iter().flatten().filter_map(of);
    items.filter(|(hostname, _)| hostname.starts_with("s-")).collect()
}

#[test]
fn two_control_planes_tell_the_same_addresses_while_hostnames_come_and_go() {
    let database = testkit::postgres::fresh_database().unwrap();
    let setup = || Setup::default().on_postgres(&database).with("KUMA_DNS_SERVER_CIDR", "240.0.0.0/16");
    let mut worlds = [World::start(setup()), World::join(setup())];
    worlds[0].put("/meshes/default/virtual-outbounds/names", &virtual_outbound("{{service}}.mesh", 80));
    worlds[0].put("/meshes/default/dataplanes/client", &redirected("client"));
    let mut given: BTreeMap<String, String> = BTreeMap::new();
    for round in 0..ROUNDS {
        worlds[round % 2].put(&format!("/meshes/default/dataplanes/dp-{round}"), &servers(round));
        let oldest = round.saturating_sub(1);
        let wanted: BTreeSet<String> =
            (oldest..=round).flat_map(|round| (0..BATCH).map(move |i| hostname(round, i))).collect();
        let mut told = Vec::new();
        eventually("both control planes to have an address for every hostname", || {
            told = worlds.iter().map(|world| addresses(&world.control_plane)).collect();
            told.iter().all(|told| wanted.iter().all(|hostname| told.contains_key(hostname)))
        })
        .unwrap();
        for hostname in &wanted {
            let one = &told[0][hostname];
            let other = &told[1][hostname];
            assert_eq!(one, other, "{hostname}");
            // No quarantine ends here, so an address that one hostname had is never another one's.
            let before = given.insert(one.clone(), hostname.clone());
            assert!(before.is_none_or(|before| before == *hostname), "{hostname} has a used address, {one}");
        }
        let distinct: BTreeSet<&String> = given.values().collect();
        assert_eq!(distinct.len(), given.len(), "no hostname had two addresses");
        if round > 0 {
            let client = worlds[(round + 1) % 2].control_plane.client();
            let gone = client.delete(&format!("/meshes/default/dataplanes/dp-{}", round - 1)).unwrap();
            assert_eq!(gone.status, 200);
        }
        if round == 7 || round == 12 {
            let control_plane = &mut worlds[round % 2].control_plane;
            control_plane.kill().unwrap();
            control_plane.start_again().unwrap();
        }
    }
    assert_eq!(given.len(), ROUNDS * BATCH);
}
