//! Rights that the token of a proxy gives it.
//!
//! The signature of a token is verified once, and again when the secrets of its mesh change. Its claims are kept with
//! the stream and compared with the *stored* Dataplane each time that Dataplane is about to give the proxy something:
//! a configuration, a certificate, a place in the store. The Dataplane may have been replaced since the proxy
//! connected, and a token does not follow such a change.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use identity::{DataplaneToken, Error, Purpose, ZoneToken};
use jiff::Timestamp;
use resources::{Draft, Key, Kind, Labels, Resource, Spec, kinds::dataplane::Dataplane, labels};
use store::Snapshot;
use tonic::Status;
use topology::VouchedLabels;

use super::ProxyContext;
use crate::config::{DpAuthn, DpAuthnType, ZoneAuthnType};

/// Stands for the mesh of a proxy that has not named one.
const ANY_MESH: &str = "*";
/// The type of proxy that tokens of Dataplanes are for; a token without a type is for any.
const DATAPLANE: &str = "dataplane";

/// The verified claims of a stream, shared by all that acts on its behalf. Without claims everything is allowed: that
/// is a control plane that requires no tokens.
#[derive(Debug, Clone)]
pub struct Credentials(Option<Arc<VerifiedClaims>>);

/// Claims that were verified.
#[derive(Debug)]
pub struct VerifiedClaims {
    claims: Claims,
    expires: Option<Timestamp>,
}

#[derive(Debug)]
enum Claims {
    Dataplane(DataplaneToken),
    /// Of a zone proxy, with the zone that it is to be in.
    Zone(ZoneToken, Arc<str>),
}

/// Claim of a token that a proxy does not match.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum ClaimMismatch {
    #[error("it is for {claim} {wanted:?}, the proxy has {is:?}")]
    Claim { claim: &'static str, wanted: String, is: String },
    #[error(
        "its scope is {scope:?}, and the proxy needs {needed:?}: generate one with 'kumactl generate zone-token --zone \
         {zone} --scope {needed}'"
    )]
    Scope { scope: Vec<String>, needed: &'static str, zone: String },
    #[error("it is for label {0:?}, which the Dataplane does not have")]
    LabelMissing(String),
    #[error("it is for label {label:?} of {allowed:?}, the Dataplane has {value:?}")]
    Label { label: String, allowed: Vec<String>, value: String },
    #[error("it is for tag {0:?}, which the Dataplane does not have")]
    TagMissing(String),
    #[error("it is for tag {tag:?} of {allowed:?}, the Dataplane has {value:?}")]
    Tag { tag: String, allowed: Vec<String>, value: String },
    #[error("the Dataplane has no spec")]
    NoSpec,
    #[error("{0} is not a zone proxy")]
    NoZoneProxy(Key),
}

/// Verifies the tokens that proxies present. Asynchronous, because some verifiers ask another server.
#[async_trait]
pub trait Verifier: Send + Sync + 'static {
    /// Verifies signature, times and revocation of a token for proxies of a mesh; without a mesh, for zone proxies.
    async fn verify(&self, snapshot: &Snapshot, mesh: &str, token: &str) -> Result<VerifiedClaims, Error>;

    /// The mesh that an unverified token names; `None` if it names none.
    fn claimed_mesh(&self, token: &str) -> Option<String>;
}

/// Credentials that proxies need, and the check of those they present.
pub struct Authentication {
    pub verifier: Arc<dyn Verifier>,
    pub tokens_required: bool,
    /// Set if zone proxies need one.
    pub zone_tokens_required: bool,
}

impl Authentication {
    /// `zone` is that of this control plane, where its zone proxies are.
    pub fn of(config: &DpAuthn, zone: &str) -> Authentication {
        Authentication {
            verifier: Arc::new(SignedTokens { zone: zone.into() }),
            tokens_required: config.dp_proxy.kind != DpAuthnType::None,
            zone_tokens_required: config.zone_proxy.kind != ZoneAuthnType::None,
        }
    }
}

