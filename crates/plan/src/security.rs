//! TLS between proxies of the mesh: mutual TLS, and MeshTLS.

use std::{collections::BTreeSet, sync::Arc};

use policy::InboundRule;
use resources::{
    Kind, Resource,
    kinds::{
        mesh_identity::{MeshIdentity, ProviderType},
        mesh_tls::{Conf, Mode},
        target_ref::TargetRefKind,
        tls::TlsCipher,
    },
    labels,
    naming::{Kri, system},
};

use topology::MeshSnapshot;

use crate::{
    Applying, AuthoritiesSecret, CertificateSecret, Code, Finding, NamingScheme, OwnContext, SecretNames,
    ServerTls, TlsVersion, external::tls_version,
};

/// Configuration of mutual TLS on both sides of a proxy's connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Security {
    pub secrets: SecretNames,
    /// The trust domains whose proxies are trusted.
    pub trust_domains: Arc<[String]>,
    /// `None` where no policy says any.
    pub parameters: Option<Arc<TlsParameters>>,
}

/// Versions and ciphers; what is left out is the proxy's choice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct TlsParameters {
    pub min: Option<TlsVersion>,
    pub max: Option<TlsVersion>,
    /// Of TLS 1.2 and older versions.
    pub ciphers: Vec<TlsCipher>,
}

impl Security {
    /// `None` while the mesh has no mTLS and the proxy no identity. Once there are MeshTrusts, all proxies trust what
    /// these say, with whatever certificate they have themselves: so both kinds can call each other.
    pub(crate) fn of(
        snapshot: &MeshSnapshot,
        names: NamingScheme,
        identity: Option<&Kri>,
        parameters: impl FnOnce() -> Option<Arc<TlsParameters>>,
    ) -> Option<Security> {
        if snapshot.mtls.is_none() && identity.is_none() {
            return None;
        }
        let mut secrets = names.secrets(&snapshot.name);
        if let Some(identity) = identity {
            secrets.identity = CertificateSecret::OfIdentity(identity.clone());
        }
        let trust_domains = match snapshot.trust_domains() {
            Some(domains) => {
                secrets.authorities = AuthoritiesSecret::TrustBundle(system::TRUST_BUNDLE.to_owned());
                domains
            }
            None => vec![snapshot.name.to_string()],
        };
        Some(Security { secrets, trust_domains: trust_domains.into(), parameters: parameters() })
    }
}

impl TlsParameters {
    /// Reads the TLS parameters of the policies that apply to a proxy. Both sides of a connection must agree,
    /// so that only policies for the whole mesh count.
    pub(crate) fn of(applying: &Applying) -> Option<Arc<TlsParameters>> {
        let policies = applying.of_kind(Kind::MeshTLS).iter().map(|policy| &policy.view);
        let for_all = policies.filter(|view| view.top.kind == TargetRefKind::Mesh);
        let conf = folded(&policy::inbound::rules(for_all))?;
        let version = conf.tls_version.as_ref();
        let parameters = TlsParameters {
            min: version.and_then(|version| version.min.as_ref()).and_then(tls_version),
            max: version.and_then(|version| version.max.as_ref()).and_then(tls_version),
            ciphers: usable(conf.tls_ciphers.as_deref().unwrap_or_default()),
        };
        (parameters != TlsParameters::default()).then(|| Arc::new(parameters))
    }
}

/// Returns the TLS mode that policies set for an inbound; `None` if they set none.
pub(crate) fn mode(rules: &[InboundRule]) -> Option<ServerTls> {
    match folded(rules)?.mode {
        Some(Mode::Strict) => Some(ServerTls::Strict),
        Some(Mode::Permissive) => Some(ServerTls::Permissive),
        Some(Mode::Other(_)) | None => None,
    }
}

