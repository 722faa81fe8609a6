//! Resources of peers that are stored and would be refused now: an older version was less strict.
//!
//! The global control plane does not send them to other zones; it reports them until an operator or the zone deletes
//! them. In a zone they are copies that proxies would obey, so a zone drops them before it serves any proxy.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kds::receiver::Role;
use resources::{Key, Kind, Resource, labels};
use runtime::Shutdown;
use store::{Dirty, Snapshot, Store, Write};

use super::zones::{SyncProblemKind, ZoneRegistry};

/// Number of resources that a report names.
const NAMED: usize = 3;
/// Number of resources deleted at once.
const CHUNK: usize = 512;

/// Deletes what came from the global control plane and is refused now. Returns what was deleted.
pub async fn drop_from_zone(store: &Arc<dyn Store>, zone: &str) -> Result<Vec<Key>, store::Error> {
    let role = Role::Zone(zone.into());
    let snapshot = store.snapshot()?;
    let refused: Vec<(Key, String)> =
        snapshot.iter().filter_map(|stored| Some((stored.key.clone(), why(&role, stored)?))).collect();
    for (key, reason) in refused.iter().take(NAMED) {
        tracing::warn!(%key, reason, "deleting a resource of another zone that an older version stored");
    }
    if !refused.is_empty() {
        tracing::warn!(
            count = refused.len(),
            "deleting stored resources of other zones that this version refuses"
        );
    }
    let keys: Vec<Key> = refused.into_iter().map(|(key, _)| key).collect();
    for chunk in keys.chunks(CHUNK) {
        let delete = |key: &Key| Write::Delete { key: key.clone(), expected: None };
        for outcome in store.write_each(chunk.iter().map(delete).collect()).await {
            match outcome {
                Ok(_) | Err(store::Error::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(keys)
}

/// Reports on global what is stored of zones and refused now, and says when it is gone.
pub fn report(store: &Arc<dyn Store>, zones: &Arc<ZoneRegistry>, shutdown: &Shutdown) {
    let store = store.clone();
    let zones = zones.clone();
    let ending = shutdown.clone();
    shutdown.spawn(async move {
        tokio::select! {
            () = follow(&*store, &zones) => {}
            () = ending.begun() => {}
        }
    });
}

async fn follow(store: &dyn Store, zones: &ZoneRegistry) {
    let mut changes = store.changes();
    let mut refused = match store.snapshot() {
        Ok(snapshot) => found(&snapshot),
        Err(error) => return tracing::warn!(%error, "cannot check the stored resources of zones"),
    };
    let places: Vec<ZoneKind> = refused.keys().cloned().collect();
    places.iter().for_each(|place| tell(place, &refused, zones));
    // What is written from now on has been looked at.
    while !refused.is_empty() {
        let Some(dirty) = changes.next().await else { return };
        let Ok(snapshot) = store.snapshot() else { return };
        for place in update(&mut refused, &dirty, &snapshot) {
            tell(&place, &refused, zones);
        }
    }
}

/// A zone, and a kind of its resources.
type ZoneKind = (String, Kind);
type RefusedByKind = BTreeMap<ZoneKind, BTreeMap<Key, String>>;

fn found(snapshot: &Snapshot) -> RefusedByKind {
    let mut refused = RefusedByKind::new();
    for stored in snapshot.iter() {
        let Some(zone) = stored.label(labels::ZONE) else { continue };
        if let Some(reason) = why(&Role::Global(zone.into()), stored) {
            let place = (zone.to_owned(), stored.kind());
            refused.entry(place).or_default().insert(stored.key.clone(), reason);
        }
    }
    refused
}

fn why(role: &Role, stored: &Resource) -> Option<String> {
    role.check_stored(stored).err().map(|violation| violation.to_string())
}

/// Forgets what is gone, or in order by now. Returns where that was.
fn update(refused: &mut RefusedByKind, dirty: &Dirty, snapshot: &Snapshot) -> BTreeSet<ZoneKind> {
    let mut touched = BTreeSet::new();
    for (place, keys) in refused.iter_mut() {
        let before = keys.len();
        let role = Role::Global(place.0.as_str().into());
        let is_refused = |key: &Key| snapshot.get(key).is_some_and(|stored| why(&role, stored).is_some());
        keys.retain(|key, _| !is_in(dirty, key) || is_refused(key));
        if keys.len() != before {
            touched.insert(place.clone());
        }
    }
    refused.retain(|_, keys| !keys.is_empty());
    touched
}

fn is_in(dirty: &Dirty, key: &Key) -> bool {
    match dirty {
        Dirty::Everything => true,
        Dirty::Keys(keys) => keys.contains(key),
    }
}

fn tell(place: &ZoneKind, refused: &RefusedByKind, zones: &ZoneRegistry) {
    let (zone, kind) = place;
    let reason = refused.get(place).map(|keys| {
        let named = keys.iter().take(NAMED).map(|(key, reason)| format!("{}: {reason}", key.name));
        let rest = keys.len().saturating_sub(NAMED);
        let more = if rest > 0 { format!("; and {rest} more") } else { String::new() };
        format!("no other zone gets it; delete it: {}{more}", named.collect::<Vec<_>>().join("; "))
    });
    if let Some(reason) = &reason {
        tracing::warn!(zone, %kind, reason, "this version refuses stored resources of a zone");
    }
    zones.report(zone, SyncProblemKind::Stored, *kind, reason.as_deref());
}
