//! The operator's view through `kumactl`, compared with the view of real Envoys.

use std::{collections::BTreeSet, net::Ipv4Addr};

use e2e::{Kumactl, Setup, eventually, proxy::RunningProxy, service::Service, service::call};
use serde_json::{Value, json};

use crate::{
    names::{ListenerNames, Live, NOTHING},
    world::{UNIFIED, World, answered_by, by_reference, by_tags, client, client_with},
};

/// A service and two callers of it, one with older and one with unified names.
struct Scene {
    world: World,
    kumactl: Kumactl,
    callers: [(&'static str, RunningProxy, Ipv4Addr); 2],
    _web: (Service, RunningProxy, Ipv4Addr),
}

impl Scene {
    fn set() -> Scene {
        let world = World::start(Setup::default());
        let kumactl = Kumactl::of(&world.control_plane).unwrap();
        let web = world.service("web-1", "web", "http");
        let targets = [by_reference("web"), by_tags("web")];
        let (older, at_older) = client(&world, "older", &targets);
        let (newer, at_newer) = client_with(&world, "newer", &targets, &[UNIFIED]);
        for (address, port) in [(at_older, 10001), (at_older, 10002), (at_newer, 10001), (at_newer, 10002)] {
            assert_eq!(answered_by(address, port), "web-1");
        }
        let callers = [("older", older, at_older), ("newer", newer, at_newer)];
        let scene = Scene { world, kumactl, callers, _web: web };
        let status = |name| [name, "Online", "synced", "-"];
        scene.shows("proxy status", 0, &[&status("older"), &status("newer"), &status("web-1")]);
        scene
    }

    fn run(&self, line: &str) -> (Option<i32>, String) {
        let arguments: Vec<&str> = line.split(' ').collect();
        let output = self.kumactl.run(&arguments).unwrap();
        let words = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&words).into_owned())
    }

    fn ok(&self, line: &str) -> String {
        let (code, words) = self.run(line);
        assert_eq!(code, Some(0), "kumactl {line}: {words}");
        words
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.ok(line)).unwrap_or_else(|error| panic!("kumactl {line}: {error}"))
    }

    /// Waits until a command ends with this code and every one of these rows is in its table.
    fn shows(&self, line: &str, code: i32, rows: &[&[&str]]) {
        let mut last = (None, String::new());
        let has = |table: &str, row: &[&str]| {
            let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            lines.any(|cells| row.iter().all(|cell| cells.contains(cell)))
        };
        eventually(&format!("kumactl {line}"), || {
            last = self.run(line);
            last.0 == Some(code) && rows.iter().all(|row| has(&last.1, row))
        })
        .unwrap_or_else(|error| panic!("{error}: {} {:?}\n{rows:?}", last.1, last.0));
    }
}

fn texts<'a>(list: &'a Value, field: &str) -> BTreeSet<&'a str> {
    list["items"].as_array().unwrap().iter().filter_map(|item| item[field].as_str()).collect()
}

fn all(names: &BTreeSet<String>) -> BTreeSet<&str> {
    names.iter().map(String::as_str).collect()
}

#[test]
fn every_view_of_kumactl_shows_what_runs() {
    let scene = Scene::set();
    scene.shows(
        "inspect dataplanes",
        0,
        &[
            &["default", "older", "Online", "legacy"],
            &["default", "newer", "Online", "unified"],
            &["default", "web-1", "Online", "legacy", "kuma.io/service=web"],
        ],
    );
    scene.shows("inspect meshes", 0, &[&["default", "3/3", "ca-1=3"]]);
    for (name, proxy, _) in &scene.callers {
        shows_the_parts(&scene, name, proxy);
        shows_the_layout(&scene, name, proxy);
    }
    let known =
        [("older", "default_web__default_msvc_8080"), ("newer", "kri_msvc_default_default__web_main")];
    for (name, cluster) in known {
        let parts = scene.json(&format!("proxy config {name} clusters -o json"));
        let parts = parts["items"].as_array().unwrap().clone();
        let named =
            |wanted: &str| parts.iter().find(|part| part["name"] == wanted).cloned().unwrap_or_default();
        assert_eq!(named(cluster)["kri"], "kri_msvc_default_default__web_main", "{parts:#?}");
        let own = if name == "older" { "localhost:9000" } else { "self_main" };
        assert_eq!(named(own)["kri"], format!("kri_dp_default_default__{name}_main"), "{parts:#?}");
        let filtered = scene.ok(&format!("proxy config {name} clusters --name kri_msvc -o name"));
        assert_eq!(filtered.trim(), format!("cluster/{cluster}"));
    }
}

