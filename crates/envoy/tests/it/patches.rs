//! Results of patching a configuration.

use std::{collections::BTreeSet, io::Read, io::Write, net::TcpStream, sync::Arc, time::Duration};

use envoy::{Encoder, bootstrap::ClusterNames, patch};
use plan::{AdminTls, Code, Finding, ProxyPlan};
use resources::format;
use serde_json::{Value, json};
use xds::{Target, Type};

use crate::{
    enforcement::free_port,
    live::Live,
    support::{BACKEND, PLAIN, plan, traits, unified, web},
    traffic::application,
    view::{check, shown},
};

const CALLS: &str = "inbound: [{ name: http, port: 80, servicePort: 8080, tags: { kuma.io/service: web, kuma.io/protocol: http, a: a, b: b, c: c } }]\n\
    outbound:\n\
    - { port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }\n\
    - { port: 10002, backendRef: { kind: MeshService, name: backend, port: 9000 } }\n";
const IN: &str = "self_http";
const HTTP: &str = "kri_msvc_default_east__backend_http";
const TCP: &str = "kri_msvc_default_east__backend_9000";
const MANAGER: &str = "/filterChains/0/filters/0/typedConfig";

/// A policy with these modifications, in JSON.
fn policy(modifications: &Value) -> String {
    format!(
        "type: MeshProxyPatch\nmesh: default\nname: p\nspec: {{ default: {{ appendModifications: {modifications} }} }}"
    )
}

fn planned(modifications: &Value) -> ProxyPlan {
    plan(&[PLAIN, BACKEND, &web(CALLS), &policy(modifications)], &unified("web"))
}

/// Returns the resources of the proxy, and the findings.
fn patched(modifications: &Value) -> (Target, Vec<Finding>) {
    let plan = planned(modifications);
    assert_eq!(plan.findings(), []);
    Encoder::default().lower_told(&plan)
}

#[track_caller]
fn applied(modifications: &Value) -> Target {
    let (target, findings) = patched(modifications);
    assert_eq!(findings, []);
    target
}

