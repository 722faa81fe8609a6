//! Fields of a bootstrap, as the settings, the agent and the Dataplane decide.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use http::StatusCode;
use serde_json::{Value, json};
use serving::dp_server::ShownCertificate;

use resources::{Key, Kind};

use crate::{
    proxies::{ProxyServer, asking, refused},
    world::resource,
};

/// The first cluster of that name.
fn cluster<'b>(bootstrap: &'b Value, name: &str) -> &'b Value {
    let clusters = bootstrap["staticResources"]["clusters"].as_array().unwrap();
    clusters.iter().find(|cluster| cluster["name"] == name).unwrap_or(&Value::Null)
}

fn metadata(bootstrap: &Value) -> &Value {
    &bootstrap["node"]["metadata"]
}

fn with_dataplane(networking: Value) -> Value {
    let dataplane =
        json!({ "type": "Dataplane", "mesh": "default", "name": "web", "networking": networking });
    asking(|request| request["dataplaneResource"] = dataplane.to_string().into())
}

fn inbound(admin: Value) -> Value {
    with_dataplane(json!({ "address": "127.0.0.1", "admin": admin,
        "inbound": [{ "port": 80, "tags": { "kuma.io/service": "web" } }] }))
}

fn builtin_gateway() -> Value {
    with_dataplane(json!({ "address": "127.0.0.1",
        "gateway": { "type": "BUILTIN", "tags": { "kuma.io/service": "edge" } } }))
}

#[tokio::test]
async fn the_admin_interface_listens_at_a_socket_unless_that_is_switched_off() {
    let socket = "/tmp/web/kuma-envoy-admin.sock";
    let server = ProxyServer::configured(|_| ()).await;
    let bootstrap = server.bootstrap(asking(|_| ())).await;
    assert_eq!(bootstrap["admin"]["address"], json!({ "pipe": { "path": socket, "mode": 0o600 } }));
    assert_eq!(metadata(&bootstrap)["dataplane.admin.socketPath"], socket);
    assert_eq!(metadata(&bootstrap)["dataplane.admin.address"], "127.0.0.1");

    // Without a folder there is no place for a socket.
    let homeless = server.bootstrap(asking(|request| request["workdir"] = json!(""))).await;
    let port = json!({ "socketAddress": { "address": "127.0.0.1", "portValue": 9901 } });
    assert_eq!(homeless["admin"]["address"], port);

    let server = ProxyServer::configured(|config| {
        let params = &mut config.serving.bootstrap_server.params;
        params.envoy_admin_unix_socket = false;
        params.admin_address = "127.0.0.9".to_owned();
        params.admin_access_log_path = "/var/log/admin.log".to_owned();
    })
    .await;
    let bootstrap = server.bootstrap(asking(|_| ())).await;
    let port = json!({ "socketAddress": { "address": "127.0.0.9", "portValue": 9901 } });
    assert_eq!(bootstrap["admin"]["address"], port);
    assert_eq!(bootstrap["admin"]["accessLog"][0]["typedConfig"]["path"], "/var/log/admin.log");
    assert_eq!(metadata(&bootstrap)["dataplane.admin.socketPath"], Value::Null);
    assert_eq!(metadata(&bootstrap)["dataplane.admin.address"], "127.0.0.9");
}

#[tokio::test]
async fn the_admin_port_is_the_dataplanes_or_the_default_and_zero_means_none() {
    let server = ProxyServer::configured(|_| ()).await;
    for (admin, port) in
        [(json!({ "port": 9999 }), "9999"), (json!({ "port": 0 }), "9901"), (json!({}), "9901")]
    {
        let bootstrap = server.bootstrap(inbound(admin)).await;
        assert_eq!(metadata(&bootstrap)["dataplane.admin.port"], port);
    }
    let server =
        ProxyServer::configured(|config| config.serving.bootstrap_server.params.admin_port = 0).await;
    let bootstrap = server.bootstrap(asking(|_| ())).await;
    assert_eq!(bootstrap["admin"], Value::Null);
    let keys = metadata(&bootstrap).as_object().unwrap().keys();
    assert_eq!(keys.filter(|key| key.starts_with("dataplane.admin")).count(), 0);
    let bootstrap = server.bootstrap(inbound(json!({ "port": 9999 }))).await;
    assert_eq!(metadata(&bootstrap)["dataplane.admin.port"], "9999");
}

