//! MeshIdentities are brought into effect, and say in their status how that went.

use std::{sync::Arc, time::Duration};

use identity::{DataplaneToken, ca::Files};
use jiff::Timestamp;
use plan::{AuthoritiesSecret, CertificateSecret, SecretNames};
use reconcilers::mesh_identities;
use resources::{
    Draft, Key, Kind, Resource, Status, finding::Code, kinds::dataplane_insight::DataplaneInsight,
};
use runtime::Shutdown;
use serde_json::{Value, json};
use serving::dp_server::{
    proxy::IdentifiedProxy,
    secrets::{IssueError, IssuedSecrets},
};
use tonic::Code as GrpcCode;
use xds::{Type, message::Node};

use crate::{
    impostors::bringing,
    proxies::ProxyServer,
    streams::{DeltaStream, Next},
    world::{eventually, registrar, resource, runner},
};

/// Reconciler of identities, ended when it is dropped.
struct Reconciler(Shutdown);

impl Drop for Reconciler {
    fn drop(&mut self) {
        self.0.begin();
    }
}

async fn server() -> (ProxyServer, Reconciler) {
    reconciled(false).await
}

async fn reconciled(tokens_required: bool) -> (ProxyServer, Reconciler) {
    let server = ProxyServer::new(tokens_required, Duration::from_secs(60)).await;
    let mesh = json!({ "meshServices": { "mode": "Exclusive" } });
    server.world.put([resource(Key::global(Kind::Mesh, "default"), &[], mesh)]).await;
    let shutdown = Shutdown::default();
    mesh_identities::start("default", Files::default(), &runner(&server.world.store, &shutdown));
    (server, Reconciler(shutdown))
}

fn bundled(extra: Value) -> Value {
    let mut bundled = json!({ "autogenerate": { "enabled": true }, "insecureAllowSelfSigned": true });
    for (field, value) in extra.as_object().unwrap() {
        bundled[field] = value.clone();
    }
    json!({ "type": "Bundled", "bundled": bundled })
}

async fn put(server: &ProxyServer, name: &str, spec: Value) {
    let identity = resource(Key::new(Kind::MeshIdentity, "default", name), &[], spec);
    let draft = Draft::new(identity.key.clone(), identity.spec);
    registrar(server.world.store.clone()).put(draft).await.unwrap();
}

fn stored(server: &ProxyServer, kind: Kind, name: &str) -> Option<Arc<Resource>> {
    server.world.store.snapshot().unwrap().get(&Key::new(kind, "default", name)).cloned()
}

/// `type=status/reason` of every condition.
fn conditions(server: &ProxyServer, name: &str) -> Vec<String> {
    match stored(server, Kind::MeshIdentity, name).and_then(|identity| identity.status.clone()) {
        Some(Status::MeshIdentity(status)) => {
            let shown =
                status.conditions.iter().map(|it| format!("{}={}/{}", it.type_, it.status, it.reason));
            shown.collect()
        }
        _ => Vec::new(),
    }
}

async fn become_so(server: &ProxyServer, name: &str, expected: &[&str]) {
    eventually(&format!("{name}: {expected:?}"), || conditions(server, name) == expected).await;
    server.world.push.caught_up().await;
}

const READY: [&str; 3] =
    ["Provider=True/ProviderInitialized", "MeshTrustCreated=True/MeshTrustCreated", "Ready=True/Ready"];

fn web(labels: &[(&str, &str)]) -> Resource {
    named("web", labels)
}

fn named(name: &str, labels: &[(&str, &str)]) -> Resource {
    let networking = json!({ "address": "127.0.2.1", "inbound": [{ "port": 80 }] });
    testkit::resource::dataplane(name, labels, networking)
}

const WORKLOAD: [(&str, &str); 1] = [("kuma.io/workload", "web")];

/// The KRI of an identity.
fn kri(server: &ProxyServer, name: &str) -> String {
    stored(server, Kind::MeshIdentity, name).unwrap().kri("").unwrap().to_string()
}

/// A certificate of an identity.
async fn issue(server: &ProxyServer, identity: &str) -> Result<IssuedSecrets, IssueError> {
    issue_for(server, "web", identity).await
}

