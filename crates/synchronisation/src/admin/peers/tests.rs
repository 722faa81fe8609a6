use api::{AdminFormat, AdminView};
use resources::{
    Spec,
    kinds::{
        dataplane_insight::{DataplaneInsight, DiscoverySubscription},
        zone_insight::KdsStreams,
    },
};
use runtime::{Shutdown, listen::Limits, listen::Listener, tls};
use store::{Memory, Write};

use super::super::tests::{Echo, connected, question};
use super::*;
use crate::{
    admin::View,
    views::{self, ComputedView},
};

const LIMIT: usize = 1 << 20;

async fn write(store: &Arc<dyn Store>, key: Key, spec: Spec) {
    store.write(vec![Write::Create(testkit::resource::bare(key, spec))]).await.unwrap();
}

async fn certificate(store: &Arc<dyn Store>) {
    let pair = self_signed(Usage::Server, &[NAME.to_owned()], &[], Timestamp::now()).unwrap();
    let data = SecretBytes::new(pair.certificate + &pair.key);
    write(store, secret(), GlobalSecret { data }.into()).await;
}

/// An instance that the zone `east` is connected to; says where it listens.
async fn other_instance(store: &Arc<dyn Store>, shutdown: &Shutdown) -> SocketAddr {
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let addr = listener.addr();
    let router = router(Answers::Zones(connected().await), LIMIT);
    let tls = server_tls(&store.snapshot().unwrap()).unwrap().to_config().unwrap();
    listener.serve(router, Some(tls), Limits::default(), shutdown);
    addr
}

/// An instance without zones.
fn asked(store: &Arc<dyn Store>) -> Questions {
    Questions::with_peers(Peers { store: store.clone(), instance_id: "b".to_owned(), limit: LIMIT })
}

fn connected_to(address: &str) -> Spec {
    let stream = || {
        let global_instance_id = "a".to_owned();
        let global_address = address.to_owned();
        Some(KdsStream { global_instance_id, global_address, connect_time: None })
    };
    let streams =
        KdsStreams { config_dump: stream(), stats: stream(), clusters: stream(), ..KdsStreams::default() };
    ZoneInsight { kds_streams: Some(streams), ..ZoneInsight::default() }.into()
}

fn insight(zone: &str) -> Key {
    Key::global(Kind::ZoneInsight, zone)
}

#[tokio::test]
async fn an_instance_passes_questions_on_to_the_one_that_has_the_zone() {
    tls::install_provider();
    let (store, shutdown): (Arc<dyn Store>, _) = (Arc::new(Memory::default()), Shutdown::default());
    certificate(&store).await;
    let address = other_instance(&store, &shutdown).await;
    write(&store, insight("east"), connected_to(&address.to_string())).await;
    let questions = asked(&store);
    let stats = AdminView::Stats { format: AdminFormat::Json, used_only: true };
    for view in [
        AdminView::ConfigDump { include_eds: true },
        stats,
        AdminView::Clusters { format: AdminFormat::Text },
    ] {
        let answer = questions.put("east", question("web", view)).await.unwrap();
        let expected = format!("Dataplane \"web\" in mesh \"default\": {view:?}");
        assert_eq!(&answer.body[..], expected.as_bytes());
    }
    let refused = questions.put("east", question("nobody", stats)).await.unwrap_err();
    assert!(refused.to_string().contains("there is no Dataplane \"nobody\""), "{refused}");
}

/// The record of a proxy that is connected to an instance.
fn connected_proxy(instance: &str, address: &str, online: bool) -> Spec {
    let mut subscription = DiscoverySubscription {
        control_plane_instance_id: instance.to_owned(),
        control_plane_address: address.to_owned(),
        connect_time: Some(Timestamp::UNIX_EPOCH),
        ..DiscoverySubscription::default()
    };
    subscription.disconnect_time = Some(Timestamp::UNIX_EPOCH).filter(|_| !online);
    DataplaneInsight { subscriptions: vec![subscription], ..DataplaneInsight::default() }.into()
}

