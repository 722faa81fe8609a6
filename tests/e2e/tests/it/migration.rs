//! Turning unified names on and off while requests pass.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
};

use e2e::{
    Setup, eventually,
    proxy::{RunningProxy, own_address},
    service::{Service, call, dataplane, with_outbound},
};
use serde_json::{Value, json};

use crate::world::{
    StopWhenDropped, UNIFIED, World, answered_by, by_reference, client, load, load_answered, mesh,
};

const LABEL: &str = "features.kuma.io/unified-proxy-resources-and-stats-naming";
const FEATURE: &str = "feature-unified-proxy-resources-and-stats-naming";
const OFTEN: (&str, &str) = ("KUMA_DATAPLANE_RUNTIME_OBSERVED_CALLS_INTERVAL", "1s");
/// Names from before a switch are there until then.
const SOON: (&str, &str) = ("KUMA_DATAPLANE_DRAIN_TIME", "3s");

/// Permission by MeshSubset: `friend` may call, `foe` may not.
fn permissions() -> serde_json::Value {
    let entry = |service: &str, action: &str| {
        json!({"targetRef": {"kind": "MeshSubset", "tags": {"kuma.io/service": service}},
            "default": {"action": action}})
    };
    let from = [entry("friend", "Allow"), entry("foe", "Deny")];
    json!({"type": "MeshTrafficPermission", "mesh": "default", "name": "every-client", "spec": {"from": from}})
}

#[test]
fn names_are_flipped_under_load_without_a_failure_and_permissions_stay() {
    let world = World::start(Setup::default());
    world.put("/meshes/default/meshtrafficpermissions/every-client", &permissions());
    let (address, app) =
        (own_address(), Service::start("web-1", "http", (own_address(), 9000).into()).unwrap());
    let flipped = dataplane("web-1", "web", address, "http", app.address);
    let mut proxy = world.proxy(&flipped);
    let _other = world.service("web-2", "web", "http");
    let (_friend, friend) = client(&world, "friend", &[by_reference("web")]);
    let (_foe, foe) = client(&world, "foe", &[by_reference("web")]);
    let status = |address| call(address, 10001).map(|answer| answer.status).unwrap_or_default();
    eventually("permissions to be in effect", || status(friend) == 200 && status(foe) == 403).unwrap();

    let serves_and_refuses = |proxy: &RunningProxy, filter: &str, permissions: &str| {
        let counts = || {
            let count = |name: &str| proxy.stat(&format!("http.{filter}.rbac.{permissions}.{name}")).unwrap();
            (count("allowed"), count("denied"))
        };
        eventually("the flipped proxy to let in and to refuse", || {
            let (allowed, denied) = counts();
            allowed > 20 && denied > 20
        })
        .unwrap_or_else(|error| panic!("{error}: {:?}", counts()));
    };
    let older = format!("inbound_{}_8080", address.to_string().replace('.', "_"));
    let flips = [(&[UNIFIED][..], "self_main", "self_main"), (&[][..], "localhost_9000", older.as_str())];
    let mut refusals = (0, Vec::new());
    let (calls, failures) = load(friend, 10001, || {
        refusals = load_answered(403, foe, 10001, || {
            for (variables, filter, permissions) in flips {
                proxy.terminate().unwrap();
                assert!(proxy.ended().unwrap().success());
                proxy = world.proxy_with(&flipped, variables);
                serves_and_refuses(&proxy, filter, permissions);
            }
        });
    });
    assert!(failures.is_empty(), "{} of {calls} calls failed: {failures:?}", failures.len());
    let (calls, failures) = refusals;
    assert!(failures.is_empty(), "{} of {calls} calls were not refused: {failures:?}", failures.len());
}

/// Two services that call each other, each through its own proxy at port 10001 of its address.
struct Pair {
    world: World,
    names: [&'static str; 2],
    dataplanes: Vec<Value>,
    proxies: Vec<RunningProxy>,
    addresses: [Ipv4Addr; 2],
    _apps: Vec<Service>,
}

impl Pair {
    fn start() -> Pair {
        let world = World::start(Setup::default());
        let page = json!({"type": "MeshMetric", "mesh": "default", "name": "page", "spec": {"default": {
            "backends": [{"type": "Prometheus", "prometheus": {"port": 5671}}]}}});
        world.put("/meshes/default/meshmetrics/page", &page);
        let names = ["ping", "pong"];
        let addresses = names.map(|_| own_address());
        let apps: Vec<_> = names
            .iter()
            .map(|name| Service::start(name, "http", (own_address(), 9000).into()).unwrap())
            .collect();
        let own = |at: usize| {
            let own = dataplane(names[at], names[at], addresses[at], "http", apps[at].address);
            with_outbound(own, addresses[at], 10001, by_reference(names[1 - at]))
        };
        let dataplanes = vec![own(0), own(1)];
        let proxies = dataplanes.iter().map(|own| world.proxy_with(own, &[OFTEN, SOON])).collect();
        Pair { world, names, dataplanes, proxies, addresses, _apps: apps }
    }