async fn issue_for(server: &ProxyServer, proxy: &str, identity: &str) -> Result<IssuedSecrets, IssueError> {
    let proxy = IdentifiedProxy::identify(&format!("default.{proxy}"), json!({})).unwrap();
    let credentials = server.authenticated().await;
    let names = SecretNames {
        identity: CertificateSecret::OfIdentity(kri(server, identity).parse().unwrap()),
        authorities: AuthoritiesSecret::TrustBundle("system_trust_bundle".to_owned()),
    };
    server.context.issuer.issue(&server.context, &proxy, &credentials, &names).await
}

#[tokio::test]
async fn an_authority_is_made_trusted_and_signs_for_selected_proxies() {
    let (server, _reconciler) = server().await;
    server.world.put([web(&[("kuma.io/workload", "web")])]).await;
    put(&server, "all", json!({ "selector": { "dataplane": {} }, "provider": bundled(json!({})) })).await;
    become_so(&server, "all", &READY).await;
    for secret in ["all-root-ca", "all-private-key"] {
        let owner = stored(&server, Kind::Secret, secret).unwrap().owner.clone();
        assert_eq!(owner, Some(Key::new(Kind::MeshIdentity, "default", "all")), "{secret} goes with it");
    }
    let trust = stored(&server, Kind::MeshTrust, "all").unwrap();
    assert_eq!(trust.spec.to_json()["trustDomain"], "default.default.mesh.local");
    assert_eq!(trust.status.as_ref().unwrap().to_json(), json!({ "origin": { "kri": kri(&server, "all") } }));
    let issued = issue(&server, "all").await.unwrap();
    assert_eq!(issued.certificate.names, ["spiffe://default.default.mesh.local/workload/web"]);
    assert_eq!(issued.status().issued_backend, kri(&server, "all"));
    let again = issue(&server, "all").await.unwrap();
    assert_eq!(again.certificate, issued.certificate, "the same until it is time for another one");
}

#[tokio::test]
async fn the_most_labels_win_and_readiness_does_not_matter_to_the_choice() {
    let (server, _reconciler) = server().await;
    server.world.put([web(&[("kuma.io/workload", "web"), ("app", "web")])]).await;
    put(&server, "all", json!({ "selector": { "dataplane": {} }, "provider": bundled(json!({})) })).await;
    become_so(&server, "all", &READY).await;
    let own = json!({ "dataplane": { "matchLabels": { "app": "web" } } });
    let spire = json!({ "type": "Spire", "spire": {} });
    put(&server, "own", json!({ "selector": own, "provider": spire })).await;
    become_so(&server, "own", &["Provider=False/ProviderNotFoundError", "Ready=False/Failure"]).await;
    assert!(issue(&server, "all").await.is_err(), "another one is its own");
    put(&server, "own", json!({ "selector": own, "provider": bundled(json!({})) })).await;
    become_so(&server, "own", &READY).await;
    assert!(issue(&server, "own").await.is_ok());
}

#[tokio::test]
async fn a_status_says_what_is_wrong() {
    let (server, _reconciler) = server().await;
    let selfish = bundled(json!({ "insecureAllowSelfSigned": false }));
    put(&server, "self-signed", json!({ "provider": selfish })).await;
    become_so(&server, "self-signed", &["Provider=False/ProviderValidationError", "Ready=False/Failure"])
        .await;
    assert!(stored(&server, Kind::Secret, "self-signed-private-key").is_none(), "nothing is made in vain");
    put(&server, "ids", json!({ "selector": { "dataplane": {} } })).await;
    become_so(&server, "ids", &["SpiffeIDProvider=True/SpiffeIDProvided", "Ready=False/PartiallyReady"])
        .await;
    let bad =
        json!({ "spiffeID": { "trustDomain": "{{ label \"team\" }}" }, "provider": bundled(json!({})) });
    put(&server, "bad", bad).await;
    become_so(&server, "bad", &["Provider=False/ProviderInitializationError", "Ready=False/Failure"]).await;
    let secret = json!({ "type": "Secret", "secretRef": { "kind": "Secret", "name": "nowhere" } });
    let given = json!({ "ca": { "certificate": secret, "privateKey": secret } });
    let mut provider = bundled(given);
    provider["bundled"].as_object_mut().unwrap().remove("autogenerate");
    put(&server, "given", json!({ "provider": provider })).await;
    become_so(&server, "given", &["Provider=False/ProviderValidationError", "Ready=False/Failure"]).await;

    let mesh = json!({ "meshServices": { "mode": "Everywhere" } });
    server.world.put([resource(Key::global(Kind::Mesh, "default"), &[], mesh)]).await;
    become_so(&server, "ids", &["DependenciesReady=False/MeshServicesDisabled", "Ready=False/Failure"]).await;
}

