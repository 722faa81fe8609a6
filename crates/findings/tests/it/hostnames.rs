//! What is said about hostnames.

use std::{collections::BTreeMap, sync::Arc};

use findings::MeshFindings;
use topology::{HostConflict, MeshSnapshot, State, VirtualPort};

use crate::support::{PLAIN, changes, line};

#[test]
fn a_hostname_that_two_virtual_outbounds_claim_is_found_with_the_names_of_both() {
    let mut state = State::default();
    state.apply(&changes(&[PLAIN]));
    let mut mesh = MeshSnapshot::clone(state.mesh("default").unwrap());
    assert_eq!(MeshFindings::of(Arc::new(mesh.clone())).hostnames().count(), 0);
    let claim = |policy: &str, service: &str| VirtualPort {
        policy: policy.into(),
        tags: Arc::new(BTreeMap::from([("kuma.io/service".to_owned(), service.to_owned())])),
    };
    let (winner, loser) = (claim("exact", "backend"), claim("broad", "other"));
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
