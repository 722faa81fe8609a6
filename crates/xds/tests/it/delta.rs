use std::sync::Arc;

use xds::{
    Action, Encoded, Error, SyncState, Target, Type,
    delta::{MAX_NAMES, Stream},
    message::{DeltaRequest, Node, RpcStatus},
};

use crate::conversation::{delta as check, target};

#[test]
fn a_proxy_that_wants_everything_is_answered_even_when_there_is_nothing() {
    check(
        "> C
         > L +*
         target
         < C 1
         > C #1
         ! acked C 1
         < L 2
         > L #2
         ! acked L 2
         target",
    );
}

#[test]
fn nothing_is_sent_before_there_is_a_target() {
    check(
        "> C
         > E +a
         target C/a@1 E/a@1
         < C 1 a@1
         < E 2 a@1",
    );
}

#[test]
fn listeners_wait_for_clusters_and_for_the_endpoints_of_clusters() {
    check(
        "target C/a@1 E/a@1 L/l@1 R/r@1 S/s@1
         > C
         < C 1 a@1
         > L
         > C #1
         ! acked C 1
         > E +a
         < E 2 a@1
         > E #2
         ! acked E 2
         < L 3 l@1
         > L #3
         ! acked L 3
         > R +r
         < R 4 r@1
         > S +s
         < S 5 s@1",
    );
}

#[test]
fn only_the_difference_to_the_current_target_follows_an_ack() {
    check(
        "target C/a@1 C/b@1
         > C
         < C 1 a@1 b@1
         target C/a@2 C/b@1
         target C/a@3 C/b@1
         target C/a@4 C/b@1 C/c@1
         > C #1
         ! acked C 1
         < C 2 a@4 c@1
         > C #2
         ! acked C 2
         target C/a@4 C/b@1 C/c@1",
    );
}

#[test]
fn a_target_that_changes_back_while_in_flight_is_sent_back() {
    check(
        "target C/a@1
         > C
         < C 1 a@1
         > C #1
         ! acked C 1
         target C/a@2
         < C 2 a@2
         target C/a@1
         > C #2
         ! acked C 2
         < C 3 a@1",
    );
}

#[test]
fn clusters_are_removed_after_the_listeners_and_routes_that_may_use_them() {
    check(
        "target C/a@1 C/b@1 L/l@1 R/r@1
         > C
         < C 1 a@1 b@1
         > C #1
         ! acked C 1
         > L
         < L 2 l@1
         > L #2
         ! acked L 2
         > R +r
         < R 3 r@1
         > R #3
         ! acked R 3
         target C/a@1 R/r@2
         < R 4 r@2
         > R #4
         ! acked R 4
         < L 5 -l
         > L #5
         ! acked L 5
         < C 6 -b
         > C #6
         ! acked C 6",
    );
}

#[test]
fn routes_that_tell_about_listeners_come_after_them_and_go_before_them() {
    check(
        "target L/a@1 R/names@1
         > L
         < L 1 a@1
         > R +names
         > L #1
         ! acked L 1
         < R 2 names@1
         > R #2
         ! acked R 2
         target L/a@1 L/b@1 R/names@2
         < L 3 b@1
         > L #3
         ! acked L 3
         < R 4 names@2
         > R #4
         ! acked R 4
         target L/b@1 R/names@3
         < R 5 names@3
         > R #5
         ! acked R 5
         < L 6 -a",
    );
    // A listener that takes over an address does not wait for the other one to go.
    check(
        "target L/a@1 R/names@1
         > L
         < L 1 a@1
         > L #1
         ! acked L 1
         > R +names
         < R 2 names@1
         > R #2
         ! acked R 2
         target L/b@1 R/names@2
         < L 3 b@1 -a
         > L #3
         ! acked L 3
         < R 4 names@2",
    );
    // What is refused holds nothing up.
    check(
        "target L/a@1 R/names@1
         > L
         < L 1 a@1
         > R +names
         > L #1 error=Error adding/updating listener(s) a: bad
         ! rejected L 1 [a] Error adding/updating listener(s) a: bad
         < R 2 names@1",
    );
}

#[test]
fn a_cluster_replaced_under_a_listener_is_added_first_and_removed_last() {
    check(
        "target C/a@1 L/l@1
         > C
         < C 1 a@1
         > C #1
         ! acked C 1
         > L
         < L 2 l@1
         > L #2
         ! acked L 2
         target C/b@1 L/l@2
         < C 3 b@1
         > C #3
         ! acked C 3
         < L 4 l@2
         > L #4
         ! acked L 4
         < C 5 -a",
    );
}

