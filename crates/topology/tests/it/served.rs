//! Destinations that a call to an inbound counts for.

use serde_json::json;
use topology::{matching, observed::destination_text};

use crate::fixtures::{calling, dataplane, mesh, resource, service, state};

#[test]
fn an_inbound_serves_the_ports_and_the_tags_that_lead_to_it() {
    let inbounds = json!([
        { "port": 80, "tags": { "kuma.io/service": "web", "version": "v1" } },
        { "port": 81, "name": "admin", "tags": { "kuma.io/service": "web-admin" } },
        { "port": 82, "tags": { "kuma.io/service": "alone" } },
    ]);
    let web = dataplane("web-1", "10.0.0.1", inbounds);
    let ports = json!([{ "port": 8080, "targetPort": 80 }, { "port": 8081, "targetPort": "admin" }]);
    let selector = json!({ "dataplaneRef": { "name": "web-1" } });
    let all =
        resource(resources::Kind::MeshService, "all", &[], json!({ "selector": selector, "ports": ports }));
    let tags = [
        json!({ "kuma.io/service": "web", "version": "v1" }),
        json!({ "kuma.io/service": "web", "version": "v2" }),
    ];
    let state = state([mesh(""), web.clone(), all, service("web"), calling("client", &tags)]);
    let served: Vec<Vec<String>> = matching::inbounds(&web)
        .iter()
        .map(|inbound| state.served_at(&web, inbound).iter().map(destination_text).collect())
        .collect();
    let expect = [
        vec!["kri_msvc_default___all_8080", "kri_msvc_default___web_80", "kuma.io/service=web,version=v1"],
        vec!["kri_msvc_default___all_8081"],
        vec!["kuma.io/service=alone"],
    ];
    assert_eq!(served, expect);
}
