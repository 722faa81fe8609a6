//! The diagrams of the design document: its own YAML, word by word, and the same by identities.

use super::world::{check, plain, read};

const SERVICE_FROM_SERVICES: [&str; 2] = [
    include_str!("../../data/reachability/mtp-b.yaml"),
    include_str!("../../data/reachability/mtp-b.rules.yaml"),
];
const SERVICE_FROM_MESH: [&str; 2] = [
    include_str!("../../data/reachability/mtp-ms-to-mesh.yaml"),
    include_str!("../../data/reachability/mtp-ms-to-mesh.rules.yaml"),
];
const MESH_FROM_SERVICE: [&str; 2] = [
    include_str!("../../data/reachability/mtp-mesh-to-ms.yaml"),
    include_str!("../../data/reachability/mtp-mesh-to-ms.rules.yaml"),
];

#[track_caller]
fn draws(forms: [&str; 2], table: &str) {
    check(&plain(), &forms.map(read), table);
}

#[test]
fn a_and_b_and_c_may_call_d() {
    draws(SERVICE_FROM_SERVICES, "a,b,c>d");
}

/// The diagram leaves out that a service may call itself.
#[test]
fn everyone_may_call_a() {
    draws(SERVICE_FROM_MESH, "b,c,d>a a>a");
}

/// The row that the table of pairs lacks.
#[test]
fn a_may_call_everyone() {
    draws(MESH_FROM_SERVICE, "a>b,c,d a>a");
}

#[test]
fn diagrams_add_up() {
    for form in 0..2 {
        let all = [SERVICE_FROM_SERVICES, SERVICE_FROM_MESH, MESH_FROM_SERVICE].map(|forms| forms[form]);
        let all = read(&all.join("\n---\n"));
        check(&plain(), &[all], "a,b,c>d *>a a>*");
    }
}
