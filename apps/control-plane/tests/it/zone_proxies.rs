//! Zone proxies: what they are sent, when they are woken, and who may be one.

use std::time::Duration;

use identity::{
    KeyPair, Purpose, ZoneToken,
    signing_key::{self, FIRST_KID},
    token,
};
use jiff::Timestamp;
use plan::{ProxyKind, ProxyTraits};
use reconcilers::available_services;
use resources::{Key, Kind, Resource, Spec, format::universal};
use serde_json::{Value, json};
use serving::push::PendingWork;
use tonic::Code;
use xds::{Type, message::Node};

use crate::{
    proxies::{ProxyServer, asking, refused as bootstrap_refused},
    streams::{DeltaStream, Next},
    world::{ConnectedProxy, World, dataplane, eventually, mesh, resource, runner, service, traits},
};

const LONG: Duration = Duration::from_secs(3600);

fn ingress(zone: &str, address: &str) -> Resource {
    let networking = json!({
        "address": "127.0.0.7", "port": 10001, "advertisedAddress": address, "advertisedPort": 10001
    });
    let name = if matches!(zone, "" | "default") { "gate".to_owned() } else { format!("gate-{zone}") };
    resource(Key::global(Kind::ZoneIngress, &name), &[], json!({ "zone": zone, "networking": networking }))
}

/// A mesh with mutual TLS in which nothing is chosen by tags.
fn exclusive(name: &str) -> Resource {
    let mut spec = mesh(name, "STRICT").spec.to_json();
    spec["meshServices"]["mode"] = json!("Exclusive");
    resource(Key::global(Kind::Mesh, name), &[], spec)
}

fn egress() -> Resource {
    let networking = json!({ "address": "127.0.0.8", "port": 10002 });
    let spec = json!({ "zone": "default", "networking": networking });
    resource(Key::global(Kind::ZoneEgress, "exit"), &[], spec)
}

/// A MeshService as it comes from another zone.
fn remote(name: &str, zone: &str) -> Resource {
    let labels = [("kuma.io/origin", "global"), ("kuma.io/zone", zone), ("kuma.io/display-name", name)];
    let mut remote = service("default", &format!("{name}-{zone}"), &labels);
    let mut spec = remote.spec.to_json();
    spec["ports"][0]["snis"] = json!([{ "value": format!("{name}.{zone}.example") }]);
    remote.spec = Spec::from_json(Kind::MeshService, spec, &mut Vec::new()).unwrap();
    remote
}

fn of_zone(kind: ProxyKind, name: &str) -> ProxyTraits {
    ProxyTraits { kind, unified_naming: true, ..traits("", name) }
}

/// A zone proxy with its configuration.
async fn connect(world: &World, kind: ProxyKind, name: &str) -> ConnectedProxy {
    world.push.caught_up().await;
    let mut proxy = ConnectedProxy::connect(world, of_zone(kind, name));
    assert_eq!(proxy.turn().await, PendingWork::Everything);
    proxy
}

fn names(proxy: &ConnectedProxy, kind: Type) -> Vec<String> {
    proxy.current.as_ref().unwrap().target.of(kind).keys().map(ToString::to_string).collect()
}

/// Whatever a proxy holds of a type, as text: addresses and server names are in it as they are.
fn bytes(proxy: &ConnectedProxy, kind: Type) -> String {
    let told = proxy.received().unwrap().into_iter().filter(|(of, ..)| *of == kind);
    told.map(|(_, _, body)| String::from_utf8_lossy(&body).into_owned()).collect()
}

async fn world() -> World {
    let world = World::new();
    world
        .put([
            exclusive("default"),
            ingress("default", "192.168.0.9"),
            egress(),
            service("default", "a", &[]),
            dataplane("default", "dp-a", "10.0.0.1", "a", &[]),
        ])
        .await;
    world
}

