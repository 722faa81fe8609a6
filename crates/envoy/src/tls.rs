//! TLS of the mesh, of destinations outside it, and of the admin interface.

use envoy_types::pb::envoy::{
    config::core::v3::{DataSource, TransportSocket, data_source::Specifier, transport_socket::ConfigType},
    extensions::transport_sockets::tls::v3 as tls,
    r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
};
use plan::{
    AdminTls, AuthoritiesSecret, CertificateFiles, ExternalAuthorities, ExternalTls, San, Security,
    TlsParameters, TlsVersion,
};
use prost::{Message, Name};
use resources::naming::{SpiffeId, SpiffePrefix};
use tls::{common_tls_context::ValidationContextType, subject_alt_name_matcher::SanType};

use crate::proto::{any, bool_value, from_ads, inline_bytes};

/// ALPN by which proxies of the mesh announce its mutual TLS to each other.
pub(crate) const ALPN: &str = "kuma";

/// The name in the certificate that the control plane shows to proxies.
const CONTROL_PLANE: &str = "kuma-cp";

/// Keys of MeshIdentities are of any kind that authorities have. Left to itself Envoy knows no more than X25519 and
/// P-256 up to TLS 1.2, and neither P-521 nor Ed25519 after that.
const CURVES: [&str; 4] = ["X25519", "P-256", "P-384", "P-521"];
const SIGNATURES: [&str; 10] = [
    "ecdsa_secp256r1_sha256",
    "rsa_pss_rsae_sha256",
    "rsa_pkcs1_sha256",
    "ecdsa_secp384r1_sha384",
    "rsa_pss_rsae_sha384",
    "rsa_pkcs1_sha384",
    "ecdsa_secp521r1_sha512",
    "rsa_pss_rsae_sha512",
    "rsa_pkcs1_sha512",
    "ed25519",
];

/// Encodes the requirement of an inbound for its clients: a certificate of a trusted domain.
pub(crate) fn of_mesh_server(security: &Security) -> TransportSocket {
    socket(&tls::DownstreamTlsContext {
        common_tls_context: Some(of_mesh(security, trusted_ids(security))),
        require_client_certificate: Some(bool_value(true)),
        ..Default::default()
    })
}

/// Encodes the requirement of an outbound for its server: one of these identities.
pub(crate) fn of_mesh_client(sni: &str, spiffe_ids: &[String], security: &Security) -> TransportSocket {
    let exact = |id: &String| san(SanType::Uri, MatchPattern::Exact(id.clone()));
    let mut servers: Vec<_> = spiffe_ids.iter().map(exact).collect();
    if servers.is_empty() {
        // An empty list would let in every certificate the authority ever signed. A proxy without tags has the
        // identity of the mesh itself.
        let itself = |domain: &String| {
            san(SanType::Uri, MatchPattern::Exact(SpiffeId::of_trust_domain(domain).to_string()))
        };
        servers.extend(trusted_ids(security));
        servers.extend(security.trust_domains.iter().map(itself));
    }
    let mut common = of_mesh(security, servers);
    common.alpn_protocols = vec![ALPN.to_owned()];
    common.tls_params = common.tls_params.map(up_to_the_newest);
    socket(&tls::UpstreamTlsContext {
        common_tls_context: Some(common),
        sni: sni.to_owned(),
        ..Default::default()
    })
}

fn trusted_ids(security: &Security) -> Vec<tls::SubjectAltNameMatcher> {
    let of_domain = |domain: &String| {
        san(SanType::Uri, MatchPattern::Prefix(SpiffePrefix::of_trust_domain(domain).to_string()))
    };
    security.trust_domains.iter().map(of_domain).collect()
}

pub(crate) fn of_external(with: &ExternalTls) -> TransportSocket {
    let names = with.names.iter().map(|name| match name {
        San::Dns(name) => san(SanType::Dns, MatchPattern::Exact(name.clone())),
        San::DnsPrefix(prefix) => san(SanType::Dns, MatchPattern::Prefix(prefix.clone())),
        San::Ip(ip) => san(SanType::IpAddress, MatchPattern::Exact(ip.clone())),
    });
    let trusted_ca = match &with.authorities {
        ExternalAuthorities::Anyone => None,
        ExternalAuthorities::Pem(pem) => Some(inline_bytes(pem)),
        ExternalAuthorities::File(path) => Some(file(path)),
    };
    let validation = trusted_ca.map(|trusted_ca| {
        ValidationContextType::ValidationContext(tls::CertificateValidationContext {
            trusted_ca: Some(trusted_ca),
            match_typed_subject_alt_names: names.collect(),
            ..Default::default()
        })
    });
    let client = with.client.iter().map(|(chain, key)| certificate(chain, key));
    let versions = (with.min.is_some() || with.max.is_some()).then(|| {
        up_to_the_newest(tls::TlsParameters {
            tls_minimum_protocol_version: version(with.min),
            tls_maximum_protocol_version: version(with.max),
            ..Default::default()
        })
    });
    socket(&tls::UpstreamTlsContext {
        common_tls_context: Some(tls::CommonTlsContext {
            tls_params: versions,
            tls_certificates: client.collect(),
            validation_context_type: validation,
            ..Default::default()
        }),
        sni: with.server_name.clone().unwrap_or_default(),
        auto_host_sni: with.server_name.is_none(),
        allow_renegotiation: with.allow_renegotiation,
        ..Default::default()
    })
}

