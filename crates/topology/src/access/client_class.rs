//! Properties of a client that servers can know.

use std::{
    cmp::Ordering,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use policy::Client;
use resources::Resource;

use crate::{Identities, MeshSnapshot, Trusts, identities};

/// Clients that servers cannot distinguish: they have the same certificate, or none. Cheap to clone and to
/// compare.
#[derive(Clone)]
pub struct ClientClass(Arc<(u64, bool, Client)>);

impl ClientClass {
    /// The class of a proxy.
    pub fn of(mesh: &MeshSnapshot, dataplane: &Resource) -> ClientClass {
        let certified = mesh.mtls.is_some();
        ClientClass::in_mesh(certified, &mesh.identities, &mesh.trusts, &mesh.zone, dataplane)
    }

    /// `certified` says whether the mesh gives proxies a certificate that have no identity.
    pub(crate) fn in_mesh(
        certified: bool,
        identities: &Identities,
        trusts: &Trusts,
        zone: &str,
        dataplane: &Resource,
    ) -> ClientClass {
        match identities::given(identities, trusts, zone, dataplane) {
            Some((_, id)) => ClientClass::from(Client::with_spiffe_id(id)),
            None => ClientClass::new(!certified, Client::of_dataplane(dataplane)),
        }
    }

    fn new(plain: bool, client: Client) -> ClientClass {
        let mut hasher = DefaultHasher::new();
        (plain, &client).hash(&mut hasher);
        ClientClass(Arc::new((hasher.finish(), plain, client)))
    }

    /// Returns the content of the certificate; for a client without one, the content that a certificate of
    /// the mesh would have.
    pub fn client(&self) -> &Client {
        &self.0.2
    }

    /// The client has no certificate: it calls without TLS, and no permission is about it.
    pub fn is_plain(&self) -> bool {
        self.0.1
    }
}

impl From<Client> for ClientClass {
    fn from(client: Client) -> ClientClass {
        ClientClass::new(false, client)
    }
}

impl PartialEq for ClientClass {
    fn eq(&self, other: &ClientClass) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for ClientClass {}

impl PartialOrd for ClientClass {
    fn partial_cmp(&self, other: &ClientClass) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ClientClass {
    /// By hash, which decides nearly always, and then by content.
    fn cmp(&self, other: &ClientClass) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl Hash for ClientClass {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.0.hash(state);
    }
}

impl fmt::Debug for ClientClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client().fmt(f)
    }
}
