//! Policies are compared entry by entry with those about the same thing, and with no others.

use std::{collections::BTreeSet, sync::Arc};

use findings::{Code, MeshFindings};
use policy::{Conf, Policy, PolicyView, conf};
use proptest::prelude::*;
use resources::{Key, Kind, Resource, labels, policy::PolicyPresentation};
use serde_json::{Value, json};
use testkit::resource::{complete, mesh};
use topology::{AllMeshes, MeshSnapshot, MeshUpdate, ResourceChange};

use crate::support::line;

/// Compares each policy with each other one by definition: without an index, and anew.
fn pairwise(mesh: &MeshSnapshot) -> BTreeSet<String> {
    let real = |policy: &&Arc<Policy>| policy.resource.label(labels::EFFECT) != Some("shadow");
    let all: Vec<&Arc<Policy>> = mesh.policies.values().filter(real).collect();
    let mut found = BTreeSet::new();
    for policy in &all {
        let like = |other: &&&Arc<Policy>| {
            other.resource.kind() == policy.resource.kind() && reach(other) == reach(policy)
        };
        let others: Vec<&Policy> = all
            .iter()
            .filter(like)
            .map(|other| &***other)
            .filter(|other| other.resource.key != policy.resource.key)
            .collect();
        let texts = match policy.view.traits.effect.unwrap().shown {
            PolicyPresentation::Clients => contradictions(&policy.view, &others),
            _ => shadowed(&policy.view, &others).into_iter().collect(),
        };
        found.extend(texts.into_iter().map(|text| format!("{}: {text}", policy.view.kri)));
    }
    found
}

/// Returns the proxies that a policy is for. Roles are those of policies without a namespace, except by zone.
fn reach(policy: &Policy) -> Value {
    let resource = &policy.resource;
    json!([policy.view.top, resource.label(labels::ZONE), resource.label(labels::ORIGIN)])
}

fn entries(view: &PolicyView) -> Vec<(Value, Arc<Conf>)> {
    let to = view.to.iter().map(|entry| (json!(["to", entry.target]), entry.conf.clone()));
    let rules = view.rules.iter().map(|rule| (json!(["rules", rule.matches]), rule.conf.clone()));
    to.chain(rules).chain(view.default.iter().map(|conf| (Value::Null, conf.clone()))).collect()
}

fn shadowed(view: &PolicyView, others: &[&Policy]) -> Option<String> {
    let own = entries(view);
    let mut by = BTreeSet::new();
    for (about, conf) in &own {
        let mut above: Vec<_> =
            others.iter().map(|other| &other.view).filter(|it| it.precedence > view.precedence).collect();
        above.sort_by(|a, b| a.precedence.cmp(&b.precedence));
        above.retain(|other| entries(other).iter().any(|(other, _)| other == about));
        let confs = above.iter().flat_map(|other| entries(other)).filter(|(other, _)| other == about);
        let without: Vec<Arc<Conf>> = confs.map(|(_, conf)| conf).collect();
        let with: Vec<Arc<Conf>> = [conf].into_iter().chain(&without).cloned().collect();
        let result = |confs: &[Arc<Conf>]| -> Vec<Value> {
            conf::merged(confs, view.traits.merge).iter().map(|merged| merged.conf.clone()).collect()
        };
        if without.is_empty() || result(&with) != result(&without) {
            return None;
        }
        by.extend(above.iter().map(|other| other.kri.to_string()));
    }
    (!own.is_empty()).then(|| format!("overridden by {}", named(by)))
}

/// The clients that each entry of a permission is about, whether it allows them, and whether it is one of `from`.
fn decisions(view: &PolicyView) -> Vec<(String, bool, bool)> {
    let from = view
        .from
        .iter()
        .map(|entry| (json!(entry.target).to_string(), entry.conf.value["action"] != "Deny", true));
    let rules = view.rules.iter().flat_map(|rule| {
        [("allow", true), ("deny", false)].into_iter().flat_map(|(list, allowed)| {
            let clients = rule.conf.value[list].as_array().into_iter().flatten();
            clients.map(move |client| (client.to_string(), allowed, false))
        })
    });
    from.chain(rules).collect()
}

