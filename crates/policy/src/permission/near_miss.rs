//! Permissions that almost allow a client, because little is missing: a label of the server, a tag of the
//! client, another section.
//!
//! A permission for other servers is no near miss. It counts as one where the server lacks a label altogether, has the
//! others, or has a value that is almost the wanted one.

use std::{collections::BTreeMap, sync::Arc};

use resources::{
    Resource,
    kinds::{
        dataplane::Inbound,
        mesh_traffic_permission::MeshTrafficPermission,
        tags::ANY_VALUE,
        target_ref::{TargetRef, TargetRefKind as K},
    },
    labels,
    naming::{Kri, SpiffeId},
};

use super::{Client, ClientMatch, Effect, Lists};
use crate::select::PolicySelector;

/// Maximum near misses of one answer.
const MAX: usize = 5;
/// A permission that wants more than this is for others.
const MAX_LACKING: usize = 2;

/// A permission that almost applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NearMiss {
    pub policy: Kri,
    /// Explains the requirement of the permission and what was found instead.
    pub reason: String,
}

/// The permissions that almost let a client call an inbound, by name. One pass over the permissions of the mesh.
pub fn near_misses<'p>(
    policies: impl IntoIterator<Item = &'p Arc<Resource>>,
    server: &Resource,
    inbound: &Inbound,
    client: &Client,
    selector: &PolicySelector<'_>,
) -> Vec<NearMiss> {
    let miss = |policy: &'p Arc<Resource>| {
        let spec = policy.spec.get::<MeshTrafficPermission>()?;
        let kri = policy.kri("")?;
        if policy.label(labels::EFFECT) == Some("shadow") {
            return None;
        }
        let mut lists = Lists::default();
        lists.add(&kri, spec);
        let rules = lists.in_order();
        let mut allows = rules.iter().filter(|rule| rule.effect != Effect::Deny).map(|rule| &rule.client);
        let name = policy.display_name();
        let lets_in = allows.clone().any(|allowed| allowed.matches(client));
        let reason = match (selector.selects_inbound(policy, server, inbound), lets_in) {
            (true, false) => allows.find_map(|allowed| of_client(name, allowed, client)),
            (false, true) => of_server(name, policy.spec.target_ref()??, server, inbound),
            _ => None,
        };
        Some(NearMiss { policy: kri, reason: reason? })
    };
    policies.into_iter().filter_map(miss).take(MAX).collect()
}

/// Explains what the server lacks to match a reference.
fn of_server(policy: &str, top: &TargetRef, server: &Resource, inbound: &Inbound) -> Option<String> {
    let whose = server.display_name();
    let named = top.name.as_deref().is_some_and(|name| !name.is_empty());
    match top.kind {
        K::Dataplane if !named => {
            let wanted: BTreeMap<&str, &str> = pairs(top.labels.iter().flatten());
            let lacking = Lacking::of(&wanted, |key| server.label(key).into_iter().collect());
            if lacking.is_empty() {
                other_section(policy, top, whose, inbound)
            } else {
                lacking.told(&wanted, policy, whose, "label")
            }
        }
        K::MeshSubset | K::MeshServiceSubset => {
            let mut wanted: BTreeMap<&str, &str> = pairs(top.tags.iter().flatten());
            if let Some(service) = top.name.as_deref().filter(|_| named) {
                wanted.insert(labels::SERVICE, service);
            }
            let present = |key: &str| inbound.tags.get(key).map(String::as_str).into_iter().collect();
            Lacking::of(&wanted, present).told(&wanted, policy, whose, "tag")
        }
        _ => None,
    }
}

fn other_section(policy: &str, top: &TargetRef, whose: &str, inbound: &Inbound) -> Option<String> {
    let wanted = top.section_name.as_deref().filter(|section| !section.is_empty())?;
    let called = inbound.section_name();
    (wanted != called)
        .then(|| format!("{policy} is for port {wanted} only; {whose} is called at port {called}"))
}