/// `proxy config` and `inspect dataplane --type …` have the names that Envoy has.
fn shows_the_parts(scene: &Scene, name: &str, proxy: &RunningProxy) {
    let live = Live::of(proxy);
    let parts = |part: &str| scene.json(&format!("proxy config {name} {part} -o json"));
    let listeners: BTreeSet<&str> = live.rows.iter().map(|row| row.listener.as_str()).collect();
    assert_eq!(texts(&parts("listeners"), "name"), listeners);
    assert_eq!(texts(&parts("clusters"), "name"), all(&live.clusters));
    let endpoints = parts("endpoints");
    assert!(texts(&endpoints, "name").is_superset(&all(&live.endpoints)), "{endpoints:#}");
    let secrets = parts("secrets");
    assert!(texts(&secrets, "name").is_superset(&all(&live.secrets)), "{secrets:#}");
    let routes = parts("routes");
    assert_eq!(texts(&routes, "name"), live.routes.iter().map(|(name, _)| name.as_str()).collect());
    assert_eq!(texts(&routes, "virtualHost"), live.routes.iter().map(|(_, host)| host.as_str()).collect());

    let expected = scene.json(&format!("inspect dataplane {name} --type config"));
    let told = &expected["xds"]["type.googleapis.com/envoy.config.listener.v3.Listener"];
    assert_eq!(told.as_object().unwrap().keys().map(String::as_str).collect::<BTreeSet<_>>(), listeners);
    let dump = scene.ok(&format!("inspect dataplane {name} --type config-dump"));
    let stats = scene.ok(&format!("inspect dataplane {name} --type stats"));
    let clusters = scene.ok(&format!("inspect dataplane {name} --type clusters"));
    for row in &live.rows {
        assert!(dump.contains(&format!("\"{}\"", row.listener)), "{}", row.listener);
        assert!(clusters.contains(&format!("{}::", row.cluster)), "{}", row.cluster);
    }
    let outbound =
        live.rows.iter().find(|row| row.listener_stats.contains("10001") || row.listener.starts_with("kri"));
    for counter in outbound.unwrap().counters() {
        assert!(
            stats.lines().any(|line| line.starts_with(&counter) && !line.ends_with(": 0")),
            "{counter}\n{stats}"
        );
    }
    assert!(!dump.contains("BEGIN PRIVATE KEY") && !dump.contains("BEGIN EC PRIVATE KEY"), "a key is shown");
}

/// The layout says which names Envoy has, and statistics are found under them.
fn shows_the_layout(scene: &Scene, name: &str, proxy: &RunningProxy) {
    let live = Live::of(proxy);
    let layout = scene.json(&format!("inspect dataplane {name} -o json"));
    let summary = scene.json(&format!("inspect dataplane {name} --type stats --format summary -o json"));
    let parts: Vec<&Value> =
        ["inbounds", "outbounds"].iter().flat_map(|part| layout[part].as_array().unwrap()).collect();
    assert_eq!(parts.len(), 3, "{layout:#}");
    for part in parts {
        let names = &part["proxyResources"];
        let text = |value: &Value| value.as_str().unwrap_or(NOTHING).to_owned();
        let columns = [
            text(&names["listener"]),
            text(&names["stats"]["listener"]),
            text(&names["cluster"]),
            text(&names["stats"]["cluster"]),
            text(&names["routeConfiguration"]),
            text(&names["virtualHost"]),
            format!("{} {}", text(&part["protocol"]), text(&names["stats"]["filter"])),
            text(&names["stats"]["permissions"]).replace(NOTHING, ""),
        ];
        let mut row = ListenerNames::of(columns.each_ref().map(String::as_str));
        row.permissions = match row.permissions.as_str() {
            "" => NOTHING.to_owned(),
            prefix => format!("{}.", prefix.trim_end_matches('.')),
        };
        assert!(live.rows.contains(&row), "{name}: no {row:#?}\namong {:#?}", live.rows);
        if name == "newer" && part["kri"] != "" {
            assert_eq!(row, row.all_named(part["proxyResourceName"].as_str().unwrap()), "one name for all");
        }
        for found in [&row.listener_stats, &row.cluster_stats] {
            let summarised = &summary["resources"][found];
            assert!(summarised.is_object(), "{name}: {found} is not in the summary: {summary:#}");
            if part["kri"] != "" {
                assert_eq!(summarised["kri"], part["kri"], "{name}: {found}");
            }
        }
    }
    assert_eq!(summary["unifiedNaming"], name == "newer");
}

#[test]
fn every_view_has_every_form_of_output() {
    let scene = Scene::set();
    let lists = ["inspect dataplanes", "inspect meshes", "proxy status", "inspect policy mtp every-client"];
    let parts = ["listeners", "routes", "clusters", "endpoints", "secrets"];
    let parts =
        parts.iter().flat_map(|part| ["older", "newer"].map(|name| format!("proxy config {name} {part}")));
    let lists: Vec<String> = lists.map(str::to_owned).into_iter().chain(parts).collect();
    for view in lists.iter().map(String::as_str).chain(["access newer web", "inspect dataplane newer"]) {
        let json = scene.json(&format!("{view} -o json"));
        let yaml = scene.ok(&format!("{view} -o yaml"));
        for field in json.as_object().unwrap().keys() {
            assert!(
                yaml.lines().any(|line| line.starts_with(&format!("{field}:"))),
                "no {field} in {view}: {yaml}"
            );
        }
        assert!(scene.run(&format!("{view} -o table")).1.lines().count() > 1, "{view}");
    }
    for view in &lists {
        let items = scene.json(&format!("{view} -o json"))["items"].as_array().map(Vec::len).unwrap();
        assert!(items > 0, "{view}");
        assert!(scene.run(&format!("{view} -o wide")).1.lines().count() > items, "{view}");
        let names = scene.run(&format!("{view} -o name")).1;
        assert!(names.lines().count() > 0 && names.lines().all(|name| name.contains('/')), "{view}: {names}");
    }
}

