//! Rate limits of an application: MeshRateLimit.

use std::time::Duration;

use policy::{ClientMatch, InboundRule};
use resources::kinds::mesh_rate_limit::{self as written, Conf, HeaderKeyValue, MAX_HEADERS};

use crate::clients;

/// The limits of an inbound.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct RateLimits {
    /// Of new connections.
    pub connections: Option<Rate>,
    /// Of requests of clients that are not distinguished.
    pub requests: Option<RequestLimit>,
    /// Of requests of certain clients; the first that matches counts.
    pub clients: Vec<ClientLimit>,
}

/// So many in each interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    pub number: u32,
    pub interval: Duration,
}

/// A limit of requests, and the answer to those over it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestLimit {
    pub rate: Rate,
    /// `None` for the usual one.
    pub status: Option<u32>,
    pub set: Vec<HeaderKeyValue>,
    pub add: Vec<HeaderKeyValue>,
}

/// The limit of requests of certain clients; `None` if they have none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientLimit {
    pub client: ClientMatch,
    pub limit: Option<RequestLimit>,
}

impl RateLimits {
    pub(crate) fn of_inbound(rules: &[InboundRule]) -> RateLimits {
        let merged = policy::inbound::fold_unconditional(rules);
        let conf = merged.and_then(|merged| merged.typed::<Conf>().ok());
        let tcp = conf.as_ref().and_then(|conf| conf.local.as_ref()?.tcp.as_ref());
        let connections = tcp.filter(|tcp| tcp.disabled != Some(true)).and_then(|tcp| tcp.connection_rate);
        let told_apart = clients::told_apart(rules).into_iter();
        let clients: Vec<ClientLimit> = told_apart
            .map(|(client, merged)| {
                let conf = merged.typed::<Conf>().ok();
                ClientLimit { client, limit: conf.and_then(|conf| RequestLimit::of(&conf)) }
            })
            .collect();
        let requests = conf.as_deref().and_then(RequestLimit::of);
        let limited = requests.is_some() || clients.iter().any(|own| own.limit.is_some());
        RateLimits {
            connections: connections.and_then(Rate::of),
            clients: if limited { clients } else { Vec::new() },
            requests,
        }
    }
}

impl Rate {
    fn of(rate: written::Rate) -> Option<Rate> {
        Some(Rate { number: rate.num, interval: rate.interval.to_std()? })
    }
}

impl RequestLimit {
    fn of(conf: &Conf) -> Option<RequestLimit> {
        let http = conf.local.as_ref()?.http.as_ref().filter(|http| http.disabled != Some(true))?;
        let rate = Rate::of(http.request_rate?)?;
        let answer = http.on_rate_limit.clone().unwrap_or_default();
        let headers = answer.headers.unwrap_or_default();
        // Lists of several policies may add up to more than proxies take.
        let set: Vec<_> = headers.set.unwrap_or_default().into_iter().take(MAX_HEADERS).collect();
        let add = headers.add.unwrap_or_default().into_iter().take(MAX_HEADERS - set.len()).collect();
        let status = answer.status.filter(|status| written::is_known(*status));
        Some(RequestLimit { rate, status, set, add })
    }
}
