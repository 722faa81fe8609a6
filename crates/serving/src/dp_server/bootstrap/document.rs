//! The bootstrap of one proxy: the settings of the control plane, the agent's request and the Dataplane together.

use contract::agent::{BootstrapRequest, ProgramVersions};
use envoy::bootstrap::{
    Admin, AdminAddress, Bootstrap, ClusterNames, ControlPlaneAddress, Gateway, Labels, Token, Variant,
};
use plan::{Counting, ProxyKind, ZoneProxyKind};
use resources::{
    Draft,
    kinds::dataplane::{Dataplane, GatewayType},
    labels,
    naming::{NamingChoice, socket},
};
use serde_json::{Map, Value, json};

use super::{COUNTED, DRAIN_TIME, Params};
use crate::{dp_server::features, push::ProxyAddress};

const ADMIN_SOCKET: &str = "kuma-envoy-admin";
const NULL_DEVICE: &str = "/dev/null";

pub fn bootstrap(
    params: &Params,
    request: &BootstrapRequest,
    (dataplane, kind): (&Draft, ProxyKind),
    control_plane: ControlPlaneAddress,
    (naming, counted): (NamingChoice, Option<&Counting>),
) -> Bootstrap {
    let has = |wanted: &str| request.features.iter().any(|feature| feature == wanted);
    let admin = AdminInterface::of(params, request, dataplane);
    let mut metadata = metadata(params, request, kind, admin.as_ref());
    if let Some(counted) = counted {
        metadata.insert(COUNTED.to_owned(), counted.to_string().into());
    }
    Bootstrap {
        node_id: format!("{}.{}", request.mesh, request.name),
        node_cluster: match kind {
            ProxyKind::Sidecar => service_of(dataplane),
            ProxyKind::Zone(_) => word(kind).to_owned(),
        },
        metadata,
        control_plane,
        variant: if has(features::DELTA) { Variant::Delta } else { Variant::StateOfTheWorld },
        token: token(params, request),
        admin: admin.map(|admin| admin.configured(params, request)),
        access_log_socket: socket::access_log(&request.workdir, &request.name, &request.mesh),
        names: if naming.unified { ClusterNames::UNIFIED } else { ClusterNames::LEGACY },
        health_discovery: params.health_discovery && !kind.is_of_zone(),
        counted: counted.cloned(),
        // An agent that does not say so shows what Envoy says.
        labels: if has(features::STATS_LABELS) { Labels::InAgent } else { Labels::InEnvoy },
        gateway: is_builtin_gateway(dataplane).then_some(Gateway {
            max_connections: params.gateway_connections,
            max_heap_bytes: request.resources.max_heap_size_bytes,
        }),
    }
}

pub fn control_plane(params: &Params, host: String, ca_pem: String, ipv4_only: bool) -> ControlPlaneAddress {
    ControlPlaneAddress {
        host,
        port: params.xds_port,
        ca_pem,
        connect_timeout: params.connect_timeout,
        ipv4_only,
        max_message_bytes: params.max_message_bytes,
    }
}

fn token(params: &Params, request: &BootstrapRequest) -> Token {
    if params.reloadable_tokens && !request.dataplane_token_path.is_empty() {
        Token::File(request.dataplane_token_path.clone())
    } else if request.dataplane_token.is_empty() {
        Token::None
    } else {
        Token::Inline(request.dataplane_token.clone())
    }
}

/// Address of Envoy's admin interface.
struct AdminInterface<'a> {
    address: &'a str,
    port: u16,
    socket: Option<String>,
}

impl<'a> AdminInterface<'a> {
    /// `None` when its port is 0, of the Dataplane and of the settings.
    fn of(params: &'a Params, request: &BootstrapRequest, dataplane: &Draft) -> Option<AdminInterface<'a>> {
        let own = ProxyAddress::of(&dataplane.spec).and_then(|place| place.admin_port);
        let port = own.or_else(|| admin_port(dataplane)).unwrap_or(params.admin_port);
        let socket = params.admin_socket && !request.workdir.is_empty();
        (port != 0).then(|| AdminInterface {
            address: &params.admin_address,
            port,
            socket: socket.then(|| socket_path(request)),
        })
    }

    fn configured(self, params: &Params, request: &BootstrapRequest) -> Admin {
        let log = params.admin_access_log_path.as_str();
        let on_windows = request.operating_system == "windows";
        Admin {
            access_log_path: if on_windows && log == NULL_DEVICE { "NUL" } else { log }.to_owned(),
            address: match self.socket {
                Some(path) => AdminAddress::Socket(path),
                None => AdminAddress::Port(self.address.to_owned(), self.port),
            },
        }
    }
}

/// Of a Dataplane whose address is a name.
fn admin_port(dataplane: &Draft) -> Option<u16> {
    let networking = dataplane.spec.get::<Dataplane>()?.networking.as_ref()?;
    u16::try_from(networking.admin.as_ref()?.port).ok().filter(|port| *port != 0)
}

/// Name of a type of proxy in metadata.
fn word(kind: ProxyKind) -> &'static str {
    match kind {
        ProxyKind::Sidecar => "dataplane",
        ProxyKind::Zone(ZoneProxyKind::Ingress) => "ingress",
        ProxyKind::Zone(ZoneProxyKind::Egress) => "egress",
    }
}

