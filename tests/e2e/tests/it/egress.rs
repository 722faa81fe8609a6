//! Zone proxies as operators see them, in zones that are synchronised: who may leave the mesh through an egress, and
//! what zone proxies say about themselves, asked in their zone and on the global control plane.

use std::net::Ipv4Addr;

use e2e::{
    Client, Kumactl, eventually,
    proxy::{RunningProxy, own_address},
    service::{Service, call},
};
use resources::naming::kds::hashed_name;
use serde_json::{Value, json};

use crate::{
    federated::{Federation, by_name, of_zone},
    world::{World, answered_by, mesh},
};

/// The mesh with traffic through egresses; `forbidding` what is outside, where that is said.
fn through_egress(forbidding: bool) -> Value {
    let mut mesh = mesh("STRICT");
    mesh["routing"] = json!({"zoneEgress": true, "defaultForbidMeshExternalServiceAccess": forbidding});
    mesh
}

fn outside(address: std::net::SocketAddr) -> Value {
    json!({"type": "MeshExternalService", "mesh": "default", "name": "outside", "spec": {
        "match": {"type": "HostnameGenerator", "port": 9000, "protocol": "http"},
        "endpoints": [{"address": address.ip().to_string(), "port": address.port()}]}})
}

/// Permits or denies clients of one service at the port that a server name leads to.
fn permission(effect: &str, sni: &str, service: &str) -> Value {
    let client = json!({"sni": {"type": "Exact", "value": sni},
        "spiffeID": {"type": "Exact", "value": format!("spiffe://default/{service}")}});
    json!({"type": "MeshTrafficPermission", "mesh": "default", "name": "outside",
        "spec": {"rules": [{"default": {(effect): [client]}}]}})
}

fn answers_with(address: Ipv4Addr, port: u16, status: u16) {
    let mut last = String::new();
    eventually(&format!("status {status}"), || {
        let answer = call(address, port);
        last = format!("{answer:?}");
        answer.is_ok_and(|answer| answer.status == status)
    })
    .unwrap_or_else(|error| panic!("{error}: {last}"));
}

fn text(world: &World, path: &str) -> String {
    let answer = world.control_plane.client().get(path).unwrap();
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.body
}

/// Asks a control plane, by REST and by kumactl, what a zone proxy says about `cluster`.
fn tells(world: &World, kind: &str, name: &str, cluster: &str) {
    let path = format!("/{kind}es/{name}");
    assert!(text(world, &format!("{path}/xds")).contains(&format!("\"{cluster}\"")), "{path}/xds");
    assert!(text(world, &format!("{path}/stats")).contains(&format!("cluster.{cluster}.upstream_cx_total:")));
    assert!(text(world, &format!("{path}/clusters")).contains(&format!("{cluster}::")), "{path}/clusters");
    let summary = world.control_plane.client().get(&format!("{path}/stats?format=summary")).unwrap();
    assert_eq!(summary.status, 400, "{}", summary.body);
    let client = Kumactl::of(&world.control_plane).unwrap();
    for (view, expected) in [
        ("config-dump", format!("\"{cluster}\"")),
        ("stats", format!("cluster.{cluster}.upstream_cx_total:")),
        ("clusters", format!("{cluster}::")),
    ] {
        let shown = client.ok(&["inspect", kind, name, &format!("--type={view}")]).unwrap();
        assert!(shown.contains(&expected), "{kind} {name} {view}: {shown}");
    }
    let missing = world.control_plane.client().get(&format!("/{kind}es/missing/xds")).unwrap();
    assert_eq!(missing.status, 404, "{}", missing.body);
}

fn features(world: &World, path: &str, insight: &str) -> Vec<String> {
    let overview: Value = serde_json::from_str(&text(world, &format!("{path}/_overview"))).unwrap();
    let features = overview[insight]["metadata"]["features"].as_array().cloned().unwrap_or_default();
    features.into_iter().filter_map(|feature| feature.as_str().map(str::to_owned)).collect()
}

