//! Admission without writing, and what happens between admission and commit.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use store::{Changes, conformance::Piecewise};

use super::*;

fn names<'a>(keys: impl Iterator<Item = &'a Key>) -> Vec<String> {
    keys.map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_mesh_and_its_policy_are_admitted_together_and_nothing_is_written() {
    let registrar = registrar_with(zone(false), |_| ());
    let before = registrar.store().snapshot().unwrap();
    let policy = || timeout("t", json!({}));

    let first = registrar.rules().admit(mesh("default").draft(), &before, NOW()).unwrap();
    assert_eq!((first.outcome, first.resource.version), (WriteEffect::Created, 0));
    let expected = [
        r#"Mesh "default""#,
        r#"MeshTimeout "all" in mesh "default""#,
        r#"Secret "of-default" in mesh "default""#,
    ];
    assert_eq!(names(first.pending.keys()), expected);
    let (after, different) = first.pending.preview(&before).unwrap();
    let different: Vec<&Key> = different.changed.iter().map(|(key, _)| key).collect();
    assert_eq!(different.len(), 2, "the secret is not made: {different:?}");

    let refusal = registrar.rules().admit(policy(), &before, NOW()).unwrap_err();
    assert!(matches!(refusal, Refusal::MeshMissing(_)), "{refusal}");
    let second = registrar.rules().admit(policy(), &after, NOW()).unwrap();
    assert_eq!(second.outcome, WriteEffect::Created);
    assert!(second.pending.preview(&after).unwrap().0.get(&policy().key).is_some());

    let now = registrar.store().snapshot().unwrap();
    assert_eq!((now.revision(), now.iter().count()), (before.revision(), 0), "nothing was written");

    for admitted in [first, second] {
        registrar.commit(admitted.pending).await.unwrap();
        let stored = stored(&registrar, &admitted.resource.key).unwrap();
        assert_eq!(Resource { version: 0, ..Resource::clone(&stored) }, *admitted.resource);
    }
}

#[test]
fn rules_decide_on_a_snapshot_without_a_store() {
    let rules = Rules::new(setup(zone(true)));
    let given = || draft(json!({"type": "Mesh", "name": "default"}));
    let refusal = rules.admit(given(), &Snapshot::default(), NOW()).unwrap_err();
    assert!(matches!(refusal, Refusal::ReadOnly(_)), "{refusal}");
    let rules = Rules::new(setup(ControlPlaneRole::Global));
    let admitted = rules.admit(given(), &Snapshot::default(), NOW()).unwrap();
    assert_eq!((admitted.outcome, admitted.pending.keys().count()), (WriteEffect::Created, 3));
}

#[tokio::test]
async fn what_is_written_in_a_cluster_says_so() {
    let system_namespace = "kuma-system".into();
    let registrar = registrar_with(zone(false), |setup| {
        setup.environment = Environment::Kubernetes { system_namespace };
    });
    let registrar = with_mesh(registrar).await;
    let put = registrar.put(timeout("t", json!({}))).await.unwrap();
    assert_eq!(put.resource.label("kuma.io/env"), Some("kubernetes"));
}

#[tokio::test]
async fn admission_says_what_a_put_says() {
    let registrar = registrar(zone(false)).await;
    registrar.put(timeout("stored", json!({}))).await.unwrap();
    let mut bad = timeout("Bad_Name", json!({"kuma.io/zone": "west", "": "x"}));
    bad.spec = draft(json!({"type": "MeshTimeout", "name": "x", "spec": {}})).spec;
    for draft in [
        bad,
        timeout("stored", json!({"kuma.io/origin": "global"})),
        draft(json!({"type": "MeshInsight", "name": "m"})),
        draft(json!({"type": "MeshTimeout", "mesh": "none", "name": "x", "spec": {}})),
    ] {
        let snapshot = registrar.store().snapshot().unwrap();
        let admitted = registrar.rules().admit(draft.clone(), &snapshot, NOW()).unwrap_err().to_string();
        assert_eq!(admitted, registrar.put(draft).await.unwrap_err().to_string());
    }
    for draft in [timeout("stored", json!({})), service(json!([{"port": 80, "name": "with.dot"}]))] {
        let snapshot = registrar.store().snapshot().unwrap();
        let admitted = registrar.rules().admit(draft.clone(), &snapshot, NOW()).unwrap();
        let put = registrar.put(draft).await.unwrap();
        assert_eq!((admitted.outcome, admitted.warnings), (put.outcome, put.warnings));
    }
}

#[tokio::test]
async fn a_deletion_is_admitted_on_a_snapshot_and_nothing_is_written() {
    let registrar = registrar(zone(false)).await;
    let key = Key::global(Kind::Mesh, "default");
    let snapshot = registrar.store().snapshot().unwrap();
    let pending = registrar.rules().admit_delete(&key, &snapshot).unwrap();
    let (after, different) = pending.preview(&snapshot).unwrap();
    assert_eq!((after.iter().count(), different.changed.len()), (0, 3), "what it owns goes with it");
    assert!(stored(&registrar, &key).is_some());

    registrar.put(sidecar()).await.unwrap();
    let snapshot = registrar.store().snapshot().unwrap();
    let refusal = registrar.rules().admit_delete(&key, &snapshot).unwrap_err().to_string();
    assert_eq!(refusal, registrar.delete(&key).await.unwrap_err().to_string());
}

#[tokio::test]
async fn what_was_admitted_on_an_older_version_is_a_conflict() {
    let registrar = registrar(zone(false)).await;
    let mut draft = timeout("t", json!({}));
    registrar.put(draft.clone()).await.unwrap();
    let snapshot = registrar.store().snapshot().unwrap();
    draft.labels = labels(&[("a", "b")]);
    let update = registrar.rules().admit(draft.clone(), &snapshot, NOW()).unwrap().pending;
    let delete = registrar.rules().admit_delete(&draft.key, &snapshot).unwrap();
    registrar.commit(update.clone()).await.unwrap();
    for outdated in [update, delete] {
        let refusal = registrar.commit(outdated).await.unwrap_err();
        assert!(matches!(refusal, Refusal::Store(Error::Conflict { .. })), "{refusal}");
    }
}

/// A store in which another writer changes a resource right before it is deleted, once.
#[derive(Default)]
struct Meddling {
    inner: Memory,
    done: AtomicBool,
}

#[async_trait]
impl Store for Meddling {
    fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        self.inner.snapshot()
    }

    async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error> {
        if let Some(Write::Delete { key, .. }) = batch.first()
            && !self.done.swap(true, Ordering::Relaxed)
        {
            let stored = self.snapshot()?.get(key).cloned().unwrap();
            let update = Write::Update { resource: Resource::clone(&stored), expected: stored.version };
            self.inner.write(vec![update]).await?;
        }
        self.inner.write(batch).await
    }

    fn changes(&self) -> Changes {
        self.inner.changes()
    }
}

