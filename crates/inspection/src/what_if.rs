//! Effects of changes, computed before they are made.
//!
//! ```text
//!   admitted changes ─▶ a copy of the topology ─▶ affected proxies ─▶ both plans, encoded ─▶ the difference
//!                                              └▶ permissions, before and after ─▶ who may call whom
//! ```
//!
//! Everything is worked out by the functions that configure proxies, on a copy of the state they are configured from;
//! nothing is written and no proxy is woken. What it costs follows what the changes concern, and is bounded: each part
//! has a budget of counted steps, which also ends when the asker is gone. The answer says what was not looked at.

mod edges;
mod policies;
mod targets;

use std::collections::{BTreeMap, HashMap};

use api::{inspect::what_if::Diffs, inspect::what_if::Hypothesis};
use contract::what_if::{
    WhatIfClass, WhatIfConsequences, WhatIfDiff, WhatIfProblem, WhatIfProxies, WhatIfResource,
    WhatIfResourceAction,
};
use plan::budget::Budget;
use serde_json::{Map, Value};
use serving::push::{Hypothetical, Push, Watcher};
use xds::Type;

use crate::proxies::redact;
pub use targets::{Difference, ProxyDifference, Targets};

/// Steps for comparing proxies: policies that are resolved, resources that are planned, half kilobytes that are encoded.
const COMPARING: usize = 400_000;
/// Steps for finding out who may call whom: rules that are looked at.
const CALLS: usize = 20_000_000;
/// Steps for finding policies without effect: proxies that are looked at, policies and outbounds that are planned.
const POLICIES: usize = 2_000_000;
/// Largest number of proxies that are compared.
const MAX_COMPARED: usize = 5000;
/// Largest numbers of proxies and resources that are named in a class, and of classes.
const MAX_NAMES: usize = 20;
const MAX_RESOURCES: usize = 100;
const MAX_CLASSES: usize = 200;
/// Maximum problems listed.
const MAX_PROBLEMS: usize = 50;
/// Largest number of proxies that are shown with their diff.
const MAX_DIFFS: usize = 20;

/// Works out what the changes would do.
pub fn answer(push: &Push, hypothesis: &Hypothesis) -> Result<WhatIfConsequences, envoy::json::Error> {
    let budget = |steps| Budget::new(steps, hypothesis.asker.gone());
    let would = push.what_if(&hypothesis.changes);
    let (proxies, problems) = proxies(push, &would, &hypothesis.diffs, &budget(COMPARING))?;
    let calls = edges::between(&would, &budget(CALLS));
    let policies = policies::idle(&would, &budget(POLICIES));
    let left_out = [
        (proxies.affected - proxies.compared, "affected proxies were not compared"),
        (calls.left_out, "services were not looked at for calls that would be allowed or denied"),
        (policies.left_out, "policies were not looked at for having no effect"),
    ];
    let not_looked_at = left_out.into_iter().filter(|(count, _)| *count > 0);
    Ok(WhatIfConsequences {
        proxies,
        problems,
        edges: edges::shown(calls),
        policies: policies::shown(policies),
        not_looked_at: not_looked_at.map(|(count, what)| format!("{count} {what}")).collect(),
    })
}

/// Compares what the proxies have with what they would get.
fn proxies(
    push: &Push,
    would: &Hypothetical,
    diffs: &Diffs,
    budget: &Budget,
) -> Result<(WhatIfProxies, Vec<WhatIfProblem>), envoy::json::Error> {
    let mut told = WhatIfProxies {
        connected: push.connected(),
        affected: would.proxies.len(),
        ..WhatIfProxies::default()
    };
    let mut targets = Targets::new(push, would, budget);
    let mut groups = Groups::default();
    let mut problems = Vec::new();
    for watcher in would.proxies.iter().take(MAX_COMPARED) {
        let Ok(compared) = targets.compare(watcher) else { break };
        told.compared += 1;
        note(&compared, watcher, &mut problems);
        if compared.is_empty() {
            continue;
        }
        told.changed += 1;
        let mesh = &*watcher.traits.mesh;
        let name = &*watcher.traits.name;
        if told.diffs.len() < MAX_DIFFS && diffs.wants(mesh, name) {
            let patch = patch(&compared)?;
            told.diffs.push(WhatIfDiff { mesh: mesh.to_owned(), name: name.to_owned(), patch });
        }
        groups.add(mesh, name, &compared);
    }
    told.classes = groups.classes;
    Ok((told, problems))
}

