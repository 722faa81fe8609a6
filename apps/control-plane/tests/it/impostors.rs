//! Proxies that call themselves by a name that is not theirs: no token gets what it is not for.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use http::StatusCode;
use identity::{DataplaneToken, KeyPair, SigningKey, token};
use jiff::Timestamp;
use plan::{AuthoritiesSecret, CertificateSecret, SecretNames};
use resources::{Draft, Kind, Resource, format::universal, kinds::dataplane::Dataplane};
use serde_json::json;
use serving::dp_server::{proxy::IdentifiedProxy, secrets::IssueError};
use store::{Changes, Committed, Error, Snapshot, Store, Write};
use tonic::Code;
use xds::{Type, message::Node};

use crate::{
    proxies::ProxyServer,
    streams::{DeltaStream, Next},
    world::{dataplane, eventually, mesh},
};

const LONG: Duration = Duration::from_secs(3600);
const IDENTITY: &str = "identity_cert:secret:default";

/// A node that brings a Dataplane along.
pub fn bringing(dataplane: &Resource) -> Node {
    let draft =
        Draft { key: dataplane.key.clone(), labels: dataplane.labels.clone(), spec: dataplane.spec.clone() };
    let text = prost_types::value::Kind::StringValue(universal::render_draft(&draft).to_string());
    let fields = [("dataplane.resource".to_owned(), prost_types::Value { kind: Some(text) })].into();
    let id = format!("{}.{}", dataplane.key.mesh, dataplane.key.name);
    Node { id, metadata: Some(prost_types::Struct { fields }), ..Node::default() }
}

/// `payments-1`, as a proxy of this service.
fn payments_1(service: &str) -> Resource {
    dataplane("default", "payments-1", "127.0.3.1", service, &[])
}

fn for_service(service: &str) -> DataplaneToken {
    let tags = [("kuma.io/service".to_owned(), vec![service.to_owned()])].into();
    DataplaneToken { mesh: "default".to_owned(), tags, ..DataplaneToken::default() }
}

fn for_name(name: &str) -> DataplaneToken {
    DataplaneToken { mesh: "default".to_owned(), name: name.to_owned(), ..DataplaneToken::default() }
}

/// A server with tokens and mutual TLS.
async fn server(deregistration_delay: Duration) -> ProxyServer {
    let server = ProxyServer::new(true, deregistration_delay).await;
    server.world.put([mesh("default", "STRICT")]).await;
    server
}

/// A stream that has asked for its clusters.
async fn stream(server: &ProxyServer, node: Node, claims: &DataplaneToken) -> DeltaStream {
    let token = server.token_for("default", claims, Duration::from_secs(60)).await;
    let mut stream = DeltaStream::of(server, node, Some(&token)).await;
    stream.ask(Type::Cluster, &[]).await;
    stream
}

/// A stream that has its clusters and its certificate.
async fn certified(server: &ProxyServer, node: Node, claims: &DataplaneToken) -> DeltaStream {
    let mut stream = stream(server, node, claims).await;
    assert_eq!(stream.response().await.0, Type::Cluster);
    stream.ask(Type::Secret, &[IDENTITY]).await;
    assert_eq!(stream.response().await, (Type::Secret, vec![IDENTITY.to_owned()]));
    stream
}

/// Expects that the stream ends, and that it was sent nothing before that.
async fn denied(stream: &mut DeltaStream, part: &str) {
    let next = stream.next().await;
    let Next::End(code, text) = next else { panic!("it was sent {next:?}") };
    assert_eq!(code, (Code::PermissionDenied as i32).to_string(), "{text}");
    assert!(text.contains(part), "{part:?} is not in {text:?}");
}

fn stored(server: &ProxyServer) -> Option<Arc<Resource>> {
    server.world.store.snapshot().unwrap().get(&payments_1("").key).cloned()
}

fn service_of(server: &ProxyServer) -> Option<String> {
    stored(server)?.spec.get::<Dataplane>()?.inbounds()[0].tags.get("kuma.io/service").cloned()
}

#[tokio::test]
async fn a_stream_does_not_become_the_dataplane_that_replaces_its_own() {
    let server = server(LONG).await;
    let mut impostor = certified(&server, bringing(&payments_1("a")), &for_service("a")).await;
    let signed = server.context.issuer.signed();
    let mut owner = certified(&server, bringing(&payments_1("payments")), &for_name("payments-1")).await;
    denied(&mut impostor, "payments").await;
    assert_eq!(server.context.issuer.signed(), signed + 1, "the owner's certificate and no other");
    assert_eq!(service_of(&server).as_deref(), Some("payments"));

    // The owner's stream is as alive as before.
    owner.ask(Type::Listener, &[]).await;
    assert_eq!(owner.response().await.0, Type::Listener);
}

