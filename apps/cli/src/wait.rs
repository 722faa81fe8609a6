//! `wait TYPE NAME --for=…`: returns when a resource is in the wanted state.

use std::{
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use resources::Kind;
use serde_json::Value;

use crate::{
    cell::{number, text},
    client::{Answer, Client, parse_timeout},
    failure::{Failure, Result},
    insight,
    proxy::status,
    target::{OneResource, Target},
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
    #[arg(long = "for", value_name = "STATE", value_parser = State::parse)]
    state: State,
    /// How long to wait; 0s looks once
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_timeout)]
    timeout: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Online,
    Synced,
    Ready,
    Deleted,
    Condition(String),
}

impl State {
    fn parse(text: &str) -> std::result::Result<State, String> {
        match text {
            "online" => Ok(State::Online),
            "synced" => Ok(State::Synced),
            "ready" => Ok(State::Ready),
            "deleted" | "delete" => Ok(State::Deleted),
            other => match other.strip_prefix("condition=").filter(|name| !name.is_empty()) {
                Some(name) => Ok(State::Condition(name.to_owned())),
                None => Err("it is online, synced, ready, deleted or condition=NAME".to_owned()),
            },
        }
    }
}

/// What one look found.
enum Look {
    Reached,
    /// What is missing.
    Missing(String),
}

