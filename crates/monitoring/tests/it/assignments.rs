//! `kuma_sd`: long polls.

use std::sync::Arc;

use axum::body::Body;
use http::StatusCode;
use resources::Kind;
use serde_json::{Value, json};
use store::{Memory, Store, Write};
use testkit::resource::with_labels;

use crate::world::{SOON, World, ask, dataplane, everyone, mesh, metric, page};

const PATH: &str = "/v3/discovery:monitoringassignments";

async fn with_two_proxies() -> World {
    let world = World::new();
    world
        .put([mesh("default"), dataplane("web", "web", "192.0.2.1"), dataplane("db", "db", "192.0.2.2")])
        .await;
    world.put([metric("all", everyone(), json!([page()]))]).await;
    world
}

#[tokio::test]
async fn a_selected_proxy_is_a_target_with_its_labels() {
    let world = World::new();
    let web = with_labels(dataplane("web", "shop", "2001:db8::1"), &[("kuma.io/workload", "web-2")]);
    world.put([mesh("default"), web, dataplane("db", "db", "192.0.2.2")]).await;
    let tls = json!({"type": "Prometheus", "prometheus":
        {"port": 1234, "path": "stats", "tls": {"mode": "ProvidedTLS"}}});
    let target = json!({"kind": "Dataplane", "labels": {"kuma.io/workload": "web-2"}});
    world.put([metric("web", target, json!([tls]))]).await;
    let answer = world.poll_until("prometheus.example", |answer| answer.proxies() == ["web"]).await;
    let document = answer.json();
    let type_url = "type.googleapis.com/kuma.observability.v1.MonitoringAssignment";
    assert_eq!(document["type_url"], type_url);
    assert_eq!(
        document["resources"],
        json!([{
            "@type": type_url, "mesh": "default", "service": "shop",
            "targets": [{"name": "web", "scheme": "https", "address": "[2001:db8::1]:1234",
                "metrics_path": "/stats", "labels": {}}],
            "labels": {
                "dataplane": "web", "kuma_io_service": "shop", "kuma_io_services": ",shop,",
                "kuma_proxy_role": "sidecar", "kuma_workload": "web-2", "mesh": "default", "service": "shop",
                "zone": "east",
            },
        }])
    );
}

#[tokio::test]
async fn a_poll_ends_when_targets_change_and_at_nothing_else() {
    let world = Arc::new(with_two_proxies().await);
    let first = world.poll_until("any", |answer| answer.proxies() == ["db", "web"]).await;
    let polling = tokio::spawn({
        let (world, version) = (world.clone(), first.version());
        async move { world.poll("any", &version, "5m").await }
    });
    let examined = world.targets.examined();
    // Nothing of this is about a page of metrics.
    world.put([testkit::resource::timeout("t", everyone(), 10), mesh("other")]).await;
    let mut drained = dataplane("web", "web", "192.0.2.1");
    let mut spec = drained.spec.to_json();
    spec["networking"]["inbound"][0]["state"] = json!("NotReady");
    drained.spec = resources::Spec::from_json(Kind::Dataplane, spec, &mut Vec::new()).unwrap();
    world.put([drained]).await;
    world.push.caught_up().await;
    let waiting = async {
        while world.targets.examined() == examined {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, waiting).await.expect("the changed Dataplane to be looked at");
    assert_eq!(world.targets.examined() - examined, 1, "one Dataplane changed");
    let same = world.poll("any", &first.version(), "0s").await;
    assert_eq!((same.status, same.body.as_str()), (StatusCode::NOT_MODIFIED, ""));
    assert!(!polling.is_finished(), "nothing changed for it");

    world.delete(Kind::Dataplane, "db").await;
    let answer = tokio::time::timeout(SOON, polling).await.unwrap().unwrap();
    assert_eq!(answer.proxies(), ["web"]);
    assert_eq!(world.targets.examined() - examined, 2, "the other one went");
    world.delete(Kind::MeshMetric, "all").await;
    let gone = world.poll_until("any", |answer| answer.proxies().is_empty()).await;
    assert_ne!(gone.version(), answer.version());
}

#[tokio::test]
async fn a_version_is_that_of_the_content_also_in_another_process() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let world = World::on(store.clone(), false);
    world.put([mesh("default"), dataplane("web", "web", "192.0.2.1")]).await;
    world.put([metric("all", everyone(), json!([page()]))]).await;
    let before = world.poll_until("any", |answer| answer.proxies() == ["web"]).await;
    drop(world);
    // The first question after a restart is answered with what is stored, not with an empty list.
    let again = World::on(store, false);
    let same = again.poll("any", &before.version(), "0s").await;
    assert_eq!(same.status, StatusCode::NOT_MODIFIED, "{}", same.body);
    assert_eq!(again.poll("any", "", "0s").await.body, before.body);
}

