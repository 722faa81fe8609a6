//! The Dataplanes a MeshService consists of.

use axum::response::Response;
use resources::{
    Kind, Resource,
    kinds::{
        dataplane::Dataplane,
        mesh_service::{MeshService, ServiceSelector},
    },
};

use crate::{
    Error,
    call::{Call, with_revision},
    filter::tag_sets,
    inspect::rules::Meta,
    json,
    list::{Paging, Selection, in_scope},
    resource::RETRIEVE,
};

/// `GET /meshes/{mesh}/meshservices/{name}/_resources/dataplanes` and its short form.
pub fn list(call: &Call) -> Result<Response, Error> {
    let snapshot = call.snapshot()?;
    let mesh = call.mesh(&snapshot)?;
    let paging = Paging::read(call)?;
    let part = call.query("name").unwrap_or_default();
    let stored = snapshot.get(&call.key(Kind::MeshService)).ok_or_else(|| Error::not_found(RETRIEVE))?;
    let selector = stored.spec.get::<MeshService>().map(|service| &service.selector);
    let selected = in_scope(&snapshot, Kind::Dataplane, mesh).filter(|dataplane| {
        dataplane.name().contains(part) && selector.is_some_and(|selector| selects(selector, dataplane))
    });
    let page = paging.cut(call, selected.cloned(), |dataplane| Meta::of(dataplane));
    Ok(with_revision(json::ok(&Selection::from(page)), &snapshot))
}

/// A selector that says nothing selects nothing.
fn selects(selector: &ServiceSelector, dataplane: &Resource) -> bool {
    if let Some(one) = selector.dataplane_ref.as_ref().filter(|one| !one.name.is_empty()) {
        return dataplane.name() == one.name;
    }
    if let Some(wanted) = &selector.dataplane_labels {
        return wanted.match_labels.iter().all(|(key, value)| dataplane.label(key) == Some(value));
    }
    let Some(wanted) = selector.dataplane_tags.as_ref().filter(|tags| !tags.is_empty()) else { return false };
    dataplane.spec.get::<Dataplane>().is_some_and(|dataplane| {
        tag_sets(dataplane).any(|tags| wanted.iter().all(|(key, value)| tags.get(key) == Some(value)))
    })
}
