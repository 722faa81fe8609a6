//! A resource by its KRI.

use admission::ControlPlaneRole;
use axum::response::Response;
use resources::{
    Key, Kind,
    naming::{Kri, kds, namespaced},
};

use crate::{
    Error,
    call::{Call, with_revision},
    json, resource, versions,
};

/// Checks that the user may read the kind that the identifier names.
pub fn check_access(call: &Call) -> Result<(), Error> {
    call.check_access(identified(call)?.kind)
}

/// `GET /_kri/{kri}`. A section, if there is one, does not change which resource is meant.
pub fn get(call: &Call) -> Result<Response, Error> {
    let Identified { identifier, kind } = identified(call)?;
    let snapshot = call.snapshot()?;
    let found = names(call.context.registrar.mode(), &identifier)
        .into_iter()
        .find_map(|name| snapshot.get(&Key::new(kind, &identifier.mesh, &name)))
        .ok_or_else(|| Error::not_found(resource::RETRIEVE))?;
    let namespace = Some(identifier.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let shown = resource::show(found, call.query("format"), namespace)?;
    Ok(versions::with_version(with_revision(json::ok(&shown), &snapshot), found))
}

/// An identifier of a known kind.
struct Identified {
    identifier: Kri,
    kind: Kind,
}

fn identified(call: &Call) -> Result<Identified, Error> {
    let identifier: Kri = call
        .param("kri")
        .parse()
        .map_err(|error: resources::naming::Error| Error::BadRequest(error.to_string()))?;
    let kind = identifier.kind().ok_or_else(|| Error::not_found(resource::RETRIEVE))?;
    Ok(Identified { identifier, kind })
}

/// The names the resource may have in this store, likeliest first: its own where it was written here,
/// the hashed one where it was synchronised.
fn names(mode: &ControlPlaneRole, kri: &Kri) -> Vec<String> {
    let some = |text: &'_ str| (!text.is_empty()).then(|| text.to_owned());
    let zone = some(&kri.zone);
    let namespace = some(&kri.namespace);
    let hashed = || kds::hashed_name(&kri.mesh, &kri.name, zone.as_deref(), namespace.as_deref());
    let own = || namespaced::stored(&kri.name, &kri.namespace);
    match mode {
        ControlPlaneRole::Global if kri.zone.is_empty() => own().collect(),
        ControlPlaneRole::Zone { name, .. } if kri.zone == *name => own().collect(),
        // Written here without a zone label, or written on the global control plane.
        ControlPlaneRole::Zone { .. } if kri.zone.is_empty() => own().chain([hashed()]).collect(),
        _ => vec![hashed()],
    }
}
