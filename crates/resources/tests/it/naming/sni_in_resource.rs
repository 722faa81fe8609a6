//! The lists of SNIs that owners write into their resources.

use resources::{
    Environment, Kind, Resource, Spec,
    kinds::mesh_service::Sni,
    naming::sni::{self, Formats, Owner, OwnerLocation},
};
use serde_json::{Value, json};

use super::{assert_hostname, resource};

const MS: Kind = Kind::MeshService;
const MES: Kind = Kind::MeshExternalService;
const MZMS: Kind = Kind::MeshMultiZoneService;

const BACKEND: &str = "a601e0c00295a9fbe.backend.80.default.ms";
/// With `kuma.io/zone=east` as the optional data of the hash.
const BACKEND_EAST: &str = "a1d9f6e8b5930fbfd.backend.80.default.ms";
const BACKEND_WEST: &str = "ae69492141aad8ba7.backend.80.default.ms";
const BACKEND_KRI: &str = "sni.msvc.default.east.backend.80";

fn owner(place: OwnerLocation, formats: &[&str]) -> Owner {
    Owner {
        place,
        formats: Formats::named(formats.iter().copied()).unwrap(),
        environment: Environment::Universal,
    }
}

fn zone(name: &str, federated: bool) -> OwnerLocation {
    OwnerLocation::Zone { name: name.into(), federated }
}

fn backend(ports: Value) -> Resource {
    let labels = [("kuma.io/origin", "zone"), ("kuma.io/zone", "east")];
    resource(MS, "default", "backend", &labels, json!({ "ports": ports }))
}

fn lists(resource: &Resource) -> Vec<Vec<&str>> {
    match &resource.spec {
        Spec::MeshService(service) => service.ports.iter().map(|port| shown(&port.snis)).collect(),
        Spec::MeshMultiZoneService(service) => service.ports.iter().map(|port| shown(&port.snis)).collect(),
        Spec::MeshExternalService(service) => vec![shown(&service.match_.snis)],
        _ => Vec::new(),
    }
}

fn shown(snis: &[Sni]) -> Vec<&str> {
    snis.iter().map(|sni| sni.value.as_str()).collect()
}

fn filled(owner: &Owner, mut resource: Resource) -> Resource {
    owner.fill(&mut resource, None);
    resource
}

#[test]
fn a_zone_in_kubernetes_hashes_the_name_that_the_service_has_there() {
    let mut service = backend(json!([{ "port": 80 }]));
    service.labels.insert("k8s.kuma.io/namespace".to_owned(), "ns".to_owned());
    let universal = owner(zone("east", false), &["hashed"]);
    let environment = Environment::Kubernetes { system_namespace: "kuma-system".into() };
    let kubernetes = Owner { environment, ..universal.clone() };
    assert_eq!(lists(&filled(&kubernetes, service.clone())), [[BACKEND]]);
    let elsewhere = filled(&universal, service);
    assert!(lists(&elsewhere)[0][0].contains(".backend.ns."), "{:?}", lists(&elsewhere));
}

#[test]
fn a_zone_among_others_hashes_its_name_and_one_alone_does_not() {
    let check = |place: OwnerLocation, expected: &[&str]| {
        let service = filled(&owner(place, &["hashed"]), backend(json!([{ "port": 80 }])));
        assert_eq!(lists(&service), [expected]);
    };
    check(zone("east", false), &[BACKEND]);
    check(zone("east", true), &[BACKEND, BACKEND_EAST]);
    check(zone("west", true), &[BACKEND, BACKEND_WEST]);
}

