//! References of policies: `targetRef`, `backendRef`, and matches on a client's identity.
//!
//! The fields that go with a kind are the same everywhere; each policy passes the kinds that it accepts as
//! [`Allowed`].

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kinds::{
    checks,
    open_enum::open_enum,
    tags::{self, Need, Tags},
};
use crate::{Path, PolicyTraits, Subject, Violations, labels, policy::Entries};

mod identity;

pub use identity::{Match, MatchType, SniMatch, SniMatchType, SpiffeIdMatch};

open_enum! {
    /// Kind of the object that a reference names.
    TargetRefKind {
        Mesh = "Mesh",
        MeshSubset = "MeshSubset",
        MeshGateway = "MeshGateway",
        MeshService = "MeshService",
        MeshExternalService = "MeshExternalService",
        MeshMultiZoneService = "MeshMultiZoneService",
        MeshServiceSubset = "MeshServiceSubset",
        MeshHttpRoute = "MeshHTTPRoute",
        Dataplane = "Dataplane",
    }
}

open_enum! {
    /// Sort of proxies that a policy applies to.
    ProxyType { Sidecar = "Sidecar", Gateway = "Gateway" }
}

/// Reference to the object that a policy or one of its entries applies to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["kind"]))]
pub struct TargetRef {
    /// The kind of what is referred to; `Mesh` for everything in the mesh.
    #[serde(skip_serializing_if = "TargetRefKind::is_absent")]
    pub kind: TargetRefKind,
    /// The name of the resource; not together with `labels`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Tags that inbounds must have; for the kinds MeshSubset and MeshServiceSubset, which `labels` of a
    /// Dataplane replace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
    /// Kept for compatibility: a reference stays in the mesh of its resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    /// Sorts of proxies that a `Mesh` or MeshSubset selects; sidecars and gateways by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub proxy_types: Option<Vec<ProxyType>>,
    /// The Kubernetes namespace of the resource; that of the policy by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Labels that the resources must have, all of them; selects several resources by one reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// The name or number of a port: of a service in `to`, of an inbound at the top of a policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section_name: Option<String>,
}

/// Destination of a route: a reference with a share of the traffic and a port.
// It repeats the fields of `TargetRef` because serde's `flatten` swallows unknown fields, which users must be warned
// about. `BackendRef::target_ref` does not compile when one is forgotten.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["kind"]))]
pub struct BackendRef {
    /// The kind of the destination.
    #[serde(skip_serializing_if = "TargetRefKind::is_absent")]
    pub kind: TargetRefKind,
    /// The name of the destination; not together with `labels`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Tags that endpoints must have; for MeshServiceSubset only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
    /// Kept for compatibility: traffic stays in the mesh of the route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    /// Has no meaning for a destination; kept for compatibility.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub proxy_types: Option<Vec<ProxyType>>,
    /// The Kubernetes namespace of the destination; that of the route by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Labels that the destination must have; of several that have them, the oldest is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// The name of the destination's port; takes precedence over `port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section_name: Option<String>,
    /// The share of the traffic, relative to the other backends; 1 by default. A backend of weight 0 gets
    /// none.
    // Any whole number in Kuma's schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "int64"))]
    pub weight: Option<u32>,
    /// The number of the destination's port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
}

/// References that a policy accepts in one place.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Allowed<'a> {
    pub kinds: &'a [TargetRefKind],
    /// Message about another kind instead of the usual text.
    pub unsupported: Option<&'a str>,
    /// Tags may narrow a MeshGateway to listeners.
    pub gateway_listener_tags: bool,
    /// The policy configures inbounds, so that a reference may name one of them.
    pub inbound_policy: bool,
}

impl<'a> Allowed<'a> {
    pub fn kinds(kinds: &'a [TargetRefKind]) -> Self {
        Allowed { kinds, ..Allowed::default() }
    }

    /// In the entries of a policy.
    pub fn of(entries: Option<Entries>) -> Self {
        Allowed::kinds(entries.map_or(&[], |entries| entries.targets))
    }

    /// At the top of a policy, of any role.
    pub fn at_top(traits: PolicyTraits) -> Self {
        Allowed::kinds(traits.top.map_or(&[], |top| top.any_role))
    }

    /// At the top of a policy: only the system may select gateways, and then single listeners of them.
    pub fn by_role(subject: Subject<'_>, traits: PolicyTraits) -> Self {
        // Policies outside Kubernetes namespaces have no role; they come from the system.
        let system = subject.labels.get(labels::POLICY_ROLE).is_none_or(|role| role == "system");
        let kinds = traits.top.map_or(&[][..], |top| if system { top.system } else { top.any_role });
        Allowed { kinds, gateway_listener_tags: system, ..Allowed::default() }
    }
}