#[tokio::test]
async fn a_token_replaces_no_dataplane_it_is_not_for() {
    let server = server(LONG).await;
    server.world.put([payments_1("payments")]).await;
    let before = stored(&server).unwrap();
    for (what, node, part) in [
        (
            "bringing its own",
            bringing(&payments_1("a")),
            "is stored already, and it is not the proxy's to replace",
        ),
        ("bringing a copy", bringing(&payments_1("payments")), "kuma.io/service"),
        ("bringing none", Node { id: "default.payments-1".to_owned(), ..Node::default() }, "kuma.io/service"),
    ] {
        let mut impostor = stream(&server, node, &for_service("a")).await;
        denied(&mut impostor, part).await;
        assert_eq!(stored(&server).unwrap(), before, "{what}");
    }
}

#[tokio::test]
async fn a_token_for_the_name_but_for_another_workload_is_refused() {
    let server = server(LONG).await;
    let of = |workload: &str| Resource {
        labels: [("kuma.io/workload".to_owned(), workload.to_owned())].into(),
        ..payments_1("payments")
    };
    server.world.put([of("payments")]).await;
    let before = stored(&server).unwrap();
    let claims = DataplaneToken { workload: "batch".to_owned(), ..for_name("payments-1") };
    for node in [
        bringing(&of("batch")),
        bringing(&of("payments")),
        Node { id: "default.payments-1".to_owned(), ..Node::default() },
    ] {
        denied(&mut stream(&server, node, &claims).await, "workload").await;
        assert_eq!(stored(&server).unwrap(), before);
    }
}

#[tokio::test]
async fn a_connected_proxy_gets_only_tags_that_its_token_allows() {
    let server = server(LONG).await;
    server.world.put([payments_1("a")]).await;
    let node = || Node { id: "default.payments-1".to_owned(), ..Node::default() };
    let mut bound = certified(&server, node(), &for_service("a")).await;
    let mut free = certified(&server, node(), &for_name("payments-1")).await;
    server.world.put([payments_1("payments")]).await;
    denied(&mut bound, "payments").await;
    // The one that may be both is given what it is now, with a certificate that says so.
    assert_eq!(free.response().await.0, Type::Secret);

    // A policy of tokens that was wrong is set right by a change back.
    server.world.put([payments_1("a")]).await;
    certified(&server, node(), &for_service("a")).await;
}

#[tokio::test]
async fn a_proxy_that_leaves_takes_no_dataplane_along_that_its_token_is_not_for() {
    let server = server(Duration::ZERO).await;
    let mut impostor = certified(&server, bringing(&payments_1("a")), &for_service("a")).await;
    server.world.put([payments_1("payments")]).await;
    denied(&mut impostor, "payments").await;
    // Others that leave after it are gone.
    for name in ["other-1", "other-2"] {
        let other = dataplane("default", name, "127.0.3.2", "a", &[]);
        drop(certified(&server, bringing(&other), &for_service("a")).await);
        eventually("the other one is gone", || server.is_ready(name).is_none()).await;
    }
    assert_eq!(service_of(&server).as_deref(), Some("payments"));
}

#[tokio::test]
async fn a_token_drains_no_dataplane_it_is_not_for() {
    let server = server(LONG).await;
    server.world.put([payments_1("payments")]).await;
    let drain = async |claims: &DataplaneToken| {
        let token = server.token_for("default", claims, Duration::from_secs(60)).await;
        let body = json!({ "mesh": "default", "name": "payments-1", "dataplaneToken": token });
        server.post("/drain", &[], body).await.0
    };
    assert_eq!(drain(&for_service("a")).await, StatusCode::UNAUTHORIZED);
    assert_eq!(server.is_ready("payments-1"), Some(true));
    assert_eq!(drain(&for_service("payments")).await, StatusCode::NO_CONTENT);
    assert_eq!(server.is_ready("payments-1"), Some(false));
}

#[tokio::test]
async fn a_token_for_another_type_of_proxy_is_refused() {
    let server = server(LONG).await;
    let of_type = |kind: &str| DataplaneToken { proxy_type: kind.to_owned(), ..for_service("a") };
    for kind in ["ingress", "egress"] {
        denied(&mut stream(&server, bringing(&payments_1("a")), &of_type(kind)).await, kind).await;
    }
    assert_eq!(stored(&server), None);
    certified(&server, bringing(&payments_1("a")), &of_type("dataplane")).await;
}

