//! TLS between proxies of a mesh: whether clients without TLS are accepted, and which versions and ciphers
//! are used.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kinds::{
    checks,
    entry::{Always, Entry, EntryDescription, InEntry, InRule},
    open_enum::{OpenEnum, open_enum},
    target_ref::{self, Allowed, TargetRef, TargetRefKind as K},
    tls::{TlsCipher, Version},
};
use crate::{
    NoStatus, Path, Schema, Subject, Violations,
    policy::{MESH_TLS, Policy},
};

/// The TLS of incoming traffic (`rules`, `from`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshTLS {
    /// The proxies that the settings are for; all of the mesh by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Settings of incoming traffic; deprecated, use `rules`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<Entry<Conf>>,
    /// Settings of incoming traffic.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Always<Conf>>,
}

/// Clients that are served, and the TLS settings of connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Conf {
    /// The TLS versions of the mesh; both sides of a connection use them, so only a policy for the whole mesh
    /// may set them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_version: Option<Version>,
    /// The ciphers of TLS 1.2 and older versions; only a policy for the whole mesh may set them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_ciphers: Option<Vec<TlsCipher>>,
    /// Treatment of clients without a certificate: served (`Permissive`) or not (`Strict`); that of the mesh
    /// by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Permissive", "Strict"]))]
    pub mode: Option<Mode>,
}

open_enum! {
    /// Treatment of clients without a certificate of the mesh.
    Mode { Strict = "Strict", Permissive = "Permissive" }
}

impl InEntry for Conf {
    const ENTRY: EntryDescription =
        EntryDescription { name: "Entry", about: "The TLS of traffic from what a reference names." };
}

impl InRule for Conf {
    const RULE: EntryDescription = EntryDescription { name: "Rule", about: "The TLS of incoming traffic." };
}

impl Conf {
    fn apply_defaults(&mut self) {
        if let Some(version) = &mut self.tls_version {
            version.apply_defaults();
        }
    }

    fn validate(&self, top: &K, path: &Path, found: &mut Violations) {
        if let Some(mode) = &self.mode {
            checks::known(mode, path, "mode", found);
        }
        let for_all = *top == K::Mesh;
        let only_for_all =
            |field: &str| format!("{field} can only be defined with top level targetRef kind: Mesh");
        let ciphers = self.tls_ciphers.as_deref().unwrap_or_default();
        if !ciphers.is_empty() && !for_all {
            found.add(path.field("tlsCiphers"), only_for_all("tlsCiphers"));
        } else if !ciphers.iter().all(OpenEnum::is_known) {
            found.add(path.field("tlsCiphers"), checks::must_be_one_of("tlsCiphers", TlsCipher::WORDS));
        }
        match &self.tls_version {
            Some(_) if !for_all => found.add(path.field("tlsVersion"), only_for_all("tlsVersion")),
            Some(version) => version.validate(&path.field("tlsVersion"), found),
            None => {}
        }
    }
}

impl Policy for MeshTLS {
    type To = serde::de::IgnoredAny;

    fn target_ref(&self) -> Option<&TargetRef> {
        self.target_ref.as_ref()
    }
}

impl Schema for MeshTLS {
    type Status = NoStatus;

    fn apply_defaults(&mut self) {
        self.from.iter_mut().for_each(|entry| entry.default.apply_defaults());
        self.rules.iter_mut().for_each(|rule| rule.default.apply_defaults());
    }

    fn validate(&self, _subject: Subject<'_>, found: &mut Violations) {
        let spec = Path::new("spec");
        let inbound_policy = !self.from.is_empty() || !self.rules.is_empty();
        let allowed = Allowed { inbound_policy, ..Allowed::at_top(MESH_TLS) };
        target_ref::validate_top(self.target_ref.as_ref(), allowed, found);
        found.require(
            self.rules.is_empty() || self.from.is_empty(),
            &spec,
            "field 'from' must be empty when 'rules' is defined",
        );
        let top = target_ref::top_kind(self.target_ref.as_ref());
        for (i, rule) in self.rules.iter().enumerate() {
            rule.default.validate(top, &spec.field("rules").index(i).field("default"), found);
        }
        for (i, from) in self.from.iter().enumerate() {
            let path = spec.field("from").index(i);
            from.target_ref.validate(Allowed::of(MESH_TLS.from), &path.field("targetRef"), found);
            from.default.validate(top, &path.field("default"), found);
        }
    }

