//! Advice on a control plane that does not answer.

use std::io;

/// Text that servers in Go answer with status 400 where TLS is spoken.
const PLAIN_AT_TLS: &str = "HTTP request to an HTTPS server";
const USE_HTTPS: &str = "the server at this port does not speak plain HTTP. If it speaks TLS, the address must begin with \
                         https:// (5682 is the port for HTTPS, 5681 the one for HTTP by default)";
const USE_HTTP: &str = "the server at this port does not speak TLS: its address must begin with http://, or name the port \
                        for HTTPS (5682 by default; 5681 is the one for HTTP)";
const UNTRUSTED: &str =
    "the certificate is not trusted; add the control plane again with --ca-cert-file (or --skip-verify)";
const CA_AS_SERVER: &str = "the server uses a CA certificate (CA:TRUE, as `openssl req -x509` makes them) as its own server \
                            certificate, which is refused with any --ca-cert-file: give the server a certificate that is \
                            none of a CA, such as `kumactl generate tls-certificate --type server` makes, or add the \
                            control plane again with --skip-verify";
const HANDSHAKE: &str =
    "the TLS handshake failed; does the control plane want a client certificate (--client-cert-file)?";

/// A hint for a request to `url` that got no answer.
pub fn hint(error: &ureq::Error, url: &str) -> &'static str {
    if let Some(error) = tls_error(error) {
        return about_tls(error);
    }
    match error {
        ureq::Error::Timeout(_) => "the control plane is slow or a firewall is in the way; see --api-timeout",
        ureq::Error::HostNotFound => "the host name is unknown; check the address with `kumactl config view`",
        ureq::Error::BodyExceedsLimit(_) => {
            "no control plane answers that much; check the address with `kumactl config view`"
        }
        ureq::Error::Tls(_) | ureq::Error::Pem(_) => UNTRUSTED,
        error if url.starts_with("http://") && is_no_http(error) => USE_HTTPS,
        _ => {
            "is kuma-cp running there? `kumactl config control-planes list` lists the configured ones, \
            `kumactl config control-planes switch` switches to another"
        }
    }
}

/// A hint for a refusal that comes from no control plane, by what it says.
pub fn hint_of_refusal(body: &str) -> Option<&'static str> {
    body.contains(PLAIN_AT_TLS).then_some(USE_HTTPS)
}

fn tls_error(error: &ureq::Error) -> Option<&rustls::Error> {
    match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref()?.downcast_ref(),
        _ => None,
    }
}

fn about_tls(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::InvalidMessage(_) => USE_HTTP,
        // The crate that says so is none of ours, so its name for it is all there is.
        rustls::Error::InvalidCertificate(why) if format!("{why:?}").contains("CaUsedAsEndEntity") => {
            CA_AS_SERVER
        }
        rustls::Error::InvalidCertificate(_) => UNTRUSTED,
        _ => HANDSHAKE,
    }
}

/// True if something answered, and not in HTTP: with an alert of TLS, or by hanging up.
fn is_no_http(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Protocol(_) => true,
        ureq::Error::Io(error) => {
            matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof)
        }
        _ => false,
    }
}
