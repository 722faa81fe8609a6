//! Faults of links, control planes, zone proxies and whole zones: their effect on three zones, and on the traffic
//! between them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    net::Ipv4Addr,
    thread,
    time::Duration,
};

use e2e::{ControlPlane, Kumactl, Setup, eventually, proxy::RunningProxy, service::Service};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use resources::naming::kds::hashed_name;
use serde_json::{Value, json};

use crate::{
    federated::{Federation, by_name, of_zone},
    relay::Relayed,
    traffic::Traffic,
    world::answered_by,
};

const ZONES: [&str; 3] = ["east", "south", "west"];
/// Collections that synchronisation must leave alone.
const LISTS: [&str; 12] = [
    "/meshes",
    "/meshtrafficpermissions",
    "/meshtimeouts",
    "/meshretries",
    "/meshcircuitbreakers",
    "/meshservices",
    "/meshmultizoneservices",
    "/hostnamegenerators",
    "/zoneingresses",
    "/dataplanes",
    "/meshes/default/secrets",
    "/global-secrets",
];
/// Envoy's counters of received configuration.
const UPDATES: [&str; 3] = [".update_success", ".update_rejected", ".membership_change"];

/// Clusters of the bootstrap.
const RESOLVED: [&str; 2] = ["cluster.ads_cluster.", "cluster.system_"];

/// Three zones with an ingress each. `backend` is in west and south, `shop` in east; `everywhere` is every `backend`.
struct World {
    relayed: Relayed,
    /// By name.
    proxies: BTreeMap<String, RunningProxy>,
    _apps: Vec<Service>,
    /// Outbound addresses of the clients: `web` in east, `caller` in west.
    web: Ipv4Addr,
    caller: Ipv4Addr,
    /// Address of the ingress of south.
    gate: Ipv4Addr,
}

fn everywhere() -> Value {
    json!({"type": "MeshMultiZoneService", "mesh": "default", "name": "everywhere", "spec": {
        "selector": {"meshService": {"matchLabels": {"kuma.io/display-name": "backend"}}},
        "ports": [{"name": "main", "port": 8080, "appProtocol": "http"}]}})
}

fn by_label(name: &str) -> Value {
    let labels = json!({"kuma.io/display-name": name});
    json!({"backendRef": {"kind": "MeshMultiZoneService", "labels": labels, "port": 8080}})
}

/// Silence is noticed soon, and a zone that is away is withdrawn after `withdraw_after`.
fn impatient(setup: Setup, withdraw_after: &str) -> Setup {
    let key = |side: &str, what: &str| format!("KUMA_MULTIZONE_{side}_KDS_{what}");
    let mut setup = setup
        .with(&key("GLOBAL", "ZONE_WITHDRAW_AFTER"), withdraw_after)
        .with(&key("GLOBAL", "ZONE_INSIGHT_FLUSH_INTERVAL"), "100ms");
    for side in ["GLOBAL", "ZONE"] {
        setup =
            setup.with(&key(side, "KEEP_ALIVE_INTERVAL"), "1s").with(&key(side, "KEEP_ALIVE_TIMEOUT"), "2s");
    }
    setup
}

