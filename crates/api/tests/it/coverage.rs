//! Every route has a case: what is asked, and what is answered.

use api::route::{self, Operation, Route};
use axum::body::Body;
use http::Method;
use resources::{Kind, Scope};
use serde_json::{Value, json};

use crate::{
    inspect::exclusive,
    samples,
    world::{World, request, resource},
};

/// What one route is asked and how it answers.
struct Case {
    path: String,
    body: Value,
    status: u16,
    /// What the answer must contain, by JSON pointer.
    expect: Vec<(&'static str, Value)>,
}

impl Case {
    fn get(path: impl Into<String>, expect: Vec<(&'static str, Value)>) -> Option<Case> {
        Some(Case { path: path.into(), body: Value::Null, status: 200, expect })
    }
}

/// The case of a route; `None` fails the test.
fn case(route: &Route) -> Option<Case> {
    match route.operation {
        Operation::List(kind) => {
            let expect =
                vec![("/total", json!(1)), ("/items/0/type", json!(kind.name())), ("/next", Value::Null)];
            Case::get(path(route, kind), expect)
        }
        Operation::Get(kind) => {
            let expect = vec![("/type", json!(kind.name())), ("/name", json!(name(kind)))];
            Case::get(path(route, kind), expect)
        }
        Operation::OverviewList(kind) => {
            let expect = vec![("/total", json!(1)), ("/items/0/type", json!(format!("{kind}Overview")))];
            Case::get(path(route, kind), expect)
        }
        Operation::Overview(kind) => {
            Case::get(path(route, kind), vec![("/type", json!(format!("{kind}Overview")))])
        }
        Operation::Put(kind) => Some(Case {
            path: path(route, kind),
            body: resource(kind, "default", name(kind), samples::spec(kind)?),
            status: if kind.descriptor().read_only { 405 } else { 200 },
            expect: Vec::new(),
        }),
        Operation::Delete(kind) => Some(Case {
            path: path(route, kind),
            body: Value::Null,
            status: if kind.descriptor().read_only { 405 } else { 200 },
            expect: Vec::new(),
        }),
        special => special_case(special, &route.path),
    }
}

fn special_case(operation: Operation, template: &str) -> Option<Case> {
    let post = |body: Value| {
        Some(Case {
            path: template.into(),
            body,
            status: 404,
            expect: vec![("/title", json!("Signing Key not found"))],
        })
    };
    match operation {
        Operation::Index => Case::get("/", vec![("/product", json!("Kuma"))]),
        Operation::Config => Case::get("/config", Vec::new()),
        Operation::WhoAmI => Case::get("/who-am-i", vec![("/name", json!("mesh-system:admin"))]),
        Operation::Backup => Case::get("/_backup", Vec::new()),
        Operation::Policies => Case::get("/policies", vec![("/policies/0/name", json!("MeshAccessLog"))]),
        Operation::ResourceTypes => Case::get("/_resources", vec![("/resources/0/name", json!("Dataplane"))]),
        Operation::GlobalInsight => Case::get("/global-insight", vec![("/meshes/total", json!(1))]),
        Operation::GlobalInsights => Case::get("/global-insights", vec![("/resources/Mesh/total", json!(1))]),
        Operation::ByKri => Case::get("/_kri/kri_m____default_", vec![("/name", json!("default"))]),
        Operation::DataplaneToken => post(json!({ "mesh": "default" })),
        Operation::ZoneToken => post(json!({ "zone": "east", "scope": ["ingress"] })),
        Operation::UserToken => post(json!({ "name": "john", "validFor": "1h" })),
        Operation::Hostnames => {
            let path = template.replace("{mesh}", "default").replace("{serviceType}", "meshservices");
            Case::get(path.replace("{name}", "sample"), vec![("/total", json!(0)), ("/items", Value::Null)])
        }
        Operation::ServiceDataplanes => {
            let path = template.replace("{mesh}", "default").replace("{name}", "sample");
            Case::get(path, vec![("/total", json!(3)), ("/items/0/type", json!("Dataplane"))])
        }
        Operation::ServiceInsightList => {
            let expect = vec![("/total", json!(2)), ("/items/0/name", json!("backend"))];
            Case::get(template.replace("{mesh}", "default"), expect)
        }
        Operation::ServiceInsight => {
            let path = template.replace("{mesh}", "default").replace("{name}", "backend");
            Case::get(path, vec![("/dataplanes/total", json!(3))])
        }
        inspecting => inspect_case(inspecting, template),
    }
}

/// Looking into proxies.
fn inspect_case(operation: Operation, template: &str) -> Option<Case> {
    let path = template.replace("{mesh}", "default").replace("{name}", "sample");
    match operation {
        Operation::ProxyXds(_) | Operation::ProxyStats(_) | Operation::ProxyClusters(_) => {
            Case::get(path, Vec::new())
        }
        Operation::ProxyLogging | Operation::ProxySetLogging => logging_case(operation, path),
        Operation::ProxyConfig => Case::get(path, vec![("/xds/a.Type/of", json!("sample"))]),
        Operation::ProxyLayout => {
            Case::get(path, vec![("/kri", json!("layout of sample")), ("/listeners", json!([]))])
        }
        Operation::ProxyHostnames => Case::get(path, vec![("/items/0/hostname", json!("sample.mesh"))]),
        Operation::ProxyRules => {
            Case::get(path, vec![("/resource/name", json!("sample")), ("/rules", json!([]))])
        }
        Operation::ProxyPolicies
        | Operation::InboundPolicies
        | Operation::OutboundPolicies
        | Operation::OutboundRoutes
        | Operation::RoutePolicies => {
            let path = path.replace("{route}", "kri_mhttpr_default___sample_");
            let path = path.replace("{kri}", "kri_msvc_default___sample_80");
            let expect = match operation {
                Operation::OutboundRoutes => ("/routes/0/kind", json!("MeshTCPRoute")),
                _ => ("/policies/0/kind", json!("MeshTimeout")),
            };
            Case::get(path, vec![expect])
        }
        Operation::PolicyDataplanes(_) => {
            Case::get(path, vec![("/total", json!(3)), ("/items/0/type", json!("Dataplane"))])
        }
        Operation::OlderPolicies => {
            let pointer = "/items/0/matchedPolicies/MeshTimeout/0/name";
            Case::get(path, vec![("/kind", json!("SidecarDataplane")), (pointer, json!("mine"))])
        }
        Operation::OlderRules => Case::get(path, vec![("/total", json!(0)), ("/items", json!([]))]),
        Operation::OlderDataplanes(_) => {
            Case::get(path, vec![("/total", json!(3)), ("/items/0/dataplane/name", json!("one"))])
        }
        Operation::Problems => {
            Case::get(path, vec![("/total", json!(2)), ("/items/0/code", json!("port-conflict"))])
        }
        Operation::Snis => {
            let value = "a4bb7f9d88bef4df6.sample.80.default.ms";
            let destination = "/items/0/destinations/0/kri";
            let expect = vec![("/total", json!(1)), (destination, json!("kri_msvc_default___sample_80"))];
            Case::get(format!("{path}?value={value}"), expect)
        }
        Operation::SniUsage => {
            let value = "a4bb7f9d88bef4df6.sample.80.default.ms";
            let expect = vec![("/total", json!(1)), ("/items/0/connections", json!(0))];
            Case::get(format!("{path}?value={value}"), expect)
        }
        Operation::Access => {
            let path = format!("{path}?from=a&to=b");
            Case::get(path, vec![("/verdict", json!("Mixed")), ("/from/name", json!("default/a"))])
        }
        Operation::WhatIf => what_if_case(path),
        others => reachability_case(others, &path),
    }
}

/// How much proxies log.
fn logging_case(operation: Operation, path: String) -> Option<Case> {
    if operation == Operation::ProxyLogging {
        return Case::get(path, vec![("/loggers/rbac", json!("info"))]);
    }
    Some(Case {
        path: format!("{path}?level=debug&logger=rbac"),
        body: json!({}),
        status: 200,
        expect: vec![("/loggers/rbac", json!("debug"))],
    })
}

/// Who calls whom, and who may.
fn reachability_case(operation: Operation, path: &str) -> Option<Case> {
    match operation {
        Operation::Observed => {
            Case::get(path, vec![("/edges/0/caller", json!("outside")), ("/dropped", json!(false))])
        }
        Operation::ProxySync => Case::get(path, vec![("/state", json!("behind"))]),
        Operation::Suggestions => {
            let expect =
                vec![("/permissions/0/resource/name", json!("allow-to-sample")), ("/unseen", json!([]))];
            Case::get(format!("{path}?service=sample"), expect)
        }
        Operation::ProxyReachability => Case::get(
            format!("{path}?to=b"),
            vec![("/destination", json!("b")), ("/verdict", json!("denied"))],
        ),
        Operation::MeshReachability => Case::get(
            format!("{path}?size=2&offset=3"),
            vec![("/total", json!(3)), ("/items/0/name", json!("default 2 from 3"))],
        ),
        Operation::Graph => {
            Case::get(format!("{path}?service=b"), vec![("/nodes/0/id", json!("b")), ("/open", json!(1))])
        }
        _ => None,
    }
}

fn what_if_case(path: String) -> Option<Case> {
    let timeout = resource(Kind::MeshTimeout, "default", "new", samples::spec(Kind::MeshTimeout)?);
    let gone = json!({ "type": "MeshTimeout", "name": "sample" });
    let body = json!({ "resources": [timeout], "delete": [gone] });
    let expect = vec![
        ("/changes/0/action", json!("create")),
        ("/changes/1/action", json!("delete")),
        ("/proxies/affected", json!(2)),
        ("/refused", json!([])),
    ];
    Some(Case { path, body, status: 200, expect })
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Mesh => "default",
        Kind::ServiceInsight => "all-services-default",
        _ => "sample",
    }
}

fn path(route: &Route, kind: Kind) -> String {
    route.path.replace("{mesh}", "default").replace("{name}", name(kind))
}

/// Whether everything that was given is there; defaults and computed fields may have come along.
fn contains(read: &Value, given: &Value) -> bool {
    match (read, given) {
        (Value::Object(read), Value::Object(given)) => {
            given.iter().all(|(field, value)| read.get(field).is_some_and(|read| contains(read, value)))
        }
        (Value::Array(read), Value::Array(given)) => {
            read.len() == given.len() && read.iter().zip(given).all(|(read, given)| contains(read, given))
        }
        _ => read == given,
    }
}

/// A store with one resource of every kind.
async fn full_world() -> World {
    let world = World::new().await;
    exclusive(&world).await;
    for &kind in Kind::ALL.iter().filter(|&&kind| kind != Kind::Mesh) {
        let Some(spec) = samples::spec(kind) else { continue };
        let mesh = if kind.descriptor().scope == Scope::Mesh { "default" } else { "" };
        world.store(kind, mesh, name(kind), spec).await;
    }
    world
}

#[tokio::test]
async fn every_route_has_a_case_and_answers_it() {
    for route in route::all() {
        let Some(case) = case(&route) else { panic!("no case for {} {}", route.method, route.path) };
        let world = full_world().await;
        if route.method == Method::DELETE && matches!(route.operation, Operation::Delete(Kind::Mesh)) {
            // A mesh with dataplanes must stay; that is another test.
            world.delete("/meshes/default/dataplanes/sample").await.expect(200);
        }
        let body = if case.body.is_null() { Body::empty() } else { Body::from(case.body.to_string()) };
        let answer = world.send(request(route.method.clone(), &case.path, body)).await;
        assert_eq!(answer.status.as_u16(), case.status, "{} {}: {}", route.method, case.path, answer.body);
        for (pointer, expect) in case.expect {
            let json = answer.json();
            assert_eq!(
                json.pointer(pointer),
                Some(&expect),
                "{} {} {pointer}: {json}",
                route.method,
                case.path
            );
        }
    }
}

#[tokio::test]
async fn every_kind_can_be_created_read_back_and_deleted() {
    for &kind in
        Kind::ALL.iter().filter(|kind| !kind.descriptor().path.is_empty() && !kind.descriptor().read_only)
    {
        let world = World::new().await;
        let descriptor = kind.descriptor();
        let path = match descriptor.scope {
            Scope::Global => format!("/{}/one", descriptor.path),
            Scope::Mesh => format!("/meshes/default/{}/one", descriptor.path),
        };
        let body = resource(kind, "default", "one", samples::spec(kind).unwrap());
        let created = world.put(&path, &body).await.expect(201);
        assert_eq!((created.body.as_str(), created.header("x-kuma-outcome")), ("{}\n", "created"), "{kind}");
        let again = world.put(&path, &body).await.expect(200);
        assert_eq!(again.header("x-kuma-outcome"), "unchanged", "{kind}");
        let read = world.get(&path).await.expect(200).json();
        assert_eq!((&read["type"], &read["name"]), (&json!(kind.name()), &json!("one")));
        for (field, value) in body.as_object().unwrap() {
            if field != "labels" {
                assert!(contains(&read[field], value), "{kind} {field}: {} in {value}", read[field]);
            }
        }
        let k8s = world.get(&format!("{path}?format=k8s")).await.expect(200).json();
        assert!(k8s["apiVersion"].is_string(), "{kind}: {k8s}");
        world.delete(&path).await.expect(200);
        world.get(&path).await.expect_problem(404, "Could not retrieve a resource", "Not found");
    }
}
