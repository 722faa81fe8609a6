//! Hands out certificates, and leaves an authority that fails alone for a while.
//!
//! Signing takes about a millisecond, so it happens under the lock of the one proxy it is for: proxies wait
//! for themselves only, and one proxy that asks twice at once gets one signature. An RSA key takes a hundred times as
//! long, so callers make it before they ask ([`Issuer::needs_fresh_key`]).

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use resources::Key;

use super::{Certificate, Facts, issue, rotation};
use crate::{
    Error,
    ca::{Authority, FreshKey},
};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Request for a certificate of a proxy.
#[derive(Debug, Clone, Copy)]
pub struct CertificateRequest<'a> {
    pub proxy: &'a Key,
    /// Name by which the proxy knows the certificate; it has one under each name.
    pub place: &'a str,
    pub mesh: &'a str,
    /// The backend the mesh enables.
    pub backend: &'a str,
    /// From [`names`](super::names).
    pub names: &'a [String],
    /// For a certificate that is to be signed now, if [`Issuer::needs_fresh_key`] says so.
    pub fresh_key: Option<&'a FreshKey>,
}

/// A certificate, in the form it is kept in, and when to ask again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedCertificate<T> {
    pub facts: Arc<Facts>,
    pub certificate: T,
    pub ask_again: Timestamp,
}

/// An authority that did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityFailure {
    /// The last error.
    pub error: Error,
    /// Number of failed attempts in a row.
    pub attempts: u32,
    /// Until then there is no other attempt.
    pub retry_at: Timestamp,
}

impl AuthorityFailure {
    /// True if it is too early for another attempt. A time further away than any pause is from before the
    /// clock was set back.
    fn rests(&self, now: Timestamp) -> bool {
        let left = Duration::try_from(self.retry_at.duration_since(now)).unwrap_or_default();
        !left.is_zero() && left <= LONGEST_PAUSE
    }
}

type BackendKey = (Arc<str>, Arc<str>);

/// Certificates of one proxy, by place: hardly ever more than one.
type IssuedByPlace<T> = Vec<(Box<str>, Arc<Facts>, T)>;

/// Certificates by proxy, in the form `T`, and failures by backend. The text of a certificate is not kept
/// next to it: signing again gives the same bytes, or at least others that are as good.
pub struct Issuer<T> {
    issued: Mutex<HashMap<Key, Arc<Mutex<IssuedByPlace<T>>>>>,
    failures: Mutex<HashMap<BackendKey, AuthorityFailure>>,
    signed: AtomicU64,
}

impl<T> Default for Issuer<T> {
    fn default() -> Self {
        Issuer { issued: Mutex::default(), failures: Mutex::default(), signed: AtomicU64::new(0) }
    }
}

impl<T> fmt::Debug for Issuer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuer").field("signed", &self.signed()).finish_non_exhaustive()
    }
}

impl<T: Clone> Issuer<T> {
    /// The certificate a proxy is to have now: the one it has, unless that is to be replaced by age or
    /// because names, backend or root are others. While the authority fails, the one it has is kept as
    /// long as it is valid and says the same names. `jitter` is between -1 and 1; with [`rotation::jitter`] every control plane
    /// gives the same answer. `form` says in which form a certificate is kept.
    pub fn certificate_for(
        &self,
        wanted: CertificateRequest<'_>,
        authority: impl FnOnce() -> Result<Arc<Authority>, Error>,
        now: Timestamp,
        jitter: f64,
        form: impl FnOnce(&Certificate) -> T,
    ) -> Result<IssuedCertificate<T>, Error> {
        let held = lock(&self.issued).entry(wanted.proxy.clone()).or_default().clone();
        let mut held = lock(&held);
        let failed = self.failure(wanted.mesh, wanted.backend);
        if !failed.as_ref().is_some_and(|failure| failure.rests(now)) {
            let current =
                |authority: Arc<Authority>| self.current(&mut held, wanted, &authority, now, jitter, form);
            match authority().and_then(current) {
                Ok(offer) => {
                    if failed.is_some() {
                        lock(&self.failures).remove(&of(wanted));
                    }
                    return Ok(offer);
                }
                // The proxy's fault: the authority serves others well.
                Err(error @ Error::Names(_)) => return Err(error),
                Err(error) => self.record(wanted, error, now, failed.map(|failure| failure.attempts)),
            }
        }
        self.keep(&held, wanted, now)
    }

    /// True if [`Issuer::certificate_for`] would sign with an RSA key that is to be made first.
    pub fn needs_fresh_key(
        &self,
        wanted: CertificateRequest<'_>,
        authority: &Authority,
        now: Timestamp,
        jitter: f64,
    ) -> bool {
        if !authority.needs_fresh_keys() || authority.signer().check_time(now).is_err() {
            return false;
        }
        if self.failure(wanted.mesh, wanted.backend).is_some_and(|failure| failure.rests(now)) {
            return false;
        }
        let Some(held) = lock(&self.issued).get(wanted.proxy).cloned() else { return true };
        let issued_at = rotation::start(now, authority.lifetime(), jitter);
        let held = lock(&held);
        !at(&held, wanted.place)
            .is_some_and(|(facts, _)| is_current(facts, wanted, authority, issued_at, now))
    }