#[tokio::test]
async fn another_authority_is_added_to_what_is_believed_already() {
    let (server, _reconciler) = server().await;
    put(&server, "all", json!({ "selector": { "dataplane": {} }, "provider": bundled(json!({})) })).await;
    become_so(&server, "all", &READY).await;
    let store = registrar(server.world.store.clone());
    for secret in ["all-root-ca", "all-private-key"] {
        store.delete(&Key::new(Kind::Secret, "default", secret)).await.unwrap();
    }
    let bundles = || {
        let trust = stored(&server, Kind::MeshTrust, "all").unwrap().spec.to_json();
        trust["caBundles"].as_array().unwrap().len()
    };
    eventually("both are authenticated", || bundles() == 2).await;
}

#[tokio::test]
async fn rsa_keys_of_proxies_are_made_elsewhere_and_only_for_new_certificates() {
    let (server, _reconciler) = server().await;
    server.world.put([web(&WORKLOAD), named("api", &[("kuma.io/workload", "api")])]).await;
    put(&server, "all", json!({ "selector": { "dataplane": {} }, "provider": bundled(json!({})) })).await;
    become_so(&server, "all", &READY).await;
    // From then on the authorities of the mesh are known.
    issue_for(&server, "api", "all").await.unwrap();
    let looked_at_once = async |proxy: &str| {
        tokio::select! {
            biased;
            issued = issue_for(&server, proxy, "all") => Some(issued.unwrap()),
            () = std::future::ready(()) => None,
        }
    };
    assert!(looked_at_once("web").await.is_none(), "a key that is made on this thread would be there");
    issue(&server, "all").await.unwrap();
    assert!(looked_at_once("web").await.is_some(), "the present certificate is good");
}

/// Begin and end of the certificate of `web`, as its insight says.
fn certified(server: &ProxyServer) -> Option<(Timestamp, Timestamp)> {
    let insight = stored(server, Kind::DataplaneInsight, "web")?;
    let certificate = insight.spec.get::<DataplaneInsight>()?.mtls.clone()?;
    Some((certificate.last_certificate_regeneration?, certificate.certificate_expiration_time?))
}

#[tokio::test]
async fn a_connected_proxy_is_sent_another_certificate_before_its_own_ends() {
    let (server, _reconciler) = server().await;
    server.world.put([web(&WORKLOAD)]).await;
    let short = bundled(json!({ "certificateParameters": { "expiry": "4s" } }));
    put(&server, "all", json!({ "selector": { "dataplane": {} }, "provider": short })).await;
    become_so(&server, "all", &READY).await;
    let mut stream =
        DeltaStream::of(&server, Node { id: "default.web".to_owned(), ..Node::default() }, None).await;
    stream.ask(Type::Cluster, &[]).await;
    assert_eq!(stream.response().await.0, Type::Cluster);
    let secret = kri(&server, "all");
    stream.ask(Type::Secret, &[&secret]).await;
    assert_eq!(stream.response().await, (Type::Secret, vec![secret.clone()]));
    eventually("it is on record", || certified(&server).is_some()).await;
    // A machine that stands still for seconds may be late once.
    for _ in 0..4 {
        let (_, end) = certified(&server).unwrap();
        assert_eq!(stream.response().await, (Type::Secret, vec![secret.clone()]));
        eventually("the next one is on record", || certified(&server).unwrap().1 > end).await;
        if certified(&server).unwrap().0 < end {
            return;
        }
    }
    panic!("always after the end");
}

/// First response to a proxy that brings its Dataplane along: its type, or the reason why it may not connect.
async fn connects(
    server: &ProxyServer,
    dataplane: &Resource,
    token: Option<&str>,
) -> Result<Type, (GrpcCode, String)> {
    let mut stream = DeltaStream::of(server, bringing(dataplane), token).await;
    stream.ask(Type::Cluster, &[]).await;
    match stream.next().await {
        Next::Response(response) => Ok(Type::by_url(&response.type_url).unwrap()),
        Next::End(code, text) => Err((GrpcCode::from(code.parse::<i32>().unwrap()), text)),
    }
}

