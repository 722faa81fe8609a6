mod guides;

use std::{fs, path::PathBuf};

use control_plane::config::{
    Config, print,
    setting::{Mode, StoreType},
    source::{LoadedConfig, load, parse},
    without_effect,
};
use serde_json::{Value, json};
use settings::{Entry, Section};

fn read(yaml: &str, environment: &[(&str, &str)]) -> Result<LoadedConfig, String> {
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    parse(yaml, environment).map_err(|problems| problems.to_string())
}

/// The path and environment variable of every setting, with its default.
fn settings() -> Vec<(String, &'static str, Value)> {
    let mut config = Config::default();
    let mut entries = Vec::new();
    config.entries("", &mut entries);
    entries
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Setting(leaf) => Some((leaf.path, leaf.env, leaf.value.to_json())),
            Entry::Section { .. } => None,
        })
        .collect()
}

/// The value at a path of the configuration's JSON form.
fn at(config: &Config, path: &str) -> Value {
    let json = print::masked_json(config);
    json.pointer(&format!("/{}", path.replace('.', "/"))).unwrap().clone()
}

pub fn committed(name: &str, generated: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    if std::env::var_os("UPDATE").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, generated).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, generated, "docs/reference/{name} is out of date; run: UPDATE=1 cargo test -p kuma-cp");
}

#[test]
fn the_committed_reference_is_up_to_date() {
    committed("kuma-cp-config.md", &print::reference_markdown());
    committed("kuma-cp.defaults.yaml", &print::defaults_yaml());
}

#[test]
fn the_printed_defaults_are_the_defaults() {
    let loaded = read(&print::defaults_yaml(), &[]).unwrap();
    assert_eq!(loaded.config, Config::default());
    assert_eq!(loaded.warnings, Vec::<String>::new());
}

#[test]
fn nothing_at_all_is_a_configuration() {
    for nothing in ["", "# only a comment\n", "---\n", "store:\n", "store:\n  postgres:\n"] {
        assert_eq!(read(nothing, &[]).unwrap().config, Config::default(), "{nothing:?}");
    }
}

#[test]
fn defaults_are_kumas_but_for_the_store() {
    let defaults = Config::default();
    assert_eq!((defaults.mode, defaults.store.kind), (Mode::Zone, StoreType::Sqlite));
    for (path, expect) in [
        ("apiServer.http.port", json!(5681)),
        ("apiServer.https.port", json!(5682)),
        ("apiServer.idleTimeout", json!("2m0s")),
        ("diagnostics.serverPort", json!(5680)),
        ("monitoringAssignmentServer.enabled", json!(true)),
        ("monitoringAssignmentServer.port", json!(5676)),
        ("monitoringAssignmentServer.defaultFetchTimeout", json!("30s")),
        ("monitoringAssignmentServer.assignmentRefreshInterval", json!("1s")),
        ("monitoringAssignmentServer.tlsEnabled", json!(false)),
        ("store.postgres.port", json!(15432)),
        ("store.postgres.password", json!("*****")),
        ("multizone.zone.name", json!("default")),
        ("ipam.meshService.cidr", json!("241.0.0.0/8")),
        ("ipam.meshExternalService.cidr", json!("242.0.0.0/8")),
        ("ipam.meshMultiZoneService.cidr", json!("243.0.0.0/8")),
        ("access.static.adminResources.users", json!(["mesh-system:admin"])),
    ] {
        assert_eq!(at(&defaults, path), expect, "{path}");
    }
}

#[test]
fn every_setting_has_its_own_key_and_variable() {
    let settings = settings();
    for (path, env, _) in &settings {
        assert_eq!(settings.iter().filter(|(p, e, _)| p == path || e == env).count(), 1, "{path} {env}");
        assert!(env.starts_with("KUMA_"), "{env}");
        // Of those that begin so, what is not supported has no row either: a newer Kuma may have more of them.
        let experimental =
            env.starts_with("KUMA_EXPERIMENTAL_") && without_effect::ROWS.iter().all(|row| row.1 != *env);
        let said = without_effect::is_key(path) || without_effect::is_variable(env) && !experimental;
        assert!(!said, "{path} is supported and said not to be");
    }
}

