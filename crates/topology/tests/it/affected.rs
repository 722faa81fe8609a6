//! Effects of a change on proxies, and its cost.

use std::sync::Arc;

use policy::Policy;
use resources::{Kind, Resource};
use serde_json::json;
use topology::{Affected, AllMeshes, PolicyChange, ResourceChange};

use crate::fixtures::{
    calling, dataplane, gone, insight, mesh, present, resource, service, serving, spelled, state, with_status,
};

/// Two hundred services of one Dataplane each, and somebody who calls the first by tags.
fn large() -> AllMeshes {
    let services = (0..200).map(|i| service(&format!("s-{i}")));
    let dataplanes = (0..200).map(|i| serving(&format!("dp-{i}"), &format!("10.0.1.{i}"), &format!("s-{i}")));
    let caller = calling("caller", &[json!({ "kuma.io/service": "s-0" })]);
    state([mesh("STRICT"), caller].into_iter().chain(services).chain(dataplanes))
}

/// Applies a change; returns its effects in words, and the number of destinations that the state computed for
/// it.
fn effect(state: &mut AllMeshes, change: ResourceChange) -> (Vec<String>, u64) {
    let before = state.destinations_built();
    let updates = state.apply(&[change]);
    let mut words = Vec::new();
    for update in updates {
        let Affected {
            whole_mesh,
            policies,
            proxies,
            destinations,
            services,
            endpoints,
            virtual_hosts,
            globals,
            zones,
            access_rules,
            reachability,
            reachability_by_default,
        } = update.affected;
        words.extend(whole_mesh.then(|| "whole mesh".to_owned()));
        words.extend(policies.iter().map(|PolicyChange { old, new }| {
            let seen = |policy: &Option<Arc<Policy>>| policy.as_ref().map_or(0, |p| p.resource.version);
            let key = &old.as_ref().or(new.as_ref()).unwrap().resource.key;
            format!("{} {} from {} to {}", key.kind.name(), key.name, seen(old), seen(new))
        }));
        words.extend(proxies.iter().map(|name| format!("proxy {name}")));
        words.extend(destinations.iter().map(|id| format!("destination {}", spelled(id))));
        words.extend(services.iter().map(|(key, labels)| {
            let labels: Vec<String> =
                labels.iter().map(|labels| format!("{:?}", labels.get("team"))).collect();
            format!("service {} with teams {}", key.name, labels.join(" "))
        }));
        words.extend(virtual_hosts.keys().map(|host| format!("virtual host {host}")));
        words.extend(globals.iter().map(|key| format!("global {}", key.name)));
        words.extend(zones.iter().map(|zone| format!("zone {zone}")));
        words.extend(endpoints.iter().map(|id| format!("endpoints {}", spelled(id))));
        words.extend(access_rules.then(|| "access rules".to_owned()));
        words.extend(
            reachability.iter().map(|class| format!("reachability of {:?}", class.client().spiffe_ids)),
        );
        words.extend(reachability_by_default.then(|| "open".to_owned()));
    }
    (words, state.destinations_built() - before)
}

fn check(change: Resource, expect: &[&str], cost: u64) {
    let (words, built) = effect(&mut large(), present(change));
    assert_eq!(words, expect);
    assert_eq!(built, cost, "destinations computed");
}

#[test]
fn another_instance_concerns_the_endpoints_of_its_service_only() {
    check(serving("dp-x", "10.0.2.1", "s-7"), &["proxy dp-x", "endpoints kri_msvc_default___s-7_80"], 1);
    check(
        serving("dp-x", "10.0.2.1", "s-0"),
        &["proxy dp-x", "endpoints kri_msvc_default___s-0_80", "endpoints s-0"],
        2,
    );
}

#[test]
fn an_instance_that_moves_to_another_service_concerns_both() {
    let both = ["proxy dp-7", "endpoints kri_msvc_default___s-7_80", "endpoints kri_msvc_default___s-8_80"];
    check(serving("dp-7", "10.0.1.7", "s-8"), &both, 2);
}

#[test]
fn an_instance_that_leaves_concerns_the_endpoints_of_its_service_only() {
    let (words, built) = effect(&mut large(), gone(&serving("dp-7", "", "s-7")));
    assert_eq!(words, ["proxy dp-7", "endpoints kri_msvc_default___s-7_80"]);
    assert_eq!(built, 1);
}

