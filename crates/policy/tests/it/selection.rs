use std::sync::Arc;

use policy::{Policy, PolicySelector, Selection};
use resources::{Kind, Resource};
use serde_json::{Value, json};

use crate::support::{dataplane, mtp, proxy, resource};

fn policy(with: &[(&str, &str)], top: Value) -> Arc<Resource> {
    let mut spec = json!({"from": [{"targetRef": {"kind": "Mesh"}, "default": {"action": "Allow"}}]});
    if !top.is_null() {
        spec["targetRef"] = top;
    }
    resource(Kind::MeshTrafficPermission, "p", with, spec)
}

/// A sidecar with two inbounds, in zone east and namespace shop.
fn sidecar() -> Arc<Resource> {
    dataplane(
        "web-1",
        &[
            ("app", "web"),
            ("kuma.io/origin", "zone"),
            ("kuma.io/zone", "east"),
            ("k8s.kuma.io/namespace", "shop"),
            ("kuma.io/display-name", "web-1"),
        ],
        json!({"address": "127.0.0.1", "inbound": [
            {"port": 8080, "name": "http", "tags": {"kuma.io/service": "web", "version": "v1"}},
            {"port": 9090, "tags": {"kuma.io/service": "admin", "version": "v1"}}
        ]}),
    )
}

const HERE: &[(&str, &str)] =
    &[("kuma.io/origin", "zone"), ("kuma.io/zone", "east"), ("k8s.kuma.io/namespace", "shop")];

/// Asking only whether a policy applies gives the same answer.
#[track_caller]
fn selection(policy: &Resource, proxy: &Resource) -> Selection {
    let found = PolicySelector::default().select(policy, proxy);
    assert_eq!(PolicySelector::default().selects(policy, proxy), !found.is_empty(), "{policy:?}");
    found
}

#[track_caller]
fn selects(with: &[(&str, &str)], top: Value, expect: &[usize]) {
    let found = selection(&policy(with, top.clone()), &sidecar());
    assert_eq!(found, Selection { inbounds: expect.to_vec(), ..Selection::default() }, "{top}");
}

#[test]
fn references_choose_inbounds() {
    selects(&[], Value::Null, &[0, 1]);
    selects(&[], json!({"kind": "Mesh"}), &[0, 1]);
    selects(&[], json!({"kind": "Mesh", "proxyTypes": ["Sidecar"]}), &[0, 1]);
    selects(&[], json!({"kind": "Mesh", "proxyTypes": ["Gateway"]}), &[]);
    selects(&[], json!({"kind": "Dataplane"}), &[0, 1]);
    selects(&[], json!({"kind": "Dataplane", "labels": {"app": "web"}}), &[0, 1]);
    selects(&[], json!({"kind": "Dataplane", "labels": {"app": "api"}}), &[]);
    selects(&[], json!({"kind": "Dataplane", "labels": {"app": "web"}, "sectionName": "http"}), &[0]);
    selects(&[], json!({"kind": "Dataplane", "sectionName": "9090"}), &[1]);
    // A port that has a name goes by its number, too.
    selects(&[], json!({"kind": "Dataplane", "sectionName": "8080"}), &[0]);
    for nothing in ["https", "808", "08080", "+8080", " 8080", "18080"] {
        selects(&[], json!({"kind": "Dataplane", "sectionName": nothing}), &[]);
    }
    selects(&[], json!({"kind": "Dataplane", "sectionName": ""}), &[0, 1]);
    selects(&[], json!({"kind": "MeshSubset"}), &[0, 1]);
    selects(&[], json!({"kind": "MeshSubset", "tags": {"version": "v1"}}), &[0, 1]);
    selects(&[], json!({"kind": "MeshSubset", "tags": {"version": "v1", "kuma.io/service": "web"}}), &[0]);
    selects(&[], json!({"kind": "MeshSubset", "tags": {"version": "v1"}, "proxyTypes": ["Gateway"]}), &[]);
    selects(&[], json!({"kind": "MeshService", "name": "admin"}), &[1]);
    selects(&[], json!({"kind": "MeshService", "labels": {"app": "web"}}), &[]);
    selects(&[], json!({"kind": "MeshServiceSubset", "name": "web", "tags": {"version": "v1"}}), &[0]);
    selects(&[], json!({"kind": "MeshServiceSubset", "name": "web", "tags": {"version": "*"}}), &[0]);
    selects(&[], json!({"kind": "MeshServiceSubset", "name": "web", "tags": {"version": "v2"}}), &[]);
    selects(&[], json!({"kind": "MeshGateway", "name": "edge"}), &[]);
}