impl TargetRef {
    pub fn mesh() -> Self {
        TargetRef { kind: TargetRefKind::Mesh, ..TargetRef::default() }
    }

    /// True if the reference can select proxies that are gateways.
    pub fn includes_gateways(&self) -> bool {
        match self.kind {
            TargetRefKind::MeshGateway | TargetRefKind::MeshHttpRoute => true,
            TargetRefKind::Mesh | TargetRefKind::MeshSubset => {
                let types = self.proxy_types.as_deref().unwrap_or_default();
                types.is_empty() || types.contains(&ProxyType::Gateway)
            }
            _ => false,
        }
    }

    pub(crate) fn validate(&self, allowed: Allowed<'_>, path: &Path, found: &mut Violations) {
        if self.kind.is_absent() {
            found.add(path.field("kind"), checks::MUST_BE_DEFINED);
            return;
        }
        if !allowed.kinds.contains(&self.kind) {
            let usual = || format!("value '{}' is not supported", self.kind);
            found.add(path.field("kind"), allowed.unsupported.map_or_else(usual, str::to_owned));
            return;
        }
        self.validate_fields(allowed, path, found);
        if let Some(types) = &self.proxy_types {
            found.require(!types.is_empty(), path.field("proxyTypes"), checks::MUST_NOT_BE_EMPTY);
            for proxy_type in types {
                checks::known(proxy_type, path, "proxyTypes", found);
            }
        }
    }

    /// Checks an entry of `to` against the top of its policy: one for a MeshExternalService is not for proxies that
    /// are chosen by tags.
    pub(crate) fn check_shared(&self, top: &TargetRefKind, path: &Path, found: &mut Violations) {
        let shared = self.kind == TargetRefKind::MeshExternalService;
        let by_tags = !matches!(top, TargetRefKind::Mesh | TargetRefKind::Dataplane);
        found.require(!(shared && by_tags), path.field("kind"), checks::EXTERNAL_FOR_ALL);
    }

    fn validate_fields(&self, allowed: Allowed<'_>, path: &Path, found: &mut Violations) {
        use TargetRefKind as K;
        match self.kind {
            K::Mesh => {
                if is_given(self.name.as_deref()) {
                    found.add(path.field("name"), "using name with kind Mesh is not yet supported");
                }
                self.forbid(&["mesh", "tags", "labels", "namespace", "sectionName"], path, found);
            }
            K::Dataplane => {
                self.forbid(&["tags", "mesh", "proxyTypes"], path, found);
                self.labels_or_name("either labels or name and namespace must be specified", path, found);
                if !allowed.inbound_policy && is_given(self.section_name.as_deref()) {
                    found.add(path.field("sectionName"), "can only be used with inbound policies");
                }
            }
            K::MeshSubset => {
                self.forbid(&["name", "mesh"], path, found);
                if let Some(tags) = &self.tags {
                    tags::check_tags(tags, Need::Nothing, &path.field("tags"), found);
                }
                self.forbid(&["labels", "namespace", "sectionName"], path, found);
            }
            K::MeshService | K::MeshHttpRoute => {
                self.validate_name(path, found);
                self.forbid(&["mesh", "tags", "proxyTypes"], path, found);
                self.require_name_or_labels(path, found);
                self.labels_or_name("either labels or name and namespace must be specified", path, found);
                if self.kind == K::MeshHttpRoute {
                    self.forbid(&["sectionName"], path, found);
                }
            }
            K::MeshServiceSubset | K::MeshGateway => {
                self.require_name(path, found);
                self.validate_name(path, found);
                self.forbid(&["mesh", "proxyTypes"], path, found);
                if self.kind == K::MeshGateway && !allowed.gateway_listener_tags {
                    self.forbid(&["tags"], path, found);
                } else if let Some(tags) = &self.tags {
                    tags::check_selector(tags, Need::Nothing, &path.field("tags"), found);
                }
                self.forbid(&["labels", "namespace", "sectionName"], path, found);
            }
            K::MeshExternalService => {
                self.validate_name(path, found);
                self.forbid(&["mesh", "tags", "proxyTypes"], path, found);
                self.require_name_or_labels(path, found);
                self.labels_or_name("either labels or name must be specified", path, found);
                self.forbid(&["sectionName"], path, found);
            }
            K::MeshMultiZoneService | K::Other(_) => {}
        }
    }

    fn is_set(&self, field: &str) -> bool {
        match field {
            "name" => is_given(self.name.as_deref()),
            "namespace" => is_given(self.namespace.as_deref()),
            "mesh" => is_given(self.mesh.as_deref()),
            "sectionName" => is_given(self.section_name.as_deref()),
            "tags" => self.tags.as_ref().is_some_and(|tags| !tags.is_empty()),
            "labels" => self.labels.as_ref().is_some_and(|labels| !labels.is_empty()),
            "proxyTypes" => self.proxy_types.as_ref().is_some_and(|types| !types.is_empty()),
            _ => false,
        }
    }