/// Verifies tokens that `kumactl` generates by the signing keys in the store.
#[derive(Debug)]
pub struct SignedTokens {
    /// The zone of this control plane, where its zone proxies are.
    pub zone: Arc<str>,
}

#[async_trait]
impl Verifier for SignedTokens {
    async fn verify(&self, snapshot: &Snapshot, mesh: &str, token: &str) -> Result<VerifiedClaims, Error> {
        let now = Timestamp::now();
        if mesh.is_empty() {
            let (claims, expires) = identity::token::validate_until(token, Purpose::Zone, snapshot, now)?;
            return Ok(VerifiedClaims { claims: Claims::Zone(claims, self.zone.clone()), expires });
        }
        let purpose = Purpose::Dataplane { mesh };
        let (claims, expires) = identity::token::validate_until(token, purpose, snapshot, now)?;
        Ok(VerifiedClaims { claims: Claims::Dataplane(claims), expires })
    }

    fn claimed_mesh(&self, token: &str) -> Option<String> {
        identity::token::claimed_mesh(token)
    }
}

impl Credentials {
    /// Verifies signature, times and revocation of a token for proxies of a mesh; without a mesh, for zone proxies.
    pub async fn verify(
        context: &ProxyContext,
        snapshot: &Snapshot,
        mesh: &str,
        token: Option<&str>,
    ) -> Result<Credentials, Status> {
        if !is_required(context, mesh) {
            return Ok(Credentials(None));
        }
        let what = purpose_of(mesh);
        let token = token.ok_or_else(|| {
            context.gates.auth_failed("missing");
            Status::unauthenticated(format!(
                "no {what} token: generate one with 'kumactl generate {what}-token'"
            ))
        })?;
        Credentials::claimed(context, snapshot, mesh, token).await.map_err(|error| {
            context.gates.auth_failed(error.reason());
            Status::unauthenticated(format!("the {what} token is refused: {error}"))
        })
    }

    /// As [`Credentials::verify`], for a caller of whom nothing is known yet: until a signature holds, the answer is the
    /// same for every mesh and depends on the token alone.
    pub async fn verify_of_stranger(
        context: &ProxyContext,
        snapshot: &Snapshot,
        mesh: &str,
        token: &str,
    ) -> Result<Credentials, Status> {
        if !is_required(context, mesh) {
            return Ok(Credentials(None));
        }
        let what = purpose_of(mesh);
        Credentials::claimed(context, snapshot, mesh, token).await.map_err(|error| {
            context.gates.auth_failed(error.reason());
            // A missing key and a wrong signature would tell existing meshes from others.
            let why = match error {
                Error::UnknownKey { .. } | Error::BadKey { .. } | Error::Signature => format!(
                    "no signing key made it{}: generate one with 'kumactl generate {what}-token'",
                    if mesh.is_empty() { String::new() } else { format!(" for mesh {mesh:?}") }
                ),
                error => error.to_string(),
            };
            Status::unauthenticated(format!("the {what} token is refused: {why}"))
        })
    }

    async fn claimed(
        context: &ProxyContext,
        snapshot: &Snapshot,
        mesh: &str,
        token: &str,
    ) -> Result<Credentials, Error> {
        let verified = context.authentication.verifier.verify(snapshot, mesh, token).await?;
        Ok(Credentials(Some(Arc::new(verified))))
    }

    /// Verifies a token before the proxy has said which mesh it is in, by the mesh that the token names. Says
    /// whether that was possible: tokens that name none are verified once the mesh is known.
    pub async fn verify_early(
        context: &ProxyContext,
        snapshot: &Snapshot,
        token: Option<&str>,
    ) -> Result<bool, Status> {
        match token.and_then(|token| context.authentication.verifier.claimed_mesh(token)) {
            Some(mesh) => Credentials::verify(context, snapshot, &mesh, token).await.map(|_| true),
            None if !context.authentication.tokens_required => Ok(true),
            // It may be the token of a zone proxy, or one that names no mesh.
            None if token.is_some() || !context.authentication.zone_tokens_required => Ok(false),
            None => Credentials::verify(context, snapshot, ANY_MESH, token).await.map(|_| true),
        }
    }