fn socket_path(request: &BootstrapRequest) -> String {
    socket::path(&request.workdir, ADMIN_SOCKET)
}

fn metadata(
    params: &Params,
    request: &BootstrapRequest,
    kind: ProxyKind,
    admin: Option<&AdminInterface<'_>>,
) -> Map<String, Value> {
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| out.insert(key.to_owned(), value);
    put("dataplane.proxyType", word(kind).into());
    if !request.dataplane_resource.is_empty() {
        put("dataplane.resource", request.dataplane_resource.as_str().into());
    }
    if let Some(admin) = admin {
        put("dataplane.admin.port", admin.port.to_string().into());
        put("dataplane.admin.address", admin.address.into());
        if let Some(path) = &admin.socket {
            put("dataplane.admin.socketPath", path.as_str().into());
        }
    }
    let readiness = request.readiness_port.unwrap_or(params.readiness_port);
    for (key, port) in
        [("dataplane.dns.port", request.dns_port), ("dataplane.readinessReporter.port", readiness)]
    {
        if port != 0 {
            put(key, port.to_string().into());
        }
    }
    if let Some(address) = request.readiness_address.filter(|_| readiness != 0) {
        put("dataplane.readinessReporter.address", address.to_string().into());
    }
    if request.app_probe_proxy_disabled {
        put("dataplane.appProbeProxy.enabled", "true".into());
    }
    put("features", request.features.clone().into());
    put("version", without_empty(&request.version));
    if !request.dynamic_metadata.is_empty() {
        put("dynamicMetadata", json!(request.dynamic_metadata));
    }
    for (key, value) in
        [("transparentProxy", &request.dataplane_config), ("otelEnvInventory", &request.otel_env)]
    {
        if let Some(value) = value {
            put(key, value.clone());
        }
    }
    put("workdir", request.workdir.as_str().into());
    put("metricsCertPath", request.metrics_resources.cert_path.as_str().into());
    put("metricsKeyPath", request.metrics_resources.key_path.as_str().into());
    put("systemCaPath", request.system_ca_path.as_str().into());
    put("spireAgent.socketPath", request.spire_resources.socket_path.as_str().into());
    if let Some(seconds) = request.drain_time_seconds {
        put(DRAIN_TIME, seconds.to_string().into());
    }
    put("ipv6Enabled", request.ipv6_enabled.unwrap_or(true).into());
    out
}

/// The programs, without what is empty, as protobuf writes them.
fn without_empty(versions: &ProgramVersions) -> Value {
    let mut written = json!(versions);
    for program in ["kumaDp", "envoy"] {
        if let Some(fields) = written.get_mut(program).and_then(Value::as_object_mut) {
            fields.retain(|_, value| !matches!(value.as_str(), Some("")) && *value != Value::Bool(false));
        }
    }
    written
}

fn is_builtin_gateway(dataplane: &Draft) -> bool {
    let gateway = dataplane.spec.get::<Dataplane>().and_then(Dataplane::gateway);
    gateway.is_some_and(|gateway| gateway.kind == GatewayType::Builtin)
}

/// The service the proxy stands in front of, as Envoy's own statistics will call it.
fn service_of(dataplane: &Draft) -> String {
    let Some(dp) = dataplane.spec.get::<Dataplane>() else { return String::new() };
    let of_gateway = dp.gateway().and_then(|gateway| gateway.tags.get(labels::SERVICE));
    let of_inbound = || dp.inbounds().iter().find_map(|inbound| inbound.tags.get(labels::SERVICE));
    of_gateway.or_else(of_inbound).cloned().unwrap_or_else(|| dataplane.key.name.to_string())
}