#[test]
fn every_destination_has_a_list_at_its_owner() {
    let all =
        json!({ "selector": { "meshService": { "matchLabels": { "a": "b" } } }, "ports": [{ "port": 80 }] });
    let external = json!({ "match": { "port": 443 } });
    let global = owner(OwnerLocation::Global, &["kri", "hashed"]);
    let service = filled(&global, resource(MZMS, "default", "all", &[], all.clone()));
    assert_eq!(lists(&service), [["sni.mzsvc.default.all.80", "a99dd37a828ea95a7.all.80.default.mzms"]]);
    let payments = filled(&global, resource(MES, "default", "payments", &[], external.clone()));
    let expected = ["sni.extsvc.default.payments.443", "ad55bfd9a68e03831.payments.443.default.mes"];
    assert_eq!(lists(&payments), [expected]);

    // What a zone has from the global control plane has its owner there, and the other way round.
    let east = owner(zone("east", true), &["hashed"]);
    let synced = [("kuma.io/origin", "global")];
    assert_eq!(lists(&filled(&east, resource(MZMS, "default", "all", &synced, all))), [[""; 0]]);
    assert_eq!(
        lists(&filled(&east, resource(MES, "default", "payments", &synced, external.clone()))),
        [[""; 0]]
    );
    assert_eq!(lists(&filled(&global, backend(json!([{ "port": 80 }])))), [[""; 0]]);

    let labels = [("kuma.io/origin", "zone"), ("kuma.io/zone", "east")];
    let of_zone = filled(&east, resource(MES, "default", "payments", &labels, external));
    let expected =
        ["ad55bfd9a68e03831.payments.443.default.mes", "a2090e378ffb54824.payments.443.default.mes"];
    assert_eq!(lists(&of_zone), [expected]);
}

#[test]
fn formats_are_performed_in_steps_and_back() {
    let mut service = backend(json!([{ "port": 80 }]));
    for (formats, expected) in [
        (&["hashed"][..], &[BACKEND][..]),
        (&["hashed", "kri"], &[BACKEND, BACKEND_KRI]),
        (&["kri", "hashed"], &[BACKEND_KRI, BACKEND]),
        (&["kri"], &[BACKEND_KRI]),
        (&["hashed"], &[BACKEND]),
    ] {
        let owner = owner(zone("east", false), formats);
        service = owner.refilled(&service).expect("another list");
        assert_eq!(lists(&service), [expected], "{formats:?}");
        assert_eq!(owner.refilled(&service), None, "{formats:?}");
    }
    let federated = owner(zone("east", true), &["kri", "hashed"]);
    service = federated.refilled(&service).expect("another list");
    assert_eq!(lists(&service), [[BACKEND, BACKEND_KRI, BACKEND_EAST]]);
    assert_eq!(federated.refilled(&service), None);
    service = federated.switched(&service).expect("another list");
    assert_eq!(lists(&service), [[BACKEND_KRI, BACKEND_EAST, BACKEND]]);
    let alone = owner(zone("east", false), &["hashed"]);
    assert_eq!(lists(&alone.refilled(&service).expect("another list")), [[BACKEND]]);
}

#[test]
fn clients_dial_a_new_sni_once_zone_proxies_accept_it() {
    let list = |values: &[&str]| values.iter().map(|value| json!({ "value": value })).collect::<Vec<_>>();
    let stored = |values: &[&str]| backend(json!([{ "port": 80, "name": "http", "snis": list(values) }]));
    let kri = "sni.msvc.default.east.backend.http";
    let renamed = "sni.msvc.default.east.backend.web";
    for (formats, before, announced, switched) in [
        // From a zone of Kuma, and from one that stood alone.
        (&["hashed"][..], &[][..], &[BACKEND, BACKEND_EAST][..], &[BACKEND_EAST, BACKEND][..]),
        (&["hashed"], &[BACKEND], &[BACKEND, BACKEND_EAST], &[BACKEND_EAST, BACKEND]),
        (&["hashed"], &[BACKEND_EAST, BACKEND], &[BACKEND_EAST, BACKEND], &[BACKEND_EAST, BACKEND]),
        (&["kri"], &[BACKEND_EAST, BACKEND], &[BACKEND_EAST, kri], &[kri]),
        // The port had another name.
        (&["kri"], &[renamed], &[renamed, kri], &[kri]),
    ] {
        let owner = owner(zone("east", true), formats);
        let before = stored(before);
        let now = owner.refilled(&before).unwrap_or_else(|| before.clone());
        assert_eq!(lists(&now), [announced]);
        // Neither a further write nor a restart puts it first, nor does a file from before take it back.
        for given in [&[][..], announced, switched] {
            let mut written = stored(given);
            owner.fill(&mut written, Some(&now));
            assert_eq!(lists(&written), [announced]);
        }
        let accepted = owner.switched(&now).unwrap_or_else(|| now.clone());
        assert_eq!(lists(&accepted), [switched]);
        assert_eq!(owner.switched(&accepted), None);
        for given in [&[][..], announced] {
            let mut written = stored(given);
            owner.fill(&mut written, Some(&accepted));
            assert_eq!(lists(&written), [switched]);
        }
    }
    // Where no other zone dials, nothing waits.
    for place in [zone("east", false), OwnerLocation::Global] {
        assert!(!owner(place, &["kri"]).is_among_others());
    }
}

