//! Every route has a case: what is asked, and what is answered.

use api::route::{self, Route, Tag};
use axum::body::Body;
use contract::events::EventKind;
use events::Occurrence;
use http::Method;
use resources::{Key, Kind, Scope};
use serde_json::{Value, json};

use crate::{
    inspect::exclusive,
    samples,
    world::{World, request, resource},
};

/// Request to one route, and its answer.
struct Case {
    path: String,
    body: Value,
    status: u16,
    /// Required values of the answer, by JSON pointer.
    expect: Vec<(&'static str, Value)>,
}

impl Case {
    fn get(path: impl Into<String>, expect: Vec<(&'static str, Value)>) -> Option<Case> {
        Some(Case { path: path.into(), body: Value::Null, status: 200, expect })
    }
}

/// The case of a route; `None` fails the test.
fn case(route: &Route) -> Option<Case> {
    match route.tag {
        Tag::Kind(kind) if route.method == Method::GET => read_case(route, kind),
        Tag::Kind(kind) => write_case(route, kind),
        Tag::System | Tag::Kri => system_case(&route.path),
        Tag::Tokens => token_case(&route.path),
        Tag::Inspect if route.path.starts_with(DATAPLANE) => proxy_case(route),
        Tag::Inspect => inspect_case(&route.path),
    }
}

/// Path of a proxy.
const DATAPLANE: &str = "/meshes/{mesh}/dataplanes/{name}/";

fn read_case(route: &Route, kind: Kind) -> Option<Case> {
    let is_one = route.path.contains("{name}");
    let shows_insights =
        ["/_overview", "+insights", "overviews"].iter().any(|part| route.path.contains(part));
    let path = path(route, kind);
    if kind == Kind::ServiceInsight && is_one {
        let path = route.path.replace("{mesh}", "default").replace("{name}", "backend");
        return Case::get(path, vec![("/dataplanes/total", json!(3))]);
    }
    if kind == Kind::ServiceInsight {
        return Case::get(path, vec![("/total", json!(2)), ("/items/0/name", json!("backend"))]);
    }
    let overview = format!("{kind}Overview");
    let expect = match (is_one, shows_insights) {
        (true, true) => vec![("/type", json!(overview))],
        (true, false) => vec![("/type", json!(kind.name())), ("/name", json!(name(kind)))],
        (false, true) => vec![("/total", json!(1)), ("/items/0/type", json!(overview))],
        (false, false) => {
            vec![("/total", json!(1)), ("/items/0/type", json!(kind.name())), ("/next", Value::Null)]
        }
    };
    Case::get(path, expect)
}

fn write_case(route: &Route, kind: Kind) -> Option<Case> {
    let is_put = route.method == Method::PUT;
    let body = if is_put { resource(kind, "default", name(kind), samples::spec(kind)?) } else { Value::Null };
    let status = if kind.descriptor().read_only { 405 } else { 200 };
    Some(Case { path: path(route, kind), body, status, expect: Vec::new() })
}

fn token_case(path: &str) -> Option<Case> {
    let body = match path {
        "/tokens/dataplane" => json!({ "mesh": "default" }),
        "/tokens/zone" => json!({ "zone": "east", "scope": ["ingress"] }),
        "/tokens/user" => json!({ "name": "john", "validFor": "1h" }),
        _ => return None,
    };
    let expect = vec![("/title", json!("Signing Key not found"))];
    Some(Case { path: path.into(), body, status: 404, expect })
}

fn system_case(path: &str) -> Option<Case> {
    match path {
        "/" => Case::get(path, vec![("/product", json!("Kuma"))]),
        "/config" | "/_backup" => Case::get(path, Vec::new()),
        "/_events" => {
            // Writes of other cases are events, too.
            let path = "/_events?kind=proxy-connected";
            Case::get(path, vec![("/items/0/kind", json!("proxy-connected")), ("/next", Value::Null)])
        }
        "/who-am-i" => Case::get(path, vec![("/name", json!("mesh-system:admin"))]),
        "/policies" => Case::get(path, vec![("/policies/0/name", json!("MeshAccessLog"))]),
        "/_resources" => Case::get(path, vec![("/resources/0/name", json!("Dataplane"))]),
        "/global-insight" => Case::get(path, vec![("/meshes/total", json!(1))]),
        "/global-insights" => Case::get(path, vec![("/resources/Mesh/total", json!(1))]),
        "/_kri/{kri}" => Case::get("/_kri/kri_m____default_", vec![("/name", json!("default"))]),
        _ => None,
    }
}

/// Looking into a Dataplane proxy.
fn proxy_case(route: &Route) -> Option<Case> {
    let path = route.path.replace("{mesh}", "default").replace("{name}", "sample");
    let path = path.replace("{route}", "kri_mhttpr_default___sample_");
    let path = path.replace("{kri}", "kri_msvc_default___sample_80");
    let expect = match route.path.strip_prefix(DATAPLANE)? {
        "xds" | "stats" | "clusters" => Vec::new(),
        "logging" => return Some(logging_case(&route.method, path)),
        "_config" => vec![("/xds/a.Type/of", json!("sample"))],
        "_layout" => vec![("/kri", json!("layout of sample")), ("/listeners", json!([]))],
        "_hostnames" => vec![("/items/0/hostname", json!("sample.mesh"))],
        "_rules" => vec![("/resource/name", json!("sample")), ("/rules", json!([]))],
        "_outbounds/{kri}/_routes" => vec![("/routes/0/kind", json!("MeshTCPRoute"))],
        "_policies"
        | "_inbounds/{kri}/_policies"
        | "_outbounds/{kri}/_policies"
        | "_outbounds/{kri}/_routes/{route}/_policies" => vec![("/policies/0/kind", json!("MeshTimeout"))],
        "policies" => {
            let pointer = "/items/0/matchedPolicies/MeshTimeout/0/name";
            vec![("/kind", json!("SidecarDataplane")), (pointer, json!("mine"))]
        }
        "rules" => vec![("/total", json!(0)), ("/items", json!([]))],
        "_sync" => vec![("/state", json!("behind"))],
        "_reachability" => {
            let expect = vec![("/destination", json!("b")), ("/verdict", json!("denied"))];
            return Case::get(format!("{path}?to=b"), expect);
        }
        _ => return None,
    };
    Case::get(path, expect)
}

/// Cases of log levels.
fn logging_case(method: &Method, path: String) -> Case {
    if method == Method::GET {
        let expect = vec![("/loggers/rbac", json!("info"))];
        return Case { path, body: Value::Null, status: 200, expect };
    }
    Case {
        path: format!("{path}?level=debug&logger=rbac"),
        body: json!({}),
        status: 200,
        expect: vec![("/loggers/rbac", json!("debug"))],
    }
}

/// Looking into services, policies and zone proxies, and into a mesh.
fn inspect_case(template: &str) -> Option<Case> {
    let path = template.replace("{mesh}", "default").replace("{name}", "sample");
    if let Some(view) = template.strip_prefix("/meshes/{mesh}/_") {
        return mesh_case(view, path);
    }
    let expect = match template {
        "/meshes/{mesh}/{serviceType}/{name}/_hostnames" => {
            let path = path.replace("{serviceType}", "meshservices");
            return Case::get(path, vec![("/total", json!(0)), ("/items", Value::Null)]);
        }
        "/prometheus/targets" => vec![("/0/targets/0", json!("192.0.2.1:5670"))],
        layout if layout.starts_with("/zone") && layout.ends_with("/_layout") => {
            vec![("/kri", json!("layout of sample")), ("/destinations", json!([]))]
        }
        proxy if proxy.starts_with("/zone") => Vec::new(),
        selected if selected.ends_with("resources/dataplanes") || selected.ends_with("/_dataplanes") => {
            vec![("/total", json!(3)), ("/items/0/type", json!("Dataplane"))]
        }
        older if older.ends_with("/dataplanes") => {
            vec![("/total", json!(3)), ("/items/0/dataplane/name", json!("one"))]
        }
        _ => return None,
    };
    Case::get(path, expect)
}

fn mesh_case(view: &str, path: String) -> Option<Case> {
    let value = "a4bb7f9d88bef4df6.sample.80.default.ms";
    match view {
        "access" => {
            let expect = vec![("/verdict", json!("Mixed")), ("/from/name", json!("default/a"))];
            Case::get(format!("{path}?from=a&to=b"), expect)
        }
        "observed" => {
            Case::get(path, vec![("/edges/0/caller", json!("outside")), ("/dropped", json!(false))])
        }
        "signals" => {
            let expect = vec![("/seconds", json!(300)), ("/items/0/server/id", json!("Services"))];
            Case::get(format!("{path}?by=services&window=5m"), expect)
        }
        "reachability" => {
            let expect = vec![("/total", json!(3)), ("/items/0/name", json!("default 2 from 3"))];
            Case::get(format!("{path}?size=2&offset=3"), expect)
        }
        "graph" => {
            Case::get(format!("{path}?service=b"), vec![("/nodes/0/id", json!("b")), ("/open", json!(1))])
        }
        "problems" => Case::get(path, vec![("/total", json!(2)), ("/items/0/code", json!("port-conflict"))]),
        "sni" => {
            let destination = "/items/0/destinations/0/kri";
            let expect = vec![("/total", json!(1)), (destination, json!("kri_msvc_default___sample_80"))];
            Case::get(format!("{path}?value={value}"), expect)
        }
        "sni-usage" => {
            let expect = vec![("/total", json!(1)), ("/items/0/connections", json!(0))];
            Case::get(format!("{path}?value={value}"), expect)
        }
        "suggestions" => {
            let expect =
                vec![("/permissions/0/resource/name", json!("allow-to-sample")), ("/unseen", json!([]))];
            Case::get(format!("{path}?service=sample"), expect)
        }
        "what-if" => what_if_case(path),
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

/// True if everything that was given is there; defaults and computed fields may have come along.
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
    let sample = Key::new(Kind::Dataplane, "default", "sample");
    world.events.record(Occurrence::of(EventKind::ProxyConnected, &sample, "connected"));
    world
}

#[tokio::test]
async fn every_route_has_a_case_and_answers_it() {
    for route in route::all() {
        let Some(case) = case(&route) else { panic!("no case for {} {}", route.method, route.path) };
        let world = full_world().await;
        if route.method == Method::DELETE && route.tag == Tag::Kind(Kind::Mesh) {
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