#[test]
fn a_name_of_a_section_wins_over_the_number_of_a_port() {
    let proxy = |networking: Value| dataplane("web", &[], networking);
    let inbounds = |networking: Value, section: &str| {
        let top = json!({"kind": "Dataplane", "sectionName": section});
        selection(&policy(&[], top), &proxy(networking)).inbounds
    };
    let named_like_a_port = json!({"address": "127.0.0.1", "inbound": [
        {"port": 8080, "name": "9090"}, {"port": 9090}, {"port": 9090, "address": "127.0.0.2", "name": "b"}]});
    assert_eq!(inbounds(named_like_a_port.clone(), "9090"), [0]);
    assert_eq!(inbounds(named_like_a_port.clone(), "8080"), [0]);
    assert_eq!(inbounds(named_like_a_port, "b"), [2]);
    // One port at two addresses is two inbounds of that number.
    let twice = json!({"address": "127.0.0.1", "inbound": [
        {"port": 9090, "name": "a"}, {"port": 9090, "address": "127.0.0.2"}, {"port": 1}]});
    assert_eq!(inbounds(twice, "9090"), [0, 1]);
    // Inbounds and listeners of zone proxies share their names.
    let both = json!({"address": "127.0.0.1", "inbound": [{"port": 9090}],
        "listeners": [{"type": "ZoneIngress", "port": 10001, "name": "9090"}]});
    assert_eq!(inbounds(both, "9090"), [0_usize; 0]);
}

#[test]
fn a_proxy_that_only_calls_is_chosen_as_a_whole() {
    let proxy = dataplane("job", &[("app", "job")], json!({"address": "192.168.0.1"}));
    for (top, expect) in [
        (Value::Null, true),
        (json!({"kind": "Mesh", "proxyTypes": ["Sidecar"]}), true),
        (json!({"kind": "Mesh", "proxyTypes": ["Gateway"]}), false),
        (json!({"kind": "Dataplane", "labels": {"app": "job"}}), true),
        (json!({"kind": "Dataplane", "labels": {"app": "job"}, "sectionName": "http"}), false),
        (json!({"kind": "MeshSubset"}), false),
    ] {
        let found = selection(&policy(&[], top.clone()), &proxy);
        assert_eq!(found, Selection { caller: expect, ..Selection::default() }, "{top}");
    }
}

#[test]
fn names_mean_dataplanes_beside_the_policy() {
    selects(HERE, json!({"kind": "Dataplane", "name": "web-1"}), &[0, 1]);
    selects(HERE, json!({"kind": "Dataplane", "name": "web-1", "namespace": "shop"}), &[0, 1]);
    selects(HERE, json!({"kind": "Dataplane", "name": "web-1", "namespace": "other"}), &[]);
    selects(HERE, json!({"kind": "Dataplane", "name": "web-2"}), &[]);
    selects(&[], json!({"kind": "Dataplane", "name": "web-1"}), &[]);
}

#[test]
fn policies_of_other_zones_and_namespaces_do_not_apply() {
    let mesh = || json!({"kind": "Mesh"});
    let role = |role, namespace| {
        [
            ("kuma.io/policy-role", role),
            ("k8s.kuma.io/namespace", namespace),
            ("kuma.io/origin", "zone"),
            ("kuma.io/zone", "west"),
        ]
    };
    selects(&[("kuma.io/origin", "zone"), ("kuma.io/zone", "east")], mesh(), &[0, 1]);
    selects(&[("kuma.io/origin", "zone")], mesh(), &[0, 1]);
    selects(&[("kuma.io/origin", "zone"), ("kuma.io/zone", "west")], mesh(), &[]);
    selects(&[("kuma.io/origin", "global"), ("kuma.io/zone", "west")], mesh(), &[0, 1]);
    selects(&role("producer", "other"), mesh(), &[0, 1]);
    selects(&role("system", "other"), mesh(), &[]);
    for owner in ["consumer", "workload-owner"] {
        selects(&role(owner, "shop")[..2], mesh(), &[0, 1]);
        selects(&role(owner, "other")[..2], mesh(), &[]);
    }
}

