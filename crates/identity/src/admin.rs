//! Access to proxies: the certificates of Envoy's admin interface.
//!
//! The control plane has an authority of its own for that, kept in one GlobalSecret as in Kuma:
//! certificate and key, one after the other. Proxies get a server certificate, the control plane
//! shows a client certificate. Both are a function of the authority and the name alone, so that
//! restarting the control plane changes nothing at any proxy.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use aws_lc_rs::rsa::KeySize;
use jiff::Timestamp;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose};
use resources::{
    Draft, Key, Kind, Resource,
    kinds::secret::{GlobalSecret, SecretBytes},
};
use store::Snapshot;

use crate::{
    Error,
    ca::{
        CertificateAuthorityError, builtin,
        leaf_key::LeafKey,
        signer::{Leaf, Signer, root_of},
    },
    certificate::{CertificateAndKey, LIFETIME},
    pem,
};

/// The name proxies expect in the control plane's certificate.
pub const CLIENT_NAME: &str = "kuma-cp";

/// The secret that holds the authority.
pub fn secret() -> Key {
    Key::global(Kind::GlobalSecret, "envoy-admin-ca")
}

/// Makes an authority: the secret to store.
pub fn draft(now: Timestamp) -> Result<Draft, Error> {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "Kuma");
    name.push(DnType::OrganizationalUnitName, "Mesh");
    name.push(DnType::CommonName, "Envoy Admin CA");
    // RSA, because its signatures have one value; see `ca::signer`.
    let root = builtin::root(name, Vec::new(), KeySize::Rsa2048, LIFETIME, now);
    let root = root.map_err(unusable)?;
    let data = SecretBytes::new(root.certificate + &root.key);
    Ok(Draft::new(secret(), GlobalSecret { data }.into()))
}

/// Signs the certificates of Envoy's admin interface.
pub struct AdminAuthority {
    signer: Signer,
    /// Signs what proxies show, which only the control plane verifies; `None` when the authority must do it itself.
    server_signer: Option<Signer>,
    /// In PEM.
    root: Arc<str>,
}

impl fmt::Debug for AdminAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminAuthority(*****)")
    }
}

/// The authority as it is stored. It is read when the secret has changed and not for every certificate.
#[derive(Debug, Default)]
pub struct StoredAuthority(Mutex<Option<(Arc<Resource>, Arc<AdminAuthority>)>>);

impl StoredAuthority {
    pub fn load(&self, snapshot: &Snapshot, now: Timestamp) -> Result<Arc<AdminAuthority>, Error> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = snapshot.get(&secret());
        if let (Some((read, authority)), Some(stored)) = (&*kept, stored)
            && Arc::ptr_eq(read, stored)
            && authority.signer.check_time(now).is_ok()
        {
            return Ok(authority.clone());
        }
        let authority = Arc::new(AdminAuthority::load(snapshot, now)?);
        *kept = stored.map(|stored| (stored.clone(), authority.clone()));
        Ok(authority)
    }
}

impl AdminAuthority {
    pub fn load(snapshot: &Snapshot, now: Timestamp) -> Result<AdminAuthority, Error> {
        let key = secret();
        let missing = || Error::AdminAuthority(format!("there is no {key}; restart the control plane"));
        let stored = snapshot.get(&key).and_then(|resource| resource.spec.get::<GlobalSecret>());
        let text = stored.ok_or_else(missing)?.data.as_bytes();
        let refused = |reason: CertificateAuthorityError| Error::AdminAuthority(format!("{key}: {reason}"));
        let signer = Signer::parse(text, text, now).map_err(refused)?;
        let mut name = DistinguishedName::new();
        name.push(DnType::OrganizationName, "Kuma");
        name.push(DnType::CommonName, "Envoy Admin Servers CA");
        let server_signer = signer.delegate("envoy-admin-servers", name).map_err(refused)?;
        let root = pem::encode("CERTIFICATE", &root_of(text).map_err(refused)?).into();
        Ok(AdminAuthority { signer, server_signer, root })
    }

    /// The certificate that both sides trust, PEM.
    pub fn certificate(&self) -> &Arc<str> {
        &self.root
    }

    /// True if a proxy's certificate is cheap to make and the same each time, so that it need not be kept.
    pub fn signs_servers_cheaply(&self) -> bool {
        self.server_signer.is_some()
    }

    /// Signs a proxy's server certificate. `hosts` are addresses or names the control plane calls it by.
    pub fn server(&self, proxy: &Key, hosts: &[String]) -> Result<CertificateAndKey, Error> {
        let holder = [proxy.kind.name(), &*proxy.mesh, &*proxy.name];
        self.leaf(&holder, hosts, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// Signs the control plane's client certificate.
    pub fn client(&self) -> Result<CertificateAndKey, Error> {
        self.leaf(&[], &[CLIENT_NAME.to_owned()], ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn leaf(
        &self,
        holder: &[&str],
        hosts: &[String],
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<CertificateAndKey, Error> {
        let Some(first) = hosts.first() else {
            return Err(Error::AdminAuthority("a certificate needs an address or a name".to_owned()));
        };
        let params = CertificateParams::new(hosts);
        let names =
            params.map_err(|_| Error::Names(format!("{hosts:?} are no host names")))?.subject_alt_names;
        let mut common_name = DistinguishedName::new();
        common_name.push(DnType::OrganizationName, "Kuma");
        common_name.push(DnType::CommonName, first.as_str());
        let purpose = match usage {
            ExtendedKeyUsagePurpose::ServerAuth => "envoy-admin-server",
            _ => "envoy-admin-client",
        };
        let signer = match usage {
            ExtendedKeyUsagePurpose::ServerAuth => self.server_signer.as_ref().unwrap_or(&self.signer),
            _ => &self.signer,
        };
        let not_before = signer.not_before();
        let not_after = signer.not_after();
        let usages = vec![usage];
        let leaf =
            Leaf { key: LeafKey::Small, purpose, holder, common_name, names, usages, not_before, not_after };
        signer.leaf(leaf).map_err(unusable)
    }
}

fn unusable(reason: CertificateAuthorityError) -> Error {
    Error::AdminAuthority(reason.to_string())
}
