//! SNIs of destinations: lists that follow the formats, and values that lead to one place.

use async_trait::async_trait;
use resources::naming::sni::Formats;
use store::Changes;

use super::*;

const BACKEND: &str = "a601e0c00295a9fbe.backend.80.default.ms";

fn named(kind: &str, mesh: &str, name: &str, labels: Value, spec: Value) -> Draft {
    draft(json!({"type": kind, "mesh": mesh, "name": name, "labels": labels, "spec": spec}))
}

fn of_zone(kind: &str, name: &str, spec: Value) -> Draft {
    named(kind, "default", name, json!({"kuma.io/origin": "zone"}), spec)
}

fn custom(name: &str, mesh: &str, values: &[&str]) -> Draft {
    let snis: Vec<Value> = values.iter().map(|value| json!({"value": value})).collect();
    named("MeshService", mesh, name, json!({}), json!({"ports": [{"port": 80, "snis": snis}]}))
}

fn in_mode(mode: ControlPlaneRole, formats: &[&str]) -> Registrar {
    registrar_with(mode, |_| ()).with_sni_formats(Formats::named(formats.iter().copied()).unwrap())
}

/// Stores what synchronisation would have brought.
async fn synced(registrar: &Registrar, draft: Draft) {
    let resource = Resource {
        owner: None,
        created: NOW(),
        modified: NOW(),
        version: 0,
        key: draft.key,
        labels: draft.labels,
        spec: draft.spec,
        status: None,
    };
    registrar.store().write(vec![Write::Create(resource)]).await.unwrap();
}

#[tokio::test]
async fn every_owner_writes_the_snis_of_its_kinds() {
    let zone = with_mesh(in_mode(zone(true), &["kri", "hashed"])).await;
    let put = zone.put(of_zone("MeshService", "backend", json!({"ports": [{"port": 80}]}))).await.unwrap();
    // What every peer computes is dialled until zone proxies accept the rest.
    let expected = [BACKEND, "sni.msvc.default.east.backend.80", "a1d9f6e8b5930fbfd.backend.80.default.ms"];
    assert_eq!(snis(&put.resource), [expected]);
    let external = json!({"match": {"port": 443}, "endpoints": [{"address": "example.com", "port": 443}]});
    let put = zone.put(of_zone("MeshExternalService", "payments", external.clone())).await.unwrap();
    assert_eq!(
        put.resource.spec.to_json()["match"]["snis"],
        json!([
            {"value": "ad55bfd9a68e03831.payments.443.default.mes"},
            {"value": "sni.extsvc.default.east.payments.443"},
            {"value": "a2090e378ffb54824.payments.443.default.mes"},
        ])
    );

    let global = with_mesh(in_mode(ControlPlaneRole::Global, &["hashed"])).await;
    let put =
        global.put(named("MeshExternalService", "default", "payments", json!({}), external)).await.unwrap();
    let list = &put.resource.spec.to_json()["match"]["snis"];
    assert_eq!(*list, json!([{"value": "ad55bfd9a68e03831.payments.443.default.mes"}]));
}

#[tokio::test]
async fn a_list_of_own_values_follows_the_formats_and_its_author_is_warned() {
    let registrar = with_mesh(in_mode(zone(false), &["kri"])).await;
    let put = registrar.put(custom("backend", "default", &[BACKEND])).await.unwrap();
    assert_eq!(snis(&put.resource), [["sni.msvc.default.east.backend.80"]]);
    let warning = "The SNIs of port 80 follow multizone.sni.formats: sni.msvc.default.east.backend.80 instead of \
                   a601e0c00295a9fbe.backend.80.default.ms. Leave out snis, or give values of your own.";
    assert_eq!(put.warnings, [warning]);
    let put = registrar.put(service(json!([{"port": 80}]))).await.unwrap();
    assert_eq!((put.outcome, put.warnings), (WriteEffect::Unchanged, Vec::new()));
}

