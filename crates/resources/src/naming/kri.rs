//! KRI: the identifier of a resource that is the same on every control plane.
//!
//! `kri_<short>_<mesh>_<zone>_<namespace>_<name>_<section>`; fields that do not apply stay empty.
//! Only the section may contain `_` (`rule_0`), so the first six fields always read back unchanged.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    ops::Deref,
    str::FromStr,
    sync::Arc,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Error;
use crate::{Kind, Resource, labels};

/// The short names of types that have KRIs and that this control plane does not serve; those of its own
/// kinds stand in the table of kinds.
const UNSERVED: &[(&str, &str)] = &[("MeshGateway", "mgw")];

/// The short name of a type that has KRIs; no other can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShortName {
    short: &'static str,
    /// The short name decides the type, so this changes neither order nor equality.
    of: Type,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Type {
    Served(Kind),
    Unserved(&'static str),
}

impl ShortName {
    pub fn all() -> impl Iterator<Item = ShortName> {
        let unserved = UNSERVED.iter().map(|&(name, short)| ShortName { short, of: Type::Unserved(name) });
        Kind::ALL.iter().filter_map(|&kind| ShortName::of_kind(kind)).chain(unserved)
    }

    /// By the type's name. An overview shows a resource, so it has the identifier of that resource.
    pub fn of_type(type_name: &str) -> Option<ShortName> {
        let shown = type_name.strip_suffix("Overview").unwrap_or(type_name);
        ShortName::all().find(|short| short.type_name() == shown)
    }

    pub fn of_kind(kind: Kind) -> Option<ShortName> {
        kind.descriptor().short.map(|short| ShortName { short, of: Type::Served(kind) })
    }

    pub fn as_str(self) -> &'static str {
        self.short
    }

    pub fn type_name(self) -> &'static str {
        match self.of {
            Type::Served(kind) => kind.name(),
            Type::Unserved(name) => name,
        }
    }

    /// `None` for types this control plane does not serve.
    pub fn kind(self) -> Option<Kind> {
        match self.of {
            Type::Served(kind) => Some(kind),
            Type::Unserved(_) => None,
        }
    }
}

impl FromStr for ShortName {
    type Err = Error;

    fn from_str(short: &str) -> Result<Self, Error> {
        ShortName::all()
            .find(|known| known.short == short)
            .ok_or_else(|| Error::UnknownShortName(short.to_owned()))
    }
}

impl fmt::Display for ShortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.short)
    }
}

/// The identifier of a resource, or of a section of it: cheap to clone, and to compare with its clones.
///
/// The order is by field; where users see the order, sort by the rendered string.
#[derive(Debug, Clone, Eq)]
pub struct Kri(Arc<Fields>);

/// Parts of a KRI.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fields {
    pub short: ShortName,
    pub mesh: String,
    pub zone: String,
    pub namespace: String,
    pub name: String,
    pub section: String,
}

impl Kri {
    /// `None` for kinds that have no KRI.
    pub fn of(resource: &Resource, section: &str) -> Option<Kri> {
        let short = ShortName::of_kind(resource.kind())?;
        let label = |name| resource.label(name).unwrap_or_default().to_owned();
        Some(Kri::from(Fields {
            short,
            mesh: resource.mesh().to_owned(),
            zone: label(labels::ZONE),
            namespace: label(labels::K8S_NAMESPACE),
            name: resource.display_name().to_owned(),
            section: section.to_owned(),
        }))
    }

    /// `None` for types this control plane does not serve.
    pub fn kind(&self) -> Option<Kind> {
        self.short.kind()
    }

    pub fn type_name(&self) -> &'static str {
        self.short.type_name()
    }

    /// The same resource with another section.
    #[must_use]
    pub fn with_section(&self, section: &str) -> Kri {
        if self.section == section {
            return self.clone();
        }
        Kri::from(Fields { section: section.to_owned(), ..Fields::clone(self) })
    }

    /// The resource itself, without a section.
    #[must_use]
    pub fn without_section(&self) -> Kri {
        self.with_section("")
    }
}

impl From<Fields> for Kri {
    fn from(fields: Fields) -> Kri {
        Kri(Arc::new(fields))
    }
}

impl Deref for Kri {
    type Target = Fields;

    fn deref(&self) -> &Fields {
        &self.0
    }
}

impl PartialEq for Kri {
    fn eq(&self, other: &Kri) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Hash for Kri {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Ord for Kri {
    fn cmp(&self, other: &Kri) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl PartialOrd for Kri {
    fn partial_cmp(&self, other: &Kri) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Kri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fields { short, mesh, zone, namespace, name, section } = &**self;
        write!(f, "kri_{short}_{mesh}_{zone}_{namespace}_{name}_{section}")
    }
}

impl FromStr for Kri {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let fields: Vec<&str> = text.splitn(7, '_').collect();
        let &[prefix, short, mesh, zone, namespace, name, section] = fields.as_slice() else {
            return Err(Error::KriShape(text.to_owned()));
        };
        if prefix != "kri" {
            return Err(Error::KriPrefix(text.to_owned()));
        }
        Ok(Kri::from(Fields {
            short: short.parse()?,
            mesh: mesh.to_owned(),
            zone: zone.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            section: section.to_owned(),
        }))
    }
}

impl Serialize for Kri {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Kri {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}