/// A value that differs from the default, is valid alone and together with all others.
fn another(path: &str, default: &Value) -> (String, Value) {
    let text = |text: &str| (text.to_owned(), json!(text));
    match (path, default) {
        ("environment", _) => text("universal"),
        ("mode", _) => text("global"),
        ("store.type", _) => text("memory"),
        ("general.tlsMinVersion", _) => text("TLSv1_3"),
        ("general.logLevel", _) => text("debug"),
        ("general.logFormat", _) => text("json"),
        ("store.postgres.tls.mode", _) => text("verifyFull"),
        ("store.postgres.password", _) => ("open sesame".to_owned(), json!("*****")),
        ("apiServer.authn.type", _) => text("adminClientCerts"),
        ("dpServer.authn.dpProxy.type" | "dpServer.authn.zoneProxy.type", _) => text("none"),
        (
            "xdsServer.dataplaneDeregistrationDelay"
            | "xdsServer.dataplaneStatusFlushInterval"
            | "xdsServer.permissionsHold"
            | "xdsServer.permissionsDrain"
            | "meshService.deletionGracePeriod"
            | "monitoringAssignmentServer.assignmentRefreshInterval"
            | "general.resilientComponentBaseBackoff"
            | "general.resilientComponentMaxBackoff"
            | "multizone.global.kds.zoneInsightFlushInterval"
            | "multizone.global.kds.zoneWithdrawAfter"
            | "multizone.global.kds.keepAliveInterval"
            | "multizone.zone.kds.keepAliveInterval"
            | "ipam.quarantine",
            _,
        ) => text("77ms"),
        ("ipam.meshService.cidr", _) => text("10.1.0.0/16"),
        ("ipam.meshExternalService.cidr", _) => text("10.2.0.0/16"),
        ("ipam.meshMultiZoneService.cidr", _) => text("10.3.0.0/16"),
        ("ipam.ipv6CIDR", _) => text("fd00:9::/96"),
        ("bootstrapServer.params.adminAddress", _) => text("127.0.0.9"),
        ("multizone.sni.formats", _) => ("kri,hashed".to_owned(), json!(["kri", "hashed"])),
        ("dnsServer.CIDR", _) => text("10.9.0.0/16"),
        (path, Value::String(_)) if path.starts_with("dpServer.hds.") => text("77ms"),
        (_, Value::Bool(value)) => ((!value).to_string(), json!(!value)),
        (_, Value::Number(number)) => {
            let next = number.as_u64().unwrap() + 1;
            (next.to_string(), json!(next))
        }
        ("monitoringAssignmentServer.apiVersions", _) => ("v1,v1".to_owned(), json!(["v1", "v1"])),
        (_, Value::Array(_)) => ("one,two".to_owned(), json!(["one", "two"])),
        (path, _) if path.ends_with("Timeout") => text("77ms"),
        (path, _) if path.ends_with("interface") => text("127.0.0.1"),
        ("apiServer.basePath", _) => text("/kuma"),
        ("multizone.zone.globalAddress", _) => text("grpcs://global:5685"),
        _ => text("other"),
    }
}

