//! The proxy at the other end of a discovery stream, and its authentication.

use std::{net::IpAddr, sync::Arc, time::Duration};

use plan::{AdminTarget, CertificateFiles, ProxyKind, ProxyTraits, Redirection};
use resources::{Draft, Key, Kind};
use serde_json::Value;
use store::Snapshot;
use tonic::Status;
use topology::VouchedLabels;

use super::{ProxyContext, bootstrap, credentials::Credentials, features};

/// Port that inbound traffic is redirected to when an agent names none.
const INBOUND_PORT: u16 = 15006;
const OUTBOUND_PORT: u16 = 15001;

/// A proxy that has said who it is.
#[derive(Debug, Clone)]
pub struct IdentifiedProxy {
    pub traits: ProxyTraits,
    /// Everything it sent about itself.
    pub metadata: Value,
    /// The Dataplane, ZoneIngress or ZoneEgress it brought along; `None` when an operator stored it before.
    pub own_dataplane: Option<Draft>,
    /// Time for which its Envoy keeps the connections of a listener that was replaced, if its agent tells.
    pub drain_time: Option<Duration>,
}

impl IdentifiedProxy {
    pub fn key(&self) -> Key {
        self.traits.key()
    }

    /// Reads the first request of a stream.
    pub fn identify(node_id: &str, metadata: Value) -> Result<IdentifiedProxy, Status> {
        let Key { mesh, name, .. } = key_of(node_id)?;
        let text = |key: &str| metadata.get(key).and_then(Value::as_str);
        let traits = traits(&mesh, &name, &metadata);
        let expected = traits.kind.resource();
        if mesh.is_empty() != traits.kind.is_of_zone() {
            return Err(Status::invalid_argument(format!(
                "node id {node_id:?} is not one of a {expected}: those of zone proxies have no mesh, and those of \
                 dataplanes have one"
            )));
        }
        let own_dataplane = match text("dataplane.resource").filter(|resource| !resource.is_empty()) {
            Some(resource) => {
                let definition = bootstrap::read_definition(resource, expected);
                Some(definition.map_err(|error| Status::invalid_argument(error.to_string()))?)
            }
            None => None,
        };
        if let Some(draft) = &own_dataplane
            && (draft.key.mesh != mesh || draft.key.name != name)
        {
            let text = format!("the proxy calls itself {node_id:?}, but its {expected} is {}", draft.key);
            return Err(Status::invalid_argument(text));
        }
        let drain_time =
            text(bootstrap::DRAIN_TIME).and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
        Ok(IdentifiedProxy { traits, metadata, own_dataplane, drain_time })
    }

    /// Checks the token against the Dataplane the proxy wants to be: the one it brings along, and the stored one of
    /// that name, which it would replace.
    pub async fn authenticate(
        &self,
        context: &ProxyContext,
        snapshot: &Snapshot,
        token: Option<&str>,
    ) -> Result<Credentials, Status> {
        let credentials = Credentials::verify(context, snapshot, &self.traits.mesh, token).await?;
        credentials.allow_name(&self.key())?;
        self.check(&credentials, snapshot)?;
        Ok(credentials)
    }

    /// The second half of [`IdentifiedProxy::authenticate`], for a token that was verified before.
    pub fn check(&self, credentials: &Credentials, snapshot: &Snapshot) -> Result<(), Status> {
        let stored = snapshot.get(&self.key());
        match (&self.own_dataplane, stored) {
            (Some(draft), stored) => {
                credentials.allow_draft(draft)?;
                stored.map_or(Ok(()), |stored| credentials.allow_replacing(stored))
            }
            (None, Some(stored)) => credentials.allow_stored(stored),
            (None, None) => Err(Status::not_found(format!(
                "there is no {}: store it first, or start the proxy with its definition",
                self.key()
            ))),
        }
    }
}

/// Reads the Dataplane's key from a node's id.
pub fn key_of(node_id: &str) -> Result<Key, Status> {
    let parts = node_id.split_once('.').filter(|(_, name)| !name.is_empty());
    let (mesh, name) = parts.ok_or_else(|| {
        Status::invalid_argument(format!("node id {node_id:?} is not of the form <mesh>.<name>"))
    })?;
    Ok(Key::new(Kind::Dataplane, mesh, name))
}

