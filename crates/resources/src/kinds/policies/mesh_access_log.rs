//! Access logs: what proxies log about requests and connections, and where.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kinds::{
    checks,
    directions::Directions,
    entry::{Entry, EntryDescription, InEntry, InRule, Rule},
    mesh_open_telemetry_backend::Conditions,
    target_ref::{self, Allowed, Match, TargetRef, TargetRefKind as K},
};
use crate::{
    Path, Schema, Subject, Violations,
    policy::{MESH_ACCESS_LOG, Policy},
};

mod backend;
pub mod format;

pub use backend::{
    Attribute, Backend, BackendType, FileBackend, Format, FormatType, JsonValue, OpenTelemetryBackend,
    TcpBackend,
};

/// Access logs of outgoing (`to`) and incoming (`rules`, `from`) traffic.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshAccessLog {
    /// The proxies that log; all of the mesh by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Logs of outgoing traffic, by destination.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<Entry<Conf>>,
    /// Logs of incoming traffic; deprecated, use `rules`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<Entry<Conf>>,
    /// Logs of incoming traffic, by client.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule<Conf>>,
}

/// Backends of logs; an empty list switches them off.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Conf {
    /// Backends of log lines; each backend gets every line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backends: Option<Vec<Backend>>,
}

impl InEntry for Conf {
    const ENTRY: EntryDescription =
        EntryDescription { name: "Entry", about: "The logs of traffic to or from what a reference names." };
    const REQUIRED: &'static [&'static str] = &["default", "targetRef"];
}

impl InRule for Conf {
    const RULE: EntryDescription = EntryDescription {
        name: "Rule",
        about: "The logs of incoming traffic, optionally only of certain clients.",
    };
    const REQUIRED: &'static [&'static str] = &["default"];
}

impl Conf {
    fn validate(&self, path: &Path, found: &mut Violations) {
        let Some(backends) = &self.backends else {
            found.add(path.field("backends"), checks::MUST_BE_DEFINED);
            return;
        };
        for (i, backend) in backends.iter().enumerate() {
            backend.validate(&path.field("backends").index(i), found);
        }
    }

    fn apply_defaults(&mut self) {
        self.backends.iter_mut().flatten().for_each(Backend::apply_defaults);
    }
}

impl MeshAccessLog {
    fn directions(&self) -> Directions<'_, Rule<Conf>, Entry<Conf>> {
        Directions { top: self.target_ref.as_ref(), rules: &self.rules, to: &self.to, from: &self.from }
    }

    fn confs(&self) -> impl Iterator<Item = &Conf> {
        let entries = self.to.iter().chain(&self.from).map(|entry| &entry.default);
        entries.chain(self.rules.iter().map(|rule| &rule.default))
    }

    fn validate_entries(&self, spec: &Path, found: &mut Violations) {
        let of_gateways = *target_ref::top_kind(self.target_ref.as_ref()) == K::MeshGateway;
        let allowed = if of_gateways { Allowed::kinds(&[K::Mesh]) } else { Allowed::of(MESH_ACCESS_LOG.to) };
        for (i, to) in self.to.iter().enumerate() {
            let path = spec.field("to").index(i);
            to.target_ref.validate(allowed, &path.field("targetRef"), found);
            to.default.validate(&path.field("default"), found);
        }
        for (i, from) in self.from.iter().enumerate() {
            let path = spec.field("from").index(i);
            from.target_ref.validate(Allowed::of(MESH_ACCESS_LOG.from), &path.field("targetRef"), found);
            from.default.validate(&path.field("default"), found);
        }
        for (i, rule) in self.rules.iter().enumerate() {
            let path = spec.field("rules").index(i);
            Match::validate_all(rule.matches.as_deref().unwrap_or_default(), &path.field("matches"), found);
            rule.default.validate(&path.field("default"), found);
        }
    }
}

impl Policy for MeshAccessLog {
    type To = Conf;

    fn target_ref(&self) -> Option<&TargetRef> {
        self.target_ref.as_ref()
    }
}

impl Schema for MeshAccessLog {
    type Status = Conditions;

    fn apply_defaults(&mut self) {
        self.to.iter_mut().chain(&mut self.from).for_each(|entry| entry.default.apply_defaults());
        self.rules.iter_mut().for_each(|rule| rule.default.apply_defaults());
    }

    fn validate(&self, subject: Subject<'_>, found: &mut Violations) {
        let spec = Path::new("spec");
        self.directions().validate(subject, MESH_ACCESS_LOG, &spec, found);
        self.directions().require_one(&spec, found);
        self.validate_entries(&spec, found);
    }

    fn warnings(&self) -> Vec<String> {
        let backends = self.confs().flat_map(|conf| conf.backends.iter().flatten());
        let inline = backends
            .filter_map(|backend| backend.open_telemetry.as_ref())
            .any(|backend| backend.endpoint.is_some());
        let deprecated =
            "'openTelemetry.endpoint' field is deprecated, use 'openTelemetry.backendRef' instead".to_owned();
        self.directions().warnings().into_iter().chain(inline.then_some(deprecated)).collect()
    }
}

#[cfg(test)]
mod tests;