#[tokio::test]
async fn a_proxy_without_the_workload_that_its_identity_names_may_not_connect() {
    let (server, _reconciler) = server().await;
    assert_eq!(connects(&server, &named("early", &[]), None).await, Ok(Type::Cluster), "nothing names it");
    let own = json!({ "dataplane": { "matchLabels": { "app": "web" } } });
    put(&server, "own", json!({ "selector": own, "provider": bundled(json!({})) })).await;
    become_so(&server, "own", &READY).await;
    let (code, text) = connects(&server, &web(&[("app", "web")]), None).await.unwrap_err();
    let expected = "missing required label 'kuma.io/workload' - dataplane is selected by MeshIdentity 'own' with \
                    path template '/workload/{{ .Workload }}'";
    assert_eq!((code, text.as_str()), (GrpcCode::FailedPrecondition, expected));
    let labelled = named("other", &[("app", "web"), ("kuma.io/workload", "web")]);
    assert_eq!(connects(&server, &labelled, None).await, Ok(Type::Cluster));
    assert_eq!(connects(&server, &named("unselected", &[]), None).await, Ok(Type::Cluster));
}

#[tokio::test]
async fn a_token_without_a_workload_is_refused_where_that_names_the_proxy() {
    let (server, _reconciler) = reconciled(true).await;
    let token = async |workload: &str| {
        let mesh = "default".to_owned();
        let claims = DataplaneToken { mesh, workload: workload.to_owned(), ..DataplaneToken::default() };
        server.token_for("default", &claims, Duration::from_secs(60)).await
    };
    let open = token("").await;
    let bound = token("web").await;
    assert_eq!(connects(&server, &named("early", &WORKLOAD), Some(&open)).await, Ok(Type::Cluster));
    let provider = bundled(json!({}));
    put(&server, "all", json!({ "selector": { "dataplane": {} }, "provider": provider })).await;
    become_so(&server, "all", &READY).await;
    let (code, text) = connects(&server, &web(&WORKLOAD), Some(&open)).await.unwrap_err();
    assert_eq!(code, GrpcCode::PermissionDenied, "{text}");
    assert!(text.contains("MeshIdentity \"all\"") && text.contains("--workload web"), "{text}");
    assert_eq!(connects(&server, &web(&WORKLOAD), Some(&bound)).await, Ok(Type::Cluster));
    // Whatever its workload, this one has the same name.
    let path = json!({ "path": "/all" });
    put(&server, "all", json!({ "selector": { "dataplane": {} }, "spiffeID": path, "provider": provider }))
        .await;
    server.world.push.caught_up().await;
    assert_eq!(connects(&server, &web(&WORKLOAD), Some(&open)).await, Ok(Type::Cluster));
}

/// A token for a proxy with this name that binds these labels.
async fn bound_to(server: &ProxyServer, name: &str, labels: &[(&str, &str)]) -> String {
    let labels =
        labels.iter().map(|(label, value)| ((*label).to_owned(), vec![(*value).to_owned()])).collect();
    let claims = DataplaneToken {
        mesh: "default".to_owned(),
        name: name.to_owned(),
        labels,
        ..DataplaneToken::default()
    };
    server.token_for("default", &claims, Duration::from_secs(60)).await
}

/// Findings about tokens that do not vouch for the identities of proxies.
fn not_vouched(server: &ProxyServer) -> Vec<String> {
    let mesh = server.world.push.mesh("default").unwrap();
    let refused = server.world.push.refusals().findings(&mesh).into_iter();
    let connected = server.world.push.findings("default").into_iter();
    let all = refused.chain(connected).filter(|finding| finding.code == Code::IdentityNotVouched);
    all.map(|finding| format!("{} {finding}", finding.about.as_ref().unwrap())).collect()
}