impl World {
    /// With `mixed` some of the proxies have unified names.
    fn start(withdraw_after: &str, mixed: bool) -> World {
        let mut relayed = Relayed::start(&ZONES, |_, setup| impatient(setup, withdraw_after));
        let federation = &mut relayed.federation;
        federation.global.put("/meshes/default/meshmultizoneservices/everywhere", &everywhere());
        let mut proxies = BTreeMap::new();
        let mut apps = Vec::new();
        for (zone, name, service, unified) in [
            ("west", "backend-west", "backend", mixed),
            ("south", "backend-south", "backend", false),
            ("east", "shop-east", "shop", mixed),
        ] {
            federation.unified = unified;
            let (app, proxy) = federation.serve(zone, name, service);
            apps.push(app);
            proxies.insert(name.to_owned(), proxy);
        }
        let mut gate = Ipv4Addr::LOCALHOST;
        for zone in ZONES {
            federation.unified = mixed && zone == "east";
            let (proxy, address) = federation.ingress(zone);
            proxies.insert(format!("gate-{zone}"), proxy);
            gate = if zone == "south" { address } else { gate };
        }
        for (zone, service, of) in
            [("east", "backend", "west"), ("east", "backend", "south"), ("west", "shop", "east")]
        {
            federation.knows(zone, service, of);
        }
        let targets =
            [of_zone("backend", "west"), by_label("everywhere"), by_name("MeshService", "shop", 8080)];
        federation.unified = mixed;
        let (proxy, web) = federation.client("east", "web", &targets);
        proxies.insert("web".to_owned(), proxy);
        let targets = [of_zone("shop", "east"), by_name("MeshService", "backend", 8080)];
        federation.unified = false;
        let (proxy, caller) = federation.client("west", "caller", &targets);
        proxies.insert("caller".to_owned(), proxy);
        World { relayed, proxies, _apps: apps, web, caller, gate }
    }

    /// Calls within zones and between them.
    fn traffic(&self) -> Traffic {
        Traffic::start(&[
            ("east to west", self.web, 10001),
            ("east to everywhere", self.web, 10002),
            ("within east", self.web, 10003),
            ("west to east", self.caller, 10001),
            ("within west", self.caller, 10002),
        ])
    }

    fn federation(&self) -> &Federation {
        &self.relayed.federation
    }

    fn global(&mut self) -> &mut ControlPlane {
        &mut self.relayed.federation.global.control_plane
    }

    fn zone(&mut self, name: &str) -> &mut ControlPlane {
        &mut self.relayed.federation.zone_mut(name).control_plane
    }

    /// Waits until the global control plane says this about these zones.
    fn are(&self, zones: &[&str], status: &str) {
        let global = &self.federation().global.control_plane;
        for zone in zones {
            let mut last = Value::Null;
            eventually(&format!("{zone} to be {status}"), || {
                let overview = global.client().get(&format!("/zones/{zone}/_overview"));
                last = overview.map(|answer| answer.json()).unwrap_or_default();
                status_of(&last["zoneInsight"]) == status
            })
            .unwrap_or_else(|error| panic!("{error}: {last}\n{}", global.log()));
        }
    }

    /// Resources of every control plane and counted updates of every proxy, once neither changes any more.
    fn settled(&self) -> BTreeMap<String, Value> {
        let mut last = BTreeMap::new();
        let mut changed = Vec::new();
        let mut same = 0;
        eventually("nothing to change any more", || {
            let now = self.seen();
            let different = differences(&last, &now);
            last = now;
            same = if different.is_empty() { same + 1 } else { 0 };
            changed = if different.is_empty() { std::mem::take(&mut changed) } else { different };
            thread::sleep(Duration::from_millis(200));
            same == 3
        })
        .unwrap_or_else(|error| panic!("{error}: {}", changed.join("\n")));
        last
    }

    fn seen(&self) -> BTreeMap<String, Value> {
        let mut seen = BTreeMap::new();
        let federation = self.federation();
        let zones = ZONES.map(|zone| (zone, &federation.zone(zone).control_plane));
        for (name, control_plane) in zones.into_iter().chain([("global", &federation.global.control_plane)]) {
            for list in LISTS {
                let answer = control_plane.client().get(&format!("{list}?size=1000")).unwrap();
                assert_eq!(answer.status, 200, "{name}: {list}: {}", answer.body);
                for item in answer.json()["items"].as_array().unwrap() {
                    let item_name = item["name"].as_str().unwrap();
                    seen.insert(format!("{name}: {list}/{item_name}"), item.clone());
                }
            }
        }
        for (name, proxy) in &self.proxies {
            let stats = proxy.admin("/stats?usedonly").unwrap();
            for (stat, value) in stats.lines().filter_map(|line| line.split_once(": ")) {
                // Names of hosts are looked up all the time.
                let is_sent = !RESOLVED.iter().any(|cluster| stat.starts_with(cluster));
                if is_sent && UPDATES.iter().any(|update| stat.ends_with(update)) {
                    seen.insert(format!("{name}: {stat}"), json!(value));
                }
            }
        }
        seen
    }
}

