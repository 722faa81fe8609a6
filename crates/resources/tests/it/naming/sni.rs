use std::collections::{BTreeMap, BTreeSet};

use proptest::{prelude::*, sample::select};
use resources::{
    Kind,
    naming::{
        kds,
        sni::{self, DecodedSni},
    },
};
use serde_json::json;

use super::{LABEL, assert_hostname, map, resource};

const MS: Kind = Kind::MeshService;
const MES: Kind = Kind::MeshExternalService;
const MZMS: Kind = Kind::MeshMultiZoneService;

fn hashed(name: &str, mesh: &str, kind: Kind, port: u32, data: &[(&str, &str)]) -> String {
    sni::hashed(name, mesh, kind, port, &map(data)).expect("a destination")
}

#[test]
fn hashed_snis_are_those_other_control_planes_compute() {
    for (name, mesh, kind, port, data, expected) in [
        ("backend", "demo", MS, 8080, &[][..], "ae10a8071b8a8eeb8.backend.8080.demo.ms"),
        ("backend", "demo", MS, 8080, &[("x", "a")], "a333a125865a97632.backend.8080.demo.ms"),
        ("backend", "demo", MZMS, 8080, &[], "ae10a8071b8a8eeb8.backend.8080.demo.mzms"),
        ("backend", "default", MS, 80, &[], "a601e0c00295a9fbe.backend.80.default.ms"),
        ("backend2", "default", MS, 80, &[], "aec60634adf0f45d6.backend2.80.default.ms"),
        ("backend", "default", MZMS, 80, &[], "a601e0c00295a9fbe.backend.80.default.mzms"),
        ("multi-backend", "default", MZMS, 80, &[], "a6844c35bc637ba96.multi-backend.80.default.mzms"),
        ("backend-second", "default", MS, 80, &[], "acf231f64f40a7325.backend-second.80.default.ms"),
        ("example", "default", MES, 9090, &[], "afce62f771ed74b78.example.9090.default.mes"),
        ("example2", "default", MES, 9090, &[], "a0ac70962fd61fdc0.example2.9090.default.mes"),
        (
            "meshexternalservice-1",
            "mesh-1",
            MES,
            9090,
            &[],
            "a45e197ed7825551b.meshexternalservice-1.9090.mesh-1.mes",
        ),
        ("external", "mesh-1", MES, 9000, &[], "ad098e6a3e7e807e1.external.9000.mesh-1.mes"),
        ("demo-client", "envoyconfig", MS, 3000, &[], "a65abe81bca1750d1.demo-client.3000.envoyconfig.ms"),
        ("test-server", "envoyconfig", MS, 80, &[], "a029781856823048e.test-server.80.envoyconfig.ms"),
        (
            "echo-service",
            "envoyconfig-builtingateway",
            MS,
            80,
            &[],
            "aecb4981e52fda985.echo-service.80.envoyconfig-builtingateway.ms",
        ),
        ("redis.kuma-demo", "default", MS, 80, &[], "a64067518fe826e27.redis.kuma-demo.80.default.ms"),
        ("google", "default", MES, 0, &[], "abaf3b877e633c811.google.0.default.mes"),
        ("backend", "demo", MS, 1234, &[("version", "v2")], "a794b2457a7678c3f.backend.1234.demo.ms"),
        (
            "backend",
            "demo",
            MS,
            8080,
            &[("version", "v2"), ("env", "prod")],
            "afc398f1f43430236.backend.8080.demo.ms",
        ),
    ] {
        assert_eq!(hashed(name, mesh, kind, port, data), expected);
    }
}

