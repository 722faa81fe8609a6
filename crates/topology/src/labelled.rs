//! Services by their labels: references may choose them so.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use resources::{Key, Kind, Labels, labels};

/// The services of a mesh by kind and label. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Labelled {
    services: OrdMap<(Kind, String, String), OrdSet<Key>>,
    labels: OrdMap<Key, Arc<Labels>>,
}

/// The label of a service that was written on the global control plane by this name, whatever it is stored under
/// here; `None` for kinds that are not written there.
pub fn on_global(kind: Kind, name: &str) -> Option<Labels> {
    let label = || Labels::from([(labels::DISPLAY_NAME.to_owned(), name.to_owned())]);
    kind.descriptor().sync.global_to_zones.then(label)
}

impl Labelled {
    /// The service that was written on the global control plane by this name.
    pub fn of_global(&self, kind: Kind, name: &str) -> Option<&Key> {
        let called = self.services.get(&(kind, labels::DISPLAY_NAME.to_owned(), name.to_owned()));
        let from_global = |key: &&Key| {
            let own = self.labels.get(*key);
            let label =
                |name: &str| own.and_then(|own| own.get(name)).map(String::as_str).unwrap_or_default();
            label(labels::ORIGIN) == labels::ORIGIN_GLOBAL && label(labels::ZONE).is_empty()
        };
        called.into_iter().flatten().find(from_global)
    }

    /// The services of a kind that carry all labels, by name; all of the kind without labels.
    pub fn find<'a>(&'a self, kind: Kind, labels: &'a Labels) -> impl Iterator<Item = &'a Key> {
        let listed =
            |(name, value): (&String, &String)| self.services.get(&(kind, name.clone(), value.clone()));
        // A label that no service has is the rarest.
        let rarest = labels.iter().map(listed).min_by_key(|list| list.map_or(0, OrdSet::len));
        let first = Key { kind, mesh: Arc::default(), name: Arc::default() };
        let all = self.labels.range(first..).map(|(key, _)| key).take_while(move |key| key.kind == kind);
        let all = all.take(if rarest.is_none() { usize::MAX } else { 0 });
        let has_all = move |key: &&Key| {
            let own = self.labels.get(*key);
            own.is_some_and(|own| labels.iter().all(|(name, value)| own.get(name) == Some(value)))
        };
        rarest.flatten().into_iter().flatten().chain(all).filter(has_all)
    }

    /// Sets the labels of a service; returns those it had. `None` when the service is gone.
    pub(crate) fn replace(&mut self, service: &Key, labels: Option<&Arc<Labels>>) -> Option<Arc<Labels>> {
        let old = self.labels.get(service).cloned();
        if old.as_ref() == labels {
            return old;
        }
        let anchor = |(name, value): (&String, &String)| (service.kind, name.clone(), value.clone());
        for label in old.iter().flat_map(|old| old.iter()) {
            let anchor = anchor(label);
            if let Some(list) = self.services.get_mut(&anchor) {
                list.remove(service);
                if list.is_empty() {
                    self.services.remove(&anchor);
                }
            }
        }
        for label in labels.into_iter().flat_map(|labels| labels.iter()) {
            self.services.entry(anchor(label)).or_default().insert(service.clone());
        }
        match labels {
            Some(labels) => self.labels.insert(service.clone(), labels.clone()),
            None => self.labels.remove(service),
        };
        old
    }
}
