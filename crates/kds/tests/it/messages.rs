//! The messages of the two services, against bytes made by hand from Kuma's field numbers.

use kds::wire::{
    AdminOutputFormat, Any, ClustersRequest, ClustersResponse, ClustersResult, ControlPlane,
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, KUMA_RESOURCE, Node, Resource, StatsRequest,
    StatsResponse, StatsResult, Status, XdsConfigRequest, XdsConfigResponse, XdsConfigResult,
    ZoneHealthCheckRequest, ZoneHealthCheckResponse, service,
};
use prost::Message;

use crate::bytes::Bytes;

/// Asserts the bytes of a message, and that it is read from them.
#[track_caller]
fn check<M: Message + Default + PartialEq + std::fmt::Debug>(message: &M, bytes: Bytes) {
    let bytes = bytes.done();
    assert_eq!(message.encode_to_vec(), bytes);
    assert_eq!(M::decode(&*bytes).unwrap(), *message);
}

#[test]
fn a_subscription_names_the_kind_the_zone_and_everything() {
    let request = DeltaDiscoveryRequest {
        node: Some(Node { id: "east".into(), ..Node::default() }),
        type_url: "MeshTimeout".into(),
        resource_names_subscribe: vec!["*".into()],
        ..DeltaDiscoveryRequest::default()
    };
    let node = Bytes::new().text(1, "east");
    check(&request, Bytes::new().message(1, node).text(2, "MeshTimeout").text(3, "*"));
}

#[test]
fn an_acknowledgement_repeats_the_nonce_and_a_rejection_says_why() {
    let request = DeltaDiscoveryRequest {
        type_url: "Mesh".into(),
        response_nonce: "5".into(),
        error_detail: Some(Status { code: 3, message: "no".into() }),
        ..DeltaDiscoveryRequest::default()
    };
    let why = Bytes::new().varint(1, 3).text(2, "no");
    check(&request, Bytes::new().text(2, "Mesh").text(6, "5").message(7, why));
}

#[test]
fn a_response_carries_resources_and_names_of_removed_ones() {
    let resource = Resource {
        name: "a.default".into(),
        version: "1".into(),
        resource: Some(Any { type_url: KUMA_RESOURCE.into(), value: "x".into() }),
    };
    let response = DeltaDiscoveryResponse {
        resources: vec![resource.encode_to_vec().into()],
        type_url: "MeshTimeout".into(),
        nonce: "7".into(),
        removed_resources: vec!["b.default".into()],
        control_plane: Some(ControlPlane { identifier: "global".into() }),
        ..DeltaDiscoveryResponse::default()
    };
    let any = Bytes::new().text(1, "type.googleapis.com/kuma.mesh.v1alpha1.KumaResource").text(2, "x");
    let resource = Bytes::new().text(1, "1").message(2, any).text(3, "a.default");
    let control_plane = Bytes::new().text(1, "global");
    let bytes = Bytes::new().message(2, resource).text(4, "MeshTimeout").text(5, "7").text(6, "b.default");
    check(&response, bytes.message(7, control_plane));
}

#[test]
fn questions_about_proxies_and_their_answers_have_the_numbers_of_kuma() {
    let proxy = || Bytes::new().text(1, "id").text(2, "Dataplane").text(3, "web").text(4, "default");
    let [id, kind, name, mesh] = ["id", "Dataplane", "web", "default"].map(str::to_owned);
    let config = XdsConfigRequest {
        request_id: id.clone(),
        resource_type: kind.clone(),
        resource_name: name.clone(),
        resource_mesh: mesh.clone(),
        include_eds: true,
        view: String::new(),
    };
    check(&config, proxy().varint(5, 1));
    check(&XdsConfigRequest { view: "{}".to_owned(), ..config }, proxy().varint(5, 1).text(50_001, "{}"));
    let stats = StatsRequest {
        request_id: id.clone(),
        resource_type: kind.clone(),
        resource_name: name.clone(),
        resource_mesh: mesh.clone(),
        format: AdminOutputFormat::Json.into(),
        used_only: true,
        sni_usage: false,
    };
    check(&stats, proxy().varint(5, 1).varint(6, 1));
    let clusters = ClustersRequest {
        request_id: id.clone(),
        resource_type: kind,
        resource_name: name,
        resource_mesh: mesh,
        format: AdminOutputFormat::Text.into(),
    };
    check(&clusters, proxy());

    let answer = |number, text| Bytes::new().text(1, "id").text(number, text);
    let request_id = || id.clone();
    let config = |result| XdsConfigResponse { request_id: request_id(), result: Some(result) };
    check(&config(XdsConfigResult::Config("{}".into())), answer(3, "{}"));
    check(&config(XdsConfigResult::Error("gone".into())), answer(2, "gone"));
    let stats = |result| StatsResponse { request_id: request_id(), result: Some(result) };
    check(&stats(StatsResult::Stats("a: 1".into())), answer(3, "a: 1"));
    check(&stats(StatsResult::Error("gone".into())), answer(2, "gone"));
    let clusters = |result| ClustersResponse { request_id: request_id(), result: Some(result) };
    check(&clusters(ClustersResult::Clusters("c".into())), answer(3, "c"));
    check(&clusters(ClustersResult::Error("gone".into())), answer(2, "gone"));
}

#[test]
fn a_sign_of_life_is_answered_with_the_time_until_the_next() {
    check(&ZoneHealthCheckRequest {}, Bytes::new());
    let interval = prost_types::Duration { seconds: 300, nanos: 0 };
    let response = ZoneHealthCheckResponse { interval: Some(interval) };
    check(&response, Bytes::new().message(1, Bytes::new().varint(1, 300)));
}

#[test]
fn paths_begin_with_their_service() {
    for (service, paths) in [
        (
            "kuma.mesh.v1alpha1.KDSSyncService",
            &[service::GLOBAL_TO_ZONE_SYNC, service::ZONE_TO_GLOBAL_SYNC][..],
        ),
        (
            service::GLOBAL,
            &[
                service::STREAM_XDS_CONFIGS,
                service::STREAM_STATS,
                service::STREAM_CLUSTERS,
                service::HEALTH_CHECK,
            ],
        ),
    ] {
        for path in paths {
            assert!(path.starts_with(&format!("/{service}/")), "{path}");
        }
    }
}
