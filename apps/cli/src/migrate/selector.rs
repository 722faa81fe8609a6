//! Selectors by tags, as references.

use std::{collections::BTreeMap, fmt};

use resources::{
    kinds::target_ref::{ProxyType, TargetRef, TargetRefKind},
    labels,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::legacy::TagValues;

const ANY: &str = "*";

/// The tags that a selector asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "TagValues")]
pub struct Tags {
    /// `None` for every service.
    pub service: Option<String>,
    /// Other tags that it asks for.
    pub others: BTreeMap<String, String>,
}

/// Reason why tags cannot be referred to.
#[derive(Debug)]
pub enum NoReference {
    /// A tag may have any value.
    AnyValue { tag: String },
    /// Not a service as a whole.
    PartOfService { tags: BTreeMap<String, String> },
    /// A destination that must be one service is every service.
    EveryService,
    /// A route that does not say where traffic goes.
    NoBackend,
}

impl fmt::Display for NoReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoReference::AnyValue { tag } => write!(f, "no reference can match a tag {tag:?} with any value"),
            NoReference::PartOfService { tags } => write!(
                f,
                "no policy is about a part of the destinations, such as those with {tags:?}: a MeshService can be"
            ),
            NoReference::EveryService => {
                f.write_str("a destination must be one service: kuma.io/service \"*\" names none")
            }
            NoReference::NoBackend => f.write_str("a route must say which service traffic goes to"),
        }
    }
}

/// Backend of a route.
#[derive(Debug, Serialize)]
pub struct WeightedBackend {
    #[serde(flatten)]
    target: TargetRef,
    /// As it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<Value>,
}

impl From<TagValues> for Tags {
    fn from(mut others: TagValues) -> Tags {
        let service = others.remove(labels::SERVICE).filter(|service| service != ANY);
        Tags { service, others }
    }
}

impl Tags {
    pub fn is_everything(&self) -> bool {
        self.service.is_none() && self.others.is_empty()
    }

    /// The proxies or clients that have the tags.
    pub fn reference(&self) -> Result<TargetRef, NoReference> {
        self.check()?;
        let kind = match (&self.service, self.others.is_empty()) {
            (None, true) => TargetRefKind::Mesh,
            (None, false) => TargetRefKind::MeshSubset,
            (Some(_), true) => TargetRefKind::MeshService,
            (Some(_), false) => TargetRefKind::MeshServiceSubset,
        };
        let tags = Some(self.others.clone()).filter(|tags| !tags.is_empty());
        Ok(TargetRef { kind, name: self.service.clone(), tags, ..TargetRef::default() })
    }

    /// The proxies of applications that have the tags.
    pub fn sidecars(&self) -> Result<TargetRef, NoReference> {
        let proxy_types = self.service.is_none().then(|| vec![ProxyType::Sidecar]);
        Ok(TargetRef { proxy_types, ..self.reference()? })
    }

    /// Reference to the called service, for `to`. `everything` says whether the policy may be about all
    /// destinations.
    pub fn destination(&self, everything: bool) -> Result<TargetRef, NoReference> {
        let target = self.reference()?;
        match target.kind {
            TargetRefKind::Mesh if !everything => Err(NoReference::EveryService),
            TargetRefKind::Mesh | TargetRefKind::MeshService => Ok(target),
            _ => Err(NoReference::PartOfService { tags: self.others.clone() }),
        }
    }

    /// Backend of a route.
    pub fn backend(&self, weight: Option<Value>) -> Result<WeightedBackend, NoReference> {
        let target = self.reference()?;
        if self.service.is_none() {
            return Err(NoReference::NoBackend);
        }
        Ok(WeightedBackend { target, weight })
    }

    fn check(&self) -> Result<(), NoReference> {
        match self.others.iter().find(|(_, value)| *value == ANY) {
            Some((tag, _)) => Err(NoReference::AnyValue { tag: tag.clone() }),
            None => Ok(()),
        }
    }
}
