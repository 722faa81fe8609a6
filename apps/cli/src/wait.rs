//! `wait TYPE NAME --for=…`: returns when a resource is in the wanted state.

use std::{
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use contract::{
    lenient::read_partly,
    overview::DataplaneOverview,
    resource::{ShownResource, SpecAndStatus},
    sync::{ProxySync, ProxySyncState},
};
use resources::{
    Kind, NoStatus,
    kinds::{dataplane::InboundState, service_status::Condition, workload::Proxies},
};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    cell::{ago, line},
    client::{ApiClient, ApiResponse, parse_timeout},
    failure::{Failure, Result},
    insight::Connection,
    proxy::status::{self, ProxyStatus},
    target::{NamedResource, OneResource},
    terminal,
    types::Type,
};

/// The pauses between two looks: short at first, because most things happen soon.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  kumactl wait dataplane web-1 --for=synced
  kumactl wait dataplane web-1 --for=online --timeout 2m
  kumactl wait meshservice backend --for=ready
  kumactl wait meshidentity default --for=condition=Ready
  kumactl wait zone east --for=online
  kumactl wait meshtimeout slow --for=deleted

States:
  online         the proxy or zone is connected to a control plane
  synced         the proxy is online and has acknowledged every change that was
                 made before this command and affects it
  ready          a proxy is synced and its inbounds take traffic, a service has a
                 healthy proxy, anything else has the condition Ready
  deleted        there is no such resource
  condition=X    the status has the condition X, and it is True
Exit codes:
  0  the state is reached
  1  it was not reached in time; stderr says what is missing";

/// Wait until a resource is in a state
///
/// A resource that does not exist yet is waited for, and so is a control plane that cannot be reached.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Wait {
    #[command(flatten)]
    resource: OneResource,
    /// State to wait for: online, synced, ready, deleted or condition=NAME
    #[arg(long = "for", value_name = "STATE", value_parser = AwaitedState::parse)]
    state: AwaitedState,
    /// Longest wait; 0s looks once
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_timeout)]
    timeout: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum AwaitedState {
    Online,
    Synced,
    Ready,
    Deleted,
    Condition(String),
}

impl AwaitedState {
    fn parse(text: &str) -> std::result::Result<AwaitedState, String> {
        match text {
            "online" => Ok(AwaitedState::Online),
            "synced" => Ok(AwaitedState::Synced),
            "ready" => Ok(AwaitedState::Ready),
            "deleted" | "delete" => Ok(AwaitedState::Deleted),
            other => match other.strip_prefix("condition=").filter(|name| !name.is_empty()) {
                Some(name) => Ok(AwaitedState::Condition(name.to_owned())),
                None => Err("it is online, synced, ready, deleted or condition=NAME".to_owned()),
            },
        }
    }
}

/// Result of one look.
enum Look {
    Reached,
    /// Missing condition.
    Missing(String),
}

