//! Every case of the document's section about mapping, with its diagram: each permission by tags (`from`) and, where
//! identities can say the same, by `rules`; each of these as Kubernetes writes it, which is the document's own YAML
//! where it has some, and as Universal does.

use resources::Resource;

use super::world::{check, instance, labelled, listed, pairs, plain, read, square, ways};

/// A permission as it is written for Kubernetes, and for Universal.
macro_rules! written {
    ($name:literal, $form:literal) => {
        [
            include_str!(concat!("../../data/reachability/", $name, ".", $form, ".kubernetes.yaml")),
            include_str!(concat!("../../data/reachability/", $name, ".", $form, ".universal.yaml")),
        ]
    };
}

const MESH_FROM_MESH: [[&str; 2]; 2] =
    [written!("mtp-mesh-to-mesh", "from"), written!("mtp-mesh-to-mesh", "rules")];
const SERVICE_FROM_MESH: [[&str; 2]; 2] =
    [written!("mtp-ms-to-mesh", "from"), written!("mtp-ms-to-mesh", "rules")];
const MESH_FROM_SERVICE: [[&str; 2]; 2] =
    [written!("mtp-mesh-to-ms", "from"), written!("mtp-mesh-to-ms", "rules")];
const SERVICE_FROM_SERVICES: [[&str; 2]; 2] = [written!("mtp-b", "from"), written!("mtp-b", "rules")];
const SERVICE_SUBSET: [[&str; 2]; 2] =
    [written!("mtp-service-subset", "from"), written!("mtp-service-subset", "rules")];
const SUBSET: [[&str; 2]; 2] = [written!("mtp-subset", "from"), written!("mtp-subset", "rules")];
/// Identities do not tell the tags of clients, so that these cannot be said by `rules`.
const FROM_SERVICE_SUBSET: [&str; 2] = written!("mtp-from-service-subset", "from");
const FROM_SUBSET: [&str; 2] = written!("mtp-from-subset", "from");
const DENY_ALL: [[&str; 2]; 2] = [written!("mtp-deny-all", "from"), written!("mtp-deny-all", "rules")];

/// In both formats, which must say the same.
#[track_caller]
fn formats(written: [&str; 2]) -> [Vec<Resource>; 2] {
    let [kubernetes, universal] = written.map(read);
    let specs = |policies: &[Resource]| policies.iter().map(|it| it.spec.to_json()).collect::<Vec<_>>();
    assert_eq!(specs(&kubernetes), specs(&universal));
    [kubernetes, universal]
}

#[track_caller]
fn draws(among: &[Resource], forms: &[[&str; 2]], table: &str) {
    let forms: Vec<Vec<Resource>> = forms.iter().flat_map(|written| formats(*written)).collect();
    check(among, &forms, table);
}

#[test]
fn mesh_mesh_everyone_may_call_everyone() {
    draws(&plain(), &MESH_FROM_MESH, "*>*");
}

/// The diagram leaves out that a service may call itself.
#[test]
fn mesh_service_mesh_everyone_may_call_a() {
    draws(&plain(), &SERVICE_FROM_MESH, "b,c,d>a a>a");
}

/// The row that the table of pairs lacks.
#[test]
fn mesh_mesh_service_a_may_call_everyone() {
    draws(&plain(), &MESH_FROM_SERVICE, "a>b,c,d a>a");
}

#[test]
fn mesh_service_mesh_service_a_and_b_and_c_may_call_d() {
    draws(&plain(), &SERVICE_FROM_SERVICES, "a,b,c>d");
}

/// The services, where `b` also has an instance of another version.
fn versions() -> Vec<Resource> {
    let tags = |service: &'static str| match service {
        "a" | "b" => vec![("version", "v1"), ("team", "x")],
        "c" => vec![("team", "x")],
        _ => Vec::new(),
    };
    let mut all: Vec<Resource> = square(tags).into_iter().map(with_labels).collect();
    all.push(with_labels(instance("b-2", "b", &[("version", "v2")])));
    all
}

/// A Dataplane of `versions` with its tags as labels, too, for permissions that select by labels.
fn with_labels(resource: Resource) -> Resource {
    match resource.name() {
        "dp-a" => labelled(resource, &[("app", "a"), ("version", "v1"), ("team", "x")]),
        "dp-b" => labelled(resource, &[("app", "b"), ("version", "v1"), ("team", "x")]),
        "dp-c" => labelled(resource, &[("team", "x")]),
        _ => resource,
    }
}

/// A subset decides about the whole service: its other instances stay among the endpoints, and refuse.
#[test]
fn mesh_service_subset_at_the_top_opens_the_service() {
    draws(&versions(), &SERVICE_SUBSET, "a>b");
    // No instance is of that version.
    draws(&plain(), &SERVICE_SUBSET, "");
}

#[test]
fn mesh_service_subset_as_the_client_is_told_by_its_tags() {
    draws(&versions(), &[FROM_SERVICE_SUBSET], "a>b");
    draws(&plain(), &[FROM_SERVICE_SUBSET], "");
}

#[test]
fn mesh_subset_at_the_top_opens_every_service_that_has_the_tag() {
    draws(&versions(), &SUBSET, "a>a,b,c");
    draws(&plain(), &SUBSET, "");
}

#[test]
fn mesh_subset_as_the_client_is_told_by_its_tags() {
    draws(&versions(), &[FROM_SUBSET], "a,b,c>b");
    draws(&plain(), &[FROM_SUBSET], "");
}

/// By tags, a deny for everyone is visible and refuses clients that nothing else allows. By `rules` a deny has the last
/// word, so that it keeps out everyone.
#[test]
fn a_visible_deny_for_all() {
    draws(&plain(), &DENY_ALL, "");
    let [by_tags, by_rules] = DENY_ALL.map(formats);
    for denied in by_tags {
        for allowed in SERVICE_FROM_SERVICES.into_iter().flat_map(formats) {
            check(&plain(), &[[denied.clone(), allowed].concat()], "a,b,c>d");
        }
    }
    for denied in by_rules {
        for allowed in SERVICE_FROM_SERVICES.into_iter().flat_map(formats) {
            check(&plain(), &[[denied.clone(), allowed].concat()], "");
        }
    }
}

#[test]
fn diagrams_add_up() {
    for form in 0..2 {
        let all = [SERVICE_FROM_SERVICES, SERVICE_FROM_MESH, MESH_FROM_SERVICE];
        for format in 0..2 {
            let all = all.map(|forms| forms[form][format]);
            let snapshot = ways(&[plain(), read(&all.join("\n---\n"))].concat());
            assert_eq!(pairs(&snapshot), listed("a,b,c>d *>a a>*"));
        }
    }
}