#[tokio::test]
async fn an_ingress_follows_services_of_all_meshes_each_at_its_cost() {
    let world = world().await;
    let mut gate = connect(&world, ProxyKind::INGRESS, "gate").await;
    assert_eq!(names(&gate, Type::Listener), ["self_10001"]);
    assert_eq!(names(&gate, Type::Cluster), ["kri_msvc_default___a_80"]);
    assert!(bytes(&gate, Type::Endpoint).contains("10.0.0.1"));

    let before = world.encoded();
    world.put([dataplane("default", "dp-a2", "10.0.0.2", "a", &[])]).await;
    assert_eq!(gate.turn().await, PendingWork::Endpoints);
    assert_eq!(world.encoded_since(&before), [(Type::Endpoint, 1)], "other endpoints are one resource");
    assert!(bytes(&gate, Type::Endpoint).contains("10.0.0.2"));

    world.put([exclusive("other"), service("other", "b", &[])]).await;
    assert_eq!(gate.turn().await, PendingWork::Outbounds);
    assert_eq!(names(&gate, Type::Cluster), ["kri_msvc_default___a_80", "kri_msvc_other___b_80"]);
    assert!(bytes(&gate, Type::Listener).contains(".b.80.other.ms"));

    // What is of other zones is not entered here.
    world.put([remote("c", "west"), ingress("west", "192.168.0.1")]).await;
    assert_eq!(gate.turn().await, PendingWork::Nothing);
    world.delete(Kind::Mesh, "", "other").await;
    assert_eq!(gate.turn().await, PendingWork::Outbounds);
    assert_eq!(names(&gate, Type::Cluster), ["kri_msvc_default___a_80"]);
}

#[tokio::test]
async fn a_zone_proxy_listens_where_its_resource_says_now() {
    let world = world().await;
    let mut gate = connect(&world, ProxyKind::INGRESS, "gate").await;
    let mut moved = ingress("default", "192.168.0.9").spec.to_json();
    moved["networking"]["port"] = json!(10005);
    world.put([resource(Key::global(Kind::ZoneIngress, "gate"), &[], moved)]).await;
    assert_eq!(gate.turn().await, PendingWork::Everything);
    assert_eq!(names(&gate, Type::Listener), ["self_10005"]);
}

#[tokio::test]
async fn an_egress_follows_the_ingresses_of_other_zones() {
    let world = world().await;
    world.put([remote("c", "west"), ingress("west", "192.168.0.1")]).await;
    let mut exit = connect(&world, ProxyKind::EGRESS, "exit").await;
    assert_eq!(names(&exit, Type::Cluster), ["kri_msvc_default_west__c_80"]);
    assert!(bytes(&exit, Type::Endpoint).contains("192.168.0.1"));
    assert!(bytes(&exit, Type::Listener).contains("c.west.example"));

    world.put([ingress("west", "192.168.0.2")]).await;
    assert_eq!(exit.turn().await, PendingWork::Outbounds);
    assert!(bytes(&exit, Type::Endpoint).contains("192.168.0.2"));

    world.delete(Kind::ZoneIngress, "", "gate-west").await;
    assert_eq!(exit.turn().await, PendingWork::Outbounds);
    assert!(!bytes(&exit, Type::Endpoint).contains("192.168.0"), "nothing leads there");
}

async fn zone_token(server: &ProxyServer, zone: &str, scope: &[&str]) -> String {
    let key = signing_key::draft(Purpose::Zone, FIRST_KID, &KeyPair::generate().unwrap());
    server.context.registrar.ensure(vec![key]).await.unwrap();
    let key = signing_key::latest(&server.world.store.snapshot().unwrap(), Purpose::Zone).unwrap();
    let scope = scope.iter().map(|&scope| scope.to_owned()).collect();
    let claims = ZoneToken { zone: zone.to_owned(), scope };
    token::issue(&claims, &key, Timestamp::now(), Duration::from_secs(60)).unwrap()
}