#[tokio::test]
async fn what_changes_while_it_is_deleted_is_looked_at_again_and_deleted() {
    let registrar = with_mesh(Registrar::new(Arc::new(Meddling::default()), setup(zone(false)))).await;
    let draft = timeout("t", json!({}));
    registrar.put(draft.clone()).await.unwrap();
    registrar.delete(&draft.key).await.unwrap();
    assert_eq!(stored(&registrar, &draft.key), None);
}

/// A mesh of which only the first `n - 1` parts could be written.
async fn interrupted_at(n: usize) -> Registrar {
    let store = Arc::new(Piecewise::default());
    store.fail_at(n);
    let registrar = Registrar::new(store, setup(zone(false)));
    registrar.put(mesh("default").draft()).await.unwrap_err();
    assert_eq!(registrar.store().snapshot().unwrap().iter().count(), n - 1);
    registrar
}

#[tokio::test]
async fn a_mesh_left_without_its_companions_gets_them_by_the_next_put_or_start() {
    for n in [2, 3] {
        let registrar = interrupted_at(n).await;
        let put = registrar.put(mesh("default").draft()).await.unwrap();
        assert_eq!((put.outcome, put.resource.version), (WriteEffect::Updated, 1));
        assert_eq!(registrar.store().snapshot().unwrap().iter().count(), 3);

        let registrar = interrupted_at(n).await;
        let created = registrar.ensure(vec![mesh("default").draft()]).await.unwrap();
        assert_eq!(created.len(), 4 - n, "{created:?}");
        assert_eq!(registrar.store().snapshot().unwrap().iter().count(), 3);
    }
}

#[tokio::test]
async fn a_companion_that_was_deleted_does_not_come_back() {
    let registrar = registrar(zone(false)).await;
    let policy = Key::new(Kind::MeshTimeout, "default", "all");
    registrar.delete(&policy).await.unwrap();
    assert_eq!(registrar.ensure(vec![mesh("default").draft()]).await.unwrap(), []);
    assert_eq!(registrar.put(mesh("default").draft()).await.unwrap().outcome, WriteEffect::Unchanged);
    assert_eq!(stored(&registrar, &policy), None);
}