    fn forbid(&self, fields: &[&str], path: &Path, found: &mut Violations) {
        for field in fields {
            if self.is_set(field) {
                found.add(path.field(field), format!("{} with kind {}", checks::MUST_NOT_BE_SET, self.kind));
            }
        }
    }

    fn require_name(&self, path: &Path, found: &mut Violations) {
        if !self.is_set("name") {
            found.add(path.field("name"), format!("{} when kind is {}", checks::MUST_BE_SET, self.kind));
        }
    }

    fn require_name_or_labels(&self, path: &Path, found: &mut Violations) {
        found.require(self.is_set("labels") || self.is_set("name"), path, "name or labels must be set");
    }

    fn labels_or_name(&self, message: &str, path: &Path, found: &mut Violations) {
        if self.is_set("labels") && (self.is_set("name") || self.is_set("namespace")) {
            found.add(path.field("labels"), message);
        }
    }

    fn validate_name(&self, path: &Path, found: &mut Violations) {
        let name = self.name.as_deref().unwrap_or_default();
        let valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'_');
        found.require(
            name.bytes().all(valid),
            path.field("name"),
            "invalid characters: must consist of lower case alphanumeric characters, '-', '.' and '_'.",
        );
    }
}

impl BackendRef {
    /// The reference without weight and port.
    pub fn target_ref(&self) -> TargetRef {
        TargetRef {
            kind: self.kind.clone(),
            name: self.name.clone(),
            tags: self.tags.clone(),
            mesh: self.mesh.clone(),
            proxy_types: self.proxy_types.clone(),
            namespace: self.namespace.clone(),
            labels: self.labels.clone(),
            section_name: self.section_name.clone(),
        }
    }

    /// The tags of the inbounds that are meant, where the reference may be to a `kuma.io/service` instead of a
    /// port of a resource.
    pub fn service_tags(&self) -> Option<Tags> {
        let resource = self.port.is_some() || is_given(self.section_name.as_deref());
        let by_tags = match self.kind {
            TargetRefKind::MeshServiceSubset => true,
            TargetRefKind::MeshService => !resource,
            _ => false,
        };
        let service = self.name.clone().filter(|name| by_tags && !name.is_empty())?;
        let mut tags = self.tags.clone().unwrap_or_default();
        tags.insert(labels::SERVICE.to_owned(), service);
        Some(tags)
    }

    pub(crate) fn apply_defaults(&mut self) {
        self.weight.get_or_insert(1);
    }

    pub(crate) fn validate(&self, kinds: &[TargetRefKind], path: &Path, found: &mut Violations) {
        self.target_ref().validate(Allowed::kinds(kinds), path, found);
        if self.kind == TargetRefKind::MeshMultiZoneService && self.port.is_none() {
            let message = format!("{} with kind MeshMultiZoneService", checks::MUST_BE_DEFINED);
            found.add(path.field("port"), message);
        }
    }
}

fn is_given(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

/// Checks the reference at the top of a policy, `spec.targetRef`.
pub(crate) fn validate_top(top: Option<&TargetRef>, allowed: Allowed<'_>, found: &mut Violations) {
    if let Some(top) = top {
        top.validate(allowed, &Path::new("spec").field("targetRef"), found);
    }
}

/// The kind a policy without a top-level reference has.
pub(crate) fn top_kind(top: Option<&TargetRef>) -> &TargetRefKind {
    top.map_or(&TargetRefKind::Mesh, |top| &top.kind)
}

/// Warnings about references that a policy should no longer use at its top.
pub(crate) fn top_level_warnings(top: Option<&TargetRef>) -> Vec<String> {
    use TargetRefKind as K;
    let Some(TargetRef { kind, .. }) = top else { return Vec::new() };
    match kind {
        K::MeshService | K::MeshServiceSubset | K::MeshSubset => {
            vec![format!(
                "{kind} value for 'targetRef.kind' is deprecated, use Dataplane with labels instead"
            )]
        }
        K::MeshHttpRoute => vec![format!(
            "{kind} value for 'targetRef.kind' is deprecated, use {kind} in spec.to[].targetRef"
        )],
        K::MeshGateway => {
            vec![format!(
                "{kind} value for 'targetRef.kind' selects no proxy: there are no built-in gateways"
            )]
        }
        _ => Vec::new(),
    }
}

/// The warning about `from`, which `rules` replaced.
pub(crate) fn from_warning<T>(from: &[T]) -> Option<String> {
    (!from.is_empty()).then(|| "'from' field is deprecated, use 'rules' instead".to_owned())
}

#[cfg(test)]
mod tests;