/// The node of an agent that brings its ZoneIngress or ZoneEgress along.
fn node(definition: &Resource, proxy_type: &str) -> Node {
    let text = |text: String| prost_types::Value { kind: Some(prost_types::value::Kind::StringValue(text)) };
    let draft = resources::Draft::new(definition.key.clone(), definition.spec.clone());
    let feature = text("feature-unified-resource-naming".to_owned());
    let features = prost_types::value::Kind::ListValue(prost_types::ListValue { values: vec![feature] });
    let fields = [
        ("dataplane.resource".to_owned(), text(universal::render_draft(&draft).to_string())),
        ("dataplane.proxyType".to_owned(), text(proxy_type.to_owned())),
        ("features".to_owned(), prost_types::Value { kind: Some(features) }),
    ];
    let metadata = Some(prost_types::Struct { fields: fields.into() });
    Node { id: format!(".{}", definition.name()), metadata, ..Node::default() }
}

async fn stream(server: &ProxyServer, definition: &Resource, proxy_type: &str, token: &str) -> DeltaStream {
    let token = Some(token).filter(|token| !token.is_empty());
    let mut stream = DeltaStream::of(server, node(definition, proxy_type), token).await;
    stream.ask(Type::Listener, &[]).await;
    stream
}

async fn refused(server: &ProxyServer, definition: &Resource, proxy_type: &str, token: &str, part: &str) {
    let next = stream(server, definition, proxy_type, token).await.next().await;
    let Next::End(code, text) = next else { panic!("it was sent {next:?}") };
    let codes = [Code::PermissionDenied, Code::Unauthenticated, Code::InvalidArgument];
    assert!(codes.iter().any(|known| (*known as i32).to_string() == code), "{code} {text}");
    assert!(text.contains(part), "{part:?} is not in {text:?}");
}

fn stored(server: &ProxyServer, kind: Kind, name: &str) -> Option<Value> {
    let snapshot = server.world.store.snapshot().unwrap();
    snapshot.get(&Key::global(kind, name)).map(|stored| stored.spec.to_json())
}

#[tokio::test]
async fn a_zone_proxy_proves_itself_by_a_zone_token_with_its_scope_and_zone() {
    let server = ProxyServer::new(true, LONG).await;
    let own = ingress("", "192.168.0.9");
    let both = zone_token(&server, "default", &["ingress", "egress"]).await;
    let exit = zone_token(&server, "default", &["egress"]).await;
    let other_zone = zone_token(&server, "west", &["ingress"]).await;
    let of_dataplane = server.token("default").await;
    refused(&server, &own, "ingress", &exit, "--scope ingress").await;
    refused(&server, &own, "ingress", &other_zone, "it is for zone \"west\"").await;
    refused(&server, &own, "ingress", &of_dataplane, "the zone token is refused").await;
    refused(&server, &ingress("west", "192.168.0.9"), "ingress", &both, "\"west\"").await;
    refused(&server, &own, "egress", &both, "expected a ZoneEgress").await;
    refused(&server, &own, "dataplane", &both, "have no mesh").await;
    assert_eq!(stored(&server, Kind::ZoneIngress, "gate"), None);

    let mut gate = stream(&server, &own, "ingress", &both).await;
    assert_eq!(gate.response().await, (Type::Listener, vec!["self_10001".to_owned()]));
    let mut out = stream(&server, &egress(), "egress", &exit).await;
    assert_eq!(out.response().await, (Type::Listener, vec!["self_10002".to_owned()]));
}

