//! Selectors by tags, as references.

use std::collections::BTreeMap;

use resources::labels;
use serde_json::{Value, json};

const ANY: &str = "*";

/// The tags that a selector asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tags {
    /// `None` for every service.
    pub service: Option<String>,
    /// Other tags that it asks for.
    pub others: BTreeMap<String, String>,
}

impl Tags {
    pub fn of(tags: &Value) -> Tags {
        let all = tags.as_object().into_iter().flatten();
        let all = all.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
        let mut others: BTreeMap<String, String> = all.collect();
        let service = others.remove(labels::SERVICE).filter(|service| service != ANY);
        Tags { service, others }
    }

    pub fn is_everything(&self) -> bool {
        self.service.is_none() && self.others.is_empty()
    }

    /// The proxies or clients that have the tags. The error is why they cannot be referred to.
    pub fn reference(&self) -> Result<Value, String> {
        self.check()?;
        Ok(match (&self.service, self.others.is_empty()) {
            (None, true) => json!({ "kind": "Mesh" }),
            (None, false) => json!({ "kind": "MeshSubset", "tags": self.others }),
            (Some(service), true) => json!({ "kind": "MeshService", "name": service }),
            (Some(service), false) => {
                json!({ "kind": "MeshServiceSubset", "name": service, "tags": self.others })
            }
        })
    }

    /// The proxies of applications that have the tags.
    pub fn sidecars(&self) -> Result<Value, String> {
        let mut target = self.reference()?;
        if self.service.is_none() {
            target["proxyTypes"] = json!(["Sidecar"]);
        }
        Ok(target)
    }

    /// Reference to the called service, for `to`. `everything` says whether the policy may be about all
    /// destinations.
    pub fn destination(&self, everything: bool) -> Result<Value, String> {
        self.check()?;
        match (&self.service, self.others.is_empty()) {
            (None, true) if everything => Ok(json!({ "kind": "Mesh" })),
            (Some(service), true) => Ok(json!({ "kind": "MeshService", "name": service })),
            (None, true) => {
                Err("a destination must be one service: kuma.io/service \"*\" names none".to_owned())
            }
            _ => Err(format!(
                "no policy is about a part of the destinations, such as those with {:?}: a MeshService can be",
                self.others
            )),
        }
    }

    /// Backend of a route.
    pub fn backend(&self, weight: Option<&Value>) -> Result<Value, String> {
        let mut backend = self.reference()?;
        if self.service.is_none() {
            return Err("a route must say which service traffic goes to".to_owned());
        }
        if let Some(weight) = weight {
            backend["weight"] = weight.clone();
        }
        Ok(backend)
    }

    fn check(&self) -> Result<(), String> {
        match self.others.iter().find(|(_, value)| *value == ANY) {
            Some((name, _)) => Err(format!("no reference can match a tag {name:?} with any value")),
            None => Ok(()),
        }
    }
}
