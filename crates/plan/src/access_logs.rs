//! Access logs of requests and connections: MeshAccessLog.

use policy::{ClientMatch, InboundRule, conf};
use resources::{
    Kind,
    kinds::mesh_access_log::{
        Backend, Conf, FileBackend, Format, MeshAccessLog, OpenTelemetryBackend, TcpBackend, format,
    },
    naming::{Direction, Kri},
    policy::Shape,
};
use serde_json::Value;
use topology::{DestinationId, MeshSnapshot};

use crate::{
    Applying, Code, Collector, Effective, Finding, NamingScheme, ProxyTraits, Reporter, Route, Routing,
    effective::EffectiveConf,
    telemetry::{CollectorAddress, UNKNOWN, Unavailable},
};

const SIGNAL: &str = "v1/logs";
/// Destination in logs of redirected traffic that leaves the mesh.
const OUTSIDE: &str = "external";

const OF_REQUESTS: &str = "[%START_TIME%] %KUMA_MESH% \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% \
     %PROTOCOL%\" %RESPONSE_CODE% %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% \
     %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \"%REQ(USER-AGENT)%\" \
     \"%REQ(X-B3-TRACEID?X-DATADOG-TRACEID)%\" \"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \
     \"%KUMA_SOURCE_SERVICE%\" \"%KUMA_DESTINATION_SERVICE%\" \"%KUMA_SOURCE_ADDRESS_WITHOUT_PORT%\" \
     \"%UPSTREAM_HOST%\"";
const OF_CONNECTIONS: &str = "[%START_TIME%] %RESPONSE_FLAGS% %KUMA_MESH% \
     %KUMA_SOURCE_ADDRESS_WITHOUT_PORT%(%KUMA_SOURCE_SERVICE%)->%UPSTREAM_HOST%(%KUMA_DESTINATION_SERVICE%) \
     took %DURATION%ms, sent %BYTES_SENT% bytes, received: %BYTES_RECEIVED% bytes";

/// One log of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AccessLog {
    pub only: LogFilter,
    pub sink: LogSink,
}

/// Part of the traffic that is logged.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LogFilter {
    Everything,
    /// Requests and connections of certain clients.
    Client(ClientMatch),
    /// Requests that take one of these routes.
    Routes(Vec<String>),
    /// Requests that take none of these routes.
    OtherRoutes(Vec<String>),
}

/// Target of a log, with the format of its lines.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LogSink {
    File {
        path: String,
        line: AccessLogFormat,
    },
    /// The agent sends the line to a log server over TCP.
    Agent {
        pipe: String,
        address: String,
        line: AccessLogFormat,
    },
    OpenTelemetry(Record),
}

/// A line of a log.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AccessLogFormat {
    Text { text: String, omit_empty: bool },
    Json { fields: Vec<(String, String)>, omit_empty: bool },
}

/// A record of OpenTelemetry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Record {
    pub cluster: String,
    /// URL for records that are sent without gRPC.
    pub url: Option<String>,
    pub body: RecordValue,
    pub attributes: Vec<(String, String)>,
    /// Attributes that all records of the proxy have.
    pub resource: Vec<(String, String)>,
}

/// Value within a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RecordValue {
    Text(String),
    List(Vec<RecordValue>),
    Map(Vec<(String, RecordValue)>),
}

impl RecordValue {
    /// Reads the JSON of a policy, which was checked when it was written.
    fn of(value: &Value, fill_in: &impl Fn(&str) -> String) -> RecordValue {
        if let Some(text) = value.as_str().or_else(|| value["stringValue"].as_str()) {
            return RecordValue::Text(fill_in(text));
        }
        let values = |kind: &str| value[kind]["values"].as_array();
        if let Some(items) = values("arrayValue") {
            return RecordValue::List(items.iter().map(|item| RecordValue::of(item, fill_in)).collect());
        }
        let fields = values("kvlistValue").into_iter().flatten();
        let field = |field: &Value| {
            let key = field["key"].as_str().unwrap_or_default().to_owned();
            (key, RecordValue::of(&field["value"], fill_in))
        };
        RecordValue::Map(fields.map(field).collect())
    }
}

/// Traffic that a log is about: direction, client and server.
struct Traffic<'a> {
    direction: Direction,
    source: &'a str,
    destination: &'a str,
    requests: bool,
}

