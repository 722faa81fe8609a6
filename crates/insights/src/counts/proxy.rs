//! Properties of one proxy that are counted.

use std::collections::BTreeMap;

use resources::{
    Resource,
    kinds::{
        dataplane::{Dataplane, GatewayType, InboundState, ListenerState},
        dataplane_insight::{CertificateStatus, DataplaneInsight, ProxyVersion},
        service_insight::ServiceType,
    },
    labels,
};

/// Health of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyHealth {
    Online,
    /// Some of its inbounds do not take traffic.
    PartiallyDegraded,
    Offline,
}

/// A Dataplane with what is reported about its proxy.
#[derive(Debug, Clone, Copy)]
pub struct CountedProxy<'a> {
    resource: &'a Resource,
    dataplane: &'a Dataplane,
    insight: Option<&'a DataplaneInsight>,
}

impl<'a> CountedProxy<'a> {
    /// `None` without a Dataplane: what is reported about others is not counted.
    pub fn of(dataplane: Option<&'a Resource>, insight: Option<&'a Resource>) -> Option<CountedProxy<'a>> {
        let resource = dataplane?;
        let insight = insight.and_then(|insight| insight.spec.get::<DataplaneInsight>());
        Some(CountedProxy { resource, dataplane: resource.spec.get::<Dataplane>()?, insight })
    }

    /// Kind of gateway it is, if it is one.
    pub fn gateway(&self) -> Option<GatewayType> {
        self.dataplane.gateway().map(|gateway| gateway.kind)
    }

    pub fn mtls(&self) -> Option<&'a CertificateStatus> {
        self.insight?.mtls.as_ref()
    }

    /// True if it counts as the other one does.
    pub fn counts_as(&self, other: &CountedProxy<'_>) -> bool {
        let own_words = |proxy: &CountedProxy<'_>| (proxy.health(), proxy.is_online(), proxy.gateway());
        own_words(self) == own_words(other)
            && self.version() == other.version()
            && self.mtls() == other.mtls()
            && self.zone() == other.zone()
            && self.services() == other.services()
    }

    pub fn is_online(&self) -> bool {
        self.insight.is_some_and(DataplaneInsight::is_online)
    }

    pub fn version(&self) -> Option<&'a ProxyVersion> {
        self.insight?.subscriptions.last()?.version.as_ref()
    }

    pub fn health(&self) -> ProxyHealth {
        let inbounds =
            self.dataplane.inbounds().iter().map(|inbound| inbound.state != InboundState::NotReady);
        let listeners = self.dataplane.listeners().iter().map(|l| l.state == ListenerState::Ready);
        let ready: Vec<bool> = inbounds.chain(listeners).collect();
        // A proxy that only calls others serves none, which is no failure.
        let serves = ready.is_empty() || ready.contains(&true);
        match (self.is_online() && serves, ready.contains(&false)) {
            (false, _) => ProxyHealth::Offline,
            (true, true) => ProxyHealth::PartiallyDegraded,
            (true, false) => ProxyHealth::Online,
        }
    }

    /// The services it belongs to, each with whether it serves them.
    pub fn services(&self) -> BTreeMap<&'a str, (bool, ServiceType)> {
        let mut services = BTreeMap::new();
        if let Some(gateway) = self.dataplane.gateway()
            && let Some(name) = gateway.tags.get(labels::SERVICE)
        {
            let kind = match gateway.kind {
                GatewayType::Builtin => ServiceType::GatewayBuiltin,
                GatewayType::Delegated => ServiceType::GatewayDelegated,
            };
            services.insert(name.as_str(), (true, kind));
        }
        for inbound in self.dataplane.inbounds() {
            let Some(name) = inbound.tags.get(labels::SERVICE) else { continue };
            let (ready, _) = services.entry(name).or_insert((false, ServiceType::Internal));
            *ready |= inbound.state == InboundState::Ready;
        }
        services
    }

    pub fn zone(&self) -> Option<&'a str> {
        let tagged = || self.dataplane.inbounds().iter().find_map(|inbound| inbound.tags.get(labels::ZONE));
        self.resource.label(labels::ZONE).or_else(|| tagged().map(String::as_str))
    }
}