    fn label_mesh(&self, value: Option<&str>) {
        let mut labelled = mesh("STRICT");
        labelled["labels"] = value.map_or(json!({}), |value| json!({ LABEL: value }));
        self.world.put("/meshes/default", &labelled);
    }

    /// Waits until everything about a proxy speaks of these names, and nothing of the others.
    fn is_switched(&self, at: usize, unified: bool) {
        let other = self.names[1 - at];
        let kri = format!("kri_msvc_default_default__{other}_main");
        let older = format!("default_{other}__default_msvc_8080");
        let (cluster, gone) = if unified { (&kri, &older) } else { (&older, &kri) };
        let (inbound, gone_inbound) =
            if unified { ("self_main", "localhost:9000") } else { ("localhost:9000", "self_main") };
        let proxy = &self.proxies[at];
        let mut last = String::new();
        eventually("the names in the configuration", || {
            last = proxy.admin("/clusters").unwrap_or_default();
            let has = |name: &str| last.contains(&format!("{name}::"));
            has(cluster) && has(inbound) && !has(gone) && !has(gone_inbound)
        })
        .unwrap_or_else(|error| panic!("{error}: {last}\n{}", self.world.control_plane.log()));
        let mut last = String::new();
        eventually("the names of listeners", || {
            last = proxy.admin("/listeners").unwrap_or_default();
            last.contains("self_main::") == unified && last.contains("inbound:") != unified
        })
        .unwrap_or_else(|error| panic!("{error}: {last}"));
        eventually("statistics to have the names", || {
            proxy.stat(&format!("cluster.{cluster}.upstream_rq_total")).is_ok_and(|count| count > 5)
        })
        .unwrap();
        self.world.insight(self.names[at], |insight| {
            let features = insight["metadata"]["features"].as_array().cloned().unwrap_or_default();
            features.contains(&json!(FEATURE)) == unified
        });
        let page = e2e::Client::new(format!("http://{}:5671", self.addresses[at]));
        let mut last = String::new();
        eventually("the page of metrics to have the names", || {
            last = page.get("/metrics").map(|answer| answer.body).unwrap_or_default();
            let mut calls = last.lines().filter(|line| line.starts_with("envoy_cluster_upstream_rq_total{"));
            let has = |name: &str, line: &str| line.contains(&format!("envoy_cluster_name=\"{name}\""));
            calls.any(|line| has(cluster, line)) && !last.lines().any(|line| has(gone, line))
        })
        .unwrap_or_else(|error| panic!("{error}: {last}"));
    }

    fn observed(&self, at: usize) -> u64 {
        let all = self.world.control_plane.client().get("/meshes/default/_observed").unwrap().json();
        let caller = json!(format!("spiffe://default/{}", self.names[at]));
        let edges = all["edges"].as_array().cloned().unwrap_or_default();
        let of_caller = edges.iter().filter(|edge| edge["caller"] == caller);
        of_caller.filter_map(|edge| edge["count"].as_u64()).sum()
    }

    fn both_are_switched(&self, unified: bool) {
        let before = [0, 1].map(|at| self.observed(at));
        [0, 1].into_iter().for_each(|at| self.is_switched(at, unified));
        let counted =
            |scheme: &str| format!("xds_proxies_naming{{mesh=\"default\",scheme=\"{scheme}\"}} 2\n");
        let page = self.world.control_plane.diagnostics().get("/metrics").unwrap().body;
        let [wanted, gone] = if unified { ["unified", "legacy"] } else { ["legacy", "unified"] };
        assert!(page.contains(&counted(wanted)) && !page.contains(&format!("scheme=\"{gone}\"")), "{page}");
        for at in [0, 1] {
            eventually("calls to be seen after the switch", || self.observed(at) > before[at]).unwrap();
        }
    }
}

/// Calls on one connection for as long as the server keeps it, until stopped; returns what failed.
fn calls_on_kept_connections(address: Ipv4Addr, stop: &AtomicBool) -> Vec<String> {
    let mut failures = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let stream = TcpStream::connect((address, 10001)).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        loop {
            match call_on(&stream, &mut reader) {
                Ok(head) if head.starts_with("http/1.1 200") => {
                    if head.contains("connection: close") || stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
                Ok(head) => failures.push(head),
                Err(error) => {
                    failures.push(error.to_string());
                    break;
                }
            }
        }
    }
    failures
}

/// Returns the head of the answer, in lower case.
fn call_on(mut stream: &TcpStream, reader: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    stream.write_all(b"GET / HTTP/1.1\r\nhost: other\r\n\r\n")?;
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Err(std::io::Error::other(format!("the connection ended after {head:?}")));
        }
    }
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or_default()];
    reader.read_exact(&mut body)?;
    Ok(head)
}