#[tokio::test]
async fn a_zone_proxy_is_stored_with_an_insight_until_it_has_gone() {
    let server = ProxyServer::new(false, Duration::ZERO).await;
    let listed = json!([{ "tags": { "kuma.io/service": "a" }, "instances": 1, "mesh": "default" }]);
    let mut known = ingress("", "192.168.0.9");
    let mut spec = known.spec.to_json();
    spec["availableServices"] = listed.clone();
    known.spec = Spec::from_json(Kind::ZoneIngress, spec, &mut Vec::new()).unwrap();
    server.world.put([known]).await;

    let mut gate = stream(&server, &ingress("", "192.168.0.8"), "ingress", "").await;
    assert_eq!(gate.response().await.0, Type::Listener);
    let now = stored(&server, Kind::ZoneIngress, "gate").unwrap();
    assert_eq!(
        (&now["zone"], &now["networking"]["advertisedAddress"]),
        (&json!("default"), &json!("192.168.0.8"))
    );
    assert_eq!(now["availableServices"], listed, "what the control plane wrote stays");
    let insight = stored(&server, Kind::ZoneIngressInsight, "gate").unwrap();
    assert_eq!(insight["metadata"]["features"], json!(["feature-unified-resource-naming"]));
    assert!(insight["subscriptions"][0]["disconnectTime"].is_null());

    drop(gate);
    eventually("the ingress is forgotten", || stored(&server, Kind::ZoneIngress, "gate").is_none()).await;
    assert_eq!(stored(&server, Kind::ZoneIngressInsight, "gate"), None);
}

/// A control plane that lists on its ingresses what other zones find by tags.
fn listing() -> World {
    let world = World::starting_late(std::sync::Arc::new(store::Memory::default()));
    available_services::start(&world.push, &runner(&world.store, &world.shutdown));
    world.push.start(&world.shutdown);
    world
}

/// Services that the ingress lists.
fn listed(world: &World) -> Value {
    let snapshot = world.store.snapshot().unwrap();
    let gate = snapshot.get(&Key::global(Kind::ZoneIngress, "gate"));
    gate.map(|gate| gate.spec.to_json()["availableServices"].clone()).unwrap_or_default()
}

#[tokio::test]
async fn what_other_zones_find_by_tags_is_listed_and_entered() {
    let world = listing();
    let listed = || listed(&world);
    let tags = json!({ "kuma.io/protocol": "http", "kuma.io/service": "a" });
    let of = |instances: u32| json!([{ "tags": tags, "instances": instances, "mesh": "default" }]);
    let one = dataplane("default", "dp-a", "10.0.0.1", "a", &[]);
    world.put([mesh("default", "STRICT"), one]).await;
    world.put([ingress("default", "192.168.0.9")]).await;
    eventually("the first instance is listed", || listed() == of(1)).await;
    world.put_unheard([dataplane("default", "dp-a2", "10.0.0.2", "a", &[])]).await;
    eventually("both are listed", || listed() == of(2)).await;

    let gate = connect(&world, ProxyKind::INGRESS, "gate").await;
    assert_eq!(names(&gate, Type::Cluster), ["default:a"]);
    assert!(bytes(&gate, Type::Listener).contains("a{mesh=default}"));
    world.put_unheard([exclusive("default")]).await;
    eventually("nothing is listed where services are resources", || listed().is_null()).await;
}

