//! Destinations as their clients see them.

use std::net::IpAddr;

use resources::{Kind, Resource, kinds::dataplane::BackendRef};
use serde_json::{Value, json};
use topology::{AllMeshes, ClientTls, Protocol};

use crate::fixtures::{
    calling, dataplane, destination, endpoints, gone, insight, mesh, present, resource, service, serving,
    snapshot, state, with_status,
};

#[test]
fn a_port_of_a_mesh_service_carries_names_addresses_and_protocol() {
    let spec = json!({
        "selector": { "dataplaneTags": { "kuma.io/service": "backend" } },
        "ports": [
            { "name": "http", "port": 80, "targetPort": 8080, "appProtocol": "http" },
            { "port": 6379, "targetPort": 6379 },
        ]
    });
    let labels = [("kuma.io/zone", "east"), ("k8s.kuma.io/namespace", "demo"), ("kuma.io/origin", "zone")];
    let status = json!({
        "addresses": [{ "hostname": "backend.mesh" }, { "hostname": "backend.svc" }],
        "vips": [{ "ip": "241.0.0.7" }, { "ip": "nonsense" }]
    });
    let backend = with_status(resource(Kind::MeshService, "backend", &labels, spec), status);
    let snapshot = snapshot([mesh(""), backend.clone()]);

    let http = destination(&snapshot, "kri_msvc_default_east_demo_backend_http");
    assert_eq!(http.service, Some(backend.key.clone()));
    assert_eq!((http.port, http.protocol), (80, Protocol::Http));
    assert_eq!(http.vips, ["241.0.0.7".parse::<IpAddr>().unwrap()]);
    assert_eq!(http.hostnames, ["backend.mesh", "backend.svc"]);
    assert_eq!(http.tls, ClientTls::Off);
    let redis = destination(&snapshot, "kri_msvc_default_east_demo_backend_6379");
    assert_eq!((redis.port, redis.protocol), (6379, Protocol::Tcp));
    assert_eq!(snapshot.services[&backend.key].len(), 2);
}

fn tls(mtls: &str, service: Resource) -> ClientTls {
    destination(&snapshot([mesh(mtls), service]), "kri_msvc_default___backend_80").tls.clone()
}

fn backend_tls(sni: &str, spiffe_ids: &[&str]) -> ClientTls {
    ClientTls::Mesh { sni: sni.into(), spiffe_ids: spiffe_ids.iter().map(|&id| id.into()).collect() }
}

const BACKEND_SNI: &str = "a601e0c00295a9fbe.backend.80.default.ms";

#[test]
fn tls_needs_a_mesh_with_mtls_and_a_server_that_has_it() {
    let on = backend_tls(BACKEND_SNI, &["spiffe://default/backend"]);
    let ready = |status: &str| with_status(service("backend"), json!({ "tls": { "status": status } }));
    let synced = || {
        let labels = [("kuma.io/origin".to_owned(), "global".to_owned())].into();
        Resource { labels, ..service("backend") }
    };
    for (mtls, service, expect) in [
        ("", ready("Ready"), &ClientTls::Off),
        ("STRICT", service("backend"), &on),
        ("STRICT", ready("NotReady"), &on),
        ("PERMISSIVE", service("backend"), &ClientTls::Off),
        ("PERMISSIVE", ready("NotReady"), &ClientTls::Off),
        ("PERMISSIVE", ready("Ready"), &on),
        ("PERMISSIVE", synced(), &on),
    ] {
        assert_eq!(tls(mtls, service.clone()), *expect, "{mtls} {:?}", service.status);
    }
}

#[test]
fn clients_dial_the_first_sni_and_expect_every_identity_once() {
    let mut spec = json!({
        "ports": [{ "port": 80, "targetPort": 80, "snis": [{ "value": "new.name" }, { "value": "old.name" }] }],
        "identities": [
            { "type": "SpiffeID", "value": "spiffe://other/ns/web" },
            { "type": "ServiceTag", "value": "web" },
            { "type": "ServiceTag", "value": "backend" },
            { "type": "ServiceTag", "value": "web" },
        ]
    });
    let ids = ["spiffe://default/backend", "spiffe://default/web", "spiffe://other/ns/web"];
    let service = |spec: &Value| resource(Kind::MeshService, "backend", &[], spec.clone());
    assert_eq!(tls("STRICT", service(&spec)), backend_tls("new.name", &ids));
    spec["ports"][0]["snis"] = json!([]);
    assert_eq!(tls("STRICT", service(&spec)), backend_tls(BACKEND_SNI, &ids));
}

