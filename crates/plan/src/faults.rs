//! Faults made on purpose: MeshFaultInjection.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use policy::{ClientMatch, Conf, FromRule, InboundRule};
use resources::{
    duration::GoDuration,
    kinds::{int_or_string::IntOrString, mesh_fault_injection as written},
    naming::Kri,
    policy::Shape,
};

/// Percents are written in millionths, and 100 of them are all.
const PERCENTS_OF_ALL: i64 = 100;
const ALL: i64 = 1_000_000;
/// Smaller statuses do not end a response.
const FINAL_STATUSES: std::ops::Range<i32> = 200..600;

/// The faults of requests to an inbound.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// Of `from`: the first that matches a client decides.
    pub by_client: Vec<ClientFaults>,
    /// Of `rules`: each one that matches a client counts.
    pub by_rule: Vec<RuleFaults>,
}

/// The faults of requests of certain clients.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientFaults {
    pub client: ClientMatch,
    pub faults: Vec<Fault>,
}

/// The faults that one rule asks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RuleFaults {
    /// The policy of the rule.
    pub policy: Kri,
    /// Clients whose requests are affected; `None` affects everyone's.
    pub clients: Option<Vec<ClientMatch>>,
    pub faults: Vec<Fault>,
}

/// One fault; its parts are independent of each other, and one is given at least.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Fault {
    /// Answer with this status instead of the application.
    pub abort: Option<FaultShare<u16>>,
    /// Hold the request back.
    pub delay: Option<FaultShare<Duration>>,
    /// Send the response with so many kbps.
    pub bandwidth: Option<FaultShare<u32>>,
}

/// Event that happens to a share of all requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FaultShare<T> {
    pub what: T,
    pub millionths: u32,
}

impl Faults {
    pub(crate) fn of_inbound(from: &[FromRule], rules: &[InboundRule]) -> Faults {
        Faults { by_client: of_from(from), by_rule: of_rules(rules) }
    }

    /// Every group of clients that rules distinguish.
    pub fn clients(&self) -> impl Iterator<Item = &ClientMatch> {
        let of_rules = self.by_rule.iter().filter_map(|rule| rule.clients.as_ref()).flatten();
        self.by_client.iter().map(|own| &own.client).chain(of_rules)
    }
}

/// `entries` come from the highest precedence to the lowest.
fn of_from(entries: &[FromRule]) -> Vec<ClientFaults> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for FromRule { client, conf } in entries {
        let (Some(client), Some(faults)) = (client, faults_of(conf)) else { continue };
        if seen.insert(client) {
            found.push(ClientFaults { client: client.clone(), faults });
        }
        if *client == ClientMatch::Anyone {
            break;
        }
    }
    // Without an entry there are no faults either.
    let needed = found.iter().rposition(|own| !own.faults.is_empty()).map_or(0, |last| last + 1);
    found.truncate(needed);
    found
}

/// One for each rule, whatever the number of its matches: a client that two of them mean gets its faults
/// once.
fn of_rules(rules: &[InboundRule]) -> Vec<RuleFaults> {
    let mut found: Vec<RuleFaults> = Vec::new();
    let mut known: HashMap<&Kri, usize> = HashMap::new();
    for rule in rules {
        let clients = rule.client.as_ref().map(|client| ClientMatch::of(client).into_iter().collect());
        let at = known.get(&rule.conf.origin).and_then(|&at| found.get_mut(at));
        match at {
            Some(RuleFaults { clients: Some(same), .. }) => same.extend(clients.into_iter().flatten()),
            Some(RuleFaults { clients: None, .. }) => {}
            None => {
                known.insert(&rule.conf.origin, found.len());
                let faults = faults_of(&rule.conf).unwrap_or_default();
                found.push(RuleFaults { policy: rule.conf.origin.without_section(), clients, faults });
            }
        }
    }
    let meant = |rule: &RuleFaults| rule.clients.as_ref().is_none_or(|clients| !clients.is_empty());
    found.retain(|rule| !rule.faults.is_empty() && meant(rule));
    found
}

/// `None` where an entry says nothing.
fn faults_of(conf: &Arc<Conf>) -> Option<Vec<Fault>> {
    let merged = policy::conf::merged(std::slice::from_ref(conf), Shape::default());
    let typed = merged.first()?.typed::<written::Conf>().ok()?;
    let faults = typed.http.as_ref()?.iter().map(Fault::of);
    Some(faults.filter(|fault| *fault != Fault::default()).collect())
}

impl Fault {
    /// Without the parts that no proxy can do; they are refused when a policy is written.
    fn of(fault: &written::Fault) -> Fault {
        let abort = fault.abort.as_ref().filter(|abort| FINAL_STATUSES.contains(&abort.http_status));
        let delay = fault.delay.as_ref().and_then(|delay| {
            let time = delay.value.and_then(GoDuration::to_std).filter(|time| !time.is_zero())?;
            Some(FaultShare::of(time, delay.percentage.as_ref()))
        });
        Fault {
            abort: abort.and_then(|abort| {
                Some(FaultShare::of(u16::try_from(abort.http_status).ok()?, abort.percentage.as_ref()))
            }),
            delay,
            bandwidth: fault
                .response_bandwidth
                .as_ref()
                .and_then(|limit| Some(FaultShare::of(limit.kbps()?, limit.percentage.as_ref()))),
        }
    }
}

impl<T> FaultShare<T> {
    fn of(what: T, percentage: Option<&IntOrString>) -> FaultShare<T> {
        let percent = percentage.and_then(IntOrString::millionths).unwrap_or_default();
        let millionths = (percent / PERCENTS_OF_ALL).clamp(0, ALL);
        FaultShare { what, millionths: u32::try_from(millionths).unwrap_or_default() }
    }
}
