//! Identities are given to proxies whose tokens vouch for them, and to no others.
//!
//! A MeshIdentity names a Dataplane by its labels, and the proxy that brings the Dataplane along chooses these. So the
//! token must bind each label that the SPIFFE ID follows from.

use resources::{Resource, kinds::mesh_identity::MeshIdentity};
use tonic::Status;
use topology::MeshSnapshot;

use super::{Context, credentials::Credentials};

/// Refuses a Dataplane that its MeshIdentity names by labels that the token does not bind.
pub fn check(mesh: &MeshSnapshot, credentials: &Credentials, dataplane: &Resource) -> Result<(), Status> {
    let chosen = mesh.identities.unvouched(dataplane, &mesh.zone, &credentials.vouched());
    let Some(identity) = mesh.identities.of(dataplane).filter(|_| !chosen.is_empty()) else { return Ok(()) };
    let has =
        |label: &String| format!("{label:?}, which is {:?}", dataplane.label(label).unwrap_or_default());
    let said: Vec<String> = chosen.iter().map(has).collect();
    let flags = chosen.iter().map(|label| (label.as_str(), dataplane.label(label).unwrap_or_default()));
    Err(Status::permission_denied(format!(
        "the dataplane token does not vouch for who the proxy is: MeshIdentity {:?} names it by its label {}, and the \
         token does not bind that: generate one that does, with 'kumactl generate dataplane-token --mesh {} --name {} {}'",
        identity.name(),
        said.join(", and "),
        dataplane.mesh(),
        dataplane.name(),
        plan::token_flags(flags),
    )))
}

/// As [`check`], and remembers the outcome.
pub fn admit(context: &Context, credentials: &Credentials, dataplane: &Resource) -> Result<(), Status> {
    let Some(mesh) = context.push.mesh(dataplane.mesh()) else { return Ok(()) };
    let checked = check(&mesh, credentials, dataplane);
    let refusals = context.push.refusals();
    match (&checked, mesh.identities.of(dataplane)) {
        (Err(_), Some(identity)) => {
            let chosen = mesh.identities.unvouched(dataplane, &mesh.zone, &credentials.vouched());
            refusals.add(identity, &dataplane.key.name, &chosen);
        }
        _ => refusals.remove(&dataplane.key),
    }
    checked
}

/// Refuses a proxy that its MeshIdentity cannot name. One that is connected keeps what it has.
pub fn check_named(context: &Context, dataplane: &Resource) -> Result<(), Status> {
    let Some(mesh) = context.push.mesh(dataplane.mesh()) else { return Ok(()) };
    let Some(identity) = mesh.identities.of(dataplane) else { return Ok(()) };
    let lacking = identity.spec.get::<MeshIdentity>().and_then(|spec| spec.lacks(identity, dataplane));
    lacking.map_or(Ok(()), |lacking| Err(Status::failed_precondition(lacking)))
}