impl Wait {
    pub fn run(&self, client: &Client) -> Result<()> {
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
            State::Online => kind.kind.is_some_and(|kind| kind.descriptor().insight.is_some()),
            State::Synced => kind.kind == Some(Kind::Dataplane),
            State::Ready => {
                kind.kind.is_none_or(|kind| kind == Kind::Dataplane || kind.descriptor().has_status)
            }
            State::Condition(_) => kind.kind.is_none_or(|kind| kind.descriptor().has_status),
            State::Deleted => true,
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

    fn path(&self, target: &Target) -> String {
        let item = target.path();
        let connects = target.kind.kind.is_some_and(|kind| kind.descriptor().insight.is_some());
        if connects && self.state != State::Deleted { format!("{item}/_overview") } else { item }
    }

    fn look(&self, target: &Target, get: &dyn Fn(&str) -> Result<Answer>) -> Result<Look> {
        let found = match get(&self.path(target)) {
            Ok(answer) => self.judge(target, answer)?,
            // It may be starting.
            Err(unreachable) => return Ok(Look::Missing(unreachable.to_string())),
        };
        let is_proxy = target.kind.kind == Some(Kind::Dataplane);
        match found {
            Look::Reached if is_proxy && matches!(self.state, State::Synced | State::Ready) => {
                follows(get(&format!("{}/_sync", target.path())))
            }
            found => Ok(found),
        }
    }

    /// What the resource, or its overview, says.
    fn judge(&self, target: &Target, answer: Answer) -> Result<Look> {
        let (kind, what) = (&target.kind, target.describe());
        // A mesh that is gone took the resource with it; one that is not there yet may come.
        if answer.status == 404 {
            return Ok(match self.state {
                State::Deleted => Look::Reached,
                _ => Look::Missing(format!("there is no {what}")),
            });
        }
        // Overload and restarts pass.
        if answer.status >= 500 {
            return Ok(Look::Missing(answer.refusal()));
        }
        let found = answer.json(&format!("could not look at {what}"))?;
        let missing = match &self.state {
            State::Deleted => Some("it exists".to_owned()),
            State::Online => offline(kind, &found),
            State::Synced => unsynced(&found),
            State::Ready if kind.kind == Some(Kind::Dataplane) => {
                unsynced(&found).or_else(|| unready(&found))
            }
            State::Ready if !found["status"]["dataplaneProxies"].is_null() => unserved(&found),
            State::Ready => without_condition(&found, "Ready"),
            State::Condition(name) => without_condition(&found, name),
        };
        Ok(missing.map_or(Look::Reached, Look::Missing))
    }
}

impl State {
    fn name(&self) -> String {
        match self {
            State::Online => "online".to_owned(),
            State::Synced => "synced".to_owned(),
            State::Ready => "ready".to_owned(),
            State::Deleted => "deleted".to_owned(),
            State::Condition(name) => format!("in condition {name}"),
        }
    }
}

/// Why something is not connected, if it is not.
fn offline(kind: &Type, overview: &Value) -> Option<String> {
    let kind = kind.kind.and_then(|kind| kind.descriptor().insight);
    let insight = kind.map_or(&Value::Null, |kind| insight::of(kind, overview));
    if insight::is_online(insight) {
        return None;
    }
    Some(match insight::last_connected(insight).as_str() {
        "never" => "it has never connected".to_owned(),
        ago => format!("it is offline; its last connection began {ago} ago"),
    })
}

/// Whether a proxy runs what every change made until now comes to. Its insight is written now and then, and may be older
/// than the change that is waited for.
fn follows(asked: Result<Answer>) -> Result<Look> {
    let answer = match asked {
        Ok(answer) if answer.status >= 500 => return Ok(Look::Missing(answer.refusal())),
        // Kuma does not answer this; its insight is all there is.
        Ok(answer) if answer.status == 404 => return Ok(Look::Reached),
        Ok(answer) => answer.json("could not find out whether the proxy follows")?,
        Err(unreachable) => return Ok(Look::Missing(unreachable.to_string())),
    };
    Ok(match answer["state"].as_str() {
        Some("behind") => Look::Missing("it has not acknowledged the last changes yet".to_owned()),
        Some("rejected") => Look::Missing("it rejected a part of the last changes".to_owned()),
        // One that is connected to another control plane has its insight only.
        _ => Look::Reached,
    })
}

fn unsynced(overview: &Value) -> Option<String> {
    let of = status::status(overview);
    match of["state"].as_str() {
        Some("synced") => None,
        Some("offline") => offline(&Type::of_kind(Kind::Dataplane), overview),
        Some("rejected") => {
            let rejection = &of["rejections"][0];
            let (name, message) = (text(&rejection["name"]), text(&rejection["message"]));
            Some(format!("it rejected {name}: {message}"))
        }
        Some(_) => {
            let stale = of["types"].as_object().into_iter().flatten();
            let stale = stale.filter(|(_, of)| of["state"] == "stale").map(|(kind, _)| kind.to_uppercase());
            Some(format!(
                "it has not answered yet to what it was sent ({})",
                stale.collect::<Vec<_>>().join(", ")
            ))
        }
        None => Some("nothing was sent to it yet".to_owned()),
    }
}

/// Which inbounds of a proxy do not take traffic.
fn unready(overview: &Value) -> Option<String> {
    let inbounds = overview["dataplane"]["networking"]["inbound"].as_array();
    let waiting: Vec<String> = inbounds
        .into_iter()
        .flatten()
        .filter(|inbound| inbound["state"] == "NotReady" || inbound["health"]["ready"] == false)
        .map(|inbound| text(&inbound["port"]))
        .collect();
    (!waiting.is_empty()).then(|| format!("the application is not ready on port {}", waiting.join(", ")))
}

/// Why no proxy takes the calls of a service.
fn unserved(service: &Value) -> Option<String> {
    let of = &service["status"]["dataplaneProxies"];
    let count = |field: &str| number(&of[field]);
    match (count("total"), count("connected"), count("healthy")) {
        (0, ..) => Some("it selects no proxy".to_owned()),
        (total, 0, _) => Some(format!("none of its {total} proxies is connected")),
        (total, _, 0) => Some(format!("none of its {total} proxies is healthy")),
        _ => None,
    }
}

fn without_condition(found: &Value, name: &str) -> Option<String> {
    let conditions = found["status"]["conditions"].as_array();
    match conditions.into_iter().flatten().find(|condition| condition["type"] == name) {
        Some(condition) if condition["status"] == "True" => None,
        Some(condition) => {
            let words = [text(&condition["reason"]), text(&condition["message"])];
            let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
            Some(format!("condition {name} is {}: {}", text(&condition["status"]), words.join(": ")))
        }
        None => Some(format!("its status has no condition {name}")),
    }
}