#[tokio::test]
async fn a_client_gets_its_own_pages_and_any_other_those_for_all() {
    let world = World::new();
    world.put([mesh("default"), dataplane("web", "web", "192.0.2.1")]).await;
    let own = json!({"type": "Prometheus", "prometheus": {"clientId": "main", "port": 1111}});
    let taken = json!({"type": "Prometheus", "prometheus": {"clientId": "late", "port": 8080}});
    world.put([metric("all", everyone(), json!([page(), own, page(), taken]))]).await;
    let ports = |answer: &crate::world::Answer| -> Vec<String> {
        let document = answer.json();
        let resources = document["resources"].as_array().unwrap().clone();
        resources.iter().map(|one| one["targets"][0]["address"].as_str().unwrap().to_owned()).collect()
    };
    let anyone = world.poll_until("prometheus.example", |answer| !answer.proxies().is_empty()).await;
    assert_eq!(ports(&anyone), ["192.0.2.1:5670"], "two backends of one client make one page");
    assert_eq!(ports(&world.poll("main", "", "0s").await), ["192.0.2.1:1111"]);
    // An inbound has the port, so the proxy has no such page; but the client is known.
    assert_eq!(ports(&world.poll("late", "", "0s").await), Vec::<String>::new());
}

#[tokio::test]
async fn tags_claim_no_label_that_says_whose_a_series_is() {
    let world = World::new();
    let mut hostile = testkit::build::dataplane("liar").address("192.0.2.9").inbound(8080).service("liar");
    let names = [
        "mesh",
        "zone",
        "dataplane",
        "service",
        "kuma_workload",
        "kuma.proxy-role",
        "__address__",
        "job",
        "le",
        "instance",
    ];
    for name in names {
        hostile = hostile.tag(name, "stolen\"\n");
    }
    let labels = [("kuma.io/zone", "west"), ("kuma.io/mesh", "other")];
    world.put([mesh("default"), with_labels(hostile.build(), &labels)]).await;
    world.put([metric("all", everyone(), json!([page()]))]).await;
    let answer = world.poll_until("any", |answer| answer.proxies() == ["liar"]).await;
    let labels = answer.json()["resources"][0]["labels"].clone();
    let says = |name: &str| labels[name].as_str().map(str::to_owned);
    assert_eq!(says("mesh").as_deref(), Some("default"));
    assert_eq!(says("zone").as_deref(), Some("east"));
    assert_eq!(says("dataplane").as_deref(), Some("liar"));
    assert_eq!(says("service").as_deref(), Some("liar"));
    assert_eq!(says("kuma_workload").as_deref(), Some("liar"));
    assert_eq!(says("kuma_proxy_role").as_deref(), Some("sidecar"));
    for name in ["__address__", "job", "le", "instance"] {
        assert_eq!(labels[name], Value::Null, "{labels}");
    }
    let stolen = labels.as_object().unwrap().iter().filter(|(_, value)| *value == "stolen\"\n");
    assert_eq!(stolen.count(), 0, "{labels}");
}

#[tokio::test]
async fn what_is_followed_is_the_same_as_what_is_read_anew() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let world = World::on(store.clone(), false);
    let labelled = |name: &str, address: &str, team: &str| {
        with_labels(dataplane(name, name, address), &[("team", team)])
    };
    let of_team = |team: &str| json!({"kind": "Dataplane", "labels": {"team": team}});
    world.put([mesh("default"), labelled("a", "192.0.2.1", "red"), labelled("b", "192.0.2.2", "blue")]).await;
    let mut last = world.poll("any", "", "0s").await;
    let own = |port: u16| json!([{"type": "Prometheus", "prometheus": {"port": port}}]);
    for round in 0..6 {
        match round {
            0 => world.put([metric("m", of_team("red"), own(1000))]).await,
            // Another selection, and another conf.
            1 => world.put([metric("m", of_team("blue"), own(1001))]).await,
            2 => world.put([labelled("a", "192.0.2.1", "blue")]).await,
            3 => world.put([labelled("b", "192.0.2.7", "red"), labelled("c", "192.0.2.3", "blue")]).await,
            4 => world.put([metric("all", everyone(), own(1003))]).await,
            _ => world.delete(Kind::MeshMetric, "m").await,
        }
        let anew = World::on(store.clone(), false).poll("any", "", "0s").await;
        let followed = world.poll_until("any", |answer| answer.body == anew.body).await;
        assert_ne!(followed.body, last.body, "round {round} changes something");
        last = followed;
    }
    assert_eq!(last.proxies(), ["a", "b", "c"]);
}