#[tokio::test]
async fn the_host_of_the_settings_wins_over_the_host_the_agent_used() {
    let server = ProxyServer::configured(|config| {
        let params = &mut config.serving.bootstrap_server.params;
        (params.xds_host, params.xds_port) = ("::1".to_owned(), 15678);
        params.xds_connect_timeout = "1500ms".parse().unwrap();
    })
    .await;
    // The certificate is not for this host, but the host is not used either.
    let (status, _, text) = server.post("/bootstrap", &[("host", "elsewhere:5678")], asking(|_| ())).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let bootstrap = server.bootstrap(asking(|_| ())).await;
    let ads = cluster(&bootstrap, "ads_cluster");
    let endpoint = &ads["loadAssignment"]["endpoints"][0]["lbEndpoints"][0]["endpoint"]["address"];
    assert_eq!(endpoint, &json!({ "socketAddress": { "address": "::1", "portValue": 15678 } }));
    assert_eq!(ads["type"], "STATIC");
    assert_eq!(ads["transportSocket"]["typedConfig"]["sni"], "::1");
    let secret = &bootstrap["staticResources"]["secrets"][0];
    assert_eq!(
        secret["validationContext"]["matchTypedSubjectAltNames"],
        json!([
            { "sanType": "DNS", "matcher": { "exact": "::1" } },
            { "sanType": "IP_ADDRESS", "matcher": { "exact": "::1" } }
        ])
    );
    for name in ["access_log_sink", "ads_cluster"] {
        let cluster = cluster(&bootstrap, name);
        assert_eq!(cluster["connectTimeout"], "1.5s");
        let keepalive = json!({ "keepaliveProbes": 3, "keepaliveTime": 10, "keepaliveInterval": 10 });
        assert_eq!(cluster["upstreamConnectionOptions"]["tcpKeepalive"], keepalive);
    }
}

#[tokio::test]
async fn the_access_log_sink_precedes_the_control_plane_and_names_are_resolved() {
    let server = ProxyServer::configured(|_| ()).await;
    let bootstrap = server.bootstrap(asking(|_| ())).await;
    let clusters = &bootstrap["staticResources"]["clusters"];
    assert_eq!(
        (&clusters[0]["name"], &clusters[1]["name"]),
        (&json!("access_log_sink"), &json!("ads_cluster"))
    );
    assert_eq!((&clusters[0]["type"], &clusters[1]["type"]), (&json!("STATIC"), &json!("STRICT_DNS")));
    assert_eq!(clusters[1]["dnsLookupFamily"], Value::Null);
}

#[tokio::test]
async fn paths_of_sockets_are_cut_where_the_system_would_refuse_them() {
    let server = ProxyServer::configured(|_| ()).await;
    let long = format!("/tmp/{}", "ä".repeat(80));
    let bootstrap = server.bootstrap(asking(|request| request["workdir"] = json!(long))).await;
    let endpoint =
        &cluster(&bootstrap, "access_log_sink")["loadAssignment"]["endpoints"][0]["lbEndpoints"][0];
    let log = endpoint["endpoint"]["address"]["pipe"]["path"].as_str().unwrap();
    let admin = metadata(&bootstrap)["dataplane.admin.socketPath"].as_str().unwrap();
    for path in [log, admin] {
        // The last letter would be cut in half.
        assert_eq!((path.len(), path.ends_with("ä.sock")), (97 + ".sock".len(), true), "{path}");
    }
    let short = server.bootstrap(asking(|request| request["workdir"] = json!("/tmp/web/"))).await;
    assert!(short.to_string().contains("/tmp/web/kuma-al-web-default.sock"), "{short}");
}

