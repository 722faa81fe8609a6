use proptest::{prelude::*, sample::select};
use resources::{
    Kind,
    naming::{Kri, KriFields, sni},
};
use serde_json::json;

use super::{LABEL, assert_hostname, resource};

/// `[mesh, zone, namespace, name, section]`
fn kri(short: &str, [mesh, zone, namespace, name, section]: [&str; 5]) -> Kri {
    Kri::from(KriFields {
        short: short.parse().expect(short),
        mesh: mesh.to_owned(),
        zone: zone.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        section: section.to_owned(),
    })
}

#[test]
fn the_sni_of_a_kri_has_a_segment_for_every_field_that_applies() {
    let check = |short: &str, fields: [&str; 5], expected: &str| {
        let kri = kri(short, fields);
        assert_eq!(sni::violations(&kri), [""; 0], "{kri}");
        assert_eq!(sni::from_kri(&kri).as_deref(), Ok(expected));
    };
    check("msvc", ["default", "", "", "backend", "http"], "sni.msvc.default.backend.http");
    check("msvc", ["default", "east", "", "backend", "http"], "sni.msvc.default.east.backend.http");
    check(
        "msvc",
        ["default", "east", "app-ns", "backend", "http"],
        "sni.msvc.default.east.app-ns.backend.http",
    );
    check("extsvc", ["default", "", "", "ext-backend", "9000"], "sni.extsvc.default.ext-backend.9000");
    check("extsvc", ["prod", "west", "", "ext-backend", "9000"], "sni.extsvc.prod.west.ext-backend.9000");
    check(
        "extsvc",
        ["prod", "west", "external-ns", "ext-backend", "9000"],
        "sni.extsvc.prod.west.external-ns.ext-backend.9000",
    );
    check("mzsvc", ["default", "", "", "global-svc", "8080"], "sni.mzsvc.default.global-svc.8080");
    check("msvc", ["default", "", "kuma-system", "backend", "http"], "sni.msvc.default.backend.http");
    check("msvc", ["default", "", "Bad_NS", "backend", "http"], "sni.msvc.default.backend.http");
    for section in ["65535", "123456", "8080x", "http2"] {
        check(
            "msvc",
            ["default", "", "", "backend", section],
            &format!("sni.msvc.default.backend.{section}"),
        );
    }
}

#[test]
fn every_reason_against_an_sni_is_listed() {
    let check = |fields: [&str; 5], expected: &[&str]| {
        let kri = kri("msvc", fields);
        let found = sni::violations(&kri);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (reason, start) in found.iter().zip(expected) {
            assert!(reason.starts_with(start), "{reason}");
        }
        assert!(sni::from_kri(&kri).is_err());
    };
    let empty = "mesh, name and sectionName must be non-empty";
    check(["", "BAD", "", "backend", "http"], &[empty]);
    check(["default", "", "", "", "http"], &[empty]);
    check(["default", "", "", "backend", ""], &[empty]);
    let sixty_three = "a".repeat(63);
    let sixty_four = "a".repeat(64);
    let too_long = |field: &str| {
        format!("{field} \"{sixty_four}\" does not conform to RFC 1123: must be no more than 63 characters")
    };
    check([&sixty_four, "", "", "backend", "http"], &[&too_long("mesh")]);
    check(["default", &sixty_four, "", "backend", "http"], &[&too_long("zone")]);
    check(["default", "east", &sixty_four, "backend", "http"], &[&too_long("namespace")]);
    check(["default", "", "", &sixty_four, "http"], &[&too_long("name")]);
    check(
        ["default", "", "", "foo.bar", &sixty_four],
        &[
            "name \"foo.bar\" does not conform to RFC 1123: must not contain dots",
            "must be no more than 63 characters",
        ],
    );
    check(["default", "", "", "backend", "ht.tp"], &["must not contain dots"]);
    check(["default", "", "", "backend", "rule_0"], &["a lowercase RFC 1123 label must consist of"]);
    check(
        [&sixty_three, &sixty_three, &sixty_three, &sixty_three, "http"],
        &["computed SNI is 269 characters which exceeds the DNS hostname limit (253)"],
    );
}

#[test]
fn types_that_are_no_destination_have_no_sni_and_nothing_against_it() {
    let timeout = kri("mt", ["default", "", "", "a", "b"]);
    assert_eq!(sni::violations(&timeout), [""; 0]);
    assert_eq!(
        sni::from_kri(&timeout).expect_err("no destination").to_string(),
        "MeshTimeout has no SNI: only MeshService, MeshExternalService and MeshMultiZoneService are destinations"
    );
}

