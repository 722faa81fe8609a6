//! Identities of proxies: a SPIFFE ID by template, and the signer of its certificates.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kinds::{
    checks,
    open_enum::{OpenEnum, open_enum},
    service_status::Condition,
};
use crate::{Labels, Path, Resource, Schema, Subject, Violations, duration::GoDuration};

mod source;
mod template;

pub use source::{EnvVar, File, InsecureInline, SecretRef, SecureDataSource, SourceType};
pub use template::{SpiffeIdTemplate, SpiffeIdTemplateError};

/// The identity of the Dataplanes that it selects.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshIdentity {
    /// The Dataplanes that get the identity; none by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<IdentitySelector>,
    /// Templates of the SPIFFE IDs.
    #[serde(rename = "spiffeID", skip_serializing_if = "Option::is_none")]
    pub spiffe_id: Option<SpiffeIdTemplate>,
    /// Signer of certificates; without one, SPIFFE IDs are known and nothing is signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<Provider>,
}

/// Dataplanes that have the identity; an empty selector selects none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IdentitySelector {
    /// The Dataplanes, by label; an empty object selects all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataplane: Option<LabelSelector>,
}

/// Labels a Dataplane must have; none select every Dataplane.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "IdentityLabelSelector")]
pub struct LabelSelector {
    /// Labels that a Dataplane must have, all of them.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub match_labels: Labels,
}

/// Signer of certificates.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["type"]))]
pub struct Provider {
    /// Type of the signer; the field of this name has the settings. Only `Bundled` is supported.
    #[serde(rename = "type")]
    pub type_: ProviderType,
    /// Settings of type `Bundled`: the control plane signs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundled: Option<Bundled>,
    /// Settings of type `Spire`; kept and without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spire: Option<Spire>,
    /// Settings of type `Extension`; kept and without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extension: Option<Extension>,
}

open_enum! {
    /// The control plane itself, a SPIRE agent beside the proxy, or something else.
    ProviderType { Bundled = "Bundled", Spire = "Spire", Extension = "Extension" }
}

/// The control plane signs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Bundled {
    /// Creation of a MeshTrust of the same name by the control plane, so that proxies trust the authority;
    /// `Enabled` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mesh_trust_creation: Option<MeshTrustCreation>,
    /// Accept a self-signed certificate of the authority; off by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure_allow_self_signed: Option<bool>,
    /// Creation of the authority by the control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autogenerate: Option<Autogenerate>,
    /// The authority's certificate and key; not together with `autogenerate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<CertificateAuthority>,
    /// Settings of the certificates of proxies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_parameters: Option<CertificateParameters>,
}

open_enum! {
    /// Creation of a MeshTrust, so that proxies of the mesh trust the authority at once.
    MeshTrustCreation { Enabled = "Enabled", Disabled = "Disabled" }
}

/// Creation of the authority by the control plane.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Autogenerate {
    /// Let the control plane make the authority; off by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// Sources of the authority's certificate and key, in PEM.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CertificateAuthority {
    /// Source of the certificate, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<SecureDataSource>,
    /// Source of the private key, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_key: Option<SecureDataSource>,
}

/// Settings of the certificates of proxies.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CertificateParameters {
    /// Lifetime of a certificate; 24h by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiry: Option<GoDuration>,
}

/// A SPIRE agent signs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Spire {
    /// Settings of calls to the SPIRE agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<SpireAgent>,
}

/// Settings of calls to the SPIRE agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SpireAgent {
    /// Timeout of a call to the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
}

/// Something other than the control plane signs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "IdentityExtension", extend("required" = ["name"]))]
pub struct Extension {
    /// The name of the extension that signs.
    pub name: String,
    /// Settings that the extension defines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
}