impl Wait {
    pub fn run(&self, client: &ApiClient) -> Result<()> {
        let target = self.resource.target(client)?;
        self.check(&target.kind)?;
        let started = Instant::now();
        let what = target.describe();
        let mut pause = FIRST_PAUSE;
        loop {
            let get = |path: &str| {
                // Looking once takes the time it takes.
                let left = (!self.timeout.is_zero()).then(|| self.timeout.saturating_sub(started.elapsed()));
                client.get_within(path, left)
            };
            let missing = match self.look(&target, &get)? {
                Look::Reached => {
                    terminal::talk(&format!("{what} is {}", self.state.name()));
                    return Ok(());
                }
                Look::Missing(missing) => missing,
            };
            let left = self.timeout.saturating_sub(started.elapsed());
            if left.is_zero() {
                let after =
                    if self.timeout.is_zero() { String::new() } else { format!(" after {:?}", self.timeout) };
                let state = self.state.name();
                return Err(Failure::failed(format!("{what} is not {state}{after}: {missing}")));
            }
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// A state that resources of the type never have is a mistake.
    fn check(&self, kind: &Type) -> Result<()> {
        let possible = match &self.state {
            AwaitedState::Online => kind.kind.is_some_and(|kind| kind.descriptor().insight.is_some()),
            AwaitedState::Synced => kind.kind == Some(Kind::Dataplane),
            AwaitedState::Ready => {
                kind.kind.is_none_or(|kind| kind == Kind::Dataplane || kind.descriptor().has_status)
            }
            AwaitedState::Condition(_) => kind.kind.is_none_or(|kind| kind.descriptor().has_status),
            AwaitedState::Deleted => true,
        };
        if possible {
            return Ok(());
        }
        let states = match kind.kind {
            Some(Kind::Dataplane) => "online, synced, ready or deleted",
            Some(kind) if kind.descriptor().insight.is_some() => "online or deleted",
            Some(kind) if kind.descriptor().has_status => "ready, condition=NAME or deleted",
            _ => "deleted",
        };
        Err(Failure::invalid(format!("a {} is never {}: wait for {states}", kind.name, self.state.name())))
    }

    fn path(&self, target: &NamedResource) -> String {
        let item = target.path();
        let connects = target.kind.kind.is_some_and(|kind| kind.descriptor().insight.is_some());
        if connects && self.state != AwaitedState::Deleted { format!("{item}/_overview") } else { item }
    }

    fn look(&self, target: &NamedResource, get: &dyn Fn(&str) -> Result<ApiResponse>) -> Result<Look> {
        let found = match get(&self.path(target)) {
            Ok(answer) => self.judge(target, answer)?,
            // It may be starting.
            Err(unreachable) => return Ok(Look::Missing(unreachable.to_string())),
        };
        let is_proxy = target.kind.kind == Some(Kind::Dataplane);
        match found {
            Look::Reached if is_proxy && matches!(self.state, AwaitedState::Synced | AwaitedState::Ready) => {
                follows(get(&format!("{}/_sync", target.path())))
            }
            found => Ok(found),
        }
    }

    /// Looks at the resource, or its overview.
    fn judge(&self, target: &NamedResource, answer: ApiResponse) -> Result<Look> {
        let kind = &target.kind;
        let what = target.describe();
        // A mesh that is gone took the resource with it; one that is not there yet may come.
        if answer.status == 404 {
            return Ok(match self.state {
                AwaitedState::Deleted => Look::Reached,
                _ => Look::Missing(format!("there is no {what}")),
            });
        }
        // Overload and restarts pass.
        if answer.status >= 500 {
            return Ok(Look::Missing(answer.refusal()));
        }
        let found = answer.json(&format!("could not look at {what}"))?;
        let missing = match &self.state {
            AwaitedState::Deleted => Some("it exists".to_owned()),
            AwaitedState::Online => offline(kind, &found),
            AwaitedState::Synced => unsynced(&ShownResource::read(&found)),
            AwaitedState::Ready if kind.kind == Some(Kind::Dataplane) => {
                let overview = ShownResource::read(&found);
                unsynced(&overview).or_else(|| unready(&overview.of))
            }
            AwaitedState::Ready => {
                let status = Observed::of(&found);
                match &status.dataplane_proxies {
                    Some(proxies) => unserved(proxies),
                    None => status.without_condition("Ready"),
                }
            }
            AwaitedState::Condition(name) => Observed::of(&found).without_condition(name),
        };
        Ok(missing.map_or(Look::Reached, Look::Missing))
    }
}

impl AwaitedState {
    fn name(&self) -> String {
        match self {
            AwaitedState::Online => "online".to_owned(),
            AwaitedState::Synced => "synced".to_owned(),
            AwaitedState::Ready => "ready".to_owned(),
            AwaitedState::Deleted => "deleted".to_owned(),
            AwaitedState::Condition(name) => format!("in condition {name}"),
        }
    }
}

/// Reason why something is not connected, if it is not.
fn offline(kind: &Type, overview: &Value) -> Option<String> {
    let insight = kind.kind.and_then(|kind| kind.descriptor().insight);
    unconnected(&insight.map(|insight| Connection::of(insight, overview)).unwrap_or_default())
}

fn unconnected(connection: &Connection) -> Option<String> {
    if connection.online {
        return None;
    }
    Some(match connection.connect_time {
        None => "it has never connected".to_owned(),
        began => format!("it is offline; its last connection began {} ago", ago(began)),
    })
}

/// True if a proxy runs the result of every change made until now. Its insight is written now and then, and may be
/// older than the change that is waited for.
fn follows(asked: Result<ApiResponse>) -> Result<Look> {
    let answer = match asked {
        Ok(answer) if answer.status >= 500 => return Ok(Look::Missing(answer.refusal())),
        // Kuma does not answer this; its insight is all there is.
        Ok(answer) if answer.status == 404 => return Ok(Look::Reached),
        Ok(answer) => answer.json("could not find out whether the proxy follows")?,
        Err(unreachable) => return Ok(Look::Missing(unreachable.to_string())),
    };
    Ok(match read_partly::<ProxySync>(&answer).state {
        ProxySyncState::Behind => Look::Missing("it has not acknowledged the last changes yet".to_owned()),
        ProxySyncState::Rejected => Look::Missing("it rejected a part of the last changes".to_owned()),
        // One that is connected to another control plane has its insight only.
        ProxySyncState::Synced | ProxySyncState::Unknown => Look::Reached,
    })
}

fn unsynced(overview: &ShownResource<DataplaneOverview>) -> Option<String> {
    let of = ProxyStatus::read(overview);
    match of.state {
        Some(status::State::Synced) => None,
        Some(status::State::Offline) => {
            unconnected(&Connection::newest(&overview.of.dataplane_insight.subscriptions))
        }
        Some(status::State::Rejected) => {
            // It is in this state because of one.
            of.rejections.first().map(|it| format!("it rejected {}: {}", line(&it.name), line(&it.message)))
        }
        Some(status::State::Stale) => {
            let stale = of.types.iter().filter(|(_, of)| of.state == Some(status::State::Stale));
            let stale: Vec<String> = stale.map(|(kind, _)| kind.to_uppercase()).collect();
            Some(format!("it has not answered yet to what it was sent ({})", stale.join(", ")))
        }
        None => Some("nothing was sent to it yet".to_owned()),
    }
}

/// Inbounds of a proxy that do not take traffic.
fn unready(of: &DataplaneOverview) -> Option<String> {
    let inbounds = of.dataplane.networking.iter().flat_map(|networking| &networking.inbound);
    let waiting: Vec<String> = inbounds
        .filter(|inbound| {
            let unhealthy = inbound.health.as_ref().is_some_and(|health| !health.ready);
            inbound.state == InboundState::NotReady || unhealthy
        })
        .map(|inbound| inbound.port.to_string())
        .collect();
    (!waiting.is_empty()).then(|| format!("the application is not ready on port {}", waiting.join(", ")))
}

/// The parts of statuses that say whether a resource of any kind is ready.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Observed {
    conditions: Vec<Condition>,
    dataplane_proxies: Option<Proxies>,
}

impl Observed {
    fn of(resource: &Value) -> Observed {
        read_partly::<SpecAndStatus<NoStatus, Observed>>(resource).status
    }

    fn without_condition(&self, name: &str) -> Option<String> {
        match self.conditions.iter().find(|condition| condition.type_ == name) {
            Some(condition) if condition.status == "True" => None,
            Some(condition) => {
                let mut words = vec![line(&condition.reason), line(&condition.message)];
                words.retain(|word| !word.is_empty());
                Some(format!("condition {name} is {}: {}", line(&condition.status), words.join(": ")))
            }
            None => Some(format!("its status has no condition {name}")),
        }
    }
}

/// Reason why no proxy takes the calls of a service.
fn unserved(proxies: &Proxies) -> Option<String> {
    match proxies {
        Proxies { total: 0, .. } => Some("it selects no proxy".to_owned()),
        Proxies { total, connected: 0, .. } => Some(format!("none of its {total} proxies is connected")),
        Proxies { total, healthy: 0, .. } => Some(format!("none of its {total} proxies is healthy")),
        Proxies { .. } => None,
    }
}
