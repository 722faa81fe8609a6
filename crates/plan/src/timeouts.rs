//! How long things may take: MeshTimeout, and what holds where it says nothing.

mod clients;

use std::{cell::RefCell, collections::HashMap, time::Duration};

use policy::{InboundRule, Merged, ResourceRule, ResourceRules};
use resources::{Kind, duration::GoDuration, kinds::mesh_timeout::Conf, labels, naming::Kri};
use serde_json::Value;
use topology::{DestinationId, Protocol};

use crate::Effective;

pub use clients::ClientTimeouts;

const HOUR: Duration = Duration::from_secs(3600);

/// How long things may take. Zero means forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timeouts {
    pub connection: ConnectionTimeouts,
    pub request: RequestTimeouts,
    /// Until a request's headers have arrived.
    pub request_headers: Duration,
}

/// What a connection to whoever answers is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionTimeouts {
    pub connect: Duration,
    pub idle: Duration,
    /// `None` where it is not for a policy to say.
    pub max_stream: Option<Duration>,
    pub max_connection: Option<Duration>,
}

/// What one request is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestTimeouts {
    pub request: Duration,
    pub stream_idle: Duration,
}

impl Default for Timeouts {
    /// What holds without a policy.
    fn default() -> Timeouts {
        Timeouts::of(&Conf::default())
    }
}

impl Timeouts {
    /// What inbounds have whose clients are not limited by anybody.
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

    /// From a merged conf. Confs were typed before they were merged, so one always reads back.
    fn read(conf: &Value) -> Timeouts {
        serde_json::from_value(conf.clone()).map_or_else(|_| Timeouts::default(), |conf| Timeouts::of(&conf))
    }

    /// What holds for clients of an inbound that no rule tells apart.
    pub(crate) fn of_inbound(rules: &[InboundRule], protocol: Protocol) -> Timeouts {
        let mut timeouts = match policy::inbound::fold_unconditional(rules) {
            Some(Merged { conf, .. }) => Timeouts::read(&conf),
            None if rules.is_empty() => Timeouts::default(),
            // Whoever only speaks of certain clients leaves the others alone.
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

/// The timeouts of everything the proxy calls, each read once.
pub(crate) struct OutboundTimeouts<'a> {
    effective: &'a Effective<'a>,
    rules: &'a ResourceRules,
    read: RefCell<HashMap<Kri, Timeouts>>,
}

impl<'a> OutboundTimeouts<'a> {
    pub fn of(effective: &'a Effective<'a>) -> OutboundTimeouts<'a> {
        let rules = effective.outbound(Kind::MeshTimeout);
        OutboundTimeouts { effective, rules, read: RefCell::default() }
    }

    pub fn destination(&self, destination: &DestinationId) -> Timeouts {
        match destination {
            DestinationId::Port(kri) => self.found(self.rules.for_destination(kri)),
            DestinationId::Tags(tags) => {
                let service = tags.get(labels::SERVICE).map_or("", String::as_str);
                let merged = self.effective.for_service(Kind::MeshTimeout, service);
                merged.map(|Merged { conf, .. }| Timeouts::read(&conf)).unwrap_or_default()
            }
        }
    }

    /// The timeouts of requests that take a route to a destination.
    pub fn route(&self, route: &Kri, destination: &Kri) -> RequestTimeouts {
        self.found(self.rules.for_route(route, destination)).request
    }

    fn found(&self, rule: Option<&ResourceRule>) -> Timeouts {
        let Some(rule) = rule else { return Timeouts::default() };
        if let Some(read) = self.read.borrow().get(&rule.target) {
            return *read;
        }
        let read = rule.conf().map(Timeouts::read).unwrap_or_default();
        self.read.borrow_mut().insert(rule.target.clone(), read);
        read
    }
}