#[test]
fn the_policies_of_inbounds_and_outbounds_are_those_that_envoy_acts_by() {
    let scene = Scene::set();
    let conf = |seconds: u8| json!({"http": {"requestTimeout": format!("{seconds}s")}});
    let to = json!([{"targetRef": {"kind": "MeshService", "name": "web"}, "default": conf(3)}]);
    for (name, spec) in [("a", json!({"rules": [{"default": conf(7)}]})), ("b", json!({"to": to}))] {
        let policy = json!({"type": "MeshTimeout", "mesh": "default", "name": name, "spec": spec});
        scene.world.put(&format!("/meshes/default/meshtimeouts/{name}"), &policy);
    }
    let get = |path: &str| scene.world.control_plane.client().get(path).unwrap();
    let timeouts = |answer: &Value| {
        let of_kind = answer["policies"].as_array().unwrap().iter().find(|it| it["kind"] == "MeshTimeout");
        of_kind.cloned().unwrap_or_default()
    };
    for (name, proxy, _) in &scene.callers {
        let own = format!("/meshes/default/dataplanes/{name}");
        let layout = get(&format!("{own}/_layout")).json();
        let kri = |part: &str, kind: &str| {
            let mut kris = layout[part].as_array().unwrap().iter().filter_map(|part| part["kri"].as_str());
            kris.find(|kri| kri.starts_with(kind)).unwrap().to_owned()
        };
        let inbound = kri("inbounds", "kri_dp_");
        let outbound = kri("outbounds", "kri_msvc_");
        let by_name = get(&format!("{own}/_inbounds/{inbound}/_policies")).json();
        let found = timeouts(&by_name);
        let conf_of =
            |rule: &Value| (rule["kri"] == "kri_mt_default_default__a_").then(|| rule["conf"].clone());
        let rules = found["rules"].as_array().unwrap();
        assert_eq!(rules.iter().find_map(conf_of), Some(conf(7)), "{by_name:#}");
        assert!(inbound.ends_with("_main"), "{inbound}");
        let by_port = inbound.replace("_main", "_8080");
        assert_eq!(get(&format!("{own}/_inbounds/{by_port}/_policies")).json(), by_name);
        assert_eq!(
            get(&format!("{own}/_inbounds/{}/_policies", inbound.replace("_main", "_81"))).status,
            404
        );
        let answer = get(&format!("{own}/_outbounds/{outbound}/_policies")).json();
        assert_eq!(timeouts(&answer)["conf"][0]["http"]["requestTimeout"], "3s", "{answer:#}");
        eventually("routes of Envoy with these times", || {
            let dump = proxy.admin("/config_dump").unwrap_or_default();
            ["\"3s\"", "\"7s\""].iter().all(|time| dump.contains(&format!("\"timeout\": {time}")))
        })
        .unwrap();
    }
}

#[test]
fn access_says_what_envoy_does_and_which_rule_says_so() {
    let scene = Scene::set();
    let from = json!([
        {"targetRef": {"kind": "Mesh"}, "default": {"action": "Allow"}},
        {"targetRef": {"kind": "MeshSubset", "tags": {"kuma.io/service": "older"}}, "default": {"action": "Deny"}},
    ]);
    let permission = json!({"type": "MeshTrafficPermission", "mesh": "default", "name": "every-client", "spec": {"from": from}});
    scene.world.put("/meshes/default/meshtrafficpermissions/every-client", &permission);
    for ((name, _, address), (status, code, verdict, rule)) in
        scene.callers.iter().zip([(403, 3, "Denied", "rule_1"), (200, 0, "Allowed", "rule_0")])
    {
        eventually("the verdict to be in effect", || {
            call(*address, 10001).is_ok_and(|answer| answer.status == status)
        })
        .unwrap();
        let (ended, answer) = scene.run(&format!("access {name} web -o json"));
        assert_eq!(ended, Some(code), "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["verdict"], verdict, "{answer:#}");
        assert_eq!(
            answer["checks"][0]["rule"],
            format!("kri_mtp_default_default__every-client_{rule}"),
            "{answer:#}"
        );
        let resolved =
            scene.world.control_plane.client().get("/_kri/kri_mtp_default_default__every-client_").unwrap();
        assert_eq!((resolved.status, resolved.json()["name"].as_str()), (200, Some("every-client")));
    }
    assert_eq!(scene.run("access missing web").0, Some(1));
}
