//! Destinations that a value of SNI leads to.

use std::{collections::BTreeMap, sync::Arc};

use axum::response::Response;
use contract::{
    pages::Listing,
    sni::{KnownSni, SniDestination},
};
use resources::{Kind, Resource, naming::sni};
use store::Snapshot;

use crate::{
    Error,
    call::{Call, with_revision},
    json,
    list::{ListItem, Paging, in_scope},
};

/// Kinds that have values of SNI.
pub const KINDS: [Kind; 3] = [Kind::MeshService, Kind::MeshExternalService, Kind::MeshMultiZoneService];

/// `GET /meshes/{mesh}/_sni`. With `value` what that one leads to, found without looking at any other.
pub fn list(call: &Call) -> Result<Response, Error> {
    let snapshot = call.snapshot()?;
    let mesh = call.mesh(&snapshot)?;
    let paging = Paging::read(call)?;
    let known = known(call, &snapshot, mesh);
    let mesh = call.param("mesh");
    let placed = known.into_iter().map(|(value, destinations)| ListedSni { mesh, value, destinations });
    let page: Listing<KnownSni> = paging.cut(call, placed, |placed| KnownSni {
        value: placed.value.clone(),
        destinations: placed.destinations.clone(),
    });
    Ok(with_revision(json::ok(&page), &snapshot))
}

/// Values that are accepted in the mesh of a request, with their destinations; only `value` of the query, if it has
/// one.
pub fn known(call: &Call, snapshot: &Snapshot, mesh: Option<&str>) -> BTreeMap<String, Vec<SniDestination>> {
    match call.query("value") {
        Some(value) => {
            let of_mesh = |resource: &&Arc<Resource>| Some(resource.mesh()) == mesh;
            gathered(snapshot.accepting(value).into_iter().filter(of_mesh), Some(value))
        }
        None => gathered(KINDS.iter().flat_map(|kind| in_scope(snapshot, *kind, mesh)), None),
    }
}

/// Accepted values with their destinations; only `wanted`, if one is.
fn gathered<'a>(
    resources: impl Iterator<Item = &'a Arc<Resource>>,
    wanted: Option<&str>,
) -> BTreeMap<String, Vec<SniDestination>> {
    let mut found: BTreeMap<String, Vec<SniDestination>> = BTreeMap::new();
    for resource in resources {
        let accepted = sni::accepted(resource).into_iter();
        for it in accepted.filter(|it| wanted.is_none_or(|wanted| it.value == wanted)) {
            let Some(kri) = resource.kri(&it.section) else { continue };
            let kri = kri.to_string();
            let listed = it.index.is_some();
            let destination = SniDestination { kri, port: it.port, dialled: it.dialled, listed };
            let destinations = found.entry(it.value).or_default();
            // Two ports of one number differ in their protocols alone.
            if !destinations.contains(&destination) {
                destinations.push(destination);
            }
        }
    }
    found
}

/// A value with its place in the list.
pub struct ListedSni<'a> {
    pub mesh: &'a str,
    pub value: String,
    pub destinations: Vec<SniDestination>,
}

impl ListItem for ListedSni<'_> {
    fn named(&self) -> (&str, &str) {
        (self.mesh, &self.value)
    }
}