/// A store on which somebody else stores a Dataplane just before the first one is written.
struct Faster {
    store: Arc<dyn Store>,
    other: Mutex<Option<Resource>>,
}

#[async_trait]
impl Store for Faster {
    fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        self.store.snapshot()
    }

    async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error> {
        if batch.iter().any(|write| write.key().kind == Kind::Dataplane) {
            let other = self.other.lock().unwrap().take();
            if let Some(other) = other {
                self.store.write(vec![Write::Create(other)]).await?;
            }
        }
        self.store.write(batch).await
    }

    fn changes(&self) -> Changes {
        self.store.changes()
    }
}

#[tokio::test]
async fn a_dataplane_that_appears_between_check_and_write_is_checked_too() {
    let faster =
        |store| Arc::new(Faster { store, other: Mutex::new(Some(payments_1("payments"))) }) as Arc<dyn Store>;
    let server = ProxyServer::on(true, LONG, faster).await;
    let mut impostor = stream(&server, bringing(&payments_1("a")), &for_service("a")).await;
    denied(&mut impostor, "payments").await;
    assert_eq!(service_of(&server).as_deref(), Some("payments"));
}

#[tokio::test]
async fn a_dataplane_replaced_since_the_last_check_gets_no_certificate() {
    let server = server(LONG).await;
    server.world.put([payments_1("a")]).await;
    let proxy = IdentifiedProxy::identify("default.payments-1", json!({})).unwrap();
    let token = server.token_for("default", &for_service("a"), Duration::from_secs(60)).await;
    let snapshot = server.world.store.snapshot().unwrap();
    let credentials = proxy.authenticate(&server.context, &snapshot, Some(&token)).await.unwrap();
    let names = SecretNames {
        identity: CertificateSecret::OfMesh("i".to_owned()),
        authorities: AuthoritiesSecret::OfMesh("a".to_owned()),
    };
    let issue = async || server.context.issuer.issue(&server.context, &proxy, &credentials, &names).await;
    assert!(issue().await.is_ok());
    server.world.put([payments_1("payments")]).await;
    let IssueError::Denied(refused) = issue().await.unwrap_err() else { panic!() };
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    assert_eq!(server.context.issuer.signed(), 1);
}

/// Labels that would make global take a proxy for another one, or for none.
const NOT_A_PROXYS: [(&str, &str); 8] = [
    ("kuma.io/display-name", "payments-2"),
    ("kuma.io/origin", "global"),
    ("kuma.io/zone", "west"),
    ("kuma.io/env", "kubernetes"),
    ("kuma.io/mesh", "elsewhere"),
    ("kuma.io/kds-sync", "disabled"),
    ("kuma.io/managed-by", "meshservice-generator"),
    ("k8s.kuma.io/namespace", "kube-system"),
];

fn labelled(labels: &[(&str, &str)]) -> Resource {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Resource { labels: labels.collect(), ..payments_1("payments") }
}

/// Expects the labels that the control plane gives, and the proxy's own.
fn assert_labels_of_control_plane(stored: &Resource, zone: &str) {
    for (name, value) in [
        ("kuma.io/display-name", None),
        ("kuma.io/origin", Some("zone")),
        ("kuma.io/zone", Some(zone)),
        ("kuma.io/env", Some("universal")),
        ("kuma.io/mesh", Some("default")),
        ("kuma.io/kds-sync", None),
        ("kuma.io/managed-by", None),
        ("k8s.kuma.io/namespace", None),
        ("team", Some("a")),
    ] {
        assert_eq!(stored.label(name), value, "{name}");
    }
}

#[tokio::test]
async fn a_proxy_does_not_choose_its_display_name_or_origin() {
    let server = server(LONG).await;
    let brought = labelled(&[&NOT_A_PROXYS[..], &[("team", "a")]].concat());
    certified(&server, bringing(&brought), &for_name("payments-1")).await;
    assert_labels_of_control_plane(&stored(&server).unwrap(), &server.context.zone);
}

#[tokio::test]
async fn stored_labels_of_a_proxy_are_corrected_when_it_comes_back() {
    let server = server(LONG).await;
    let before = labelled(&[("kuma.io/display-name", "payments-2"), ("kuma.io/origin", "global")]);
    server.world.put([before]).await;
    certified(&server, bringing(&labelled(&[("team", "a")])), &for_name("payments-1")).await;
    assert_labels_of_control_plane(&stored(&server).unwrap(), &server.context.zone);
}

