//! Reading, deciding and writing until no other writer comes in between.

use std::{sync::Arc, time::Duration};

use resources::{Key, Resource};

use crate::{Committed, Error, Snapshot, Store, Write};

/// Attempts before an update is given up. Each that fails means that another writer changed the same resources in the
/// time of one decision.
const ATTEMPTS: usize = 10;
/// Longest wait for the write of another control plane.
const CATCH_UP: Duration = Duration::from_secs(5);

/// Changes one resource: `decide` gets what is stored and returns what is to be written instead, at its version. It is
/// asked again on a newer snapshot when another writer came first. `None` writes nothing.
///
/// The error of the last attempt is returned when there were too many, so that [`Error::is_outdated`] tells a caller that
/// a later attempt may work.
pub async fn update<E: From<Error>>(
    store: &dyn Store,
    key: &Key,
    mut decide: impl FnMut(Option<&Arc<Resource>>) -> Result<Option<Write>, E>,
) -> Result<Option<Committed>, E> {
    update_with(store, |snapshot| Ok(decide(snapshot.get(key))?.into_iter().collect())).await
}

/// As [`update`], for a decision that looks at more than one resource, or makes dependent writes.
pub async fn update_with<E: From<Error>>(
    store: &dyn Store,
    mut decide: impl FnMut(&Snapshot) -> Result<Vec<Write>, E>,
) -> Result<Option<Committed>, E> {
    let mut snapshot = store.snapshot()?;
    let mut attempts = 1;
    loop {
        let writes = decide(&snapshot)?;
        if writes.is_empty() {
            return Ok(None);
        }
        match store.write(writes).await {
            Ok(committed) => return Ok(Some(committed)),
            Err(error) if error.is_outdated() && attempts < ATTEMPTS => {
                attempts += 1;
                snapshot = store.caught_up(CATCH_UP).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use jiff::Timestamp;
    use resources::{Kind, Labels, Spec};

    use super::*;
    use crate::{Changes, Memory};

    /// Another writer comes first so many times.
    struct Contended {
        store: Memory,
        races: AtomicUsize,
    }

    #[async_trait]
    impl Store for Contended {
        fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
            self.store.snapshot()
        }

        async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error> {
            let left =
                self.races.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            if left.is_ok() {
                let theirs = counted(self.snapshot()?.get(&key()), "theirs");
                self.store.write(vec![theirs]).await?;
            }
            self.store.write(batch).await
        }

        fn changes(&self) -> Changes {
            self.store.changes()
        }
    }

    fn key() -> Key {
        Key::global(Kind::Zone, "east")
    }

    /// The write that counts one up in a label.
    fn counted(stored: Option<&Arc<Resource>>, label: &str) -> Write {
        let Some(stored) = stored else {
            return Write::Create(Resource {
                key: key(),
                spec: Spec::from_json(Kind::Zone, serde_json::json!({}), &mut Vec::new()).unwrap(),
                labels: Labels::from([(label.to_owned(), "1".to_owned())]),
                created: Timestamp::UNIX_EPOCH,
                modified: Timestamp::UNIX_EPOCH,
                version: 0,
                owner: None,
                status: None,
            });
        };
        let mut resource = Resource::clone(stored);
        let count: u32 = stored.label(label).map_or(0, |count| count.parse().unwrap());
        resource.labels.insert(label.to_owned(), (count + 1).to_string());
        Write::Update { resource, expected: stored.version }
    }

    async fn count_up(store: &dyn Store) -> Result<Option<Committed>, Error> {
        update(store, &key(), |stored| Ok(Some(counted(stored, "ours")))).await
    }

    fn labels(store: &dyn Store) -> (Option<String>, Option<String>) {
        let snapshot = store.snapshot().unwrap();
        let stored = snapshot.get(&key()).unwrap();
        let label = |name: &str| stored.label(name).map(str::to_owned);
        (label("ours"), label("theirs"))
    }

    #[tokio::test]
    async fn writes_of_others_are_kept_however_many_come_first() {
        let store = Contended { store: Memory::default(), races: AtomicUsize::new(3) };
        let committed = count_up(&store).await.unwrap().unwrap();
        assert_eq!(labels(&store), (Some("1".to_owned()), Some("3".to_owned())));
        assert_eq!(committed.get(&key()).unwrap().version, 4);
        count_up(&store).await.unwrap();
        assert_eq!(labels(&store), (Some("2".to_owned()), Some("3".to_owned())));
    }

    #[tokio::test]
    async fn an_update_that_never_comes_first_ends_and_says_that_it_is_outdated() {
        let store = Contended { store: Memory::default(), races: AtomicUsize::new(usize::MAX) };
        assert!(count_up(&store).await.unwrap_err().is_outdated());
        assert_eq!(labels(&store), (None, Some(ATTEMPTS.to_string())));
    }

    #[tokio::test]
    async fn nothing_is_written_when_nothing_is_to_be_or_the_decision_fails() {
        let store = Memory::default();
        assert_eq!(update::<Error>(&store, &key(), |_| Ok(None)).await, Ok(None));
        let refused = Error::Unavailable("not allowed".to_owned());
        assert_eq!(update(&store, &key(), |_| Err(refused.clone())).await, Err(refused));
        assert_eq!(store.snapshot().unwrap().revision(), 0);
    }
}
