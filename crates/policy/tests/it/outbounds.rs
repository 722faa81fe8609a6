use std::sync::Arc;

use policy::{PolicyView, ResourceRules, outbound};
use resources::{Kind, Resource, naming::Kri, policy::Shape};
use serde_json::{Value, json};

use crate::support::{Known, foreign, origins, resource, timeout};

fn service(name: &str, with: &[(&str, &str)]) -> Arc<Resource> {
    let ports = json!([{"port": 80, "name": "http-port", "targetPort": 80, "appProtocol": "http"},
                       {"port": 81, "targetPort": 81, "appProtocol": "http"}]);
    resource(Kind::MeshService, name, with, json!({"selector": {}, "ports": ports}))
}

fn route(name: &str, with: &[(&str, &str)]) -> Arc<Resource> {
    resource(Kind::MeshHTTPRoute, name, with, json!({"targetRef": {"kind": "Mesh"}}))
}

fn mesh() -> Arc<Resource> {
    resource(Kind::Mesh, "default", &[], json!({}))
}

fn resolve(policies: &[PolicyView], destinations: &[Arc<Resource>]) -> ResourceRules {
    outbound::resolve(policies, &Known(destinations), Shape::default())
}

/// Asserts all rules: destination, conf, origins.
#[track_caller]
fn check(found: &ResourceRules, expect: &[(&str, Value, &[&str])]) {
    let found: Vec<(String, Value, Vec<String>)> = found
        .rules
        .values()
        .map(|rule| (rule.target.to_string(), rule.merged()[0].conf.clone(), origins(rule.origins())))
        .collect();
    let expect: Vec<(String, Value, Vec<String>)> = expect
        .iter()
        .map(|(kri, conf, from)| {
            ((*kri).to_owned(), conf.clone(), from.iter().map(|o| (*o).to_owned()).collect())
        })
        .collect();
    assert_eq!(found, expect);
}

fn kri(text: &str) -> Kri {
    text.parse().unwrap()
}

