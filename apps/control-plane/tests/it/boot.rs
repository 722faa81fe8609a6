use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use control_plane::config::setting::{AuthnType, Mode, StoreType};
use identity::certificate::{Usage, self_signed};
use serde_json::{Value, json};
use tempfile::tempdir;

use crate::client::{agent, config, get, get_with, names, put, refusal, start};

fn file(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_start_creates_what_kuma_creates() {
    for kind in [StoreType::Memory, StoreType::Sqlite] {
        let directory = tempdir().unwrap();
        let running = start(config(directory.path(), kind)).await;
        assert_eq!(get(&running, "/meshes/default").await["meshServices"]["mode"], "Exclusive");
        let timeouts = ["mesh-gateways-timeout-all-default", "mesh-timeout-all-default"];
        assert_eq!(names(&running, "/meshes/default/meshtimeouts").await, timeouts);
        let keys = names(&running, "/meshes/default/secrets").await;
        assert_eq!(keys, ["dataplane-token-signing-key-default-1"]);
        let global =
            ["admin-user-token", "envoy-admin-ca", "user-token-signing-key-1", "zone-token-signing-key-1"];
        assert_eq!(names(&running, "/global-secrets").await, global);
        let generators = ["local-mesh-external-service", "local-universal-mesh-service"];
        assert_eq!(names(&running, "/hostnamegenerators").await, generators);
        let index = get(&running, "/").await;
        assert_eq!(index["clusterId"].as_str().unwrap().len(), 36, "{index}");
        assert!(!index["instanceId"].as_str().unwrap().is_empty());
        assert_eq!(get(&running, "/who-am-i").await["name"], "mesh-system:admin");
        running.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn default_timeouts_have_kumas_values() {
    let directory = tempdir().unwrap();
    let running = start(config(directory.path(), StoreType::Memory)).await;
    let sidecars = get(&running, "/meshes/default/meshtimeouts/mesh-timeout-all-default").await;
    let of = |proxies: &str, from: Value, to: Value| {
        let entry = |conf: Value| json!([{ "targetRef": { "kind": "Mesh" }, "default": conf }]);
        let top = json!({ "kind": "Mesh", "proxyTypes": [proxies] });
        json!({ "targetRef": top, "from": entry(from), "to": entry(to) })
    };
    let from = json!({ "connectionTimeout": "10s", "idleTimeout": "2h0m0s", "http":
        { "requestTimeout": "0s", "streamIdleTimeout": "1h0m0s", "maxStreamDuration": "0s" } });
    let to = json!({ "connectionTimeout": "5s", "idleTimeout": "1h0m0s", "http":
        { "requestTimeout": "15s", "streamIdleTimeout": "30m0s" } });
    assert_eq!(sidecars["spec"], of("Sidecar", from, to));
    let gateways = get(&running, "/meshes/default/meshtimeouts/mesh-gateways-timeout-all-default").await;
    let from = json!({ "idleTimeout": "5m0s", "http":
        { "streamIdleTimeout": "5s", "requestHeadersTimeout": "500ms" } });
    let to = json!({ "idleTimeout": "1h0m0s", "http": { "streamIdleTimeout": "5s" } });
    assert_eq!(gateways["spec"], of("Gateway", from, to));
    let limits = get(&running, "/meshes/default/meshcircuitbreakers/mesh-circuit-breaker-all-default").await;
    assert_eq!(
        limits["spec"]["to"][0]["default"],
        json!({ "connectionLimits": {
            "maxConnections": 1024, "maxPendingRequests": 1024, "maxRequests": 1024, "maxRetries": 3,
        } })
    );
    let retries = get(&running, "/meshes/default/meshretries/mesh-retry-all-default").await;
    let requests = json!({ "numRetries": 5, "perTryTimeout": "16s",
        "backOff": { "baseInterval": "25ms", "maxInterval": "250ms" } });
    assert_eq!(
        retries["spec"]["to"],
        json!([{ "targetRef": { "kind": "Mesh" },
            "default": { "tcp": { "maxConnectAttempt": 5 }, "http": requests, "grpc": requests } }])
    );
    running.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mesh_can_do_without_the_default_policies_but_not_without_its_key() {
    let directory = tempdir().unwrap();
    let running = start(config(directory.path(), StoreType::Memory)).await;
    for (mesh, skip, [timeouts, breakers, retries]) in [
        ("a", json!(["*"]), [0, 0, 0]),
        ("b", json!(["MeshTimeout"]), [0, 1, 1]),
        ("c", json!(["MeshRetry"]), [2, 1, 0]),
        ("d", json!(["MeshCircuitBreaker"]), [2, 0, 1]),
    ] {
        let body = json!({ "type": "Mesh", "name": mesh, "skipCreatingInitialPolicies": skip });
        assert_eq!(put(&running, &format!("/meshes/{mesh}"), body).await, 201);
        for (kind, expected) in
            [("meshtimeouts", timeouts), ("meshcircuitbreakers", breakers), ("meshretries", retries)]
        {
            let found = names(&running, &format!("/meshes/{mesh}/{kind}")).await;
            assert_eq!(found.len(), expected, "{mesh}: {kind}");
        }
        let keys = names(&running, &format!("/meshes/{mesh}/secrets")).await;
        assert_eq!(keys, [format!("dataplane-token-signing-key-{mesh}-1")]);
    }
    running.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kumas_setting_of_reachable_services_enforces_by_default() {
    let directory = tempdir().unwrap();
    let mut config = config(directory.path(), StoreType::Memory);
    config.experimental.auto_reachable_services = true;
    let running = start(config).await;
    let backend = json!({ "name": "ca", "type": "builtin" });
    let mtls = json!({ "enabledBackend": "ca", "backends": [backend] });
    assert_eq!(put(&running, "/meshes/m", json!({ "type": "Mesh", "name": "m", "mtls": mtls })).await, 201);
    let inbound = json!({ "port": 8080, "tags": { "kuma.io/service": "web" } });
    let proxy = |name: &str, mode: Option<&str>| {
        let mut proxy = json!({ "type": "Dataplane", "mesh": "m", "name": name });
        proxy["networking"] = json!({ "address": "127.0.0.1", "inbound": [inbound] });
        if let Some(mode) = mode {
            proxy["labels"] = json!({ "reachability.kuma.io/mode": mode });
        }
        proxy
    };
    assert_eq!(put(&running, "/meshes/m/dataplanes/web", proxy("web", None)).await, 201);
    assert_eq!(put(&running, "/meshes/m/dataplanes/calm", proxy("calm", Some("report"))).await, 201);
    let mode = async |name: &str| {
        get(&running, &format!("/meshes/m/dataplanes/{name}/_reachability")).await["mode"].clone()
    };
    let web = mode("web").await;
    assert_eq!((&web["asked"], &web["saidBy"]), (&json!("enforce"), &json!("control plane")), "{web}");
    assert_eq!(web["active"], "off", "a mesh without permissions is left alone: {web}");
    assert_eq!(mode("calm").await["asked"], "report");
    let permission = json!({
        "type": "MeshTrafficPermission", "mesh": "m", "name": "all",
        "spec": { "from": [{ "targetRef": { "kind": "Mesh" }, "default": { "action": "Allow" } }] },
    });
    assert_eq!(put(&running, "/meshes/m/meshtrafficpermissions/all", permission).await, 201);
    assert_eq!(mode("web").await["active"], "enforce");
    running.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn creating_defaults_can_be_switched_off() {
    let directory = tempdir().unwrap();
    let mut config = config(directory.path(), StoreType::Memory);
    config.defaults.skip_mesh_creation = true;
    config.defaults.skip_hostname_generators = true;
    config.api_server.authn.tokens.bootstrap_admin_token = false;
    let running = start(config).await;
    assert!(names(&running, "/meshes").await.is_empty());
    assert!(names(&running, "/hostnamegenerators").await.is_empty());
    assert!(!names(&running, "/global-secrets").await.contains(&"admin-user-token".to_owned()));
    running.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_global_names_synchronised_services_and_a_zone_waits_for_its_mesh() {
    let directory = tempdir().unwrap();
    let mut global = config(directory.path(), StoreType::Memory);
    global.mode = Mode::Global;
    let running = start(global).await;
    let expect = [
        "synced-headless-kube-mesh-service",
        "synced-kube-mesh-service",
        "synced-mesh-external-service",
        "synced-mesh-multi-zone-service",
        "synced-universal-mesh-service",
    ];
    assert_eq!(names(&running, "/hostnamegenerators").await, expect);
    assert_eq!(names(&running, "/meshes").await, ["default"]);
    running.finish().await;

    let mut zone = config(directory.path(), StoreType::Memory);
    zone.synchronisation.multizone.zone.global_address = "grpcs://global:5685".to_owned();
    let running = start(zone).await;
    assert!(names(&running, "/meshes").await.is_empty());
    assert_eq!(
        names(&running, "/global-secrets").await,
        ["admin-user-token", "envoy-admin-ca", "user-token-signing-key-1"]
    );
    running.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn https_has_the_generated_certificate_and_a_restart_keeps_everything() {
    let directory = tempdir().unwrap();
    let settings = config(directory.path(), StoreType::Sqlite);
    let running = start(settings.clone()).await;
    let certificate = file(directory.path(), "kuma-cp.crt");
    let key = file(directory.path(), "kuma-cp.key");
    let mode = fs::metadata(directory.path().join("kuma-cp.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for host in ["localhost", "127.0.0.1"] {
        let url = format!("https://{host}:{}/", running.https.unwrap().port());
        let (status, body) = get_with(agent(Some(&certificate), None), url).await;
        assert_eq!(status, 200, "{body}");
    }
    assert_eq!(put(&running, "/meshes/demo", json!({ "type": "Mesh", "name": "demo" })).await, 201);
    let before =
        (get(&running, "/").await, get(&running, "/global-secrets").await, get(&running, "/meshes").await);
    running.finish().await;

    let running = start(settings).await;
    assert_eq!(file(directory.path(), "kuma-cp.crt"), certificate);
    assert_eq!(file(directory.path(), "kuma-cp.key"), key);
    let after =
        (get(&running, "/").await, get(&running, "/global-secrets").await, get(&running, "/meshes").await);
    assert_eq!(after.0["clusterId"], before.0["clusterId"]);
    assert_ne!(after.0["instanceId"], before.0["instanceId"]);
    assert_eq!((after.1, after.2), (before.1, before.2));
    running.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_default_mesh_stays_deleted_while_there_is_another() {
    let directory = tempdir().unwrap();
    let settings = config(directory.path(), StoreType::Sqlite);
    let running = start(settings.clone()).await;
    assert_eq!(put(&running, "/meshes/demo", json!({ "type": "Mesh", "name": "demo" })).await, 201);
    let url = format!("http://{}/meshes/default", running.http.unwrap());
    let deleted =
        tokio::task::spawn_blocking(move || agent(None, None).delete(&url).call().unwrap().status().as_u16());
    assert_eq!(deleted.await.unwrap(), 200);
    running.finish().await;
    let running = start(settings).await;
    assert_eq!(names(&running, "/meshes").await, ["demo"]);
    running.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn diagnostics_tell_health_readiness_and_metrics() {
    let directory = tempdir().unwrap();
    let running = start(config(directory.path(), StoreType::Memory)).await;
    get(&running, "/meshes").await;
    let diagnostics = running.diagnostics.unwrap();
    for (path, expect) in [
        ("/healthy", "healthy"),
        ("/ready", "ready"),
        ("/metrics", "api_server_http_request_duration_seconds"),
    ] {
        let (status, body) = get_with(agent(None, None), format!("http://{diagnostics}{path}")).await;
        assert_eq!(status, 200);
        assert!(body.contains(expect), "{path}: {body}");
    }
    running.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_is_shown_without_its_secrets() {
    let directory = tempdir().unwrap();
    let mut settings = config(directory.path(), StoreType::Memory);
    settings.store.postgres.password = control_plane::config::setting::Password("open sesame".to_owned());
    let running = start(settings).await;
    let shown = get(&running, "/config").await;
    assert_eq!(shown["store"]["postgres"]["password"], "*****");
    assert_eq!(shown["store"]["type"], "memory");
    assert!(!shown.to_string().contains("sesame"));
    running.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_from_the_directory_makes_an_administrator() {
    let directory = tempdir().unwrap();
    let clients = tempdir().unwrap();
    let friend = self_signed(Usage::Client, &["friend".to_owned()], &[], jiff::Timestamp::now()).unwrap();
    fs::write(clients.path().join("friend.pem"), &friend.certificate).unwrap();
    let mut settings = config(directory.path(), StoreType::Memory);
    settings.api_server.authn.kind = AuthnType::AdminClientCerts;
    settings.api_server.authn.localhost_is_admin = false;
    settings.api_server.auth.client_certs_dir = clients.path().to_str().unwrap().to_owned();
    let running = start(settings).await;
    let own = file(directory.path(), "kuma-cp.crt");
    let url = format!("https://localhost:{}/global-secrets", running.https.unwrap().port());
    let with = agent(Some(&own), Some((&friend.certificate, &friend.key)));
    assert_eq!(get_with(with, url.clone()).await.0, 200);
    assert_eq!(get_with(agent(Some(&own), None), url).await.0, 403);
    running.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prometheus_needs_tls_and_a_certificate_where_they_are_required() {
    let directory = tempdir().unwrap();
    let clients = tempdir().unwrap();
    let names = ["prometheus".to_owned()];
    let friend = self_signed(Usage::Client, &names, &[], jiff::Timestamp::now()).unwrap();
    fs::write(clients.path().join("prometheus.pem"), &friend.certificate).unwrap();
    let mut settings = config(directory.path(), StoreType::Memory);
    settings.monitoring.server.tls_enabled = true;
    settings.monitoring.server.client_certs_dir = clients.path().to_str().unwrap().to_owned();
    let running = start(settings).await;
    let own = file(directory.path(), "kuma-cp.crt");
    let port = running.monitoring.unwrap().port();
    let path = "v3/discovery:monitoringassignments?fetch-timeout=0s";
    let poll = async |scheme: &str, agent: ureq::Agent| {
        let url = format!("{scheme}://localhost:{port}/{path}");
        let call = move || agent.post(&url).send("{}").map(|answer| answer.status().as_u16());
        tokio::task::spawn_blocking(call).await.unwrap()
    };
    let known = agent(Some(&own), Some((&friend.certificate, &friend.key)));
    assert_eq!(poll("https", known).await.unwrap(), 200);
    assert_eq!(poll("https", agent(Some(&own), None)).await.unwrap(), 401);
    assert!(poll("http", agent(None, None)).await.is_err(), "there is TLS only");
    running.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_of_metrics_is_plain_by_default_and_can_be_switched_off() {
    let directory = tempdir().unwrap();
    let running = start(config(directory.path(), StoreType::Memory)).await;
    let url = format!("http://{}/v3/discovery:monitoringassignments", running.monitoring.unwrap());
    let call = move || agent(None, None).post(&url).send("{}").unwrap().body_mut().read_to_string().unwrap();
    let answer = tokio::task::spawn_blocking(call).await.unwrap();
    assert!(answer.contains("\"resources\":[]"), "{answer}");
    running.finish().await;
    let other = tempdir().unwrap();
    let mut settings = config(other.path(), StoreType::Memory);
    settings.monitoring.server.enabled = false;
    let running = start(settings).await;
    assert_eq!(running.monitoring, None);
    running.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_for_proxies_and_zones_listen_at_their_interface() {
    let directory = tempdir().unwrap();
    let mut zone = config(directory.path(), StoreType::Memory);
    zone.serving.dp_server.interface = "127.0.0.1".parse().unwrap();
    let mut global = config(directory.path(), StoreType::Memory);
    global.mode = Mode::Global;
    global.synchronisation.multizone.global.kds.interface = "127.0.0.1".parse().unwrap();
    global.synchronisation.multizone.global.kds.grpc_port = 0;
    for config in [zone, global] {
        let running = start(config).await;
        let addresses = [running.dp_server, running.kds];
        let addresses: Vec<String> =
            addresses.into_iter().flatten().map(|addr| addr.ip().to_string()).collect();
        assert_eq!(addresses, ["127.0.0.1"]);
        running.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_named_with_its_variable() {
    let directory = tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut settings = config(directory.path(), StoreType::Memory);
    settings.api_server.https.port = port;
    let error = refusal(settings).await;
    for part in ["KUMA_API_SERVER_HTTPS_PORT", &port.to_string(), "another process", "in use"] {
        assert_eq!(error.matches(part).count(), 1, "{part:?} is not once in: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_used_refuses_the_start_and_says_what_to_do() {
    let directory = tempdir().unwrap();
    let settings = config(directory.path(), StoreType::Sqlite);
    let running = start(settings.clone()).await;
    let error = refusal(settings.clone()).await;
    assert!(error.contains("kuma.db") && error.contains("another"), "{error}");
    running.finish().await;

    fs::write(directory.path().join("kuma.db"), "this is not a database, it only looks like a file").unwrap();
    let error = refusal(settings).await;
    assert!(error.contains("kuma.db") && error.contains("damaged"), "{error}");

    let blocked = directory.path().join("a-file");
    fs::write(&blocked, "").unwrap();
    for kind in [StoreType::Memory, StoreType::Sqlite] {
        let error = refusal(config(&blocked.join("below"), kind)).await;
        assert!(error.contains("a-file") && error.contains("KUMA_GENERAL_WORK_DIR"), "{error}");
        assert!(!error.contains("KUMA_STORE_SQLITE_PATH"), "that is not set: {error}");
    }
    let mut elsewhere = config(directory.path(), StoreType::Sqlite);
    elsewhere.store.sqlite.path = blocked.join("below/kuma.db").to_str().unwrap().to_owned();
    let error = refusal(elsewhere).await;
    assert!(error.contains("KUMA_STORE_SQLITE_PATH") && !error.contains("KUMA_GENERAL_WORK_DIR"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_certificate_refuses_the_start_and_says_what_to_do() {
    let directory = tempdir().unwrap();
    let settings = config(directory.path(), StoreType::Memory);
    start(settings.clone()).await.finish().await;
    fs::write(directory.path().join("kuma-cp.crt"), "scribble").unwrap();
    let error = refusal(settings).await;
    assert!(error.contains("kuma-cp.crt") && error.contains("remove both files"), "{error}");
}