#[test]
fn an_egress_enforces_permissions_and_zone_proxies_are_inspected() {
    let federation = Federation::start(&["east", "west"], true);
    federation.global.put("/meshes/default", &through_egress(false));
    let app = Service::start("outside", "http", (own_address(), 9000).into()).unwrap();
    federation.global.put("/meshes/default/meshexternalservices/outside", &outside(app.address));
    let (_app, _backend) = federation.serve("west", "backend-west", "backend");
    let (gate, _) = federation.ingress("west");
    let exit = federation.egress("east");
    federation.knows("east", "backend", "west");
    let known = hashed_name("default", "outside", None, None);
    federation.arrives("east", &format!("/meshes/default/meshexternalservices/{known}"));
    let targets = [of_zone("backend", "west"), by_name("MeshExternalService", &known, 9000)];
    let (_web, web) = federation.client("east", "web", &targets);
    let (_cron, cron) = federation.client("east", "cron", &targets);
    for address in [web, cron] {
        assert_eq!(answered_by(address, 10001), "backend-west");
        assert_eq!(answered_by(address, 10002), "outside");
    }

    // The name that clients dial is in the resource, and so a permission can name it.
    let stored = text(&federation.global, "/meshes/default/meshexternalservices/outside");
    let stored: Value = serde_json::from_str(&stored).unwrap();
    let sni = stored["spec"]["match"]["snis"][0]["value"].as_str().unwrap();
    let path = "/meshes/default/meshtrafficpermissions/outside";
    federation.global.put(path, &permission("deny", sni, "cron"));
    answers_with(cron, 10002, 403);
    answers_with(web, 10002, 200);
    federation.global.put("/meshes/default", &through_egress(true));
    answers_with(web, 10002, 403);
    federation.global.put(path, &permission("allow", sni, "cron"));
    answers_with(cron, 10002, 200);
    answers_with(web, 10002, 403);
    // What stays in the mesh is none of its business.
    assert_eq!(answered_by(web, 10001), "backend-west");

    all_tell(&federation, [&gate, &exit]);
    let places = [("west", "zoneingresses/gate-west", &gate), ("east", "zoneegresses/exit-east", &exit)];
    for (scheme, label) in [("unified", ""), ("legacy", "disabled"), ("unified", "enabled")] {
        for (zone, path, proxy) in places {
            if !label.is_empty() {
                label_names(federation.zone(zone), path, label);
            }
            has_layout(federation.zone(zone), path, proxy, scheme);
        }
        assert_eq!(answered_by(web, 10001), "backend-west");
        assert_eq!(answered_by(cron, 10002), "outside");
    }
    let shown = |world: &World, path: &str| -> Value {
        let mut layout: Value = serde_json::from_str(&text(world, &format!("{path}/_layout"))).unwrap();
        ["kri", "labels", "revision"].iter().for_each(|field| layout[field] = Value::Null);
        layout
    };
    let on_global = format!("/zoneingresses/{}", hashed_name("", "gate-west", Some("west"), None));
    let in_zone = shown(federation.zone("west"), "/zoneingresses/gate-west");
    assert_eq!(shown(&federation.global, &on_global), in_zone, "a global control plane asks the zone");
}

fn label_names(world: &World, path: &str, value: &str) {
    let mut stored: Value = serde_json::from_str(&text(world, &format!("/{path}"))).unwrap();
    stored["labels"]["features.kuma.io/unified-proxy-resources-and-stats-naming"] = json!(value);
    world.put(&format!("/{path}"), &stored);
}

/// Compares the layout of a zone proxy with what its Envoy runs.
fn has_layout(world: &World, path: &str, proxy: &RunningProxy, scheme: &str) {
    let mut last = String::new();
    eventually(&format!("the layout of {path} with {scheme} names in Envoy"), || {
        let layout: Value = serde_json::from_str(&text(world, &format!("/{path}/_layout"))).unwrap();
        let compared = compare(&layout, proxy, scheme);
        last = format!("{compared:?}\n{layout:#}");
        compared.is_ok()
    })
    .unwrap_or_else(|error| panic!("{error}: {last}"));
}