fn status_of(insight: &Value) -> &'static str {
    let subscriptions = insight["subscriptions"].as_array();
    let is_connected =
        subscriptions.into_iter().flatten().any(|subscription| subscription["disconnectTime"].is_null());
    match &insight["absence"] {
        Value::Null if is_connected => "Online",
        absence if absence["withdrawn"] == true => "Offline",
        Value::Null => "",
        _ => "Unknown",
    }
}

/// Resources without the times of their writing, and without proxies.
fn resources(seen: &BTreeMap<String, Value>) -> BTreeMap<&str, Value> {
    let resources = seen.iter().filter(|(_, value)| value.is_object());
    resources
        .map(|(name, value)| {
            let mut value = value.clone();
            value.as_object_mut().unwrap().remove("modificationTime");
            (name.as_str(), value)
        })
        .collect()
}

fn differences<K: Ord + Display>(before: &BTreeMap<K, Value>, after: &BTreeMap<K, Value>) -> Vec<String> {
    let keys: BTreeSet<&K> = before.keys().chain(after.keys()).collect();
    keys.into_iter()
        .filter(|key| before.get(key) != after.get(key))
        .map(|key| format!("{key}: {:?} became {:?}", before.get(key), after.get(key)))
        .collect()
}

fn assert_same<K: Ord + Display>(before: &BTreeMap<K, Value>, after: &BTreeMap<K, Value>) {
    let different = differences(before, after);
    assert!(different.is_empty(), "{}", different.join("\n"));
}

fn links_are_cut(world: &World, traffic: &Traffic) {
    let before = world.settled();
    for round in 0..5 {
        world.relayed.relays().for_each(crate::relay::Relay::cut);
        world.are(&ZONES, "Unknown");
        traffic.is_unharmed(&format!("links are cut for the time {round}"));
        world.relayed.relays().for_each(crate::relay::Relay::restore);
        world.are(&ZONES, "Online");
    }
    assert_same(&before, &world.settled());
}

fn a_link_is_half_open(world: &World, traffic: &Traffic) {
    world.relayed.relay("west").silence();
    world.are(&["west"], "Unknown");
    world.are(&["east", "south"], "Online");
    // Both ends have found out, and say so.
    let west = &world.federation().zone("west").control_plane;
    for control_plane in [&world.federation().global.control_plane, west] {
        let kumactl = Kumactl::of(control_plane).unwrap();
        eventually("kumactl to show it", || {
            let shown = kumactl.ok(&["inspect", "zones"]).unwrap();
            shown.lines().any(|line| line.starts_with("west") && line.contains("Unknown"))
        })
        .unwrap();
    }
    traffic.is_unharmed("a link is half-open");
    world.relayed.relay("west").restore();
    world.are(&["west"], "Online");
}

/// The address of a proxy as Envoy shows it.
fn endpoint_of(world: &World, zone: &str, dataplane: &str) -> String {
    let control_plane = world.federation().zone(zone).control_plane.client();
    let stored = control_plane.get(&format!("/meshes/default/dataplanes/{dataplane}")).unwrap().json();
    format!("::{}:", stored["networking"]["address"].as_str().unwrap())
}

/// Ends an instance of `backend` in order, and waits until `caller` no longer calls it.
fn is_ended(world: &World, zone: &str, (name, mut proxy): (&str, RunningProxy)) {
    let control_plane = world.federation().zone(zone).control_plane.client();
    let path = format!("/meshes/default/dataplanes/{name}");
    let endpoint = endpoint_of(world, zone, name);
    for proxy in [&proxy, &world.proxies["caller"]] {
        eventually("a connection to the control plane", || {
            proxy.stat("control_plane.connected_state").is_ok_and(|connected| connected == 1)
        })
        .unwrap();
    }
    proxy.terminate().unwrap();
    assert!(proxy.ended().unwrap().success());
    eventually("the instance to be called no more", || {
        let clusters = world.proxies["caller"].admin("/clusters").unwrap();
        !clusters.contains(&endpoint) && control_plane.get(&path).is_ok_and(|answer| answer.status == 404)
    })
    .unwrap();
}

