//! The authority of admin interfaces, by which a proxy and the control plane prove to each other who they are.

use admission::{Refusal, Registrar};
use identity::admin::{self, AdminAuthority};
use jiff::Timestamp;
use plan::AdminTls;
use resources::Key;

/// Reason why there is no authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error(transparent)]
    Identity(#[from] identity::Error),
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("cannot create {secret}")]
    Refused {
        secret: String,
        #[source]
        cause: Refusal,
    },
}

/// Makes the authority of admin interfaces unless it is there.
pub async fn ensure_authority(registrar: &Registrar, now: Timestamp) -> Result<(), AuthorityError> {
    let key = admin::secret();
    let refused = |cause: Refusal| AuthorityError::Refused { secret: key.to_string(), cause };
    // Making the key takes a while, so it is made only when it is missing.
    if registrar.store().snapshot().map_err(|cause| refused(cause.into()))?.get(&key).is_none() {
        let made = registrar.ensure(vec![admin::draft(now)?]).await;
        made.map_err(refused)?;
    }
    Ok(())
}

/// TLS of the admin interface of a proxy at `address`, and the clients it answers. The same for the same
/// proxy on every control plane; it takes a signature, so callers keep it.
pub fn admin_tls(
    authority: &AdminAuthority,
    proxy: &Key,
    address: &str,
) -> Result<AdminTls, identity::Error> {
    let pair = authority.server(proxy, &[address.to_owned()])?;
    Ok(AdminTls { certificate: pair.certificate, key: pair.key, authority: authority.certificate().clone() })
}
