use resources::{
    kinds::dataplane::Dataplane,
    naming::{SpiffeId, SpiffePrefix},
};
use serde_json::json;
use testkit::build::{Builder, dataplane};

fn proxy() -> Builder<Dataplane> {
    dataplane("dp-1").in_mesh("m")
}

#[track_caller]
fn has(proxy: Builder<Dataplane>, expect: &[&str]) {
    let ids = SpiffeId::of_dataplane(&proxy.build());
    assert_eq!(ids.iter().map(SpiffeId::as_str).collect::<Vec<_>>(), expect);
}

#[test]
fn a_dataplane_is_each_of_its_services() {
    let served = ["web", "api", "web"].into_iter().zip(80..);
    let several = served
        .fold(proxy(), |proxy, (service, port)| proxy.inbound(port).service(service).tag("version", "v1"));
    has(several, &["spiffe://m/api", "spiffe://m/web"]);
    let gateway = json!({ "gateway": { "tags": { "kuma.io/service": "edge" } } });
    has(proxy().networking(gateway), &["spiffe://m/edge"]);
}

#[test]
fn a_dataplane_without_a_service_is_its_workload() {
    let workload = || proxy().labels(&[("kuma.io/workload", "batch")]).inbound(80);
    has(workload().tag("version", "v1"), &["spiffe://m/batch"]);
    has(workload().service("web"), &["spiffe://m/web"]);
    has(proxy().labels(&[("kuma.io/workload", "")]).inbound(80), &[]);
    has(proxy().inbound(80).tag("version", "v1"), &[]);
}

#[test]
fn a_text_that_is_an_identity_reads_back_unchanged() {
    for text in ["spiffe://default/web", "spiffe://default.east.mesh.local/ns/demo/sa/web", "spiffe://m"] {
        assert_eq!(text.parse::<SpiffeId>().unwrap().to_string(), text);
    }
    for text in ["", "web", "https://m/web", "spiffe://", "spiffe://m/", "spiffe://m/a//b", "spiffe://M/a"] {
        assert!(text.parse::<SpiffeId>().is_err(), "{text}");
    }
}

#[test]
fn a_prefix_means_the_identities_that_start_with_it() {
    let id: SpiffeId = "spiffe://default.east.mesh.local/workload/web".parse().unwrap();
    for (prefix, expect) in [
        ("spiffe://default.east.mesh.local/", true),
        ("spiffe://default.east.mesh.local/workload/w", true),
        ("spiffe://default.east.mesh.local/workload/w/", false),
        ("spiffe://default/", false),
    ] {
        assert_eq!(prefix.parse::<SpiffePrefix>().unwrap().matches(&id), expect, "{prefix}");
    }
    let of_mesh = SpiffePrefix::of_trust_domain("default");
    assert!(of_mesh.matches(&SpiffeId::of_service("default", "web")));
    assert!(!of_mesh.matches(&SpiffeId::of_service("default-2", "web")), "another mesh");
    assert!(of_mesh.includes(&"spiffe://default/ns/".parse().unwrap()));
    assert!(!of_mesh.includes(&"spiffe://default".parse().unwrap()), "the shorter one means more");
}
