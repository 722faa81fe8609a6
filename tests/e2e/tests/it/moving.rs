//! The guide to moving from Kuma, step by step, while requests pass.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use e2e::{
    ControlPlane, Kumactl, Profile, Setup, eventually, program,
    proxy::{Options, RunningProxy, own_address},
    service::{Service, call, dataplane},
};
use resources::{
    Kind,
    naming::{kds::hashed_name, sni},
};
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    documents::{Shell, root},
    federated::{Federation, of_zone},
    world::{World, answered_by, by_reference, client, every_client, load},
};

/// Runs the commands below one heading of the guide.
fn step(shell: &Shell, guide: &str, heading: &str) {
    let begin = guide.find(heading).unwrap_or_else(|| panic!("the guide has no {heading:?}"));
    let rest = &guide[begin + heading.len()..];
    let section = &rest[..rest.find("\n## ").unwrap_or(rest.len())];
    shell.run_examples(&format!("moving-from-kuma.md, {heading:?}"), section);
}

/// The setup of a control plane that takes the place of another: its certificate and its key.
fn with_certificate_of(old: &Path) -> Vec<(String, String)> {
    let file = |name: &str| old.join(name).display().to_string();
    vec![
        ("KUMA_GENERAL_TLS_CERT_FILE".to_owned(), file("kuma-cp.crt")),
        ("KUMA_GENERAL_TLS_KEY_FILE".to_owned(), file("kuma-cp.key")),
    ]
}

