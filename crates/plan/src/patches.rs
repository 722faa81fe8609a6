//! Changes that are made to a proxy's finished configuration: the last of all policies, and the only one that is
//! no input of anything planned here.

mod renamed;

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use resources::{
    Kind,
    kinds::mesh_proxy_patch::{Conf, Modification},
    naming::Kri,
};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::{Code, Effective, Finding};

pub use renamed::same_name;
pub(crate) use renamed::{of_calls, of_own};

/// Modifications of a finished configuration, in the order in which they are made.
#[derive(Clone)]
pub struct Patches {
    said: Arc<PatchPolicies>,
    /// The policies they come from, lowest precedence first, each with how many it has.
    origins: Vec<(Kri, usize)>,
}

/// Merged policies, read once for all proxies that they select.
struct PatchPolicies {
    modifications: Vec<Modification>,
    /// Of everything they say: modifications can be compared by it.
    digest: [u64; 2],
}

impl<'de> Deserialize<'de> for PatchPolicies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PatchPolicies, D::Error> {
        let conf = Value::deserialize(deserializer)?;
        let text = conf.to_string();
        let digest = [0u8, 1].map(|seed| {
            let mut hasher = DefaultHasher::new();
            (seed, &text).hash(&mut hasher);
            hasher.finish()
        });
        let conf: Conf = serde_json::from_value(conf).map_err(serde::de::Error::custom)?;
        Ok(PatchPolicies { modifications: conf.append_modifications.unwrap_or_default(), digest })
    }
}

impl Patches {
    /// Those of a proxy, or of a class of proxies; `None` for most.
    pub(crate) fn of(effective: &Effective<'_>, findings: &mut Vec<Finding>) -> Option<Patches> {
        let merged = effective.proxy(Kind::MeshProxyPatch)?;
        match merged.typed::<PatchPolicies>() {
            Ok(said) => {
                let policies = effective.policies(Kind::MeshProxyPatch).iter();
                let count = |conf: &Value| {
                    conf.get("appendModifications").and_then(Value::as_array).map_or(0, Vec::len)
                };
                let origins = policies.filter_map(|policy| {
                    let conf = policy.view.default.as_ref()?;
                    Some((policy.view.kri.clone(), count(&conf.value)))
                });
                Some(Patches { said, origins: origins.collect() })
            }
            Err(reason) => {
                findings.push(Finding::new(Code::UnreadablePolicy, reason));
                None
            }
        }
    }

    pub fn modifications(&self) -> &[Modification] {
        &self.said.modifications
    }

    /// The policy that a modification comes from, and its place there.
    pub fn origin(&self, at: usize) -> (Option<&Kri>, usize) {
        let mut place = at;
        for (policy, count) in &self.origins {
            if place < *count {
                return (Some(policy), place);
            }
            place -= count;
        }
        (None, at)
    }

    fn finding(&self, code: Code, at: usize, text: &str) -> Finding {
        let (policy, place) = self.origin(at);
        let text = format!("appendModifications[{place}] {text}");
        match policy {
            Some(policy) => Finding::about(code, policy.clone(), text),
            None => Finding::new(code, text),
        }
    }
}

impl fmt::Debug for Patches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patches").field("modifications", &self.said.modifications).finish_non_exhaustive()
    }
}

impl PartialEq for Patches {
    fn eq(&self, other: &Patches) -> bool {
        self.said.digest == other.said.digest && self.origins == other.origins
    }
}

impl Eq for Patches {}

/// Leaves out their origins, which change nothing in what they do.
impl Hash for Patches {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.said.digest.hash(state);
    }
}
