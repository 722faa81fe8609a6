//! What the token of a proxy allows it to be.
//!
//! The signature of a token is verified once, and again when the secrets of its mesh change. Its claims are kept with
//! the stream and compared with the *stored* Dataplane each time that Dataplane is about to give the proxy something:
//! a configuration, a certificate, a place in the store. The Dataplane may have been replaced since the proxy
//! connected, and a token does not follow such a change.

use std::{collections::BTreeMap, sync::Arc};

use identity::{DataplaneToken, Purpose};
use jiff::Timestamp;
use resources::{Draft, Key, Labels, Resource, Spec, kinds::dataplane::Dataplane, labels};
use store::Snapshot;
use tonic::Status;

use super::Context;

/// The type of proxy that tokens of Dataplanes are for; a token without a type is for any.
const DATAPLANE: &str = "dataplane";

/// The verified claims of a stream, shared by all that acts on its behalf. Without claims everything is allowed: that
/// is a control plane that requires no tokens.
#[derive(Debug, Clone)]
pub struct Credentials(Option<Arc<Verified>>);

#[derive(Debug)]
struct Verified {
    claims: DataplaneToken,
    expires: Option<Timestamp>,
}

impl Credentials {
    /// Verifies signature, times and revocation of a token for proxies of a mesh.
    pub fn verify(
        context: &Context,
        snapshot: &Snapshot,
        mesh: &str,
        token: Option<&str>,
    ) -> Result<Credentials, Status> {
        if !context.tokens_required {
            return Ok(Credentials(None));
        }
        let token = token.ok_or_else(|| {
            Status::unauthenticated(
                "no dataplane token: generate one with 'kumactl generate dataplane-token'",
            )
        })?;
        let purpose = Purpose::Dataplane { mesh };
        let verified = identity::token::validate_until(token, purpose, snapshot, Timestamp::now());
        let (claims, expires) = verified
            .map_err(|error| Status::unauthenticated(format!("the dataplane token is refused: {error}")))?;
        Ok(Credentials(Some(Arc::new(Verified { claims, expires }))))
    }

    /// Verifies a token before the proxy has said which mesh it is in, by the mesh that the token names. Says
    /// whether that was possible: tokens that name none are verified once the mesh is known.
    pub fn verify_early(context: &Context, snapshot: &Snapshot, token: Option<&str>) -> Result<bool, Status> {
        match token.and_then(identity::token::claimed_mesh) {
            Some(mesh) => Credentials::verify(context, snapshot, &mesh, token).map(|_| true),
            None if token.is_some() && context.tokens_required => Ok(false),
            None => Credentials::verify(context, snapshot, "", token).map(|_| true),
        }
    }

    /// When the token expires, by the wall clock.
    pub fn expires(&self) -> Option<Timestamp> {
        self.0.as_ref().and_then(|verified| verified.expires)
    }

    /// Whether the token has not expired yet.
    pub fn check_time(&self) -> Result<(), Status> {
        match self.expires().filter(|end| *end <= Timestamp::now()) {
            None => Ok(()),
            Some(end) => Err(Status::unauthenticated(format!(
                "the dataplane token expired at {end}: give the proxy a newer one"
            ))),
        }
    }

    /// Whether the token says which workload the proxy is. Where no token is required, every proxy is believed.
    pub fn says_workload(&self) -> bool {
        self.0.as_ref().is_none_or(|verified| !verified.claims.workload.is_empty())
    }

    /// Whether the proxy may have this name, whatever else its Dataplane says.
    pub fn allow_name(&self, proxy: &Key) -> Result<(), Status> {
        self.judge(|claims| check_name(claims, proxy))
    }

    pub fn allow_draft(&self, draft: &Draft) -> Result<(), Status> {
        self.allow(&draft.key, &draft.spec, &draft.labels)
    }

    /// Whether the proxy may be this stored Dataplane.
    pub fn allow_stored(&self, stored: &Resource) -> Result<(), Status> {
        self.allow(&stored.key, &stored.spec, &stored.labels)
    }

    /// As [`Credentials::allow_stored`], for a proxy that brings its own Dataplane of that name.
    pub fn allow_replacing(&self, stored: &Resource) -> Result<(), Status> {
        self.allow_stored(stored).map_err(|status| {
            let (key, reason) = (&stored.key, status.message());
            Status::permission_denied(format!(
                "{key} is stored already, and it is not the proxy's to replace: {reason}. Give the proxy another name, \
                 or delete that Dataplane"
            ))
        })
    }

    fn allow(&self, proxy: &Key, spec: &Spec, labels: &Labels) -> Result<(), Status> {
        self.judge(|claims| {
            check_name(claims, proxy)?;
            let dataplane = spec.get::<Dataplane>().ok_or("the Dataplane has no spec")?;
            check_dataplane(claims, dataplane, labels)
        })
    }

    fn judge(&self, check: impl FnOnce(&DataplaneToken) -> Result<(), String>) -> Result<(), Status> {
        let Some(verified) = &self.0 else { return Ok(()) };
        check(&verified.claims).map_err(|reason| {
            Status::permission_denied(format!("the dataplane token is for another proxy: {reason}"))
        })
    }
}

/// A claim that a token does not make may be anything.
fn same(what: &str, wanted: &str, is: &str) -> Result<(), String> {
    if wanted.is_empty() || wanted == is {
        return Ok(());
    }
    Err(format!("it is for {what} {wanted:?}, the proxy has {is:?}"))
}

fn check_name(claims: &DataplaneToken, proxy: &Key) -> Result<(), String> {
    same("proxy type", &claims.proxy_type, DATAPLANE)?;
    same("name", &claims.name, &proxy.name)?;
    same("mesh", &claims.mesh, &proxy.mesh)
}

fn check_dataplane(claims: &DataplaneToken, dataplane: &Dataplane, labels: &Labels) -> Result<(), String> {
    let workload = labels.get(labels::WORKLOAD).map(String::as_str).unwrap_or_default();
    same("workload", &claims.workload, workload)?;
    for (tag, allowed) in &claims.tags {
        let values: Vec<&String> = tag_sets(dataplane).filter_map(|tags| tags.get(tag)).collect();
        if values.is_empty() {
            return Err(format!("it is for tag {tag:?}, which the Dataplane does not have"));
        }
        if let Some(other) = values.into_iter().find(|value| !allowed.contains(value)) {
            return Err(format!("it is for tag {tag:?} of {allowed:?}, the Dataplane has {other:?}"));
        }
    }
    Ok(())
}

fn tag_sets(dataplane: &Dataplane) -> impl Iterator<Item = &BTreeMap<String, String>> {
    let of_gateway = dataplane.gateway().map(|gateway| &gateway.tags);
    dataplane.inbounds().iter().map(|inbound| &inbound.tags).chain(of_gateway)
}