#[test]
fn the_control_plane_is_replaced_under_load_without_a_failed_call() {
    let guide = fs::read_to_string(root().join("docs/guide/moving-from-kuma.md")).unwrap();
    let mut world = World::start(Setup::default());
    let _one = world.service("web-1", "web", "http");
    let _two = world.service("web-2", "web", "http");
    let (_client, address) = client(&world, "client", &[by_reference("web")]);
    answered_by(address, 10001);

    let (new_home, files): (TempDir, TempDir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let old_home = world.control_plane.work_dir().to_owned();
    let (calls, failures) = load(address, 10001, || {
        let mut new = ControlPlane::start(new_home.path(), Setup::default()).unwrap();
        let shell = Shell::new(&[
            ("OLD", &world.control_plane.address()),
            ("NEW", &new.address()),
            ("FILES", &files.path().display().to_string()),
        ]);
        step(&shell, &guide, "## 1. Start the new control plane beside the old one");
        step(&shell, &guide, "## 2. Export");
        step(&shell, &guide, "## 3. Check what will be left out");
        step(&shell, &guide, "## 4. Import");
        assert!(new.stop().unwrap().success());
        assert!(world.control_plane.stop().unwrap().success());
        world.control_plane.start_again_in(new_home.path(), &with_certificate_of(&old_home)).unwrap();
        for proxy in ["web-1", "web-2", "client"] {
            let is_online = |insight: &serde_json::Value| {
                insight["subscriptions"].as_array().is_some_and(|all| {
                    all.last()
                        .is_some_and(|last| last["disconnectTime"].is_null() && !last["status"].is_null())
                })
            };
            world.insight(proxy, is_online);
        }
        eventually("every proxy to have what it was sent", || {
            shell.succeeds("kumactl --context old proxy status -A")
        })
        .unwrap();
        step(&shell, &guide, "## 6. Check that all proxies are back");
    });
    assert!(failures.is_empty(), "{} of {calls} calls failed: {failures:?}", failures.len());

    // The new control plane is in charge, and new proxies and those from before trust each other.
    let app = Service::start("web-3", "http", (own_address(), 9000).into()).unwrap();
    let third = dataplane("web-3", "web", own_address(), "http", app.address);
    let authority = Some(old_home.join("kuma-cp.crt"));
    let options = Options { authority, ..Options::default() };
    let _three = RunningProxy::start(&world.control_plane, &third, &options).unwrap();
    eventually("the new proxy to be called", || answered_by(address, 10001) == "web-3").unwrap();
    world.put("/meshes/default/meshtrafficpermissions/every-client", &every_client("Deny"));
    eventually("the change to be in effect", || {
        call(address, 10001).is_ok_and(|answer| answer.status == 403)
    })
    .unwrap();
}

const ZONES: [&str; 2] = ["east", "west"];

/// SNI of `backend`: the one that names its zone, or the one that every peer computes.
fn hash(zone: Option<&str>) -> String {
    let data: BTreeMap<String, String> =
        zone.iter().map(|zone| ("kuma.io/zone".to_owned(), (*zone).to_owned())).collect();
    sni::hashed("backend", "default", Kind::MeshService, 8080, &data).unwrap()
}

/// A MeshService as a control plane has it that writes no SNIs: others dial the hash without a zone, and no other hash
/// is accepted. The second value is the author's, so the list stays as it is.
fn without_own_snis() -> Value {
    let snis = json!([{ "value": hash(None) }, { "value": "backend.example" }]);
    let labels = json!({ "kuma.io/origin": "zone" });
    json!({ "type": "MeshService", "mesh": "default", "name": "backend", "labels": labels, "spec": {
        "selector": { "dataplaneTags": { "kuma.io/service": "backend" } },
        "ports": [{ "port": 8080, "targetPort": 8080, "name": "main", "appProtocol": "http", "snis": snis }] } })
}

/// Removes the SNIs of a zone's own services, each of which has one port, from its store: Kuma has none.
fn remove_snis(home: &Path) {
    let update = "UPDATE resources SET spec = json_remove(spec, '$.ports[0].snis') \
                  WHERE kind = 'MeshService' AND json_extract(labels, '$.\"kuma.io/origin\"') = 'zone'";
    let changed = Connection::open(home.join("kuma.db")).unwrap().execute(update, ()).unwrap();
    assert!(changed > 0);
}

/// Replaces the control plane of a zone by one on a copy of its store. `of_kuma`: the copy has no SNIs.
fn replace_zone(federation: &mut Federation, zone: &str, new_home: &TempDir, of_kuma: bool) {
    let old = &mut federation.zone_mut(zone).control_plane;
    let old_home = old.work_dir().to_owned();
    let backup = new_home.path().with_extension("jsonl");
    let store = |verb: &str, home: &Path| {
        let done = Command::new(program("kuma-cp", Profile::Same).unwrap())
            .args(["store", verb])
            .arg(&backup)
            .env("KUMA_GENERAL_WORK_DIR", home)
            .output()
            .unwrap();
        assert!(done.status.success(), "{verb}: {done:?}");
    };
    assert!(old.stop().unwrap().success());
    store("export", &old_home);
    store("import", new_home.path());
    if of_kuma {
        remove_snis(new_home.path());
    }
    fs::remove_file(&backup).unwrap();
    old.start_again_in(new_home.path(), &with_certificate_of(&old_home)).unwrap();
    let kumactl = Kumactl::of(old).unwrap();
    eventually("every proxy to have what it was sent", || {
        kumactl.run(&["proxy", "status", "-A"]).is_ok_and(|output| output.status.success())
    })
    .unwrap();
}

/// Waits until a zone puts this value for its `backend` first, and until the other zone dials it.
fn dialled(federation: &Federation, other: &str, zone: &str, value: &str) {
    for (at, name) in
        [(zone, "backend".to_owned()), (other, hashed_name("default", "backend", Some(zone), None))]
    {
        let path = format!("/meshes/default/meshservices/{name}");
        let mut last = Value::Null;
        eventually("a zone to list the value first", || {
            let answer = federation.zone(at).control_plane.client().get(&path).unwrap();
            last = answer.json()["spec"]["ports"].clone();
            last[0]["snis"][0]["value"] == value
        })
        .unwrap_or_else(|error| panic!("{error} in {at}: {value}, not {last}"));
    }
}

/// Replaces the control planes of two zones one after the other, while each zone calls the other.
fn replaced_in_place(of_kuma: bool) {
    let mut federation = Federation::start(&ZONES, false);
    let mut running = Vec::new();
    for zone in ZONES {
        if of_kuma {
            federation.zone(zone).put("/meshes/default/meshservices/backend", &without_own_snis());
        }
        running.push(federation.serve(zone, &format!("backend-{zone}"), "backend"));
        running.push(federation.serve(zone, &format!("backend-{zone}-2"), "backend"));
    }
    let gates = ZONES.map(|zone| federation.ingress(zone));
    let others = [("east", "west"), ("west", "east")];
    let clients = others.map(|(zone, other)| {
        federation.knows(zone, "backend", other);
        federation.client(zone, &format!("web-{zone}"), &[of_zone("backend", other)])
    });
    for ((_, other), (_, address)) in others.iter().zip(&clients) {
        assert!(answered_by(*address, 10001).starts_with(&format!("backend-{other}")));
    }
    let before = |zone| if of_kuma { hash(None) } else { hash(Some(zone)) };
    for (zone, other) in others {
        dialled(&federation, other, zone, &before(zone));
    }
    let homes: [TempDir; 2] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let addresses = clients.each_ref().map(|(_, address)| *address);
    let mut inner = (0, Vec::new());
    let outer = load(addresses[0], 10001, || {
        inner = load(addresses[1], 10001, || {
            for ((zone, other), home) in others.iter().zip(&homes) {
                replace_zone(&mut federation, zone, home, of_kuma);
                dialled(&federation, other, zone, &hash(Some(zone)));
            }
        });
    });
    for (calls, failures) in [outer, inner] {
        assert!(failures.is_empty(), "{} of {calls} calls failed: {:?}", failures.len(), failures.first());
    }
    drop(gates);
}

#[test]
fn control_planes_of_zones_without_snis_are_replaced_in_place() {
    replaced_in_place(true);
}

#[test]
fn control_planes_of_zones_are_replaced_in_place() {
    replaced_in_place(false);
}