#[tokio::test]
async fn a_value_leads_to_one_destination_of_an_owner() {
    let registrar = with_mesh(in_mode(zone(false), &["hashed"])).await;
    registrar.ensure(vec![draft(json!({"type": "Mesh", "name": "other"}))]).await.unwrap();
    registrar.put(service(json!([{"port": 80}]))).await.unwrap();
    let taken = |value: &str, service: &str| {
        format!(
            "SNI {value:?} is that of MeshService {service:?} in mesh \"default\": an SNI leads to one destination, so \
             give one of the two another name or other snis"
        )
    };
    let refused = |message: String| vec![("spec.ports[0].snis[0].value".to_owned(), message)];
    // What is listed, and what is only implied; in any mesh, because a zone ingress serves all of them.
    for value in [BACKEND, "sni.msvc.default.east.backend.80"] {
        for mesh in ["default", "other"] {
            let found = violations(&registrar, custom("thief", mesh, &[value])).await;
            assert_eq!(found, refused(taken(value, "backend")), "{mesh}");
        }
    }
    registrar.put(custom("own", "default", &["own.example"])).await.unwrap();
    let found = violations(&registrar, custom("second", "other", &["own.example"])).await;
    assert_eq!(found, refused(taken("own.example", "own")));
    // The first one may be written again, and what it gave up is free.
    registrar.put(custom("own", "default", &["own.example", "old.example"])).await.unwrap();
    registrar.put(custom("own", "default", &["new.example"])).await.unwrap();
    registrar.put(custom("second", "other", &["own.example", "old.example"])).await.unwrap();
    registrar.delete(&Key::new(Kind::MeshService, "other", "second")).await.unwrap();
    registrar.put(custom("third", "default", &["own.example"])).await.unwrap();
}

#[tokio::test]
async fn names_that_make_one_sni_are_refused() {
    let registrar = with_mesh(in_mode(zone(false), &["hashed"])).await;
    let spec = json!({"ports": [{"port": 80}]});
    registrar.put(of_zone("MeshService", "redis.kuma-demo", spec.clone())).await.unwrap();
    let labels = json!({"kuma.io/origin": "zone", "k8s.kuma.io/namespace": "kuma-demo"});
    let found = violations(&registrar, named("MeshService", "default", "redis", labels, spec)).await;
    let message = "SNI \"a64067518fe826e27.redis.kuma-demo.80.default.ms\" is that of MeshService \"redis.kuma-demo\" in \
                   mesh \"default\": an SNI leads to one destination, so give one of the two another name or other snis";
    assert_eq!(found, [("spec.ports[0].snis[0].value".to_owned(), message.to_owned())]);
}

#[tokio::test]
async fn a_value_leads_to_one_port() {
    let registrar = with_mesh(in_mode(zone(false), &["hashed"])).await;
    let ports = |first: &str, second: &str| {
        service(json!([
            {"port": 80, "snis": [{"value": first}]},
            {"port": 81, "snis": [{"value": second}]},
        ]))
    };
    let message = "SNI \"a.example\" is that of port 80: an SNI leads to one port";
    let found = violations(&registrar, ports("a.example", "a.example")).await;
    assert_eq!(found, [("spec.ports[1].snis[0].value".to_owned(), message.to_owned())]);
    registrar.put(ports("a.example", "b.example")).await.unwrap();
    // Two ports of one number are one to a client that dials.
    let twice = json!([{"port": 80, "appProtocol": "http"}, {"port": 80, "appProtocol": "tcp"}]);
    registrar.put(service(twice)).await.unwrap();
    let found = violations(&registrar, custom("twice", "default", &["a.b", "a.b"])).await;
    assert_eq!(found, [("spec.ports[0].snis[1].value".to_owned(), "\"a.b\" is listed twice".to_owned())]);
}

