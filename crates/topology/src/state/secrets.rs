//! Certificates and keys that MeshExternalServices take from the secrets of their mesh.

use std::{collections::BTreeSet, sync::Arc};

use imbl::OrdMap;
use resources::{
    Key, Kind, Resource, Spec,
    kinds::{
        mesh_external_service::{DataSource, MeshExternalService, Tls},
        secret::Secret,
    },
};

use super::{index::ServiceRef, resource_diff::seen_alike};
use crate::lists::{Lists, add_to, remove_from};

/// The secrets of a mesh, and who refers to them.
#[derive(Debug, Clone, Default)]
pub(super) struct Secrets {
    stored: OrdMap<Arc<str>, Arc<Resource>>,
    /// The names of the MeshExternalServices that refer to a secret, by its name.
    readers: Lists<Arc<str>, Arc<str>>,
    /// The names of the secrets that authorities sign with, by the mesh or MeshIdentity that has the authority.
    signing: OrdMap<Key, BTreeSet<Arc<str>>>,
}

impl Secrets {
    pub(super) fn is_empty(&self) -> bool {
        self.stored.is_empty() && self.signing.is_empty()
    }

    /// Replaces a secret by another version; returns the subjects that must be built again. Keys that the
    /// control plane signs with are not for proxies, whatever refers to them.
    pub(super) fn replace(&mut self, key: &Key, value: Option<&Arc<Resource>>) -> BTreeSet<ServiceRef> {
        let value = value.filter(|secret| !signs(secret));
        if seen_alike(self.stored.get(&key.name), value) {
            return BTreeSet::new();
        }
        match value {
            Some(secret) => self.stored.insert(key.name.clone(), secret.clone()),
            None => self.stored.remove(&key.name),
        };
        self.read_by(&key.name).collect()
    }

    /// Takes in another version of a mesh or of a MeshIdentity, whose authority may sign with other secrets; returns what
    /// must be built again.
    pub(super) fn replace_signer(&mut self, key: &Key, value: Option<&Resource>) -> BTreeSet<ServiceRef> {
        let names = value.map(signing_keys).unwrap_or_default();
        let before = if names.is_empty() {
            self.signing.remove(key)
        } else {
            self.signing.insert(key.clone(), names.clone())
        };
        let before = before.unwrap_or_default();
        before.symmetric_difference(&names).flat_map(|secret| self.read_by(secret)).collect()
    }

    fn read_by(&self, secret: &Arc<str>) -> impl Iterator<Item = ServiceRef> {
        self.readers.get(secret).into_iter().flatten().cloned().map(ServiceRef::External)
    }

    /// Takes in another version of a MeshExternalService.
    pub(super) fn replace_reader(&mut self, old: Option<&Resource>, new: Option<&Resource>) {
        for (secret, reader) in referred(old) {
            remove_from(&mut self.readers, &secret, &reader);
        }
        for (secret, reader) in referred(new) {
            add_to(&mut self.readers, secret, reader);
        }
    }

    /// The same with what its secrets hold in place of their names; one that is missing stays a name.
    pub(super) fn fill(&self, tls: &Tls) -> Tls {
        let mut filled = tls.clone();
        let verification = filled.verification.iter_mut();
        let sources =
            verification.flat_map(|it| [&mut it.ca_cert, &mut it.client_cert, &mut it.client_key]).flatten();
        for source in sources {
            let signs = |name: &&str| self.signing.values().any(|names| names.contains(*name));
            let named = source.secret.as_deref().filter(|name| !signs(name));
            let named = named.and_then(|name| self.stored.get(name));
            if let Some(secret) = named.and_then(|secret| secret.spec.get::<Secret>()) {
                // What is no text is no PEM either, which is found out where it is used.
                let text = String::from_utf8_lossy(secret.data.as_bytes()).into_owned();
                *source = DataSource { inline_string: Some(text), ..DataSource::default() };
            }
        }
        filled
    }
}

/// The secrets that the authorities of a mesh or of a MeshIdentity read their keys from, also those that a user wrote.
fn signing_keys(signer: &Resource) -> BTreeSet<Arc<str>> {
    match &signer.spec {
        Spec::Mesh(mesh) => {
            let backends = mesh.mtls.iter().flat_map(|mtls| &mtls.backends);
            let keys =
                backends.filter_map(|backend| backend.conf.as_ref()?.get("key")?.get("secret")?.as_str());
            keys.map(Arc::from).collect()
        }
        Spec::MeshIdentity(identity) => {
            let given = identity.bundled().and_then(|bundled| bundled.ca.as_ref()?.private_key.as_ref());
            let named =
                given.and_then(|key| key.secret_ref.as_ref()).map(|secret| secret.name.as_str().into());
            // The one that the control plane makes, which has another owner after it was restored.
            named.into_iter().chain([format!("{}-private-key", signer.name()).into()]).collect()
        }
        _ => BTreeSet::new(),
    }
}

/// The secret is a key of an authority of the mesh, or of its tokens.
fn signs(secret: &Resource) -> bool {
    let of_mesh = [format!("{}.ca-builtin-key-", secret.mesh()), "dataplane-token-signing-key-".to_owned()];
    let of_identity = secret.owner.as_ref().is_some_and(|owner| owner.kind == Kind::MeshIdentity);
    of_identity || of_mesh.iter().any(|prefix| secret.name().starts_with(prefix))
}

/// The secrets that a MeshExternalService refers to, each with the name of the service.
fn referred(service: Option<&Resource>) -> Vec<(Arc<str>, Arc<str>)> {
    let Some(service) = service else { return Vec::new() };
    let tls = service.spec.get::<MeshExternalService>().and_then(|spec| spec.tls.as_ref());
    let verification = tls.and_then(|tls| tls.verification.as_ref()).into_iter();
    let sources = verification.flat_map(|it| [&it.ca_cert, &it.client_cert, &it.client_key]).flatten();
    let names = sources.filter_map(|source| source.secret.as_deref());
    names.map(|secret| (secret.into(), service.key.name.clone())).collect()
}