/// Makes the logs of one proxy, or of a class of proxies.
pub(crate) struct Logs<'a> {
    snapshot: &'a MeshSnapshot,
    names: NamingScheme,
    effective: &'a Effective<'a>,
    reporter: &'a Reporter,
    applying: &'a Applying,
    system_ca_path: Option<&'a str>,
    /// Every collector that a policy names, in an order that does not depend on who asks.
    collectors: Vec<(&'a Kri, &'a OpenTelemetryBackend)>,
}

impl<'a> Logs<'a> {
    pub fn of(
        snapshot: &'a MeshSnapshot,
        names: NamingScheme,
        effective: &'a Effective<'a>,
        reporter: &'a Reporter,
        system_ca_path: Option<&'a str>,
    ) -> Logs<'a> {
        let applying = effective.applying();
        let collectors = collectors(applying);
        Logs { snapshot, names, effective, reporter, applying, system_ca_path, collectors }
    }

    /// The clusters of all collectors that policies name, and what of all this cannot be had.
    pub fn clusters(&self, traits: &ProxyTraits, findings: &mut Vec<Finding>) -> Vec<Collector> {
        let unavailable = |code: Code, policy: &Kri, collector: &str, reason: &str| {
            let text = format!("logs cannot be sent to {collector}: {reason}");
            Finding::about(code, policy.clone(), text)
        };
        let mut made = Vec::new();
        for (policy, backend) in &self.collectors {
            let named = backend.endpoint.as_deref().unwrap_or(Kind::MeshOpenTelemetryBackend.name());
            match self.find(backend) {
                Ok(place) => {
                    let cluster = self.cluster(backend, &place);
                    made.push(place.collector(cluster, traits));
                }
                Err((code, reason)) => findings.push(unavailable(code, policy, named, &reason)),
            }
        }
        if self.reporter.pipe.is_empty() {
            let reason = "the proxy's agent did not say where its work directory is";
            for (policy, backend) in backends(self.applying) {
                let finding =
                    |tcp: &TcpBackend| unavailable(Code::UnusableCollector, policy, &tcp.address, reason);
                let finding = backend.tcp.as_ref().map(finding);
                findings.extend(finding.filter(|finding| !findings.contains(finding)));
            }
        }
        made
    }

    /// Rules about the same clients override each other; rules about different ones stand beside each other.
    pub fn of_inbound(&self, rules: &[InboundRule], service: Option<&str>, requests: bool) -> Vec<AccessLog> {
        let mut clients: Vec<Option<ClientMatch>> = Vec::new();
        let client_of = |rule: &InboundRule| match &rule.client {
            Some(client) => ClientMatch::of(client).map(Some),
            None => Some(None),
        };
        for client in rules.iter().filter_map(client_of) {
            if !clients.contains(&client) {
                clients.push(client);
            }
        }
        let mut logs = Vec::new();
        for client in clients {
            let about = rules.iter().filter(|rule| client_of(rule).as_ref() == Some(&client));
            let confs: Vec<_> = about.map(|rule| rule.conf.clone()).collect();
            let merged = conf::merged(&confs, Shape::default());
            let Some(conf) = merged.first().and_then(|merged| merged.typed::<Conf>().ok()) else { continue };
            let traffic = Traffic {
                direction: Direction::Inbound,
                source: UNKNOWN,
                destination: service.unwrap_or(UNKNOWN),
                requests,
            };
            let only = client.map_or(LogFilter::Everything, LogFilter::Client);
            logs.extend(self.of_conf(&conf, &traffic, &only));
        }
        logs
    }

    /// The logs of what is let out of the mesh.
    pub fn of_passthrough(&self) -> Vec<AccessLog> {
        let rules = self.effective.outbound(Kind::MeshAccessLog);
        let rule = self.snapshot.mesh.kri("").and_then(|mesh| rules.for_destination(&mesh));
        let merged = rule.and_then(|rule| rule.merged().first());
        let Some(conf) = merged.and_then(|merged| merged.typed::<Conf>().ok()) else { return Vec::new() };
        let traffic = self.outgoing(OUTSIDE, false);
        self.of_conf(&conf, &traffic, &LogFilter::Everything)
    }

    /// The logs of an outbound: those of the destination, and of routes that have their own.
    pub fn of_outbound(&self, destination: &DestinationId, routing: &Routing) -> Vec<AccessLog> {
        let name = match destination {
            DestinationId::Port(kri) => kri.name.as_str(),
            DestinationId::Tags(tags) => tags.get(resources::labels::SERVICE).map_or(UNKNOWN, String::as_str),
        };
        let routes: &[Route] = match routing {
            Routing::Requests(routes) => routes,
            Routing::Connections(_) => &[],
        };
        let traffic = self.outgoing(name, matches!(routing, Routing::Requests(_)));
        let own = self.of_routes(routes);
        let named: Vec<String> = own.iter().flat_map(|(names, _)| names.iter().cloned()).collect();
        let others = if named.is_empty() { LogFilter::Everything } else { LogFilter::OtherRoutes(named) };
        let mut logs = Vec::new();
        if let Ok(Some(found)) = self.effective.conf::<MeshAccessLog>(destination) {
            logs.extend(self.of_conf(&found.conf, &traffic, &others));
        }
        for (names, found) in own {
            logs.extend(self.of_conf(&found.conf, &traffic, &LogFilter::Routes(names)));
        }
        logs
    }

    /// The routes that have a conf of their own, by MeshHTTPRoute.
    fn of_routes(&self, routes: &[Route]) -> Vec<(Vec<String>, EffectiveConf<Conf>)> {
        let mut found: Vec<(Kri, Vec<String>, EffectiveConf<Conf>)> = Vec::new();
        for route in routes {
            let Some(origin) = route.origin.as_ref().map(Kri::without_section) else { continue };
            if let Some((_, names, _)) = found.iter_mut().find(|(known, ..)| *known == origin) {
                if !names.contains(&route.name) {
                    names.push(route.name.clone());
                }
                continue;
            }
            if let Ok(Some(conf)) = self.effective.conf_only_of_route::<MeshAccessLog>(&origin) {
                found.push((origin, vec![route.name.clone()], conf));
            }
        }
        found.into_iter().map(|(_, names, conf)| (names, conf)).collect()
    }

    fn outgoing<'t>(&'t self, destination: &'t str, requests: bool) -> Traffic<'t> {
        Traffic { direction: Direction::Outbound, source: &self.reporter.service, destination, requests }
    }

    fn of_conf(&self, conf: &Conf, traffic: &Traffic<'_>, only: &LogFilter) -> Vec<AccessLog> {
        let backends = conf.backends.iter().flatten();
        let sinks = backends.filter_map(|backend| self.sink(backend, traffic));
        sinks.map(|sink| AccessLog { only: only.clone(), sink }).collect()
    }

    /// `None` where a log cannot go, of which [`Logs::clusters`] tells.
    fn sink(&self, backend: &Backend, traffic: &Traffic<'_>) -> Option<LogSink> {
        let Backend { tcp, file, open_telemetry, .. } = backend;
        if let Some(FileBackend { path, format }) = file {
            return Some(LogSink::File { path: path.clone(), line: self.line(format.as_ref(), traffic) });
        }
        if let Some(TcpBackend { address, format }) = tcp {
            let pipe = Some(self.reporter.pipe.clone()).filter(|pipe| !pipe.is_empty())?;
            let line = self.line(format.as_ref(), traffic);
            return Some(LogSink::Agent { pipe, address: address.clone(), line });
        }
        let backend = open_telemetry.as_ref()?;
        let place = self.find(backend).ok()?;
        let fill_in = |text: &str| self.fill_in(text, traffic);
        let body = match &backend.body {
            Some(body) => RecordValue::of(body, &fill_in),
            None => RecordValue::Text(fill_in(usual(traffic))),
        };
        let attributes = backend.attributes.iter().flatten();
        Some(LogSink::OpenTelemetry(Record {
            cluster: self.cluster(backend, &place).0,
            url: place.url,
            body,
            attributes: attributes.map(|one| (one.key.clone(), fill_in(&one.value))).collect(),
            resource: resource(&self.snapshot.name, self.reporter),
        }))
    }

    fn line(&self, format: Option<&Format>, traffic: &Traffic<'_>) -> AccessLogFormat {
        let omit_empty = format.and_then(|format| format.omit_empty_values).unwrap_or(false);
        if let Some(fields) = format.and_then(|format| format.json.as_ref()) {
            let field = |(key, value): (&String, &String)| (key.clone(), self.fill_in(value, traffic));
            let fields = fields.iter().map(|one| field((&one.key, &one.value))).collect();
            return AccessLogFormat::Json { fields, omit_empty };
        }
        let plain = format.and_then(|format| format.plain.as_deref()).filter(|plain| !plain.is_empty());
        let text = self.fill_in(plain.unwrap_or(usual(traffic)), traffic) + "\n";
        AccessLogFormat::Text { text, omit_empty }
    }

    fn fill_in(&self, text: &str, traffic: &Traffic<'_>) -> String {
        let reporter = self.reporter;
        format::interpolate(text, |name| match name {
            "KUMA_MESH" => Some(self.snapshot.name.to_string()),
            "KUMA_ZONE" => Some(reporter.zone.clone()),
            "KUMA_WORKLOAD" => Some(reporter.workload.clone()),
            "KUMA_SOURCE_SERVICE" => Some(traffic.source.to_owned()),
            "KUMA_DESTINATION_SERVICE" => Some(traffic.destination.to_owned()),
            "KUMA_SOURCE_ADDRESS_WITHOUT_PORT" => Some(reporter.address.clone()),
            "KUMA_SOURCE_ADDRESS" if reporter.address.contains(':') => {
                Some(format!("[{}]:0", reporter.address))
            }
            "KUMA_SOURCE_ADDRESS" => Some(format!("{}:0", reporter.address)),
            "KUMA_TRAFFIC_DIRECTION" => Some(
                match traffic.direction {
                    Direction::Inbound => "INBOUND",
                    Direction::Outbound => "OUTBOUND",
                }
                .to_owned(),
            ),
            _ => None,
        })
    }

    fn find(&self, backend: &OpenTelemetryBackend) -> Result<CollectorAddress, Unavailable> {
        let named = (backend.endpoint.as_deref(), backend.backend_ref.as_ref());
        CollectorAddress::of_opentelemetry(self.snapshot, named, SIGNAL, self.system_ca_path)
    }

    fn cluster(&self, backend: &OpenTelemetryBackend, place: &CollectorAddress) -> (String, Option<String>) {
        let index = self.collectors.iter().position(|(_, known)| same_collector(known, backend));
        let at = place.host.as_deref().map(|host| (host, place.port));
        self.names.access_log(index.unwrap_or_default(), at, &place.name)
    }
}

