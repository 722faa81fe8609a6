//! Permissions of clients to call proxies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::IgnoredAny};

use crate::kinds::{
    checks,
    entry::{Always, Entry, EntryDescription, InEntry, InRule},
    open_enum::open_enum,
    target_ref::{self, Allowed, Match, TargetRef, TargetRefKind as K},
};
use crate::{
    NoStatus, Path, Schema, Subject, Violations,
    policy::{MESH_TRAFFIC_PERMISSION, Policy},
};

/// Allows or denies traffic to the selected proxies by who sends it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshTrafficPermission {
    /// The proxies that clients call; all of the mesh by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Clients that are allowed, by the identity in their certificate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Always<RuleConf>>,
    /// Clients that are allowed, by their tags; deprecated, use `rules`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<Entry<Conf>>,
}

/// Lists of clients; `deny` wins over `allow`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleConf {
    /// Clients that are denied, also where another policy allows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deny: Option<Vec<Match>>,
    /// Clients that are allowed and counted as denied, to try a denial out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_with_shadow_deny: Option<Vec<Match>>,
    /// Clients that are allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<Match>>,
}

/// The decision about one group of clients.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Conf {
    /// Action on the traffic of these clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
}

open_enum! {
    /// A shadow denial lets traffic pass and counts it as denied.
    Action { Allow = "Allow", Deny = "Deny", AllowWithShadowDeny = "AllowWithShadowDeny" }
}

impl InEntry for Conf {
    const ENTRY: EntryDescription =
        EntryDescription { name: "FromEntry", about: "What happens to traffic by the tags of the client." };
}

impl InRule for RuleConf {
    const RULE: EntryDescription = EntryDescription {
        name: "Rule",
        about: "What happens to traffic by the identity in the client's certificate.",
    };
}

impl RuleConf {
    fn validate(&self, rule: &Path, found: &mut Violations) {
        let lists = [
            ("allow", &self.allow),
            ("allowWithShadowDeny", &self.allow_with_shadow_deny),
            ("deny", &self.deny),
        ];
        if lists.iter().all(|(_, matches)| matches.as_ref().is_none_or(Vec::is_empty)) {
            found.add(rule, "at least one of 'allow', 'allowWithShadowDeny', 'deny' has to be defined");
        }
        for (field, matches) in lists {
            let matches = matches.as_deref().unwrap_or_default();
            // Kuma leaves `default` out of the path.
            Match::validate_all(matches, &rule.field(field), found);
        }
    }
}

impl Policy for MeshTrafficPermission {
    type To = IgnoredAny;

    fn target_ref(&self) -> Option<&TargetRef> {
        self.target_ref.as_ref()
    }
}

impl Schema for MeshTrafficPermission {
    type Status = NoStatus;

    fn validate(&self, _subject: Subject<'_>, found: &mut Violations) {
        let spec = Path::new("spec");
        let inbound_policy = !self.from.is_empty() || !self.rules.is_empty();
        let allowed = Allowed { inbound_policy, ..Allowed::at_top(MESH_TRAFFIC_PERMISSION) };
        target_ref::validate_top(self.target_ref.as_ref(), allowed, found);
        match (self.from.is_empty(), self.rules.is_empty()) {
            (false, false) => found.add(&spec, "field 'from' must be empty when 'rules' is defined"),
            (true, true) => found.add(&spec, "at least one of 'from' or 'rules' has to be defined"),
            _ => {}
        }
        for (i, rule) in self.rules.iter().enumerate() {
            rule.default.validate(&spec.field("rules").index(i), found);
        }
        for (i, from) in self.from.iter().enumerate() {
            let path = spec.field("from").index(i);
            from.target_ref.validate(
                Allowed::of(MESH_TRAFFIC_PERMISSION.from),
                &path.field("targetRef"),
                found,
            );
            let default = path.field("default");
            match &from.default.action {
                None => found.add(default.field("action"), checks::MUST_BE_DEFINED),
                Some(action) => checks::known(action, &default, "action", found),
            }
        }
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> = target_ref::from_warning(&self.from).into_iter().collect();
        for (i, from) in self.from.iter().enumerate() {
            if from.target_ref.kind == K::MeshService {
                warnings.push(format!(
                    "MeshService value for 'from[{i}].targetRef.kind' is deprecated, \
                     use MeshSubset with 'kuma.io/service' instead"
                ));
            }
            // Kuma accepts them, so they are not refused.
            if from.target_ref.labels.as_ref().is_some_and(|labels| !labels.is_empty()) {
                warnings.push(format!(
                    "clients cannot be identified by 'from[{i}].targetRef.labels': an Allow allows no client \
                     and a Deny denies all, use 'rules' with 'spiffeID' instead"
                ));
            }
        }
        warnings.extend(target_ref::top_level_warnings(self.target_ref.as_ref()));
        warnings
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
        check(Kind::MeshTrafficPermission, resource(spec), expect);
    }