    fn warnings(&self) -> Vec<String> {
        let top = target_ref::top_level_warnings(self.target_ref.as_ref());
        target_ref::from_warning(&self.from).into_iter().chain(top).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{
        Kind,
        kinds::testing::{check, draft, resource, round_trips, valid},
    };

    const FOR_ALL: [&str; 2] = [
        "tlsCiphers can only be defined with top level targetRef kind: Mesh",
        "tlsVersion can only be defined with top level targetRef kind: Mesh",
    ];

    fn violations(spec: Value, expect: &[(&str, &str)]) {
        check(Kind::MeshTLS, resource(spec), expect);
    }

    fn full() -> Value {
        json!({
            "mode": "Permissive",
            "tlsVersion": {"min": "TLS12", "max": "TLS13"},
            "tlsCiphers": ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-CHACHA20-POLY1305"]
        })
    }

    #[test]
    fn full_examples_are_valid_and_survive_a_round_trip() {
        for spec in [
            json!({"targetRef": {"kind": "Mesh"}, "from": [{"targetRef": {"kind": "Mesh"}, "default": full()}]}),
            json!({"rules": [{"default": full()}]}),
            json!({"targetRef": {"kind": "Dataplane", "labels": {"app": "web"}, "sectionName": "http"},
                   "rules": [{"default": {"mode": "Strict"}}]}),
        ] {
            valid(Kind::MeshTLS, resource(spec.clone()));
            round_trips(Kind::MeshTLS, spec);
        }
    }

    #[test]
    fn a_version_that_is_left_out_is_stored_as_automatic() {
        let spec = json!({"rules": [{"default": {"tlsVersion": {"min": "TLS12"}}}]});
        let stored = draft(Kind::MeshTLS, resource(spec)).spec.to_json();
        assert_eq!(stored["rules"][0]["default"]["tlsVersion"], json!({"min": "TLS12", "max": "TLSAuto"}));
    }

    #[test]
    fn words_that_are_unknown_are_listed_with_those_that_are_known() {
        let wrong = json!({
            "tlsVersion": {"min": "TLS15", "max": "TLS16"}, "tlsCiphers": ["NotExistingCipher"], "mode": "NotExistingMode"
        });
        let versions = r#"must be one of ["TLSAuto", "TLS10", "TLS11", "TLS12", "TLS13"]"#;
        let min = format!(r#""min" {versions}"#);
        let max = format!(r#""max" {versions}"#);
        violations(
            json!({"from": [{"targetRef": {"kind": "MeshService", "name": "a"}, "default": wrong}]}),
            &[
                ("spec.from[0].targetRef.kind", "value 'MeshService' is not supported"),
                ("spec.from[0].default.mode", r#""mode" must be one of ["Strict", "Permissive"]"#),
                (
                    "spec.from[0].default.tlsCiphers",
                    r#""tlsCiphers" must be one of ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-CHACHA20-POLY1305"]"#,
                ),
                ("spec.from[0].default.tlsVersion.min", &min),
                ("spec.from[0].default.tlsVersion.max", &max),
            ],
        );
        violations(
            json!({"rules": [{"default": {"tlsVersion": {"min": "TLS13", "max": "TLS12"}}}]}),
            &[("spec.rules[0].default.tlsVersion.min", "min version must be lower than max")],
        );
    }

    #[test]
    fn only_a_policy_for_the_whole_mesh_chooses_versions_and_ciphers() {
        violations(
            json!({
                "targetRef": {"kind": "Dataplane"},
                "rules": [{"default": full()}],
                "from": [{"targetRef": {"kind": "Mesh"}, "default": full()}]
            }),
            &[
                ("spec", "field 'from' must be empty when 'rules' is defined"),
                ("spec.rules[0].default.tlsCiphers", FOR_ALL[0]),
                ("spec.rules[0].default.tlsVersion", FOR_ALL[1]),
                ("spec.from[0].default.tlsCiphers", FOR_ALL[0]),
                ("spec.from[0].default.tlsVersion", FOR_ALL[1]),
            ],
        );
        // `to` means nothing here, so no inbound is left that the section could be.
        violations(
            json!({"targetRef": {"kind": "Dataplane", "sectionName": "http"}, "to": []}),
            &[("spec.targetRef.sectionName", "can only be used with inbound policies")],
        );
        violations(
            json!({"targetRef": {"kind": "MeshService", "name": "a"}, "rules": [{"default": {"mode": "Strict"}}]}),
            &[("spec.targetRef.kind", "value 'MeshService' is not supported")],
        );
    }

    #[test]
    fn deprecated_parts_are_warned_about() {
        let spec = json!({
            "targetRef": {"kind": "MeshSubset"}, "from": [{"targetRef": {"kind": "Mesh"}, "default": {"mode": "Strict"}}]
        });
        assert_eq!(
            draft(Kind::MeshTLS, resource(spec)).spec.warnings(),
            [
                "'from' field is deprecated, use 'rules' instead",
                "MeshSubset value for 'targetRef.kind' is deprecated, use Dataplane with labels instead",
            ]
        );
    }
}
