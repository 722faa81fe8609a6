//! Four services that call each other, as vectors of reachability are about them, and what may be said of any mesh.

use std::{collections::BTreeSet, sync::Arc};

use resources::{Kind, Resource};
use serde_json::json;
pub use testkit::resource::read;
use topology::{AllMeshes, ClientClass, DestinationId, MeshSnapshot};

pub use crate::fixtures::labelled;
use crate::fixtures::{calling, dataplane, destination, mesh, present, resource, service};

pub const SERVICES: [&str; 4] = ["a", "b", "c", "d"];

/// A MeshTrafficPermission whose spec is YAML.
#[track_caller]
pub fn permission(name: &str, spec: &str) -> Resource {
    let yaml = format!("type: MeshTrafficPermission\nmesh: default\nname: {name}\nspec: {spec}\n");
    read(&yaml).remove(0)
}

#[track_caller]
pub fn permissions(specs: &[(&str, &str)]) -> Vec<Resource> {
    specs.iter().map(|(name, spec)| permission(name, spec)).collect()
}

/// A Dataplane with one inbound of a service.
pub fn instance(name: &str, service: &str, further: &[(&str, &str)]) -> Resource {
    let mut tags = json!({ "kuma.io/service": service });
    for (tag, value) in further {
        tags[*tag] = json!(value);
    }
    let built = dataplane(name, "10.0.0.1", json!([{ "port": 80, "tags": tags }]));
    labelled(built, &[("app", service)])
}

/// A proxy that asks for every service by its tags, so that these are destinations too.
pub fn asking() -> Resource {
    calling("asking", &SERVICES.map(|service| json!({ "kuma.io/service": service })))
}

/// The mesh with services `a`, `b`, `c` and `d` of one Dataplane each, which has further tags.
pub fn square(tags: impl Fn(&'static str) -> Vec<(&'static str, &'static str)>) -> Vec<Resource> {
    let instances = SERVICES.map(|name| instance(&format!("dp-{name}"), name, &tags(name)));
    let services = SERVICES.map(service);
    [mesh("STRICT"), asking()].into_iter().chain(services).chain(instances).collect()
}

pub fn plain() -> Vec<Resource> {
    square(|_| Vec::new())
}

pub fn class(snapshot: &MeshSnapshot, dataplane: &str) -> ClientClass {
    ClientClass::of(snapshot, &snapshot.dataplanes[dataplane])
}

/// A Dataplane may call the destination with this identifier as text.
#[track_caller]
pub fn reaches(snapshot: &MeshSnapshot, client: &str, to: &str) -> bool {
    snapshot.access.reaches(&class(snapshot, client), &destination(snapshot, to).id)
}

pub fn port(service: &str) -> String {
    format!("kri_msvc_default___{service}_80")
}

pub fn tagged(service: &str) -> DestinationId {
    DestinationId::Tags(Arc::new([("kuma.io/service".to_owned(), service.to_owned())].into()))
}

/// Returns the allowed pairs among `a` to `d`; services and their tags must agree.
#[track_caller]
pub fn pairs(snapshot: &MeshSnapshot) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for client in SERVICES {
        for server in SERVICES {
            let dataplane = format!("dp-{client}");
            let by_service = reaches(snapshot, &dataplane, &port(server));
            let by_tags = snapshot.access.reaches(&class(snapshot, &dataplane), &tagged(server));
            assert_eq!(by_service, by_tags, "{client} to {server}: by service, and by tags");
            if by_service {
                found.insert(format!("{client}{server}"));
            }
        }
    }
    found
}

/// Pairs as tables say them: `a>b` or `b,c>*`, with spaces between.
pub fn listed(table: &str) -> BTreeSet<String> {
    let names = |list: &str| -> Vec<String> {
        match list {
            "*" => SERVICES.map(str::to_owned).into(),
            list => list.split(',').map(str::to_owned).collect(),
        }
    };
    let of_entry = |entry: &str| {
        let (clients, servers) = entry.split_once('>').unwrap();
        let servers = names(servers);
        let pairs = names(clients).into_iter();
        pairs
            .flat_map(|c| servers.iter().map(move |s| format!("{c}{s}")).collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    table.split_whitespace().flat_map(of_entry).collect()
}

/// Whichever way a mesh came to be: all at once, permissions first, or permissions last and one by one.
#[track_caller]
pub fn ways(resources: &[Resource]) -> Arc<MeshSnapshot> {
    let (policies, others): (Vec<_>, Vec<_>) =
        resources.iter().cloned().partition(|r| r.kind() == Kind::MeshTrafficPermission);
    let built = |batches: Vec<Vec<Resource>>| {
        let mut state = AllMeshes::in_zone("east");
        for batch in batches {
            state.apply(&batch.into_iter().map(present).collect::<Vec<_>>());
        }
        state.mesh("default").unwrap().clone()
    };
    let at_once = built(vec![resources.to_vec()]);
    let one_by_one = policies.iter().cloned().map(|policy| vec![policy]);
    let last = built(std::iter::once(others.clone()).chain(one_by_one).collect());
    let first = built(vec![policies, others]);
    assert_eq!(at_once.access, last.access);
    assert_eq!(at_once.access, first.access);
    consistent(&at_once);
    at_once
}

/// Asserts that every way to ask gives the same answer.
#[track_caller]
pub fn consistent(snapshot: &MeshSnapshot) {
    let reachability = &snapshot.access;
    let classes: Vec<(&ClientClass, usize)> = reachability.classes().collect();
    let number: usize = classes.iter().map(|(_, number)| number).sum();
    assert_eq!(number, snapshot.dataplanes.len(), "every Dataplane is of one class");
    for dataplane in snapshot.dataplanes.values() {
        let class = ClientClass::of(snapshot, dataplane);
        assert!(classes.iter().any(|(known, _)| **known == class), "{}", dataplane.key);
    }
    for (class, _) in classes {
        let all = snapshot.destinations.keys();
        let expect: Vec<&DestinationId> = all.filter(|id| reachability.reaches(class, id)).collect();
        assert_eq!(reachability.destinations(class).into_iter().collect::<Vec<_>>(), expect, "{class:?}");
        for id in snapshot.destinations.keys() {
            let by_rules = reachability.to(id).is_none_or(|access| reachability.allows(access, class));
            assert_eq!(by_rules, reachability.reaches(class, id), "{class:?} to {id:?}");
        }
    }
}

/// In each form, the permissions let call whom the table lists, and no one else.
#[track_caller]
pub fn check(square: &[Resource], forms: &[Vec<Resource>], table: &str) {
    for form in forms {
        let names: Vec<&str> = form.iter().map(Resource::name).collect();
        let snapshot = ways(&[square, form].concat());
        assert_eq!(
            pairs(&snapshot),
            listed(table),
            "{names:?} {:?}",
            form.iter().map(|p| p.spec.to_json()).collect::<Vec<_>>()
        );
    }
}

/// A MeshExternalService at port 443.
pub fn external(name: &str) -> Resource {
    let spec = json!({ "match": { "port": 443 }, "endpoints": [{ "address": "example.com", "port": 443 }] });
    resource(Kind::MeshExternalService, name, &[], spec)
}
