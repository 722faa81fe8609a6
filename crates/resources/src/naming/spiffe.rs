//! Identities in certificates: SPIFFE ids, and the tags beside them.
//!
//! A mesh with mutual TLS names each service of a proxy `spiffe://<mesh>/<service>` and every tag
//! `kuma://<tag>/<value>`; a MeshIdentity names a workload `spiffe://<trust domain>/<path>`. What the
//! certificate of a Dataplane says is decided here alone: issuing, the servers that clients accept and the
//! clients that permissions mean all ask [`tags_in_certificate`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
    sync::Arc,
};

use crate::{Resource, kinds::dataplane::Dataplane, labels};

const SCHEME: &str = "spiffe://";
/// The service that an egress is in every mesh.
pub const ZONE_EGRESS: &str = "zone-egress";

/// A whole identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpiffeId(Arc<str>);

impl SpiffeId {
    /// The identity of a trust domain itself, which its authority has, and a Dataplane that is no service.
    pub fn of_trust_domain(trust_domain: &str) -> SpiffeId {
        SpiffeId(format!("{SCHEME}{trust_domain}").into())
    }

    /// The identity that a mesh gives to a service.
    pub fn of_service(mesh: &str, service: &str) -> SpiffeId {
        SpiffeId(format!("{SCHEME}{mesh}/{service}").into())
    }

    /// The identity under which an egress acts in a mesh, for everything outside of it.
    pub fn of_zone_egress(mesh: &str) -> SpiffeId {
        SpiffeId::of_service(mesh, ZONE_EGRESS)
    }

    /// The identity of a trust domain with this path, which is empty or begins with a slash.
    pub fn in_trust_domain(trust_domain: &str, path: &str) -> Result<SpiffeId, NotASpiffeId> {
        if trust_domain.contains('/') {
            return Err(NotASpiffeId("trust domain cannot have a slash"));
        }
        if !path.is_empty() && !path.starts_with('/') {
            return Err(NotASpiffeId("path must have a leading slash"));
        }
        format!("{SCHEME}{trust_domain}{path}").parse()
    }

    /// The services in the certificate that the mesh gives to a Dataplane; none if it only says the mesh.
    pub fn of_dataplane(dataplane: &Resource) -> BTreeSet<SpiffeId> {
        let services = tags_in_certificate(dataplane).remove(labels::SERVICE).unwrap_or_default();
        services.into_iter().map(|service| SpiffeId::of_service(dataplane.mesh(), service)).collect()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Every identity that starts like this.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpiffePrefix(Arc<str>);

impl SpiffePrefix {
    /// Every identity of a trust domain; that of a mesh with mutual TLS is the name of the mesh.
    pub fn of_trust_domain(trust_domain: &str) -> SpiffePrefix {
        SpiffePrefix(format!("{SCHEME}{trust_domain}/").into())
    }

    pub fn matches(&self, id: &SpiffeId) -> bool {
        id.0.starts_with(&*self.0)
    }

    /// True if this prefix covers every identity that `narrower` covers.
    pub fn includes(&self, narrower: &SpiffePrefix) -> bool {
        narrower.0.starts_with(&*self.0)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// URI of a tag in a certificate; a service also has a [`SpiffeId`].
pub fn tag_uri(tag: &str, value: &str) -> String {
    format!("kuma://{tag}/{value}")
}

/// Tags in the certificate that the mesh issues to a Dataplane: those of its inbounds, or of its gateway. For
/// a Dataplane without a service, its workload is the service. One with neither proves only that it is of the
/// mesh: the result is empty or has `kuma.io/service`.
pub fn tags_in_certificate(dataplane: &Resource) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut certified: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let Some(spec) = dataplane.spec.get::<Dataplane>() else { return certified };
    let of_inbounds = spec.inbounds().iter().map(|inbound| &inbound.tags);
    let of_gateway = spec.gateway().map(|gateway| &gateway.tags);
    for (tag, value) in of_inbounds.chain(of_gateway).flatten() {
        certified.entry(tag).or_default().insert(value);
    }
    if !certified.contains_key(labels::SERVICE) {
        let workload = dataplane.label(labels::WORKLOAD).filter(|workload| !workload.is_empty());
        certified = workload.map(|it| (labels::SERVICE, BTreeSet::from([it]))).into_iter().collect();
    }
    certified
}

/// A text that is no SPIFFE id, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotASpiffeId(&'static str);

impl FromStr for SpiffeId {
    type Err = NotASpiffeId;

    fn from_str(text: &str) -> Result<SpiffeId, NotASpiffeId> {
        check(text)?;
        Ok(SpiffeId(text.into()))
    }
}

impl FromStr for SpiffePrefix {
    type Err = NotASpiffeId;

    /// A prefix that ends in a slash stops at a whole path segment, so it is not an identity itself.
    fn from_str(text: &str) -> Result<SpiffePrefix, NotASpiffeId> {
        check(text.strip_suffix('/').unwrap_or(text))?;
        Ok(SpiffePrefix(text.into()))
    }
}

fn check(text: &str) -> Result<(), NotASpiffeId> {
    let because = |reason| Err(NotASpiffeId(reason));
    if text.is_empty() {
        return because("cannot be empty");
    }
    let Some(rest) = text.strip_prefix(SCHEME) else {
        return because("scheme is missing or invalid");
    };
    let (trust_domain, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if trust_domain.is_empty() {
        return because("trust domain is missing");
    }
    let mark = |b: u8| matches!(b, b'.' | b'-' | b'_');
    if !trust_domain.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || mark(b)) {
        return because(
            "trust domain characters are limited to lowercase letters, numbers, dots, dashes, and underscores",
        );
    }
    if path.ends_with('/') {
        return because("path cannot have a trailing slash");
    }
    for segment in path.split('/').skip(1) {
        if segment.is_empty() {
            return because("path cannot contain empty segments");
        }
        if segment == "." || segment == ".." {
            return because("path cannot contain dot segments");
        }
        if !segment.bytes().all(|b| b.is_ascii_alphanumeric() || mark(b)) {
            return because(
                "path segment characters are limited to letters, numbers, dots, dashes, and underscores",
            );
        }
    }
    Ok(())
}

impl fmt::Display for SpiffeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for SpiffePrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