#[test]
fn a_service_without_identities_has_those_of_its_dataplanes() {
    let spec = json!({
        "selector": { "dataplaneTags": { "app": "b" } },
        "ports": [{ "port": 80, "targetPort": 80 }]
    });
    let inbound = json!([{ "port": 80, "tags": { "kuma.io/service": "backend-v2", "app": "b" } }]);
    let snapshot = snapshot([
        mesh("STRICT"),
        dataplane("b", "10.0.0.1", inbound),
        resource(Kind::MeshService, "backend", &[], spec),
    ]);
    let tls = &destination(&snapshot, "kri_msvc_default___backend_80").tls;
    assert_eq!(*tls, backend_tls(BACKEND_SNI, &["spiffe://default/backend-v2"]));
}

#[test]
fn proxies_of_this_zone_do_not_serve_a_service_of_another() {
    let labels = [("kuma.io/origin".to_owned(), "global".to_owned())].into();
    let synced = Resource { labels, ..service("backend") };
    let snapshot = snapshot([mesh(""), serving("b", "10.0.0.1", "backend"), synced]);
    assert_eq!(endpoints(&snapshot, "kri_msvc_default___backend_80"), Vec::<String>::new());
}

#[test]
fn an_external_service_has_the_endpoints_it_lists_and_no_tls_of_the_mesh() {
    let spec = json!({
        "match": { "type": "HostnameGenerator", "port": 443, "protocol": "http" },
        "endpoints": [{ "address": "b.example", "port": 8443, "priority": 1 }, { "address": "10.1.1.1", "port": 443 }],
        "tls": { "enabled": true, "verification": { "serverName": "a.example" } }
    });
    let external = with_status(
        resource(Kind::MeshExternalService, "example", &[], spec),
        json!({ "vip": { "ip": "242.0.0.1" }, "addresses": [{ "hostname": "example.ext" }] }),
    );
    let snapshot = snapshot([mesh("STRICT"), external]);
    let id = "kri_extsvc_default___example_443";
    let destination = destination(&snapshot, id);
    assert_eq!((destination.port, destination.protocol), (443, Protocol::Http));
    assert_eq!(destination.tls, ClientTls::Off);
    assert!(destination.external.as_ref().unwrap().tls.as_ref().unwrap().enabled);
    assert_eq!(destination.vips, ["242.0.0.1".parse::<IpAddr>().unwrap()]);
    assert_eq!(destination.hostnames, ["example.ext"]);
    assert_eq!(endpoints(&snapshot, id), ["10.1.1.1:443", "b.example:8443"]);
    let priorities: Vec<u32> = snapshot.endpoints[&destination.id].0.iter().map(|e| e.priority).collect();
    assert_eq!(priorities, [0, 1]);
}

#[test]
fn an_external_service_of_another_zone_is_no_destination() {
    for (zone, expect) in [("east", 1), ("west", 0)] {
        let spec = json!({ "match": { "port": 443 } });
        let external = resource(Kind::MeshExternalService, "example", &[("kuma.io/zone", "east")], spec);
        let mut state = AllMeshes::in_zone(zone);
        state.apply(&[present(mesh("")), present(external)]);
        assert_eq!(state.mesh("default").unwrap().destinations.len(), expect, "{zone}");
    }
}

#[test]
fn tags_that_an_outbound_calls_are_a_destination() {
    let v1 = json!({ "kuma.io/service": "backend", "version": "1" });
    let inbound = |tags: Value| json!([{ "port": 80, "tags": tags }]);
    let snapshot = snapshot([
        mesh("STRICT"),
        dataplane("b-1", "10.0.0.1", inbound(v1.clone())),
        dataplane("b-2", "10.0.0.2", inbound(json!({ "kuma.io/service": "backend", "version": "2" }))),
        serving("other", "10.0.0.3", "other"),
        calling("web", &[json!({ "kuma.io/service": "backend" }), v1]),
    ]);
    let all = destination(&snapshot, "backend");
    assert_eq!(all.tls, backend_tls("backend{mesh=default}", &["spiffe://default/backend"]));
    assert_eq!(endpoints(&snapshot, "backend"), ["10.0.0.1:80", "10.0.0.2:80"]);
    assert_eq!(all.service, None);

    let one = destination(&snapshot, "backend{version=1}");
    assert_eq!(one.tls, backend_tls("backend{mesh=default,version=1}", &["spiffe://default/backend"]));
    assert_eq!(endpoints(&snapshot, "backend{version=1}"), ["10.0.0.1:80"]);
    assert_eq!(snapshot.destinations.len(), 2, "nobody calls the service other");
}