#[test]
fn what_others_cannot_see_of_a_dataplane_concerns_its_proxy_only() {
    let with_admin = json!({
        "networking": {
            "address": "10.0.1.7",
            "admin": { "port": 9901 },
            "inbound": [{ "port": 80, "tags": { "kuma.io/service": "s-7" } }]
        }
    });
    check(resource(Kind::Dataplane, "dp-7", &[], with_admin), &["proxy dp-7"], 0);
}

#[test]
fn writes_that_say_nothing_to_proxies_concern_nobody() {
    let rewritten = Resource { version: 99, ..serving("dp-7", "10.0.1.7", "s-7") };
    check(rewritten, &[], 0);
    check(Resource { version: 99, ..mesh("STRICT") }, &[], 0);
    check(insight("dp-7", "ca-1"), &[], 0);
    check(resource(Kind::ZoneInsight, "east", &[], json!({})), &[], 0);
    let counted = json!({ "dataplaneProxies": { "total": 1 }, "tls": { "status": "Ready" } });
    check(with_status(service("s-7"), counted), &[], 1);
    let dying = [("kuma.io/deletion-grace-period-started-at".to_owned(), "now".to_owned())].into();
    check(Resource { labels: dying, ..service("s-7") }, &[], 1);
}

#[test]
fn counts_of_a_mesh_and_of_its_services_change_nothing_a_proxy_could_see() {
    let mut state = large();
    let before = state.mesh("default").unwrap().clone();
    let services = json!({ "services": { "s-7": { "status": "online", "dataplanes": { "total": 1 } } } });
    for counts in [
        resource(Kind::MeshInsight, "default", &[], json!({ "dataplanes": { "total": 201 } })),
        resource(Kind::ServiceInsight, "all-services-default", &[], services),
    ] {
        for change in [present(counts.clone()), gone(&counts)] {
            assert_eq!(effect(&mut state, change), (Vec::new(), 0));
            assert!(Arc::ptr_eq(&before, state.mesh("default").unwrap()));
        }
    }
}

#[test]
fn an_address_or_label_of_a_service_concerns_that_destination() {
    let vip = with_status(service("s-7"), json!({ "vips": [{ "ip": "241.0.0.1" }] }));
    check(vip, &["destination kri_msvc_default___s-7_80"], 1);
    let labels = [("team".to_owned(), "shop".to_owned())].into();
    let labelled = Resource { labels, ..service("s-7") };
    check(
        labelled,
        &["destination kri_msvc_default___s-7_80", "service s-7 with teams None Some(\"shop\")"],
        1,
    );
}

#[test]
fn a_service_that_comes_concerns_whoever_waits_for_it() {
    let id = "kri_msvc_default___fresh_80";
    let expect = [&format!("destination {id}"), "service fresh with teams None", "access rules"];
    check(service("fresh"), &expect, 1);
}

#[test]
fn tags_that_somebody_starts_to_call_concern_the_caller() {
    let caller = calling("caller", &[json!({ "kuma.io/service": "s-1" })]);
    check(caller, &["proxy caller", "destination s-0", "destination s-1", "access rules"], 1);
}

#[test]
fn the_mesh_concerns_everyone_but_only_mtls_changes_destinations() {
    let passthrough = json!({ "networking": { "outbound": { "passthrough": false } } });
    let mut plain = large();
    effect(&mut plain, present(mesh("")));
    let (words, built) = effect(&mut plain, present(resource(Kind::Mesh, "default", &[], passthrough)));
    assert_eq!((words, built), (vec!["whole mesh".to_owned()], 0));
    let (words, built) = effect(&mut large(), present(mesh("")));
    // Each of them has no rules any more, so that every client may call it.
    let expect = 1 + 201 + 1 + 1;
    assert_eq!((words.len(), built), (expect, 201));
}

