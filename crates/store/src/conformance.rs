//! Duties of every store, as tests any store can run.
//!
//! [`conformance_tests!`](crate::conformance_tests) makes one test per fact from a function that
//! makes an empty store. [`same_history`] applies one random history to two stores and compares
//! everything that can be seen from outside.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod history;
mod piecewise;
mod reads;
mod statuses;
mod watches;
mod write_each;
mod writes;

use std::{any::Any, sync::Arc};

use jiff::Timestamp;
use resources::{Key, Kind, Resource, Scope, Spec, Status};
use serde_json::{Value, json};

use crate::{Committed, Error, Memory, Store, Write};

pub use history::{histories_match_memory, same_history};
pub use piecewise::Piecewise;
pub use reads::*;
pub use statuses::*;
pub use watches::*;
pub use write_each::*;
pub use writes::*;

/// An empty store under test, with what must live as long as it does: a directory, a server.
pub struct Fixture {
    pub store: Arc<dyn Store>,
    _keep: Box<dyn Any + Send>,
}

impl Fixture {
    pub fn new(store: Arc<dyn Store>, keep: impl Any + Send) -> Fixture {
        Fixture { store, _keep: Box::new(keep) }
    }
}

/// One `#[tokio::test]` per fact. `$make` names an `async fn() -> Fixture` that makes an empty store.
#[macro_export]
macro_rules! conformance_tests {
    ($make:path) => {
        $crate::conformance_tests! { $make:
            a_batch_may_write_a_resource_and_its_status
            a_revision_can_be_waited_for
            a_spec_and_a_status_written_at_once_are_both_kept
            a_status_is_refused_for_another_version_or_nothing
            a_status_is_written_and_nothing_else
            a_store_that_has_caught_up_shows_every_write
            batches_see_their_own_steps
            changes_are_in_the_snapshot_before_they_are_reported
            circular_ownership_ends
            concurrent_updates_of_one_key_lose_none
            concurrent_writers_are_all_reported
            created_resources_are_found
            deleted_resources_are_gone
            deletions_are_refused_while_something_is_owned
            each_write_has_an_outcome_of_its_own
            each_write_sees_those_before_it
            empty_batches_move_no_cursor
            existing_names_are_refused
            failed_batches_leave_no_trace
            failed_writes_are_not_reported
            histories_match_memory
            a_page_may_begin_after_any_name
            lists_are_sorted_by_mesh_and_name
            many_changes_of_a_key_become_one
            missing_resources_are_not_found
            no_owned_resource_is_lost_by_a_deletion_that_races_with_it
            only_those_of_each_that_were_written_are_reported
            owned_resources_follow_their_last_owner
            owners_must_exist
            owners_take_what_they_own_with_them
            pages_are_stable_and_end
            restored_resources_keep_everything
            slow_subscribers_hold_nobody_up
            snapshots_do_not_change
            stale_versions_conflict
            subscribers_learn_that_the_store_is_gone
            subscriptions_resume_from_a_cursor
            updates_replace_and_raise_the_version
            waiting_for_a_revision_ends_with_the_store
            what_a_bookmark_marks_can_be_waited_for
            when_each_write_is_refused_nothing_happens
        }
    };
    ($make:path: $($fact:ident)*) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $fact() {
            $crate::conformance::$fact($make().await).await;
        }
    )* };
}

/// A resource with everything set, distinguishable by `tag`.
pub fn resource(kind: Kind, mesh: &str, name: &str, tag: &str) -> Resource {
    let at: Timestamp = "2024-05-06T07:08:09.123456789Z".parse().unwrap();
    let key = Key::new(kind, mesh, name);
    let status = kind.descriptor().has_status.then(|| {
        let status =
            json!({ "vips": [{ "ip": "240.0.0.1" }], "addresses": [{ "hostname": format!("{tag}.mesh") }] });
        Status::from_json(kind, status).unwrap()
    });
    Resource {
        labels: [("tag".to_owned(), tag.to_owned())].into(),
        created: at,
        modified: at,
        version: 0,
        owner: None,
        spec: Spec::from_json(kind, spec(kind, tag), &mut Vec::new()).unwrap(),
        status,
        key,
    }
}

/// Specs that differ by `tag` for the kinds the suite uses.
fn spec(kind: Kind, tag: &str) -> Value {
    match kind {
        Kind::MeshService => json!({
            "selector": { "dataplaneTags": { "kuma.io/service": tag } },
            "ports": [{ "port": 80, "targetPort": 8080 }],
        }),
        Kind::Secret | Kind::GlobalSecret => json!({ "data": "c2VjcmV0" }),
        Kind::Config => json!({ "config": format!("{{\"tag\":{tag:?}}}") }),
        _ => json!({}),
    }
}

fn mesh(name: &str) -> Resource {
    resource(Kind::Mesh, "", name, "mesh")
}

fn secret(name: &str) -> Resource {
    resource(Kind::Secret, "default", name, "secret")
}

fn owned(mut resource: Resource, owner: &Key) -> Resource {
    resource.owner = Some(owner.clone());
    resource
}

fn tagged(mut resource: Resource, tag: &str) -> Resource {
    resource.labels.insert("tag".to_owned(), tag.to_owned());
    resource
}

/// The steps of these stores that need no error checking.
async fn create(store: &dyn Store, resource: Resource) -> Arc<Resource> {
    let key = resource.key.clone();
    let committed = write(store, vec![Write::Create(resource)]).await;
    committed.get(&key).expect("a created resource is in the outcome").clone()
}

async fn write(store: &dyn Store, batch: Vec<Write>) -> Committed {
    store.write(batch).await.expect("the batch is sound")
}

async fn delete(store: &dyn Store, key: &Key) -> Committed {
    write(store, vec![Write::Delete { key: key.clone(), expected: None }]).await
}

async fn refused(store: &dyn Store, batch: Vec<Write>) -> Error {
    store.write(batch).await.expect_err("the batch must be refused")
}

fn exists(store: &dyn Store, key: &Key) -> bool {
    store.snapshot().unwrap().get(key).is_some()
}

fn everything(store: &dyn Store) -> Vec<Arc<Resource>> {
    store.snapshot().unwrap().iter().cloned().collect()
}

fn mesh_of(kind: Kind, mesh: &str) -> &str {
    if kind.descriptor().scope == Scope::Global { "" } else { mesh }
}

/// A store in memory for backups: chains of owners, something with a status, versions with gaps.
pub async fn filled() -> Memory {
    let store = Memory::default();
    // "Config" sorts after the kinds it owns here, so that order in the file is not order of ownership.
    let owner = resource(Kind::Config, "", "owner", "one");
    let owned = |mut resource: Resource, owner: &Key| {
        resource.owner = Some(owner.clone());
        resource
    };
    let middle = owned(resource(Kind::Secret, "default", "middle", "two"), &owner.key);
    let leaf = owned(resource(Kind::Mesh, "", "leaf", "three"), &middle.key);
    for write in [
        Write::Create(owner),
        Write::Create(middle),
        Write::Create(resource(Kind::Secret, "default", "gone", "x")),
        Write::Delete { key: Key::new(Kind::Secret, "default", "gone"), expected: None },
        Write::Create(leaf),
        Write::Create(resource(Kind::MeshService, "default", "bäckend\n\"", "four")),
    ] {
        store.write(vec![write]).await.unwrap();
    }
    store
}

/// Everything stored, in order.
pub fn contents(store: &dyn Store) -> Vec<Resource> {
    store.snapshot().unwrap().iter().map(|r| r.as_ref().clone()).collect()
}
