//! Kuma's spelling of names in what is shown of a proxy, for clients that ask for it, such as Kuma's GUI.

use axum::body::Bytes;
use contract::layout::{ProxyLayout, ProxyResources};
use resources::{
    Key,
    naming::{Kri, KumaSpelling, SelfName},
};
use serde_json::Value;

use super::FAILED;
use crate::{Error, call::Call};

/// The query parameter, and the header that a server in front of a client sets for it.
const QUERY: &str = "names";
const HEADER: &str = "x-kuma-names";
const KUMA: &str = "kuma";

/// The spelling that is asked for; `None` for the names as they are.
pub fn asked(call: &Call, proxy: &Key) -> Result<Option<KumaSpelling>, Error> {
    match call.query(QUERY).or_else(|| call.header(HEADER)) {
        None => Ok(None),
        Some(KUMA) => Ok(call.snapshot()?.get(proxy).map(|stored| KumaSpelling::of(stored))),
        Some(other) => Err(Error::BadRequest(format!("{QUERY} {other:?} is not known: it is `{KUMA}`"))),
    }
}

/// Text that Envoy wrote, in the spelling that is asked for.
pub async fn spelled(body: Bytes, spelling: Option<KumaSpelling>) -> Result<Bytes, Error> {
    let Some(spelling) = spelling else { return Ok(body) };
    // A dump can be large, and other requests should not wait for it.
    let written = tokio::task::spawn_blocking(move || spelling.text(&String::from_utf8_lossy(&body)).into());
    written.await.map_err(|error| Error::Internal { title: FAILED, cause: error.to_string() })
}

/// Rewrites a document made from Envoy's output to the spelling that is asked for.
pub async fn spelled_value(value: Value, spelling: Option<KumaSpelling>) -> Result<Value, Error> {
    if spelling.is_none() {
        return Ok(value);
    }
    let body = spelled(Bytes::from(value.to_string()), spelling).await?;
    serde_json::from_slice(&body).map_err(|error| Error::Internal { title: FAILED, cause: error.to_string() })
}

/// The layout as Kuma writes it: with the names that a proxy with unified naming has, whether or not this one has
/// them.
pub fn in_kumas_spelling(mut layout: ProxyLayout, spelling: &KumaSpelling) -> ProxyLayout {
    for inbound in &mut layout.inbounds {
        let section = inbound.kri.parse().ok().and_then(|kri: Kri| kri.section.parse().ok());
        if let Some(section) = section {
            inbound.proxy_resource_name = SelfName::Inbound(section).shipped_alias();
        }
        inbound.proxy_resources.iter_mut().for_each(|resources| spell(resources, spelling));
    }
    for outbound in layout.outbounds.iter_mut().filter(|outbound| !outbound.kri.is_empty()) {
        outbound.proxy_resource_name = outbound.kri.clone();
    }
    for passthrough in &mut layout.passthrough {
        passthrough.proxy_resource_name = spelling.name(&passthrough.proxy_resource_name).to_owned();
        spell(&mut passthrough.proxy_resources, spelling);
    }
    layout
}

fn spell(resources: &mut ProxyResources, spelling: &KumaSpelling) {
    let ProxyResources { listener, cluster, route_configuration, virtual_host, stats } = resources;
    let named = [listener, cluster, &mut stats.listener, &mut stats.cluster, &mut stats.filter];
    let optional = [route_configuration, virtual_host, &mut stats.permissions];
    for name in named.into_iter().chain(optional.into_iter().flatten()) {
        *name = spelling.name(name).to_owned();
    }
}