    /// Failure of a backend's last attempt; `None` if it succeeded.
    pub fn failure(&self, mesh: &str, backend: &str) -> Option<AuthorityFailure> {
        let failures = lock(&self.failures);
        if failures.is_empty() { None } else { failures.get(&(mesh.into(), backend.into())).cloned() }
    }

    /// Tries again at once: the mesh or its secrets have changed, so what failed may work now.
    pub fn forgive(&self, mesh: &str) {
        lock(&self.failures).retain(|(of, _), _| &**of != mesh);
    }

    /// Drops what is kept for a proxy that is gone.
    pub fn forget(&self, proxy: &Key) {
        lock(&self.issued).remove(proxy);
    }

    fn current(
        &self,
        held: &mut IssuedByPlace<T>,
        wanted: CertificateRequest<'_>,
        authority: &Authority,
        now: Timestamp,
        jitter: f64,
        form: impl FnOnce(&Certificate) -> T,
    ) -> Result<IssuedCertificate<T>, Error> {
        let issued_at = rotation::start(now, authority.lifetime(), jitter);
        let (facts, certificate) = match at(held, wanted.place) {
            Some((facts, known)) if is_current(facts, wanted, authority, issued_at, now) => {
                (facts.clone(), known.clone())
            }
            _ => {
                authority.signer().check_time(now).map_err(|reason| authority.refused(reason))?;
                let signed = issue(authority, wanted.proxy, wanted.names, issued_at, wanted.fresh_key)?;
                self.signed.fetch_add(1, Ordering::Relaxed);
                let certificate = form(&signed);
                let facts = Arc::new(signed.facts);
                held.retain(|(place, ..)| **place != *wanted.place);
                held.push((wanted.place.into(), facts.clone(), certificate.clone()));
                (facts, certificate)
            }
        };
        // The end is that of a whole life: an authority about to expire must not be asked ever faster.
        let end = issued_at.saturating_add(authority.lifetime()).unwrap_or(facts.expires);
        let ask_again = rotation::next(issued_at, end, now, jitter).min(facts.expires);
        Ok(IssuedCertificate { facts, certificate, ask_again })
    }

    /// Remembers a failure. Attempts that were made at the same time count as one.
    fn record(&self, wanted: CertificateRequest<'_>, error: Error, now: Timestamp, before: Option<u32>) {
        let mut failures = lock(&self.failures);
        let backend = of(wanted);
        if failures.get(&backend).map(|failure| failure.attempts) != before {
            return;
        }
        let attempts = before.map_or(1, |before| before.saturating_add(1));
        let doubled = FIRST_PAUSE.saturating_mul(1 << (attempts - 1).min(6));
        let retry_at = now.saturating_add(doubled.min(LONGEST_PAUSE)).unwrap_or(Timestamp::MAX);
        failures.insert(backend, AuthorityFailure { error, attempts, retry_at });
    }

    fn keep(
        &self,
        held: &IssuedByPlace<T>,
        wanted: CertificateRequest<'_>,
        now: Timestamp,
    ) -> Result<IssuedCertificate<T>, Error> {
        let Some(failure) = self.failure(wanted.mesh, wanted.backend) else {
            return Err(Error::Crypto("issuing a certificate"));
        };
        // Never one with other names: the caller may be another one than before.
        let usable = |facts: &Facts| now < facts.expires && facts.names == wanted.names;
        match at(held, wanted.place).filter(|(facts, _)| usable(facts)) {
            Some((facts, known)) => {
                let facts = facts.clone();
                let certificate = known.clone();
                Ok(IssuedCertificate { facts, certificate, ask_again: failure.retry_at })
            }
            None => Err(Error::Issuance {
                attempts: failure.attempts,
                retry_at: failure.retry_at,
                cause: Box::new(failure.error),
            }),
        }
    }
}

impl<T> Issuer<T> {
    /// Number of signed certificates.
    pub fn signed(&self) -> u64 {
        self.signed.load(Ordering::Relaxed)
    }
}

fn of(wanted: CertificateRequest<'_>) -> BackendKey {
    (wanted.mesh.into(), wanted.backend.into())
}

fn at<'a, T>(held: &'a IssuedByPlace<T>, place: &str) -> Option<(&'a Arc<Facts>, &'a T)> {
    held.iter().find(|(known, ..)| **known == *place).map(|(_, facts, certificate)| (facts, certificate))
}

fn is_current(
    known: &Facts,
    wanted: CertificateRequest<'_>,
    authority: &Authority,
    issued_at: Timestamp,
    now: Timestamp,
) -> bool {
    known.issued_at == issued_at
        && now < known.expires
        && known.backend == *authority.backend()
        && known.authority == *authority.fingerprint()
        && known.names == wanted.names
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in there can be half done, so a panic elsewhere does not spoil it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