#[tokio::test]
async fn what_no_prometheus_sends_is_refused_with_the_reason() {
    let world = with_two_proxies().await;
    let long = "x".repeat(100_000);
    for (path, body, status, says) in [
        (PATH, "{".to_owned(), 400, "no DiscoveryRequest"),
        (PATH, "7".to_owned(), 400, "no DiscoveryRequest"),
        (PATH, json!({"node": {"id": long}}).to_string(), 413, "longer than 65536 bytes"),
        (PATH, json!({"type_url": "type.googleapis.com/other"}).to_string(), 400, "is not served here"),
        (PATH, json!({"resource_names": ["x"]}).to_string(), 400, "resource_names must be empty"),
        (&format!("{PATH}?fetch-timeout=soon"), "{}".to_owned(), 400, "no duration"),
        (&format!("{PATH}?fetch-timeout=-1s"), "{}".to_owned(), 400, "no duration"),
        ("/v3/discovery:clusters", "{}".to_owned(), 404, ""),
    ] {
        let answer = world.ask(path, body).await;
        assert_eq!(answer.status.as_u16(), status, "{path}: {}", answer.body);
        assert!(answer.body.contains(says), "{}", answer.body);
    }
    // The other spelling of the fields, and fields that are not known.
    let request = json!({"versionInfo": "", "typeUrl": "", "node": {"id": "x", "cluster": "y"}, "more": 1});
    assert_eq!(world.ask(PATH, request.to_string()).await.status, StatusCode::OK);
}

#[tokio::test]
async fn without_a_certificate_nothing_is_told_where_one_is_required() {
    let world = World::on(Arc::new(Memory::default()), true);
    world.put([mesh("default")]).await;
    let answer = world.poll("any", "", "0s").await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    assert!(answer.body.contains("clientCertsDir"), "{}", answer.body);
}

#[tokio::test]
async fn a_thousand_polls_end_with_one_change_or_with_the_control_plane() {
    let world = Arc::new(with_two_proxies().await);
    let first = world.poll_until("any", |answer| answer.proxies().len() == 2).await;
    let polls = |version: String| {
        let router = world.router.clone();
        let body = json!({"version_info": version, "node": {"id": "any"}}).to_string();
        (0..1000).map(move |_| {
            let (router, body) = (router.clone(), body.clone());
            tokio::spawn(
                async move { ask(&router, &format!("{PATH}?fetch-timeout=5m"), Body::from(body)).await },
            )
        })
    };
    let waiting: Vec<_> = polls(first.version()).collect();
    world.delete(Kind::Dataplane, "db").await;
    let mut second = String::new();
    for poll in waiting {
        let answer = tokio::time::timeout(SOON, poll).await.unwrap().unwrap();
        assert_eq!(answer.proxies(), ["web"]);
        second = answer.version();
    }
    let waiting: Vec<_> = polls(second).collect();
    world.shutdown.begin();
    for poll in waiting {
        let answer = tokio::time::timeout(SOON, poll).await.unwrap().unwrap();
        assert_eq!(answer.status, StatusCode::NOT_MODIFIED);
    }
}

#[tokio::test]
async fn targets_of_a_mesh_go_with_it() {
    let world = with_two_proxies().await;
    world.poll_until("any", |answer| answer.proxies().len() == 2).await;
    let stored = world.store.snapshot().unwrap();
    for key in stored.iter().map(|resource| resource.key.clone()) {
        world.store.write(vec![Write::Delete { key, expected: None }]).await.unwrap();
    }
    world.poll_until("any", |answer| answer.proxies().is_empty()).await;
}
