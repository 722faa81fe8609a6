//! What a set of changes would do: the question, and the parts of the answer.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use resources::{Key, Resource};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::reach::Verdict;
use crate::gates::Asking;

/// Changes that were admitted and are not made, and what to report about them.
#[derive(Debug, Clone)]
pub struct Hypothesis {
    /// Each key once, with what it would be; `None` for what would be gone.
    pub changes: Vec<(Key, Option<Arc<Resource>>)>,
    pub diffs: Diffs,
    pub asker: Asker,
}

/// Who waits for an answer. Cloned into the work for it, which keeps its turn until it has ended.
#[derive(Debug, Clone, Default)]
pub struct Asker {
    gone: Arc<AtomicBool>,
    _turn: Option<Arc<Asking>>,
}

impl Asker {
    pub(crate) fn with(turn: Asking) -> Asker {
        Asker { gone: Arc::default(), _turn: Some(Arc::new(turn)) }
    }

    /// Becomes true when no caller waits any more: then the work ends early.
    pub fn gone(&self) -> Arc<AtomicBool> {
        self.gone.clone()
    }

    /// Says that no caller waits any more when this is dropped, which also happens when a client closes its connection.
    pub(crate) fn waiting(&self) -> Waiting {
        Waiting(self.gone.clone())
    }
}

/// Somebody who waits for an answer, until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The proxies whose configuration is to be shown as a difference.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Diffs {
    #[default]
    None,
    /// Those of these names in this mesh.
    Of { mesh: String, names: BTreeSet<String> },
    /// As many as are listed.
    All,
}

impl Diffs {
    pub fn wants(&self, mesh: &str, name: &str) -> bool {
        match self {
            Diffs::None => false,
            Diffs::Of { mesh: wanted, names } => wanted == mesh && names.contains(name),
            Diffs::All => true,
        }
    }
}

/// What changes would come to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "WhatIfConsequences")]
pub struct Consequences {
    pub proxies: Proxies,
    /// What proxies would ask for and could not have, and do not ask for now.
    pub problems: Vec<Problem>,
    pub edges: Edges,
    /// Policies that would select no proxy, or would have no effect beside others, and do not do so now.
    pub policies: Vec<Idle>,
    /// What the answer says nothing about, because the work for one question is bounded: a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_looked_at: Vec<String>,
}

/// The proxies that would get another configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "WhatIfProxies")]
pub struct Proxies {
    /// How many are connected to this control plane. Others are not looked at.
    pub connected: usize,
    /// How many of them would have to look again, because they read something that would change.
    pub affected: usize,
    /// How many of those were compared. The work for one answer is limited.
    pub compared: usize,
    /// How many of those would get another configuration.
    pub changed: usize,
    /// Those, by what would change.
    pub classes: Vec<Class>,
    /// What was asked for with `diff`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub diffs: Vec<Diff>,
}

/// Proxies of which the same would change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "WhatIfClass")]
pub struct Class {
    pub mesh: String,
    /// Some of them, by name.
    pub proxies: Vec<String>,
    pub count: usize,
    pub added: usize,
    pub changed: usize,
    pub removed: usize,
    /// What these resources take in a response to one proxy.
    pub bytes_before: usize,
    pub bytes_after: usize,
    /// As they are in the first of the proxies.
    pub resources: Vec<ResourceChange>,
    /// Whether there are more resources than are listed.
    pub truncated: bool,
}

/// One of Envoy's resources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "WhatIfResource")]
pub struct ResourceChange {
    /// `cluster`, `endpoint`, `listener` or `route`.
    pub r#type: &'static str,
    pub name: String,
    pub action: ResourceAction,
    /// Sizes in bytes; 0 where there is none.
    pub before: usize,
    pub after: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "WhatIfResourceAction")]
pub enum ResourceAction {
    Added,
    Changed,
    Removed,
}

/// What would change in the configuration of one proxy.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "WhatIfDiff")]
pub struct Diff {
    pub mesh: String,
    pub name: String,
    /// A JSON patch (RFC 6902) of what `_config` shows: every value that goes is named by a `test` before it.
    pub patch: Vec<Value>,
}

/// Something that would be wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "WhatIfProblem")]
pub struct Problem {
    pub code: &'static str,
    /// The resource it is about; `null` for the Dataplane of the proxy.
    pub about: Option<String>,
    pub text: String,
    pub mesh: String,
    /// One of the proxies that would have it, and how many would.
    pub proxy: String,
    pub count: usize,
}

/// Who could call whom, and who could not any more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "WhatIfEdges")]
pub struct Edges {
    pub opened: Vec<Edge>,
    pub closed: Vec<Edge>,
    /// Whether there may be more than is listed.
    pub truncated: bool,
}

/// A client and what it calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "WhatIfEdge")]
pub struct Edge {
    pub mesh: String,
    /// The `kuma.io/service` of the client, or the name of its Dataplane.
    pub from: String,
    /// The `kuma.io/service` of the server, or the name of its Dataplane.
    pub to: String,
    /// The inbound that is called, by name or port.
    pub inbound: String,
    /// `null` where one of both does not exist.
    pub before: Option<Verdict>,
    pub after: Option<Verdict>,
    /// The entry of a policy that decides afterwards.
    pub rule: Option<String>,
    pub reason: String,
}

/// A policy that would do nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "WhatIfPolicy")]
pub struct Idle {
    pub r#type: &'static str,
    pub mesh: String,
    pub name: String,
    pub kri: Option<String>,
    pub reason: IdleReason,
    /// In words.
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "WhatIfPolicyReason")]
pub enum IdleReason {
    /// It selects no Dataplane.
    MatchesNothing,
    /// Without it every proxy that it selects would be the same.
    Shadowed,
}
