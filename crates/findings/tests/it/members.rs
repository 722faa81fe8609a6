//! Findings about MeshMultiZoneServices and the services that they select.

use findings::MeshFindings;
use topology::AllMeshes;

use crate::support::{BACKEND, PLAIN, changes, line};

fn everywhere(ports: &str) -> String {
    let selector = "{ meshService: { matchLabels: { app: backend } } }";
    format!(
        "type: MeshMultiZoneService\nmesh: default\nname: all\nspec: {{ selector: {selector}, ports: [{ports}] }}"
    )
}

#[test]
fn services_that_disagree_are_found_until_they_agree() {
    let backend = BACKEND.replace("name: backend\n", "name: backend\nlabels: { app: backend }\n");
    let mut state = AllMeshes::default();
    state.apply(&changes(&[PLAIN, &backend, &everywhere("{ port: 80 }, { port: 81 }")]));
    let mut findings = MeshFindings::of(state.mesh("default").unwrap().clone());
    let found: Vec<String> = findings.iter().map(line).collect();
    assert_eq!(
        found,
        [
            "members-disagree kri_mzsvc_default___all_: port 80 of kri_msvc_default___backend_ speaks http, not tcp",
            "members-disagree kri_mzsvc_default___all_: kri_msvc_default___backend_ has no port 81",
        ]
    );
    let updates = state.apply(&changes(&[&everywhere("{ port: 80, appProtocol: http }")]));
    findings.update(state.mesh("default").unwrap().clone(), &updates[0].affected);
    assert_eq!(findings.iter().count(), 0);
    assert_eq!(findings, MeshFindings::of(state.mesh("default").unwrap().clone()));
}
