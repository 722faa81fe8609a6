//! What settings mean together.

use std::net::IpAddr;

use resources::{duration::GoDuration, naming::dns};

use super::{
    BootstrapParams, Config, DpLimits, HealthDiscovery,
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
    zone(config, &mut refuse);
    limits(&config.dp_server.limits, &mut refuse);
    bootstrap(&config.bootstrap_server.params, &mut refuse);
    health_discovery(&config.dp_server.hds, &mut refuse);
    config.multizone.check(&mut refuse);
    config.ipam.check(&mut refuse);
    config.dns_server.check(&config.ipam, &mut refuse);
}

/// What would make a bootstrap that Envoy refuses.
fn bootstrap(params: &BootstrapParams, refuse: &mut impl FnMut(bool, &str)) {
    let key = "bootstrapServer.params";
    let address = &params.admin_address;
    let problem = format!("{key}.adminAddress: {address:?}: must be an IP address");
    refuse(address.parse::<IpAddr>().is_err(), &problem);
    let problem = format!("{key}.adminAccessLogPath: must not be empty; /dev/null logs nothing");
    refuse(params.admin_access_log_path.is_empty(), &problem);
    let problem = format!("{key}.xdsConnectTimeout: must be more than 0s");
    refuse(params.xds_connect_timeout == GoDuration::from_secs(0), &problem);
    let problem = format!("{key}.xdsGrpcMaxReceiveMessageBytes: must be at least 1");
    refuse(params.xds_grpc_max_receive_message_bytes == 0, &problem);
}

/// What would make checks that Envoy refuses.
fn health_discovery(hds: &HealthDiscovery, refuse: &mut impl FnMut(bool, &str)) {
    let check = &hds.check;
    for (duration, key) in [
        (hds.interval, "interval"),
        (check.timeout, "checkDefaults.timeout"),
        (check.interval, "checkDefaults.interval"),
        (check.no_traffic_interval, "checkDefaults.noTrafficInterval"),
    ] {
        let problem = format!("dpServer.hds.{key}: must be more than 0s");
        refuse(duration == GoDuration::from_secs(0), &problem);
    }
    for (threshold, key) in
        [(check.healthy_threshold, "healthyThreshold"), (check.unhealthy_threshold, "unhealthyThreshold")]
    {
        refuse(threshold == 0, &format!("dpServer.hds.checkDefaults.{key}: must be at least 1"));
    }
}

/// A limit of 0 would turn every proxy away.
fn limits(limits: &DpLimits, refuse: &mut impl FnMut(bool, &str)) {
    for (limit, key) in [
        (limits.max_connections, "maxConnections"),
        (limits.max_requests_per_connection, "maxRequestsPerConnection"),
        (limits.max_streams_per_connection, "maxStreamsPerConnection"),
        (limits.max_streams_per_proxy, "maxStreamsPerProxy"),
        (limits.max_unauthenticated_streams, "maxUnauthenticatedStreams"),
        (limits.max_first_message_bytes, "maxFirstMessageBytes"),
        (limits.max_message_bytes, "maxMessageBytes"),
        (limits.max_admissions, "maxAdmissions"),
    ] {
        refuse(limit == 0, &format!("dpServer.limits.{key}: must be at least 1"));
    }
}

/// A certificate and its key come together.
fn pairs(config: &Config, refuse: &mut impl FnMut(bool, &str)) {
    let (general, https, postgres) = (&config.general, &config.api_server.https, &config.store.postgres.tls);
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

fn zone(config: &Config, refuse: &mut impl FnMut(bool, &str)) {
    let zone = &config.multizone.zone;
    if config.mode == Mode::Global {
        let problem = "multizone.zone.globalAddress: a global control plane has no global control plane";
        return refuse(!zone.global_address.is_empty(), problem);
    }
    let problem = format!(
        "multizone.zone.name: {:?}: must be a name of at most 63 lowercase letters, digits and \"-\"",
        zone.name
    );
    refuse(!dns::is_rfc1123_label(&zone.name), &problem);
    let address = &zone.global_address;
    let scheme = address.starts_with("grpc://") || address.starts_with("grpcs://");
    let problem =
        format!("multizone.zone.globalAddress: {address:?}: must begin with \"grpcs://\" or \"grpc://\"");
    refuse(!address.is_empty() && !scheme, &problem);
}
