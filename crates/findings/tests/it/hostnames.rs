//! Findings about hostnames.

use std::{collections::BTreeMap, sync::Arc};

use findings::MeshFindings;
use topology::{AllMeshes, HostConflict, MeshSnapshot, VirtualPort, virtual_hosts::LIMIT};

use crate::support::{PLAIN, changes, line};

#[test]
fn a_hostname_of_two_virtual_outbounds_is_found_with_both_names() {
    let mut state = AllMeshes::default();
    state.apply(&changes(&[PLAIN]));
    let mut mesh = MeshSnapshot::clone(state.mesh("default").unwrap());
    assert_eq!(MeshFindings::of(Arc::new(mesh.clone())).hostnames().count(), 0);
    let claim = |policy: &str, service: &str| VirtualPort {
        policy: Some(policy.into()),
        tags: Arc::new(BTreeMap::from([("kuma.io/service".to_owned(), service.to_owned())])),
    };
    let winner = claim("exact", "backend");
    let loser = claim("broad", "other");
    mesh.virtual_hosts.conflicts.insert(HostConflict {
        hostname: "backend.mesh".into(),
        port: 80,
        winner,
        loser,
    });
    let found: Vec<String> = MeshFindings::of(Arc::new(mesh)).hostnames().map(|found| line(&found)).collect();
    assert_eq!(
        found,
        ["hostname-conflict kri_m____default_: backend.mesh:80 is claimed by VirtualOutbound \"exact\" for \
             kuma.io/service=backend and by VirtualOutbound \"broad\" for kuma.io/service=other; the first one has it"]
    );
}

const WITHOUT_PORTS: &str = r#"
type: VirtualOutbound
mesh: default
name: by-port
selectors: [{ match: { kuma.io/service: "*" } }]
conf:
  host: "{{.service}}.mesh"
  port: "{{.port}}"
  parameters: [{ name: service, tagKey: kuma.io/service }, { name: port }]
---
type: Dataplane
mesh: default
name: web
networking: { address: 10.0.0.1, inbound: [{ port: 80, tags: { kuma.io/service: web } }] }
"#;

#[test]
fn tags_without_a_hostname_and_too_many_hostnames_are_found() {
    let mut state = AllMeshes::default();
    state.apply(&changes(&[PLAIN, WITHOUT_PORTS]));
    let mesh = state.mesh("default").unwrap();
    let found = |mesh: MeshSnapshot| -> Vec<String> {
        MeshFindings::of(Arc::new(mesh)).hostnames().map(|found| line(&found)).collect()
    };
    let [unrendered] = &found(MeshSnapshot::clone(mesh))[..] else { panic!("one finding") };
    let expect = "hostname-not-made kri_m____default_: VirtualOutbound \"by-port\": no hostname is created for inbounds \
                  with the tags kuma.io/service=web: ";
    assert!(unrendered.starts_with(expect), "{unrendered}");
    let mut crowded = MeshSnapshot::clone(mesh);
    crowded.virtual_hosts.left_out = 7;
    let said = found(crowded).pop().unwrap();
    assert!(
        said.contains(&format!(
            "more than {LIMIT} hostnames; those after the first {LIMIT} by name, from 7 sets of tags"
        )),
        "{said}"
    );
}