#[test]
fn every_setting_can_be_set_by_its_variable_and_by_its_key() {
    for (path, env, default) in settings() {
        let (text, expect) = another(&path, &default);
        // Settings that only make sense together with another one.
        let mut companions = vec![
            ("KUMA_GENERAL_TLS_CERT_FILE", "other"),
            ("KUMA_GENERAL_TLS_KEY_FILE", "other"),
            ("KUMA_API_SERVER_HTTPS_TLS_CERT_FILE", "other"),
            ("KUMA_API_SERVER_HTTPS_TLS_KEY_FILE", "other"),
            ("KUMA_STORE_POSTGRES_TLS_CERT_PATH", "other"),
            ("KUMA_STORE_POSTGRES_TLS_KEY_PATH", "other"),
            ("KUMA_MULTIZONE_GLOBAL_KDS_TLS_CERT_FILE", "other"),
            ("KUMA_MULTIZONE_GLOBAL_KDS_TLS_KEY_FILE", "other"),
            ("KUMA_API_SERVER_AUTH_CLIENT_CERTS_DIR", "other"),
            ("KUMA_MONITORING_ASSIGNMENT_SERVER_TLS_ENABLED", "true"),
            ("KUMA_MONITORING_ASSIGNMENT_SERVER_TLS_CERT_FILE", "other"),
            ("KUMA_MONITORING_ASSIGNMENT_SERVER_TLS_KEY_FILE", "other"),
        ];
        companions.retain(|(name, _)| *name != env);
        let value: Value = match &expect {
            Value::String(mask) if mask == "*****" => json!(text),
            expect => expect.clone(),
        };
        let yaml = path.rsplit('.').fold(value, |inner, key| json!({ key: inner })).to_string();
        let by_key = read(&yaml, &companions).unwrap();
        assert_eq!(at(&by_key.config, &path), expect, "{path} in the file");

        companions.push((env, &text));
        let by_variable = read("", &companions).unwrap();
        assert_eq!(at(&by_variable.config, &path), expect, "{env}");
        assert_eq!(by_variable.warnings, Vec::<String>::new(), "{env}");
        assert_eq!(by_variable.config, by_key.config, "{env}");
    }
}

#[test]
fn the_environment_wins_over_the_file_and_an_empty_variable_is_none() {
    let yaml = "apiServer:\n  http:\n    port: 1000\nstore:\n  type: memory\n";
    let loaded =
        read(yaml, &[("KUMA_API_SERVER_HTTP_PORT", "2000"), ("KUMA_API_SERVER_HTTPS_PORT", "")]).unwrap();
    let server = loaded.config.api_server;
    assert_eq!((server.http.port, server.https.port), (2000, 5682));
    assert_eq!(loaded.config.store.kind, StoreType::Memory);
}