#[test]
fn shadow_policies_count_only_when_asked_for() {
    let shadow = policy(&[("kuma.io/effect", "shadow")], Value::Null);
    assert!(PolicySelector::default().select(&shadow, &sidecar()).is_empty());
    assert!(
        !PolicySelector { with_shadow: true, ..PolicySelector::default() }
            .select(&shadow, &sidecar())
            .is_empty()
    );
}

#[test]
fn delegated_gateways_and_zone_proxy_listeners_are_selected_as_such() {
    let gateway = dataplane(
        "edge",
        &[],
        json!({"address": "127.0.0.1", "gateway": {"tags": {"kuma.io/service": "edge"}}}),
    );
    for (top, expect) in [
        (Value::Null, true),
        (json!({"kind": "Mesh", "proxyTypes": ["Gateway"]}), true),
        (json!({"kind": "Mesh", "proxyTypes": ["Sidecar"]}), false),
        (json!({"kind": "Dataplane"}), true),
        (json!({"kind": "Dataplane", "sectionName": "http"}), false),
        (json!({"kind": "MeshSubset", "tags": {"kuma.io/service": "edge"}}), true),
        (json!({"kind": "MeshService", "name": "web"}), false),
    ] {
        let found = selection(&policy(&[], top.clone()), &gateway);
        assert_eq!(found, Selection { gateway: expect, ..Selection::default() }, "{top}");
    }
    let zone_proxy = dataplane(
        "zone-proxy",
        &[],
        json!({"address": "127.0.0.1", "listeners": [
            {"type": "ZoneIngress", "port": 10001, "name": "in"}, {"type": "ZoneEgress", "port": 10002}
        ]}),
    );
    for (top, expect) in [
        (Value::Null, vec![0, 1]),
        (json!({"kind": "Dataplane", "sectionName": "10002"}), vec![1]),
        (json!({"kind": "Dataplane", "sectionName": "in"}), vec![0]),
        (json!({"kind": "Dataplane", "sectionName": "10001"}), vec![0]),
        (json!({"kind": "MeshSubset"}), vec![]),
    ] {
        let found = selection(&policy(&[], top.clone()), &zone_proxy);
        assert_eq!(found, Selection { listeners: expect, ..Selection::default() }, "{top}");
    }
}

#[test]
fn a_policy_on_a_route_selects_the_proxies_of_the_route() {
    let route = resource(
        Kind::MeshHTTPRoute,
        "http-route-1",
        &[],
        json!({"targetRef": {"kind": "MeshService", "name": "web-api"}}),
    );
    let timeout = |route| {
        resource(Kind::MeshTimeout, "t", &[], json!({"targetRef": {"kind": "MeshHTTPRoute", "name": route}}))
    };
    let routes = [route];
    let api = proxy("api-1", &[&[("kuma.io/service", "web-api")]]);
    let selector = PolicySelector { routes: &routes, ..PolicySelector::default() };
    assert_eq!(selector.select(&timeout("http-route-1"), &api).inbounds, [0]);
    assert!(selector.select(&timeout("unknown"), &api).is_empty());
    assert!(
        selector.select(&timeout("http-route-1"), &proxy("w", &[&[("kuma.io/service", "web")]])).is_empty()
    );
}

fn named(name: &str, with: &[(&str, &str)], top: Value) -> Arc<Policy> {
    let from = json!([{"targetRef": {"kind": "Mesh"}, "default": {"action": "Allow"}}]);
    prepared(resource(Kind::MeshTrafficPermission, name, with, json!({"targetRef": top, "from": from})))
}

fn prepared(policy: Arc<Resource>) -> Arc<Policy> {
    Arc::new(Policy::of(policy).unwrap())
}

fn names(policies: Vec<&Arc<Policy>>) -> Vec<&str> {
    policies.into_iter().map(|policy| policy.resource.name()).collect()
}

