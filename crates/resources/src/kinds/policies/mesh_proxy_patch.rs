//! Changes to the Envoy configuration that no policy offers.
//!
//! Values are Envoy resources in YAML. Here their syntax is checked, and that what is added has a name;
//! whether Envoy knows the fields shows when the patch is applied to a proxy.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::IgnoredAny};
use serde_json::Value;

use crate::kinds::{
    checks,
    open_enum::open_enum,
    target_ref::{self, Allowed, TargetRef},
};
use crate::{
    NoStatus, Path, Schema, Subject, Violations,
    policy::{MESH_PROXY_PATCH, Policy},
};

mod operation;

/// Modifications of the configuration of the selected proxies.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["default"]))]
pub struct MeshProxyPatch {
    /// The proxies whose Envoy configuration is changed; all of the mesh by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// The changes.
    pub default: Conf,
}

/// The modifications, made in order after those of less specific policies.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Conf {
    /// The changes, in this order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_modifications: Option<Vec<Modification>>,
}

/// One modification; exactly one of the fields is given.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Modification {
    /// A change to clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Change<ClusterMatch>>,
    /// A change to listeners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener: Option<Change<ListenerMatch>>,
    /// A change to network filters of listeners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_filter: Option<Change<FilterMatch>>,
    /// A change to HTTP filters of listeners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_filter: Option<Change<FilterMatch>>,
    /// A change to virtual hosts of routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_host: Option<Change<VirtualHostMatch>>,
}

/// Operation, and the Envoy resources that it changes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(bound = "M: JsonSchema + PatchMatch", extend("required" = M::REQUIRED))]
pub struct Change<M> {
    /// Match of the Envoy resources to change; all by default.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    pub match_: Option<M>,
    /// Operation on the matching resources.
    #[serde(default)]
    #[schemars(extend("enum" = M::OPERATIONS))]
    pub operation: Operation,
    /// The Envoy resource in YAML that is added, or merged into those that match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Steps of a JSON patch; for operation `Patch` in place of `value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json_patches: Option<Vec<JsonPatch>>,
}

open_enum! {
    /// Operation on the matching resources; filters are ordered, so they can be added in several ways.
    Operation {
        Add = "Add",
        Remove = "Remove",
        Patch = "Patch",
        AddFirst = "AddFirst",
        AddBefore = "AddBefore",
        AddAfter = "AddAfter",
        AddLast = "AddLast",
    }
}

/// Constraints on changes of one sort of Envoy resources.
pub trait PatchMatch {
    /// The operations it may be.
    const OPERATIONS: &'static [&'static str] = &["Add", "Remove", "Patch"];
    const REQUIRED: &'static [&'static str] = &["operation"];
}

impl PatchMatch for ClusterMatch {}

impl PatchMatch for ListenerMatch {}

impl PatchMatch for FilterMatch {
    const OPERATIONS: &'static [&'static str] =
        &["Remove", "Patch", "AddFirst", "AddBefore", "AddAfter", "AddLast"];
}

impl PatchMatch for VirtualHostMatch {
    const REQUIRED: &'static [&'static str] = &["match", "operation"];
}

/// Match of clusters; `origin` is the component that made the resource.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterMatch {
    /// Component that made the cluster, such as `inbound` or `outbound`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The cluster's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Match of listeners; `tags` are those in the listener's `io.kuma.tags` metadata.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerMatch {
    /// Component that made the listener, such as `inbound` or `outbound`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The listener's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Tags in the listener's `io.kuma.tags` metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
}

/// Match of network or HTTP filters, and of their listeners.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FilterMatch {
    /// Component that made the listener of the filter, such as `inbound` or `outbound`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The filter's name, such as `envoy.filters.http.router`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The name of the filter's listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener_name: Option<String>,
    /// Tags in the `io.kuma.tags` metadata of the filter's listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener_tags: Option<BTreeMap<String, String>>,
}

/// Match of virtual hosts, and of their route configurations.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualHostMatch {
    /// Component that made the listener of the virtual host, such as `inbound` or `outbound`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The virtual host's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The name of the route configuration that the virtual host is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route_configuration_name: Option<String>,
}

/// One step of a JSON patch (RFC 6902).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["op", "path"]))]
pub struct JsonPatch {
    /// Operation of the step.
    pub op: JsonPatchOp,
    /// The place that is changed, as a JSON pointer such as `/connectTimeout`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The new value, which may be `null`; for `add` and `replace`.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub value: Option<Value>,
    /// The place that is moved or copied, as a JSON pointer; for `move` and `copy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// Any value that is there, `null` included.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

open_enum! {
    /// Operation of a step.
    JsonPatchOp { Add = "add", Remove = "remove", Replace = "replace", Move = "move", Copy = "copy" }
}

impl Modification {
    fn validate(&self, path: &Path, found: &mut Violations) {
        let given = [
            self.cluster.is_some(),
            self.listener.is_some(),
            self.network_filter.is_some(),
            self.http_filter.is_some(),
            self.virtual_host.is_some(),
        ];
        let given = given.iter().filter(|given| **given).count();
        if given != 1 {
            let message = "exactly one modification can be defined at a time.";
            found.add(path, format!("{message} Currently, {given} modifications are defined"));
            return;
        }
        if let Some(change) = &self.cluster {
            change.validate_resource("cluster", change.match_.as_ref().map(|_| "match"), path, found);
        }
        if let Some(change) = &self.listener {
            change.validate_resource("listener", change.match_.as_ref().map(|_| "match"), path, found);
        }
        if let Some(change) = &self.network_filter {
            change.validate_filter("networkFilter", path, found);
        }
        if let Some(change) = &self.http_filter {
            change.validate_filter("httpFilter", path, found);
        }
        if let Some(change) = &self.virtual_host {
            // A virtual host is added to route configurations, so those may be chosen.
            let name = change.match_.as_ref().and_then(|matched| matched.name.as_ref());
            change.validate_resource("virtualHost", name.map(|_| "match.name"), path, found);
        }
    }
}

impl Policy for MeshProxyPatch {
    type To = IgnoredAny;

    fn target_ref(&self) -> Option<&TargetRef> {
        self.target_ref.as_ref()
    }
}

impl Schema for MeshProxyPatch {
    type Status = NoStatus;

    fn validate(&self, subject: Subject<'_>, found: &mut Violations) {
        let spec = Path::new("spec");
        let allowed = Allowed { gateway_listener_tags: false, ..Allowed::by_role(subject, MESH_PROXY_PATCH) };
        target_ref::validate_top(self.target_ref.as_ref(), allowed, found);
        let path = spec.field("default").field("appendModifications");
        let modifications = self.default.append_modifications.as_deref().unwrap_or_default();
        found.require(!modifications.is_empty(), &path, checks::MUST_NOT_BE_EMPTY);
        for (i, modification) in modifications.iter().enumerate() {
            modification.validate(&path.index(i), found);
        }
    }

    fn warnings(&self) -> Vec<String> {
        target_ref::top_level_warnings(self.target_ref.as_ref())
    }
}

#[cfg(test)]
mod tests;