#[test]
fn a_service_inherits_from_the_mesh() {
    let policy = timeout(
        "t",
        &[],
        json!({"to": [
            {"targetRef": {"kind": "Mesh"}, "default": {"idleTimeout": "9s"}},
            {"targetRef": {"kind": "MeshService", "name": "backend"},
             "default": {"connectionTimeout": "11s", "http": {"requestTimeout": "12s"}}},
            {"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "21s"}}
        ]}),
    );
    let found = resolve(&[policy], &[mesh(), service("backend", &[]), service("other", &[])]);
    check(
        &found,
        &[
            ("kri_m____default_", json!({"connectionTimeout": "21s", "idleTimeout": "9s"}), &["t#0", "t#2"]),
            (
                "kri_msvc_default___backend_",
                json!({"connectionTimeout": "11s", "idleTimeout": "9s", "http": {"requestTimeout": "12s"}}),
                &["t#0", "t#2", "t#1"],
            ),
        ],
    );
    let lookup = |text: &str| found.for_destination(&kri(text)).unwrap().target.to_string();
    assert_eq!(lookup("kri_msvc_default___backend_http-port"), "kri_msvc_default___backend_");
    assert_eq!(lookup("kri_msvc_default___other_http-port"), "kri_m____default_");
    assert_eq!(resolve(&[], &[mesh()]).for_destination(&kri("kri_msvc_default___other_")), None);
}

#[test]
fn a_port_inherits_from_its_service() {
    let target = |section: Option<&str>| match section {
        None => json!({"kind": "MeshService", "name": "backend"}),
        Some(section) => json!({"kind": "MeshService", "name": "backend", "sectionName": section}),
    };
    let policy = timeout(
        "t",
        &[],
        json!({"to": [
            {"targetRef": target(Some("http-port")),
             "default": {"connectionTimeout": "11s", "http": {"requestTimeout": "12s"}}},
            {"targetRef": target(None), "default": {"idleTimeout": "9s", "connectionTimeout": "1m51s"}},
            {"targetRef": target(Some("unknown")), "default": {"idleTimeout": "1s"}},
            {"targetRef": target(Some("81")), "default": {"idleTimeout": "2s"}}
        ]}),
    );
    let found = resolve(&[policy], &[mesh(), service("backend", &[])]);
    check(
        &found,
        &[
            (
                "kri_msvc_default___backend_",
                json!({"connectionTimeout": "1m51s", "idleTimeout": "9s"}),
                &["t#1"],
            ),
            (
                "kri_msvc_default___backend_81",
                json!({"connectionTimeout": "1m51s", "idleTimeout": "2s"}),
                &["t#1", "t#3"],
            ),
            (
                "kri_msvc_default___backend_http-port",
                json!({"connectionTimeout": "11s", "idleTimeout": "9s", "http": {"requestTimeout": "12s"}}),
                &["t#1", "t#0"],
            ),
        ],
    );
}

#[test]
fn a_route_inherits_from_the_mesh_but_not_from_services() {
    let policy = timeout(
        "t",
        &[],
        json!({"to": [
            {"targetRef": {"kind": "MeshService", "name": "backend"},
             "default": {"idleTimeout": "30s", "http": {"requestTimeout": "25s"}}},
            {"targetRef": {"kind": "MeshHTTPRoute", "name": "http-route-1"},
             "default": {"http": {"requestTimeout": "15s"}}},
            {"targetRef": {"kind": "Mesh"},
             "default": {"connectionTimeout": "10s", "http": {"requestTimeout": "5s"}}}
        ]}),
    );
    let destinations =
        [mesh(), service("backend", &[]), route("http-route-1", &[]), route("http-route-2", &[])];
    let found = resolve(&[policy], &destinations);
    let conf = |request: &str| json!({"connectionTimeout": "10s", "http": {"requestTimeout": request}});
    let mut of_service = conf("25s");
    of_service["idleTimeout"] = json!("30s");
    check(
        &found,
        &[
            ("kri_m____default_", conf("5s"), &["t#2"]),
            ("kri_mhttpr_default___http-route-1_", conf("15s"), &["t#2", "t#1"]),
            ("kri_msvc_default___backend_", of_service, &["t#2", "t#0"]),
        ],
    );
    let backend = kri("kri_msvc_default___backend_http-port");
    let lookup =
        |route: &str| found.for_route(&kri(route), &backend).unwrap().target.short.as_str().to_owned();
    assert_eq!(lookup("kri_mhttpr_default___http-route-1_rule_0"), "mhttpr");
    assert_eq!(lookup("kri_mhttpr_default___http-route-2_"), "msvc");
}

#[test]
fn policies_merge_in_their_order_whatever_the_reference() {
    let by_name = json!({"kind": "MeshHTTPRoute", "name": "r"});
    let by_labels = json!({"kind": "MeshHTTPRoute", "labels": {"app": "x"}});
    let policy = |name, top: Value, to: &Value, conf: Value| {
        timeout(name, &[], json!({"targetRef": top, "to": [{"targetRef": to, "default": conf}]}))
    };
    let policies = [
        policy(
            "first",
            json!({"kind": "Mesh"}),
            &by_name,
            json!({"connectionTimeout": "1s", "http": {"requestTimeout": "20s"}}),
        ),
        policy(
            "second",
            json!({"kind": "Dataplane", "labels": {"a": "b"}}),
            &by_name,
            json!({"connectionTimeout": "2s", "idleTimeout": "30s"}),
        ),
        policy(
            "third",
            json!({"kind": "Mesh"}),
            &by_labels,
            json!({"connectionTimeout": "3s", "http": {"maxStreamDuration": "1m0s"}}),
        ),
    ];
    check(
        &resolve(&policies, &[mesh(), route("r", &[("app", "x")])]),
        &[(
            "kri_mhttpr_default___r_",
            json!({"connectionTimeout": "2s", "idleTimeout": "30s",
                   "http": {"requestTimeout": "20s", "maxStreamDuration": "1m0s"}}),
            &["third#0", "first#0", "second#0"],
        )],
    );
}

#[test]
fn a_policy_with_a_route_at_the_top_is_about_the_requests_of_that_route() {
    let mesh_ref = json!({"kind": "Mesh"});
    let entry = |to: &Value, request: &str| json!({"targetRef": to, "default": {"http": {"requestTimeout": request}}});
    let top = |name: &str| json!({"kind": "MeshHTTPRoute", "name": name});
    let policies = [
        timeout("all", &[], json!({"to": [{"targetRef": mesh_ref, "default": {"idleTimeout": "9s"}}]})),
        timeout("in-to", &[], json!({"to": [entry(&top("r"), "1s"), entry(&top("other"), "2s")]})),
        timeout(
            "at-top",
            &[],
            json!({"targetRef": top("r"), "to": [
                entry(&mesh_ref, "3s"),
                entry(&json!({"kind": "MeshExternalService", "name": "shop"}), "4s")]}),
        ),
        timeout("of-none", &[], json!({"targetRef": top("missing"), "to": [entry(&mesh_ref, "5s")]})),
    ];
    let external = json!({"match": {"type": "HostnameGenerator", "port": 80}, "endpoints": []});
    let shop = resource(Kind::MeshExternalService, "shop", &[], external);
    let destinations = [mesh(), service("backend", &[]), shop, route("r", &[]), route("other", &[])];
    let found = resolve(&policies, &destinations);
    let conf = |request: &str| json!({"idleTimeout": "9s", "http": {"requestTimeout": request}});
    let asked = |route: &str, destination: &str| {
        let rule = found.for_route(&kri(route), &kri(destination)).unwrap();
        (rule.merged()[0].conf.clone(), origins(rule.origins()))
    };
    let backend = "kri_msvc_default___backend_81";
    let shop = "kri_extsvc_default___shop_80";
    let r = "kri_mhttpr_default___r_rule_0";
    let other = "kri_mhttpr_default___other_rule_0";
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(asked(r, backend), (conf("3s"), named(&["all#0", "in-to#0", "at-top#0"])));
    assert_eq!(asked(r, shop), (conf("4s"), named(&["all#0", "in-to#0", "at-top#0", "at-top#1"])));
    assert_eq!(asked(other, shop), (conf("2s"), named(&["all#0", "in-to#1"])));
    // What is not a request of the route is left alone.
    assert_eq!(found.for_destination(&kri(shop)).unwrap().merged()[0].conf, json!({"idleTimeout": "9s"}));
    assert_eq!(found.all().count(), 4, "the mesh, two routes, and one of them to one destination");
}

#[test]
fn kubernetes_names_of_services_still_find_them() {
    let conf = json!({"idleTimeout": "5s"});
    let spec = json!({"to": [
        {"targetRef": {"kind": "MeshService", "name": "backend"}, "default": conf},
        {"targetRef": {"kind": "MeshService", "name": "backend_ns-k8s_svc_80"}, "default": conf}
    ]});
    let universal = [mesh(), service("backend", &[])];
    check(
        &resolve(&[timeout("t", &[], spec.clone())], &universal),
        &[("kri_msvc_default___backend_", conf.clone(), &["t#0"])],
    );
    let place: &[(&str, &str)] = &[("k8s.kuma.io/namespace", "ns-k8s"), ("kuma.io/zone", "east")];
    let named = [place, &[("kuma.io/display-name", "backend")]].concat();
    let kubernetes = [mesh(), service("backend.ns-k8s", &named)];
    check(
        &resolve(&[timeout("t", place, spec)], &kubernetes),
        &[
            ("kri_msvc_default_east_ns-k8s_backend_", conf.clone(), &["t#0"]),
            ("kri_msvc_default_east_ns-k8s_backend_http-port", conf, &["t#0", "t#1"]),
        ],
    );
}

#[test]
fn labels_choose_every_service_that_has_them_and_the_port() {
    let target = |labels: Value, section: &str| json!({"kind": "MeshService", "labels": labels, "sectionName": section});
    let policy = timeout(
        "t",
        &[],
        json!({"to": [
            {"targetRef": target(json!({"app": "backend"}), "http-port"),
             "default": {"connectionTimeout": "31s", "http": {"requestTimeout": "32s"}}},
            {"targetRef": target(json!({"app": "backend"}), "nowhere"), "default": {"idleTimeout": "1s"}},
            {"targetRef": target(json!({"app": "backend", "env": "dev"}), "http-port"),
             "default": {"connectionTimeout": "12s", "idleTimeout": "11s"}}
        ]}),
    );
    let destinations = [
        mesh(),
        service("backend-dev", &[("app", "backend"), ("env", "dev")]),
        service("backend-prod", &[("app", "backend"), ("env", "prod")]),
    ];
    check(
        &resolve(&[policy], &destinations),
        &[
            (
                "kri_msvc_default___backend-dev_http-port",
                json!({"connectionTimeout": "12s", "idleTimeout": "11s", "http": {"requestTimeout": "32s"}}),
                &["t#0", "t#2"],
            ),
            (
                "kri_msvc_default___backend-prod_http-port",
                json!({"connectionTimeout": "31s", "http": {"requestTimeout": "32s"}}),
                &["t#0"],
            ),
        ],
    );
}

#[test]
fn external_services_inherit_from_the_mesh_for_any_kind_of_policy() {
    let retry = foreign(
        "MeshRetry",
        "r",
        &json!({"to": [
            {"targetRef": {"kind": "Mesh"}, "default": {"http": {
                "numRetries": 99, "backOff": {"baseInterval": "55s"}, "retryOn": ["5xx"]}}},
            {"targetRef": {"kind": "MeshExternalService", "name": "ext"}, "default": {"http": {
                "numRetries": 10, "backOff": {"baseInterval": "15s", "maxInterval": "20m"}}}}
        ]}),
    );
    let external = resource(
        Kind::MeshExternalService,
        "ext",
        &[],
        json!({"match": {"type": "HostnameGenerator", "port": 80, "protocol": "http"}}),
    );
    let found = resolve(&[retry], &[mesh(), external]);
    let rule = found.for_destination(&kri("kri_extsvc_default___ext_80")).unwrap();
    assert_eq!(
        rule.merged().first().map(|merged| &merged.conf),
        Some(&json!({"http": {"numRetries": 10, "retryOn": ["5xx"],
                              "backOff": {"baseInterval": "15s", "maxInterval": "20m"}}}))
    );
}

#[track_caller]
fn for_service(policies: &[PolicyView], service: &str, expect: &Value) {
    let found = outbound::for_service(policies, service, |_| false, Shape::default()).unwrap();
    assert_eq!(&found.conf, expect, "{service}");
}

#[test]
fn destinations_known_by_their_tag_inherit_from_the_mesh_too() {
    let retry = foreign(
        "MeshRetry",
        "r",
        &json!({"to": [
            {"targetRef": {"kind": "Mesh"},
             "default": {"tcp": {"maxConnectAttempt": 5}, "http": {"perTryTimeout": "20s"}}},
            {"targetRef": {"kind": "MeshService", "name": "backend"},
             "default": {"tcp": {"maxConnectAttempt": 5}, "http": {"numRetries": 10}}}
        ]}),
    );
    let both = json!({"tcp": {"maxConnectAttempt": 5}, "http": {"perTryTimeout": "20s", "numRetries": 10}});
    let of_mesh = json!({"tcp": {"maxConnectAttempt": 5}, "http": {"perTryTimeout": "20s"}});
    for_service(std::slice::from_ref(&retry), "backend", &both);
    for_service(&[retry], "other", &of_mesh);

    let default = timeout(
        "default",
        &[],
        json!({"targetRef": {"kind": "Mesh"}, "to": [{"targetRef": {"kind": "Mesh"}, "default":
            {"idleTimeout": "20s", "connectionTimeout": "2s", "http": {"requestTimeout": "10s"}}}]}),
    );
    let request = |service: &str, value: &str| {
        json!({"targetRef": {"kind": "MeshService", "name": service},
               "default": {"http": {"requestTimeout": value}}})
    };
    let top = json!({"kind": "MeshService", "name": "foo"});
    let overriding = timeout(
        "override",
        &[],
        json!({"targetRef": top, "to": [request("foo", "15s"), request("bar", "20s")]}),
    );
    let policies = [overriding, default];
    for (service, value) in [("foo", "15s"), ("bar", "20s"), ("baz", "10s")] {
        let expect =
            json!({"idleTimeout": "20s", "connectionTimeout": "2s", "http": {"requestTimeout": value}});
        for_service(&policies, service, &expect);
    }
}

#[test]
fn policies_of_routes_do_not_reach_destinations_known_by_tag() {
    let policy = timeout(
        "t",
        &[],
        json!({"to": [
            {"targetRef": {"kind": "Mesh"}, "default": {"idleTimeout": "1s"}},
            {"targetRef": {"kind": "MeshHTTPRoute", "name": "r"}, "default": {"idleTimeout": "2s"}}
        ]}),
    );
    assert_eq!(outbound::for_service([&policy], "backend", |_| true, Shape::default()), None);
}

#[test]
fn a_policy_of_a_route_reaches_its_requests_to_destinations_by_tag() {
    let to_all = |conf: Value| json!([{"targetRef": {"kind": "Mesh"}, "default": conf}]);
    let top = json!({"kind": "MeshHTTPRoute", "name": "r"});
    let policies = [
        timeout("all", &[], json!({"to": to_all(json!({"idleTimeout": "1s", "connectionTimeout": "1s"}))})),
        timeout("of-route", &[], json!({"targetRef": top, "to": to_all(json!({"idleTimeout": "2s"}))})),
    ];
    let conf = |takes: bool| {
        outbound::for_service(&policies, "backend", |_| takes, Shape::default()).unwrap().conf.clone()
    };
    assert_eq!(conf(true), json!({"idleTimeout": "2s", "connectionTimeout": "1s"}));
    assert_eq!(conf(false), json!({"idleTimeout": "1s", "connectionTimeout": "1s"}));
}

#[test]
fn a_policy_of_a_zone_names_a_service_of_the_zone_or_else_of_global() {
    let external = |name: &str, with: &[(&str, &str)]| {
        resource(Kind::MeshExternalService, name, with, json!({"match": {"port": 80}}))
    };
    let of_global = external("ext-x8fzv", &[("kuma.io/display-name", "ext"), ("kuma.io/origin", "global")]);
    let of_west = external("ext-west", &[("kuma.io/display-name", "ext"), ("kuma.io/zone", "west")]);
    let own = external("ext", &[("kuma.io/zone", "east")]);
    let policy = |kind: &str, name: &str| {
        let to = json!([{"targetRef": {"kind": kind, "name": name}, "default": {"idleTimeout": "9s"}}]);
        timeout("t", &[("kuma.io/zone", "east")], json!({"to": to}))
    };
    let found = |policy: PolicyView, destinations: &[&Arc<Resource>]| {
        let all: Vec<Arc<Resource>> = destinations.iter().map(|&it| it.clone()).chain([mesh()]).collect();
        let found = resolve(&[policy], &all);
        let named: Vec<String> = found.rules.keys().map(Kri::to_string).collect();
        let awaited: Vec<String> = found.awaited.iter().map(Kri::to_string).collect();
        (named, awaited, found.unresolved.len())
    };
    let one = |kri: &str| vec![kri.to_owned()];
    let by_name = || policy("MeshExternalService", "ext");
    let awaited = "kri_extsvc_default_east__ext_";
    assert_eq!(
        found(by_name(), &[&of_global, &of_west]),
        (one("kri_extsvc_default___ext_"), one(awaited), 0)
    );
    assert_eq!(found(by_name(), &[&of_global, &own]), (one(awaited), vec![], 0));
    assert_eq!(found(by_name(), &[&of_west]), (vec![], one(awaited), 1));
    // MeshServices are of zones: a name never means one of another zone.
    let synchronised = service("s-x8", &[("kuma.io/display-name", "s"), ("kuma.io/zone", "west")]);
    assert_eq!(found(policy("MeshService", "s"), &[&synchronised]), (vec![], vec![], 1));
}