    /// Time at which the token expires, by the wall clock.
    pub fn expires(&self) -> Option<Timestamp> {
        self.0.as_ref().and_then(|verified| verified.expires)
    }

    /// Checks that the token has not expired yet.
    pub fn check_time(&self) -> Result<(), Status> {
        match self.expires().filter(|end| *end <= Timestamp::now()) {
            None => Ok(()),
            Some(end) => Err(Status::unauthenticated(format!(
                "the token of the proxy expired at {end}: give it a newer one"
            ))),
        }
    }

    /// The labels of the Dataplane that the token answers for.
    pub fn vouched(&self) -> VouchedLabels {
        match self.0.as_ref().map(|verified| &verified.claims) {
            // No MeshIdentity names a zone proxy.
            None | Some(Claims::Zone(..)) => VouchedLabels::Everything,
            Some(Claims::Dataplane(claims)) => VouchedLabels::Labels(Arc::new(bound_labels(claims))),
        }
    }

    /// Checks that the proxy may have this name, whatever else its Dataplane says.
    pub fn allow_name(&self, proxy: &Key) -> Result<(), Status> {
        self.judge(
            |claims| check_name(claims, proxy),
            |claims, zone| check_zone_proxy(claims, proxy.kind, zone),
        )
    }

    pub fn allow_draft(&self, draft: &Draft) -> Result<(), Status> {
        self.allow(&draft.key, &draft.spec, &draft.labels)
    }

    /// Checks that the proxy may be this stored Dataplane.
    pub fn allow_stored(&self, stored: &Resource) -> Result<(), Status> {
        self.allow(&stored.key, &stored.spec, &stored.labels)
    }

    /// As [`Credentials::allow_stored`], for a proxy that brings its own Dataplane of that name.
    pub fn allow_replacing(&self, stored: &Resource) -> Result<(), Status> {
        self.allow_stored(stored).map_err(|status| {
            let key = &stored.key;
            let reason = status.message();
            Status::permission_denied(format!(
                "{key} is stored already, and it is not the proxy's to replace: {reason}. Give the proxy another name, \
                 or delete that Dataplane"
            ))
        })
    }

    fn allow(&self, proxy: &Key, spec: &Spec, labels: &Labels) -> Result<(), Status> {
        let of_dataplane = |claims: &DataplaneToken| {
            check_name(claims, proxy)?;
            let dataplane = spec.get::<Dataplane>().ok_or(ClaimMismatch::NoSpec)?;
            check_dataplane(claims, dataplane, labels)
        };
        let of_zone_proxy = |claims: &ZoneToken, zone: &str| {
            check_zone_proxy(claims, proxy.kind, zone)?;
            let said = match spec {
                Spec::ZoneIngress(ingress) => &ingress.zone,
                Spec::ZoneEgress(egress) => &egress.zone,
                _ => return Err(ClaimMismatch::NoZoneProxy(proxy.clone())),
            };
            // Where it does not say, it is in this one.
            if said.is_empty() { Ok(()) } else { same("zone", zone, said) }
        };
        self.judge(of_dataplane, of_zone_proxy)
    }

    fn judge(
        &self,
        of_dataplane: impl FnOnce(&DataplaneToken) -> Result<(), ClaimMismatch>,
        of_zone_proxy: impl FnOnce(&ZoneToken, &str) -> Result<(), ClaimMismatch>,
    ) -> Result<(), Status> {
        let Some(verified) = &self.0 else { return Ok(()) };
        let (what, judged) = match &verified.claims {
            Claims::Dataplane(claims) => ("dataplane", of_dataplane(claims)),
            Claims::Zone(claims, zone) => ("zone", of_zone_proxy(claims, zone)),
        };
        judged.map_err(|reason| {
            Status::permission_denied(format!("the {what} token is for another proxy: {reason}"))
        })
    }
}