#[tokio::test]
async fn a_proxy_is_not_the_workload_of_a_label_that_its_token_does_not_bind() {
    let (server, _reconciler) = reconciled(true).await;
    let by_label = json!({ "path": "/app/{{ label \"app\" }}" });
    let everyone = json!({ "dataplane": {} });
    let provider = bundled(json!({}));
    put(&server, "all", json!({ "selector": everyone, "spiffeID": by_label, "provider": provider })).await;
    become_so(&server, "all", &READY).await;
    let payments = web(&[("app", "payments")]);
    let open = bound_to(&server, "web", &[]).await;
    let (code, text) = connects(&server, &payments, Some(&open)).await.unwrap_err();
    assert_eq!(code, GrpcCode::PermissionDenied, "{text}");
    let advice = "'kumactl generate dataplane-token --mesh default --name web --label app=payments'";
    assert!(text.contains("MeshIdentity \"all\"") && text.contains(advice), "{text}");
    let [found] = &not_vouched(&server)[..] else { panic!("{:?}", not_vouched(&server)) };
    assert!(
        found.starts_with("kri_mid_default_default__all_ ") && found.contains("a proxy is refused, web: "),
        "{found}"
    );
    assert!(found.contains("dataplane-token --label app=VALUE"), "{found}");

    let other = bound_to(&server, "web", &[("app", "web")]).await;
    let (code, text) = connects(&server, &payments, Some(&other)).await.unwrap_err();
    assert_eq!(code, GrpcCode::PermissionDenied, "{text}");
    assert!(text.contains("it is for label \"app\" of [\"web\"], the Dataplane has \"payments\""), "{text}");
    let bound = bound_to(&server, "web", &[("app", "payments")]).await;
    let (_, text) = connects(&server, &web(&[]), Some(&bound)).await.unwrap_err();
    assert!(text.contains("it is for label \"app\", which the Dataplane does not have"), "{text}");
    assert_eq!(connects(&server, &payments, Some(&bound)).await, Ok(Type::Cluster));
    assert!(not_vouched(&server).is_empty(), "{:?}", not_vouched(&server));
}

#[tokio::test]
async fn a_proxy_does_not_choose_its_identity_by_a_selecting_label() {
    let (server, _reconciler) = reconciled(true).await;
    let chosen = json!({ "dataplane": { "matchLabels": { "app": "payments" } } });
    let id = json!({ "path": "/payments" });
    put(&server, "payments", json!({ "selector": chosen, "spiffeID": id, "provider": bundled(json!({})) }))
        .await;
    become_so(&server, "payments", &READY).await;
    let payments = web(&[("app", "payments")]);
    let open = bound_to(&server, "web", &[]).await;
    let (code, text) = connects(&server, &payments, Some(&open)).await.unwrap_err();
    assert_eq!(code, GrpcCode::PermissionDenied, "{text}");
    let bound = bound_to(&server, "web", &[("app", "payments")]).await;
    assert_eq!(connects(&server, &payments, Some(&bound)).await, Ok(Type::Cluster));

    // Nor does one that is connected, when its label becomes that one.
    server.world.put([web(&[("app", "web")])]).await;
    let mut stream = connected(&server, &open).await;
    server.world.put([payments]).await;
    let Next::End(code, text) = stream.next().await else { panic!("it was sent something") };
    assert_eq!(code, (GrpcCode::PermissionDenied as i32).to_string(), "{text}");
    assert!(text.contains("does not vouch for who the proxy is"), "{text}");
}

/// A stream of `web`, which is stored already, that has its clusters.
async fn connected(server: &ProxyServer, token: &str) -> DeltaStream {
    let node = Node { id: "default.web".to_owned(), ..Node::default() };
    let mut stream = DeltaStream::of(server, node, Some(token)).await;
    stream.ask(Type::Cluster, &[]).await;
    assert_eq!(stream.response().await.0, Type::Cluster);
    stream
}

#[tokio::test]
async fn a_connected_proxy_whose_label_changes_does_not_become_that_workload() {
    let (server, _reconciler) = reconciled(true).await;
    server.world.put([web(&[("app", "web")])]).await;
    let by_label = json!({ "path": "/app/{{ label \"app\" }}" });
    let spec =
        json!({ "selector": { "dataplane": {} }, "spiffeID": by_label, "provider": bundled(json!({})) });
    put(&server, "all", spec).await;
    become_so(&server, "all", &READY).await;
    // Bound to several values it may change among these.
    let labels = [("app".to_owned(), vec!["web".to_owned(), "shop".to_owned()])].into();
    let claims = DataplaneToken { mesh: "default".to_owned(), labels, ..DataplaneToken::default() };
    let token = server.token_for("default", &claims, Duration::from_secs(60)).await;
    let mut stream = connected(&server, &token).await;
    let secret = kri(&server, "all");
    stream.ask(Type::Secret, &[&secret]).await;
    assert_eq!(stream.response().await, (Type::Secret, vec![secret.clone()]));
    server.world.put([web(&[("app", "shop")])]).await;
    assert_eq!(stream.response().await, (Type::Secret, vec![secret]));
    let signed = server.context.issuer.signed();
    server.world.put([web(&[("app", "payments")])]).await;
    let Next::End(code, text) = stream.next().await else { panic!("it was sent something") };
    assert_eq!(code, (GrpcCode::PermissionDenied as i32).to_string(), "{text}");
    assert_eq!(server.context.issuer.signed(), signed);
}