#[test]
fn tags_that_a_route_names_are_a_destination_while_it_does() {
    let subset =
        json!({ "kind": "MeshServiceSubset", "name": "backend", "tags": { "version": "1" }, "port": 80 });
    let mirror = json!({ "type": "RequestMirror", "requestMirror": {
        "backendRef": { "kind": "MeshService", "name": "copies" } } });
    let matches = json!([{ "path": { "type": "PathPrefix", "value": "/" } }]);
    let rule = json!({ "matches": matches, "default": { "filters": [mirror], "backendRefs": [subset] } });
    let requests =
        json!({ "to": [{ "targetRef": { "kind": "MeshService", "name": "a" }, "rules": [rule] }] });
    let requests = resource(Kind::MeshHTTPRoute, "r", &[], requests);
    // A port or its name makes it a reference to a resource.
    let backends = json!([
        { "kind": "MeshService", "name": "backend" }, { "kind": "MeshService", "name": "x", "port": 80 },
        { "kind": "MeshService", "name": "x", "sectionName": "http" }, { "kind": "MeshExternalService", "name": "x" },
        { "kind": "MeshService", "labels": { "a": "b" } }
    ]);
    let rule = json!({ "default": { "backendRefs": backends } });
    let connections =
        json!({ "to": [{ "targetRef": { "kind": "MeshService", "name": "a" }, "rules": [rule] }] });
    let connections = resource(Kind::MeshTCPRoute, "c", &[], connections);
    let v1 = json!([{ "port": 80, "tags": { "kuma.io/service": "backend", "version": "1" } }]);

    let mut state = state([mesh(""), dataplane("b", "10.0.0.1", v1), requests.clone(), connections.clone()]);
    let found = |state: &AllMeshes| -> Vec<(String, bool)> {
        let all = state.mesh("default").unwrap().destinations.values().cloned().collect::<Vec<_>>();
        all.iter()
            .map(|destination| (crate::fixtures::spelled(&destination.id), destination.exists))
            .collect()
    };
    let named = |id: &str, exists: bool| (id.to_owned(), exists);
    let all = [named("backend", true), named("backend{version=1}", true), named("copies", false)];
    assert_eq!(found(&state), all);
    assert_eq!(endpoints(state.mesh("default").unwrap(), "backend{version=1}"), ["10.0.0.1:80"]);
    state.apply(&[present(serving("c", "10.0.0.2", "copies"))]);
    assert_eq!(found(&state)[2], named("copies", true), "it is there as soon as a Dataplane has the tags");
    state.apply(&[gone(&requests)]);
    assert_eq!(found(&state), [named("backend", true)]);
    state.apply(&[gone(&connections)]);
    assert_eq!(found(&state), []);
}

#[test]
fn the_protocol_of_tags_is_what_all_inbounds_speak() {
    let inbound = |protocol: &str, state: &str| {
        let tags = json!({ "kuma.io/service": "backend", "kuma.io/protocol": protocol });
        json!({ "port": 80, "tags": tags, "state": state })
    };
    for (inbounds, expect) in [
        (json!([]), Protocol::Tcp),
        (json!([inbound("http", "Ready")]), Protocol::Http),
        (json!([inbound("http", "NotReady")]), Protocol::Http),
        (json!([inbound("http", "Ready"), inbound("http", "Ready")]), Protocol::Http),
        (json!([inbound("http", "Ready"), inbound("http2", "Ready")]), Protocol::Tcp),
        (json!([inbound("http2", "Ready"), inbound("grpc", "Ready")]), Protocol::Http2),
        (json!([inbound("grpc", "Ready"), inbound("tcp", "Ignored")]), Protocol::Grpc),
        (json!([inbound("mqtt", "Ready")]), Protocol::Tcp),
        (
            json!([{ "port": 80, "protocol": "kafka", "tags": { "kuma.io/service": "backend" } }]),
            Protocol::Kafka,
        ),
    ] {
        let snapshot = snapshot([
            mesh(""),
            dataplane("b", "10.0.0.1", inbounds.clone()),
            calling("web", &[json!({ "kuma.io/service": "backend" })]),
        ]);
        assert_eq!(destination(&snapshot, "backend").protocol, expect, "{inbounds}");
    }
}