fn refused(yaml: &str, environment: &[(&str, &str)], expect: &[&str]) {
    let error = read(yaml, environment).map(|loaded| loaded.config).unwrap_err();
    for part in expect {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

#[test]
fn a_key_nobody_knows_refuses_the_start_and_the_nearest_one_is_suggested() {
    refused("store:\n  tpye: memory\n", &[], &["line 2, column 3", "store.tpye", "did you mean store.type?"]);
    refused("stroe:\n  type: memory\n", &[], &["line 1, column 1", "did you mean store?"]);
    refused("xdsServr: {}\n", &[], &["did you mean xdsServer?"]);
    refused("favouriteColour: blue\n", &[], &["favouriteColour", "kuma-cp config defaults"]);
    refused("multizone:\n  glbal: {}\n", &[], &["multizone.glbal", "did you mean multizone.global?"]);
}

#[test]
fn a_bad_value_is_named_with_its_key_its_place_and_what_is_possible() {
    refused(
        "apiServer:\n  http:\n    port: 70000\n",
        &[],
        &["line 3, column 5", "apiServer.http.port", "70000", "65535"],
    );
    refused("apiServer:\n  http:\n    enabled: maybe\n", &[], &["maybe", "true or false"]);
    refused("mode: universe\n", &[], &["mode", "\"universe\"", "one of zone, global, standalone"]);
    refused("apiServer:\n  readTimeout: 5\n", &[], &["apiServer.readTimeout", "500ms, 10s or 1h30m"]);
    refused("apiServer:\n  readTimeout: -5s\n", &[], &["negative"]);
    refused("store: memory\n", &[], &["store", "\"memory\"", "expected a mapping"]);
    refused("apiServer:\n  corsAllowedDomains: x\n", &[], &["list of strings"]);
    refused("store:\n  postgres:\n    user: 5\n", &[], &["store.postgres.user", "in quotes"]);
    refused("- a\n", &[], &["must be a mapping"]);
    refused("a: [\n", &[], &["not valid YAML", "line"]);
    refused("mode: zone\nmode: global\n", &[], &["mode"]);
    refused(
        "",
        &[("KUMA_API_SERVER_HTTP_PORT", "http")],
        &["KUMA_API_SERVER_HTTP_PORT", "\"http\"", "apiServer.http.port"],
    );
}

#[test]
fn a_bad_password_is_not_shown() {
    let error = read("store:\n  postgres:\n    password: 12345\n", &[]).map(|l| l.config).unwrap_err();
    assert!(error.contains("store.postgres.password") && !error.contains("12345"), "{error}");
    assert!(!format!("{:?}", Config::default()).contains("Password(\"kuma\")"));
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    refused(
        "mode: x\nstore:\n  type: y\n",
        &[("KUMA_ENVIRONMENT", "z")],
        &["mode", "store.type", "KUMA_ENVIRONMENT"],
    );
}

#[test]
fn settings_that_do_not_go_together_are_refused() {
    refused("environment: kubernetes\n", &[], &["not supported yet"]);
    refused("store: {type: kubernetes}\n", &[], &["not supported yet"]);
    refused(
        "general: {tlsCertFile: a.pem}\n",
        &[],
        &["general.tlsCertFile and general.tlsKeyFile", "both or neither"],
    );
    refused("apiServer: {authn: {type: adminClientCerts}}\n", &[], &["apiServer.auth.clientCertsDir"]);
    refused("apiServer: {basePath: kuma}\n", &[], &["must start with"]);
    refused("multizone: {zone: {name: East Zone}}\n", &[], &["multizone.zone.name", "East Zone"]);
    refused("multizone: {zone: {globalAddress: 'global:5685'}}\n", &[], &["grpcs://"]);
    refused("mode: global\nmultizone: {zone: {globalAddress: 'grpcs://g:5685'}}\n", &[], &["globalAddress"]);
    refused(
        "dpServer: {limits: {maxConnections: 0}}\n",
        &[],
        &["dpServer.limits.maxConnections", "at least 1"],
    );
    let kds = |settings: &str| format!("multizone: {{global: {{kds: {{{settings}}}}}}}\n");
    refused(&kds("tlsCertFile: a.pem"), &[], &["multizone.global.kds.tlsCertFile", "both or neither"]);
    refused(&kds("maxMsgSize: 1000"), &[], &["multizone.global.kds.maxMsgSize", "at least 65536"]);
    refused(&kds("zoneTokenRequired: true, tlsEnabled: false"), &[], &["zoneTokenRequired", "without TLS"]);
    let monitoring = |settings: &str| format!("monitoringAssignmentServer: {{{settings}}}\n");
    refused(
        &monitoring("apiVersions: [v1alpha1]"),
        &[],
        &["monitoringAssignmentServer.apiVersions", "\"v1\""],
    );
    refused(&monitoring("tlsKeyFile: a.pem"), &[], &["monitoringAssignmentServer.tlsCertFile", "together"]);
    refused(
        &monitoring("clientCertsDir: x"),
        &[],
        &["clientCertsDir", "monitoringAssignmentServer.tlsEnabled"],
    );
    let postgres = "store: {type: postgres, postgres: {tls: {mode: verifyFull}}}\n";
    refused(postgres, &[], &["store.postgres.tls.caPath"]);
}

#[test]
fn ranges_of_addresses_that_cannot_work_are_refused() {
    let services = |cidr: &str| format!("ipam: {{meshService: {{cidr: '{cidr}'}}}}\n");
    refused(
        &services("242.1.0.0/16"),
        &[],
        &[
            "ipam.meshService.cidr and ipam.meshExternalService.cidr",
            "242.1.0.0/16 and 242.0.0.0/8 overlap",
            "its own range",
        ],
    );
    refused(&services("240.0.0.0/4"), &[], &["ipam.meshService.cidr and ipam.meshMultiZoneService.cidr"]);
    refused(&services("10.0.0.0/29"), &[], &["ipam.meshService.cidr", "10.0.0.0/29 has 8 addresses", "16"]);
    refused(&services("10.0.0.7/8"), &[], &["ipam.meshService.cidr", "did you mean 10.0.0.0/8?"]);
    refused(
        "",
        &[("KUMA_IPAM_MESH_SERVICE_CIDR", "fd00::/64")],
        &["KUMA_IPAM_MESH_SERVICE_CIDR", "241.0.0.0/8"],
    );
    for (range, problem) in [
        ("fd00:240::/64", "64 bits and needs 96"),
        ("fd00::1/96", "did you mean fd00::/96?"),
        ("2001:db8::/96", "not a unique local address (fc00::/7)"),
        ("241.0.0.0/8", "such as fd00:"),
    ] {
        refused(&format!("ipam: {{ipv6CIDR: '{range}'}}\n"), &[], &["ipam.ipv6CIDR", range, problem]);
    }
    refused("", &[("KUMA_IPAM_IPV6_CIDR", "fd00::/8")], &["KUMA_IPAM_IPV6_CIDR", "fd00::/8", "8 bits"]);
}

/// A document with one key.
fn document(path: &str, value: Value) -> Value {
    path.rsplit('.').fold(value, |inner, key| json!({ key: inner }))
}

/// Puts `more` into `into`, section by section.
fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

/// The default of a setting that has no effect, as a file says it.
fn default_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| if text.is_empty() { Value::Null } else { json!(text) })
}