#[test]
fn names_of_63_characters_or_more_are_cut_to_62_and_an_x() {
    let a = "a".repeat(62);
    let b = "b".repeat(62);
    let sni = hashed(&format!("{a}-qwe"), &format!("{b}-qwe"), MS, 8080, &[("x", "a")]);
    assert_eq!(sni, format!("a5b91d8a08567bf09.{a}x.8080.{b}x.ms"));
    let sni = hashed(&format!("{a}a"), "default", MS, 80, &[]);
    assert_eq!(sni, format!("a11ccd33a27dc8e71.{a}x.80.default.ms"));
    assert_eq!(hashed(&a, "default", MS, 80, &[]), format!("adb1451cff28057ba.{a}.80.default.ms"));
}

#[test]
fn the_vectors_of_the_reference_hold() {
    let page = include_str!("../../../../../docs/reference/sni.md");
    let (_, vectors) = page.split_once("## Vectors").expect("vectors");
    let mut checked = 0;
    for row in vectors.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let [_, name, mesh, kind, port, data, expected, _] = cells[..] else { panic!("{row}") };
        let kind = Kind::ALL.iter().find(|known| known.name() == kind).expect(row);
        let data: Vec<(&str, &str)> = data.split_once('=').into_iter().collect();
        assert_eq!(hashed(name, mesh, *kind, port.parse().expect(row), &data), expected);
        assert_hostname(expected);
        checked += 1;
    }
    assert!(checked >= 9, "{checked}");
}

#[test]
fn the_hash_multiplies_after_it_mixes() {
    // FNV-1 does it the other way round and would give this.
    assert!(!hashed("backend", "demo", MS, 8080, &[]).starts_with("abf601690766ff02e"));
}

#[test]
fn only_destinations_have_a_hashed_sni() {
    for &kind in Kind::ALL {
        let is_destination = [MS, MES, MZMS].contains(&kind);
        let sni = sni::hashed("a", "default", kind, 80, &BTreeMap::new());
        assert_eq!(sni.is_ok(), is_destination, "{kind}");
    }
    assert_eq!(
        sni::hashed("a", "", Kind::Mesh, 80, &BTreeMap::new()).expect_err("no destination").to_string(),
        "Mesh has no SNI: only MeshService, MeshExternalService and MeshMultiZoneService are destinations"
    );
}

#[test]
fn a_service_has_the_same_sni_name_wherever_it_is_synchronised_to() {
    let check = |origin: Option<&str>, system_namespace: &str, namespace: &str, expected: &str| {
        let mut labels = vec![("kuma.io/display-name", "shown"), ("k8s.kuma.io/namespace", namespace)];
        labels.extend(origin.map(|origin| ("kuma.io/origin", origin)));
        for kind in [MS, MES, MZMS] {
            let service = resource(kind, "default", "meta", &labels, json!({}));
            let expected = if kind == MS { expected } else { "shown" };
            assert_eq!(sni::sni_name(&service, system_namespace), expected, "{kind} {labels:?}");
        }
    };
    check(Some("global"), "", "", "shown");
    check(Some("global"), "kuma-system", "", "shown");
    check(Some("global"), "", "ns", "shown.ns");
    check(Some("global"), "kuma-system", "ns", "shown.ns");
    check(Some("global"), "kuma-system", "kuma-system", "shown");
    check(Some("zone"), "", "ns", "meta.ns");
    check(Some("zone"), "", "", "meta");
    check(Some("zone"), "kuma-system", "ns", "meta");
    check(None, "", "ns", "meta");
    let labels = [("kuma.io/origin", "zone"), ("k8s.kuma.io/namespace", "ns")];
    assert_eq!(sni::sni_name(&resource(MS, "default", "meta.ns", &labels, json!({})), ""), "meta.ns");
    check(None, "kuma-system", "ns", "meta");
    let unlabelled = resource(MES, "default", "meta", &[], json!({}));
    assert_eq!(sni::sni_name(&unlabelled, ""), "meta");
}

