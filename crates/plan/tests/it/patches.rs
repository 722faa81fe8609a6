//! Patches of a proxy, and patches that name objects by their other name.

use plan::{Applying, Calls, Class, ProxyTraits};
use serde_json::{Value, json};

use crate::{
    planned::{Planned, planned},
    support::{BACKEND, PLAIN, mesh, traits, unified, web},
};

const WEB: &str = "inbound: [{ name: http, port: 80, servicePort: 8080, tags: { kuma.io/service: web, kuma.io/protocol: http } }]\n\
    outbound: [{ port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }, { port: 10002, tags: { kuma.io/service: backend, version: v1 } }]\n\
    transparentProxying: { reachableBackends: {} }";

fn policy(name: &str, target: &str, modifications: &Value) -> String {
    format!(
        "type: MeshProxyPatch\nmesh: default\nname: {name}\nspec: {{ targetRef: {target}, \
         default: {{ appendModifications: {modifications} }} }}"
    )
}

/// A proxy whose configuration is patched.
fn patched(modifications: &Value) -> Planned {
    planned().backend().web(WEB).with(&[&policy("p", "{ kind: Mesh }", modifications)])
}

/// Returns the findings reported about a modification with this match.
fn told(field: &str, matched: Value, traits: &ProxyTraits) -> Vec<String> {
    let modification = json!([{ field: { "operation": "Remove", "match": matched } }]);
    let plan = patched(&modification).traits(traits).plan();
    plan.findings().iter().map(|finding| format!("{}: {finding}", finding.code)).collect()
}

#[track_caller]
fn check(field: &str, key: &str, old: &str, new: &str) {
    for (traits, foreign, own, word) in
        [(traits("web"), new, old, "unified"), (unified("web"), old, new, "older")]
    {
        let found = told(field, json!({ key: foreign }), &traits);
        let expect =
            format!("{foreign:?}, which is the {word} name of {own:?} in this proxy, so it changes nothing");
        assert!(found.len() == 1 && found[0].ends_with(&expect), "{expect}\n{found:#?}");
        assert!(
            found[0].starts_with("other-naming-scheme: appendModifications[0] matches the "),
            "{found:#?}"
        );
        assert_eq!(told(field, json!({ key: own }), &traits), [""; 0], "{own} is what it is called");
    }
}

#[test]
fn a_match_by_the_name_of_the_other_scheme_is_told() {
    check("cluster", "name", "localhost:8080", "self_http");
    check("listener", "name", "inbound:127.0.0.2:80", "self_http");
    check("networkFilter", "listenerName", "inbound:127.0.0.2:80", "self_http");
    check("httpFilter", "listenerName", "outbound:127.0.0.1:10001", "kri_msvc_default_east__backend_http");
    check("cluster", "name", "default_backend__east_msvc_80", "kri_msvc_default_east__backend_http");
    check("cluster", "name", "outbound:passthrough:ipv4", "self_passthrough_ipv4_outbound");
    check("cluster", "name", "kuma:envoy:admin", "system_envoy_admin");
    check("cluster", "name", "kuma:readiness", "system_probe_readiness");
}

#[test]
fn names_without_meaning_or_equal_in_both_schemes_are_not_reported() {
    for (field, matched) in [
        ("cluster", json!({ "name": "localhost:8081" })),
        ("cluster", json!({ "name": "self_other" })),
        ("cluster", json!({ "name": "kri_msvc_default_east__other_http" })),
        ("cluster", json!({ "name": "mine" })),
        ("cluster", json!({ "origin": "inbound" })),
        ("listener", json!({ "name": "inbound:127.0.0.9:80" })),
        // By tags a service is called the same in both.
        ("listener", json!({ "name": "outbound:127.0.0.1:10002" })),
        // Routes of services had their identifiers before.
        ("virtualHost", json!({ "routeConfigurationName": "kri_msvc_default_east__backend_http" })),
        // Filters of these are found by the names of either scheme.
        ("networkFilter", json!({ "listenerName": "outbound:passthrough:ipv4" })),
        ("networkFilter", json!({ "listenerName": "self_transparentproxy_passthrough_outbound_ipv4" })),
    ] {
        for traits in [traits("web"), unified("web")] {
            assert_eq!(told(field, matched.clone(), &traits), [""; 0], "{field} {matched}");
        }
    }
}

#[test]
fn a_policy_for_both_schemes_names_both_and_json_patches_are_skipped() {
    let remove = |name: &str| json!({ "cluster": { "operation": "Remove", "match": { "name": name } } });
    let both = json!([remove("localhost:8080"), remove("self_inbound_dp_http")]);
    let steps = json!([{ "op": "replace", "path": "/name", "value": "localhost:8080" }]);
    let json_patch = json!([{ "cluster": { "operation": "Patch", "jsonPatches": steps } }]);
    for traits in [traits("web"), unified("web")] {
        assert_eq!(patched(&both).traits(&traits).plan().findings(), []);
        assert_eq!(patched(&json_patch).traits(&traits).plan().findings(), []);
    }
}

#[test]
fn modifications_are_those_of_all_policies_and_each_is_told_with_its_own() {
    let remove = |name: &str| json!({ "cluster": { "operation": "Remove", "match": { "name": name } } });
    let general = policy("z", "{ kind: Mesh }", &json!([remove("a"), remove("localhost:8080")]));
    let specific =
        policy("a", "{ kind: Dataplane, name: web }", &json!([remove("b"), remove("kuma:readiness")]));
    let plan = plan::for_proxy(&mesh(&[PLAIN, &web(WEB), &specific, &general]), &unified("web")).unwrap();
    let patches = plan.own.patches.as_ref().unwrap();
    let names: Vec<&str> = patches
        .modifications()
        .iter()
        .map(|one| one.cluster.as_ref().unwrap().match_.as_ref().unwrap().name.as_deref().unwrap())
        .collect();
    assert_eq!(names, ["a", "localhost:8080", "b", "kuma:readiness"]);
    let about: Vec<(String, String)> = plan
        .findings()
        .iter()
        .filter(|finding| finding.code.name() == "other-naming-scheme")
        .map(|finding| (finding.about.clone().unwrap().to_string(), finding.to_string()[..22].to_owned()))
        .collect();
    let expect = |policy: &str| (format!("kri_mpp_default___{policy}_"), "appendModifications[1]".to_owned());
    assert_eq!(about, [expect("z"), expect("a")]);
}

#[test]
fn other_patches_make_another_class_and_passthrough_does_not() {
    let remove = json!([{ "cluster": { "operation": "Remove" } }]);
    let class = |policy: &str| {
        let mesh = mesh(&[PLAIN, BACKEND, &web(WEB), policy]);
        let dataplane = mesh.dataplanes.get("web").unwrap().clone();
        let class =
            Class::of(&traits("web"), &dataplane, Calls::of(&dataplane), Applying::of(&mesh, &dataplane));
        (class.applying.iter().count(), plan::outgoing(&mesh, &class).patches.is_some())
    };
    assert_eq!(class(&policy("p", "{ kind: Mesh }", &remove)), (1, true));
    assert_eq!(class(&policy("p", "{ kind: Dataplane, name: other }", &remove)), (0, false));
    let out = "type: MeshPassthrough\nmesh: default\nname: out\nspec: { default: { passthroughMode: None } }";
    assert_eq!(class(out), (0, false));
}