#[test]
fn kumas_own_defaults_are_accepted_without_a_word() {
    let mut file = json!({});
    for (path, _, default) in without_effect::ROWS {
        merge(&mut file, document(path, default_of(default)));
    }
    for (path, value) in [
        ("environment", json!("universal")),
        ("mode", json!("zone")),
        ("store.type", json!("memory")),
        ("store.postgres.tls.caPath", json!(null)),
        ("store.postgres.maxOpenConnections", json!(50)),
        ("store.kubernetes.systemNamespace", json!("kuma-system")),
        ("apiServer.corsAllowedDomains", json!([".*"])),
        ("general.tlsCertFile", json!(null)),
        ("general.workDir", json!("")),
        ("multizone.zone.globalAddress", json!(null)),
        ("xdsServer.dataplaneStatusFlushInterval", json!("10s")),
        ("meshService.deletionGracePeriod", json!("1h")),
        ("runtime.kubernetes.injector.sidecarContainer.uid", json!(5678)),
        ("runtime.kubernetes.admissionServer.address", json!(null)),
        ("runtime.universal.dataplaneCleanupAge", json!("72h0m0s")),
        ("dpServer.authn.dpProxy.type", json!("")),
        ("proxy.gateway.globalDownstreamMaxConnections", json!(50_000)),
    ] {
        merge(&mut file, document(path, value));
    }
    let loaded = read(&file.to_string(), &[]).unwrap();
    assert_eq!(loaded.warnings, Vec::<String>::new());
    assert_eq!(loaded.config.store.kind, StoreType::Memory);
}

#[test]
fn what_has_no_effect_is_named_in_one_warning_by_key_and_by_variable() {
    let mut file = json!({});
    let mut environment = Vec::new();
    for (path, variable, default) in without_effect::ROWS {
        merge(&mut file, document(path, json!("other")));
        environment.push(((*variable).to_owned(), "other".to_owned()));
        let defaults = default.trim_matches(['[', ']']).replace('"', "");
        assert_eq!(read("", &[(variable, &defaults)]).unwrap().warnings, Vec::<String>::new(), "{variable}");
    }
    for (what, loaded) in
        [("file", parse(&file.to_string(), []).unwrap()), ("environment", parse("", environment).unwrap())]
    {
        let [warning] = &loaded.warnings[..] else { panic!("{what}: {:?}", loaded.warnings) };
        for (path, variable, default) in without_effect::ROWS {
            // A list cannot be a word.
            let name = if what == "file" { path } else { variable };
            let is_list = default.starts_with('[');
            assert!(is_list && what == "file" || warning.contains(name), "{name} is not in {warning}");
        }
        assert_eq!(loaded.config, Config::default());
    }
}