#[tokio::test]
async fn in_exclusive_meshes_other_zones_find_tags_of_virtual_outbounds() {
    let world = listing();
    let listed = || listed(&world);
    let serving = |service: &str| {
        let mut spec = dataplane("default", service, "10.0.0.1", service, &[]).spec.to_json();
        spec["networking"]["inbound"][0]["tags"]["kuma.io/zone"] = json!("default");
        resource(Key::new(Kind::Dataplane, "default", service), &[], spec)
    };
    world.put([exclusive("default"), serving("backend"), serving("other")]).await;
    world.put([ingress("default", "192.168.0.9")]).await;
    let mut gate = connect(&world, ProxyKind::INGRESS, "gate").await;
    assert_eq!(names(&gate, Type::Cluster), [""; 0]);

    // The form of the design document, for one service.
    let by_zone = json!({
        "selectors": [{ "match": { "kuma.io/service": "backend" } }],
        "conf": { "host": "{{service}}.{{zone}}.mesh", "port": 80,
                  "tags": { "kuma.io/service": "service", "kuma.io/zone": "zone" } },
    });
    let by_zone = resource(Key::new(Kind::VirtualOutbound, "default", "by-zone"), &[], by_zone);
    world.put([by_zone.clone()]).await;
    let tags = json!({ "kuma.io/protocol": "http", "kuma.io/service": "backend", "kuma.io/zone": "default" });
    let expected = json!([{ "tags": tags, "instances": 1, "mesh": "default" }]);
    eventually("what has a hostname is listed", || listed() == expected).await;
    gate.turn().await;
    assert!(bytes(&gate, Type::Listener).contains("backend{kuma.io/zone=default,mesh=default}"));

    world.delete(Kind::VirtualOutbound, "default", "by-zone").await;
    eventually("nothing is listed without the hostname", || listed().is_null()).await;
    gate.turn().await;
    assert_eq!(names(&gate, Type::Cluster), [""; 0]);
}

#[tokio::test]
async fn other_zones_are_told_of_permissions_that_they_do_not_know() {
    let world = listing();
    let told = || {
        let snapshot = world.store.snapshot().unwrap();
        let gate = snapshot.get(&Key::global(Kind::ZoneIngress, "gate")).unwrap();
        gate.label("reachability.kuma.io/own-permissions").map(str::to_owned)
    };
    let permission = |origin: &str| {
        let mut permission =
            resource(Key::new(Kind::MeshTrafficPermission, "default", "mine"), &[], json!({ "from": [] }));
        permission.labels.insert("kuma.io/origin".to_owned(), origin.to_owned());
        permission
    };
    world.put([mesh("default", "STRICT"), ingress("default", "192.168.0.9"), permission("global")]).await;
    world.put_unheard([permission("zone")]).await;
    eventually("the zone's own permission is known of", || told().as_deref() == Some("true")).await;
    world.put_unheard([permission("global")]).await;
    eventually("there is none any more", || told().is_none()).await;
}

#[tokio::test]
async fn a_type_of_proxy_that_is_not_known_gets_no_bootstrap() {
    let server = ProxyServer::new(true, LONG).await;
    let with = |proxy_type: &str| asking(|request| request["proxyType"] = json!(proxy_type));
    bootstrap_refused(&server, "localhost", with("gate"), 422, &["\"gate\"", "\"ingress\""]).await;
    let no_token = asking(|request| {
        request["proxyType"] = json!("egress");
        request["dataplaneToken"] = json!("");
    });
    bootstrap_refused(&server, "localhost", no_token, 422, &["Zone Token is required", "zone-token"]).await;
}

#[tokio::test]
async fn an_egress_is_given_a_certificate_of_each_mesh_that_it_leads_out_of() {
    let server = ProxyServer::new(false, LONG).await;
    server.world.put([exclusive("default"), exclusive("other")]).await;
    let mut exit = stream(&server, &egress(), "egress", "").await;
    assert_eq!(exit.response().await, (Type::Listener, vec!["self_10002".to_owned()]));
    let out = |mesh: &str| {
        let endpoint = json!({ "address": "10.1.0.1", "port": 443 });
        let spec = json!({ "match": { "port": 443, "protocol": "tcp" }, "endpoints": [endpoint] });
        resource(Key::new(Kind::MeshExternalService, mesh, "out"), &[], spec)
    };
    server.world.put([out("default"), out("other")]).await;
    let secrets = ["default", "other"].map(|mesh| format!("system_mtls_identity_{mesh}"));
    exit.ask(Type::Secret, &secrets.each_ref().map(String::as_str)).await;
    let mut given = Vec::new();
    while given.len() < 2 {
        let (kind, names) = exit.response().await;
        given.extend(names.into_iter().filter(|_| kind == Type::Secret));
    }
    given.sort();
    assert_eq!(given, secrets);
}
