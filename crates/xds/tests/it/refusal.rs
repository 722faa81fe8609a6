//! Rejections by a proxy: the resources to blame, and those held back.

use xds::{
    Action, Status, Type,
    delta::Stream,
    message::{DeltaRequest, Node, Request, RpcStatus},
};

use crate::{
    conversation::{delta as check, target},
    delta::request,
};

#[test]
fn a_rejected_resource_is_found_by_name_and_not_resent_until_changed() {
    check(
        "target C/a@1 C/b@1 C/c@1
         > C
         < C 1 a@1 b@1 c@1
         > C #1 error=Error adding/updating cluster(s) b: bad timeout
         ! rejected C 1 [b] Error adding/updating cluster(s) b: bad timeout
         < C 2 a@1 c@1
         > C #2
         ! acked C 2
         target C/a@2 C/b@1 C/c@1
         < C 3 a@2
         > C #3
         ! acked C 3
         target C/a@2 C/b@2 C/c@1
         < C 4 b@2
         > C #4
         ! acked C 4
         target C/a@2 C/b@1 C/c@1
         target C/a@2 C/c@1
         < C 5 -b",
    );
}

#[test]
fn a_culprit_without_a_name_is_found_by_halving() {
    check(
        "target C/a@1 C/b@1 C/c@1 C/d@1
         > C
         < C 1 a@1 b@1 c@1 d@1
         > C #1 error=malformed
         ! rejected C 1 [] malformed
         < C 2 a@1 b@1
         target C/a@1 C/b@1 C/c@1 C/d@1 C/e@1
         > C #2
         ! acked C 2
         < C 3 c@1 d@1
         > C #3 error=malformed
         ! rejected C 3 [] malformed
         < C 4 c@1
         > C #4 error=malformed
         ! rejected C 4 [c] malformed
         < C 5 d@1
         > C #5
         ! acked C 5
         < C 6 e@1
         > C #6
         ! acked C 6",
    );
}

#[test]
fn a_refused_cluster_does_not_hold_listeners() {
    check(
        "target C/a@1 E/a@1 L/l@1
         > C
         < C 1 a@1
         > L
         > C #1 error=bad
         ! rejected C 1 [a] bad
         < L 2 l@1
         > L #2 error=address in use
         ! rejected L 2 [l] address in use
         retry
         < C 3 a@1
         > C #3
         ! acked C 3
         > E +a
         < E 4 a@1
         > E #4
         ! acked E 4
         < L 5 l@1",
    );
}

#[test]
fn refused_removals_are_not_repeated() {
    check(
        "target C/a@1
         > C
         < C 1 a@1
         > C #1
         ! acked C 1
         target
         < C 2 -a
         > C #2 error=no
         ! rejected C 2 [] no
         target C/b@1
         < C 3 b@1",
    );
}

#[test]
fn what_a_proxy_quotes_is_neither_told_nor_to_blame() {
    let mut stream = Stream::identified_as("cp-1");
    stream.set_target(target("C/a@1 C/b@1"));
    stream.on_request(request(Type::Cluster));
    let message = "cluster(s) b: goo.gle/debugstr  \ntls {\n  name: \"a\"\n  key: \"KEY\"\n}\n: bad".into();
    let error_detail = Some(RpcStatus { code: 13, message });
    let nack = DeltaRequest { response_nonce: "1".into(), error_detail, ..request(Type::Cluster) };
    let actions = stream.on_request(nack);
    let Some(Action::Rejected { names, message, .. }) = actions.first() else { panic!("{actions:?}") };
    assert_eq!((names.join(" ").as_str(), message.as_str()), ("b", "cluster(s) b: bad"));
    stream.on_request(DeltaRequest { response_nonce: "2".into(), ..request(Type::Cluster) });
    let refused: Vec<_> = stream.status().remove(0).rejected;
    assert_eq!(
        refused.iter().map(|refused| refused.message.as_str()).collect::<Vec<_>>(),
        ["cluster(s) b: bad"]
    );
}

/// Maps the rejected names to the existence of another version that the proxy uses.
fn goes_on(statuses: Vec<Status>) -> Vec<(String, bool)> {
    let rejected = statuses.into_iter().flat_map(|status| status.rejected);
    rejected.map(|refused| (refused.name.to_string(), refused.has_another)).collect()
}

fn nack(message: &str) -> Option<RpcStatus> {
    Some(RpcStatus { code: 13, message: message.to_owned() })
}

#[test]
fn a_refusal_tells_whether_the_proxy_goes_on_with_another_version() {
    let mut stream = Stream::identified_as("cp-1");
    let answer = |stream: &mut Stream, nonce: &str, error_detail: Option<RpcStatus>| {
        stream.on_request(DeltaRequest {
            response_nonce: nonce.into(),
            error_detail,
            ..request(Type::Cluster)
        });
    };
    stream.set_target(target("C/a@1 C/b@1"));
    stream.on_request(request(Type::Cluster));
    // No resource is named, so each is sent alone.
    answer(&mut stream, "1", nack("malformed"));
    answer(&mut stream, "2", nack("malformed"));
    answer(&mut stream, "3", None);
    assert_eq!(goes_on(stream.status()), [("a".to_owned(), false)]);
    stream.retry();
    answer(&mut stream, "4", nack("malformed"));
    assert_eq!(goes_on(stream.status()), [("a".to_owned(), false)], "however often");
    stream.set_target(target("C/a@2 C/b@2"));
    answer(&mut stream, "5", nack("cluster(s) b: malformed"));
    answer(&mut stream, "6", None);
    assert_eq!(goes_on(stream.status()), [("b".to_owned(), true)]);
}

#[test]
fn a_refusal_of_a_whole_set_tells_whether_there_is_an_earlier_one() {
    let ask = |version: &str, nonce: &str, error_detail: Option<RpcStatus>| Request {
        node: Some(Node { id: "default.web".to_owned(), ..Node::default() }),
        type_url: Type::Cluster.url().to_owned(),
        version_info: version.to_owned(),
        response_nonce: nonce.to_owned(),
        error_detail,
        ..Request::default()
    };
    for (version, resumed) in [("", false), ("00000000000000000000000000000001", true)] {
        let mut stream = xds::sotw::Stream::new();
        stream.set_target(target("C/a@1 C/b@1"));
        stream.on_request(ask(version, "", None));
        stream.on_request(ask(version, "1", nack("cluster(s) a: malformed")));
        stream.on_request(ask(version, "2", nack("malformed")));
        let expected = [("a", resumed), ("b", resumed)].map(|(name, held)| (name.to_owned(), held));
        assert_eq!(goes_on(stream.status()), expected);
    }
    let mut stream = xds::sotw::Stream::new();
    stream.set_target(target("C/a@1 C/b@1"));
    stream.on_request(ask("", "", None));
    stream.on_request(ask("", "1", None));
    stream.set_target(target("C/a@2 C/b@2"));
    stream.on_request(ask("", "2", nack("malformed")));
    assert_eq!(goes_on(stream.status()), [("*".to_owned(), true)]);
}