#[tokio::test]
async fn a_token_in_a_file_is_read_by_envoy_when_that_is_switched_on() {
    let request = || asking(|request| request["dataplaneTokenPath"] = json!("/tmp/web/token"));
    let server = ProxyServer::configured(|_| ()).await;
    let inline = server.bootstrap(request()).await;
    for service in ["/dynamicResources/adsConfig", "/hdsConfig"] {
        let metadata = &inline.pointer(service).unwrap()["grpcServices"][0]["initialMetadata"];
        assert_eq!(metadata, &json!([{ "key": "authorization", "value": "a-token" }]));
    }

    let server = ProxyServer::configured(|config| {
        config.serving.dp_server.authn.enable_reloadable_tokens = true;
        config.serving.bootstrap_server.params.xds_grpc_max_receive_message_bytes = 1234;
    })
    .await;
    let reloaded = server.bootstrap(request()).await;
    assert_eq!(cluster(&reloaded, "ads_cluster"), &Value::Null);
    assert!(!reloaded.to_string().contains("a-token"), "{reloaded}");
    let factory = "envoy.grpc_credentials.file_based_metadata";
    for service in ["/dynamicResources/adsConfig", "/hdsConfig"] {
        let google = &reloaded.pointer(service).unwrap()["grpcServices"][0]["googleGrpc"];
        assert_eq!((&google["targetUri"], &google["statPrefix"]), (&json!("localhost:5678"), &json!("ads")));
        assert_eq!(google["credentialsFactoryName"], factory);
        let plugin = &google["callCredentials"][0]["fromPlugin"];
        assert_eq!(
            (&plugin["name"], &plugin["typedConfig"]["secretData"]["filename"]),
            (&json!(factory), &json!("/tmp/web/token"))
        );
        assert_eq!(
            google["channelArgs"]["args"],
            json!({
                "grpc.keepalive_time_ms": { "intValue": "10000" },
                "grpc.keepalive_timeout_ms": { "intValue": "30000" },
                "grpc.http2.max_pings_without_data": { "intValue": "0" },
                "grpc.max_receive_message_length": { "intValue": "1234" }
            })
        );
        let authority = google["channelCredentials"]["sslCredentials"]["rootCerts"]["inlineBytes"].as_str();
        let pem = BASE64_STANDARD.decode(authority.unwrap()).unwrap();
        assert_eq!(pem, server.context.certificate.current().pem.as_bytes());
    }
    // An agent without a file keeps its inline token.
    let inline = server.bootstrap(asking(|_| ())).await;
    assert_ne!(cluster(&inline, "ads_cluster"), &Value::Null);
}

#[tokio::test]
async fn health_discovery_is_asked_for_unless_it_is_switched_off() {
    let server = ProxyServer::configured(|_| ()).await;
    let bootstrap = server.bootstrap(asking(|_| ())).await;
    let hds = &bootstrap["hdsConfig"];
    assert_eq!((&hds["apiType"], &hds["transportApiVersion"]), (&json!("GRPC"), &json!("V3")));
    assert_eq!(hds["setNodeOnFirstMessageOnly"], true);
    assert_eq!(hds["grpcServices"][0]["envoyGrpc"]["clusterName"], "ads_cluster");
    let server = ProxyServer::configured(|config| config.serving.dp_server.hds.enabled = false).await;
    assert_eq!(server.bootstrap(asking(|_| ())).await["hdsConfig"], Value::Null);
}