#[test]
fn a_policy_concerns_whom_it_selected_before_and_whom_it_selects_now() {
    let policy = |version, labels: &[(&str, &str)], spec| Resource {
        version,
        ..resource(Kind::MeshTimeout, "p", labels, spec)
    };
    let dataplane = json!({ "targetRef": { "kind": "Dataplane", "name": "dp-7" } });
    let mut state = large();
    let mut check = |change, expect: &[&str]| {
        assert_eq!(effect(&mut state, change), (expect.iter().map(|&s| s.to_owned()).collect(), 0));
    };
    check(present(policy(1, &[], json!({}))), &["MeshTimeout p from 0 to 1"]);
    check(present(policy(2, &[], json!({}))), &[]);
    check(present(policy(3, &[("team", "x")], json!({}))), &["MeshTimeout p from 1 to 3"]);
    let last = policy(4, &[], dataplane);
    check(present(last.clone()), &["MeshTimeout p from 3 to 4"]);
    check(gone(&last), &["MeshTimeout p from 4 to 0"]);
    check(gone(&last), &[]);
    // What selects no proxies is nothing to any of them.
    check(present(resource(Kind::VirtualOutbound, "v", &[], json!({}))), &[]);
}

#[test]
fn a_policy_write_makes_one_view_however_many_policies_there_are() {
    let policy = |i: usize, labels: &[(&str, &str)]| {
        let top = json!({ "kind": "Dataplane", "name": format!("dp-{i}") });
        resource(Kind::MeshTimeout, &format!("p-{i:05}"), labels, json!({ "targetRef": top }))
    };
    for policies in [10, 1_000] {
        let mut state = large();
        state.apply(&(0..policies).map(|i| present(policy(i, &[]))).collect::<Vec<_>>());
        assert_eq!(state.views_made(), policies as u64);
        let before = state.mesh("default").unwrap().clone();
        state.apply(&[present(policy(7, &[("team", "x")]))]);
        assert_eq!(state.views_made(), policies as u64 + 1, "of {policies} policies");
        let after = state.mesh("default").unwrap();
        let pairs = before.policies.values().zip(after.policies.values());
        assert_eq!(pairs.filter(|(a, b)| !Arc::ptr_eq(a, b)).count(), 1, "the others are shared");
        // Neither do other changes make any.
        effect(&mut state, present(policy(7, &[("team", "x")])));
        effect(&mut state, present(serving("dp-7", "10.0.3.1", "s-7")));
        effect(&mut state, present(mesh("")));
        effect(&mut state, gone(&policy(7, &[])));
        assert_eq!(state.views_made(), policies as u64 + 1);
    }
}

#[test]
fn a_mesh_is_published_when_it_exists_and_withdrawn_when_it_is_gone() {
    let mut state = AllMeshes::default();
    let other = Resource {
        key: resources::Key::new(Kind::Dataplane, "other", "dp"),
        ..dataplane("dp", "10.0.0.1", json!([]))
    };
    assert!(state.apply(&[present(serving("dp", "10.0.0.1", "web")), present(other)]).is_empty());
    let updates = state.apply(&[present(mesh(""))]);
    assert_eq!(updates.len(), 1, "the other mesh does not exist");
    assert!(updates[0].affected.whole_mesh);
    assert_eq!(updates[0].snapshot.as_ref().unwrap().dataplanes.len(), 1);

    let updates = state.apply(&[gone(&mesh(""))]);
    assert!(updates[0].affected.whole_mesh && updates[0].snapshot.is_none());
    assert!(state.mesh("default").is_none());
}

#[test]
fn snapshots_share_what_did_not_change() {
    let mut state = large();
    let before = state.mesh("default").unwrap().clone();
    effect(&mut state, present(serving("dp-7", "10.0.3.1", "s-7")));
    let after = state.mesh("default").unwrap().clone();
    for (id, endpoints) in &before.endpoints {
        let same = Arc::ptr_eq(endpoints, &after.endpoints[id]);
        assert_eq!(same, spelled(id) != "kri_msvc_default___s-7_80", "{}", spelled(id));
        assert!(Arc::ptr_eq(&before.destinations[id], &after.destinations[id]));
    }
}

/// A reference more than before means that the list around it was copied.
#[test]
fn a_policy_write_copies_few_references_however_many_policies_exist() {
    let policy = |name: &str| resource(Kind::MeshTimeout, name, &[], json!({}));
    let copied = |policies: usize| {
        let mut state = state((0..policies).map(|i| policy(&format!("p-{i:05}"))).chain([mesh("STRICT")]));
        let before = state.mesh("default").unwrap().clone();
        let references = |policy: &Arc<Policy>| Arc::strong_count(policy);
        let counts: Vec<usize> = before.viewed(Kind::MeshTimeout).map(references).collect();
        state.apply(&[present(policy("p-00003-and-a-half"))]);
        let after = state.mesh("default").unwrap();
        assert_eq!(after.policies_of(Kind::MeshTimeout).count(), policies + 1);
        assert!(before.dataplanes.ptr_eq(&after.dataplanes) && before.endpoints.ptr_eq(&after.endpoints));
        before.viewed(Kind::MeshTimeout).zip(counts).filter(|(p, count)| references(p) > *count).count()
    };
    assert!(copied(10_000) <= copied(100), "{} of 10,000, {} of 100", copied(10_000), copied(100));
}