fn usual(traffic: &Traffic<'_>) -> &'static str {
    if traffic.requests { OF_REQUESTS } else { OF_CONNECTIONS }
}

/// Returns the attributes that all records and spans of a proxy have in common.
pub(crate) fn resource(mesh: &str, reporter: &Reporter) -> Vec<(String, String)> {
    let fields = [("kuma.mesh", mesh), ("kuma.zone", &reporter.zone), ("kuma.workload", &reporter.workload)];
    let known = fields.into_iter().filter(|(_, value)| !value.is_empty());
    known.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Every backend of the policies. Those of `to` come first, because planning calls knows no others, and older names
/// of clusters count them.
fn backends(applying: &Applying) -> impl Iterator<Item = (&Kri, &Backend)> {
    let specs = || {
        let policies = applying.of_kind(Kind::MeshAccessLog).iter();
        policies.filter_map(|policy| Some((&policy.view.kri, policy.resource.spec.get::<MeshAccessLog>()?)))
    };
    let to = specs().flat_map(|(kri, spec)| spec.to.iter().map(move |entry| (kri, &entry.default)));
    let from = specs().flat_map(|(kri, spec)| spec.from.iter().map(move |entry| (kri, &entry.default)));
    let rules = specs().flat_map(|(kri, spec)| spec.rules.iter().map(move |rule| (kri, &rule.default)));
    let confs = to.chain(from).chain(rules);
    confs.flat_map(|(kri, conf)| conf.backends.iter().flatten().map(move |backend| (kri, backend)))
}

/// Every collector of OpenTelemetry that a policy names, each once.
fn collectors(applying: &Applying) -> Vec<(&Kri, &OpenTelemetryBackend)> {
    let mut found: Vec<(&Kri, &OpenTelemetryBackend)> = Vec::new();
    for (policy, backend) in backends(applying) {
        let Some(backend) = &backend.open_telemetry else { continue };
        if !found.iter().any(|(_, known)| same_collector(known, backend)) {
            found.push((policy, backend));
        }
    }
    found
}

fn same_collector(a: &OpenTelemetryBackend, b: &OpenTelemetryBackend) -> bool {
    (&a.endpoint, &a.backend_ref) == (&b.endpoint, &b.backend_ref)
}