#[tokio::test]
async fn a_builtin_gateway_defends_itself() {
    let server = ProxyServer::configured(|config| {
        config.serving.proxy.gateway.global_downstream_max_connections = 35_678;
    })
    .await;
    assert_eq!(server.bootstrap(asking(|_| ())).await["overloadManager"], Value::Null);
    let bootstrap = server.bootstrap(builtin_gateway()).await;
    let layer = &bootstrap["layeredRuntime"]["layers"][1];
    let source = json!({ "ads": {}, "resourceApiVersion": "V3" });
    assert_eq!(layer["rtdsLayer"], json!({ "name": "gateway.listeners", "rtdsConfig": source }));
    let manager = &bootstrap["overloadManager"];
    assert_eq!(manager["refreshInterval"], "0.250s");
    let connections = &manager["resourceMonitors"][0]["typedConfig"]["maxActiveDownstreamConnections"];
    assert_eq!((connections, &manager["actions"]), (&json!("35678"), &Value::Null));

    let mut request = builtin_gateway();
    request["resources"] = json!({ "maxHeapSizeBytes": 1_000_000 });
    let server =
        ProxyServer::configured(|config| config.serving.proxy.gateway.global_downstream_max_connections = 0)
            .await;
    let manager = &server.bootstrap(request).await["overloadManager"];
    let connections = &manager["resourceMonitors"][0]["typedConfig"]["maxActiveDownstreamConnections"];
    let heap = &manager["resourceMonitors"][1]["typedConfig"]["maxHeapSizeBytes"];
    assert_eq!((connections, heap), (&json!("50000"), &json!("1000000")));
    let at = |action: usize| &manager["actions"][action]["triggers"][0]["threshold"]["value"];
    assert_eq!((at(0), at(1)), (&json!(0.95), &json!(0.98)));
}

#[tokio::test]
async fn metadata_says_what_the_agent_said() {
    let server = ProxyServer::configured(|_| ()).await;
    let told = asking(|request| {
        for (key, value) in [
            ("dnsPort", json!(15053)),
            ("appProbeProxyDisabled", json!(true)),
            ("dynamicMetadata", json!({ "a": "b" })),
            ("metricsResources", json!({ "certPath": "/c", "keyPath": "/k" })),
            ("systemCaPath", json!("/ca")),
            ("spireResources", json!({ "socketPath": "/s" })),
            ("dataplaneConfig", json!({ "redirect": {} })),
            (
                "version",
                json!({ "kumaDp": { "version": "2.14.3", "gitTag": "" }, "envoy": { "version": "1.36" } }),
            ),
        ] {
            request[key] = value;
        }
    });
    let bootstrap = server.bootstrap(told.clone()).await;
    let metadata = metadata(&bootstrap);
    for (key, expect) in [
        ("dataplane.dns.port", json!("15053")),
        ("dataplane.appProbeProxy.enabled", json!("true")),
        ("dataplane.resource", told["dataplaneResource"].clone()),
        ("dynamicMetadata", json!({ "a": "b" })),
        ("metricsCertPath", json!("/c")),
        ("metricsKeyPath", json!("/k")),
        ("systemCaPath", json!("/ca")),
        ("spireAgent.socketPath", json!("/s")),
        ("transparentProxy", json!({ "redirect": {} })),
        ("version", json!({ "kumaDp": { "version": "2.14.3" }, "envoy": { "version": "1.36" } })),
        ("workdir", json!("/tmp/web")),
    ] {
        assert_eq!(metadata[key], expect, "{key}");
    }
}

#[tokio::test]
async fn what_is_empty_may_be_null_and_is_left_out_where_kuma_leaves_it_out() {
    let server = ProxyServer::configured(|_| ()).await;
    let told = asking(|request| {
        for key in
            ["features", "dynamicMetadata", "version", "resources", "metricsResources", "dataplaneTokenPath"]
        {
            request[key] = Value::Null;
        }
        request["readinessPort"] = json!(0);
    });
    let bootstrap = server.bootstrap(told).await;
    let keys: Vec<&String> = metadata(&bootstrap).as_object().unwrap().keys().collect();
    for absent in [
        "dataplane.dns.port",
        "dataplane.readinessReporter.port",
        "dataplane.appProbeProxy.enabled",
        "dynamicMetadata",
        "transparentProxy",
        "operatingSystem",
    ] {
        assert!(!keys.iter().any(|key| *key == absent), "{absent} in {keys:?}");
    }
    for (key, expect) in
        [("features", json!([])), ("metricsCertPath", json!("")), ("spireAgent.socketPath", json!(""))]
    {
        assert_eq!(metadata(&bootstrap)[key], expect, "{key}");
    }
}

