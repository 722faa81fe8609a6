//! The secrets of a proxy: its certificate, and the authorities that it trusts.
//!
//! What is the same for every proxy of a mesh (who signs, who is trusted) is read once per change of its
//! secrets and shared; a certificate is kept as it is sent, and signed while no other proxy waits.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use admission::{ControlPlaneRole, Refusal};
use identity::{
    Authority,
    ca::{
        self, Files, FreshKey, Sources, builtin,
        early_roots::{self, RenewalError},
    },
    workload::{self, CertificateRequest, Issuer, rotation},
};
use jiff::Timestamp;
use plan::{AuthoritiesSecret, CertificateSecret, SecretNames};
use resources::{
    Key, Kind, Resource,
    kinds::{dataplane_insight::CertificateStatus, mesh::Mesh},
    labels,
    naming::{SpiffeId, spiffe},
};
use store::Snapshot;
use tokio::{
    sync::{AcquireError, Semaphore},
    task::JoinError,
};
use tonic::Status;
use topology::Trusts;
use xds::{Encoded, Target, Type};

use super::{ProxyContext, credentials::Credentials, proxy::IdentifiedProxy, renewal, unvouched};
use crate::push::lock;

/// Number of authorities that are made at a time. A key of theirs takes a processor for seconds.
const MADE_AT_ONCE: usize = 1;

/// Number of RSA keys of proxies that are made at a time: half of the processors serve meanwhile.
fn keys_at_once() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| processors.get().div_ceil(2))
}