#[test]
fn a_label_of_the_mesh_switches_names_under_load_without_a_restart() {
    let mut pair = Pair::start();
    let envoys: Vec<u32> = pair.proxies.iter().map(|proxy| proxy.envoy_pid().unwrap()).collect();
    let [ping, pong] = pair.addresses;
    assert_eq!(answered_by(ping, 10001), "pong");
    assert_eq!(answered_by(pong, 10001), "ping");
    let mut of_pong = (0, Vec::new());
    let (calls, failures) = load(ping, 10001, || {
        of_pong = load(pong, 10001, || {
            pair.both_are_switched(false);
            for (label, unified) in
                [(Some("enabled"), true), (Some("disabled"), false), (Some("enabled"), true)]
            {
                pair.label_mesh(label);
                pair.both_are_switched(unified);
            }
            // A value that is not known is ignored, and the agents ask for the older names.
            pair.label_mesh(Some("yes"));
            pair.both_are_switched(false);
        });
    });
    assert!(failures.is_empty(), "{} of {calls} calls failed: {failures:?}", failures.len());
    let (calls, failures) = of_pong;
    assert!(failures.is_empty(), "{} of {calls} calls failed: {failures:?}", failures.len());
    let same: Vec<u32> = pair.proxies.iter().map(|proxy| proxy.envoy_pid().unwrap()).collect();
    assert_eq!(same, envoys, "no Envoy was started again");
    let findings = pair.world.control_plane.client().get("/meshes/default/_problems").unwrap().body;
    assert!(findings.contains("unknown-naming"), "{findings}");
    pair.proxies.clear();
}

#[test]
fn a_label_of_a_dataplane_counts_more_than_that_of_its_mesh() {
    let mut pair = Pair::start();
    let [ping, pong] = pair.addresses;
    assert_eq!(answered_by(ping, 10001), "pong");
    assert_eq!(answered_by(pong, 10001), "ping");
    let (calls, failures) = load(ping, 10001, || {
        let (calls, failures) = load(pong, 10001, || {
            let mut own = pair.dataplanes[0].clone();
            own["labels"] = json!({ LABEL: "disabled" });
            pair.world.put("/meshes/default/dataplanes/ping", &own);
            pair.label_mesh(Some("enabled"));
            pair.is_switched(1, true);
            pair.is_switched(0, false);
            own["labels"] = json!({ LABEL: "enabled" });
            pair.world.put("/meshes/default/dataplanes/ping", &own);
            pair.label_mesh(None);
            pair.is_switched(0, true);
            pair.is_switched(1, false);
        });
        assert!(failures.is_empty(), "{} of {calls} calls failed: {failures:?}", failures.len());
    });
    assert!(failures.is_empty(), "{} of {calls} calls failed: {failures:?}", failures.len());
    pair.proxies.clear();
}

#[test]
fn connections_that_are_kept_lose_no_call_when_either_end_is_switched() {
    let mut pair = Pair::start();
    let [ping, pong] = pair.addresses;
    assert_eq!(answered_by(ping, 10001), "pong");
    assert_eq!(answered_by(pong, 10001), "ping");
    let stop = AtomicBool::new(false);
    let failures: Vec<String> = std::thread::scope(|scope| {
        let stop = &stop;
        // A panic must end the callers too: the scope waits for them.
        let _ending = StopWhenDropped(stop);
        let callers =
            [ping, pong].map(|address| scope.spawn(move || calls_on_kept_connections(address, stop)));
        for (at, unified) in [(0, true), (1, true), (0, false)] {
            let mut own = pair.dataplanes[at].clone();
            own["labels"] = json!({ LABEL: if unified { "enabled" } else { "disabled" } });
            pair.world.put(&format!("/meshes/default/dataplanes/{}", pair.names[at]), &own);
            pair.is_switched(at, unified);
        }
        stop.store(true, Ordering::Relaxed);
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "{failures:?}");
    pair.proxies.clear();
}

#[test]
fn a_proxy_that_is_started_again_before_it_is_stopped_stays_in_service() {
    let world = World::start(Setup::default());
    let app = Service::start("web-1", "http", (own_address(), 9000).into()).unwrap();
    let own = dataplane("web-1", "web", own_address(), "http", app.address);
    // Clients keep their connections to the older proxy until it goes.
    let soon = ("KUMA_DATAPLANE_DRAIN_TIME", "2s");
    let mut proxy = world.proxy_with(&own, &[soon]);
    let (_client, address) = client(&world, "client", &[by_reference("web")]);
    assert_eq!(answered_by(address, 10001), "web-1");
    for variables in [&[soon, UNIFIED][..], &[soon][..]] {
        let replacement = world.proxy_with(&own, variables);
        eventually("the replacement to be connected", || {
            replacement.stat("control_plane.connected_state").is_ok_and(|connected| connected == 1)
        })
        .unwrap();
        proxy.terminate().unwrap();
        assert!(proxy.ended().unwrap().success());
        proxy = replacement;
        assert_eq!(answered_by(address, 10001), "web-1");
        let stored = world.control_plane.client().get("/meshes/default/dataplanes/web-1").unwrap().json();
        assert_ne!(stored["networking"]["inbound"][0]["state"], "NotReady", "{stored:#}");
    }
}