/// Parses node metadata.
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
        Some("ingress") => ProxyKind::INGRESS,
        Some("egress") => ProxyKind::EGRESS,
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
        redirection: redirection(metadata, &features),
        // Queries reach the agent where its transparent proxy redirects them.
        resolver: features.contains(&features::EMBEDDED_DNS)
            && metadata["transparentProxy"]["redirect"]["dns"]["enabled"]
                .as_bool()
                .unwrap_or(port("dataplane.dns.port").unwrap_or_default() != 0),
        ipv6: metadata.get("ipv6Enabled").and_then(Value::as_bool).unwrap_or(true),
        ipv6_routed: features.contains(&features::IPV6_VIRTUAL_ADDRESSES),
        admin_port: port("dataplane.admin.port").unwrap_or_default(),
        admin_target,
        readiness_port: port("dataplane.readinessReporter.port").unwrap_or_default(),
        readiness_address: text("dataplane.readinessReporter.address").and_then(|ip| ip.parse().ok()),
        work_dir: text("workdir").unwrap_or_default().to_owned(),
        host_ip: metadata["dynamicMetadata"]["HOST_IP"].as_str().and_then(|ip| ip.parse().ok()),
        system_ca_path: text("systemCaPath").filter(|path| !path.is_empty()).map(str::to_owned),
        // Its metadata does not say; its list of extensions does.
        kafka_filter: false,
        metrics_certificate: match (text("metricsCertPath"), text("metricsKeyPath")) {
            (Some(certificate), Some(key)) if !certificate.is_empty() && !key.is_empty() => {
                Some(Arc::new(CertificateFiles { certificate: certificate.to_owned(), key: key.to_owned() }))
            }
            _ => None,
        },
        counted: text(bootstrap::COUNTED).map(Arc::from),
        // Its token is looked at apart.
        vouched: VouchedLabels::Everything,
    }
}

/// Redirection by the agent's machine, if there is any.
fn redirection(metadata: &Value, features: &[&str]) -> Option<Redirection> {
    let told = metadata.get("transparentProxy").filter(|told| told["redirect"].is_object())?;
    if !features.contains(&features::REDIRECTION) {
        return None;
    }
    let flow = |direction: &str, usual: u16| {
        let flow = &told["redirect"][direction];
        // Numbers of a protobuf Struct are floating.
        let port = flow["port"].as_u64().or_else(|| flow["port"].as_f64().map(|port| port as u64));
        let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
        (flow["enabled"].as_bool().unwrap_or(false), port.unwrap_or(usual))
    };
    let (inbound, inbound_port) = flow("inbound", INBOUND_PORT);
    let (outbound, outbound_port) = flow("outbound", OUTBOUND_PORT);
    let ipv6 = told["ipFamilyMode"].as_str() != Some("ipv4");
    Some(Redirection { enabled: inbound || outbound, inbound_port, outbound_port, ipv6 })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_agent_says_how_its_machine_redirects_traffic() {
        let of = |features: &[&str], told: Value| {
            traits("default", "web", &json!({"features": features, "transparentProxy": told})).redirection
        };
        let flow = |enabled: bool, port: Value| json!({"enabled": enabled, "port": port});
        let redirect = |inbound: Value, outbound: Value| json!({"ipFamilyMode": "ipv4", "redirect": {"inbound": inbound, "outbound": outbound}});
        let said = |enabled, inbound_port, outbound_port, ipv6| {
            Some(Redirection { enabled, inbound_port, outbound_port, ipv6 })
        };
        let known = [features::REDIRECTION];
        let both = redirect(flow(true, json!(16006.0)), flow(true, json!(16001)));
        assert_eq!(of(&known, both.clone()), said(true, 16006, 16001, false));
        assert_eq!(of(&[], both), None);
        let none = redirect(flow(false, json!(15006)), flow(false, json!(15001)));
        assert_eq!(of(&known, none), said(false, 15006, 15001, false));
        let strange = redirect(flow(true, json!(-1)), flow(false, json!("x")));
        assert_eq!(of(&known, strange), said(true, 15006, 15001, false));
        assert_eq!(of(&known, json!({"redirect": {}})), said(false, 15006, 15001, true));
        assert_eq!(of(&known, json!({})), None);
        assert_eq!(of(&known, Value::Null), None);
    }
}