#[tokio::test]
async fn a_certificate_that_cannot_vouch_for_the_control_plane_is_refused() {
    let server = ProxyServer::configured(|_| ()).await;
    let with = |pem: &str| asking(|request| request["caCert"] = json!(pem));
    refused(&server, "localhost", with("no certificate"), 400, &["caCert", "not PEM"]).await;
    let names = ["other".to_owned()];
    let usage = identity::certificate::Usage::Server;
    let now = jiff::Timestamp::now();
    let mut leaf = rcgen::CertificateParams::new(names.to_vec()).unwrap();
    leaf.is_ca = rcgen::IsCa::ExplicitNoCa;
    let leaf = leaf.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem();
    refused(&server, "localhost", with(&leaf), 400, &["which is not a certificate authority"]).await;
    // One that does not say what it is may vouch, and the control plane's own certificate vouches for itself.
    let silent = identity::certificate::self_signed(usage, &names, &[], now).unwrap().certificate;
    let own = server.context.certificate.current().pem.clone();
    // During a change of authorities agents trust several.
    let both = format!("{silent}{own}");
    for pem in [silent, own, both] {
        let bootstrap = server.bootstrap(with(&pem)).await;
        assert_eq!(trusted(&bootstrap), BASE64_STANDARD.encode(&pem));
    }
}

