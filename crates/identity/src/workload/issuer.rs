//! Hands out certificates, and leaves an authority that fails alone for a while.

use std::{collections::HashMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use resources::Key;

use super::{Certificate, issue, rotation};
use crate::{Error, ca::Authority};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What a proxy needs a certificate for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub proxy: &'a Key,
    pub mesh: &'a str,
    /// The backend the mesh enables.
    pub backend: &'a str,
    /// From [`names`](super::names).
    pub names: &'a [String],
}

/// A certificate, and when to ask again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    pub certificate: Arc<Certificate>,
    pub ask_again: Timestamp,
}

/// An authority that did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The last error.
    pub error: Error,
    /// How many attempts failed in a row.
    pub attempts: u32,
    /// Until then nobody tries again.
    pub retry_at: Timestamp,
}

type Of = (Arc<str>, Arc<str>);

/// Certificates by proxy, and failures by backend.
#[derive(Debug, Default)]
pub struct Issuer {
    issued: HashMap<(Key, Arc<str>), Arc<Certificate>>,
    failures: HashMap<Of, Failure>,
    signed: u64,
}

impl Issuer {
    /// The certificate a proxy is to have now: the one it has, unless that is to be replaced by age or
    /// because names, backend or root are others. While the authority fails, the one it has is kept as
    /// long as it is valid. `jitter` is between -1 and 1; with [`rotation::jitter`] every control plane
    /// gives the same answer.
    pub fn certificate_for(
        &mut self,
        wanted: Wanted<'_>,
        authority: impl FnOnce() -> Result<Arc<Authority>, Error>,
        now: Timestamp,
        jitter: f64,
    ) -> Result<Offer, Error> {
        let backend: Of = (wanted.mesh.into(), wanted.backend.into());
        if self.failures.get(&backend).is_none_or(|failure| failure.retry_at <= now) {
            match authority().and_then(|authority| self.current(wanted, &authority, now, jitter)) {
                Ok(offer) => {
                    self.failures.remove(&backend);
                    return Ok(offer);
                }
                // The proxy's fault: the authority serves others well.
                Err(error @ Error::Names(_)) => return Err(error),
                Err(error) => self.record(backend.clone(), error, now),
            }
        }
        self.keep(wanted, &backend, now)
    }

    /// Why the last attempt of a backend failed; `None` when it did not.
    pub fn failure(&self, mesh: &str, backend: &str) -> Option<&Failure> {
        self.failures.get(&(mesh.into(), backend.into()))
    }

    /// How many certificates were signed.
    pub fn signed(&self) -> u64 {
        self.signed
    }

    /// Tries again at once: somebody changed the mesh or its secrets, so what failed may work now.
    pub fn forgive(&mut self, mesh: &str) {
        self.failures.retain(|(of, _), _| &**of != mesh);
    }

    /// Drops what is kept for a proxy that is gone.
    pub fn forget(&mut self, proxy: &Key) {
        self.issued.retain(|(of, _), _| of != proxy);
    }

    fn current(
        &mut self,
        wanted: Wanted<'_>,
        authority: &Authority,
        now: Timestamp,
        jitter: f64,
    ) -> Result<Offer, Error> {
        let issued_at = rotation::start(now, authority.lifetime(), jitter);
        let slot = (wanted.proxy.clone(), wanted.mesh.into());
        let certificate = match self.issued.get(&slot) {
            Some(known) if is_current(known, wanted, authority, issued_at, now) => known.clone(),
            _ => {
                authority.signer().check_time(now).map_err(|reason| authority.refused(reason))?;
                let certificate = Arc::new(issue(authority, wanted.proxy, wanted.names, issued_at)?);
                self.signed += 1;
                self.issued.insert(slot, certificate.clone());
                certificate
            }
        };
        // The end is that of a whole life: an authority about to expire must not be asked ever faster.
        let end = issued_at.saturating_add(authority.lifetime()).unwrap_or(certificate.expires);
        let ask_again = rotation::next(issued_at, end, now, jitter).min(certificate.expires);
        Ok(Offer { certificate, ask_again })
    }

    fn record(&mut self, backend: Of, error: Error, now: Timestamp) {
        let attempts = self.failures.get(&backend).map_or(1, |failure| failure.attempts.saturating_add(1));
        let doubled = FIRST_PAUSE.saturating_mul(1 << (attempts - 1).min(6));
        let retry_at = now.saturating_add(doubled.min(LONGEST_PAUSE)).unwrap_or(Timestamp::MAX);
        self.failures.insert(backend, Failure { error, attempts, retry_at });
    }

    fn keep(&self, wanted: Wanted<'_>, backend: &Of, now: Timestamp) -> Result<Offer, Error> {
        let Some(failure) = self.failures.get(backend) else {
            return Err(Error::Crypto("issuing a certificate"));
        };
        let known = self.issued.get(&(wanted.proxy.clone(), wanted.mesh.into()));
        match known.filter(|certificate| now < certificate.expires) {
            Some(known) => Ok(Offer { certificate: known.clone(), ask_again: failure.retry_at }),
            None => Err(Error::Issuance {
                attempts: failure.attempts,
                retry_at: failure.retry_at,
                cause: Box::new(failure.error.clone()),
            }),
        }
    }
}

fn is_current(
    known: &Certificate,
    wanted: Wanted<'_>,
    authority: &Authority,
    issued_at: Timestamp,
    now: Timestamp,
) -> bool {
    known.issued_at == issued_at
        && now < known.expires
        && known.backend == *authority.backend()
        && known.authority == authority.fingerprint()
        && known.names == wanted.names
}