/// Adds what would be wrong with a proxy. Many proxies have one problem.
fn note(compared: &ProxyDifference, watcher: &Watcher, problems: &mut Vec<WhatIfProblem>) {
    let mesh = &*watcher.traits.mesh;
    let name = &*watcher.traits.name;
    for found in &compared.findings {
        let about = found.about.as_ref().map(ToString::to_string);
        let same = |known: &&mut WhatIfProblem| {
            known.code == found.code.name()
                && known.about == about
                && known.text == found.text
                && known.mesh == mesh
        };
        if let Some(known) = problems.iter_mut().find(same) {
            known.count += 1;
        } else if problems.len() < MAX_PROBLEMS {
            problems.push(WhatIfProblem {
                code: found.code.name().into(),
                about,
                text: found.text.clone(),
                mesh: mesh.to_owned(),
                proxy: name.to_owned(),
                count: 1,
            });
        }
    }
}

/// Proxies of which the same would change: the same shared resources, and as many of their own of each sort.
#[derive(Default)]
struct Groups {
    classes: Vec<WhatIfClass>,
    by_key: HashMap<Key, usize>,
}

/// Features shared by members of a class: the mesh, the shared difference, and how many of their own resources of each
/// type change in which way.
type Key = (String, u64, Vec<((Type, WhatIfResourceAction), usize)>);

impl Groups {
    fn add(&mut self, mesh: &str, name: &str, compared: &ProxyDifference) {
        let mut own: BTreeMap<(Type, WhatIfResourceAction), usize> = BTreeMap::new();
        for difference in &compared.own {
            *own.entry((difference.kind, difference.action())).or_default() += 1;
        }
        let key = (mesh.to_owned(), compared.shared_id(), own.into_iter().collect());
        let known = self.by_key.get(&key).copied();
        if let Some(class) = known.and_then(|at| self.classes.get_mut(at)) {
            class.count += 1;
            if class.proxies.len() < MAX_NAMES {
                class.proxies.push(name.to_owned());
            }
        } else if self.classes.len() < MAX_CLASSES {
            self.by_key.insert(key, self.classes.len());
            self.classes.push(class(mesh, name, compared));
        }
    }
}

fn class(mesh: &str, name: &str, compared: &ProxyDifference) -> WhatIfClass {
    let mut class = WhatIfClass {
        mesh: mesh.to_owned(),
        proxies: vec![name.to_owned()],
        count: 1,
        ..WhatIfClass::default()
    };
    for difference in compared.iter() {
        match difference.action() {
            WhatIfResourceAction::Added => class.added += 1,
            WhatIfResourceAction::Changed => class.changed += 1,
            WhatIfResourceAction::Removed => class.removed += 1,
        }
        let (before, after) = difference.sizes();
        class.bytes_before += before;
        class.bytes_after += after;
        if class.resources.len() < MAX_RESOURCES {
            class.resources.push(WhatIfResource {
                r#type: word(difference.kind).into(),
                name: difference.name.to_string(),
                action: difference.action(),
                before,
                after,
            });
        } else {
            class.truncated = true;
        }
    }
    class
}

fn word(kind: Type) -> &'static str {
    match kind {
        Type::Cluster => "cluster",
        Type::Endpoint => "endpoint",
        Type::Secret => "secret",
        Type::Listener => "listener",
        Type::Route => "route",
    }
}

/// The difference of two configurations as `_config` shows them, without secrets.
fn patch(compared: &ProxyDifference) -> Result<Vec<Value>, envoy::json::Error> {
    let shown = |of: fn(&Difference) -> Option<&xds::Encoded>| -> Result<Value, envoy::json::Error> {
        let mut types = Map::new();
        for difference in compared.iter() {
            let url = difference.kind.url();
            let named = types.entry(url).or_insert_with(|| Value::Object(Map::new()));
            if let Some(resource) = of(difference) {
                named[&*difference.name] = envoy::json::to_json(url, &resource.body())?;
            }
        }
        let mut types = Value::Object(types);
        redact::redact(&mut types);
        Ok(types)
    };
    let before = shown(|difference| difference.before.as_deref())?;
    let after = shown(|difference| difference.after.as_deref())?;
    Ok(api::patch::between(&before, &after))
}