/// Combines the entries about some clients: in `from` the last one decides, in `rules` a deny.
fn decision(view: &PolicyView, clients: &str) -> Option<bool> {
    let about: Vec<_> = decisions(view).into_iter().filter(|(other, ..)| other == clients).collect();
    let (_, last, in_from) = about.last()?;
    Some(*last && (*in_from || about.iter().all(|(_, allowed, _)| *allowed)))
}

/// Names, at most three of them, and how many others there are.
fn named(names: impl IntoIterator<Item = String>) -> String {
    let mut names: Vec<String> = names.into_iter().collect();
    if names.len() > 3 {
        let more = names.split_off(3).len();
        return format!("{} and {more} more", names.join(", "));
    }
    let last = names.pop().unwrap();
    if names.is_empty() { last } else { format!("{} and {last}", names.join(", ")) }
}

fn contradictions(view: &PolicyView, others: &[&Policy]) -> BTreeSet<String> {
    let own = decisions(view);
    let mut found = BTreeSet::new();
    for (clients, _, in_from) in &own {
        let decided = decision(view, clients).unwrap();
        let mut against: Vec<&PolicyView> = others.iter().map(|other| &other.view).collect();
        against.retain(|other| decision(other, clients).is_some_and(|other| other != decided));
        against.sort_by(|a, b| b.precedence.cmp(&a.precedence));
        if let Some(highest) = against.first() {
            let one = against.len() == 1;
            let wins = match (in_from, decided, one) {
                (true, ..) if highest.precedence < view.precedence => "this one wins",
                (true, _, true) => "that one wins",
                (true, _, false) => "the first of those wins",
                (false, true, true) => "that one wins, because it denies",
                (false, true, false) => "those win, because they deny",
                (false, false, _) => "this one wins, because it denies",
            };
            let says = if one { "says" } else { "say" };
            let against = named(against.iter().map(|other| other.kri.to_string()));
            found.insert(format!("{against} {says} the opposite about {clients}; {wins}"));
        }
        let entries = own.iter().filter(|(other, ..)| other == clients);
        if entries.map(|(_, allowed, _)| allowed).collect::<BTreeSet<_>>().len() == 2 {
            let wins = match (in_from, decided) {
                (true, true) => "the last entry wins, which allows them",
                (true, false) => "the last entry wins, which denies them",
                (false, _) => "the deny wins",
            };
            found.insert(format!("it both allows and denies {clients}; {wins}"));
        }
    }
    found
}

/// Returns the findings that come from comparing policies.
fn compared(findings: &MeshFindings) -> BTreeSet<String> {
    let of_comparing = |code: Code| matches!(code, Code::Shadowed | Code::Contradiction);
    let found = findings.iter().filter(|finding| of_comparing(finding.code)).map(line);
    found.map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
}

const KINDS: [Kind; 5] = [
    Kind::MeshTimeout,
    Kind::MeshHTTPRoute,
    Kind::MeshTCPRoute,
    Kind::MeshProxyPatch,
    Kind::MeshTrafficPermission,
];

/// A random policy: few names, proxies, targets and values, so that policies often speak of the same.
#[derive(Debug, Clone)]
struct Draft {
    kind: usize,
    name: usize,
    top: usize,
    labels: usize,
    /// Target of each entry, and its value.
    entries: Vec<(usize, usize)>,
    gone: bool,
}

prop_compose! {
    fn draft()(
        kind in 0..KINDS.len(),
        name in 0..6_usize,
        top in 0..4_usize,
        labels in 0..8_usize,
        entries in prop::collection::vec((0..3_usize, 0..4_usize), 1..4),
        gone in prop::bool::weighted(0.2),
    ) -> Draft {
        Draft { kind, name, top, labels, entries, gone }
    }
}

