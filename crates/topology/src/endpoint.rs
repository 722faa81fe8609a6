//! Endpoints of a destination.

use std::{
    collections::BTreeMap,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use resources::{Labels, Resource, labels};

/// The endpoints of a destination, sorted by address and port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Endpoints(pub Vec<Endpoint>);

impl Endpoints {
    /// Some have the same address: an egress, which is listed once for each zone behind it.
    pub fn share_exits(&self) -> bool {
        self.0.windows(2).any(|two| two[0].is_where(&two[1]))
    }
}

/// One instance.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// An IP address, or a host name for what is outside the mesh.
    pub address: String,
    pub port: u32,
    pub tags: BTreeMap<String, String>,
    pub weight: u32,
    /// Envoy's priority; 0 is tried first.
    pub priority: u32,
    /// `None` for what is outside the mesh.
    pub instance: Option<Instance>,
}

impl Endpoint {
    /// Another one has the same address and port.
    pub fn is_where(&self, other: &Endpoint) -> bool {
        (&self.address, self.port) == (&other.address, other.port)
    }

    /// The labels of its Dataplane.
    pub fn labels(&self) -> Option<&Labels> {
        self.instance.as_ref().map(Instance::labels).filter(|labels| !labels.is_empty())
    }

    /// The zone it runs in, if that is known.
    pub fn zone(&self) -> Option<&str> {
        let zone = self.tags.get(labels::ZONE).or_else(|| self.labels()?.get(labels::ZONE));
        zone.map(String::as_str).filter(|zone| !zone.is_empty())
    }
}

/// The Dataplane of an endpoint, of which clients see the labels and nothing else. It is held instead of a copy of
/// them, because every endpoint has them.
#[derive(Clone)]
pub struct Instance(Arc<Resource>);

impl Instance {
    pub fn of(dataplane: &Arc<Resource>) -> Instance {
        Instance(dataplane.clone())
    }

    pub fn labels(&self) -> &Labels {
        &self.0.labels
    }
}

impl PartialEq for Instance {
    fn eq(&self, other: &Instance) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.labels() == other.labels()
    }
}

impl Eq for Instance {}

impl Hash for Instance {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.labels().hash(state);
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.labels().fmt(f)
    }
}