#[test]
fn policies_of_a_proxy_come_in_order_of_precedence() {
    let policies = [
        named("mtp-1", &[], json!({"kind": "MeshServiceSubset", "name": "web", "tags": {"version": "v1"}})),
        named("mtp-2", &[], json!({"kind": "Mesh"})),
        named("mtp-3", &[], json!({"kind": "MeshService", "name": "web"})),
        named("mtp-4", &[], json!({"kind": "MeshSubset", "tags": {"version": "v1"}})),
    ];
    let web = proxy(
        "web-1",
        &[&[("kuma.io/service", "web"), ("version", "v1")], &[("kuma.io/service", "web"), ("version", "v3")]],
    );
    let selector = PolicySelector::default();
    assert_eq!(names(selector.for_proxy(&policies, &web)), ["mtp-2", "mtp-4", "mtp-3", "mtp-1"]);
    let second = crate::support::inbound(&web, 1);
    let of_second = policies.iter().filter(|policy| selector.selects_inbound(&policy.resource, &web, second));
    assert_eq!(names(of_second.collect()), ["mtp-2", "mtp-3"]);
}

#[test]
fn tags_of_several_inbounds_do_not_add_up() {
    let subset = json!({"kind": "MeshSubset", "tags": {"version": "v1", "env": "dev", "team": "mesh"}});
    let apart = proxy("a", &[&[("version", "v1")], &[("env", "dev")], &[("team", "mesh")]]);
    assert!(PolicySelector::default().select(&named("p", &[], subset).resource, &apart).is_empty());
}

#[test]
fn references_to_dataplanes_are_ordered_from_labels_to_name_with_section() {
    let policies = [
        named("a", HERE, json!({"kind": "Dataplane", "name": "web-1", "sectionName": "http"})),
        named("b", HERE, json!({"kind": "Dataplane", "name": "web-1"})),
        named("c", HERE, json!({"kind": "Dataplane", "labels": {"app": "web"}, "sectionName": "http"})),
        named("d", HERE, json!({"kind": "Dataplane", "labels": {"app": "web"}})),
    ];
    assert_eq!(names(PolicySelector::default().for_proxy(&policies, &sidecar())), ["d", "c", "b", "a"]);
}

#[test]
fn of_two_policies_for_the_mesh_the_alphabetically_first_comes_last() {
    let policies = ["default-demo-app", "default-demo-app-b"].map(|name| prepared(mtp(name, json!({}))));
    assert_eq!(
        names(PolicySelector::default().for_proxy(&policies, &sidecar())),
        ["default-demo-app-b", "default-demo-app"]
    );
}

#[test]
fn policies_of_another_mesh_do_not_apply() {
    let mut other = Resource::clone(&policy(&[], Value::Null));
    other.key.mesh = "other".into();
    assert!(PolicySelector::default().select(&other, &sidecar()).is_empty());
}

#[test]
fn a_proxy_for_all_sidecars_of_a_zone_obeys_policies_for_all_of_them() {
    let check = |with: &[(&str, &str)], top: Value, expect: bool| {
        let policy = Arc::new(Policy::of(policy(with, top.clone())).unwrap());
        let found = PolicySelector::default().for_every_sidecar([&policy], "east");
        assert_eq!(!found.is_empty(), expect, "{with:?} {top}");
    };
    let of_zone = |zone| [("kuma.io/origin", "zone"), ("kuma.io/zone", zone)];
    check(&[], Value::Null, true);
    check(&[], json!({"kind": "Mesh", "proxyTypes": ["Sidecar"]}), true);
    check(&[], json!({"kind": "Mesh", "proxyTypes": ["Gateway"]}), false);
    check(&[], json!({"kind": "Dataplane", "labels": {"app": "web"}}), false);
    check(&[("kuma.io/effect", "shadow")], Value::Null, false);
    check(&of_zone("east"), Value::Null, true);
    check(&of_zone("west"), Value::Null, false);
    let role = |role| ("kuma.io/policy-role", role);
    check(&[&of_zone("west")[..], &[role("producer")]].concat(), Value::Null, true);
    check(&[&of_zone("east")[..], &[role("consumer")]].concat(), Value::Null, false);
}
