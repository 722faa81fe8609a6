//! Verification of the control plane's certificate.

use runtime::tls::{TrustedServers, client_config as tls};
use rustls::ClientConfig;

use crate::failure::{Failure, Result};

pub use runtime::tls::system_bundle;

/// TLS towards a control plane that one of these certificates vouches for; without any, one that the
/// machine trusts; with `skip_verify`, any.
pub fn client_config(ca: Option<&(String, String)>, skip_verify: bool) -> Result<ClientConfig> {
    let trust = match (ca, skip_verify) {
        (Some((pem, origin)), false) => TrustedServers::Certificates(
            runtime::tls::certificates(pem)
                .map_err(|error| Failure::invalid(format!("{origin} is not a CA certificate: {error}")))?,
        ),
        (None, false) => TrustedServers::Machine,
        (_, true) => TrustedServers::Anybody,
    };
    let on_the_machine = matches!(trust, TrustedServers::Machine);
    tls(trust, b"http/1.1").map_err(|error| {
        if on_the_machine {
            Failure::invalid(
                "the certificate of the control plane cannot be checked without its CA; \
                 pass its CA with --ca-cert-file (or --skip-verify to try things out)",
            )
        } else {
            Failure::invalid(error.to_string())
        }
    })
}

/// TLS that accepts any certificate.
pub fn unchecked() -> Result<ClientConfig> {
    client_config(None, true)
}
