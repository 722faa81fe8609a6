//! Identity of a proxy: its certificate, its clients and the permissions it is judged by say the same.

use std::{collections::BTreeSet, sync::Arc};

use policy::Client;
use resources::{Key, Kind, Resource};
use serde_json::{Value, json};
use topology::{AllMeshes, ClientTls};

use crate::world::resource;

fn dataplane(labels: &[(&str, &str)], networking: Value) -> Resource {
    let mut networking = networking;
    networking["address"] = json!("10.0.0.1");
    testkit::resource::dataplane("dp-1", labels, networking)
}

/// The identities in the certificate.
fn certified(dataplane: &Resource) -> BTreeSet<String> {
    let names = identity::workload::names(dataplane).unwrap_or_default();
    names.into_iter().filter(|name| name.starts_with("spiffe://")).collect()
}

/// The identities that clients of a service accept which consists of the Dataplane.
fn expected(dataplane: &Resource) -> BTreeSet<String> {
    let mtls = json!({ "enabledBackend": "ca", "backends": [{ "name": "ca", "type": "builtin" }] });
    let mesh = resource(Key::new(Kind::Mesh, "", "default"), &[], json!({ "mtls": mtls }));
    let spec = json!({
        "selector": { "dataplaneRef": { "name": "dp-1" } },
        "ports": [{ "port": 80, "targetPort": 80 }]
    });
    let service = resource(Key::new(Kind::MeshService, "default", "s"), &[], spec);
    let mut state = AllMeshes::default();
    let all = [mesh, service, dataplane.clone()].map(|r| (r.key.clone(), Some(Arc::new(r))));
    state.apply(&all);
    let mesh = state.mesh("default").unwrap();
    let mut destinations = mesh.destinations.values();
    let Some(ClientTls::Mesh { spiffe_ids, .. }) = destinations.next().map(|d| &d.tls) else {
        panic!("one destination with TLS: {:?}", mesh.destinations)
    };
    spiffe_ids.iter().cloned().collect()
}

/// The identities that permissions know the Dataplane by.
fn known(dataplane: &Resource) -> BTreeSet<String> {
    Client::of_dataplane(dataplane).spiffe_ids.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn is(dataplane: &Resource, ids: &[&str]) {
    let expect: BTreeSet<String> = ids.iter().map(|&id| id.to_owned()).collect();
    assert_eq!(certified(dataplane), expect, "its certificate");
    assert_eq!(expected(dataplane), expect, "what clients expect");
    assert_eq!(known(dataplane), expect, "what permissions match");
}

#[test]
fn certificates_clients_and_permissions_agree_about_who_a_proxy_is() {
    let inbound = |port: u32, tags: Value| json!({ "port": port, "tags": tags });
    let service = |name: &str| json!({ "kuma.io/service": name, "version": "v1" });
    let workload = [("kuma.io/workload", "batch")];

    let one = json!({ "inbound": [inbound(80, service("web"))] });
    is(&dataplane(&[], one.clone()), &["spiffe://default/web"]);
    is(&dataplane(&workload, one), &["spiffe://default/web"]);
    let several = json!({ "inbound": [inbound(80, service("web")), inbound(81, service("api"))] });
    is(&dataplane(&[], several), &["spiffe://default/api", "spiffe://default/web"]);
    let gateway = json!({ "gateway": { "tags": { "kuma.io/service": "edge" } } });
    is(&dataplane(&[], gateway), &["spiffe://default/edge"]);
    let untagged = json!({ "inbound": [inbound(80, json!({ "version": "v1" }))] });
    is(&dataplane(&workload, untagged.clone()), &["spiffe://default/batch"]);
    let of_the_mesh = dataplane(&[], untagged);
    assert_eq!(certified(&of_the_mesh), BTreeSet::from(["spiffe://default".to_owned()]));
    assert!(expected(&of_the_mesh).is_empty() && known(&of_the_mesh).is_empty(), "it is no service");
}

#[test]
fn permissions_by_tags_match_a_workload_only_by_what_its_certificate_says() {
    let untagged = json!({ "inbound": [{ "port": 80, "tags": { "version": "v1" } }] });
    let batch = dataplane(&[("kuma.io/workload", "batch")], untagged);
    assert_eq!(
        identity::workload::names(&batch).unwrap(),
        ["spiffe://default/batch", "kuma://kuma.io/service/batch"]
    );
    let tags = Client::of_dataplane(&batch).tags;
    assert_eq!(json!(tags), json!({ "kuma.io/service": ["batch"] }), "the version is not in the certificate");
}