#[test]
fn of_two_services_with_one_identifier_the_first_by_name_is_reached() {
    let twin = Resource {
        labels: [("kuma.io/display-name".to_owned(), "web".to_owned())].into(),
        ..service("another")
    };
    let owner = |state: &AllMeshes| {
        let snapshot = state.mesh("default").unwrap();
        let only = snapshot.destinations.values().next().unwrap();
        only.service.as_ref().unwrap().name.to_string()
    };
    let mut state = state([mesh(""), service("web")]);
    assert_eq!(owner(&state), "web");
    state.apply(&[present(twin.clone())]);
    assert_eq!(owner(&state), "another");
    state.apply(&[gone(&twin)]);
    assert_eq!(owner(&state), "web");
}

#[test]
fn what_belongs_to_no_mesh_is_in_the_snapshot_of_every_mesh() {
    let mut state = large();
    let (words, built) = effect(&mut state, present(resource(Kind::Zone, "east", &[], json!({}))));
    assert_eq!((words, built), (vec!["global east".to_owned()], 0));
    assert_eq!(state.mesh("default").unwrap().globals.len(), 1);
    let again = present(resource(Kind::Zone, "east", &[], json!({})));
    assert!(state.apply(&[again]).is_empty());
    state.apply(&[gone(&resource(Kind::Zone, "east", &[], json!({})))]);
    assert!(state.mesh("default").unwrap().globals.is_empty());
}

#[test]
fn a_change_can_be_tried_on_a_copy_without_touching_the_state() {
    let state = large();
    let before = state.mesh("default").unwrap().clone();
    let mut copy = state.clone();
    let updates = copy.apply(&[gone(&serving("dp-7", "", "s-7")), present(service("fresh"))]);
    let tried = updates[0].snapshot.as_ref().unwrap();
    assert_eq!((tried.dataplanes.len(), tried.services.len()), (200, 201));
    assert_eq!(copy.destinations_built() - state.destinations_built(), 2, "it costs what the change costs");
    assert!(Arc::ptr_eq(state.mesh("default").unwrap(), &before));
    assert_eq!((before.dataplanes.len(), before.services.len()), (201, 200));
}

#[test]
fn a_collector_concerns_the_policies_that_refer_to_it() {
    let reference = json!({ "kind": "MeshOpenTelemetryBackend", "labels": { "team": "obs" } });
    let backend = json!({ "type": "OpenTelemetry", "openTelemetry": { "backendRef": reference } });
    let log = |name: &str, backends: serde_json::Value| {
        let entry = json!({ "targetRef": { "kind": "Mesh" }, "default": { "backends": backends } });
        resource(Kind::MeshAccessLog, name, &[], json!({ "to": [entry] }))
    };
    let mut state = large();
    state.apply(&[present(log("logs", json!([backend]))), present(log("others", json!([])))]);
    let otel = |team: &str| resource(Kind::MeshOpenTelemetryBackend, "otel", &[("team", team)], json!({}));
    let found = |state: &AllMeshes| {
        let labels = [("team".to_owned(), "obs".to_owned())].into();
        state.mesh("default").unwrap().telemetry_backend(&labels).map(|found| found.key.name.to_string())
    };
    assert_eq!(effect(&mut state, present(otel("other"))), (Vec::new(), 0));
    assert_eq!(found(&state), None);
    let one = |(words, built): (Vec<String>, u64)| {
        assert!(matches!(&words[..], [only] if only.starts_with("MeshAccessLog logs ")), "{words:?}");
        assert_eq!(built, 0);
    };
    one(effect(&mut state, present(otel("obs"))));
    assert_eq!(found(&state).as_deref(), Some("otel"));
    one(effect(&mut state, gone(&otel("obs"))));
    assert_eq!(found(&state), None);
}
