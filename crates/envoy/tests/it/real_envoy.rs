//! A real Envoy accepts what it is sent.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use envoy::Encoder;
use envoy_types::pb::{
    envoy::{
        config::{
            bootstrap::v3 as bootstrap, cluster::v3::Cluster, core::v3 as core,
            endpoint::v3::ClusterLoadAssignment, listener::v3::Listener,
        },
        extensions::transport_sockets::tls::v3::Secret,
    },
    google::protobuf,
};
use plan::{AdminTls, ProxyPlan};
use policy::{ClientMatch, Effect, Permissions, Rule};
use prost::Message;
use rcgen::{CertificateParams, KeyPair};
use xds::{Target, Type};

use crate::support::{BACKEND, PLAIN, SECURED, plan, traits, unified, web};

/// `ENVOY_BIN`, or `envoy` on `PATH`, or the one `cargo xtask` keeps.
pub fn envoy_binary() -> PathBuf {
    if let Some(chosen) = std::env::var_os("ENVOY_BIN").filter(|path| !path.is_empty()) {
        return chosen.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/envoy-1.40.0/envoy");
    let candidates = std::env::split_paths(&path).map(|dir| dir.join("envoy")).chain([kept]);
    candidates
        .into_iter()
        .find(|candidate| candidate.is_file())
        .expect("there is no Envoy: set ENVOY_BIN, or run `cargo xtask test`, which installs one")
}

fn decoded<M: Message + Default>(target: &Target, kind: Type) -> Vec<M> {
    target.of(kind).values().map(|encoded| M::decode(&*encoded.body()).unwrap()).collect()
}

/// Everything the proxy gets, as a configuration that needs no control plane. Resources that it discovers
/// later (endpoints, secrets) are in it as well, so that Envoy reads these too.
fn static_bootstrap(target: &Target) -> bootstrap::Bootstrap {
    let mut clusters: Vec<Cluster> = decoded(target, Type::Cluster);
    let assignments: Vec<ClusterLoadAssignment> = decoded(target, Type::Endpoint);
    for assignment in assignments {
        let cluster = clusters.iter_mut().find(|cluster| cluster.name == assignment.cluster_name).unwrap();
        let mut with_endpoints = cluster.clone();
        with_endpoints.name = format!("{}-static", cluster.name);
        with_endpoints.eds_cluster_config = None;
        with_endpoints.cluster_discovery_type = None;
        // Envoy reads these before it has a stream that secrets could come from.
        with_endpoints.transport_socket = None;
        with_endpoints.load_assignment =
            Some(ClusterLoadAssignment { cluster_name: with_endpoints.name.clone(), ..assignment });
        clusters.push(with_endpoints);
    }
    let ads = Cluster { name: "ads".to_owned(), ..Default::default() };
    clusters.push(ads);
    let grpc = core::GrpcService {
        target_specifier: Some(core::grpc_service::TargetSpecifier::EnvoyGrpc(
            core::grpc_service::EnvoyGrpc { cluster_name: "ads".to_owned(), ..Default::default() },
        )),
        ..Default::default()
    };
    bootstrap::Bootstrap {
        node: Some(core::Node {
            id: "default.web".to_owned(),
            cluster: "web".to_owned(),
            ..Default::default()
        }),
        static_resources: Some(bootstrap::bootstrap::StaticResources {
            listeners: decoded::<Listener>(target, Type::Listener),
            clusters,
            secrets: decoded::<Secret>(target, Type::Secret),
        }),
        dynamic_resources: Some(bootstrap::bootstrap::DynamicResources {
            ads_config: Some(core::ApiConfigSource {
                api_type: core::api_config_source::ApiType::DeltaGrpc.into(),
                transport_api_version: core::ApiVersion::V3.into(),
                grpc_services: vec![grpc],
                ..Default::default()
            }),
            ..Default::default()
        }),
        layered_runtime: Some(runtime()),
        ..Default::default()
    }
}

/// As in the bootstrap of every proxy: expressions may be larger than Envoy lets them be by itself.
fn runtime() -> bootstrap::LayeredRuntime {
    let size = protobuf::Value { kind: Some(protobuf::value::Kind::NumberValue(f64::from(u32::MAX))) };
    let fields = [("re2.max_program_size.error_level".to_owned(), size)].into();
    let layer = bootstrap::runtime_layer::LayerSpecifier::StaticLayer(protobuf::Struct { fields });
    let layer = bootstrap::RuntimeLayer { name: "sizes".to_owned(), layer_specifier: Some(layer) };
    bootstrap::LayeredRuntime { layers: vec![layer] }
}

/// Asserts that Envoy accepts everything a proxy is sent.
#[track_caller]
pub fn check(plan: &ProxyPlan) {
    let said = judged(plan).unwrap_or_else(|refusal| panic!("{refusal}"));
    assert!(!said.to_lowercase().contains("deprecated"), "{said}");
}

/// Returns Envoy's output about all resources of a proxy; the error is the reason of a refusal.
pub fn judged(plan: &ProxyPlan) -> Result<String, String> {
    let encoder = Encoder::default();
    let mut target = encoder.lower(plan);
    let (certificate, key) = certificate();
    if let Some(names) = plan.own.security.as_ref().map(|security| &security.secrets) {
        target.insert(Type::Secret, encoder.secret(&names.identity.name(), &certificate, &key));
        target.insert(Type::Secret, encoder.authorities(names.authorities.name(), &certificate));
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bootstrap.pb");
    std::fs::write(&file, static_bootstrap(&target).encode_to_vec()).unwrap();
    let mut command = Command::new(envoy_binary());
    command.args(["--mode", "validate", "--log-level", "warning", "-c"]).arg(&file);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(said) } else { Err(said) }
}

/// A certificate that vouches for itself, and its key.
pub fn certificate() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["web".to_owned()]).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