#[test]
fn listeners_that_come_back_wait_for_a_cluster_whose_removal_is_under_way() {
    check(
        "target C/a@1
         > C
         < C 1 a@1
         > C #1
         ! acked C 1
         > L
         < L 2
         > L #2
         ! acked L 2
         target
         < C 3 -a
         target C/a@1 L/l@1
         > C #3
         ! acked C 3
         < C 4 a@1
         > C #4
         ! acked C 4
         < L 5 l@1",
    );
}

#[test]
fn a_changed_cluster_gets_its_endpoints_again() {
    check(
        "target C/a@1 C/b@1 E/a@1 E/b@1
         > C
         < C 1 a@1 b@1
         > C #1
         ! acked C 1
         > E +a +b
         < E 2 a@1 b@1
         > E #2
         ! acked E 2
         target C/a@2 C/b@1 E/a@1 E/b@1
         < C 3 a@2
         < E 4 a@1
         > E #4
         ! acked E 4
         > C #3
         ! acked C 3",
    );
}

#[test]
fn names_are_sent_when_they_are_subscribed_and_when_they_appear() {
    check(
        "target S/a@1
         > S +a +b
         < S 1 a@1
         > S #1
         ! acked S 1
         target S/a@1 S/b@1 S/c@1
         < S 2 b@1
         > S #2
         ! acked S 2
         > S -a
         target S/a@2 S/b@1
         > S +a
         < S 3 a@2",
    );
}

#[test]
fn a_name_subscribed_again_is_sent_again() {
    check(
        "target E/a@1
         > E +a
         < E 1 a@1
         > E -a
         > E +a
         > E #1
         ! acked E 1
         < E 2 a@1
         > E #2
         ! acked E 2
         > E +a
         < E 3 a@1",
    );
}

#[test]
fn a_cluster_asked_for_by_name_that_does_not_exist_is_answered_as_removed() {
    check(
        "target
         > C +*
         < C 1
         > C +a #1
         ! acked C 1
         < C 2 -a
         > C #2
         ! acked C 2
         target C/a@1
         < C 3 a@1",
    );
}

#[test]
fn missing_endpoints_are_answered_as_removed_when_nothing_is_in_flight() {
    check(
        "target C/a@1
         > C
         < C 1 a@1
         > E +a
         > C #1
         ! acked C 1
         < E 2 -a
         > E #2
         ! acked E 2
         target C/a@1 E/a@1
         < E 3 a@1",
    );
}

#[test]
fn a_proxy_that_comes_back_with_what_it_should_have_gets_no_resource() {
    check(
        "target C/a@1 E/a@1 L/l@1 S/s@1
         > C have=a@1
         < C 1
         > E +a have=a@1
         > L have=l@1
         > S +s have=s@1
         > C #1
         ! acked C 1
         < L 2
         > L #2
         ! acked L 2",
    );
}

#[test]
fn a_proxy_that_comes_back_gets_changes_and_loses_removed_resources() {
    check(
        "target C/a@2 C/b@1 E/a@1 E/b@1 L/l@2
         > C have=a@1 have=b@1 have=gone@1
         < C 1 a@2
         > E +a +b +gone have=a@1 have=b@1 have=gone@1
         < E 2 a@1
         > L have=l@1 have=old@1
         > C #1
         ! acked C 1
         < L 3 l@2 -old
         > L #3
         ! acked L 3
         < C 4 -gone
         > C #4
         ! acked C 4
         > E #2 -gone
         ! acked E 2",
    );
}

#[test]
fn versions_of_another_control_plane_are_replaced() {
    check(
        "target C/a@1
         > C have=a@kuma-7
         < C 1 a@1",
    );
}

#[test]
fn a_stale_nonce_acknowledges_nothing() {
    check(
        "target C/a@1
         > C
         < C 1 a@1
         > C #0
         ! ignored: stale nonce \"0\" for Cluster
         target C/a@2
         > C #1
         ! acked C 1
         < C 2 a@2
         > C #1 error=late
         ! ignored: stale nonce \"1\" for Cluster",
    );
}