fn compare(layout: &Value, proxy: &RunningProxy, scheme: &str) -> Result<(), String> {
    let ask = |question: &str| proxy.admin(question).map_err(|error| error.to_string());
    let dump: Value = serde_json::from_str(&ask("/config_dump")?).map_err(|error| error.to_string())?;
    let stats = ask("/stats")?;
    let all = |field: &str, name: &str| -> Vec<Value> {
        let configs = dump["configs"].as_array().into_iter().flatten();
        let listed = configs.filter_map(|config| config[field].as_array()).flatten();
        listed.map(|item| item[name].clone()).collect()
    };
    let is = |holds: bool, what: String| if holds { Ok(()) } else { Err(what) };
    let listener = &layout["listener"]["proxyResourceName"];
    is(layout["naming"] == scheme, format!("not {scheme}"))?;
    let listeners = all("dynamic_listeners", "name");
    is(listeners.contains(listener), format!("{listener} is not in {listeners:?}"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let in_stats = |name: String| is(stats.contains(&format!("{name}: ")), format!("no statistic {name}"));
    in_stats(format!("listener.{}.downstream_cx_total", text(&layout["listener"]["stats"])))?;
    let of_destinations: Vec<Value> = layout["destinations"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|it| it["proxyResourceName"].clone())
        .collect();
    let internal = ["system_", "kuma:"];
    let clusters =
        all("dynamic_active_clusters", "cluster").into_iter().map(|cluster| cluster["name"].clone());
    let mut led: Vec<Value> =
        clusters.filter(|name| !internal.iter().any(|of| text(name).starts_with(of))).collect();
    led.sort_by_key(&text);
    let mut listed = of_destinations;
    listed.sort_by_key(&text);
    is(led == listed && !led.is_empty(), format!("Envoy has {led:?}, the layout {listed:?}"))?;
    let configured = dump.to_string();
    for destination in layout["destinations"].as_array().into_iter().flatten() {
        let parts = &destination["proxyResources"];
        is(parts["listener"] == *listener, "another listener".to_owned())?;
        in_stats(format!("cluster.{}.upstream_cx_total", text(&parts["stats"]["cluster"])))?;
        let filter = format!("\"stat_prefix\":{}", parts["stats"]["filter"]);
        is(configured.contains(&filter), format!("no {filter}"))?;
        for name in destination["serverNames"].as_array().into_iter().flatten() {
            is(configured.contains(&text(name).to_lowercase()), format!("no chain for {name}"))?;
        }
    }
    Ok(())
}

/// Asks for what the ingress of `west` and the egress of `east` say, wherever that can be asked.
fn all_tell(federation: &Federation, proxies: [&RunningProxy; 2]) {
    let backend = "kri_msvc_default_west__backend_main";
    tells(federation.zone("west"), "zoneingress", "gate-west", backend);
    tells(federation.zone("east"), "zoneegress", "exit-east", backend);
    let on_global = |name: &str, zone: &str| hashed_name("", name, Some(zone), None);
    tells(&federation.global, "zoneingress", &on_global("gate-west", "west"), backend);
    tells(&federation.global, "zoneegress", &on_global("exit-east", "east"), backend);
    for proxy in proxies {
        let page =
            Client::new(format!("http://127.0.0.1:{}", proxy.readiness_port())).get("/metrics").unwrap();
        let counted =
            |line: &str| line.starts_with("envoy_cluster_upstream_cx_total{") && line.contains(backend);
        assert!(page.body.lines().any(counted), "{}", page.body);
    }
    let unified = "feature-unified-resource-naming".to_owned();
    for (world, path, insight) in [
        (federation.zone("west"), "/zoneingresses/gate-west".to_owned(), "zoneIngressInsight"),
        (federation.zone("east"), "/zoneegresses/exit-east".to_owned(), "zoneEgressInsight"),
        (
            &federation.global,
            format!("/zoneingresses/{}", on_global("gate-west", "west")),
            "zoneIngressInsight",
        ),
        (
            &federation.global,
            format!("/zoneegresses/{}", on_global("exit-east", "east")),
            "zoneEgressInsight",
        ),
    ] {
        let features = features(world, &path, insight);
        assert!(features.contains(&unified), "{path}: {features:?}");
    }
}