#[tokio::test]
async fn an_instance_in_a_zone_asks_the_one_that_a_proxy_is_connected_to() {
    tls::install_provider();
    let (store, shutdown): (Arc<dyn Store>, _) = (Arc::new(Memory::default()), Shutdown::default());
    certificate(&store).await;
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let address = listener.addr().to_string();
    let tls = server_tls(&store.snapshot().unwrap()).unwrap().to_config().unwrap();
    let answers = Answers::Proxies(Arc::new(Echo));
    listener.serve(router(answers, LIMIT), Some(tls), Limits::default(), &shutdown);

    let proxy = |name: &str| Key::new(Kind::Dataplane, "default", name);
    let insight = |name: &str| Key { kind: Kind::DataplaneInsight, ..proxy(name) };
    let mesh = resources::kinds::mesh::Mesh::default();
    write(&store, Key::global(Kind::Mesh, "default"), mesh.into()).await;
    for (name, instance, online) in [("web", "a", true), ("own", "b", true), ("gone", "a", false)] {
        write(&store, insight(name), connected_proxy(instance, &address, online)).await;
    }
    let peers = Peers { store: store.clone(), instance_id: "b".to_owned(), limit: LIMIT };
    let snapshot = store.snapshot().unwrap();
    for name in ["own", "gone", "nobody"] {
        assert_eq!(peers.holder_of_proxy(&snapshot, &proxy(name)), None, "{name}");
    }
    let holder = peers.holder_of_proxy(&snapshot, &proxy("web")).unwrap();
    let stats = AdminView::Stats { format: AdminFormat::Text, used_only: true };
    let answer = peers.ask(&holder, question("web", stats)).await.unwrap();
    assert_eq!(answer.content_type, "text/plain");
    assert!(answer.body.starts_with(b"Dataplane \"web\" in mesh \"default\": Stats"), "{answer:?}");
    let view = View::Computed(ComputedView::Config { with_shadow: true });
    let answer = peers.ask(&holder, AdminQuestion { about: proxy("web"), view }).await.unwrap();
    let config: api::XdsConfig = views::read(&answer.body, "the instance \"a\"").unwrap();
    assert_eq!(config.xds, serde_json::json!({ "shadow": true }));

    let lost = Holder { address: String::new(), ..holder };
    let error = peers.ask(&lost, question("web", stats)).await.unwrap_err().to_string();
    let expected = "is connected to the instance \"a\" of this control plane: ask that one";
    assert!(error.contains(expected), "{error}");
}

#[tokio::test]
async fn an_instance_that_cannot_be_asked_is_named_with_what_to_do() {
    tls::install_provider();
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    certificate(&store).await;
    write(&store, insight("east"), connected_to("")).await;
    // No process listens at this port.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    write(&store, insight("west"), connected_to(&free.to_string())).await;
    let view = AdminView::ConfigDump { include_eds: false };
    for (zone, expected) in [
        ("east", "it has not published its address"),
        ("west", "interCp.catalog.instanceAddress"),
        ("north", "is not connected to this control plane"),
    ] {
        let error = asked(&store).put(zone, question("web", view)).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(
            zone == "north" || error.contains("the instance \"a\" of the global control plane: ask that one")
        );
    }
}

#[tokio::test]
async fn who_does_not_have_the_certificate_of_the_store_is_not_answered() {
    tls::install_provider();
    let (store, stranger): (Arc<dyn Store>, Arc<dyn Store>) =
        (Arc::new(Memory::default()), Arc::new(Memory::default()));
    let shutdown = Shutdown::default();
    for store in [&store, &stranger] {
        certificate(store).await;
    }
    let address = other_instance(&store, &shutdown).await.to_string();
    write(&stranger, insight("east"), connected_to(&address)).await;
    let view = AdminView::ConfigDump { include_eds: false };
    let error = asked(&stranger).put("east", question("web", view)).await.unwrap_err().to_string();
    assert!(error.contains("TLS"), "{error}");

    // With TLS that trusts the server and presents no certificate.
    let pair = stored(&store.snapshot().unwrap()).unwrap();
    let trust = TrustedServers::Certificates(certificates(&pair.certificate).unwrap());
    let config = Arc::new(tls::client_config(trust, b"h2").unwrap());
    let stream = TcpStream::connect(&address).await.unwrap();
    let stream =
        TlsConnector::from(config).connect(ServerName::try_from(NAME).unwrap(), stream).await.unwrap();
    let mut sender = speak(stream, KeepAlive::default()).await.unwrap();
    let request = http::Request::post(format!("https://{NAME}/questions/stats")).body(Body::empty()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    let refused = judged(response.status(), response.headers()).unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unauthenticated);
}

#[test]
fn the_address_towards_the_database_is_this_machines() {
    assert_eq!(own_address("127.0.0.1", 5432), IpAddr::V4(Ipv4Addr::LOCALHOST));
    assert_eq!(own_address("", 0), IpAddr::V4(Ipv4Addr::LOCALHOST), "no host, no way");
}