#[test]
fn formats_are_named_once_each() {
    let check = |names: &[&str], expected: &str| {
        assert_eq!(Formats::named(names.iter().copied()).expect_err(expected).to_string(), expected);
    };
    check(&[], "at least one format is needed");
    check(&["kri", "sha"], r#""sha" is no format of SNIs"#);
    check(&["kri", "kri"], r#""kri" is listed twice"#);
}

#[test]
fn a_port_whose_kri_is_no_host_name_keeps_the_hash() {
    for (formats, listed) in
        [(&["kri"][..], &[BACKEND_KRI][..]), (&["kri", "hashed"], &[BACKEND_KRI, BACKEND])]
    {
        let owner = owner(zone("east", false), formats);
        let service = filled(&owner, backend(json!([{ "port": 80 }, { "port": 81, "name": "with.dot" }])));
        let dotted = &["a601e0c00295a9fbe.backend.81.default.ms"][..];
        assert_eq!(lists(&service), [listed, dotted], "{formats:?}");
    }
    // A name with a dot, a label that is too long, and a host name that is.
    let kri = owner(zone("east", true), &["kri"]);
    let long = "a".repeat(63);
    let spec = json!({ "ports": [{ "port": 80, "name": long }] });
    let namespaced = [("kuma.io/origin", "zone"), ("kuma.io/zone", &long), ("k8s.kuma.io/namespace", &long)];
    for (name, mesh, labels) in [
        ("redis.kuma-demo", "default", &[][..]),
        (&"a".repeat(64), "default", &[]),
        ("backend", &"a".repeat(64), &[]),
        (&long, &long, &namespaced),
    ] {
        let service = filled(&kri, resource(MS, mesh, name, labels, spec.clone()));
        let list = &lists(&service)[0];
        assert_eq!(list.len(), 2, "{list:?}");
        assert!(list.iter().all(|sni| sni.starts_with('a') && sni.ends_with(".ms")), "{list:?}");
    }
}

#[test]
fn an_update_without_a_list_keeps_it_and_an_authors_own_list_stays() {
    let hashed = owner(zone("east", false), &["hashed"]);
    let kri = owner(zone("east", false), &["kri"]);
    let own = json!([{ "value": "fresh.example" }, { "value": BACKEND }]);
    let stored = backend(json!([{ "port": 80, "snis": own }, { "port": 81 }]));
    for owner in [&hashed, &kri] {
        let mut update = backend(json!([{ "port": 81 }, { "port": 80, "name": "http" }]));
        owner.fill(&mut update, Some(&stored));
        assert_eq!(lists(&update)[1], ["fresh.example", BACKEND]);
        assert_eq!(owner.refilled(&backend(json!([{ "port": 80, "snis": own }]))), None);
    }
    // An old list of the owner's own, from a file say, does not bring back what was replaced. Neither do lists of
    // a port that has another number or name now.
    for old in
        [BACKEND, BACKEND_EAST, "sni.msvc.default.east.backend.web", "a601e0c00295a9fbe.backend.9.default.ms"]
    {
        let mut update = backend(json!([{ "port": 80, "snis": [{ "value": old }] }]));
        kri.fill(&mut update, None);
        assert_eq!(lists(&update), [[BACKEND_KRI]], "{old}");
    }
    // What another service, zone or hash would have is not this owner's.
    for foreign in
        [BACKEND_WEST, "sni.msvc.default.west.backend.80", "a601e0c00295a9fbe.backend.80.default.mzms"]
    {
        let mut update = backend(json!([{ "port": 80, "snis": [{ "value": foreign }] }]));
        kri.fill(&mut update, None);
        assert_eq!(lists(&update), [[foreign]]);
    }
}

#[test]
fn what_peers_compute_is_accepted_behind_what_is_listed() {
    let accepted = |service: &Resource| -> Vec<(String, u32, Option<usize>, bool)> {
        sni::accepted(service).into_iter().map(|it| (it.value, it.port, it.index, it.dialled)).collect()
    };
    let text = str::to_owned;
    // From a zone of Kuma, which writes no list.
    let expected = [(text(BACKEND), 80, None, true), (text(BACKEND_KRI), 80, None, false)];
    assert_eq!(accepted(&backend(json!([{ "port": 80 }]))), expected);
    let listed = backend(json!([{ "port": 80, "snis": [{ "value": BACKEND_EAST }, { "value": BACKEND }] }]));
    let expected = [
        (text(BACKEND_EAST), 80, Some(0), true),
        (text(BACKEND), 80, Some(1), false),
        (text(BACKEND_KRI), 80, None, false),
    ];
    assert_eq!(accepted(&listed), expected);
    let two = backend(json!([{ "port": 80 }, { "port": 81, "name": "a.b" }]));
    let last = sni::accepted(&two).pop().expect("the second port");
    assert_eq!((last.port_index, last.section.as_str(), last.dialled), (1, "a.b", true));
    assert_eq!(sni::accepted(&resource(Kind::Dataplane, "default", "dp", &[], json!({}))), []);
}

#[test]
fn long_names_are_cut_to_host_names() {
    let hashed = owner(OwnerLocation::Global, &["hashed"]);
    let check = |kind: Kind, name: &str, mesh: &str, expected: &str| {
        let ports = json!({ "ports": [{ "port": 80 }], "selector": {} });
        let hashed = match kind {
            MS => owner(zone("east", false), &["hashed"]),
            _ => hashed.clone(),
        };
        let service = filled(&hashed, resource(kind, mesh, name, &[], ports));
        assert_eq!(lists(&service), [[expected]]);
        assert_hostname(expected);
    };
    let a = |count: usize| "a".repeat(count);
    let m = |count: usize| "m".repeat(count);
    check(MS, &a(62), "default", &format!("adb1451cff28057ba.{}.80.default.ms", a(62)));
    check(MS, &a(63), "default", &format!("a11ccd33a27dc8e71.{}x.80.default.ms", a(62)));
    check(MZMS, &a(64), "default", &format!("a65e27f04ccf73294.{}x.80.default.mzms", a(62)));
    check(MZMS, &a(253), "default", &format!("acb12c2e8c0412cfb.{}x.80.default.mzms", a(62)));
    check(MS, "backend", &m(64), &format!("a0f7026e20c53f6c5.backend.80.{}x.ms", m(62)));
    check(MS, "backend", &m(253), &format!("a8691b0139623ea24.backend.80.{}x.ms", m(62)));
    // The cut is behind a hyphen, which no label may end with.
    let hyphen = format!("{}-bcd", a(61));
    check(MZMS, &hyphen, "default", &format!("adb0c4df80db57c3b.{}-x.80.default.mzms", a(61)));
    let hyphen = format!("{}-bcd", m(61));
    check(MS, "backend", &hyphen, &format!("a1c1ccff0af04b8d8.backend.80.{}-x.ms", m(61)));
    check(MS, "redis.kuma-demo", "default", "a64067518fe826e27.redis.kuma-demo.80.default.ms");
}
