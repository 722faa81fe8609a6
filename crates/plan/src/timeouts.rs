//! Timeouts: MeshTimeout, and the defaults where it is silent.

mod clients;

use std::{collections::BTreeMap, time::Duration};

use policy::{InboundRule, MergedPolicy};
use resources::{
    duration::GoDuration,
    kinds::{
        mesh_http_route::Rule,
        mesh_timeout::{Conf, MeshTimeout},
    },
    naming::Kri,
};
use topology::{DestinationId, Protocol};

use crate::Effective;

pub use clients::ClientTimeouts;

const HOUR: Duration = Duration::from_secs(3600);

/// Time limits of connections and requests. Zero means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timeouts {
    pub connection: ConnectionTimeouts,
    pub request: RequestTimeouts,
    /// Until a request's headers have arrived.
    pub request_headers: Duration,
}

/// Timeouts of a connection, whichever server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionTimeouts {
    pub connect: Duration,
    pub idle: Duration,
    /// `None` where it is not for a policy to say.
    pub max_stream: Option<Duration>,
    pub max_connection: Option<Duration>,
}

/// Time limits of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestTimeouts {
    pub request: Duration,
    pub stream_idle: Duration,
}

impl RequestTimeouts {
    const ENDLESS: RequestTimeouts = RequestTimeouts { request: Duration::ZERO, stream_idle: Duration::ZERO };
}

impl Default for Timeouts {
    /// Returns the timeouts without a policy.
    fn default() -> Timeouts {
        Timeouts::of(&Conf::default())
    }
}

impl Timeouts {
    /// Of inbounds whose clients no policy limits.
    const UNLIMITED: Timeouts = Timeouts {
        connection: ConnectionTimeouts {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(2 * 3600),
            max_stream: None,
            max_connection: None,
        },
        request: RequestTimeouts { request: Duration::ZERO, stream_idle: HOUR },
        request_headers: Duration::ZERO,
    };

    fn of(conf: &Conf) -> Timeouts {
        let http = conf.http.clone().unwrap_or_default();
        let or = |given: Option<GoDuration>, default| given.and_then(GoDuration::to_std).unwrap_or(default);
        Timeouts {
            connection: ConnectionTimeouts {
                connect: or(conf.connection_timeout, Duration::from_secs(5)),
                idle: or(conf.idle_timeout, HOUR),
                max_stream: Some(or(http.max_stream_duration, Duration::ZERO)),
                max_connection: Some(or(http.max_connection_duration, Duration::ZERO)),
            },
            request: RequestTimeouts {
                request: or(http.request_timeout, Duration::from_secs(15)),
                stream_idle: or(http.stream_idle_timeout, HOUR / 2),
            },
            request_headers: or(http.request_headers_timeout, Duration::ZERO),
        }
    }

    /// Confs were typed before they were merged, so one always reads back.
    fn read(merged: &MergedPolicy) -> Timeouts {
        merged.typed::<Conf>().map_or_else(|_| Timeouts::default(), |conf| Timeouts::of(&conf))
    }

    /// Returns the timeouts of clients of an inbound that no rule distinguishes.
    pub(crate) fn of_inbound(rules: &[InboundRule], protocol: Protocol) -> Timeouts {
        let mut timeouts = match policy::inbound::fold_unconditional(rules) {
            Some(merged) => Timeouts::read(&merged),
            None if rules.is_empty() => Timeouts::default(),
            // Policies about certain clients only leave the others alone.
            None => Timeouts::UNLIMITED,
        };
        if protocol == Protocol::Grpc {
            // Connections of gRPC carry streams that rest for long; only connecting is limited.
            let connect = timeouts.connection.connect;
            timeouts.connection =
                ConnectionTimeouts { connect, idle: 2 * HOUR, max_stream: None, max_connection: None };
        }
        timeouts
    }
}

/// The timeouts of everything the proxy calls.
pub(crate) struct OutboundTimeouts<'a> {
    effective: &'a Effective<'a>,
}

impl<'a> OutboundTimeouts<'a> {
    pub fn of(effective: &'a Effective<'a>) -> OutboundTimeouts<'a> {
        OutboundTimeouts { effective }
    }

    pub fn destination(&self, destination: &DestinationId) -> Timeouts {
        let found = self.effective.conf::<MeshTimeout>(destination).ok().flatten();
        match (found, destination) {
            (Some(found), _) => Timeouts::of(&found.conf),
            (None, DestinationId::Port(_)) => Timeouts::default(),
            // Calls by tags are older than the policy: only it makes them end.
            (None, DestinationId::Tags(_)) => {
                Timeouts { request: RequestTimeouts::ENDLESS, ..Timeouts::default() }
            }
        }
    }

    /// Returns the idle timeout of connections to a destination whose requests are not looked at.
    pub fn resting(&self, destination: &DestinationId) -> Duration {
        match (self.effective.conf::<MeshTimeout>(destination), destination) {
            (Ok(None), DestinationId::Tags(_)) => Duration::ZERO,
            _ => self.destination(destination).connection.idle,
        }
    }

    /// The timeouts of requests that take a route to a destination.
    pub fn route(&self, route: &Kri, destination: &Kri) -> RequestTimeouts {
        let found = self.effective.conf_of_route::<MeshTimeout>(route, destination).ok().flatten();
        found.map(|found| Timeouts::of(&found.conf)).unwrap_or_default().request
    }

    /// The timeouts of requests to a destination by tags that match a rule.
    pub fn rule(&self, tags: &BTreeMap<String, String>, rule: &Rule) -> RequestTimeouts {
        let found = self.effective.conf_of_rule::<MeshTimeout>(tags, rule).ok().flatten();
        found.map_or(RequestTimeouts::ENDLESS, |found| Timeouts::of(&found.conf).request)
    }
}
