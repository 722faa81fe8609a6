//! Labels that say which proxy a metric is of.

use std::collections::{BTreeMap, BTreeSet};

use resources::{
    Resource,
    kinds::{
        dataplane::{Dataplane, ListenerType},
        tags::Tags,
    },
    labels,
};

/// Facts about a proxy that its metrics are labelled with, whatever its resources are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrapeLabels<'a> {
    pub zone: Option<&'a str>,
    /// `sidecar`, `gateway`, `zone-ingress`, `zone-egress` or `zone-proxy`.
    pub role: &'static str,
    /// The workload that its labels name.
    pub labelled_workload: Option<&'a str>,
    /// The service of its tags, or else its workload, or else its name.
    pub service: &'a str,
    /// The workload, or else the service; `None` for a proxy that stands beside no application.
    pub workload: Option<&'a str>,
    /// Tags of all inbounds, or of the gateway.
    pub tags: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

impl<'a> ScrapeLabels<'a> {
    /// `name` is that of the proxy.
    pub fn of(dataplane: &'a Resource, name: &'a str) -> ScrapeLabels<'a> {
        let label = |name: &str| dataplane.label(name).filter(|value| !value.is_empty());
        let spec = dataplane.spec.get::<Dataplane>();
        let beside_application = !spec.is_some_and(is_zone_proxy_only);
        let tags = tags(spec);
        let labelled_workload = label(labels::WORKLOAD).filter(|_| beside_application);
        let by_tag = tags.get(labels::SERVICE).and_then(|values| values.first().copied());
        let service = by_tag.or(labelled_workload).unwrap_or(name);
        ScrapeLabels {
            zone: label(labels::ZONE),
            role: role(spec),
            labelled_workload,
            service,
            workload: labelled_workload.or(Some(service)).filter(|_| beside_application),
            tags,
        }
    }
}

/// True for a proxy of a zone that serves no application.
pub(super) fn is_zone_proxy_only(dataplane: &Dataplane) -> bool {
    !dataplane.listeners().is_empty() && dataplane.inbounds().is_empty() && dataplane.gateway().is_none()
}

/// The name as Prometheus accepts it in a label.
pub fn sanitized(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect()
}

fn tags(dataplane: Option<&Dataplane>) -> BTreeMap<&str, BTreeSet<&str>> {
    let of_inbounds = dataplane.into_iter().flat_map(Dataplane::inbounds).map(|inbound| &inbound.tags);
    let of_gateway = dataplane.and_then(Dataplane::gateway).map(|gateway| &gateway.tags);
    let mut tags: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, value) in of_inbounds.chain(of_gateway).flat_map(Tags::iter) {
        tags.entry(name).or_default().insert(value);
    }
    tags
}

fn role(dataplane: Option<&Dataplane>) -> &'static str {
    let serves = |kind| dataplane.is_some_and(|dataplane| dataplane.has_listener(kind));
    match (serves(ListenerType::ZoneIngress), serves(ListenerType::ZoneEgress)) {
        (true, true) => "zone-proxy",
        (true, false) => "zone-ingress",
        (false, true) => "zone-egress",
        (false, false) if dataplane.and_then(Dataplane::gateway).is_some() => "gateway",
        (false, false) => "sidecar",
    }
}
