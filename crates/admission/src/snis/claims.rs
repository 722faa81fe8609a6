//! Values of SNI that writes on their way are about to take. Whether a value is free is decided on a snapshot, and a
//! write is in a snapshot only when it has been made: so those that want the same value wait for each other.

use std::{
    collections::HashSet,
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;
use xxhash_rust::xxh3::xxh3_64;

/// The values that are claimed, by their hashes: two values of one hash wait in vain, and that is all.
#[derive(Default)]
pub struct Claims {
    taken: Mutex<HashSet<u64>>,
    released: Notify,
}

/// Some values, until it is dropped.
pub struct Claim<'c> {
    claims: &'c Claims,
    values: HashSet<u64>,
}

impl Claims {
    fn taken(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other write wants any of the values. All are claimed at once, so that none waits for what waits
    /// for it.
    pub async fn claim(&self, values: impl Iterator<Item = &str>) -> Claim<'_> {
        let values: HashSet<u64> = values.map(|value| xxh3_64(value.as_bytes())).collect();
        loop {
            let mut released = pin!(self.released.notified());
            // From here on no release is missed.
            released.as_mut().enable();
            {
                let mut taken = self.taken();
                if taken.is_disjoint(&values) {
                    taken.extend(&values);
                    return Claim { claims: self, values };
                }
            }
            released.await;
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.claims.taken().retain(|value| !self.values.contains(value));
        self.claims.released.notify_waiters();
    }
}
