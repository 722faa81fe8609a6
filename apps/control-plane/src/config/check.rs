//! Checks of settings that depend on each other.

use super::{
    Config,
    setting::{AuthnType, Environment, Mode, PostgresTls, StoreType},
};

/// Resolves old names and reports combinations that cannot work.
pub(super) fn check(config: &mut Config, problems: &mut Vec<String>, warnings: &mut Vec<String>) {
    if config.mode == Mode::Standalone {
        warnings.push("mode: \"standalone\" is an old name of \"zone\"; please use that".to_owned());
        config.mode = Mode::Zone;
    }
    let mut refuse = |refused: bool, problem: &str| {
        if refused {
            problems.push(problem.to_owned());
        }
    };
    refuse(
        config.environment == Environment::Kubernetes,
        "environment: \"kubernetes\" is not supported yet; use \"universal\"",
    );
    refuse(
        config.store.kind == StoreType::Kubernetes,
        "store.type: \"kubernetes\" is not supported yet; use \"sqlite\", \"postgres\" or \"memory\"",
    );
    pairs(config, &mut refuse);
    let tls = &config.store.postgres.tls;
    let verifies = matches!(tls.mode, PostgresTls::VerifyCa | PostgresTls::VerifyFull);
    refuse(
        config.store.kind == StoreType::Postgres && verifies && tls.ca_path.is_empty(),
        "store.postgres.tls.caPath: is needed to verify the server's certificate",
    );
    let api = &config.api_server;
    refuse(
        api.authn.kind == AuthnType::AdminClientCerts && api.auth.client_certs_dir.is_empty(),
        "apiServer.auth.clientCertsDir: is needed when apiServer.authn.type is \"adminClientCerts\"",
    );
    refuse(!api.base_path.starts_with('/'), "apiServer.basePath: must start with \"/\"");
    let multizone = &config.synchronisation.multizone;
    if config.mode == Mode::Global {
        multizone.check_global(&mut refuse);
    } else {
        multizone.check_zone(&mut refuse);
    }
    config.serving.check(&mut refuse);
    multizone.check(&mut refuse);
    config.reconcilers.check(&mut refuse);
    config.monitoring.check(&mut refuse);
}

/// A certificate and its key come together.
fn pairs(config: &Config, refuse: &mut impl FnMut(bool, &str)) {
    let general = &config.general;
    let https = &config.api_server.https;
    let postgres = &config.store.postgres.tls;
    for (certificate, key, names) in [
        (&general.tls_cert_file, &general.tls_key_file, "general.tlsCertFile and general.tlsKeyFile"),
        (
            &https.tls_cert_file,
            &https.tls_key_file,
            "apiServer.https.tlsCertFile and apiServer.https.tlsKeyFile",
        ),
        (
            &postgres.cert_path,
            &postgres.key_path,
            "store.postgres.tls.certPath and store.postgres.tls.keyPath",
        ),
    ] {
        refuse(certificate.is_empty() != key.is_empty(), &format!("{names}: set both or neither"));
    }
}
