//! Configuration that a proxy would be sent now, as JSON.

use std::sync::Arc;

use api::{InspectError, XdsConfig};
use identity::admin::AdminAuthority;
use jiff::Timestamp;
use plan::ProxyTraits;
use resources::Key;
use serde_json::{Map, Value};
use serving::admin::admin_tls;
use store::Snapshot;
use topology::MeshSnapshot;

use super::redact;

/// Stands for what is in a secret.
const BLANK: &str = "[redacted]";

/// Everything the proxy would be sent, with nothing in its secrets.
pub fn configuration(
    snapshot: &Snapshot,
    mesh: &MeshSnapshot,
    proxy: &Key,
    traits: &ProxyTraits,
) -> Result<Value, InspectError> {
    let plan = plan::for_proxy(mesh, traits);
    let mut plan = plan.map_err(|error| InspectError::Unsupported(error.to_string()))?;
    if let Some(admin) = &mut plan.own.admin {
        let authority = AdminAuthority::load(snapshot, Timestamp::now());
        let tls = authority.and_then(|authority| admin_tls(&authority, proxy, &admin.address.to_string()));
        admin.tls = tls.ok().map(Arc::new);
    }
    // An encoder of its own: looking must not change what is counted and remembered for proxies.
    let encoder = envoy::Encoder::default();
    let mut target = encoder.lower(&plan);
    if let Some(names) = plan.own.security.as_ref().map(|security| &security.secrets) {
        target.insert(xds::Type::Secret, encoder.secret(&names.identity.name(), BLANK, BLANK));
        target.insert(xds::Type::Secret, encoder.authorities(names.authorities.name(), BLANK));
    }
    let mut types = Map::new();
    for kind in xds::Type::ALL {
        let mut resources = Map::new();
        for resource in target.of(kind).values() {
            let shown = envoy::json::to_json(kind.url(), &resource.body());
            let shown = shown.map_err(|error| InspectError::Failed(error.to_string()))?;
            resources.insert(resource.name.to_string(), shown);
        }
        if !resources.is_empty() {
            types.insert(kind.url().to_owned(), Value::Object(resources));
        }
    }
    let mut types = Value::Object(types);
    redact::redact(&mut types);
    Ok(types)
}

/// The configuration as another control plane says it is, if that is one: resources by type.
pub fn shaped(config: XdsConfig) -> Result<XdsConfig, InspectError> {
    let XdsConfig { xds, without_shadow } = &config;
    if xds.is_object() && without_shadow.as_ref().is_none_or(Value::is_object) {
        return Ok(config);
    }
    Err(InspectError::Unreachable("the control plane of the proxy answered with no configuration".to_owned()))
}