#[test]
fn tags_are_written_sorted_behind_the_service() {
    let check = |tags: &[(&str, &str)], expected: &str| {
        assert_eq!(sni::from_tags(&map(tags)), expected);
        assert_eq!(sni::to_tags(expected), Ok(map(tags)));
    };
    check(
        &[
            ("kuma.io/service", "backend"),
            ("version", "v1"),
            ("env", "prod"),
            ("region", "eu"),
            ("app", "backend-app"),
        ],
        "backend{app=backend-app,env=prod,region=eu,version=v1}",
    );
    check(&[("kuma.io/service", "backend")], "backend");
    check(&[("kuma.io/service", "backend"), ("mesh", "default")], "backend{mesh=default}");
}

#[test]
fn broken_tags_are_refused_with_the_reason() {
    let check =
        |sni: &str, expected: &str| assert_eq!(sni::to_tags(sni).expect_err(sni).to_string(), expected);
    let pairs =
        "invalid format of tags, pairs should be separated by , and key should be separated from value by =";
    check("backend{", pairs);
    check("backend{}", pairs);
    check("backend{a}", pairs);
    check("backend{a=b=c}", pairs);
    check("backend{a=b,}", pairs);
    check("backend{mesh=default{mesh", "cannot parse tags from sni: backend{mesh=default{mesh");
}

#[test]
fn an_sni_is_decoded_by_its_generation() {
    let DecodedSni::Kri(kri) = sni::decode("sni.msvc.default.east.backend.http") else { panic!("a KRI") };
    assert_eq!(kri.to_string(), "kri_msvc_default_east__backend_http");

    let DecodedSni::Hashed(read) = sni::decode("a64067518fe826e27.redis.kuma-demo.80.default.ms") else {
        panic!("hashed")
    };
    assert_eq!((read.name.as_str(), read.port, read.mesh.as_str()), ("redis.kuma-demo", 80, "default"));
    assert_eq!((read.kind, read.hash), (MS, 0x6406_7518_fe82_6e27));
    assert!(read.hash_matches && !read.name_trimmed && !read.mesh_trimmed);

    let DecodedSni::Hashed(subset) = sni::decode("a333a125865a97632.backend.8080.demo.ms") else {
        panic!("hashed")
    };
    assert!(!subset.hash_matches, "the hash of a subset is not that of the service");

    let long = hashed(&"a".repeat(70), "default", MZMS, 80, &[]);
    let DecodedSni::Hashed(trimmed) = sni::decode(&long) else { panic!("hashed") };
    assert!(trimmed.name_trimmed && !trimmed.mesh_trimmed && !trimmed.hash_matches);
    assert_eq!(trimmed.kind, MZMS);

    let tags = map(&[("kuma.io/service", "backend"), ("mesh", "default")]);
    assert_eq!(sni::decode("backend{mesh=default}"), DecodedSni::Tags(tags));
    assert_eq!(sni::decode("ae10.a.b"), DecodedSni::Tags(map(&[("kuma.io/service", "ae10.a.b")])));
}

#[test]
fn what_only_looks_like_an_sni_is_decoded_to_the_reason() {
    let check = |sni: &str, expected: &str| match sni::decode(sni) {
        DecodedSni::Invalid(reason) => assert!(reason.contains(expected), "{reason}"),
        other => panic!("{sni}: {other:?}"),
    };
    check("", "must not be empty");
    check("sni.msvc.default", "expected 5, 6 or 7 segments, found 3");
    check("sni.mt.default.a.b", "MeshTimeout has no SNI");
    check("backend{", "invalid format of tags");
}

