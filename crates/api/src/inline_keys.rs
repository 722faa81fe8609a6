//! Keys that are written into a MeshIdentity or a MeshExternalService: shown as [`MASK`], to every caller. A resource
//! that is put back with the mask keeps the key that is stored. Those of a Mesh are in [`mesh`](crate::mesh).

use std::sync::Arc;

use resources::{Draft, Resource, Spec, Violations, kinds::mesh_external_service::DataSource};

use crate::{Error, mesh, resource};

/// Stands for a key. It is neither base64 nor PEM, so no key is written like it.
pub const MASK: &str = "*****";

/// The resource without keys that are written into it.
pub fn mask(resource: &Arc<Resource>) -> Arc<Resource> {
    match &resource.spec {
        Spec::Mesh(_) => mesh::mask_keys(resource),
        Spec::MeshIdentity(_) | Spec::MeshExternalService(_) => {
            let mut spec = resource.spec.clone();
            inline_keys(&mut spec).into_iter().for_each(|(_, key)| MASK.clone_into(key));
            Arc::new(Resource { spec, ..Resource::clone(resource) })
        }
        _ => resource.clone(),
    }
}

/// Puts the stored keys where the mask is, and refuses a mask where no key is stored.
pub fn unmask(draft: &mut Draft, stored: Option<&Arc<Resource>>) -> Result<(), Error> {
    let mut known = stored.map(|stored| stored.spec.clone());
    let known = known.as_mut().map(inline_keys).unwrap_or_default();
    let mut missing = Violations::default();
    for (path, key) in inline_keys(&mut draft.spec).into_iter().filter(|(_, key)| *key == MASK) {
        match known.iter().find(|(place, _)| *place == path) {
            Some((_, kept)) => key.clone_from(kept),
            None => {
                missing.add(path, format!("{MASK} stands for a key that is not stored: write the key itself"))
            }
        }
    }
    missing.into_result().map_err(|violations| Error::Invalid { title: resource::PROCESS.into(), violations })
}

/// Every key that is written into a resource, with its place.
fn inline_keys(spec: &mut Spec) -> Vec<(&'static str, &mut String)> {
    match spec {
        Spec::MeshIdentity(identity) => {
            let provider = Arc::make_mut(identity).provider.as_mut();
            let bundled = provider.and_then(|provider| provider.bundled.as_mut());
            let key = bundled.and_then(|bundled| bundled.ca.as_mut()?.private_key.as_mut());
            let inline = key.and_then(|key| key.insecure_inline.as_mut());
            let place = "spec.provider.bundled.ca.privateKey.insecureInline.value";
            inline.map(|inline| (place, &mut inline.value)).into_iter().collect()
        }
        Spec::MeshExternalService(service) => {
            let tls = Arc::make_mut(service).tls.as_mut();
            let key = tls.and_then(|tls| tls.verification.as_mut()?.client_key.as_mut());
            let Some(DataSource { secret: _, inline, inline_string }) = key else { return Vec::new() };
            let places = [
                ("spec.tls.verification.clientKey.inline", inline),
                ("spec.tls.verification.clientKey.inlineString", inline_string),
            ];
            places.into_iter().filter_map(|(place, key)| Some((place, key.as_mut()?))).collect()
        }
        _ => Vec::new(),
    }
}
