//! Who is on the other end of a discovery stream, and whether to believe it.

use std::{net::IpAddr, sync::Arc};

use identity::{DataplaneToken, Purpose};
use jiff::Timestamp;
use plan::{AdminTarget, ProxyKind, ProxyTraits};
use resources::{Draft, Key, Kind, Labels, kinds::dataplane::Dataplane, labels};
use serde_json::Value;
use store::Snapshot;
use tonic::Status;

use super::{Context, bootstrap, features};

/// A proxy that has said who it is.
#[derive(Debug, Clone)]
pub struct Proxy {
    pub traits: ProxyTraits,
    /// Everything it told about itself.
    pub metadata: Value,
    /// The Dataplane it brought along; `None` when an operator stored it before.
    pub own_dataplane: Option<Draft>,
}

impl Proxy {
    pub fn key(&self) -> Key {
        Key::new(Kind::Dataplane, &self.traits.mesh, &self.traits.name)
    }

    /// Reads the first request of a stream.
    pub fn identify(node_id: &str, metadata: Value) -> Result<Proxy, Status> {
        let (mesh, name) = node_id.split_once('.').filter(|(_, name)| !name.is_empty()).ok_or_else(|| {
            Status::invalid_argument(format!("node id {node_id:?} is not of the form <mesh>.<name>"))
        })?;
        let text = |key: &str| metadata.get(key).and_then(Value::as_str);
        if let Some(other) = text("dataplane.proxyType").filter(|kind| !matches!(*kind, "" | "dataplane")) {
            return Err(Status::unimplemented(format!("proxies of type {other:?} are not supported yet")));
        }
        let own_dataplane = match text("dataplane.resource").filter(|resource| !resource.is_empty()) {
            Some(resource) => Some(bootstrap::read_dataplane(resource).map_err(Status::invalid_argument)?),
            None => None,
        };
        if let Some(draft) = &own_dataplane
            && (*draft.key.mesh != *mesh || *draft.key.name != *name)
        {
            let text = format!("the proxy calls itself {node_id:?}, but its Dataplane is {}", draft.key);
            return Err(Status::invalid_argument(text));
        }
        let traits = traits(mesh, name, &metadata);
        Ok(Proxy { traits, metadata, own_dataplane })
    }

    /// Checks the token against the Dataplane it wants to be.
    pub fn authenticate(
        &self,
        context: &Context,
        snapshot: &Snapshot,
        token: Option<&str>,
    ) -> Result<(), Status> {
        if !context.tokens_required {
            return Ok(());
        }
        let token = token.ok_or_else(|| {
            Status::unauthenticated(
                "no dataplane token: generate one with 'kumactl generate dataplane-token'",
            )
        })?;
        let mesh: Arc<str> = self.traits.mesh.clone();
        let claims: DataplaneToken =
            identity::token::validate(token, Purpose::Dataplane { mesh: &mesh }, snapshot, Timestamp::now())
                .map_err(|error| {
                    Status::unauthenticated(format!("the dataplane token is refused: {error}"))
                })?;
        let stored = snapshot.get(&self.key());
        let (spec, labels) = match (&self.own_dataplane, stored) {
            (Some(draft), _) => (&draft.spec, &draft.labels),
            (None, Some(resource)) => (&resource.spec, &resource.labels),
            (None, None) => {
                return Err(Status::not_found(format!(
                    "there is no {}: store it first, or let the proxy bring it along",
                    self.key()
                )));
            }
        };
        let dataplane =
            spec.get::<Dataplane>().ok_or_else(|| Status::internal("a Dataplane without its spec"))?;
        check_claims(&claims, self, dataplane, labels).map_err(|reason| {
            Status::permission_denied(format!("the dataplane token is for another proxy: {reason}"))
        })
    }
}

/// What the proxy is like, by what it tells about itself.
pub fn traits(mesh: &str, name: &str, metadata: &Value) -> ProxyTraits {
    let text = |key: &str| metadata.get(key).and_then(Value::as_str);
    let port = |key: &str| text(key).and_then(|port| port.parse::<u16>().ok());
    let features: Vec<&str> = metadata
        .get("features")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let admin_target = match text("dataplane.admin.socketPath").filter(|path| !path.is_empty()) {
        Some(path) => AdminTarget::Pipe(path.to_owned()),
        None => AdminTarget::Port(
            text("dataplane.admin.address")
                .and_then(|a| a.parse().ok())
                .unwrap_or(IpAddr::from([127, 0, 0, 1])),
            port("dataplane.admin.port").unwrap_or_default(),
        ),
    };
    let kind = match text("dataplane.proxyType") {
        Some("ingress") => ProxyKind::Ingress,
        Some("egress") => ProxyKind::Egress,
        _ => ProxyKind::Sidecar,
    };
    ProxyTraits {
        kind,
        mesh: mesh.into(),
        name: name.into(),
        unified_naming: features::unified_naming(features.iter().copied()),
        reuse_port: features.contains(&features::REUSE_PORT),
        strict_inbound_ports: features.contains(&features::STRICT_INBOUND_PORTS),
        bind_outbounds: features.contains(&features::BIND_OUTBOUNDS),
        ipv6: metadata.get("ipv6Enabled").and_then(Value::as_bool).unwrap_or(true),
        admin_port: port("dataplane.admin.port").unwrap_or_default(),
        admin_target,
        readiness_port: port("dataplane.readinessReporter.port").unwrap_or_default(),
        system_ca_path: text("systemCaPath").filter(|path| !path.is_empty()).map(str::to_owned),
    }
}

/// A token names what it is for; what it does not name may be anything.
fn check_claims(
    claims: &DataplaneToken,
    proxy: &Proxy,
    dataplane: &Dataplane,
    labels: &Labels,
) -> Result<(), String> {
    let same = |what: &str, wanted: &str, is: &str| {
        let holds = wanted.is_empty() || wanted == is;
        if holds { Ok(()) } else { Err(format!("it is for {what} {wanted:?}, the proxy has {is:?}")) }
    };
    same("name", &claims.name, &proxy.traits.name)?;
    same("mesh", &claims.mesh, &proxy.traits.mesh)?;
    let workload = labels.get(labels::WORKLOAD).map(String::as_str).unwrap_or_default();
    same("workload", &claims.workload, workload)?;
    for (tag, allowed) in &claims.tags {
        let values: Vec<&String> = tag_sets(dataplane).filter_map(|tags| tags.get(tag)).collect();
        if values.is_empty() {
            return Err(format!("it is for tag {tag:?}, which the Dataplane does not have"));
        }
        if let Some(other) = values.into_iter().find(|value| !allowed.contains(value)) {
            return Err(format!("it is for tag {tag:?} of {allowed:?}, the Dataplane has {other:?}"));
        }
    }
    Ok(())
}

fn tag_sets(dataplane: &Dataplane) -> impl Iterator<Item = &std::collections::BTreeMap<String, String>> {
    let of_gateway = dataplane.gateway().map(|gateway| &gateway.tags);
    dataplane.inbounds().iter().map(|inbound| &inbound.tags).chain(of_gateway)
}
