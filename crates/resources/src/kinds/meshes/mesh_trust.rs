//! Certificate authorities that proxies of a mesh trust, for one trust domain.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kinds::{checks, open_enum::open_enum};
use crate::{Path, Schema, Subject, Violations};

const MAX_TRUST_DOMAIN: usize = 253;

/// The authorities of a trust domain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["caBundles", "trustDomain"]))]
pub struct MeshTrust {
    /// Origin of the resource; deprecated, the status has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Certificates of the authorities that proxies trust.
    #[schemars(length(min = 1))]
    pub ca_bundles: Vec<CaBundle>,
    /// The trust domain of the certificates that the authorities sign.
    #[schemars(length(max = 253))]
    pub trust_domain: String,
}

/// Origin of a MeshTrust.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Origin {
    /// The KRI of the resource that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kri: Option<String>,
}

/// One or more certificates of authorities.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["type"]))]
pub struct CaBundle {
    /// Encoding of the certificates: `Pem`.
    #[serde(rename = "type")]
    pub type_: BundleType,
    /// Certificates in PEM; for type `Pem`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pem: Option<Pem>,
}

open_enum! {
    /// Encoding of the certificates.
    BundleType { Pem = "Pem" }
}

/// Certificates in PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["value"]))]
pub struct Pem {
    /// One or more certificates in PEM, without private keys.
    pub value: String,
}

/// Status of a MeshTrust, set by the control plane.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshTrustStatus {
    /// The MeshIdentity that the control plane made the resource for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

impl MeshTrust {
    /// The texts of its bundles.
    pub fn pems(&self) -> impl Iterator<Item = &str> {
        self.ca_bundles.iter().filter_map(|bundle| Some(bundle.pem.as_ref()?.value.as_str()))
    }
}

/// True for PEM that is no private key; nothing else is checked.
fn is_certificate(text: &str) -> bool {
    let label = text.split_once("-----BEGIN ").and_then(|(_, rest)| rest.split_once("-----"));
    label.is_some_and(|(label, rest)| {
        !label.ends_with("PRIVATE KEY") && rest.contains(&format!("-----END {label}-----"))
    })
}

impl Schema for MeshTrust {
    type Status = MeshTrustStatus;

    fn validate(&self, _subject: Subject<'_>, found: &mut Violations) {
        let spec = Path::new("spec");
        let bundles = spec.field("caBundles");
        found.require(!self.ca_bundles.is_empty(), &bundles, checks::MUST_NOT_BE_EMPTY);
        for (i, bundle) in self.ca_bundles.iter().enumerate() {
            let path = bundles.index(i).field("pem");
            match (&bundle.type_, &bundle.pem) {
                (BundleType::Other(other), _) => {
                    found.add(bundles.field("type"), format!("{other} must be one of: Pem"));
                }
                (BundleType::Pem, None) => found.add(path, checks::MUST_BE_DEFINED),
                (BundleType::Pem, Some(pem)) => found.require(
                    is_certificate(&pem.value),
                    path.field("value"),
                    "provided certificate has incorrect format",
                ),
            }
        }
        let domain = spec.field("trustDomain");
        found.require(!self.trust_domain.is_empty(), &domain, "trustDomain needs to be defined");
        found.require(
            self.trust_domain.len() <= MAX_TRUST_DOMAIN,
            &domain,
            format!("must not be longer than {MAX_TRUST_DOMAIN} characters"),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{
        Kind,
        kinds::testing::{check, resource, round_trips, valid},
    };

    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

    fn violations(spec: Value, expect: &[(&str, &str)]) {
        check(Kind::MeshTrust, resource(spec), expect);
    }

    fn bundle(pem: &str) -> Value {
        json!({"type": "Pem", "pem": {"value": pem}})
    }

    #[test]
    fn a_full_example_is_valid_and_survives_a_round_trip() {
        let spec = json!({
            "origin": {"kri": "kri_mid_default___id_"}, "trustDomain": "td", "caBundles": [bundle(CERTIFICATE)]
        });
        valid(Kind::MeshTrust, resource(spec.clone()));
        round_trips(Kind::MeshTrust, spec);
    }

    #[test]
    fn a_trust_names_a_domain_and_certificates() {
        violations(
            json!({}),
            &[
                ("spec.caBundles", "must not be empty"),
                ("spec.trustDomain", "trustDomain needs to be defined"),
            ],
        );
        let key = CERTIFICATE.replace("CERTIFICATE", "EC PRIVATE KEY");
        let format = "provided certificate has incorrect format";
        violations(
            json!({"trustDomain": "t".repeat(254), "caBundles": [
                {"type": "Pem"}, bundle("not pem"), bundle(&key), {"type": "Jwk"}, bundle(CERTIFICATE)
            ]}),
            &[
                ("spec.caBundles[0].pem", "must be defined"),
                ("spec.caBundles[1].pem.value", format),
                ("spec.caBundles[2].pem.value", format),
                ("spec.caBundles.type", "Jwk must be one of: Pem"),
                ("spec.trustDomain", "must not be longer than 253 characters"),
            ],
        );
    }
}