/// Says why a proxy is not given the identity that selects it.
pub(crate) fn findings(context: &OwnContext<'_>, findings: &mut Vec<Finding>) {
    let OwnContext { snapshot, dataplane, .. } = context;
    let Some(identity) = snapshot.identities.of(dataplane) else { return };
    let Some(spec) = identity.spec.get::<MeshIdentity>() else { return };
    let Some(provider) = &spec.provider else { return };
    let named = spec.spiffe_id(identity, dataplane, &snapshot.zone);
    let reason = match (spec.lacks(identity, dataplane), named) {
        (Some(lacking), _) => lacking,
        (None, Err(reason)) => reason.to_string(),
        _ if provider.type_ != ProviderType::Bundled => {
            format!("its provider is {}, and only Bundled has an effect", provider.type_)
        }
        _ if !topology::identities::is_ready(identity) => "it is not ready".to_owned(),
        _ if snapshot.trusts.is_empty() => "there is no MeshTrust, so no proxy would trust it".to_owned(),
        _ => return findings.extend(unvouched(context, identity)),
    };
    let closed = match context.effective.server_tls_by_default() {
        ServerTls::Closed => {
            "; until it can be used, inbounds end every connection unless a MeshTLS is Permissive"
        }
        _ => "",
    };
    let text = format!("MeshIdentity {:?}: {reason}{closed}", identity.name());
    findings.push(match identity.kri("") {
        Some(kri) => Finding::about(Code::IdentityWithoutEffect, kri, text),
        None => Finding::new(Code::IdentityWithoutEffect, text),
    });
}

/// The labels that the token of a connected proxy would have to bind. The text is the same for all such proxies, so
/// that they make one finding.
fn unvouched(context: &OwnContext<'_>, identity: &Resource) -> Option<Finding> {
    let OwnContext { snapshot, dataplane, traits, .. } = context;
    let chosen = snapshot.identities.unvouched(dataplane, &snapshot.zone, &traits.vouched);
    if chosen.is_empty() {
        return None;
    }
    let text = format!(
        "connected proxies are not given the identity, because it names them by {} and their tokens do not bind that: \
         start them again with tokens of 'kumactl generate dataplane-token {}'",
        in_words(&chosen),
        token_flags(chosen.iter().map(|label| (label.as_str(), "VALUE")))
    );
    Some(Finding::about(Code::IdentityNotVouched, identity.kri("")?, text))
}

/// Lists labels in words.
pub fn in_words(labels: &BTreeSet<String>) -> String {
    let quoted: Vec<String> = labels.iter().map(|label| format!("label {label:?}")).collect();
    quoted.join(" and ")
}

/// The flags by which `kumactl` makes a token that binds these labels.
pub fn token_flags<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let flag = |(label, value): (&str, &str)| match label {
        labels::WORKLOAD => format!("--workload {value}"),
        _ => format!("--label {label}={value}"),
    };
    labels.map(flag).collect::<Vec<_>>().join(" ")
}

fn folded(rules: &[InboundRule]) -> Option<Arc<Conf>> {
    policy::inbound::fold_unconditional(rules)?.typed().ok()
}

/// The ciphers, each for both kinds of keys: certificates of a mesh have ECDSA keys, those of a MeshIdentity have keys
/// like its authority's, so that ciphers for one kind alone would leave some proxies without any.
fn usable(listed: &[TlsCipher]) -> Vec<TlsCipher> {
    let mut usable = Vec::new();
    for cipher in listed {
        let also = match cipher {
            TlsCipher::RsaAes128 => Some(TlsCipher::EcdsaAes128),
            TlsCipher::RsaAes256 => Some(TlsCipher::EcdsaAes256),
            TlsCipher::RsaChacha20 => Some(TlsCipher::EcdsaChacha20),
            TlsCipher::EcdsaAes128 => Some(TlsCipher::RsaAes128),
            TlsCipher::EcdsaAes256 => Some(TlsCipher::RsaAes256),
            TlsCipher::EcdsaChacha20 => Some(TlsCipher::RsaChacha20),
            TlsCipher::Other(_) => None,
        };
        for cipher in std::iter::once(cipher.clone()).chain(also) {
            if !usable.contains(&cipher) {
                usable.push(cipher);
            }
        }
    }
    usable
}