#[test]
fn synchronised_names_are_those_other_control_planes_compute() {
    let check = |mesh: &str, name: &str, zone: Option<&str>, namespace: Option<&str>, expected: &str| {
        assert_eq!(kds::hashed_name(mesh, name, zone, namespace), expected);
    };
    check("", "foo", None, None, "foo-zxw6c95d42zfz9cc");
    check("default", "default-timeout-global", None, None, "default-timeout-global-54dbd4c66zwbcf9c");
    check("default", "redis-zone-1", Some("zone-1"), None, "redis-zone-1-2v6wfvvcvbc9f55d");
    check("default", "redis-zone-1", Some("zone-1"), Some(""), "redis-zone-1-2v6wfvvcvbc9f55d");
    let long = kds::hashed_name("default", &"a".repeat(253), Some("east"), Some("ns"));
    assert_eq!((long.len(), &long[..237]), (253, format!("{}-", "a".repeat(236)).as_str()));
    assert_ne!(
        kds::hashed_name("default", "a", Some("east"), None),
        kds::hashed_name("default", "a", Some("west"), None)
    );
}

/// A small generator with a fixed seed, so that a failure can be repeated.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[test]
fn a_hundred_thousand_services_have_different_hashed_snis() {
    let mut random = SplitMix(7);
    let mut inputs = BTreeSet::new();
    let mut snis = BTreeSet::new();
    while inputs.len() < 100_000 {
        // Names that differ only behind the cut, short names, and subsets, all mixed.
        let tail = random.next();
        let name = match tail % 3 {
            0 => format!("{}-{tail:x}", "long".repeat(16)),
            1 => format!("s{:x}", tail % 4096),
            _ => "backend".to_owned(),
        };
        let mesh = format!("mesh-{}", random.next() % 50);
        let version = format!("{:x}", random.next() % 100_000);
        if inputs.insert((name.clone(), mesh.clone(), version.clone())) {
            snis.insert(hashed(&name, &mesh, MS, 80, &[("version", &version)]));
        }
    }
    assert_eq!(snis.len(), inputs.len());
}

fn any_tags() -> impl Strategy<Value = BTreeMap<String, String>> {
    let text = "[A-Za-z0-9._/-]{1,20}";
    (proptest::collection::btree_map(text, "[A-Za-z0-9._-]{0,20}", 0..5), text).prop_map(
        |(mut tags, service)| {
            tags.insert("kuma.io/service".to_owned(), service);
            tags
        },
    )
}

/// `name`, or `name.namespace` and longer, as stores on Kubernetes name resources.
fn any_service_name() -> impl Strategy<Value = String> {
    proptest::collection::vec(LABEL, 1..4).prop_map(|labels| labels.join("."))
}

proptest! {
    #[test]
    fn every_hashed_sni_is_a_host_name_and_can_be_decoded(
        name in any_service_name(),
        mesh in LABEL,
        port in 0..=65535_u32,
        kind in select(vec![MS, MES, MZMS]),
        data in proptest::collection::btree_map(".{0,10}", ".{0,10}", 0..3),
    ) {
        let sni = sni::hashed(&name, &mesh, kind, port, &data).expect("a destination");
        assert_hostname(&sni);
        let DecodedSni::Hashed(read) = sni::decode(&sni) else { panic!("{sni} is not decoded as hashed") };
        prop_assert_eq!((read.kind, read.port), (kind, port));
        prop_assert_eq!(read.name_trimmed, name.len() > 62);
        prop_assert_eq!(read.mesh_trimmed, mesh.len() > 62);
        if !read.name_trimmed && !read.mesh_trimmed {
            prop_assert_eq!((read.name, read.mesh), (name, mesh));
            prop_assert_eq!(read.hash_matches, data.is_empty());
        }
    }

    #[test]
    fn every_set_of_tags_reads_back(tags in any_tags()) {
        prop_assert_eq!(sni::to_tags(&sni::from_tags(&tags)), Ok(tags));
    }

    #[test]
    fn every_synchronised_name_fits_a_kubernetes_name(mesh in LABEL, name in "[a-z0-9][a-z0-9.-]{0,300}") {
        let synchronised = kds::hashed_name(&mesh, &name, None, None);
        prop_assert!(synchronised.len() <= 253);
        prop_assert!(synchronised.ends_with(|c: char| c.is_ascii_alphanumeric()));
    }
}