fn names(target: &Target, kind: Type) -> BTreeSet<String> {
    target.of(kind).keys().map(ToString::to_string).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

/// The names in a list of a resource.
fn listed(resource: &Value, pointer: &str) -> Vec<String> {
    let list = resource.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
    list.iter().map(|one| one["name"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn clusters_and_listeners_are_chosen_by_name_origin_and_tags() {
    let timeout = |matched: Value| {
        let patch =
            json!({ "cluster": { "operation": "Patch", "match": matched, "value": "connectTimeout: 77s" } });
        let target = applied(&json!([patch]));
        let changed = |name: &&str| shown(&target, Type::Cluster, name)["connectTimeout"] == "77s";
        [IN, HTTP, TCP, "system_envoy_admin"].into_iter().filter(changed).collect::<Vec<_>>()
    };
    assert_eq!(timeout(json!({})), [IN, HTTP, TCP, "system_envoy_admin"]);
    assert_eq!(timeout(json!({ "name": HTTP })), [HTTP]);
    assert_eq!(timeout(json!({ "origin": "inbound" })), [IN]);
    assert_eq!(timeout(json!({ "origin": "outbound" })), [HTTP, TCP]);
    assert_eq!(timeout(json!({ "origin": "admin" })), ["system_envoy_admin"]);
    assert_eq!(timeout(json!({ "origin": "inbound", "name": HTTP })), [""; 0]);
    // As Kuma spells it.
    assert_eq!(timeout(json!({ "name": "self_inbound_dp_http" })), [IN]);

    let limited = |matched: Value| {
        let patch = json!({ "listener": { "operation": "Patch", "match": matched, "value": "perConnectionBufferLimitBytes: 7" } });
        let target = applied(&json!([patch]));
        let changed =
            |name: &&str| shown(&target, Type::Listener, name)["perConnectionBufferLimitBytes"] == 7;
        [IN, HTTP, TCP].into_iter().filter(changed).collect::<Vec<_>>()
    };
    assert_eq!(limited(json!({ "tags": { "kuma.io/service": "web", "a": "*" } })), [IN]);
    assert_eq!(limited(json!({ "tags": { "kuma.io/service": "other" } })), [""; 0]);
    assert_eq!(limited(json!({ "tags": { "kuma.io/unified-name": HTTP } })), [HTTP]);
}

#[test]
fn resources_are_added_and_removed_and_later_patches_change_them() {
    let listener = "{ name: extra, address: { socketAddress: { address: 127.0.0.1, portValue: 7 } } }";
    let target = applied(&json!([
        { "cluster": { "operation": "Add", "value": "{ name: extra, connectTimeout: 1s, type: STATIC }" } },
        { "cluster": { "operation": "Patch", "match": { "origin": "mesh-proxy-patch" }, "value": "connectTimeout: 2s" } },
        { "cluster": { "operation": "Add", "value": "name: short-lived" } },
        { "cluster": { "operation": "Remove", "match": { "name": "short-lived" } } },
        { "cluster": { "operation": "Remove", "match": { "name": TCP } } },
        { "listener": { "operation": "Add", "value": listener } },
        { "listener": { "operation": "Remove", "match": { "name": TCP } } },
    ]));
    assert_eq!(
        names(&target, Type::Cluster),
        set(&["extra", HTTP, IN, "system_envoy_admin", "system_probe_readiness"])
    );
    assert_eq!(names(&target, Type::Listener), set(&["extra", HTTP, IN, "system_envoy_admin"]));
    check(&shown(&target, Type::Cluster, "extra"), &[("/connectTimeout", json!("2s"))]);
    check(&shown(&target, Type::Listener, "extra"), &[("/address/socketAddress/portValue", json!(7))]);
}

/// A proxy waits for the endpoints of clusters that have some here; it must not wait for endpoints that it never asks for.
#[test]
fn a_cluster_that_does_not_ask_for_endpoints_any_more_has_none() {
    assert_eq!(names(&applied(&json!([])), Type::Endpoint), set(&[HTTP, TCP]));
    for modification in [
        json!({ "cluster": { "operation": "Remove", "match": { "name": TCP } } }),
        json!({ "cluster": { "operation": "Patch", "match": { "name": TCP }, "value": "type: STATIC" } }),
        json!({ "cluster": { "operation": "Patch", "match": { "name": TCP }, "value": "edsClusterConfig: { serviceName: other }" } }),
        json!({ "cluster": { "operation": "Add", "value": format!("{{ name: {TCP}, type: STATIC, connectTimeout: 1s }}") } }),
    ] {
        let target = applied(&json!([modification]));
        assert_eq!(names(&target, Type::Endpoint), set(&[HTTP]), "{modification}");
    }
    let kept = json!({ "cluster": { "operation": "Patch", "match": { "name": TCP }, "value": "connectTimeout: 1s" } });
    assert_eq!(names(&applied(&json!([kept])), Type::Endpoint), set(&[HTTP, TCP]));
}

#[test]
fn network_filters_are_added_at_every_place_patched_and_removed() {
    let tcp = "envoy.filters.network.tcp_proxy";
    let at = |operation: &str, matched: Value| {
        let value = "name: extra";
        json!({ "networkFilter": { "operation": operation, "match": matched, "value": value } })
    };
    let within = json!({ "listenerName": TCP });
    let beside = json!({ "listenerName": TCP, "name": tcp });
    for (modification, expect) in [
        (at("AddFirst", within.clone()), vec!["extra", tcp]),
        (at("AddLast", within.clone()), vec![tcp, "extra"]),
        (at("AddBefore", beside.clone()), vec!["extra", tcp]),
        (at("AddAfter", beside.clone()), vec![tcp, "extra"]),
        (at("AddAfter", json!({ "listenerName": TCP, "name": "other" })), vec![tcp]),
        (json!({ "networkFilter": { "operation": "Remove", "match": beside } }), vec![]),
    ] {
        let target = applied(&json!([modification]));
        let filters = |name: &str| listed(&shown(&target, Type::Listener, name), "/filterChains/0/filters");
        assert_eq!(filters(TCP), expect, "{modification}");
        assert_eq!(filters(HTTP), ["envoy.filters.network.http_connection_manager"]);
    }
    let config = "{ name: x, typedConfig: { '@type': type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, idleTimeout: 7s } }";
    let target = applied(&json!([
        { "networkFilter": { "operation": "Patch", "match": { "name": tcp }, "value": config } },
        { "networkFilter": { "operation": "Patch", "match": { "name": tcp }, "jsonPatches": [
            { "op": "replace", "path": "/statPrefix", "value": "mine" }, { "op": "add", "path": "/maxConnectAttempts", "value": 9 },
        ] } },
    ]));
    check(
        &shown(&target, Type::Listener, TCP),
        &[
            (&format!("{MANAGER}/idleTimeout"), json!("7s")),
            (&format!("{MANAGER}/statPrefix"), json!("mine")),
            (&format!("{MANAGER}/cluster"), json!(TCP)),
            (&format!("{MANAGER}/maxConnectAttempts"), json!(9)),
        ],
    );
}

#[test]
fn http_filters_and_virtual_hosts_are_patched_in_connection_managers() {
    let router = "envoy.filters.http.router";
    let config = "{ name: x, typedConfig: { '@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router, suppressEnvoyHeaders: true } }";
    let target = applied(&json!([
        { "httpFilter": { "operation": "AddBefore", "match": { "name": router, "origin": "outbound" }, "value": "name: extra" } },
        { "httpFilter": { "operation": "Patch", "match": { "name": router }, "value": config } },
        { "virtualHost": { "operation": "Patch", "match": { "origin": "outbound", "name": HTTP }, "value": "{ includeRequestAttemptCount: true, domains: [also] }" } },
        { "virtualHost": { "operation": "Patch", "match": { "origin": "inbound" }, "jsonPatches": [{ "op": "remove", "path": "/routes" }] } },
        { "virtualHost": { "operation": "Add", "match": { "routeConfigurationName": HTTP }, "value": "{ name: added, domains: [added] }" } },
        { "virtualHost": { "operation": "Add", "match": { "routeConfigurationName": "none" }, "value": "{ name: lost, domains: [lost] }" } },
    ]));
    let inbound = shown(&target, Type::Listener, IN);
    let outbound = shown(&target, Type::Listener, HTTP);
    assert_eq!(listed(&outbound, &format!("{MANAGER}/httpFilters")), ["extra", router]);
    assert_eq!(listed(&inbound, &format!("{MANAGER}/httpFilters")), [router]);
    let hosts = format!("{MANAGER}/routeConfig/virtualHosts");
    assert_eq!(listed(&outbound, &hosts), [HTTP, "added"]);
    check(
        &outbound,
        &[
            (&format!("{hosts}/0/includeRequestAttemptCount"), json!(true)),
            (&format!("{hosts}/0/domains"), json!(["*", "also"])),
            (&format!("{MANAGER}/httpFilters/1/typedConfig/suppressEnvoyHeaders"), json!(true)),
        ],
    );
    check(&inbound, &[(&format!("{hosts}/0/routes"), json!(null))]);
    assert_eq!(listed(&inbound, &hosts).len(), 1);
}

#[test]
fn an_explicit_null_resets_a_field() {
    let patch = |steps: Value| json!([{ "cluster": { "operation": "Patch", "match": { "name": HTTP }, "jsonPatches": steps } }]);
    let target = applied(&patch(json!([
        { "op": "replace", "path": "/connectTimeout", "value": null },
        { "op": "add", "path": "/circuitBreakers/thresholds/0", "value": { "maxRetries": 7, "maxRequests": null } },
    ])));
    check(
        &shown(&target, Type::Cluster, HTTP),
        &[
            ("/connectTimeout", json!(null)),
            ("/circuitBreakers/thresholds/0", json!({ "maxRetries": 7 })),
            ("/circuitBreakers/thresholds/1/trackRemaining", json!(true)),
        ],
    );
}

#[test]
fn policies_add_up_and_the_most_specific_one_comes_last() {
    let of = |name: &str, target: &str, timeout: &str| {
        format!(
            "type: MeshProxyPatch\nmesh: default\nname: {name}\nspec: {{ targetRef: {target}, default: {{ appendModifications: \
             [{{ cluster: {{ operation: Patch, match: {{ name: {HTTP} }}, value: 'connectTimeout: {timeout}' }} }}] }} }}"
        )
    };
    let specific = of("specific", "{ kind: Dataplane, name: web }", "2s");
    let plan = plan(
        &[PLAIN, BACKEND, &web(CALLS), &specific, &of("general", "{ kind: Mesh }", "1s")],
        &unified("web"),
    );
    let target = Encoder::default().lower(&plan);
    check(&shown(&target, Type::Cluster, HTTP), &[("/connectTimeout", json!("2s"))]);
}

#[test]
fn what_cannot_be_done_is_left_out_with_a_reason_and_the_rest_is_done() {
    let tcp = "envoy.filters.network.tcp_proxy";
    let (target, findings) = patched(&json!([
        { "cluster": { "operation": "Patch", "match": { "origin": "outbound" }, "jsonPatches": [{ "op": "replace", "path": "/nothing", "value": 1 }] } },
        { "cluster": { "operation": "Patch", "match": { "name": HTTP }, "jsonPatches": [{ "op": "replace", "path": "/connectTimeout", "value": "soon" }] } },
        { "cluster": { "operation": "Patch", "match": { "name": HTTP }, "value": "name: renamed" } },
        { "networkFilter": { "operation": "Patch", "match": { "name": tcp }, "value": "{ typedConfig: { '@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router } }" } },
        { "cluster": { "operation": "Patch", "match": { "name": HTTP }, "value": "{ conectTimeout: 3s, lbPolicy: RANDOM }" } },
        { "cluster": { "operation": "Patch", "match": { "name": HTTP }, "value": "connectTimeout: 7s" } },
    ]));
    check(
        &shown(&target, Type::Cluster, HTTP),
        &[("/connectTimeout", json!("7s")), ("/lbPolicy", json!("RANDOM")), ("/name", json!(HTTP))],
    );
    let about: BTreeSet<String> =
        findings.iter().map(|finding| finding.about.clone().unwrap().to_string()).collect();
    assert_eq!(about, set(&["kri_mpp_default___p_"]));
    let mut told: Vec<String> =
        findings.iter().map(|finding| format!("{}: {finding}", finding.code)).collect();
    told.sort();
    assert_eq!(told.len(), 5, "{told:#?}");
    for (at, expect) in [
        (
            0,
            format!(
                "patch-field-unknown: appendModifications[4].cluster, on {HTTP}: unrecognized field name 'conectTimeout'"
            ),
        ),
        (
            1,
            format!(
                "patch-not-applied: appendModifications[0].cluster, on {TCP} and 1 more: jsonPatches[0]: there is nothing at /nothing"
            ),
        ),
        (2, format!("patch-not-applied: appendModifications[1].cluster, on {HTTP}: ")),
        (
            3,
            format!(
                "patch-not-applied: appendModifications[2].cluster, on {HTTP}: it would be called \"renamed\" then"
            ),
        ),
        (
            4,
            format!(
                "patch-not-applied: appendModifications[3].networkFilter, on {TCP}: the configuration of the filter {tcp} is of type"
            ),
        ),
    ] {
        assert!(told[at].starts_with(&expect), "{expect}\n{told:#?}");
    }
}

#[test]
fn proxies_without_patches_and_proxies_with_the_same_ones_share() {
    let encoder = Encoder::default();
    let modification = json!([{ "cluster": { "operation": "Patch", "match": { "name": HTTP }, "value": "connectTimeout: 7s" } }]);
    let plain = plan(&[PLAIN, BACKEND, &web(CALLS)], &unified("web"));
    let plain = encoder.lower(&plain);
    let first = encoder.lower(&planned(&modification));
    let encoded = Type::ALL.map(|kind| encoder.encoded(kind));
    let again = encoder.lower(&planned(&modification));
    assert_eq!(Type::ALL.map(|kind| encoder.encoded(kind)), encoded, "nothing was encoded again");
    let same = |one: &Target, other: &Target, kind: Type, name: &str| {
        Arc::ptr_eq(one.of(kind).get(name).unwrap(), other.of(kind).get(name).unwrap())
    };
    assert!(same(&first, &again, Type::Cluster, HTTP));
    assert!(!same(&plain, &first, Type::Cluster, HTTP));
    for (kind, name) in
        [(Type::Cluster, TCP), (Type::Cluster, IN), (Type::Listener, HTTP), (Type::Endpoint, HTTP)]
    {
        assert!(same(&plain, &first, kind, name), "{name}");
    }
    // A modification that chooses a listener and changes nothing leaves the one that all share.
    let nothing = json!([{ "networkFilter": { "operation": "Remove", "match": { "name": "none" } } }]);
    let untouched = encoder.lower(&planned(&nothing));
    assert!(same(&plain, &untouched, Type::Listener, HTTP));
}

#[test]
fn patched_resources_have_the_same_bytes_each_time() {
    let modifications = json!([
        { "listener": { "operation": "Patch", "jsonPatches": [{ "op": "add", "path": "/perConnectionBufferLimitBytes", "value": 7 }] } },
        { "cluster": { "operation": "Patch", "value": "metadata: { filterMetadata: { a: { x: y }, b: {}, c: {}, d: {} } }" } },
    ]);
    let first = applied(&modifications);
    for _ in 0..10 {
        assert_eq!(applied(&modifications), first);
    }
}

#[test]
fn the_key_of_the_admin_interface_is_out_of_reach() {
    let mut plan = planned(&json!([
        { "listener": { "operation": "Patch", "match": { "origin": "admin" }, "jsonPatches": [
            { "op": "copy", "from": "/filterChains", "path": "/metadata/filterMetadata/stolen/chains" },
        ] } },
        { "listener": { "operation": "Patch", "match": { "origin": "admin" }, "jsonPatches": [
            { "op": "replace", "path": "/filterChains/1/transportSocket", "value": null },
        ] } },
        { "httpFilter": { "operation": "AddFirst", "match": { "origin": "admin" }, "value": "name: extra" } },
    ]));
    let secret = "-----BEGIN PRIVATE KEY-----".to_owned();
    let tls = AdminTls { certificate: "CHAIN".to_owned(), key: secret, authority: "ROOT".into() };
    plan.own.admin.as_mut().unwrap().tls = Some(Arc::new(tls));
    let (target, findings) = Encoder::default().lower_told(&plan);
    let admin = shown(&target, Type::Listener, "system_envoy_admin");
    check(
        &admin,
        &[
            (
                "/metadata/filterMetadata/stolen/chains/0/filters/0/name",
                json!("envoy.filters.network.http_connection_manager"),
            ),
            ("/metadata/filterMetadata/stolen/chains/1", json!(null)),
            ("/filterChains/1/filterChainMatch/transportProtocol", json!("tls")),
            ("/filterChains/1/transportSocket/name", json!("envoy.transport_sockets.tls")),
        ],
    );
    assert_eq!(listed(&admin, &format!("{MANAGER}/httpFilters"))[0], "extra");
    assert_eq!(
        listed(&admin, "/filterChains/1/filters/0/typedConfig/httpFilters"),
        ["envoy.filters.http.router"]
    );
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].code, Code::PatchNotApplied);
}

#[test]
fn a_value_that_is_none_of_envoys_is_refused_when_it_is_written() {
    let found = |modification: Value| {
        let document = json!({ "type": "MeshProxyPatch", "mesh": "default", "name": "p",
            "spec": { "default": { "appendModifications": [modification] } } });
        let draft = format::parse(document).unwrap().draft;
        let mut found = draft.validate();
        let mut warnings = Vec::new();
        patch::check(&draft, &mut found, &mut warnings);
        (found.to_string(), warnings)
    };
    let at = "spec.default.appendModifications[0]";
    let add = |value: &str| json!({ "cluster": { "operation": "Add", "value": value } });
    assert_eq!(found(add("{ name: a, connectTimeout: 5s }")), (String::new(), Vec::new()));
    let (refused, _) = found(add("{ name: a, connectTimeout: 5 }"));
    assert!(
        refused.starts_with(&format!("{at}.cluster.value: native Envoy resource is not valid: ")),
        "{refused}"
    );
    let (refused, _) = found(add("{ name: a, lbPolicy: ROUND_ROBBIN }"));
    assert!(refused.contains("unrecognized enum value 'ROUND_ROBBIN'"), "{refused}");
    let typed = json!({ "httpFilter": { "operation": "AddLast", "value": "{ name: a, typedConfig: { '@type': type.googleapis.com/example.Nothing } }" } });
    let (refused, _) = found(typed);
    assert!(refused.contains("message 'example.Nothing' not found"), "{refused}");
    // What is no YAML is said once.
    let (refused, _) = found(add("{ name: "));
    assert_eq!(refused.matches("native Envoy resource is not valid").count(), 1, "{refused}");
    let (accepted, warnings) = found(add("{ name: a, conectTimeout: 5s }"));
    assert_eq!(accepted, "");
    assert_eq!(
        warnings,
        [format!("{at}.cluster.value: unrecognized field name 'conectTimeout'; it is ignored")]
    );
}

#[test]
fn no_modification_makes_anything_panic() {
    let values = ["{}", "name: x", "{ name: x, filterChains: [{ filters: [{ name: x }] }] }", "[", "7"];
    let steps = [
        json!({ "op": "remove", "path": "" }),
        json!({ "op": "add", "path": "", "value": 7 }),
        json!({ "op": "move", "from": "/name", "path": "/name/x" }),
    ];
    let whole = ["Add", "Remove", "Patch"];
    let filters = ["Remove", "Patch", "AddFirst", "AddBefore", "AddAfter", "AddLast"];
    for (field, operations) in [
        ("cluster", &whole[..]),
        ("listener", &whole),
        ("virtualHost", &whole),
        ("networkFilter", &filters),
        ("httpFilter", &filters),
    ] {
        for operation in operations {
            for matched in [json!({}), json!({ "name": "x" })] {
                for value in values {
                    let one = json!({ field: { "operation": operation, "match": matched, "value": value } });
                    let _ = patched(&json!([one]));
                }
                for step in &steps {
                    let one =
                        json!({ field: { "operation": operation, "match": matched, "jsonPatches": [step] } });
                    let _ = patched(&json!([one]));
                }
            }
        }
    }
}

/// Status line, headers and body of an answer.
fn ask(port: u16, path: &str) -> String {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nhost: one\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_real_envoy_does_what_patches_say() {
    let outbound = free_port();
    let extra = free_port();
    let inbound = free_port();
    let app = application("one");
    let service = format!(
        "type: MeshService\nmesh: default\nname: one\nspec:\n  selector: {{ dataplaneTags: {{ kuma.io/service: one }} }}\n\
         \x20 ports: [{{ port: 80, targetPort: {inbound}, appProtocol: http }}]"
    );
    let web = web(&format!(
        "inbound: [{{ address: 127.0.0.1, port: {inbound}, servicePort: {app}, tags: {{ kuma.io/service: one, kuma.io/protocol: http }} }}]\n\
         outbound: [{{ port: {outbound}, backendRef: {{ kind: MeshService, name: one, port: 80 }} }}]"
    ));
    let manager = json!({ "name": "envoy.filters.network.http_connection_manager", "typedConfig": {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "statPrefix": "extra",
        "httpFilters": [{ "name": "envoy.filters.http.router", "typedConfig": { "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" } }],
        "routeConfig": { "virtualHosts": [{ "name": "all", "domains": ["*"], "routes": [
            { "match": { "prefix": "/" }, "directResponse": { "status": 418, "body": { "inlineString": "added" } } },
        ] }] },
    } });
    let listener = json!({ "name": "extra", "address": { "socketAddress": { "address": "127.0.0.1", "portValue": extra } },
        "filterChains": [{ "filters": [manager] }] });
    let header = json!({ "responseHeadersToAdd": [{ "header": { "key": "x-patched", "value": "yes" } }] });
    let lua = json!({ "name": "envoy.filters.http.lua", "typedConfig": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
        "defaultSourceCode": { "inlineString": "function envoy_on_response(h) h:headers():add('x-lua', 'yes') end" },
    } });
    let patch = policy(&json!([
        { "listener": { "operation": "Add", "value": listener.to_string() } },
        { "virtualHost": { "operation": "Patch", "match": { "origin": "outbound" }, "value": header.to_string() } },
        { "httpFilter": { "operation": "AddFirst", "match": { "origin": "inbound" }, "value": lua.to_string() } },
        { "cluster": { "operation": "Patch", "match": { "origin": "outbound" }, "jsonPatches": [{ "op": "replace", "path": "/circuitBreakers", "value": null }] } },
    ]));
    for (traits, names) in [(traits("web"), ClusterNames::LEGACY), (unified("web"), ClusterNames::UNIFIED)] {
        let plan = plan(&[PLAIN, &service, &web, &patch], &plan::ProxyTraits { admin_port: 0, ..traits });
        assert_eq!((plan.findings().as_slice(), patch::findings(&plan).as_slice()), (&[][..], &[][..]));
        let _envoy = Live::start(&plan, names);
        let answer = ask(outbound, "/");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("x-patched: yes\r\n") && answer.contains("x-lua: yes\r\n"), "{answer}");
        let answer = ask(extra, "/");
        assert!(answer.starts_with("HTTP/1.1 418") && answer.ends_with("added"), "{answer}");
    }
}
