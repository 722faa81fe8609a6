//! A resource as the control plane holds it ([`Resource`]) and as a user writes it ([`Draft`]).

use std::{collections::BTreeMap, fmt, sync::Arc};

use jiff::Timestamp;

use crate::{Kind, Scope, Spec, Status, Subject, Violations, naming::kri::Kri};

pub type Labels = BTreeMap<String, String>;

/// Identity of a resource: kind, mesh and name. The mesh is empty for kinds of global scope.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub kind: Kind,
    pub mesh: Arc<str>,
    pub name: Arc<str>,
}

impl Key {
    /// The mesh is ignored for kinds of global scope, so that one spelling of a key exists.
    pub fn new(kind: Kind, mesh: &str, name: &str) -> Self {
        let mesh = if kind.descriptor().scope == Scope::Global { "" } else { mesh };
        Key { kind, mesh: mesh.into(), name: name.into() }
    }

    pub fn global(kind: Kind, name: &str) -> Self {
        Key::new(kind, "", name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.mesh.is_empty() {
            write!(f, "{} {:?}", self.kind, self.name)
        } else {
            write!(f, "{} {:?} in mesh {:?}", self.kind, self.name, self.mesh)
        }
    }
}

/// A stored resource. Immutable once stored; shared behind an `Arc`.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    pub key: Key,
    pub labels: Labels,
    pub created: Timestamp,
    pub modified: Timestamp,
    /// The store's revision of the last write to this resource.
    pub version: u64,
    /// Deleting the owner deletes this resource.
    pub owner: Option<Key>,
    pub spec: Spec,
    pub status: Option<Status>,
}

impl Resource {
    pub fn kind(&self) -> Kind {
        self.key.kind
    }

    pub fn mesh(&self) -> &str {
        &self.key.mesh
    }

    pub fn name(&self) -> &str {
        &self.key.name
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(String::as_str)
    }

    pub fn display_name(&self) -> &str {
        self.subject().display_name()
    }

    /// The resource's identifier, or `None` for kinds without a short name.
    pub fn kri(&self, section: &str) -> Option<Kri> {
        Kri::of(self, section)
    }

    pub fn subject(&self) -> Subject<'_> {
        Subject { mesh: &self.key.mesh, name: &self.key.name, labels: &self.labels }
    }
}

/// Resource as a user writes it: without the parts only the control plane may set.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    pub key: Key,
    pub labels: Labels,
    pub spec: Spec,
}

impl Draft {
    pub fn new(key: Key, spec: Spec) -> Self {
        Draft { key, labels: Labels::new(), spec }
    }

    pub fn kind(&self) -> Kind {
        self.key.kind
    }

    pub fn subject(&self) -> Subject<'_> {
        Subject { mesh: &self.key.mesh, name: &self.key.name, labels: &self.labels }
    }

    /// Every violation of the spec. Names and labels are checked where the resource is admitted.
    pub fn validate(&self) -> Violations {
        let mut found = Violations::default();
        self.spec.validate(self.subject(), &mut found);
        found
    }
}