impl Draft {
    fn change(&self) -> ResourceChange {
        let key = Key::new(KINDS[self.kind], "default", &format!("p-{}", self.name));
        if self.gone {
            return (key, None);
        }
        let labels: &[(&str, &str)] = match self.labels {
            0 => &[("kuma.io/effect", "shadow")],
            1 => &[("kuma.io/zone", "east"), ("kuma.io/origin", "zone")],
            2 => &[("kuma.io/display-name", "a-first")],
            _ => &[],
        };
        let mut spec = self.spec();
        spec["targetRef"] = match self.top {
            0 => json!({ "kind": "Dataplane", "labels": { "app": "web" } }),
            _ => json!({ "kind": "Mesh" }),
        };
        (key.clone(), Some(Arc::new(complete(key, labels, spec))))
    }

    fn spec(&self) -> Value {
        let entries = self.entries.iter().copied();
        let (to, confs): (Vec<Value>, Vec<Value>) =
            entries.map(|(target, value)| self.entry(target, value)).unzip();
        match KINDS[self.kind] {
            Kind::MeshProxyPatch => json!({ "default": { "appendModifications": confs } }),
            Kind::MeshTrafficPermission if self.labels.is_multiple_of(2) => json!({ "rules": confs }),
            Kind::MeshTrafficPermission => json!({ "from": to }),
            Kind::MeshTimeout if self.labels == 3 => json!({ "rules": confs }),
            _ => json!({ "to": to }),
        }
    }