#[test]
fn what_is_not_understood_is_ignored_and_a_changed_node_ends_the_stream() {
    check(
        "target C/a@1
         > type.googleapis.com/envoy.service.runtime.v3.Runtime
         ! ignored: unknown resource type \"type.googleapis.com/envoy.service.runtime.v3.Runtime\"
         > C node=default.web
         < C 1 a@1
         > C #1 node=default.other
         ! close: the node id changed from \"default.web\" to \"default.other\" within one stream; open a stream per proxy
         > C
         target C/a@2",
    );
    let mut stream = Stream::new();
    let anonymous = DeltaRequest { type_url: Type::Cluster.url().into(), ..DeltaRequest::default() };
    assert_eq!(stream.on_request(anonymous), [Action::Close(Error::NodeMissing)]);
}

pub fn request(kind: Type) -> DeltaRequest {
    let node = Some(Node { id: "default.web".into(), ..Node::default() });
    DeltaRequest { node, type_url: kind.url().into(), ..DeltaRequest::default() }
}

#[test]
fn too_many_names_end_the_stream() {
    let mut stream = Stream::new();
    let names = |count: usize| (0..count).map(|n| n.to_string()).collect();
    let most = DeltaRequest { resource_names_subscribe: names(MAX_NAMES), ..request(Type::Endpoint) };
    assert!(stream.on_request(most).is_empty());
    let more = DeltaRequest { resource_names_subscribe: names(1), ..request(Type::Endpoint) };
    let error = Error::TooManyNames { kind: Type::Endpoint, count: MAX_NAMES + 1, limit: MAX_NAMES };
    assert_eq!(stream.on_request(more), [Action::Close(error)]);
}

#[test]
fn large_sets_travel_in_chunks_and_each_chunk_has_at_least_one_resource() {
    let mut target = Target::default();
    for (name, size) in [("a", 30), ("b", 30), ("c", 30), ("d", 500), ("e", 1), ("f", 1)] {
        let body = vec![0; size * 1024];
        target.insert(Type::Cluster, Arc::new(Encoded::new(Type::Cluster, name, 1, &body)));
    }
    let mut stream = Stream::new();
    let mut actions = stream.set_target(Arc::new(target));
    actions.extend(stream.on_request(request(Type::Cluster)));
    let mut chunks = Vec::new();
    while let Some(Action::Send(response)) = actions.pop() {
        chunks.push(
            response.decoded().unwrap().iter().map(|resource| resource.name.as_str()).collect::<String>(),
        );
        actions =
            stream.on_request(DeltaRequest { response_nonce: response.nonce, ..request(Type::Cluster) });
    }
    assert_eq!(chunks, ["ab", "c", "d", "ef"]);
    assert_eq!(stream.status()[0].counters.resources, 6);
}

#[test]
fn the_status_tells_what_is_pending_and_what_was_refused() {
    let mut stream = Stream::identified_as("cp-1");
    let states = |stream: &Stream| stream.status().iter().map(|status| status.state()).collect::<Vec<_>>();
    let none = SyncState::NotRequested;
    assert_eq!(states(&stream), [none; 5]);
    stream.set_target(target("C/a@1 C/b@1"));
    let actions = stream.on_request(request(Type::Cluster));
    let Some(Action::Send(response)) = actions.first() else { panic!("{actions:?}") };
    assert_eq!(response.control_plane.as_ref().unwrap().identifier, "cp-1");
    assert_eq!(states(&stream), [SyncState::Pending, none, none, none, none]);
    let error_detail = Some(RpcStatus { code: 13, message: "cluster(s) b: bad".into() });
    let nack = DeltaRequest { response_nonce: "1".into(), error_detail, ..request(Type::Cluster) };
    stream.on_request(nack);
    assert_eq!(stream.status()[0].pending, 1);
    stream.on_request(DeltaRequest { response_nonce: "2".into(), ..request(Type::Cluster) });
    let status = stream.status().remove(0);
    assert_eq!(status.state(), SyncState::Rejected);
    assert_eq!((&*status.rejected[0].name, status.rejected[0].version), ("b", 1));
    assert_eq!(status.rejected[0].message, "cluster(s) b: bad");
    assert_eq!((status.counters.sent, status.counters.acked, status.counters.rejected), (2, 1, 1));
    stream.set_target(target("C/a@1"));
    stream.on_request(DeltaRequest { response_nonce: "3".into(), ..request(Type::Cluster) });
    assert_eq!(states(&stream), [SyncState::InSync, none, none, none, none]);
}
