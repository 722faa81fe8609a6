//! Destinations that a value of SNI leads to, among any number of them.

use std::sync::Arc;

use resources::{Key, Kind, Resource, naming::sni};
use xxhash_rust::xxh3::xxh3_64;

use super::index::Index;

/// Destinations by the hash of every value they accept. Values are not kept: what is found is asked again.
#[derive(Debug, Clone, Default)]
pub(super) struct Snis(Index<Key>);

impl Snis {
    /// The destinations that may accept a value.
    pub(super) fn keys(&self, value: &str) -> impl Iterator<Item = &Key> {
        self.0.all(xxh3_64(value.as_bytes()))
    }

    /// Takes in that a resource became another one. Most writes change none of its values.
    pub(super) fn follow(shared: &mut Arc<Snis>, old: Option<&Resource>, new: Option<&Resource>) {
        let Some(either) = new.or(old).filter(|resource| is_destination(resource.kind())) else { return };
        let alike = |(old, new): (&Resource, &Resource)| old.spec == new.spec && old.labels == new.labels;
        if old.zip(new).is_some_and(alike) {
            return;
        }
        let gone = hashes(old);
        let come = hashes(new);
        if gone == come {
            return;
        }
        let Snis(index) = Arc::make_mut(shared);
        let key = &either.key;
        for hash in gone.iter().filter(|hash| !come.contains(hash)) {
            index.remove(*hash, |other| other == key);
        }
        for hash in come.iter().filter(|hash| !gone.contains(hash)) {
            index.put(*hash, key.clone(), |other| other == key);
        }
    }
}

fn is_destination(kind: Kind) -> bool {
    matches!(kind, Kind::MeshService | Kind::MeshExternalService | Kind::MeshMultiZoneService)
}

fn hashes(resource: Option<&Resource>) -> Vec<u64> {
    let accepted = resource.map(sni::accepted).unwrap_or_default();
    accepted.iter().map(|it| xxh3_64(it.value.as_bytes())).collect()
}

/// True if the value leads to a port of the resource.
pub(super) fn accepts(resource: &Resource, value: &str) -> bool {
    sni::accepted(resource).iter().any(|it| it.value == value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use resources::{Labels, Spec};
    use serde_json::json;

    use crate::Snapshot;

    use super::*;

    fn service(name: &str, port: u64, value: &str) -> Arc<Resource> {
        let spec = json!({"ports": [{"port": port, "snis": [{"value": value}]}]});
        Arc::new(Resource {
            key: Key::new(Kind::MeshService, "default", name),
            labels: Labels::new(),
            created: jiff::Timestamp::UNIX_EPOCH,
            modified: jiff::Timestamp::UNIX_EPOCH,
            version: 1,
            owner: None,
            spec: Spec::from_json(Kind::MeshService, spec, &mut Vec::new()).unwrap(),
            status: None,
        })
    }

    #[test]
    fn a_snapshot_that_followed_changes_finds_what_one_that_was_loaded_finds() {
        let mut followed = Snapshot::default();
        let mut values = vec!["never.example".to_owned()];
        // Every third change takes a service away; values wander from service to service.
        for step in 0..3_000_u64 {
            let name = format!("s-{}", step * 7 % 500);
            let made = service(&name, 80 + step % 2, &format!("value-{}.example", step * 13 % 200));
            values.extend(sni::accepted(&made).into_iter().map(|it| it.value));
            let value = (step % 3 != 0).then_some(made.clone());
            followed = followed.with(step + 1, &[(made.key.clone(), value)]);
        }
        let loaded = Snapshot::load(followed.revision(), followed.iter().cloned());
        let mut found = 0;
        for value in &values {
            assert_eq!(followed.accepting(value), loaded.accepting(value), "{value}");
            found += followed.accepting(value).len();
        }
        assert!(found > 1_000, "{found}");
    }
}
