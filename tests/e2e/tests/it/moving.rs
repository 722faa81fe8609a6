//! The guide to moving from Kuma, step by step, while requests pass.

use std::{fs, path::Path};

use e2e::{
    ControlPlane, Setup, eventually,
    proxy::{Options, RunningProxy, own_address},
    service::{Service, call, dataplane},
};
use tempfile::TempDir;

use crate::{
    documents::{Shell, root},
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
fn the_control_plane_of_a_mesh_is_replaced_under_load_without_a_failed_call() {
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