#[tokio::test]
async fn services_of_one_name_in_several_zones_are_normal() {
    let registrar = with_mesh(in_mode(zone(true), &["hashed"])).await;
    let west = json!({"kuma.io/origin": "global", "kuma.io/zone": "west", "kuma.io/display-name": "backend"});
    let list = json!([{"value": "ae69492141aad8ba7.backend.80.default.ms"}, {"value": BACKEND}]);
    let spec = json!({"ports": [{"port": 80, "snis": list}]});
    synced(&registrar, named("MeshService", "default", "backend-x2w4", west, spec)).await;
    registrar.put(of_zone("MeshService", "backend", json!({"ports": [{"port": 80}]}))).await.unwrap();
    let snapshot = registrar.store().snapshot().unwrap();
    let names = |value: &str| -> Vec<&str> { snapshot.accepting(value).iter().map(|it| it.name()).collect() };
    assert_eq!(names(BACKEND), ["backend", "backend-x2w4"]);
    assert_eq!(names("a1d9f6e8b5930fbfd.backend.80.default.ms"), ["backend"]);
    assert_eq!(names("ae69492141aad8ba7.backend.80.default.ms"), ["backend-x2w4"]);
    assert_eq!(names("sni.msvc.default.west.backend.80"), ["backend-x2w4"]);
    assert_eq!(names("nothing.example"), [""; 0]);
}

#[tokio::test]
async fn global_looks_at_what_originates_there() {
    let registrar = with_mesh(in_mode(ControlPlaneRole::Global, &["hashed"])).await;
    let all = |value: &str| {
        let ports = json!([{"port": 80, "snis": [{"value": value}]}]);
        json!({"selector": {"meshService": {"matchLabels": {"app": "x"}}}, "ports": ports})
    };
    let of_east =
        json!({"kuma.io/origin": "zone", "kuma.io/zone": "east", "kuma.io/display-name": "backend"});
    let spec = json!({"ports": [{"port": 80, "snis": [{"value": "shared.example"}]}]});
    synced(&registrar, named("MeshService", "default", "backend-x2w4", of_east, spec)).await;
    registrar
        .put(named("MeshMultiZoneService", "default", "all", json!({}), all("shared.example")))
        .await
        .unwrap();
    let second = named("MeshMultiZoneService", "default", "second", json!({}), all("shared.example"));
    let found = violations(&registrar, second).await;
    let message = "SNI \"shared.example\" is that of MeshMultiZoneService \"all\" in mesh \"default\": an SNI leads to one \
                   destination, so give one of the two another name or other snis";
    assert_eq!(found, [("spec.ports[0].snis[0].value".to_owned(), message.to_owned())]);
}

/// A store whose writes take a while, so that several are on their way at the same time.
#[derive(Default)]
struct Slow(Memory);

#[async_trait]
impl Store for Slow {
    fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        self.0.snapshot()
    }

    async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error> {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        self.0.write(batch).await
    }

    fn changes(&self) -> Changes {
        self.0.changes()
    }
}

#[tokio::test]
async fn of_two_writes_at_one_moment_that_want_one_value_one_is_made() {
    let registrar = Registrar::new(Arc::new(Slow::default()), setup(zone(false)))
        .with_sni_formats(Formats::named(["hashed"].into_iter()).unwrap());
    let registrar = with_mesh(registrar).await;
    for round in 0..20 {
        let value = format!("wanted-{round}.example");
        let [one, two] = ["one", "two"].map(|name| custom(&format!("{name}-{round}"), "default", &[&value]));
        let apart = custom(&format!("apart-{round}"), "default", &[&format!("apart-{round}.example")]);
        // All were admitted before any was made.
        let snapshot = registrar.store().snapshot().unwrap();
        let (one, two, apart) = tokio::join!(
            registrar.put_on(one, &snapshot, &Expected::Anything),
            registrar.put_on(two, &snapshot, &Expected::Anything),
            registrar.put_on(apart, &snapshot, &Expected::Anything)
        );
        apart.unwrap();
        let refused: Vec<Refusal> = [one, two].into_iter().filter_map(Result::err).collect();
        let [Refusal::Invalid(found)] = &refused[..] else { panic!("{refused:?}") };
        assert!(found.to_string().contains("an SNI leads to one destination"), "{found}");
        assert_eq!(registrar.store().snapshot().unwrap().accepting(&value).len(), 1);
    }
}