/// Status of a MeshIdentity, set by the control plane.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshIdentityStatus {
    /// Conditions reported by the control plane, such as readiness of the identity.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl MeshIdentity {
    /// True if the selector matches the Dataplane; another identity may still take precedence.
    pub fn selects(&self, dataplane: &Resource) -> bool {
        let labels = self.match_labels();
        labels.is_some_and(|labels| labels.iter().all(|(name, value)| dataplane.label(name) == Some(value)))
    }

    /// `None` where it selects nothing.
    pub fn match_labels(&self) -> Option<&Labels> {
        Some(&self.selector.as_ref()?.dataplane.as_ref()?.match_labels)
    }

    /// The settings of the control plane's own authority, if that signs.
    pub fn bundled(&self) -> Option<&Bundled> {
        let provider = self.provider.as_ref().filter(|provider| provider.type_ == ProviderType::Bundled)?;
        provider.bundled.as_ref()
    }
}

impl Bundled {
    pub fn makes_trust(&self) -> bool {
        self.mesh_trust_creation != Some(MeshTrustCreation::Disabled)
    }

    pub fn is_autogenerated(&self) -> bool {
        self.autogenerate.as_ref().and_then(|autogenerate| autogenerate.enabled).unwrap_or(false)
    }

    pub fn allows_self_signed(&self) -> bool {
        self.insecure_allow_self_signed.unwrap_or(false)
    }

    pub fn expiry(&self) -> Option<GoDuration> {
        self.certificate_parameters.as_ref()?.expiry
    }

    fn validate(&self, path: &Path, found: &mut Violations) {
        if let Some(creation) = self.mesh_trust_creation.as_ref().filter(|creation| !creation.is_known()) {
            let message = checks::must_be_one_of(creation.as_str(), MeshTrustCreation::WORDS);
            found.add(path.field("meshTrustCreation"), message);
        }
        let at = path.field("ca");
        match (&self.ca, self.is_autogenerated()) {
            (Some(_), true) => found.add(at, "shouldn't be defined once using autogenerated"),
            (None, false) => found.add(at, checks::MUST_BE_DEFINED),
            (None, true) => {}
            (Some(ca), false) => {
                for (field, source) in [("certificate", &ca.certificate), ("privateKey", &ca.private_key)] {
                    match source {
                        Some(source) => source.validate(&at.field(field), found),
                        None => found.add(at.field(field), checks::MUST_BE_DEFINED),
                    }
                }
            }
        }
        let expiry = path.field("certificateParameters").field("expiry");
        checks::not_negative(self.expiry(), &expiry, found);
    }
}

impl Provider {
    fn validate(&self, path: &Path, found: &mut Violations) {
        let needed = "configuration needs to be defined";
        match (&self.type_, &self.bundled, &self.spire, &self.extension) {
            (ProviderType::Bundled, None, ..) => found.add(path.field("bundled"), needed),
            (ProviderType::Bundled, Some(bundled), ..) => bundled.validate(&path.field("bundled"), found),
            (ProviderType::Spire, _, None, _) => found.add(path.field("spire"), needed),
            (ProviderType::Extension, _, _, None) => found.add(path.field("extension"), needed),
            (ProviderType::Extension, _, _, Some(extension)) => found.require(
                !extension.name.is_empty(),
                path.field("extension").field("name"),
                "extension name needs to be defined",
            ),
            (ProviderType::Spire, _, Some(spire), _) => {
                let timeout = spire.agent.as_ref().and_then(|agent| agent.timeout);
                let path = path.field("spire").field("agent").field("timeout");
                checks::not_negative(timeout, &path, found);
            }
            (ProviderType::Other(other), ..) => {
                found.add(path.field("type"), checks::must_be_one_of(other, ProviderType::WORDS));
            }
        }
    }
}

impl Schema for MeshIdentity {
    type Status = MeshIdentityStatus;

    fn validate(&self, _subject: Subject<'_>, found: &mut Violations) {
        let spec = Path::new("spec");
        if let Some(templates) = &self.spiffe_id {
            templates.validate(&spec.field("spiffeID"), found);
        }
        if let Some(provider) = &self.provider {
            provider.validate(&spec.field("provider"), found);
        }
    }
}

#[cfg(test)]
mod tests;
