//! Makes secrets, which are keys and take a processor for a while: few at a time, each once, and never on a
//! thread that serves requests.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use resources::{Draft, Key};
use store::Error;
use tokio::sync::{OwnedMutexGuard, Semaphore};

/// Secrets that are made at a time; the other processors serve.
const AT_ONCE: usize = 2;

type Turns = HashMap<Key, Weak<tokio::sync::Mutex<()>>>;

/// Creates secrets.
pub(super) struct SecretFactory {
    benches: Semaphore,
    turns: Mutex<Turns>,
}

impl Default for SecretFactory {
    fn default() -> Self {
        SecretFactory { benches: Semaphore::new(AT_ONCE), turns: Mutex::default() }
    }
}

impl SecretFactory {
    /// The exclusive right to make this secret. Others wait for it, and look first whether it is there then.
    pub(super) async fn turn(&self, key: &Key) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            match turns.get(key).and_then(Weak::upgrade) {
                Some(turn) => turn,
                None => {
                    turns.retain(|_, turn| turn.strong_count() > 0);
                    let turn = Arc::new(tokio::sync::Mutex::new(()));
                    turns.insert(key.clone(), Arc::downgrade(&turn));
                    turn
                }
            }
        };
        turn.lock_owned().await
    }

    pub(super) async fn make(
        &self,
        key: Key,
        make: fn(&Key) -> Result<Draft, Error>,
    ) -> Result<Draft, Error> {
        let failed = |why: String| Error::Unavailable(format!("cannot make a secret: {why}"));
        let _bench = self.benches.acquire().await.map_err(|why| failed(why.to_string()))?;
        let made = tokio::task::spawn_blocking(move || make(&key)).await;
        made.map_err(|why| failed(why.to_string()))?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use jiff::Timestamp;
    use resources::{
        Kind, Spec,
        kinds::secret::{Secret, SecretBytes},
    };
    use store::Memory;

    use crate::{Companion, ControlPlaneRole, Refusal, Registrar, RuleSettings};

    use super::*;

    static MADE: AtomicUsize = AtomicUsize::new(0);

    fn counted(key: &Key) -> Result<Draft, Error> {
        MADE.fetch_add(1, Ordering::Relaxed);
        Ok(Draft::new(key.clone(), Secret { data: SecretBytes::new("key".to_owned()) }.into()))
    }

    fn registrar() -> Registrar {
        let companions: crate::Companions = Box::new(|mesh, snapshot| {
            let key = Key::new(Kind::Secret, &mesh.key.name, "signing-key");
            if snapshot.get(&key).is_some() {
                return Vec::new();
            }
            vec![Companion::Secret { key, make: counted }]
        });
        let setup = RuleSettings {
            mode: ControlPlaneRole::Zone { name: "default".to_owned(), federated: false },
            environment: resources::Environment::Universal,
            health_discovery: true,
            disable_origin_label_validation: false,
            unsafe_delete: false,
            companions,
            check: |_, _, _| {},
            now: Timestamp::now,
        };
        Registrar::new(Arc::new(Memory::default()), setup)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn many_writers_of_one_mesh_make_its_key_once() {
        let registrar = Arc::new(registrar());
        let mut writers = tokio::task::JoinSet::new();
        for _ in 0..32 {
            let registrar = registrar.clone();
            writers.spawn(async move {
                let spec = Spec::from_json(Kind::Mesh, serde_json::json!({}), &mut Vec::new()).unwrap();
                registrar.put(Draft::new(Key::global(Kind::Mesh, "busy"), spec)).await
            });
        }
        let outcomes = writers.join_all().await;
        assert_eq!(MADE.load(Ordering::Relaxed), 1);
        assert!(outcomes.iter().any(Result::is_ok));
        for refused in outcomes.into_iter().filter_map(Result::err) {
            assert!(matches!(refused, Refusal::Store(Error::AlreadyExists(_))), "{refused}");
        }
    }
}
