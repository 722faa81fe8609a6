//! Predictions of `kumactl diff` come true for real traffic and for a real Envoy.

use std::fs;

use e2e::{Kumactl, Setup, eventually, service::call};

use crate::world::{World, answered_by, by_reference, client};

const DENY: &str = "\
type: MeshTrafficPermission
mesh: default
name: deny
spec:
  targetRef: { kind: MeshSubset, tags: { kuma.io/service: web } }
  from: [{ targetRef: { kind: Mesh }, default: { action: Deny } }]
";

#[test]
fn what_is_predicted_of_a_change_is_what_it_does() {
    let world = World::start(Setup::default());
    let kumactl = Kumactl::of(&world.control_plane).unwrap();
    let _server = world.service("web-1", "web", "http");
    let (_proxy, address) = client(&world, "caller", &[by_reference("web")]);
    assert_eq!(answered_by(address, 10001), "web-1");

    let file = kumactl.home().join("deny.yaml");
    fs::write(&file, DENY).unwrap();
    let arguments = ["diff", "-f", file.to_str().unwrap(), "--proxy", "web-1"];
    let told = kumactl.run(&arguments).unwrap();
    let said = String::from_utf8_lossy(&told.stdout).into_owned();
    assert_eq!(told.status.code(), Some(1), "{said} {}", String::from_utf8_lossy(&told.stderr));
    assert!(said.contains("MeshTrafficPermission \"deny\" in mesh \"default\" would be created"), "{said}");
    assert!(said.contains("1 of 2 connected proxies would get another configuration"), "{said}");
    assert!(said.contains("Who can call now, and could not any more:"), "{said}");
    assert!(said.contains("caller") && said.contains("Allowed → Denied"), "{said}");
    // Nothing happened.
    assert_eq!(answered_by(address, 10001), "web-1");
    let dry = kumactl.ok(&["apply", "-f", file.to_str().unwrap(), "--dry-run=server"]).unwrap();
    assert!(dry.contains("Allowed → Denied"), "{dry}");
    assert_eq!(answered_by(address, 10001), "web-1");

    kumactl.ok(&["apply", "-f", file.to_str().unwrap()]).unwrap();
    let denied = || call(address, 10001).is_ok_and(|answer| answer.status == 403);
    eventually("the call to be denied", denied).unwrap();
    let told = kumactl.run(&arguments).unwrap();
    assert_eq!(told.status.code(), Some(0), "it is there: {}", String::from_utf8_lossy(&told.stdout));
    let told = kumactl.run(&["diff", "--delete", "mtp/deny"]).unwrap();
    let said = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(said.contains("Denied → Allowed"), "{said}");
}