#[test]
fn keys_of_another_version_and_other_names_of_variables_are_accepted() {
    let yaml = "apiServer:\n  teapot: short\n  kettle: false\nexperimental:\n  teaTime: {at: 5s}\n";
    let loaded = read(yaml, &[("KUMA_EXPERIMENTAL_CAKE", "true")]).unwrap();
    let [warning] = &loaded.warnings[..] else { panic!("{:?}", loaded.warnings) };
    for name in ["apiServer.teapot", "experimental.teaTime.at", "KUMA_EXPERIMENTAL_CAKE"] {
        assert!(warning.contains(name), "{warning}");
    }
    assert!(!warning.contains("kettle"), "{warning}");
    let loaded = read("", &[("KUMA_ACCESS_STATIC_GET_CONFIG_DUMP_USERS", "operator")]).unwrap();
    assert_eq!(at(&loaded.config, "access.static.viewConfigDump.users"), json!(["operator"]));
    assert_eq!(loaded.warnings, Vec::<String>::new());
}

#[test]
fn what_would_make_a_bootstrap_or_a_check_that_envoy_refuses_is_refused() {
    for (path, value) in [
        ("bootstrapServer.params.adminAddress", json!("localhost")),
        ("bootstrapServer.params.adminAccessLogPath", json!("")),
        ("bootstrapServer.params.xdsConnectTimeout", json!("0s")),
        ("bootstrapServer.params.xdsGrpcMaxReceiveMessageBytes", json!(0)),
        ("dpServer.hds.interval", json!("0s")),
        ("dpServer.hds.checkDefaults.timeout", json!("0s")),
        ("dpServer.hds.checkDefaults.healthyThreshold", json!(0)),
    ] {
        refused(&document(path, value).to_string(), &[], &[path]);
    }
}

#[test]
fn an_unknown_variable_is_a_warning_with_a_hint_if_it_is_for_kuma_cp() {
    let environment =
        [("KUMA_STORE_TPYE", "memory"), ("KUMA_LUNCH", "12"), ("KUMA_DATAPLANE_NAME", "x"), ("HOME", "/")];
    let warnings = read("", &environment).unwrap().warnings;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].starts_with("KUMA_LUNCH") && !warnings[0].contains("did you mean"), "{warnings:?}");
    assert!(warnings[1].contains("did you mean KUMA_STORE_TYPE?"), "{warnings:?}");
}

#[test]
fn standalone_means_zone() {
    let loaded = read("mode: standalone\n", &[]).unwrap();
    assert_eq!(loaded.config.mode, Mode::Zone);
    assert!(loaded.warnings[0].contains("standalone"));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = format!("{:#}", load(Some("/nowhere/kuma.yaml".as_ref()), []).unwrap_err());
    assert!(error.contains("/nowhere/kuma.yaml"), "{error}");
}

#[test]
fn the_range_of_hostnames_may_contain_services_and_must_leave_room() {
    let pool = |cidr: &str| {
        let config = read(&format!("dnsServer:\n  CIDR: {cidr}\n"), &[]).unwrap().config;
        config.reconcilers.dns_server.pool(&config.reconcilers.ipam).unwrap().size()
    };
    let config = Config::default();
    assert_eq!(config.reconcilers.dns_server.pool(&config.reconcilers.ipam).unwrap().size(), 1 << 24);
    assert_eq!(pool("240.0.0.0/4"), 13 * (1 << 24) - 1);
    assert_eq!(pool("10.9.0.0/16"), 1 << 16);
    for cidr in ["242.0.0.0/8", "10.0.0.0/24"] {
        let expect = ["dnsServer.CIDR", cidr, "at least 65536 are needed"];
        refused("", &[("KUMA_DNS_SERVER_CIDR", cidr)], &expect);
    }
    refused("dnsServer:\n  CIDR: 240.0.0.1/8\n", &[], &["dnsServer.CIDR", "did you mean 240.0.0.0/8?"]);
}