fn global_is_dead(world: &mut World, traffic: &Traffic) {
    let before = world.settled();
    world.global().kill().unwrap();
    let (_app, second) = world.federation().serve("west", "backend-west-2", "backend");
    eventually("the new instance to be called", || answered_by(world.caller, 10002) == "backend-west-2")
        .unwrap();
    // Connections of other zones stay where they are; new ones may be led to it.
    let endpoint = endpoint_of(world, "west", "backend-west-2");
    eventually("the ingress to lead to the new instance", || {
        world.proxies["gate-west"].admin("/clusters").unwrap().contains(&endpoint)
    })
    .unwrap();
    world.zone("west").kill().unwrap();
    traffic.is_unharmed("two control planes are dead");
    world.zone("west").start_again().unwrap();
    is_ended(world, "west", ("backend-west-2", second));
    let (_app, third) = world.federation().serve("south", "backend-south-2", "backend");
    traffic.is_unharmed("global is dead");

    world.global().start_again().unwrap();
    world.are(&ZONES, "Online");
    let path = hashed_name("default", "backend-south-2", Some("south"), None);
    let path = format!("/meshes/default/dataplanes/{path}");
    let global = world.federation().global.control_plane.client();
    let is_there = || global.get(&path).is_ok_and(|answer| answer.status == 200);
    eventually("what came while global was dead", is_there).unwrap();
    is_ended(world, "south", ("backend-south-2", third));
    eventually("what went", || !is_there()).unwrap();
    traffic.is_unharmed("global is back");
    assert_same(&resources(&before), &resources(&world.settled()));
}

#[test]
fn zones_without_their_global_control_plane_keep_what_they_have_and_go_on() {
    let mut world = World::start("5m", false);
    let traffic = world.traffic();
    links_are_cut(&world, &traffic);
    a_link_is_half_open(&world, &traffic);
    global_is_dead(&mut world, &traffic);
}

impl World {
    /// The name of the cluster for `everywhere` in the proxy `web`, which has unified names.
    fn changes_of_everywhere(&self) -> u64 {
        let stat = "cluster.kri_mzsvc_default___everywhere_main.membership_change";
        self.proxies["web"].stat(stat).unwrap()
    }

    /// True if `web` may call the ingress of south.
    fn calls_south(&self) -> bool {
        let clusters = self.proxies["web"].admin("/clusters").unwrap();
        clusters.contains(&format!("::{}:", self.gate))
    }

    /// Starts the ingress of south again, and waits until the others know it.
    fn restart_gate(&mut self) {
        let (proxy, address) = self.federation().ingress("south");
        // The one before it ends here, at the latest.
        self.proxies.insert("gate-south".to_owned(), proxy);
        self.gate = address;
        eventually("south to be called", || self.calls_south()).unwrap();
        eventually("an answer from south", || answered_by(self.web, 10002) == "backend-south").unwrap();
    }

    /// Nothing that was sent to a proxy or to a zone was rejected.
    fn nothing_was_rejected(&self) {
        let federation = self.federation();
        let zones = ZONES.map(|zone| &federation.zone(zone).control_plane);
        for control_plane in zones.into_iter().chain([&federation.global.control_plane]) {
            for list in ["/dataplanes", "/zoneingresses", "/zones"] {
                let overview = control_plane.client().get(&format!("{list}/_overview?size=1000")).unwrap();
                assert!(!overview.body.contains("responsesRejected"), "{}", overview.body);
            }
        }
    }
}