#[tokio::test]
async fn a_later_identity_is_not_given_to_proxies_whose_tokens_do_not_vouch() {
    let (server, _reconciler) = reconciled(true).await;
    server.world.put([web(&[("app", "payments")])]).await;
    let token = bound_to(&server, "web", &[]).await;
    let mut stream = connected(&server, &token).await;
    let by_label = json!({ "path": "/app/{{ label \"app\" }}" });
    let spec =
        json!({ "selector": { "dataplane": {} }, "spiffeID": by_label, "provider": bundled(json!({})) });
    put(&server, "all", spec).await;
    become_so(&server, "all", &READY).await;
    eventually("it is found", || !not_vouched(&server).is_empty()).await;
    let found = not_vouched(&server).remove(0);
    assert!(found.contains("connected proxies are not given the identity"), "{found}");
    assert_eq!(server.context.issuer.signed(), 0, "no certificate");
    // It is connected all the same.
    stream.ask(Type::Listener, &[]).await;
    assert_eq!(stream.response().await.0, Type::Listener);
}

#[tokio::test]
async fn without_tokens_an_identity_is_given_as_labels_say() {
    let (server, _reconciler) = reconciled(false).await;
    let by_label = json!({ "path": "/app/{{ label \"app\" }}" });
    let spec =
        json!({ "selector": { "dataplane": {} }, "spiffeID": by_label, "provider": bundled(json!({})) });
    put(&server, "all", spec).await;
    become_so(&server, "all", &READY).await;
    assert_eq!(connects(&server, &web(&[("app", "payments")]), None).await, Ok(Type::Cluster));
}

#[tokio::test]
async fn a_zone_brings_an_identity_of_global_into_effect_for_itself() {
    let (server, _reconciler) = server().await;
    server.world.put([web(&WORKLOAD)]).await;
    let spec = json!({ "selector": { "dataplane": {} }, "provider": bundled(json!({})) });
    let labels = [("kuma.io/origin", "global"), ("kuma.io/display-name", "all"), ("team", "ops")];
    let key = Key::new(Kind::MeshIdentity, "default", "all-x8fzv");
    server.world.put([resource(key.clone(), &labels, spec)]).await;
    become_so(&server, "all-x8fzv", &READY).await;
    let trust = stored(&server, Kind::MeshTrust, "all-x8fzv").unwrap();
    let own = [
        ("kuma.io/env", "universal"),
        ("kuma.io/mesh", "default"),
        ("kuma.io/origin", "zone"),
        ("kuma.io/zone", "default"),
    ];
    let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(trust.labels, own.into(), "the zone's, so that it goes to global");
    assert_eq!(trust.spec.to_json()["trustDomain"], "default.default.mesh.local");
    let secret = stored(&server, Kind::Secret, "all-x8fzv-private-key").unwrap();
    assert_eq!(secret.owner, Some(key));
    let issued = issue(&server, "all-x8fzv").await.unwrap();
    assert_eq!(issued.certificate.names, ["spiffe://default.default.mesh.local/workload/web"]);
}

#[tokio::test]
async fn a_trust_of_global_is_not_changed_by_a_zone() {
    let (server, _reconciler) = server().await;
    let global = [("kuma.io/origin", "global")];
    let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let bundle = json!({ "type": "Pem", "pem": { "value": pem } });
    let trust = json!({ "trustDomain": "shop.example", "caBundles": [bundle] });
    server.world.put([resource(Key::new(Kind::MeshTrust, "default", "all"), &global, trust.clone())]).await;
    let spec = json!({ "selector": { "dataplane": {} }, "provider": bundled(json!({})) });
    server.world.put([resource(Key::new(Kind::MeshIdentity, "default", "all"), &global, spec)]).await;
    let failed = [
        "Provider=True/ProviderInitialized",
        "MeshTrustCreated=False/MeshTrustCreationError",
        "Ready=False/Failure",
    ];
    become_so(&server, "all", &failed).await;
    assert_eq!(stored(&server, Kind::MeshTrust, "all").unwrap().spec.to_json(), trust);
}
