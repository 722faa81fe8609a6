use proptest::{prelude::*, sample::select};
use resources::{
    Kind,
    naming::{Kri, KriFields, ShortName},
};
use serde_json::json;

use super::{LABEL, resource};

fn round_trips(text: &str) -> Kri {
    let kri: Kri = text.parse().expect(text);
    assert_eq!(kri.to_string(), text);
    kri
}

#[test]
fn every_short_name_leads_to_its_type_and_back() {
    for &kind in Kind::ALL {
        let short = ShortName::of_kind(kind);
        assert_eq!(short.map(ShortName::as_str), kind.descriptor().short, "{kind}");
        assert_eq!(short.and_then(ShortName::kind), short.map(|_| kind), "{kind}");
    }
    assert_eq!(ShortName::all().count(), 31);
    for short in ShortName::all() {
        assert_eq!(short.as_str().parse::<ShortName>().unwrap(), short);
        assert_eq!(ShortName::of_type(short.type_name()), Some(short));
        assert_eq!(short.kind(), Kind::by_name(short.type_name()), "{short}");
    }
}

#[test]
fn no_two_types_share_a_short_name() {
    let shorts: std::collections::BTreeSet<_> = ShortName::all().collect();
    assert_eq!(shorts.len(), ShortName::all().count());
}

#[test]
fn a_synchronised_dataplane_keeps_its_name_zone_and_namespace() {
    let dataplane = resource(
        Kind::Dataplane,
        "kuma-runner",
        "grpc-service-84c8b47975-kg5xx_4455fx6cb5fd2494.kuma-system",
        &[
            ("kuma.io/zone", "east"),
            ("k8s.kuma.io/namespace", "kuma-runner-ns"),
            ("kuma.io/display-name", "grpc-service-84c8b47975-kg5xx"),
        ],
        json!({}),
    );
    let expected = "kri_dp_kuma-runner_east_kuma-runner-ns_grpc-service-84c8b47975-kg5xx_";
    assert_eq!(Kri::of(&dataplane, "").expect("a KRI").to_string(), expected);
    assert_eq!(dataplane.kri("8080").expect("a KRI").to_string(), format!("{expected}8080"));
}

#[test]
fn an_overview_has_the_short_name_of_what_it_shows() {
    for (overview, short) in
        [("DataplaneOverview", "dp"), ("ZoneOverview", "z"), ("ZoneIngressOverview", "zi")]
    {
        assert_eq!(ShortName::of_type(overview).map(ShortName::as_str), Some(short));
    }
    assert_eq!(ShortName::of_type("DataplaneInsight"), None);
    assert_eq!(ShortName::of_type("Overview"), None);
}

#[test]
fn kinds_without_short_name_have_no_kri() {
    assert_eq!(Kri::of(&resource(Kind::Secret, "default", "a", &[], json!({})), ""), None);
    assert_eq!(Kri::of(&resource(Kind::VirtualOutbound, "default", "a", &[], json!({})), ""), None);
}

#[test]
fn global_kinds_have_an_empty_mesh() {
    let zone = resource(Kind::Zone, "", "east", &[], json!({}));
    assert_eq!(Kri::of(&zone, "").expect("a KRI").to_string(), "kri_z____east_");
}

#[test]
fn kris_of_the_documents_read_back() {
    let timeout = round_trips("kri_mt_mesh-1__kuma-system_global-timeouts_");
    assert_eq!((timeout.kind(), timeout.zone.as_str()), (Some(Kind::MeshTimeout), ""));
    assert_eq!((timeout.namespace.as_str(), timeout.name.as_str()), ("kuma-system", "global-timeouts"));
    assert_eq!(round_trips("kri_msvc_default___backend_80").section, "80");
    for text in [
        "kri_dp_mesh-1_us-east-2_kuma-demo_backend-app_8080",
        "kri_msvc_mesh-1_us-east-2_kuma-demo_backend_httpport",
        "kri_mzsvc_mesh-1__kuma-system_backend-app_8080",
        "kri_mhttpr_mesh-1_us-east-2_kuma-demo_route-1_",
        "kri_extsvc_mesh-1__kuma-system_es1_",
        "kri_dp_default_test-zone__dp-1_main-port",
        "kri_extsvc_default___mes-1_9090",
        "kri_msvc_default_test-zone__test-server-1_secondary-port",
        "kri_mzsvc_default___multizone-test-server_80",
    ] {
        round_trips(text);
    }
}

#[test]
fn a_section_may_contain_underscores() {
    let route = round_trips("kri_mhttpr_default___test-origin_rule_0");
    assert_eq!(route.section, "rule_0");
    assert_eq!(route.without_section().to_string(), "kri_mhttpr_default___test-origin_");
}

#[test]
fn a_type_that_is_not_served_still_has_a_name() {
    let gateway = round_trips("kri_mgw_default___edge_");
    assert_eq!((gateway.kind(), gateway.type_name()), (None, "MeshGateway"));
}

#[test]
fn what_is_no_kri_is_refused_with_the_reason() {
    let check = |text: &str, expected: &str| {
        assert_eq!(text.parse::<Kri>().expect_err(text).to_string(), expected);
    };
    check("", r#"invalid identifier string: """#);
    check("kri_mt_default", r#"invalid identifier string: "kri_mt_default""#);
    check("kri_mt_a_b_c_d", r#"invalid identifier string: "kri_mt_a_b_c_d""#);
    check("xri_mt_a_b_c_d_e", r#"identifier must start with 'kri': "xri_mt_a_b_c_d_e""#);
    check("kri_secret_a_b_c_d_e", r#"unknown short name of resource type: "secret""#);
}

#[test]
fn a_kri_is_a_string_in_json() {
    let kri: Kri = serde_json::from_str(r#""kri_msvc_default_east__backend_http""#).expect("a KRI");
    assert_eq!(serde_json::to_value(&kri).expect("JSON"), json!("kri_msvc_default_east__backend_http"));
    assert!(serde_json::from_str::<Kri>(r#""backend""#).is_err());
}

pub fn any_kri() -> impl Strategy<Value = Kri> {
    let field = || prop_oneof![Just(String::new()), LABEL];
    let section = prop_oneof![Just(String::new()), LABEL, "rule_[0-9]{1,3}", "[a-z0-9_.-]{1,20}"];
    let short = select(ShortName::all().collect::<Vec<_>>());
    (short, field(), field(), field(), "[a-z0-9.-]{1,253}", section).prop_map(
        |(short, mesh, zone, namespace, name, section)| {
            Kri::from(KriFields { short, mesh, zone, namespace, name, section })
        },
    )
}

proptest! {
    #[test]
    fn every_kri_reads_back(kri in any_kri()) {
        prop_assert_eq!(kri.to_string().parse::<Kri>(), Ok(kri));
    }
}
