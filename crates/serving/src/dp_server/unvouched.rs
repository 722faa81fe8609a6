//! Identities are given to proxies whose tokens vouch for them, and to no others.
//!
//! A MeshIdentity names a Dataplane by its labels, and the proxy that brings the Dataplane along chooses these. So the
//! token must bind each label that the SPIFFE ID follows from.

use std::{collections::BTreeSet, sync::Arc};

use resources::{Resource, kinds::mesh_identity::MeshIdentity};
use tonic::Status;
use topology::MeshSnapshot;

use super::{ProxyContext, credentials::Credentials};

/// Labels of a Dataplane that its MeshIdentity names it by and that its token does not bind.
pub struct UnvouchedLabels<'a> {
    identity: &'a Arc<Resource>,
    dataplane: &'a Resource,
    labels: BTreeSet<String>,
}

impl UnvouchedLabels<'_> {
    /// States the labels and the token that would bind them.
    pub fn text(&self) -> String {
        let UnvouchedLabels { identity, dataplane, labels } = self;
        let value = |label: &String| dataplane.label(label).unwrap_or_default();
        let said: Vec<String> =
            labels.iter().map(|label| format!("{label:?}, which is {:?}", value(label))).collect();
        let flags = labels.iter().map(|label| (label.as_str(), value(label)));
        format!(
            "the dataplane token does not vouch for who the proxy is: MeshIdentity {:?} names it by its label {}, and \
             the token does not bind that: generate one that does, with 'kumactl generate dataplane-token --mesh {} \
             --name {} {}'",
            identity.name(),
            said.join(", and "),
            dataplane.mesh(),
            dataplane.name(),
            plan::token_flags(flags),
        )
    }
}

/// Refuses a Dataplane that its MeshIdentity names by labels that the token does not bind.
pub fn check<'a>(
    mesh: &'a MeshSnapshot,
    credentials: &Credentials,
    dataplane: &'a Resource,
) -> Result<(), UnvouchedLabels<'a>> {
    let labels = mesh.identities.unvouched(dataplane, &mesh.zone, &credentials.vouched());
    match mesh.identities.of(dataplane) {
        Some(identity) if !labels.is_empty() => Err(UnvouchedLabels { identity, dataplane, labels }),
        _ => Ok(()),
    }
}

/// As [`check`], and remembers the outcome.
pub fn admit(context: &ProxyContext, credentials: &Credentials, dataplane: &Resource) -> Result<(), Status> {
    let Some(mesh) = context.push.mesh(dataplane.mesh()) else { return Ok(()) };
    let refusals = context.push.refusals();
    check(&mesh, credentials, dataplane).inspect(|()| refusals.remove(&dataplane.key)).map_err(|unvouched| {
        refusals.add(unvouched.identity, &dataplane.key.name, &unvouched.labels);
        Status::permission_denied(unvouched.text())
    })
}

/// Refuses a proxy that its MeshIdentity cannot name. One that is connected keeps what it has.
pub fn check_named(context: &ProxyContext, dataplane: &Resource) -> Result<(), Status> {
    let Some(mesh) = context.push.mesh(dataplane.mesh()) else { return Ok(()) };
    let Some(identity) = mesh.identities.of(dataplane) else { return Ok(()) };
    let lacking = identity.spec.get::<MeshIdentity>().and_then(|spec| spec.lacks(identity, dataplane));
    lacking.map_or(Ok(()), |lacking| Err(Status::failed_precondition(lacking)))
}
