//! Routes and timeouts through everything: written by an operator, enforced by real Envoys, changed under
//! load.

use std::{collections::BTreeSet, net::Ipv4Addr};

use e2e::{Client, Setup, eventually, proxy::RunningProxy, service::call};
use serde_json::{Value, json};

use crate::world::{UNIFIED, World, answered_by, by_reference, client_with, load};

const ROUTE: &str = "/meshes/default/meshhttproutes/canary";

/// Requests to `first` of which some go to `second`.
fn canary(rules: &Value) -> Value {
    let to = json!([{"targetRef": {"kind": "MeshService", "name": "first"}, "rules": rules}]);
    json!({"type": "MeshHTTPRoute", "mesh": "default", "name": "canary", "spec": {"to": to}})
}

fn everything_to(backends: &Value) -> Value {
    let matches = json!([{"path": {"type": "PathPrefix", "value": "/"}}]);
    canary(&json!([{"matches": matches, "default": {"backendRefs": backends}}]))
}

fn backend(name: &str, weight: u32) -> Value {
    json!({"kind": "MeshService", "name": name, "port": 8080, "weight": weight})
}

/// The names of the routes that lead out of a proxy.
fn routes(proxy: &RunningProxy) -> BTreeSet<String> {
    let dump = proxy.admin("/config_dump?resource=dynamic_listeners").unwrap();
    let mut names = BTreeSet::new();
    collect(&serde_json::from_str(&dump).unwrap(), &mut names);
    names
}

fn collect(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, names)),
        Value::Object(fields) => {
            let routes = fields.get("routes").and_then(Value::as_array).into_iter().flatten();
            names.extend(routes.filter_map(|route| route["name"].as_str()).map(str::to_owned));
            fields.values().for_each(|field| collect(field, names));
        }
        _ => {}
    }
}

fn is_answered_by(name: &str, address: Ipv4Addr) {
    eventually(&format!("answers of {name}"), || answered_by(address, 10001) == name).unwrap();
}

#[test]
fn a_route_comes_changes_and_goes_without_losing_a_request() {
    let world = World::start(Setup::default());
    let _first = world.service("first-1", "first", "http");
    let _second = world.service("second-1", "second", "http");
    let default = "9Zuf5Tg79OuZcQITwBbQykxAk2u4fRKrwYn3//AL4Yo=";
    for (name, variables, route) in [
        ("older", &[][..], "kri_mhttpr_default_default__canary_"),
        ("newer", &[UNIFIED][..], "kri_mhttpr_default_default__canary_rule_0"),
    ] {
        let (proxy, address) = client_with(&world, name, &[by_reference("first")], variables);
        is_answered_by("first-1", address);
        let (calls, failures) = load(address, 10001, || {
            world.put(ROUTE, &everything_to(&json!([backend("second", 1)])));
            is_answered_by("second-1", address);
            assert_eq!(routes(&proxy), BTreeSet::from([route.to_owned()]));
            world.put(ROUTE, &everything_to(&json!([backend("first", 1), backend("second", 1)])));
            is_answered_by("first-1", address);
            is_answered_by("second-1", address);
            let only_v2 = json!([{"matches": [{"path": {"type": "PathPrefix", "value": "/v2"}}],
                "default": {"backendRefs": [backend("second", 1)]}}]);
            world.put(ROUTE, &canary(&only_v2));
            eventually("two routes", || {
                routes(&proxy) == BTreeSet::from([default.to_owned(), route.to_owned()])
            })
            .unwrap();
            assert_eq!(call(address, 10001).unwrap().json()["name"], "first-1");
            let v2 = Client::new(format!("http://{address}:10001")).get("/v2/things").unwrap();
            assert_eq!(
                (v2.json()["name"].as_str(), v2.json()["path"].as_str()),
                (Some("second-1"), Some("/v2/things"))
            );
            world.control_plane.client().delete(ROUTE).unwrap();
            eventually("one route", || routes(&proxy) == BTreeSet::from([default.to_owned()])).unwrap();
        });
        assert_eq!(failures, Vec::<String>::new(), "{name}: {calls} calls");
    }
}
