//! Routes of TCP connections.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kinds::{
    checks,
    entry::{Always, EntryDescription, InRule},
    target_ref::{self, Allowed, BackendRef, TargetRef, TargetRefKind as K},
};
use crate::{
    NoStatus, Path, PolicyTraits, Schema, Subject, Violations,
    policy::{MESH_TCP_ROUTE, Policy},
};

const BACKENDS: &[K] =
    &[K::MeshService, K::MeshServiceSubset, K::MeshExternalService, K::MeshMultiZoneService];

/// Spreads the connections to a service over backends.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshTCPRoute {
    /// The proxies whose connections are routed; all of the mesh by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// The rules, by destination.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub to: Vec<ToEntry>,
}

/// The rules for connections to one destination; without one they go to the destination itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["targetRef", "rules"]))]
pub struct ToEntry {
    /// The service that applications connect to.
    pub target_ref: TargetRef,
    /// Destinations of the connections; at most one rule.
    #[schemars(length(max = 1))]
    pub rules: Vec<Always<RuleConf>>,
}

/// The backends and their weights.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleConf {
    /// Destinations of the connections, by weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_refs: Option<Vec<BackendRef>>,
}

impl InRule for RuleConf {
    const RULE: EntryDescription =
        EntryDescription { name: "Rule", about: "What happens to every connection." };
    const REQUIRED: &'static [&'static str] = &["default"];
}

/// Checks the top-level reference of a route and tells what `to` may name.
pub(super) fn validate_top_of_route(
    traits: PolicyTraits,
    top: Option<&TargetRef>,
    subject: Subject<'_>,
    found: &mut Violations,
) -> Allowed<'static> {
    target_ref::validate_top(top, Allowed::by_role(subject, traits), found);
    let gateway = *target_ref::top_kind(top) == K::MeshGateway;
    if gateway { Allowed::kinds(&[K::Mesh]) } else { Allowed::of(traits.to) }
}

/// Checks the backends of a route's rule.
pub(super) fn validate_backends(backends: &[BackendRef], path: &Path, found: &mut Violations) {
    for (i, backend) in backends.iter().enumerate() {
        backend.validate(BACKENDS, &path.index(i), found);
    }
}

impl MeshTCPRoute {
    /// Every backend that connections may go to.
    pub fn backends(&self) -> impl Iterator<Item = &BackendRef> {
        let rules = self.to.iter().flat_map(|to| &to.rules);
        rules.flat_map(|rule| rule.default.backend_refs.iter().flatten())
    }
}

impl ToEntry {
    fn validate(&self, allowed: Allowed<'_>, path: &Path, found: &mut Violations) {
        self.target_ref.validate(allowed, &path.field("targetRef"), found);
        let rules = path.field("rules");
        found.require(self.rules.len() <= 1, &rules, "must have at most 1 item");
        for (i, rule) in self.rules.iter().enumerate() {
            let path = rules.index(i).field("default").field("backendRefs");
            let backends = rule.default.backend_refs.as_deref().unwrap_or_default();
            found.require(!backends.is_empty(), &path, checks::MUST_BE_DEFINED);
            validate_backends(backends, &path, found);
        }
    }
}

impl Policy for MeshTCPRoute {
    type To = ToEntry;

    fn target_ref(&self) -> Option<&TargetRef> {
        self.target_ref.as_ref()
    }
}

impl Schema for MeshTCPRoute {
    type Status = NoStatus;

    fn apply_defaults(&mut self) {
        for rule in self.to.iter_mut().flat_map(|to| &mut to.rules) {
            rule.default.backend_refs.iter_mut().flatten().for_each(BackendRef::apply_defaults);
        }
    }

    fn validate(&self, subject: Subject<'_>, found: &mut Violations) {
        let spec = Path::new("spec");
        let allowed = validate_top_of_route(MESH_TCP_ROUTE, self.target_ref.as_ref(), subject, found);
        for (i, to) in self.to.iter().enumerate() {
            to.validate(allowed, &spec.field("to").index(i), found);
        }
    }

    fn warnings(&self) -> Vec<String> {
        target_ref::top_level_warnings(self.target_ref.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{
        Kind,
        kinds::testing::{check, draft, resource, round_trips, valid},
    };

    fn violations(spec: Value, expect: &[(&str, &str)]) {
        check(Kind::MeshTCPRoute, resource(spec), expect);
    }

    #[test]
    fn a_full_route_is_valid_and_survives_a_round_trip() {
        let spec = json!({
            "targetRef": {"kind": "Dataplane", "labels": {"app": "web"}},
            "to": [{
                "targetRef": {"kind": "MeshService", "name": "backend", "sectionName": "tcp"},
                "rules": [{"default": {"backendRefs": [
                    {"kind": "MeshService", "name": "backend-v2", "namespace": "demo", "weight": 90, "port": 80},
                    {"kind": "MeshServiceSubset", "name": "backend", "tags": {"version": "v1"}, "weight": 0},
                    {"kind": "MeshExternalService", "labels": {"app": "ext"}, "weight": 1},
                    {"kind": "MeshMultiZoneService", "name": "backend", "weight": 1, "port": 80}
                ]}}]
            }]
        });
        valid(Kind::MeshTCPRoute, resource(spec.clone()));
        round_trips(Kind::MeshTCPRoute, spec);
        valid(
            Kind::MeshTCPRoute,
            resource(
                json!({"to": [{"targetRef": {"kind": "MeshExternalService", "name": "ext"}, "rules": []}]}),
            ),
        );
    }

    #[test]
    fn a_backend_has_weight_one_unless_given() {
        let spec = json!({"to": [{"targetRef": {"kind": "MeshService", "name": "a"}, "rules": [
            {"default": {"backendRefs": [{"kind": "MeshService", "name": "b"}]}}]}]});
        let stored = draft(Kind::MeshTCPRoute, resource(spec)).spec.to_json();
        assert_eq!(stored["to"][0]["rules"][0]["default"]["backendRefs"][0]["weight"], json!(1));
    }

    #[test]
    fn every_violation_is_reported() {
        violations(
            json!({
                "targetRef": {"kind": "MeshHTTPRoute", "name": "r"},
                "to": [
                    {"targetRef": {"kind": "Mesh"}, "rules": [
                        {"default": {}},
                        {"default": {"backendRefs": [
                            {"kind": "Mesh"}, {"kind": "MeshMultiZoneService", "name": "a"}]}}
                    ]}
                ]
            }),
            &[
                ("spec.targetRef.kind", "value 'MeshHTTPRoute' is not supported"),
                ("spec.to[0].targetRef.kind", "value 'Mesh' is not supported"),
                ("spec.to[0].rules", "must have at most 1 item"),
                ("spec.to[0].rules[0].default.backendRefs", "must be defined"),
                ("spec.to[0].rules[1].default.backendRefs[0].kind", "value 'Mesh' is not supported"),
                (
                    "spec.to[0].rules[1].default.backendRefs[1].port",
                    "must be defined with kind MeshMultiZoneService",
                ),
            ],
        );
    }

    #[test]
    fn a_gateway_routes_what_the_mesh_receives() {
        let gateway = |to: &str| {
            json!({"targetRef": {"kind": "MeshGateway", "name": "edge"},
                   "to": [{"targetRef": {"kind": to}, "rules": []}]})
        };
        violations(gateway("Mesh"), &[]);
        violations(
            gateway("MeshService"),
            &[("spec.to[0].targetRef.kind", "value 'MeshService' is not supported")],
        );
    }
}
