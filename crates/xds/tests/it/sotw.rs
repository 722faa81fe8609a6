use crate::conversation::sotw as check;

#[test]
fn every_response_has_the_whole_set_and_an_ack_is_not_answered() {
    check(
        "target C/a@1 C/b@1
         > C
         < C 1 a@1 b@1
         > C v #1
         ! acked C 1
         > C v #1
         target C/a@2 C/b@1
         < C 2 a@2 b@1
         target C/a@3 C/b@1
         target C/a@4 C/b@1
         > C v #2
         ! acked C 2
         < C 3 a@4 b@1",
    );
}

#[test]
fn a_proxy_that_wants_everything_is_answered_even_when_there_is_nothing() {
    check(
        "> C
         > L
         target
         < C 1
         > C v #1
         ! acked C 1
         < L 2",
    );
}

#[test]
fn a_changed_listener_comes_before_new_ones_that_may_take_its_address() {
    check(
        "target L/z@1
         > C
         < C 1
         > C v #1
         ! acked C 1
         > L
         < L 2 z@1
         > L v #2
         ! acked L 2
         target L/a@1 L/z@2
         < L 3 z@2 a@1",
    );
}

#[test]
fn names_are_answered_as_far_as_they_exist() {
    check(
        "target E/a@1 E/b@1
         > E [a]
         < E 1 a@1
         > E v [a] #1
         ! acked E 1
         > E v [a missing] #1
         > E v [a missing b] #1
         < E 2 a@1 b@1
         > E v [a missing b] #2
         ! acked E 2
         > E v [a] #2
         > E v [a b] #2
         < E 3 a@1 b@1
         > E v [a b] #3
         ! acked E 3
         target E/a@1
         < E 4 a@1",
    );
}

#[test]
fn listeners_wait_for_clusters_which_stay_until_listeners_are_replaced() {
    check(
        "target C/a@1 E/a@1 L/l@1
         > C
         < C 1 a@1
         > L
         > C v #1
         ! acked C 1
         > E [a]
         < E 2 a@1
         > E v [a] #2
         ! acked E 2
         < L 3 l@1
         > L v #3
         ! acked L 3
         target C/b@1 L/l@2
         < C 4 a@1 b@1
         > C v #4
         ! acked C 4
         < L 5 l@2
         > L v #5
         ! acked L 5
         < C 6 b@1
         > C v #6
         ! acked C 6",
    );
}

#[test]
fn a_changed_cluster_gets_its_endpoints_again() {
    check(
        "target C/a@1 E/a@1
         > C
         < C 1 a@1
         > C v #1
         ! acked C 1
         > E [a]
         < E 2 a@1
         > E v [a] #2
         ! acked E 2
         target C/a@2 E/a@1
         < C 3 a@2
         < E 4 a@1",
    );
}

#[test]
fn a_proxy_that_comes_back_with_what_it_should_have_gets_nothing() {
    check(
        "target C/a@1 E/a@1 L/l@1
         > C
         < C 1 a@1
         > C v #1
         ! acked C 1
         > E [a]
         < E 2 a@1
         > L
         > E v [a] #2
         ! acked E 2
         < L 3 l@1
         reconnect
         > C v
         > E v [a]
         > L v
         target C/a@2 E/a@1 L/l@1
         < C 1 a@2
         < E 2 a@1",
    );
}

#[test]
fn a_refused_resource_is_replaced_by_the_last_one_that_was_taken() {
    check(
        "target C/a@1 C/b@1
         > C
         < C 1 a@1 b@1
         > C v #1
         ! acked C 1
         target C/a@2 C/b@2 C/c@1
         < C 2 a@2 b@2 c@1
         > C #2 error=cluster(s) b: bad, c: bad
         ! rejected C 2 [b c] cluster(s) b: bad, c: bad
         < C 3 a@2 b@1
         > C v #3
         ! acked C 3
         target C/a@2 C/b@3 C/c@1
         < C 4 a@2 b@3
         > C #4 error=something
         ! rejected C 4 [b] something
         < C 5 a@2 b@1",
    );
}

#[test]
fn a_set_refused_for_no_resource_in_particular_is_not_sent_again() {
    check(
        "target C/a@1 C/b@1
         > C
         < C 1 a@1 b@1
         > C #1 error=malformed
         ! rejected C 1 [] malformed
         > C #1
         target C/a@1 C/b@2
         < C 2 a@1 b@2
         > C v #2
         ! acked C 2
         target C/a@1 C/b@1
         retry
         < C 3 a@1 b@1",
    );
}

#[test]
fn a_stale_request_is_ignored_and_a_changed_node_ends_the_stream() {
    check(
        "target C/a@1
         > C
         < C 1 a@1
         > C #0
         ! ignored: stale nonce \"0\" for Cluster
         > C v #1 node=default.other
         ! close: the node id changed from \"default.web\" to \"default.other\" within one stream; open a stream per proxy
         target C/a@2",
    );
}

#[test]
fn routes_that_tell_about_listeners_come_after_them() {
    check(
        "target L/a@1 R/names@1
         > L
         < L 1 a@1
         > R [names]
         > L v #1
         ! acked L 1
         < R 2 names@1
         > R [names] v #2
         ! acked R 2
         target L/a@1 L/b@1 R/names@2
         < L 3 a@1 b@1
         > L v #3
         ! acked L 3
         < R 4 names@2",
    );
}
