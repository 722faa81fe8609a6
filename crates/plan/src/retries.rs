//! Retries of failed requests and connections: MeshRetry.

use std::{collections::BTreeMap, sync::Arc};

use resources::{
    kinds::{
        mesh_http_route::Rule,
        mesh_retry::{Conf, Grpc, Http, MeshRetry},
    },
    naming::Kri,
};
use topology::{DestinationId, Protocol};

use crate::{Effective, effective::EffectiveConf};

/// Conditions and number of retries of a failed request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Retry {
    Http(Http),
    Grpc(Grpc),
}

impl Retry {
    /// `None` where a request is tried once: no policy speaks of it, or one says that nothing is retried.
    fn of(conf: &Conf, protocol: Protocol) -> Option<Retry> {
        match protocol {
            Protocol::Http | Protocol::Http2 => {
                conf.http.clone().filter(|http| http.num_retries != Some(0)).map(Retry::Http)
            }
            Protocol::Grpc => conf.grpc.clone().filter(|grpc| grpc.num_retries != Some(0)).map(Retry::Grpc),
            Protocol::Kafka | Protocol::Tcp => None,
        }
    }
}

/// The retries of everything the proxy calls.
pub(crate) struct OutboundRetries<'a> {
    effective: &'a Effective<'a>,
}

impl<'a> OutboundRetries<'a> {
    pub fn of(effective: &'a Effective<'a>) -> OutboundRetries<'a> {
        OutboundRetries { effective }
    }

    /// Returns the limit of attempts to connect; `None` without a policy.
    pub fn connections(&self, destination: &DestinationId) -> Option<u32> {
        self.conf(destination)?.tcp.as_ref()?.max_connect_attempt
    }

    pub fn requests(&self, destination: &DestinationId, protocol: Protocol) -> Option<Retry> {
        Retry::of(&*self.conf(destination)?, protocol)
    }

    /// The retries of requests that take a route to a destination.
    pub fn route(&self, route: &Kri, destination: &Kri, protocol: Protocol) -> Option<Retry> {
        let conf = found(self.effective.conf_of_route::<MeshRetry>(route, destination))?;
        Retry::of(&conf, protocol)
    }

    /// The retries of requests to a destination by tags that match a rule.
    pub fn rule(&self, tags: &BTreeMap<String, String>, rule: &Rule, protocol: Protocol) -> Option<Retry> {
        let conf = found(self.effective.conf_of_rule::<MeshRetry>(tags, rule))?;
        Retry::of(&conf, protocol)
    }

    fn conf(&self, destination: &DestinationId) -> Option<Arc<Conf>> {
        found(self.effective.conf::<MeshRetry>(destination))
    }
}

/// Confs were typed before they were merged, so one always reads back.
fn found(found: Result<Option<EffectiveConf<Conf>>, String>) -> Option<Arc<Conf>> {
    found.ok().flatten().map(|found| found.conf)
}