/// Explains what the client lacks to match a rule that allows.
fn of_client(policy: &str, allowed: &ClientMatch, client: &Client) -> Option<String> {
    match allowed {
        ClientMatch::Tags(tags) => {
            let wanted = pairs(tags);
            let present =
                |key: &str| client.tags.get(key).into_iter().flatten().map(String::as_str).collect();
            Lacking::of(&wanted, present).told(&wanted, policy, "the client", "tag")
        }
        ClientMatch::SpiffeExact(id) => {
            let alike = client.spiffe_ids.iter().find(|own| are_alike(id, own))?;
            Some(format!("{policy} allows {id}; the client is {alike}"))
        }
        ClientMatch::Anyone | ClientMatch::SpiffePrefix(_) | ClientMatch::Sni { .. } => None,
    }
}

/// The same workload elsewhere: in another trust domain, or in another namespace of the same one.
fn are_alike(wanted: &SpiffeId, own: &SpiffeId) -> bool {
    let wanted = wanted.to_string();
    let own = own.to_string();
    let parts = |id: &str| {
        let (domain, path) = id.strip_prefix("spiffe://")?.split_once('/')?;
        Some((domain.to_owned(), path.to_owned()))
    };
    let (Some((domain, path)), Some((own_domain, own_path))) = (parts(&wanted), parts(&own)) else {
        return false;
    };
    let last = |path: &str| path.rsplit('/').next().map(str::to_owned);
    path == own_path || domain == own_domain && last(&path) == last(&own_path)
}

/// The pairs that are not there, with the values that are there instead.
struct Lacking<'a>(Vec<(&'a str, &'a str, Vec<&'a str>)>);

