//! The same plan, the same bytes; each resource encoded once.

use std::sync::Arc;

use envoy::{Encoder, json};
use serde_json::json;
use xds::{Target, Type};

use crate::support::{BACKEND, SECURED, mesh, plan, traits, unified, web};

const CALLS: &str = "outbound:\n\
    - { port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }\n\
    - { port: 10002, backendRef: { kind: MeshService, name: backend, port: 9000 } }\n\
    - { port: 10003, tags: { kuma.io/service: backend, version: v1 } }\n";

fn counts(encoder: &Encoder) -> [u64; 5] {
    Type::ALL.map(|kind| encoder.encoded(kind))
}

#[test]
fn the_same_plan_gives_the_same_bytes_whoever_encodes_it() {
    let web = web(&format!(
        "{CALLS}transparentProxying: {{}}\ninbound: [{{ port: 80, tags: {{ kuma.io/service: web, a: a, b: b, c: c, d: d }} }}]"
    ));
    for traits in [traits("web"), unified("web")] {
        let plan = plan(&[SECURED, BACKEND, &web], &traits);
        let first = Encoder::default().lower(&plan);
        for _ in 0..20 {
            assert_eq!(Encoder::default().lower(&plan), first);
        }
        for kind in Type::ALL {
            assert_eq!(kind == Type::Secret || kind == Type::Route, first.of(kind).is_empty(), "{kind:?}");
        }
    }
}

#[test]
fn nothing_is_encoded_twice() {
    let encoder = Encoder::default();
    let plan = plan(&[SECURED, BACKEND, &web(CALLS)], &unified("web"));
    let held = encoder.lower(&plan);
    let before = counts(&encoder);
    let again = encoder.lower(&plan);
    assert_eq!(counts(&encoder), before);
    for kind in Type::ALL {
        let same = |target: &Target| target.of(kind).values().map(Arc::as_ptr).collect::<Vec<_>>();
        assert_eq!(same(&held), same(&again));
    }
}

#[test]
fn one_endpoint_change_encodes_exactly_one_load_assignment() {
    let encoder = Encoder::default();
    let other = BACKEND
        .split("---")
        .nth(1)
        .unwrap()
        .replace("name: backend\nnetworking", "name: backend-2\nnetworking");
    let more = other.replace("127.0.0.3", "127.0.0.4").replace("port: 9000", "port: 9001");
    let of = |documents: &[&str]| plan::for_proxy(&mesh(documents), &unified("web")).unwrap();
    let web = web("outbound:\n\
        - { port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }\n\
        - { port: 10002, backendRef: { kind: MeshService, name: backend, port: 9000 } }\n");
    let _held = encoder.lower(&of(&[SECURED, BACKEND, &web]));
    let before = counts(&encoder);
    let after = encoder.lower(&of(&[SECURED, BACKEND, &more, &web]));
    let encoded = Type::ALL.map(|kind| (kind, encoder.encoded(kind) - before[kind as usize]));
    assert_eq!(
        encoded,
        [(Type::Cluster, 0), (Type::Endpoint, 1), (Type::Secret, 0), (Type::Listener, 0), (Type::Route, 0)]
    );
    let assignment = after.of(Type::Endpoint).get("kri_msvc_default_east__backend_http").unwrap();
    let shown = json::to_json(Type::Endpoint.url(), &assignment.body()).unwrap();
    assert_eq!(shown["endpoints"][0]["lbEndpoints"].as_array().unwrap().len(), 2);
}

#[test]
fn a_second_proxy_like_the_first_encodes_only_its_own() {
    let encoder = Encoder::default();
    let first = web(&format!(
        "{CALLS}inbound: [{{ name: main, port: 80, serviceAddress: 127.0.0.1, tags: {{ kuma.io/service: web }} }}]"
    ));
    let second = first.replace("name: web\n", "name: web-2\n").replace("127.0.0.2", "127.0.0.9");
    let mesh = mesh(&[SECURED, BACKEND, &first, &second]);
    let _held = encoder.lower(&plan::for_proxy(&mesh, &unified("web")).unwrap());
    let before = counts(&encoder);
    let _target = encoder.lower(&plan::for_proxy(&mesh, &unified("web-2")).unwrap());
    let encoded = Type::ALL.map(|kind| (kind, encoder.encoded(kind) - before[kind as usize]));
    // Its inbound and its admin interface listen at its own address.
    assert_eq!(
        encoded,
        [(Type::Cluster, 0), (Type::Endpoint, 0), (Type::Secret, 0), (Type::Listener, 2), (Type::Route, 0)]
    );
}

#[test]
fn what_nobody_has_is_forgotten() {
    let encoder = Encoder::default();
    let mut plan = plan(&[SECURED, &web("inbound: [{ port: 80 }]")], &unified("web"));
    for port in 1..3000 {
        plan.own.inbounds[0].workload.1 = port;
        plan.own.inbounds[0].port = port;
        encoder.lower(&plan);
    }
    assert!(encoder.remembered() <= 1024, "{}", encoder.remembered());
}

#[test]
fn secrets_are_encoded_under_the_name_they_are_asked_for() {
    let encoder = Encoder::default();
    let identity = encoder.secret("system_mtls_identity_default", "CHAIN", "KEY");
    let authorities = encoder.authorities("system_mtls_ca_default", "ROOTS");
    let shown = |secret: &xds::Encoded| json::to_json(Type::Secret.url(), &secret.body()).unwrap();
    assert_eq!(
        shown(&identity),
        json!({
            "name": "system_mtls_identity_default",
            "tlsCertificate": {"certificateChain": {"inlineBytes": "Q0hBSU4="}, "privateKey": {"inlineBytes": "S0VZ"}},
        })
    );
    assert_eq!(
        shown(&authorities),
        json!({"name": "system_mtls_ca_default", "validationContext": {"trustedCa": {"inlineBytes": "Uk9PVFM="}}})
    );
    assert_ne!(identity.version, encoder.secret("system_mtls_identity_default", "CHAIN", "OTHER").version);
    assert_eq!(encoder.remembered(), 0);
}