/// Proxies of this mesh need a token; without a mesh, zone proxies.
fn is_required(context: &ProxyContext, mesh: &str) -> bool {
    if mesh.is_empty() {
        context.authentication.zone_tokens_required
    } else {
        context.authentication.tokens_required
    }
}

/// The sort of token that proxies of this mesh have; without a mesh, zone proxies.
fn purpose_of(mesh: &str) -> &'static str {
    if mesh.is_empty() { "zone" } else { "dataplane" }
}

/// The values that a token allows, by label. Those for the name and the workload are claims of their own.
fn bound_labels(claims: &DataplaneToken) -> BTreeMap<String, BTreeSet<String>> {
    let listed =
        claims.labels.iter().map(|(label, allowed)| (label.clone(), allowed.iter().cloned().collect()));
    let mut bound: BTreeMap<String, BTreeSet<String>> = listed.collect();
    for (label, value) in [(labels::DISPLAY_NAME, &claims.name), (labels::WORKLOAD, &claims.workload)] {
        if !value.is_empty() {
            bound.entry(label.to_owned()).or_default().insert(value.clone());
        }
    }
    bound
}

/// A claim that a token does not make may be anything.
fn same(claim: &'static str, wanted: &str, is: &str) -> Result<(), ClaimMismatch> {
    if wanted.is_empty() || wanted == is {
        return Ok(());
    }
    Err(ClaimMismatch::Claim { claim, wanted: wanted.to_owned(), is: is.to_owned() })
}

/// Checks that a zone token allows a zone proxy. The zone of this control plane is where its zone proxies are.
fn check_zone_proxy(claims: &ZoneToken, kind: Kind, zone: &str) -> Result<(), ClaimMismatch> {
    same("zone", &claims.zone, zone)?;
    let needed = match kind {
        Kind::ZoneIngress => "ingress",
        Kind::ZoneEgress => "egress",
        // The type of the proxy is not known yet: it is asked again.
        _ => return Ok(()),
    };
    if claims.scope.iter().any(|scope| scope == needed) {
        return Ok(());
    }
    Err(ClaimMismatch::Scope { scope: claims.scope.clone(), needed, zone: zone.to_owned() })
}

fn check_name(claims: &DataplaneToken, proxy: &Key) -> Result<(), ClaimMismatch> {
    same("proxy type", &claims.proxy_type, DATAPLANE)?;
    same("name", &claims.name, &proxy.name)?;
    same("mesh", &claims.mesh, &proxy.mesh)
}

fn check_dataplane(
    claims: &DataplaneToken,
    dataplane: &Dataplane,
    labels: &Labels,
) -> Result<(), ClaimMismatch> {
    let workload = labels.get(labels::WORKLOAD).map(String::as_str).unwrap_or_default();
    same("workload", &claims.workload, workload)?;
    for (label, allowed) in &claims.labels {
        match labels.get(label) {
            None => return Err(ClaimMismatch::LabelMissing(label.clone())),
            Some(value) if !allowed.contains(value) => {
                let label = label.clone();
                let allowed = allowed.clone();
                return Err(ClaimMismatch::Label { label, allowed, value: value.clone() });
            }
            Some(_) => {}
        }
    }
    for (tag, allowed) in &claims.tags {
        let values: Vec<&String> = tag_sets(dataplane).filter_map(|tags| tags.get(tag)).collect();
        if values.is_empty() {
            return Err(ClaimMismatch::TagMissing(tag.clone()));
        }
        if let Some(other) = values.into_iter().find(|value| !allowed.contains(value)) {
            let tag = tag.clone();
            let allowed = allowed.clone();
            return Err(ClaimMismatch::Tag { tag, allowed, value: other.clone() });
        }
    }
    Ok(())
}

fn tag_sets(dataplane: &Dataplane) -> impl Iterator<Item = &BTreeMap<String, String>> {
    let of_gateway = dataplane.gateway().map(|gateway| &gateway.tags);
    dataplane.inbounds().iter().map(|inbound| &inbound.tags).chain(of_gateway)
}
