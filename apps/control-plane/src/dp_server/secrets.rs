//! The secrets of a proxy: its certificate, and the authorities whose certificates it believes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use identity::{
    Authority,
    ca::{self, builtin},
    workload::{self, Issuer, Wanted, rotation},
};
use jiff::Timestamp;
use plan::SecretNames;
use resources::{
    Key, Kind,
    kinds::{dataplane_insight::CertificateStatus, mesh::Mesh},
};
use store::Snapshot;
use tokio::time::Instant;
use xds::{Encoded, Target, Type};

use super::{Context, proxy::Proxy};

/// Hands certificates to proxies; shared by all streams.
#[derive(Debug, Default)]
pub struct Secrets {
    issuer: Mutex<Issuer>,
    /// As of which change of secrets each mesh's failures are remembered.
    failures_as_of: Mutex<HashMap<Arc<str>, u64>>,
    /// Authorities by mesh: reading one is expensive.
    authorities: Mutex<HashMap<Arc<str>, Kept>>,
}

/// An authority, as of a count of changes of secrets.
#[derive(Debug)]
struct Kept {
    as_of: u64,
    authority: Arc<Authority>,
}

/// What a proxy was given, and when to look again.
#[derive(Debug, Clone)]
pub struct Issued {
    identity: Arc<Encoded>,
    authorities: Arc<Encoded>,
    roots: String,
    pub certificate: Arc<workload::Certificate>,
    /// Every backend of the mesh; all are trusted.
    backends: Vec<String>,
    renew_at: Instant,
}

impl Issued {
    pub fn add_to(&self, target: &mut Target) {
        target.insert(Type::Secret, self.identity.clone());
        target.insert(Type::Secret, self.authorities.clone());
    }

    pub fn renew_at(&self) -> Instant {
        self.renew_at
    }

    /// What the proxy's insight says about its certificate, which is new.
    pub fn status(&self) -> CertificateStatus {
        CertificateStatus {
            certificate_expiration_time: Some(self.certificate.expires),
            last_certificate_regeneration: Some(Timestamp::now()),
            issued_backend: self.certificate.backend.to_string(),
            supported_backends: self.backends.clone(),
            ..CertificateStatus::default()
        }
    }

    /// The same secrets, looked at again after a pause.
    #[must_use]
    pub fn retry_after(mut self, pause: Duration) -> Issued {
        self.renew_at = Instant::now() + pause;
        self
    }
}

/// How long to wait before trying again when nobody knows better.
pub const PAUSE: Duration = Duration::from_secs(5);

impl Secrets {
    /// The certificate the proxy is to have now. The same one as before unless it nears its end, or the
    /// proxy's tags or the mesh's authorities have changed.
    pub async fn issue(
        &self,
        context: &Context,
        proxy: &Proxy,
        names: &SecretNames,
        before: Option<&Issued>,
    ) -> anyhow::Result<Issued> {
        let now = Timestamp::now();
        let mesh = &*proxy.traits.mesh;
        // Counted before looking, so that what is kept can only be newer than its number.
        let changes = context.push.secrets_changed().borrow().of(mesh);
        let snapshot = with_authorities(context, mesh, now).await?;
        let backend = enabled_backend(&snapshot, mesh)?;
        let key = proxy.key();
        let stored = snapshot.get(&key).ok_or_else(|| anyhow::anyhow!("there is no {key}"))?;
        let uris = workload::names(stored)?;
        let wanted = Wanted { proxy: &key, mesh, backend: &backend, names: &uris };
        let offer = {
            let mut issuer = self.issuer.lock().unwrap_or_else(PoisonError::into_inner);
            if self.is_news(mesh, changes) {
                issuer.forgive(mesh);
            }
            let authority = || self.authority(&snapshot, mesh, &backend, changes, now);
            issuer.certificate_for(wanted, authority, now, rotation::jitter(&key))?
        };
        let roots = ca::trust_bundle(&snapshot, mesh);
        for problem in &roots.problems {
            tracing::warn!(mesh, %problem, "an authority is not trusted");
        }
        let wait = Duration::try_from(offer.ask_again.duration_since(now)).unwrap_or_default();
        let (encoder, certificate) = (context.push.encoder(), offer.certificate);
        // What the proxy has is not encoded again.
        let identity = before.filter(|b| b.certificate == certificate && *b.identity.name == *names.identity);
        let authorities =
            before.filter(|b| b.roots == roots.pem && *b.authorities.name == *names.authorities);
        Ok(Issued {
            identity: identity.map(|before| before.identity.clone()).unwrap_or_else(|| {
                encoder.secret(&names.identity, &certificate.chain, certificate.private_key())
            }),
            authorities: authorities
                .map(|before| before.authorities.clone())
                .unwrap_or_else(|| encoder.authorities(&names.authorities, &roots.pem)),
            roots: roots.pem,
            certificate,
            backends: backends(&snapshot, mesh),
            renew_at: Instant::now() + wait,
        })
    }
}

impl Secrets {
    /// Drops what is kept for a proxy that is gone; if it comes back it gets the same again.
    pub fn forget(&self, proxy: &Key) {
        self.issuer.lock().unwrap_or_else(PoisonError::into_inner).forget(proxy);
    }

    /// Whether secrets of the mesh have changed since the last time somebody asked.
    fn is_news(&self, mesh: &str, changes: u64) -> bool {
        let mut as_of = self.failures_as_of.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = as_of.entry(mesh.into()).or_insert(changes);
        std::mem::replace(seen, changes.max(*seen)) < changes
    }

    fn authority(
        &self,
        snapshot: &Snapshot,
        mesh: &str,
        backend: &str,
        changes: u64,
        now: Timestamp,
    ) -> Result<Arc<Authority>, identity::Error> {
        let mut kept = self.authorities.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Kept { as_of, authority }) = kept.get(mesh)
            && *as_of == changes
            && **authority.backend() == *backend
        {
            return Ok(authority.clone());
        }
        let authority = Arc::new(Authority::load(snapshot, mesh, backend, now)?);
        kept.insert(mesh.into(), Kept { as_of: changes, authority: authority.clone() });
        Ok(authority)
    }
}

/// The store, with the roots of the mesh's builtin backends made if they were missing.
async fn with_authorities(context: &Context, mesh: &str, now: Timestamp) -> anyhow::Result<Arc<Snapshot>> {
    let store = context.registrar.store();
    let snapshot = store.snapshot()?;
    let missing = builtin::missing(&snapshot, mesh, now)?;
    if missing.is_empty() {
        return Ok(snapshot);
    }
    for key in context.registrar.ensure(missing).await? {
        tracing::info!(secret = %key, "made for the certificate authority of the mesh");
    }
    Ok(store.snapshot()?)
}

fn backends(snapshot: &Snapshot, mesh: &str) -> Vec<String> {
    let spec = snapshot.get(&Key::global(Kind::Mesh, mesh)).and_then(|mesh| mesh.spec.get::<Mesh>());
    let mtls = spec.and_then(|spec| spec.mtls.as_ref());
    mtls.into_iter().flat_map(|mtls| &mtls.backends).map(|backend| backend.name.clone()).collect()
}

fn enabled_backend(snapshot: &Snapshot, mesh: &str) -> anyhow::Result<String> {
    let spec = snapshot.get(&Key::global(Kind::Mesh, mesh)).and_then(|mesh| mesh.spec.get::<Mesh>());
    let backend = spec.and_then(Mesh::enabled_backend).map(|backend| backend.name.clone());
    backend.ok_or_else(|| anyhow::anyhow!("mTLS is off in mesh {mesh:?}"))
}