/// At most the call that was on its way to what has died.
fn only_what_was_in_flight_failed(traffic: &Traffic) {
    traffic.goes_on();
    let failures = traffic.failures();
    let to_south = failures.iter().filter(|failure| failure.starts_with("east to everywhere")).count();
    assert!(failures.len() == to_south && to_south <= 1, "{failures:?}");
}

fn a_zone_vanishes_and_returns(world: &mut World, traffic: &Traffic) {
    let before = world.changes_of_everywhere();
    world.zone("south").kill().unwrap();
    world.proxies.get_mut("gate-south").unwrap().kill().unwrap();
    world.are(&["south"], "Offline");
    eventually("south to be called no more", || !world.calls_south()).unwrap();
    only_what_was_in_flight_failed(traffic);
    assert_eq!(world.changes_of_everywhere(), before + 1);
    traffic.is_unharmed("south is gone");

    world.zone("south").start_again().unwrap();
    world.restart_gate();
    world.are(&ZONES, "Online");
    traffic.is_unharmed("south is back");
    assert_eq!(world.changes_of_everywhere(), before + 2, "it was taken back once");
}

fn processes_are_killed(world: &mut World, traffic: &Traffic) {
    world.global().kill().unwrap();
    traffic.is_unharmed("global is dead");
    // From here on control planes of zones are away for a while, and their zones are not.
    let patient = ("KUMA_MULTIZONE_GLOBAL_KDS_ZONE_WITHDRAW_AFTER".to_owned(), "5m".to_owned());
    let folder = world.global().work_dir().to_owned();
    world.global().start_again_in(&folder, &[patient]).unwrap();
    world.are(&ZONES, "Online");
    for zone in ZONES {
        world.zone(zone).kill().unwrap();
        traffic.is_unharmed(&format!("the control plane of {zone} is dead"));
        world.zone(zone).start_again().unwrap();
        world.are(&[zone], "Online");
    }
    world.proxies.get_mut("gate-south").unwrap().kill().unwrap();
    only_what_was_in_flight_failed(traffic);
    world.restart_gate();
    let envoy = i32::try_from(world.proxies["gate-south"].envoy_pid().unwrap()).unwrap();
    kill(Pid::from_raw(envoy), Signal::SIGKILL).unwrap();
    only_what_was_in_flight_failed(traffic);
    // The agent starts another one.
    eventually("an answer from south", || answered_by(world.web, 10002) == "backend-south").unwrap();
    traffic.is_unharmed("everything runs again");
}

/// Zones write SNIs in another format from then on, one after the other, while some proxies have unified names.
fn zones_are_restarted_with_other_flags(world: &mut World, traffic: &Traffic) {
    for zone in ZONES {
        let control_plane = world.zone(zone);
        assert!(control_plane.stop().unwrap().success());
        let folder = control_plane.work_dir().to_owned();
        let formats = ("KUMA_MULTIZONE_SNI_FORMATS".to_owned(), "kri,hashed".to_owned());
        control_plane.start_again_in(&folder, &[formats]).unwrap();
        world.are(&[zone], "Online");
        traffic.is_unharmed(&format!("{zone} has other flags"));
    }
    let west = hashed_name("default", "backend", Some("west"), None);
    let path = format!("/meshes/default/meshservices/{west}");
    eventually("the SNI of the other format in another zone", || {
        let service = world.federation().zone("east").control_plane.client().get(&path).unwrap().json();
        service["spec"]["ports"][0]["snis"][0]["value"]
            .as_str()
            .is_some_and(|value| value.starts_with("sni."))
    })
    .unwrap();
    traffic.is_unharmed("all zones have other flags");
    world.nothing_was_rejected();
}

#[test]
fn what_dies_harms_no_one_else_and_is_called_again_when_it_is_back() {
    let mut world = World::start("2s", true);
    let traffic = world.traffic();
    a_zone_vanishes_and_returns(&mut world, &traffic);
    processes_are_killed(&mut world, &traffic);
    zones_are_restarted_with_other_flags(&mut world, &traffic);
}