pub(crate) fn of_admin(with: &AdminTls) -> TransportSocket {
    socket(&tls::DownstreamTlsContext {
        common_tls_context: Some(tls::CommonTlsContext {
            tls_certificates: vec![certificate(&with.certificate, &with.key)],
            validation_context_type: Some(ValidationContextType::ValidationContext(
                tls::CertificateValidationContext {
                    trusted_ca: Some(inline_bytes(&with.authority)),
                    match_typed_subject_alt_names: vec![san(
                        SanType::Dns,
                        MatchPattern::Exact(CONTROL_PLANE.to_owned()),
                    )],
                    ..Default::default()
                },
            )),
            ..Default::default()
        }),
        require_client_certificate: Some(bool_value(true)),
        ..Default::default()
    })
}

/// A page of metrics, with a certificate that the proxy's machine has; any client may read it.
pub(crate) fn of_page(with: &CertificateFiles) -> TransportSocket {
    socket(&tls::DownstreamTlsContext {
        common_tls_context: Some(tls::CommonTlsContext {
            tls_certificates: vec![tls::TlsCertificate {
                certificate_chain: Some(file(&with.certificate)),
                private_key: Some(file(&with.key)),
                ..Default::default()
            }],
            ..Default::default()
        }),
        ..Default::default()
    })
}

/// Own certificate and authorities come as secrets, so that they change without a new listener.
fn of_mesh(security: &Security, peers: Vec<tls::SubjectAltNameMatcher>) -> tls::CommonTlsContext {
    let secrets = &security.secrets;
    let peer = tls::common_tls_context::CombinedCertificateValidationContext {
        default_validation_context: Some(tls::CertificateValidationContext {
            match_typed_subject_alt_names: peers,
            ..Default::default()
        }),
        validation_context_sds_secret_config: Some(secret(secrets.authorities.name())),
        ..Default::default()
    };
    let mut tls_params = security.parameters.as_deref().map(parameters);
    if matches!(secrets.authorities, AuthoritiesSecret::TrustBundle(_)) {
        let params = tls_params.get_or_insert_default();
        params.ecdh_curves = CURVES.map(str::to_owned).to_vec();
        params.signature_algorithms = SIGNATURES.map(str::to_owned).to_vec();
    }
    tls::CommonTlsContext {
        tls_params,
        tls_certificate_sds_secret_configs: vec![secret(&secrets.identity.name())],
        validation_context_type: Some(ValidationContextType::CombinedValidationContext(peer)),
        ..Default::default()
    }
}

fn parameters(of: &TlsParameters) -> tls::TlsParameters {
    tls::TlsParameters {
        tls_minimum_protocol_version: version(of.min),
        tls_maximum_protocol_version: version(of.max),
        cipher_suites: of.ciphers.iter().map(|cipher| cipher.as_str().to_owned()).collect(),
        ..Default::default()
    }
}

/// Envoy's clients stop at TLS 1.2 unless a maximum is set, so one that begins at 1.3 would have no version left.
fn up_to_the_newest(mut params: tls::TlsParameters) -> tls::TlsParameters {
    let newest = version(Some(TlsVersion::Tls13));
    if params.tls_minimum_protocol_version == newest && params.tls_maximum_protocol_version == version(None) {
        params.tls_maximum_protocol_version = newest;
    }
    params
}

fn secret(name: &str) -> tls::SdsSecretConfig {
    tls::SdsSecretConfig { name: name.to_owned(), sds_config: Some(from_ads()) }
}

fn certificate(chain: &str, key: &str) -> tls::TlsCertificate {
    tls::TlsCertificate {
        certificate_chain: Some(inline_bytes(chain)),
        private_key: Some(inline_bytes(key)),
        ..Default::default()
    }
}

fn file(path: &str) -> DataSource {
    DataSource { specifier: Some(Specifier::Filename(path.to_owned())), ..Default::default() }
}

fn san(kind: SanType, pattern: MatchPattern) -> tls::SubjectAltNameMatcher {
    tls::SubjectAltNameMatcher {
        san_type: kind.into(),
        matcher: Some(StringMatcher { match_pattern: Some(pattern), ignore_case: false }),
        ..Default::default()
    }
}

fn version(version: Option<TlsVersion>) -> i32 {
    use tls::tls_parameters::TlsProtocol;
    let version = match version {
        None => TlsProtocol::TlsAuto,
        Some(TlsVersion::Tls10) => TlsProtocol::TlSv10,
        Some(TlsVersion::Tls11) => TlsProtocol::TlSv11,
        Some(TlsVersion::Tls12) => TlsProtocol::TlSv12,
        Some(TlsVersion::Tls13) => TlsProtocol::TlSv13,
    };
    version.into()
}

fn socket<M: Message + Name>(context: &M) -> TransportSocket {
    TransportSocket {
        name: "envoy.transport_sockets.tls".to_owned(),
        config_type: Some(ConfigType::TypedConfig(any(context))),
    }
}