impl<'a> Lacking<'a> {
    fn of(wanted: &BTreeMap<&'a str, &'a str>, present: impl Fn(&str) -> Vec<&'a str>) -> Lacking<'a> {
        let lacking = wanted.iter().filter_map(|(&key, &value)| {
            let values = present(key);
            let there = values.contains(&value) || value == ANY_VALUE && !values.is_empty();
            (!there).then_some((key, value, values))
        });
        Lacking(lacking.collect())
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sentence, unless so much is lacking that someone else is meant.
    fn told(&self, wanted: &BTreeMap<&str, &str>, policy: &str, whose: &str, noun: &str) -> Option<String> {
        let close = |(_, value, present): &(&str, &str, Vec<&str>)| {
            present.is_empty() || present.iter().any(|present| is_close(value, present))
        };
        let near = self.0.len() < wanted.len() || self.0.iter().all(close);
        if self.is_empty() || self.0.len() > MAX_LACKING || !near {
            return None;
        }
        let wants: Vec<String> = self.0.iter().map(|(key, value, _)| format!("{key}={value}")).collect();
        let instead: Vec<String> = self
            .0
            .iter()
            .flat_map(|(key, _, present)| present.iter().map(move |value| format!("{key}={value}")))
            .collect();
        let has = match (instead.as_slice(), self.0.len()) {
            ([], 1) => format!("has no such {noun}"),
            ([], _) => format!("has no such {noun}s"),
            (instead, _) => format!("has {}", instead.join(" and ")),
        };
        Some(format!("{policy} wants {}; {whose} {has}", wants.join(" and ")))
    }
}

/// Written in another case, or with something behind it.
fn is_close(wanted: &str, present: &str) -> bool {
    let wanted = wanted.to_lowercase();
    let present = present.to_lowercase();
    wanted.starts_with(&present) || present.starts_with(&wanted)
}

fn pairs<'a>(of: impl IntoIterator<Item = (&'a String, &'a String)>) -> BTreeMap<&'a str, &'a str> {
    of.into_iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use resources::{Key, Kind, kinds::dataplane::Dataplane};
    use serde_json::{Value, json};

    use super::*;

    fn resource(kind: Kind, name: &str, labels: &[(&str, &str)], spec: Value) -> Arc<Resource> {
        Arc::new(testkit::resource::stored(Key::new(kind, "default", name), labels, spec))
    }

    /// Checks the near miss of one permission when `web` calls `backend-1`, which has these labels.
    fn check(labels: &[(&str, &str)], target: Value, spec: Value, expect: Option<&str>) {
        let tags = json!({ "kuma.io/service": "backend", "version": "v1" });
        let inbound = json!({ "port": 80, "name": "http", "tags": tags });
        let server = json!({ "networking": { "address": "10.0.0.1", "inbound": [inbound] } });
        let server = resource(Kind::Dataplane, "backend-1", labels, server);
        let mut whole = json!({ "targetRef": target });
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let policy = resource(Kind::MeshTrafficPermission, "web-to-backend", &[], whole);
        let id: SpiffeId = "spiffe://default/ns/web".parse().unwrap();
        let mut client = Client::with_tags([("kuma.io/service", "web"), ("version", "v1")]);
        client.spiffe_ids.insert(id);
        let inbound = &server.spec.get::<Dataplane>().unwrap().inbounds()[0];
        let found = near_misses([&policy], &server, inbound, &client, &PolicySelector::default());
        let reasons: Vec<&str> = found.iter().map(|miss| miss.reason.as_str()).collect();
        assert_eq!(reasons, expect.into_iter().collect::<Vec<_>>(), "{target}");
    }

    fn allows(value: &str) -> Value {
        let spiffe = json!({ "type": "Exact", "value": value });
        json!({ "rules": [{ "default": { "allow": [{ "spiffeID": spiffe }] } }] })
    }

    fn by_labels(labels: Value) -> Value {
        json!({ "kind": "Dataplane", "labels": labels })
    }

    const WEB: &str = "spiffe://default/ns/web";

    #[test]
    fn a_label_that_a_server_lacks_is_named() {
        let wants = by_labels(json!({ "app": "backend" }));
        let says = "web-to-backend wants app=backend; backend-1 has no such label";
        check(&[], wants.clone(), allows(WEB), Some(says));
        let says = "web-to-backend wants app=backend; backend-1 has app=Backend";
        check(&[("app", "Backend")], wants.clone(), allows(WEB), Some(says));
        // A permission for another application, or one that allows another client, is none.
        check(&[("app", "api")], wants.clone(), allows(WEB), None);
        check(&[], wants.clone(), allows("spiffe://default/ns/api"), None);
        check(&[("app", "backend")], wants, allows(WEB), None);
        let both = by_labels(json!({ "app": "backend", "version": "v2" }));
        let says = "web-to-backend wants version=v2; backend-1 has version=v1";
        check(&[("app", "backend"), ("version", "v1")], both, allows(WEB), Some(says));
    }

    #[test]
    fn tags_and_sections_of_servers_are_compared() {
        let tags = |tags: Value| json!({ "kind": "MeshSubset", "tags": tags });
        let from = json!({ "from": [{ "targetRef": { "kind": "Mesh" }, "default": { "action": "Allow" } }] });
        let says = "web-to-backend wants team=a; backend-1 has no such tag";
        check(&[], tags(json!({ "kuma.io/service": "backend", "team": "a" })), from.clone(), Some(says));
        check(&[], tags(json!({ "kuma.io/service": "api" })), from.clone(), None);
        let section = json!({ "kind": "Dataplane", "labels": { "app": "backend" }, "sectionName": "admin" });
        let says = "web-to-backend is for port admin only; backend-1 is called at port http";
        check(&[("app", "backend")], section, from, Some(says));
    }

    #[test]
    fn clients_that_are_almost_allowed_are_told() {
        let everywhere = json!({ "kind": "Mesh" });
        let says = "web-to-backend allows spiffe://other/ns/web; the client is spiffe://default/ns/web";
        check(&[], everywhere.clone(), allows("spiffe://other/ns/web"), Some(says));
        check(&[], everywhere.clone(), allows("spiffe://default/ns/api"), None);
        let from = |tags: Value| {
            let target = json!({ "kind": "MeshSubset", "tags": tags });
            json!({ "from": [{ "targetRef": target, "default": { "action": "Allow" } }] })
        };
        let says = "web-to-backend wants version=v2; the client has version=v1";
        check(
            &[],
            everywhere.clone(),
            from(json!({ "kuma.io/service": "web", "version": "v2" })),
            Some(says),
        );
        check(&[], everywhere, from(json!({ "kuma.io/service": "api" })), None);
    }
}