const INBOUNDS: &str = "inbound:\n\
    - { name: http, port: 8081, serviceAddress: 127.0.0.1, tags: { kuma.io/service: web, kuma.io/protocol: http } }\n\
    - { name: http2, port: 8082, serviceAddress: 127.0.0.1, tags: { kuma.io/service: web, kuma.io/protocol: http2 } }\n\
    - { name: backend-kumahq.com, port: 8083, serviceAddress: 127.0.0.1, tags: { kuma.io/service: web, kuma.io/protocol: grpc } }\n\
    - { port: 8084, servicePort: 18084, tags: { kuma.io/service: web, kuma.io/protocol: tcp } }\n\
    - { name: a, port: 8085, address: '::1', serviceAddress: '::1', tags: { kuma.io/service: web, kuma.io/protocol: kafka } }\n";

const OUTBOUNDS: &str = "outbound:\n\
    - { port: 10001, backendRef: { kind: MeshService, name: backend, port: 80 } }\n\
    - { port: 10002, backendRef: { kind: MeshService, name: backend, port: 80 } }\n\
    - { port: 10003, backendRef: { kind: MeshService, name: backend, port: 9000 } }\n\
    - { port: 10004, tags: { kuma.io/service: backend, version: v1 } }\n\
    - { port: 10005, backendRef: { kind: MeshExternalService, name: shop } }\n\
    - { port: 10006, backendRef: { kind: MeshExternalService, name: bank } }\n";

const OUTSIDE: &str = r#"
type: MeshExternalService
mesh: default
name: shop
spec:
  match: { type: HostnameGenerator, port: 443, protocol: http }
  endpoints: [{ address: localhost, port: 8443 }, { address: 127.0.0.7, port: 8443, priority: 9 }]
  tls:
    enabled: true
    version: { min: TLS12 }
    verification: { mode: SkipAll }
---
type: MeshExternalService
mesh: default
name: bank
spec:
  match: { type: HostnameGenerator, port: 80, protocol: tcp }
  endpoints: [{ address: 127.0.0.8, port: 80 }]
"#;

fn every_kind_of_rule() -> Permissions {
    let identity = || ClientMatch::SpiffeExact("spiffe://default/a".parse().unwrap());
    let clients = [
        ClientMatch::Tags([("kuma.io/service".to_owned(), "*".to_owned())].into()),
        ClientMatch::Tags([("a".to_owned(), "b".to_owned()), ("c".to_owned(), "*".to_owned())].into()),
        identity(),
        ClientMatch::SpiffePrefix("spiffe://default/".parse().unwrap()),
        ClientMatch::Sni { sni: "a.example.com".to_owned(), spiffe: None },
        ClientMatch::Sni { sni: "a.example.com".to_owned(), spiffe: Some(Box::new(identity())) },
        ClientMatch::Anyone,
    ];
    let effects = [Effect::Allow, Effect::Deny, Effect::AllowWithShadowDeny];
    let rules = clients.into_iter().zip(effects.into_iter().cycle()).zip(0..).map(|((client, effect), i)| {
        let origin: resources::naming::Kri = "kri_mtp_default___rules_".parse().unwrap();
        Rule { client, effect, origin: origin.with_section(&format!("rule_{i}")) }
    });
    Permissions { rules: rules.collect() }
}

#[test]
fn envoy_accepts_what_is_generated_for_every_kind_of_mesh() {
    let permissive = SECURED.replace("type: builtin", "type: builtin, mode: PERMISSIVE");
    let closed = format!("{PLAIN}networking: {{ outbound: {{ passthrough: false }} }}\n");
    for mesh in [PLAIN, SECURED, &permissive, &closed] {
        for traits in [traits("web"), unified("web")] {
            for redirected in ["", "transparentProxying: {}\n"] {
                let web = web(&format!("{INBOUNDS}{OUTBOUNDS}{redirected}"));
                let mut plan = plan(&[mesh, BACKEND, OUTSIDE, &web], &traits);
                assert_eq!(plan.findings(), []);
                let (certificate, key) = certificate();
                let authority = certificate.clone();
                plan.own.admin.as_mut().unwrap().tls =
                    Some(Arc::new(AdminTls { certificate, key, authority: authority.into() }));
                for inbound in &mut plan.own.inbounds {
                    inbound.permissions = inbound.permissions.as_ref().map(|_| every_kind_of_rule());
                }
                check(&plan);
            }
        }
    }
}

#[test]
fn envoy_accepts_a_proxy_that_nobody_may_call_and_that_calls_nobody() {
    check(&plan(&[SECURED, &web("inbound: [{ port: 80 }]")], &unified("web")));
    check(&plan(&[SECURED, &web("gateway: { tags: { kuma.io/service: edge } }")], &traits("web")));
}