    #[test]
    fn full_examples_are_valid_and_survive_a_round_trip() {
        for spec in [
            json!({
                "targetRef": {"kind": "Dataplane", "labels": {"app": "backend"}, "sectionName": "http"},
                "rules": [{"default": {
                    "deny": [{"spiffeID": {"type": "Exact", "value": "spiffe://default/evil"}}],
                    "allowWithShadowDeny": [{"sni": {"type": "Exact", "value": "backend.mesh"}}],
                    "allow": [{"spiffeID": {"type": "Prefix", "value": "spiffe://default/"},
                               "sni": {"type": "Exact", "value": "backend.mesh"}}]
                }}]
            }),
            json!({
                "targetRef": {"kind": "MeshService", "name": "backend"},
                "from": [
                    {"targetRef": {"kind": "Mesh"}, "default": {"action": "Deny"}},
                    {"targetRef": {"kind": "MeshSubset", "tags": {"kuma.io/zone": "east"}},
                     "default": {"action": "AllowWithShadowDeny"}},
                    {"targetRef": {"kind": "MeshServiceSubset", "name": "web", "tags": {"version": "v1"}},
                     "default": {"action": "Allow"}}
                ]
            }),
        ] {
            valid(Kind::MeshTrafficPermission, resource(spec.clone()));
            round_trips(Kind::MeshTrafficPermission, spec);
        }
    }

    #[test]
    fn one_of_from_and_rules_is_given() {
        let rules = json!([{"default": {"allow": [{"sni": {"type": "Exact", "value": "a"}}]}}]);
        let from = json!([{"targetRef": {"kind": "Mesh"}, "default": {"action": "Allow"}}]);
        violations(json!({}), &[("spec", "at least one of 'from' or 'rules' has to be defined")]);
        violations(
            json!({"from": from, "rules": rules}),
            &[("spec", "field 'from' must be empty when 'rules' is defined")],
        );
        violations(
            json!({"targetRef": {"kind": "Dataplane", "sectionName": "test"}}),
            &[
                ("spec.targetRef.sectionName", "can only be used with inbound policies"),
                ("spec", "at least one of 'from' or 'rules' has to be defined"),
            ],
        );
    }

    #[test]
    fn every_violation_of_from_is_reported() {
        violations(
            json!({
                "targetRef": {"kind": "MeshGateway", "name": "edge"},
                "from": [
                    {"targetRef": {"kind": "MeshHTTPRoute", "name": "r"}, "default": {"action": "Allow"}},
                    {"targetRef": {"kind": "Mesh"}},
                    {"targetRef": {"kind": "Mesh"}, "default": {"action": "Maybe"}}
                ]
            }),
            &[
                ("spec.targetRef.kind", "value 'MeshGateway' is not supported"),
                ("spec.from[0].targetRef.kind", "value 'MeshHTTPRoute' is not supported"),
                ("spec.from[1].default.action", "must be defined"),
                (
                    "spec.from[2].default.action",
                    r#""action" must be one of ["Allow", "Deny", "AllowWithShadowDeny"]"#,
                ),
            ],
        );
    }

    #[test]
    fn every_violation_of_rules_is_reported() {
        violations(
            json!({"rules": [
                {"default": {"deny": []}},
                {"default": {"allow": [{"spiffeID": {"type": "Exact", "value": "web"}}], "deny": [{}]}}
            ]}),
            &[
                ("spec.rules[0]", "at least one of 'allow', 'allowWithShadowDeny', 'deny' has to be defined"),
                (
                    "spec.rules[1].allow[0].spiffeID",
                    "must be a valid Spiffe ID: scheme is missing or invalid",
                ),
                ("spec.rules[1].deny[0]", "must specify at least one of 'spiffeID' or 'sni'"),
            ],
        );
    }

    #[test]
    fn deprecated_parts_and_labels_that_say_nothing_are_warned_about() {
        let spec = json!({
            "targetRef": {"kind": "MeshSubset"},
            "from": [
                {"targetRef": {"kind": "MeshService", "name": "a"}, "default": {"action": "Allow"}},
                {"targetRef": {"kind": "MeshService", "labels": {"a": "b"}}, "default": {"action": "Deny"}}
            ]
        });
        assert_eq!(
            draft(Kind::MeshTrafficPermission, resource(spec)).spec.warnings(),
            [
                "'from' field is deprecated, use 'rules' instead",
                "MeshService value for 'from[0].targetRef.kind' is deprecated, \
                 use MeshSubset with 'kuma.io/service' instead",
                "MeshService value for 'from[1].targetRef.kind' is deprecated, \
                 use MeshSubset with 'kuma.io/service' instead",
                "clients cannot be identified by 'from[1].targetRef.labels': an Allow allows no client \
                 and a Deny denies all, use 'rules' with 'spiffeID' instead",
                "MeshSubset value for 'targetRef.kind' is deprecated, use Dataplane with labels instead",
            ]
        );
    }
}
