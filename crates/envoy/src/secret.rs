//! Keys and certificates.

use envoy_types::pb::envoy::{
    config::core::v3::TypedExtensionConfig, extensions::transport_sockets::tls::v3 as tls,
};
use prost::Message;
use tls::spiffe_cert_validator_config::TrustDomain;

use crate::proto::{any, inline_bytes};

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

/// Authorities that are trusted for one trust domain each, sorted.
pub(crate) fn trust_bundle(name: &str, domains: &[(String, String)]) -> Vec<u8> {
    let domain = |(domain, roots_pem): &(String, String)| TrustDomain {
        name: domain.clone(),
        trust_bundle: Some(inline_bytes(roots_pem)),
        ..Default::default()
    };
    let validator = tls::SpiffeCertValidatorConfig {
        trust_domains: domains.iter().map(domain).collect(),
        ..Default::default()
    };
    let context = tls::CertificateValidationContext {
        custom_validator_config: Some(TypedExtensionConfig {
            name: "envoy.tls.cert_validator.spiffe".to_owned(),
            typed_config: Some(any(&validator)),
        }),
        ..Default::default()
    };
    encode(name, tls::secret::Type::ValidationContext(context))
}

fn encode(name: &str, secret: tls::secret::Type) -> Vec<u8> {
    tls::Secret { name: name.to_owned(), r#type: Some(secret) }.encode_to_vec()
}