/// Authorities that Envoy trusts to vouch for the control plane.
fn trusted(bootstrap: &Value) -> String {
    let context = &bootstrap["staticResources"]["secrets"][0]["validationContext"];
    context["trustedCa"]["inlineBytes"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_certificate_that_was_replaced_is_the_one_that_new_proxies_trust() {
    let server = ProxyServer::configured(|_| ()).await;
    let names = ["localhost".to_owned()];
    let now = jiff::Timestamp::now();
    let usage = identity::certificate::Usage::Server;
    let pair = identity::certificate::self_signed(usage, &names, &[], now).unwrap();
    let facts = pair.check(now).unwrap();
    server.context.certificate.replace(ShownCertificate { facts, pem: pair.certificate.clone() });
    let bootstrap = server.bootstrap(asking(|_| ())).await;
    assert_eq!(trusted(&bootstrap), BASE64_STANDARD.encode(&pair.certificate));
}

#[tokio::test]
async fn a_request_that_is_too_long_is_refused_before_it_is_read() {
    let server = ProxyServer::configured(|_| ()).await;
    let long = asking(|request| request["dynamicMetadata"] = json!({ "a": "b".repeat(1 << 20) }));
    let (status, _, _) = server.post("/bootstrap", &[("host", "localhost:5678")], long).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_value_of_the_wrong_type_is_refused_by_its_place_and_not_quoted() {
    let server = ProxyServer::configured(|_| ()).await;
    // The helper looks for the token in the answer.
    let wrong = asking(|request| request["version"] = json!("a-token"));
    refused(&server, "localhost", wrong, 400, &["wrong type at line 1, column"]).await;
}

#[tokio::test]
async fn envoy_keeps_the_statistics_that_the_profile_of_a_mesh_metric_wants() {
    let server = ProxyServer::configured(|_| ()).await;
    let bootstrap = server.bootstrap(asking(|_| ())).await;
    assert_eq!(bootstrap["statsConfig"]["statsMatcher"], Value::Null);
    assert_eq!(metadata(&bootstrap)["statistics"], Value::Null);
    assert_eq!(bootstrap["deferredStatOptions"], Value::Null);

    let policy = |name: &str, target: Value, profile: &str| {
        let spec = json!({ "targetRef": target, "default": {
            "sidecar": { "profiles": { "appendProfiles": [{ "name": profile }] } },
            "backends": [{ "type": "Prometheus", "prometheus": {} }],
        } });
        resource(Key::new(Kind::MeshMetric, "default", name), &[], spec)
    };
    server.world.put([policy("all", json!({ "kind": "Mesh" }), "Basic")]).await;
    // The Dataplane that the agent brings along is not stored.
    let bootstrap = server.bootstrap(inbound(Value::Null)).await;
    assert_eq!(metadata(&bootstrap)["statistics"], "Basic used");
    assert_eq!(bootstrap["deferredStatOptions"], json!({ "enableDeferredCreationStats": true }));
    let patterns = &bootstrap["statsConfig"]["statsMatcher"]["inclusionList"]["patterns"];
    let patterns = patterns.as_array().unwrap();
    assert!(patterns.contains(&json!({ "prefix": "server." })), "{patterns:?}");
    let expressions = patterns.iter().filter_map(|pattern| pattern["safeRegex"]["regex"].as_str());
    // Signals and observed calls are made of these.
    let of_calls = ["upstream_rq_total", "upstream_rq_completed", "upstream_rq_time", "denied"];
    for counter in of_calls {
        let kept = expressions.clone().any(|expression| expression.contains(counter));
        assert!(kept, "{counter}: {patterns:?}");
    }
    let regex = patterns.iter().find_map(|pattern| pattern["safeRegex"]["regex"].as_str()).unwrap();
    assert!(regex.contains("cluster.*membership.*healthy") && regex.contains("rq[._]time|"), "{regex}");

    // A profile that wants everything for this proxy.
    let web = json!({ "kind": "MeshSubset", "tags": { "kuma.io/service": "web" } });
    server.world.put([policy("web", web, "All")]).await;
    let bootstrap = server.bootstrap(inbound(Value::Null)).await;
    assert_eq!(bootstrap["statsConfig"]["statsMatcher"], Value::Null);
    assert_eq!(metadata(&bootstrap)["statistics"], "All used");
}

#[tokio::test]
async fn labels_of_kuma_are_left_to_an_agent_that_makes_them() {
    let server = ProxyServer::configured(|_| ()).await;
    let tags = async |features: Value| {
        let bootstrap = server.bootstrap(asking(|request| request["features"] = features)).await;
        let tags = bootstrap["statsConfig"]["statsTags"].as_array().unwrap().clone();
        let text = |tag: &Value, field: &str| tag[field].as_str().unwrap().to_owned();
        tags.iter().map(|tag| (text(tag, "tagName"), text(tag, "regex"))).collect::<Vec<_>>()
    };
    let names = |tags: &[(String, String)]| tags.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let of_kuma = tags(json!(["feature-delta-grpc", "feature-otel-via-kuma-dp"])).await;
    assert_eq!(names(&of_kuma), ["name", "status", "kafka_name", "kafka_type", "worker", "listener"]);
    let own = tags(json!(["feature-stats-labels-via-kuma-dp"])).await;
    assert_eq!(own, of_kuma[..4]);
    // Envoy compares such an expression with names that begin with its word and no others.
    for (name, regex) in own {
        let is_cheap = ["grpc", "kafka"].iter().any(|word| {
            let rest = regex.strip_prefix('^').and_then(|rest| rest.strip_prefix(word));
            rest.is_some_and(|rest| rest.starts_with("\\.") || rest.starts_with("(?=\\.)"))
        });
        assert!(is_cheap, "{name}: {regex}");
    }
}

#[tokio::test]
async fn an_agent_that_reports_no_readiness_is_not_asked_for_it() {
    let server = ProxyServer::new(false, Duration::ZERO).await;
    for (told, expect) in [(json!(0), json!(null)), (json!(null), json!("9902"))] {
        let bootstrap = server.bootstrap(asking(|r| r["readinessPort"] = told)).await;
        assert_eq!(bootstrap["node"]["metadata"]["dataplane.readinessReporter.port"], expect);
    }
}

#[tokio::test]
async fn names_follow_the_unified_naming_of_the_agent() {
    let server = ProxyServer::new(false, Duration::ZERO).await;
    let clusters = |bootstrap: &Value| -> Vec<String> {
        let all = bootstrap["staticResources"]["clusters"].as_array();
        all.unwrap().iter().map(|cluster| cluster["name"].as_str().unwrap().to_owned()).collect()
    };
    let legacy = clusters(&server.bootstrap(asking(|_| ())).await);
    assert!(legacy.contains(&"ads_cluster".to_owned()), "{legacy:?}");
    for feature in ["feature-unified-proxy-resources-and-stats-naming", "feature-unified-resource-naming"] {
        let unified = clusters(&server.bootstrap(asking(|r| r["features"] = json!([feature]))).await);
        assert_eq!(unified.len(), legacy.len());
        assert!(unified.iter().all(|name| name.starts_with("system_")), "{unified:?}");
    }
}