#[test]
fn a_permissive_mesh_calls_tags_with_tls_once_all_have_certificates() {
    let mut state = state([
        mesh("PERMISSIVE"),
        serving("b-1", "10.0.0.1", "backend"),
        serving("b-2", "10.0.0.2", "backend"),
        calling("web", &[json!({ "kuma.io/service": "backend" })]),
        insight("b-1", "ca-1"),
    ]);
    let tls = |state: &AllMeshes| destination(state.mesh("default").unwrap(), "backend").tls.clone();
    assert_eq!(tls(&state), ClientTls::Off);
    state.apply(&[present(insight("b-2", "ca-1"))]);
    assert_eq!(tls(&state), backend_tls("backend{mesh=default}", &["spiffe://default/backend"]));
}

#[test]
fn endpoints_are_where_the_dataplane_is_reached_each_once() {
    let tags = json!({ "kuma.io/service": "backend" });
    let networking = |address: &str, advertised: &str| {
        let inbound = json!([{ "port": 80, "address": address, "tags": tags }]);
        json!({ "networking": { "address": "10.0.0.1", "advertisedAddress": advertised, "inbound": inbound } })
    };
    let gateway = json!({ "networking": { "address": "10.0.0.9", "gateway": { "tags": tags } } });
    let snapshot = snapshot([
        mesh(""),
        resource(Kind::Dataplane, "plain", &[], networking("", "")),
        resource(Kind::Dataplane, "again", &[], networking("10.0.0.1", "")),
        resource(Kind::Dataplane, "own", &[], networking("10.0.0.2", "")),
        resource(Kind::Dataplane, "nat", &[], networking("10.0.0.3", "192.0.2.1")),
        resource(Kind::Dataplane, "gateway", &[], gateway),
        service("backend"),
    ]);
    let id = "kri_msvc_default___backend_80";
    assert_eq!(endpoints(&snapshot, id), ["10.0.0.1:80", "10.0.0.2:80", "192.0.2.1:80"]);
    let first = &snapshot.endpoints[&destination(&snapshot, id).id].0[0];
    assert_eq!((first.weight, first.tags["kuma.io/service"].as_str()), (1, "backend"));
}

#[test]
fn a_reference_finds_a_port_by_name_or_by_labels() {
    let labelled = |name: &str| {
        let labels = [("team".to_owned(), "shop".to_owned())].into();
        Resource { labels, ..service(name) }
    };
    let external = resource(Kind::MeshExternalService, "ext", &[], json!({ "match": { "port": 443 } }));
    let snapshot = snapshot([mesh(""), labelled("cart"), labelled("basket"), service("web"), external]);
    for (reference, expect) in [
        (json!({ "kind": "MeshService", "name": "web", "port": 80 }), Some("kri_msvc_default___web_80")),
        (json!({ "kind": "MeshService", "name": "web", "port": 81 }), None),
        (json!({ "kind": "MeshService", "name": "nobody", "port": 80 }), None),
        (json!({ "kind": "MeshExternalService", "name": "ext" }), Some("kri_extsvc_default___ext_443")),
        (json!({ "kind": "MeshExternalService", "name": "web", "port": 80 }), None),
        (
            json!({ "kind": "MeshService", "labels": { "team": "shop" }, "port": 80 }),
            Some("kri_msvc_default___basket_80"),
        ),
        (json!({ "kind": "MeshService", "labels": { "team": "none" }, "port": 80 }), None),
    ] {
        let parsed: BackendRef = serde_json::from_value(reference.clone()).unwrap();
        let found = snapshot.backend(&parsed).map(|d| crate::fixtures::spelled(&d.id));
        assert_eq!(found.as_deref(), expect, "{reference}");
    }
}