/// Reason why a proxy gets no certificate.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The Dataplane is one that the proxy's token is not for.
    #[error(transparent)]
    Denied(#[from] Status),
    #[error("there is no {0}")]
    Missing(String),
    #[error("mTLS is off in mesh {0:?}")]
    WithoutMtls(String),
    /// The MeshIdentity that was planned is not the proxy's.
    #[error("{0}")]
    Identity(String),
    #[error(transparent)]
    Authority(#[from] identity::Error),
    #[error(transparent)]
    Renewal(#[from] RenewalError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The thread that made a key.
    #[error(transparent)]
    Ended(#[from] JoinError),
    #[error(transparent)]
    Closed(#[from] AcquireError),
}

/// Hands certificates to proxies; shared by all streams.
#[derive(Debug)]
pub struct Secrets {
    issuer: Issuer<Arc<Encoded>>,
    /// Files that authorities may be read from, in addition to the store.
    files: Files,
    meshes: Mutex<HashMap<Arc<str>, Arc<MeshSecrets>>>,
    /// Held while a mesh is read: the others of this mesh wait for the result instead of reading it, too.
    reading: Mutex<HashMap<Arc<str>, Arc<tokio::sync::Mutex<()>>>>,
    making: Arc<Semaphore>,
    /// Turns to make RSA keys of proxies.
    making_keys: Semaphore,
}

impl Default for Secrets {
    fn default() -> Self {
        Secrets {
            issuer: Issuer::default(),
            files: Files::default(),
            meshes: Mutex::default(),
            reading: Mutex::default(),
            making: Arc::new(Semaphore::new(MADE_AT_ONCE)),
            making_keys: Semaphore::new(keys_at_once()),
        }
    }
}

/// Secrets that all proxies of a mesh share, as of a count of changes of its secrets.
#[derive(Debug)]
struct MeshSecrets {
    as_of: u64,
    /// A clock that shows an earlier time makes authorities too young.
    read_at: Timestamp,
    /// The backend that signs; `None` while the mesh has no mTLS of its own.
    backend: Option<String>,
    /// Every backend of the mesh; all are trusted.
    backends: Arc<[String]>,
    /// PEM.
    roots: String,
    /// PEM by trust domain, those of the mesh's own authorities included; empty while there is no MeshTrust.
    trusted: Vec<(String, String)>,
    /// The roots as they are sent, under each name that proxies have for them.
    authorities: Mutex<Vec<Arc<Encoded>>>,
    /// Read when a certificate is needed.
    authority: Mutex<Option<Arc<Authority>>>,
    /// Authorities of MeshIdentities, by name.
    of_identities: Mutex<HashMap<Arc<str>, Arc<Authority>>>,
}

/// Authority that signs the certificate of a proxy, and the certificate's content.
struct CertificateContent {
    /// The backend of the mesh, or the KRI of a MeshIdentity.
    by: String,
    /// `None` for the mesh's own authority.
    identity: Option<Arc<Resource>>,
    uris: Vec<String>,
}

/// Secrets given to a proxy, and the time to look again.
#[derive(Debug, Clone)]
pub struct IssuedSecrets {
    /// The mesh in which the proxy acts by them.
    pub mesh: Arc<str>,
    identity: Arc<Encoded>,
    authorities: Arc<Encoded>,
    pub certificate: Arc<workload::Facts>,
    backends: Arc<[String]>,
    renew_at: Timestamp,
    /// A clock that shows an earlier time makes the certificate too young; `None` where nothing is to be done about it.
    since: Option<Timestamp>,
}

impl IssuedSecrets {
    pub fn add_to(&self, target: &mut Target) {
        target.insert(Type::Secret, self.identity.clone());
        target.insert(Type::Secret, self.authorities.clone());
    }

    /// By the wall clock, as the certificate expires.
    pub fn renew_at(&self) -> Timestamp {
        self.renew_at
    }

    /// The time before which the certificate is to be replaced.
    pub fn since(&self) -> Option<Timestamp> {
        self.since
    }

    /// Entry for the proxy's insight about its certificate, which is new.
    pub fn status(&self) -> CertificateStatus {
        CertificateStatus {
            certificate_expiration_time: Some(self.certificate.expires),
            last_certificate_regeneration: Some(Timestamp::now()),
            issued_backend: self.certificate.backend.to_string(),
            supported_backends: self.backends.to_vec(),
            ..CertificateStatus::default()
        }
    }

    /// The same secrets, looked at again after a pause.
    #[must_use]
    pub fn retry_after(mut self, pause: Duration) -> IssuedSecrets {
        self.renew_at = renewal::after(pause);
        self.since = None;
        self
    }
}

/// Delay before trying again when nothing says how long.
pub const PAUSE: Duration = Duration::from_secs(5);

impl Secrets {
    pub fn reading(files: Files) -> Secrets {
        Secrets { files, ..Secrets::default() }
    }

    /// The certificate the proxy is to have now. The same one as before unless it nears its end, or the
    /// proxy's tags or the mesh's authorities have changed. It is refused if
    /// the proxy's token is not for the Dataplane: it is compared with the very Dataplane that is certified.
    pub async fn issue(
        &self,
        context: &ProxyContext,
        proxy: &IdentifiedProxy,
        credentials: &Credentials,
        names: &SecretNames,
    ) -> Result<IssuedSecrets, IssueError> {
        let now = Timestamp::now();
        let mesh = &*proxy.traits.mesh;
        let of_mesh = self.of_mesh(context, &proxy.traits.mesh, now).await?;
        let snapshot = context.registrar.store().snapshot()?;
        let key = proxy.key();
        let stored = snapshot.get(&key).ok_or_else(|| IssueError::Missing(key.to_string()))?;
        credentials.allow_stored(stored)?;
        let CertificateContent { by, identity, uris } =
            certified(context, &of_mesh, stored, credentials, &names.identity)?;
        let name = &*names.identity.name();
        let place = name;
        let backend = &*by;
        let names_in_it = &*uris;
        let mut wanted =
            CertificateRequest { proxy: &key, place, mesh, backend, names: names_in_it, fresh_key: None };
        let authority = || match &identity {
            Some(identity) => of_mesh.authority_of(self.sources(&snapshot), identity, now),
            None => of_mesh.authority(self.sources(&snapshot), mesh, &by, now),
        };
        let encoder = context.push.encoder();
        let jitter = rotation::jitter(&key);
        let needed = |authority: Arc<Authority>| self.issuer.needs_fresh_key(wanted, &authority, now, jitter);
        // Why an authority cannot be read is the issuer's to find out.
        let fresh = if identity.is_some() && authority().is_ok_and(needed) {
            Some(Box::pin(self.fresh_key()).await?)
        } else {
            None
        };
        wanted.fresh_key = fresh.as_ref();
        let offer = self.issuer.certificate_for(wanted, authority, now, jitter, |signed| {
            encoder.secret(name, &signed.chain, signed.private_key())
        })?;
        Ok(IssuedSecrets {
            mesh: proxy.traits.mesh.clone(),
            identity: offer.certificate,
            authorities: of_mesh.authorities(&names.authorities, encoder),
            since: Some(offer.facts.issued_at),
            certificate: offer.facts,
            backends: if identity.is_some() { [by].into() } else { of_mesh.backends.clone() },
            renew_at: offer.ask_again,
        })
    }

    /// The certificate by which an egress acts in a mesh: one of the mesh's own authority.
    pub async fn issue_to_egress(
        &self,
        context: &ProxyContext,
        proxy: &Key,
        mesh: &Arc<str>,
        names: &SecretNames,
    ) -> Result<IssuedSecrets, IssueError> {
        let now = Timestamp::now();
        let of_mesh = self.of_mesh(context, mesh, now).await?;
        let snapshot = context.registrar.store().snapshot()?;
        let by = of_mesh.backend.clone().ok_or_else(|| IssueError::WithoutMtls(mesh.to_string()))?;
        let uris = [
            SpiffeId::of_zone_egress(mesh).to_string(),
            spiffe::tag_uri(labels::SERVICE, spiffe::ZONE_EGRESS),
        ];
        let name = &*names.identity.name();
        let wanted =
            CertificateRequest { proxy, place: name, mesh, backend: &by, names: &uris, fresh_key: None };
        let authority = || of_mesh.authority(self.sources(&snapshot), mesh, &by, now);
        let encoder = context.push.encoder();
        let jitter = rotation::jitter(proxy);
        let offer = self.issuer.certificate_for(wanted, authority, now, jitter, |signed| {
            encoder.secret(name, &signed.chain, signed.private_key())
        })?;
        Ok(IssuedSecrets {
            mesh: mesh.clone(),
            identity: offer.certificate,
            authorities: of_mesh.authorities(&names.authorities, encoder),
            since: Some(offer.facts.issued_at),
            certificate: offer.facts,
            backends: of_mesh.backends.clone(),
            renew_at: offer.ask_again,
        })
    }

    /// Makes an RSA key in a thread of its own, because workers that make keys answer no one.
    async fn fresh_key(&self) -> Result<FreshKey, IssueError> {
        let _turn = self.making_keys.acquire().await?;
        Ok(tokio::task::spawn_blocking(FreshKey::make).await??)
    }

    /// Drops what is kept for a proxy that is gone; if it comes back it gets the same again, or another
    /// one with a fresh RSA key.
    pub fn forget(&self, proxy: &Key) {
        self.issuer.forget(proxy);
    }

    /// Number of certificates signed, for proving that cost follows change.
    pub fn signed(&self) -> u64 {
        self.issuer.signed()
    }

    async fn of_mesh(
        &self,
        context: &ProxyContext,
        mesh: &Arc<str>,
        now: Timestamp,
    ) -> Result<Arc<MeshSecrets>, IssueError> {
        // Counted before looking, so that what is kept can only be newer than its number.
        let changes = context.push.secrets_changed().borrow().of(mesh);
        let known = || lock(&self.meshes).get(mesh).cloned();
        let is_current = |known: &Arc<MeshSecrets>| {
            known.as_of >= changes && known.read_at.duration_since(now) <= renewal::CORRECTION
        };
        if let Some(known) = known().filter(is_current) {
            return Ok(known);
        }
        let turn = lock(&self.reading).entry(mesh.clone()).or_default().clone();
        let _reading = turn.lock().await;
        let before = match known() {
            Some(known) if is_current(&known) => return Ok(known),
            before => before,
        };
        let snapshot = self.with_authorities(context, mesh, now).await?;
        let read =
            Arc::new(MeshSecrets::read(self.sources(&snapshot), mesh, changes, now, before.as_deref())?);
        if before.is_some() {
            self.issuer.forgive(mesh);
        }
        lock(&self.meshes).insert(mesh.clone(), read.clone());
        Ok(read)
    }

    fn sources<'a>(&'a self, snapshot: &'a Snapshot) -> Sources<'a> {
        Sources { snapshot, files: Some(&self.files) }
    }

    /// The store, with the roots of the mesh's builtin backends made if they were missing: in a thread of
    /// their own, because workers that make keys answer no one.
    async fn with_authorities(
        &self,
        context: &ProxyContext,
        mesh: &Arc<str>,
        now: Timestamp,
    ) -> Result<Arc<Snapshot>, IssueError> {
        if matches!(context.registrar.mode(), ControlPlaneRole::Zone { federated: true, .. }) {
            // They come from the global control plane, which makes them for all zones.
            return Ok(context.registrar.store().snapshot()?);
        }
        let missing = |snapshot: Arc<Snapshot>| {
            let making = self.making.clone();
            let mesh = mesh.clone();
            async move {
                let _turn = making.acquire().await?;
                let made = tokio::task::spawn_blocking(move || builtin::missing(&snapshot, &mesh, now));
                Ok::<_, IssueError>(made.await??)
            }
        };
        for key in context.registrar.ensure_with(missing).await? {
            tracing::info!(
                mesh = &*key.mesh,
                name = &*key.name,
                "secret created for the certificate authority of the mesh"
            );
        }
        early_roots::renew(context.registrar.store().as_ref(), mesh, now).await?;
        Ok(context.registrar.store().snapshot()?)
    }
}

impl MeshSecrets {
    fn read(
        from: Sources<'_>,
        mesh: &str,
        as_of: u64,
        read_at: Timestamp,
        before: Option<&MeshSecrets>,
    ) -> Result<MeshSecrets, IssueError> {
        let spec = from.snapshot.get(&Key::global(Kind::Mesh, mesh)).and_then(|mesh| mesh.spec.get::<Mesh>());
        let backend = spec.and_then(Mesh::enabled_backend).map(|backend| backend.name.clone());
        let listed = spec.and_then(|spec| spec.mtls.as_ref()).into_iter().flat_map(|mtls| &mtls.backends);
        let backends: Arc<[String]> = listed.map(|backend| backend.name.clone()).collect();
        let roots = ca::trust_bundle(from, mesh);
        for problem in &roots.unreadable {
            tracing::warn!(mesh, %problem, "a certificate authority is not trusted");
        }
        let trusted = trusted(from.snapshot, mesh, backend.is_some().then_some(roots.pem.as_str()));
        // Proxies that trust the same as before share what they have.
        let before = before.filter(|before| before.roots == roots.pem && before.trusted == trusted);
        let authorities = before.map(|before| lock(&before.authorities).clone()).unwrap_or_default();
        let authorities = Mutex::new(authorities);
        let roots = roots.pem;
        let authority = Mutex::default();
        let of_identities = Mutex::default();
        Ok(MeshSecrets {
            as_of,
            read_at,
            backend,
            backends,
            roots,
            trusted,
            authorities,
            authority,
            of_identities,
        })
    }

    /// The roots as they are sent under a name, encoded once for all proxies.
    fn authorities(&self, secret: &AuthoritiesSecret, encoder: &envoy::Encoder) -> Arc<Encoded> {
        let mut encoded = lock(&self.authorities);
        if let Some(known) = encoded.iter().find(|known| *known.name == *secret.name()) {
            return known.clone();
        }
        let fresh = match secret {
            AuthoritiesSecret::TrustBundle(name) => encoder.trust_bundle(name, &self.trusted),
            AuthoritiesSecret::OfMesh(name) => encoder.authorities(name, &self.roots),
        };
        encoded.push(fresh.clone());
        fresh
    }

    /// Authority of a MeshIdentity; kept as the mesh's own authority is.
    fn authority_of(
        &self,
        from: Sources<'_>,
        identity: &Resource,
        now: Timestamp,
    ) -> Result<Arc<Authority>, identity::Error> {
        let mut kept = lock(&self.of_identities);
        if let Some(known) = kept.get(&identity.key.name) {
            return Ok(known.clone());
        }
        let read = Arc::new(Authority::of_identity(from, identity, now)?);
        kept.insert(identity.key.name.clone(), read.clone());
        Ok(read)
    }

    /// Authority for one backend. Reading it takes a signature, so that it is kept once that has worked.
    fn authority(
        &self,
        from: Sources<'_>,
        mesh: &str,
        backend: &str,
        now: Timestamp,
    ) -> Result<Arc<Authority>, identity::Error> {
        let mut kept = lock(&self.authority);
        if let Some(known) = &*kept {
            return Ok(known.clone());
        }
        let read = Arc::new(Authority::load(from, mesh, backend, now)?);
        *kept = Some(read.clone());
        Ok(read)
    }
}

/// Signer of a proxy's certificate, by the secret that was planned for it.
fn certified(
    context: &ProxyContext,
    of_mesh: &MeshSecrets,
    stored: &Resource,
    credentials: &Credentials,
    secret: &CertificateSecret,
) -> Result<CertificateContent, IssueError> {
    let mesh = stored.mesh();
    let planned = match secret {
        CertificateSecret::OfIdentity(planned) => planned,
        CertificateSecret::OfMesh(_) => {
            let by = of_mesh.backend.clone().ok_or_else(|| IssueError::WithoutMtls(mesh.to_string()))?;
            return Ok(CertificateContent { by, identity: None, uris: workload::names(stored)? });
        }
    };
    let snapshot = context.push.mesh(mesh).ok_or_else(|| IssueError::Missing(format!("mesh {mesh:?}")))?;
    let is_planned = |identity: &&Arc<Resource>| identity.kri("").as_ref() == Some(planned);
    let identity = snapshot.identity_of(stored).filter(is_planned);
    // What was planned may be from another version of the Dataplane than the one that is certified.
    unvouched::check(&snapshot, credentials, stored)
        .map_err(|unvouched| IssueError::Identity(unvouched.text()))?;
    let uri = snapshot.spiffe_id_of(stored);
    match (identity, uri) {
        (Some(identity), Some(uri)) => Ok(CertificateContent {
            by: planned.to_string(),
            identity: Some(identity.clone()),
            uris: vec![uri.to_string()],
        }),
        _ => Err(IssueError::Identity(format!("{planned} is not the identity of {} any more", stored.key))),
    }
}

/// Authorities that proxies trust once there are MeshTrusts: these, and the mesh's own authorities if it has
/// any.
fn trusted(snapshot: &Snapshot, mesh: &str, own: Option<&str>) -> Vec<(String, String)> {
    let mut trusts = Trusts::default();
    for trust in snapshot.in_mesh(Kind::MeshTrust, mesh) {
        trusts.replace(&trust.key, Some(trust));
    }
    let mut domains = trusts.domains();
    if let Some(own) = own.filter(|_| !domains.is_empty()) {
        domains.entry(mesh.to_owned()).or_default().push(own.to_owned());
    }
    domains.into_iter().map(|(domain, pems)| (domain, pems.join("\n"))).collect()
}