#[test]
fn neither_does_a_zone_proxy() {
    for (kind, proxy_type) in [(Kind::ZoneIngress, "ingress"), (Kind::ZoneEgress, "egress")] {
        let mut labels: serde_json::Map<_, _> =
            NOT_A_PROXYS.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        labels.insert("team".to_owned(), json!("a"));
        let definition = json!({ "type": kind.name(), "name": "gate", "labels": labels,
            "networking": { "address": "127.0.0.7", "port": 10001 } });
        let metadata =
            json!({ "dataplane.proxyType": proxy_type, "dataplane.resource": definition.to_string() });
        let proxy = IdentifiedProxy::identify(".gate", metadata).unwrap();
        let own: Vec<_> = proxy.own_dataplane.unwrap().labels.into_iter().collect();
        assert_eq!(own, [("team".to_owned(), "a".to_owned())], "{kind}");
    }
}

/// The answer to a proxy that asks for a bootstrap and has stored its definition before.
async fn bootstrap(
    server: &ProxyServer,
    kind: &str,
    mesh: &str,
    name: &str,
    token: &str,
) -> (StatusCode, String) {
    let body = json!({ "mesh": mesh, "name": name, "proxyType": kind, "dataplaneToken": token });
    let (status, _, text) = server.post("/bootstrap", &[("host", "localhost:5678")], body).await;
    (status, text)
}

#[tokio::test]
async fn a_bootstrap_reveals_nothing_stored_to_a_caller_without_a_good_token() {
    let server = server(LONG).await;
    server.world.put([payments_1("payments"), mesh("next-door", "")]).await;
    let minute = Duration::from_secs(60);
    let other_mesh = DataplaneToken { mesh: "next-door".to_owned(), ..for_name("payments-1") };
    let other_mesh = server.token_for("next-door", &other_mesh, minute).await;
    let forged = SigningKey { kid: "1".into(), pair: KeyPair::generate().unwrap() };
    let forged = token::issue(&for_name("payments-1"), &forged, Timestamp::now(), minute).unwrap();
    let unknown = SigningKey { kid: "7".into(), pair: KeyPair::generate().unwrap() };
    let unknown = token::issue(&for_name("payments-1"), &unknown, Timestamp::now(), minute).unwrap();
    // Of names that are there and of others, and of meshes.
    for token in ["a.b.c", "nonsense", &forged, &unknown] {
        let (status, there) = bootstrap(&server, "dataplane", "default", "payments-1", token).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{there}");
        assert!(there.contains("token") && !there.contains(token), "{there}");
        let not_there = bootstrap(&server, "dataplane", "default", "payments-2", token).await;
        assert_eq!(not_there, (status, there.clone()));
        let no_mesh = bootstrap(&server, "dataplane", "nowhere", "payments-1", token).await;
        assert_eq!(no_mesh, (status, there.replace("\"default\"", "\"nowhere\"")));
    }
    let (status, text) = bootstrap(&server, "dataplane", "default", "payments-1", &other_mesh).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED, "{text}");
    for kind in ["ingress", "egress"] {
        let one = bootstrap(&server, kind, "", "gate", &forged).await;
        assert_eq!(one.0, StatusCode::UNAUTHORIZED, "{}", one.1);
        assert_eq!(one, bootstrap(&server, kind, "", "another", &forged).await);
    }

    // A good token asks for what it is for, and for nothing else.
    let good = server.token_for("default", &for_name("payments-1"), minute).await;
    let (status, text) = bootstrap(&server, "dataplane", "default", "payments-1", &good).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    for name in ["payments-2", "payments-3"] {
        server.world.put([dataplane("default", "payments-3", "127.0.3.3", "payments", &[])]).await;
        let (status, text) = bootstrap(&server, "dataplane", "default", name, &good).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{text}");
        let why = format!("it is for name \"payments-1\", the proxy has {name:?}");
        assert!(text.ends_with(&why), "{text}");
    }
    let of_others = server.token_for("default", &for_service("a"), minute).await;
    let (status, _) = bootstrap(&server, "dataplane", "default", "payments-1", &of_others).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let (status, text) = bootstrap(&server, "dataplane", "default", "payments-2", &of_others).await;
    assert_eq!((status, text.as_str()), (StatusCode::NOT_FOUND, ""));
}
