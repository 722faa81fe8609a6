//! The certificates proxies present to each other.
//!
//! A certificate names the services of a proxy as SPIFFE ids and all its tags as `kuma://` URIs, as
//! Kuma's do. Certificates are signed for windows of time that depend on the proxy and on nothing
//! else ([`rotation`]), so that every control plane hands out the same one; see
//! [`ca`](crate::ca) for who signs and [`Issuer`] for what happens when signing fails.

mod issuer;
pub mod rotation;

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use rcgen::{DistinguishedName, ExtendedKeyUsagePurpose};
use resources::{
    Key, Resource,
    naming::spiffe::{self, SpiffeId},
};

pub use issuer::{AuthorityFailure, CertificateRequest, IssuedCertificate, Issuer};

use crate::{
    Error,
    ca::{
        Authority, CertificateAuthorityError, FreshKey,
        signer::{self, CLOCK_SKEW, Leaf},
    },
};

/// A certificate of a proxy and its key.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    /// PEM: the proxy's own, then intermediate authorities; the root is in the trust bundle.
    pub chain: String,
    key: String,
    pub facts: Facts,
}

/// Content of a certificate, without its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The URIs it holds.
    pub names: Vec<String>,
    pub issued_at: Timestamp,
    pub expires: Timestamp,
    /// The mTLS backend that signed it.
    pub backend: Arc<str>,
    authority: [u8; 32],
}

impl Certificate {
    /// The private key, PEM: for the proxy only.
    pub fn private_key(&self) -> &str {
        &self.key
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// Names in the certificate of a Dataplane: a SPIFFE ID for each of its services, then a URI for each tag,
/// each part sorted and without repetitions. A Dataplane that is no service is of the mesh and nothing else.
pub fn names(dataplane: &Resource) -> Result<Vec<String>, Error> {
    let mut names: Vec<String> = SpiffeId::of_dataplane(dataplane).iter().map(SpiffeId::to_string).collect();
    if names.is_empty() {
        names.push(SpiffeId::of_trust_domain(dataplane.mesh()).to_string());
    }
    for (tag, values) in spiffe::tags_in_certificate(dataplane) {
        names.extend(values.into_iter().map(|value| spiffe::tag_uri(tag, value)));
    }
    // What cannot be written into a certificate is the proxy's fault and not the authority's.
    names.iter().try_for_each(|name| signer::uri(name).map(drop)).map_err(unnamed)?;
    Ok(names)
}

/// Signs a certificate for a proxy, valid from `issued_at` for the authority's lifetime. `fresh` is the key to use
/// if the authority [needs fresh keys](Authority::needs_fresh_keys); without one it is made here.
pub fn issue(
    authority: &Authority,
    proxy: &Key,
    names: &[String],
    issued_at: Timestamp,
    fresh: Option<&FreshKey>,
) -> Result<Certificate, Error> {
    let refused = |reason| authority.refused(reason);
    let out_of_range = |_| authority.refused(CertificateAuthorityError::LifetimeOutOfRange);
    let uris: Result<Vec<_>, _> = names.iter().map(|name| signer::uri(name)).collect();
    let end = issued_at.checked_add(authority.lifetime()).map_err(out_of_range)?;
    let pair = authority.signer().leaf(Leaf {
        key: authority.leaf_key(fresh),
        purpose: "workload",
        holder: &[proxy.kind.name(), &proxy.mesh, &proxy.name],
        common_name: DistinguishedName::new(),
        names: uris.map_err(unnamed)?,
        usages: vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        not_before: issued_at.checked_sub(CLOCK_SKEW).map_err(out_of_range)?,
        not_after: end,
    });
    let pair = pair.map_err(refused)?;
    let facts = Facts {
        names: names.to_vec(),
        issued_at,
        expires: end.min(authority.expires()),
        backend: authority.backend().clone(),
        authority: *authority.fingerprint(),
    };
    Ok(Certificate { chain: pair.certificate, key: pair.key, facts })
}

fn unnamed(reason: CertificateAuthorityError) -> Error {
    Error::Names(reason.to_string())
}