    /// Returns the entry for a target, as one of `to` or `from`, and as one of other lists.
    fn entry(&self, target: usize, value: usize) -> (Value, Value) {
        let service = json!({ "kind": "MeshService", "name": format!("s-{target}") });
        let rule = json!({ "default": { "backendRefs": [{ "kind": "MeshService", "name": "s-1", "weight": value % 2 + 1 }] } });
        match KINDS[self.kind] {
            Kind::MeshTimeout => {
                let conf = match value {
                    0 => json!({ "connectionTimeout": "1s" }),
                    1 => json!({ "connectionTimeout": "2s", "idleTimeout": "2s" }),
                    2 => json!({ "http": { "requestTimeout": "3s" } }),
                    _ => json!({ "idleTimeout": "3s" }),
                };
                (json!({ "targetRef": service, "default": conf }), json!({ "default": conf }))
            }
            Kind::MeshHTTPRoute => {
                let mut rule = rule;
                rule["matches"] =
                    json!([{ "path": { "type": "PathPrefix", "value": format!("/{}", value / 2) } }]);
                let mut entry = json!({ "targetRef": service, "rules": [rule] });
                if self.labels == 4 {
                    entry["hostnames"] = json!([format!("{value}.example")]);
                }
                (entry, Value::Null)
            }
            Kind::MeshTCPRoute => (json!({ "targetRef": service, "rules": [rule] }), Value::Null),
            Kind::MeshProxyPatch => {
                let named = json!({ "operation": "Remove", "match": { "name": format!("c-{value}") } });
                (Value::Null, json!({ "cluster": named }))
            }
            _ => {
                let (action, list) = [("Allow", "allow"), ("Deny", "deny")][value % 2];
                let id = json!({ "spiffeID": { "type": "Exact", "value": format!("spiffe://default/s-{target}") } });
                let from = json!({ "targetRef": service, "default": { "action": action } });
                (from, json!({ "default": { list: [id] } }))
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn what_is_found_is_what_comparing_each_policy_with_each_other_finds(
        history in prop::collection::vec(prop::collection::vec(draft(), 1..4), 1..25),
    ) {
        let mut state = AllMeshes::default();
        apply(&mut state, [mesh("default", "STRICT")]);
        let mut followed = MeshFindings::of(state.mesh("default").unwrap().clone());
        for step in history {
            let changes: Vec<ResourceChange> = step.iter().map(Draft::change).collect();
            for update in state.apply(&changes) {
                followed.update(update.snapshot.unwrap(), &update.affected);
            }
            let mesh = state.mesh("default").unwrap();
            let expected = pairwise(mesh);
            prop_assert_eq!(&compared(&MeshFindings::of(mesh.clone())), &expected);
            prop_assert_eq!(&compared(&followed), &expected);
        }
    }
}

fn apply(state: &mut AllMeshes, resources: impl IntoIterator<Item = Resource>) -> Vec<MeshUpdate> {
    let changes = resources.into_iter().map(|resource| (resource.key.clone(), Some(Arc::new(resource))));
    state.apply(&changes.collect::<Vec<ResourceChange>>())
}

/// A MeshTimeout or MeshTrafficPermission that says the same about each of these.
fn about(kind: Kind, name: &str, services: impl IntoIterator<Item = String>, value: usize) -> Resource {
    let conf = match kind {
        Kind::MeshTimeout => json!({ "connectionTimeout": format!("{value}s") }),
        _ => json!({ "action": if value.is_multiple_of(2) { "Allow" } else { "Deny" } }),
    };
    let entry =
        |name: String| json!({ "targetRef": { "kind": "MeshService", "name": name }, "default": conf });
    let entries: Vec<Value> = services.into_iter().map(entry).collect();
    let list = if kind == Kind::MeshTimeout { "to" } else { "from" };
    complete(Key::new(kind, "default", name), &[], json!({ list: entries }))
}

fn state_of(policies: impl IntoIterator<Item = Resource>) -> AllMeshes {
    let mut state = AllMeshes::default();
    apply(&mut state, policies.into_iter().chain([mesh("default", "STRICT")]));
    state
}

fn findings(state: &AllMeshes) -> MeshFindings {
    MeshFindings::of(state.mesh("default").unwrap().clone())
}

#[test]
fn policies_about_different_things_cost_what_they_say() {
    for kind in [Kind::MeshTimeout, Kind::MeshTrafficPermission] {
        let cost = |policies: usize, entries: usize| {
            let services = |i: usize| (0..entries).map(move |entry| format!("s-{i}-{entry}"));
            let policies = (0..policies).map(|i| about(kind, &format!("p-{i}"), services(i), i));
            findings(&state_of(policies)).compared()
        };
        let few = cost(10, 20);
        let more = cost(40, 20);
        assert_eq!(more, 4 * few, "{kind:?}");
        assert!(few <= 10 * 20, "{kind:?}: {few}");
    }
}

#[test]
fn policies_that_share_one_target_are_not_compared_by_their_other_entries() {
    for kind in [Kind::MeshTimeout, Kind::MeshTrafficPermission] {
        // Of other entries than the shared one, at most those of the policy itself are looked at.
        let besides_own = |entries: usize| {
            let services = |i: usize| {
                ["shared".to_owned()].into_iter().chain((0..entries).map(move |e| format!("s-{i}-{e}")))
            };
            let policies = (0..20).map(|i| about(kind, &format!("p-{i:02}"), services(i), i));
            findings(&state_of(policies)).compared().saturating_sub(20 * (entries as u64 + 1))
        };
        assert!(besides_own(1) <= 20 * 20, "{kind:?}: {}", besides_own(1));
        assert!(besides_own(100) <= besides_own(1), "{kind:?}: {}", besides_own(100));
    }
}

#[test]
fn only_the_changed_entry_of_a_policy_is_compared_again() {
    let policies = 10;
    let entries = 50;
    let services = || (0..entries).map(|entry| format!("s-{entry}"));
    let all = (0..policies).map(|i| about(Kind::MeshTimeout, &format!("p-{i}"), services(), i + 1));
    let mut state = state_of(all);
    let mut followed = findings(&state);
    assert_eq!(compared(&followed).len(), policies - 1, "the first in the alphabet overrides all others");
    // It says the same about all but one.
    let mut changed = about(Kind::MeshTimeout, "p-0", services(), 1).spec.to_json();
    changed["to"][7]["default"]["connectionTimeout"] = json!("99s");
    let before = followed.compared();
    for update in apply(&mut state, [complete(Key::new(Kind::MeshTimeout, "default", "p-0"), &[], changed)]) {
        followed.update(update.snapshot.unwrap(), &update.affected);
    }
    let looked_at = usize::try_from(followed.compared() - before).unwrap();
    let own = policies * entries;
    assert!(looked_at <= own + policies * policies, "{looked_at}");
    assert_eq!(compared(&followed), pairwise(state.mesh("default").unwrap()));
}
