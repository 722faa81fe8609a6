//! Keys and certificates.

use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use prost::Message;

use crate::proto::inline_bytes;

pub(crate) fn certificate(name: &str, chain_pem: &str, key_pem: &str) -> Vec<u8> {
    let certificate = tls::TlsCertificate {
        certificate_chain: Some(inline_bytes(chain_pem)),
        private_key: Some(inline_bytes(key_pem)),
        ..Default::default()
    };
    encode(name, tls::secret::Type::TlsCertificate(certificate))
}

pub(crate) fn authorities(name: &str, roots_pem: &str) -> Vec<u8> {
    let context =
        tls::CertificateValidationContext { trusted_ca: Some(inline_bytes(roots_pem)), ..Default::default() };
    encode(name, tls::secret::Type::ValidationContext(context))
}

fn encode(name: &str, secret: tls::secret::Type) -> Vec<u8> {
    tls::Secret { name: name.to_owned(), r#type: Some(secret) }.encode_to_vec()
}
