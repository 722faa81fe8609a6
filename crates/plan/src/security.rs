//! How proxies of the mesh secure what they say to each other: mutual TLS, and MeshTLS about it.

use std::sync::Arc;

use policy::InboundRule;
use resources::{
    Kind,
    kinds::{
        mesh_tls::{Conf, Mode},
        target_ref::TargetRefKind,
        tls::TlsCipher,
    },
};

use topology::MeshSnapshot;

use crate::{Applying, Names, SecretNames, ServerTls, TlsVersion, external::tls_version};

/// What a proxy needs for mutual TLS, on both sides of its connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Security {
    pub secrets: SecretNames,
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
    /// `None` while the mesh has no mTLS.
    pub(crate) fn of(
        snapshot: &MeshSnapshot,
        names: Names,
        parameters: impl FnOnce() -> Option<Arc<TlsParameters>>,
    ) -> Option<Security> {
        snapshot.mtls.as_ref()?;
        Some(Security { secrets: names.secrets(&snapshot.name), parameters: parameters() })
    }
}

impl TlsParameters {
    /// What the policies say that apply to a proxy. Both sides of a connection must agree, so that only policies for
    /// the whole mesh may say it.
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

/// How an inbound treats its clients; `None` where no policy says it.
pub(crate) fn mode(rules: &[InboundRule]) -> Option<ServerTls> {
    match folded(rules)?.mode {
        Some(Mode::Strict) => Some(ServerTls::Strict),
        Some(Mode::Permissive) => Some(ServerTls::Permissive),
        Some(Mode::Other(_)) | None => None,
    }
}

fn folded(rules: &[InboundRule]) -> Option<Arc<Conf>> {
    policy::inbound::fold_unconditional(rules)?.typed().ok()
}

/// The ciphers, each with the one for keys of elliptic curves: those are the keys that proxies have, so that RSA
/// ciphers alone would leave them without any.
fn usable(listed: &[TlsCipher]) -> Vec<TlsCipher> {
    let mut usable = Vec::new();
    for cipher in listed {
        let also = match cipher {
            TlsCipher::RsaAes128 => Some(TlsCipher::EcdsaAes128),
            TlsCipher::RsaAes256 => Some(TlsCipher::EcdsaAes256),
            TlsCipher::RsaChacha20 => Some(TlsCipher::EcdsaChacha20),
            _ => None,
        };
        for cipher in std::iter::once(cipher.clone()).chain(also) {
            if !usable.contains(&cipher) {
                usable.push(cipher);
            }
        }
    }
    usable
}