#[test]
fn the_number_of_segments_says_which_fields_an_sni_has() {
    let check = |sni: &str, expected: &str| assert_eq!(sni::to_kri(sni).expect(sni).to_string(), expected);
    check("sni.msvc.default.backend.http", "kri_msvc_default___backend_http");
    check("sni.extsvc.prod.west.ext-backend.9000", "kri_extsvc_prod_west__ext-backend_9000");
    check("sni.msvc.default.east.app-ns.backend.http", "kri_msvc_default_east_app-ns_backend_http");
}

#[test]
fn what_is_no_sni_of_a_kri_is_refused() {
    for sni in [
        "",
        "sni",
        "sni.msvc.default.backend",
        "sni.msvc.a.b.c.d.e.f",
        "abc.msvc.default.backend.http",
        "sni.ms.default.backend.http",
        "sni.mt.default.backend.http",
        "sni.msvc..backend.http",
        "sni.msvc.default..backend.http",
        "sni.msvc.default.Backend.http",
    ] {
        assert!(sni::to_kri(sni).is_err(), "{sni}");
    }
}

#[test]
fn the_rest_api_shows_the_sni_of_every_port_sorted_by_port() {
    let check = |kind: Kind,
                 name: &str,
                 labels: &[(&str, &str)],
                 spec: serde_json::Value,
                 expected: &[(u32, &str)]| {
        let found = sni::computed(&resource(kind, "default", name, labels, spec));
        let found: Vec<(u32, &str)> = found.iter().map(|(port, sni)| (*port, sni.as_str())).collect();
        assert_eq!(found, expected);
    };
    check(
        Kind::MeshService,
        "backend",
        &[("kuma.io/zone", "east"), ("k8s.kuma.io/namespace", "demo")],
        json!({ "ports": [{ "port": 8080, "name": "http" }, { "port": 6379 }] }),
        &[
            (6379, "sni.msvc.default.east.demo.backend.6379"),
            (8080, "sni.msvc.default.east.demo.backend.http"),
        ],
    );
    check(
        Kind::MeshExternalService,
        "google",
        &[],
        json!({ "match": { "port": 443 } }),
        &[(443, "sni.extsvc.default.google.443")],
    );
    check(
        Kind::MeshMultiZoneService,
        "agg",
        &[],
        json!({ "ports": [{ "port": 9090, "name": "grpc" }] }),
        &[(9090, "sni.mzsvc.default.agg.grpc")],
    );
    let dotted = json!({ "ports": [{ "port": 80, "name": "a.b" }, { "port": 81 }] });
    check(Kind::MeshService, "backend", &[], dotted, &[(81, "sni.msvc.default.backend.81")]);
    check(Kind::MeshService, "backend", &[], json!({}), &[]);
    check(Kind::Dataplane, "backend", &[], json!({}), &[]);
}

fn any_destination() -> impl Strategy<Value = Kri> {
    // A namespace without a zone is not part of the SNI, so it is not among what reads back.
    let place = prop_oneof![
        Just((String::new(), String::new())),
        LABEL.prop_map(|zone| (zone, String::new())),
        (LABEL, LABEL),
    ];
    (select(vec!["msvc", "extsvc", "mzsvc"]), LABEL, place, LABEL, LABEL)
        .prop_map(|(short, mesh, (zone, namespace), name, section)| {
            kri(short, [&mesh, &zone, &namespace, &name, &section])
        })
        .prop_filter("too long for a host name", |kri| kri.to_string().len() <= 250)
}

proptest! {
    #[test]
    fn every_sni_of_a_kri_is_a_host_name_and_reads_back(kri in any_destination()) {
        let sni = sni::from_kri(&kri).expect("a valid KRI");
        assert_hostname(&sni);
        prop_assert_eq!(sni::to_kri(&sni), Ok(kri));
    }

    #[test]
    fn whatever_passes_validation_is_a_host_name(fields in prop::array::uniform5("[a-zA-Z0-9._-]{0,70}")) {
        let [mesh, zone, namespace, name, section] = &fields;
        if let Ok(sni) = sni::from_kri(&kri("msvc", [mesh, zone, namespace, name, section])) {
            assert_hostname(&sni);
        }
    }
}
