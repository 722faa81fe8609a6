//! Permissions that are suggested for observed calls.

mod everyone;
mod random;
mod window;

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use resources::{Draft, Key, Kind, Labels, Resource, format::universal};
use serde_json::{Value, json};
use topology::{
    DestinationId, MeshSnapshot,
    access::suggest::{Evidence, ReportingProxies, SuggestionInput, Suggestions, suggest},
    observed::{Caller, Edge, EdgeObservations, ObservedEdges, destination_text},
};

use crate::fixtures::{dataplane, mesh, multi_zone, resource, service, serving, snapshot, with_status};

const DAY: i64 = 86_400;

/// A mesh, and what was seen in it for `days`.
#[derive(Debug)]
struct World {
    resources: Vec<Resource>,
    observed: ObservedEdges,
    days: i64,
    labels: Labels,
}

impl World {
    /// Services called `backend` and `db`, and a client `web`, with mTLS.
    fn new() -> World {
        World::of(vec![
            mesh("STRICT"),
            serving("web-1", "10.0.0.1", "web"),
            serving("backend-1", "10.0.0.2", "backend"),
            serving("db-1", "10.0.0.3", "db"),
            service("web"),
            service("backend"),
            service("db"),
        ])
    }

    fn of(resources: Vec<Resource>) -> World {
        let observed = ObservedEdges { since: Some(Timestamp::UNIX_EPOCH), ..ObservedEdges::default() };
        World { resources, observed, days: 30, labels: Labels::new() }
    }

    fn with(mut self, resource: Resource) -> World {
        self.resources.retain(|it| it.key != resource.key);
        self.resources.push(resource);
        self
    }

    /// One call, by the service of the client.
    fn seen(self, caller: &str, destination: &str) -> World {
        self.seen_by(&format!("spiffe://default/{caller}"), destination)
    }

    fn seen_by(mut self, caller: &str, destination: &str) -> World {
        let caller = match caller {
            "outside" => Caller::Outside,
            id => Caller::Identity(id.parse().unwrap()),
        };
        let edge = Edge { caller, destination: id(destination) };
        let at = |second| Timestamp::from_second(second).unwrap();
        self.observed.edges.insert(edge, EdgeObservations { first: at(10), last: at(20), count: 7 });
        self
    }

    fn mesh(&self) -> Arc<MeshSnapshot> {
        snapshot(self.resources.iter().cloned())
    }

    fn ask(&self, service: Option<&str>, proxies: Option<ReportingProxies>) -> Result<Suggestions, String> {
        let stored: BTreeMap<Key, Arc<Resource>> =
            self.resources.iter().map(|it| (it.key.clone(), Arc::new(it.clone()))).collect();
        let question = SuggestionInput {
            mesh: &self.mesh(),
            observed: &self.observed,
            until: Timestamp::from_second(self.days * DAY).unwrap(),
            service,
            stored: &|key| stored.get(key).cloned(),
            labels: &self.labels,
            proxies,
        };
        suggest(&question).map_err(|error| error.to_string())
    }

    fn suggestions(&self) -> Suggestions {
        self.ask(None, None).unwrap()
    }

    /// The mesh once everything that is suggested is written.
    fn followed(mut self, suggestions: &Suggestions) -> World {
        for permission in &suggestions.permissions {
            self = self.with(written(&permission.resource));
        }
        self
    }

    fn closed(mut self, suggestions: &Suggestions) -> World {
        self.resources.retain(|it| !suggestions.allow_all.iter().any(|gone| gone.policy.key == it.key));
        for rest in suggestions.allow_all.iter().filter_map(|all| all.rest.as_ref()) {
            self = self.with(written(rest));
        }
        for closing in &suggestions.closing {
            self = self.with(written(closing));
        }
        self
    }
}

/// `backend:80` is the port of a MeshService, anything else a value of `kuma.io/service`.
fn id(destination: &str) -> DestinationId {
    match destination.split_once(':') {
        Some((name, port)) => {
            let (short, name) = name.split_once('/').unwrap_or(("msvc", name));
            DestinationId::Port(format!("kri_{short}_default___{name}_{port}").parse().unwrap())
        }
        None => {
            DestinationId::Tags(Arc::new([("kuma.io/service".to_owned(), destination.to_owned())].into()))
        }
    }
}

fn written(draft: &Draft) -> Resource {
    let mut made = resource(Kind::MeshTrafficPermission, &draft.key.name, &[], draft.spec.to_json());
    made.labels = draft.labels.clone();
    made
}

fn permission(name: &str, spec: Value) -> Resource {
    resource(Kind::MeshTrafficPermission, name, &[], spec)
}

fn everyone(name: &str, action: &str) -> Resource {
    let from = json!([{ "targetRef": { "kind": "Mesh" }, "default": { "action": action } }]);
    permission(name, json!({ "targetRef": { "kind": "Mesh" }, "from": from }))
}

fn from_service(name: &str, server: &str, client: &str, action: &str) -> Resource {
    let client = json!({ "kind": "MeshService", "name": client });
    let from = json!([{ "targetRef": client, "default": { "action": action } }]);
    permission(name, json!({ "targetRef": { "kind": "MeshService", "name": server }, "from": from }))
}

fn shown(suggestions: &Suggestions) -> Vec<Value> {
    let drafts = suggestions.permissions.iter().map(|permission| &permission.resource);
    drafts
        .map(|draft| {
            assert_eq!(draft.validate().into_vec(), [], "what is suggested can be written");
            universal::render_draft(draft)
        })
        .collect()
}

fn by_service(service: &str) -> Value {
    json!({ "kind": "MeshSubset", "tags": { "kuma.io/service": service } })
}

#[test]
fn a_call_without_a_rule_gets_a_permission_by_tags_with_evidence() {
    let suggestions = World::new().seen("web", "backend:80").suggestions();
    assert_eq!(
        shown(&suggestions),
        [json!({
            "type": "MeshTrafficPermission", "mesh": "default", "name": "allow-to-backend-80",
            "spec": {
                "targetRef": by_service("backend"),
                "from": [{ "targetRef": by_service("web"), "default": { "action": "Allow" } }],
            },
        })]
    );
    let [permission] = &suggestions.permissions[..] else { panic!("{suggestions:#?}") };
    let [Evidence { edge, seen, refused: true }] = &permission.evidence[..] else {
        panic!("{permission:#?}")
    };
    assert_eq!((edge.caller.to_string().as_str(), seen.count), ("spiffe://default/web", 7));
    assert_eq!(destination_text(&edge.destination), "kri_msvc_default___backend_80");
    assert_eq!((&permission.notes[..], suggestions.already_allowed), (&[][..], 0));
}

#[test]
fn where_clients_are_named_by_identity_permissions_do_the_same() {
    let allow = json!([{ "spiffeID": { "type": "Exact", "value": "spiffe://default/other" } }]);
    let rules = json!({ "targetRef": { "kind": "Mesh" }, "rules": [{ "default": { "allow": allow } }] });
    let world = World::new().with(permission("by-identity", rules));
    let rules = |ids: &[&str]| {
        let allow: Vec<Value> =
            ids.iter().map(|id| json!({ "spiffeID": { "type": "Exact", "value": id } })).collect();
        json!([{ "default": { "allow": allow } }])
    };
    let suggestions = world.seen("web", "backend:80").suggestions();
    assert_eq!(shown(&suggestions)[0]["spec"]["rules"], rules(&["spiffe://default/web"]));
    // A MeshIdentity names workloads by paths that are no value of a tag.
    let workload = "spiffe://default.zone.mesh.local/ns/shop/sa/web";
    let suggestions = World::new().seen("web", "backend:80").seen_by(workload, "backend:80").suggestions();
    let forms: Vec<(bool, bool)> = shown(&suggestions)
        .iter()
        .map(|it| (it["spec"]["from"].is_array(), it["spec"]["rules"] == rules(&[workload])))
        .collect();
    assert_eq!(forms, [(true, false), (false, true)], "each in the form it can be named in");
    let provider = json!({ "type": "Bundled", "bundled": { "meshTrustCreation": "Enabled" } });
    let spec = json!({ "selector": { "dataplane": { "matchLabels": {} } }, "spiffeID": {
        "trustDomain": "td", "path": "/a" }, "provider": provider });
    let world = World::new().with(resource(Kind::MeshIdentity, "identity", &[], spec));
    let suggestions = world.seen("web", "backend:80").suggestions();
    assert_eq!(shown(&suggestions)[0]["spec"]["rules"], rules(&["spiffe://default/web"]));
}

#[test]
fn what_is_allowed_already_needs_nothing_and_is_counted() {
    let world = World::new().with(from_service("mine", "backend", "web", "Allow"));
    let suggestions = world.seen("web", "backend:80").seen("web", "backend").suggestions();
    assert_eq!((suggestions.permissions.len(), suggestions.already_allowed), (0, 2));
}

#[test]
fn a_deny_is_named_and_stays() {
    for deny in [
        from_service("no", "backend", "web", "Deny"),
        permission(
            "no",
            json!({ "targetRef": { "kind": "Mesh" }, "rules": [{ "default": { "deny": [
                { "spiffeID": { "type": "Prefix", "value": "spiffe://default/web" } }] } }] }),
        ),
    ] {
        let world = World::new().with(deny).seen("web", "backend:80").seen("db", "backend:80");
        let suggestions = world.suggestions();
        let [refused] = &suggestions.denied[..] else { panic!("{suggestions:#?}") };
        assert_eq!(refused.policy.to_string(), "kri_mtp_default___no_rule_0");
        assert!(!refused.gets_through);
        let evidence = &suggestions.permissions[0].evidence;
        assert_eq!(evidence.len(), 1, "only the other client is let in");
        let again = world.followed(&suggestions).suggestions();
        assert_eq!((again.permissions.len(), again.denied.len(), again.already_allowed), (0, 1, 1));
    }
}

#[test]
fn a_deny_of_some_proxies_of_a_client_is_not_overruled_for_the_others() {
    let second = dataplane(
        "web-2",
        "10.0.0.9",
        json!([{ "port": 80, "tags": { "kuma.io/service": "web", "version": "2" } }]),
    );
    let client = json!({ "kind": "MeshSubset", "tags": { "version": "2" } });
    let from = json!([{ "targetRef": client, "default": { "action": "Deny" } }]);
    let deny = permission("no-v2", json!({ "targetRef": { "kind": "Mesh" }, "from": from }));
    let world = World::new().with(deny.clone()).seen("web", "backend:80");
    let notes = world.suggestions().permissions.remove(0).notes;
    assert!(notes[0].contains("kri_mtp_default___no-v2_rule_0 denies clients tagged version=2"), "{notes:?}");
    let world = world.with(second);
    let denied = |world: &World| {
        let suggestions = world.suggestions();
        assert_eq!(suggestions.permissions.len(), 0);
        suggestions.denied[0].gets_through
    };
    assert!(!denied(&world));
    assert!(denied(&world.with(everyone("all", "Allow"))), "it works until everyone is not allowed any more");
}

#[test]
fn a_visible_deny_all_is_the_default_and_is_opened_with_a_warning() {
    let world = World::new().with(everyone("nobody", "Deny")).seen("web", "backend:80");
    let suggestions = world.suggestions();
    assert_eq!((suggestions.permissions.len(), suggestions.denied.len()), (1, 0));
    assert_eq!(suggestions.closing, [], "it is there");
    let said = suggestions.warnings.join("\n");
    assert!(said.contains("deny all clients that nothing allows; what is suggested takes precedence: kri_mtp_default___nobody_"), "{said}");
    let again = world.followed(&suggestions).suggestions();
    assert_eq!((again.permissions.len(), again.already_allowed), (0, 1));
    // Of one service it is somebody's decision, unless it was written as the default.
    let from = json!([{ "targetRef": { "kind": "Mesh" }, "default": { "action": "Deny" } }]);
    let mut locked = permission("locked", json!({ "targetRef": by_service("backend"), "from": from }));
    let refused = |lock: &Resource| {
        let suggestions = World::new().with(lock.clone()).seen("web", "backend:80").suggestions();
        (suggestions.permissions.len(), suggestions.denied.len())
    };
    assert_eq!(refused(&locked), (0, 1));
    locked.labels.insert("reachability.kuma.io/default-deny".to_owned(), "true".to_owned());
    assert_eq!(refused(&locked), (1, 0));
}

#[test]
fn an_allow_all_counts_for_nothing_and_is_named() {
    let prefix = json!([{ "spiffeID": { "type": "Prefix", "value": "spiffe://default/" } }]);
    let by_identity =
        json!({ "targetRef": { "kind": "Mesh" }, "rules": [{ "default": { "allow": prefix } }] });
    for all in [everyone("all", "Allow"), permission("all", by_identity)] {
        let world = World::new().with(all).seen("web", "backend:80");
        let suggestions = world.suggestions();
        assert_eq!((suggestions.permissions.len(), suggestions.allow_all.len()), (1, 1));
        assert!(!suggestions.permissions[0].evidence[0].refused, "it is let in now");
        let closing = universal::render_draft(&suggestions.closing[0]);
        assert_eq!(closing["name"], "zz-deny-all");
        let from = json!([{ "targetRef": { "kind": "Mesh" }, "default": { "action": "Deny" } }]);
        assert_eq!(closing["spec"], json!({ "targetRef": { "kind": "Mesh" }, "from": from }));
        let after = world.followed(&suggestions).closed(&suggestions).suggestions();
        assert_eq!((after.permissions.len(), after.already_allowed, after.denied.len()), (0, 1, 0));
        assert_eq!((after.allow_all.len(), after.closing.len()), (0, 0));
    }
}

#[test]
fn a_permission_selects_exactly_the_inbounds_that_are_called_or_says_so() {
    let inbounds = json!([
        { "port": 80, "name": "http", "tags": { "kuma.io/service": "backend" } },
        { "port": 9090, "name": "admin", "tags": { "kuma.io/service": "backend" } }
    ]);
    let labelled = |labels: &[(&str, &str)]| {
        let spec = json!({ "networking": { "address": "10.0.0.2", "inbound": inbounds } });
        resource(Kind::Dataplane, "backend-1", labels, spec)
    };
    let target = |world: World| {
        let suggestions = world.seen("web", "backend:80").suggestions();
        (shown(&suggestions)[0]["spec"]["targetRef"].clone(), suggestions.permissions[0].notes.clone())
    };
    let labels = json!({ "kuma.io/workload": "backend" });
    let none = Vec::<String>::new();
    let world = World::new().with(labelled(&[("kuma.io/workload", "backend")]));
    let by_label = json!({ "kind": "Dataplane", "labels": labels, "sectionName": "http" });
    assert_eq!(target(world), (by_label, none.clone()));
    let by_name = json!({ "kind": "Dataplane", "name": "backend-1", "sectionName": "http" });
    assert_eq!(target(World::new().with(labelled(&[]))), (by_name, none));
    let other =
        dataplane("backend-2", "10.0.0.8", json!([{ "port": 81, "tags": { "kuma.io/service": "backend" } }]));
    let third = serving("backend-3", "10.0.0.7", "backend");
    let (wide, notes) = target(World::new().with(other).with(third));
    assert_eq!(wide, by_service("backend"));
    assert!(notes[0].contains("also selects 1 others (of Dataplanes backend-2)"), "{notes:?}");
}

#[test]
fn a_service_of_several_zones_is_permitted_at_each_of_its_services() {
    let labelled = |name: &str| {
        let mut made = service(name);
        made.labels.insert("app".to_owned(), "all".to_owned());
        made
    };
    let ports = json!([{ "port": 80, "appProtocol": "http" }]);
    let world = World::new().with(labelled("backend")).with(labelled("db"));
    let world = world.with(multi_zone("all", "all", ports)).seen("web", "mzsvc/all:80");
    let suggestions = world.suggestions();
    let targets: Vec<Value> = shown(&suggestions).iter().map(|it| it["spec"]["targetRef"].clone()).collect();
    assert_eq!(targets, [by_service("backend"), by_service("db")]);
}

#[test]
fn a_client_between_two_runs_is_permitted_all_the_same() {
    let suggestions = World::new().seen("nightly-job", "backend:80").suggestions();
    assert_eq!(suggestions.permissions.len(), 1);
    let said = suggestions.warnings.join("\n");
    assert!(
        said.contains(
            "callers that have no proxy now, as a job between two runs: spiffe://default/nightly-job"
        ),
        "{said}"
    );
}

#[test]
fn what_was_suggested_before_is_kept_when_more_is_seen() {
    let world = World::new().seen("web", "backend:80");
    let first = world.suggestions();
    let world = world.followed(&first).seen("db", "backend:80");
    let second = world.suggestions();
    assert_eq!((second.permissions.len(), second.already_allowed), (1, 1));
    let spec = &shown(&second)[0];
    assert_eq!(spec["name"], shown(&first)[0]["name"]);
    assert_eq!(spec["spec"]["from"].as_array().unwrap().len(), 2);
    // A policy that somebody else wrote under this name is not touched.
    let world = World::new().with(from_service("allow-to-backend-80", "db", "web", "Allow"));
    assert_eq!(shown(&world.seen("web", "backend:80").suggestions())[0]["name"], "allow-to-backend-80-2");
}

#[test]
fn what_no_one_was_seen_to_call_is_listed_until_a_permission_is_about_it() {
    let world = World::new().seen("web", "backend:80");
    let unseen =
        |world: &World| -> Vec<String> { world.suggestions().unseen.iter().map(destination_text).collect() };
    assert_eq!(unseen(&world), ["kri_msvc_default___db_80", "kri_msvc_default___web_80"]);
    let world = world.with(everyone("all", "Allow"));
    assert_eq!(unseen(&world).len(), 2, "what allows everyone is no decision about it");
    let world = world.with(from_service("mine", "db", "web", "Allow"));
    assert_eq!(unseen(&world), ["kri_msvc_default___web_80"]);
}

#[test]
fn short_and_incomplete_observations_are_told() {
    let said = |world: &World, proxies| world.ask(None, proxies).unwrap().warnings.join("\n");
    let mut world = World::new().seen_by("outside", "backend:80").seen("web", "gone:80").seen("web", "lost");
    world.days = 6;
    assert!(said(&world, None).contains("observed for 6 d: a weekly job would not have been seen"));
    world.days = 0;
    assert!(said(&world, None).contains("observed for 0 s: a daily or weekly job"));
    world.days = 7;
    world.observed.truncated = true;
    let all = said(&world, Some(ReportingProxies { reporting: 1, connected: 3 }));
    assert!(!all.contains("observed for"), "{all}");
    for part in [
        "some of them are not known",
        "2 of 3 connected proxies do not report",
        "kri_msvc_default___backend_80 is called without an identity (connections: 7, last 1970-01-01T00:00:20Z)",
        "nothing is suggested: kri_msvc_default___gone_80, kuma.io/service=lost",
    ] {
        assert!(all.contains(part), "{part} in {all}");
    }
    world.observed.since = None;
    assert!(said(&world, None).contains("no proxy has reported calls yet"));
}

#[test]
fn one_service_is_closed_on_its_own() {
    let world = World::new().with(everyone("all", "Allow"));
    let world = world.seen("web", "backend:80").seen("web", "backend").seen("web", "db:80");
    for name in ["backend", "kri_msvc_default___backend_", "kri_msvc_default___backend_80"] {
        let suggestions = world.ask(Some(name), None).unwrap();
        assert_eq!(suggestions.permissions.len(), 1, "{name}");
        assert_eq!(suggestions.permissions[0].evidence.len(), 2, "by the service and by its tag");
        let closing = universal::render_draft(&suggestions.closing[0]);
        assert_eq!((&closing["name"], suggestions.closing.len()), (&json!("zz-deny-all-backend-80"), 1));
        assert_eq!(closing["spec"]["targetRef"], by_service("backend"));
        assert_eq!(suggestions.unseen, []);
    }
    let suggestions = world.ask(Some("backend"), None).unwrap();
    let mut closed = world.followed(&suggestions);
    closed = closed.with(written(&suggestions.closing[0]));
    let again = closed.ask(Some("backend"), None).unwrap();
    assert_eq!((again.permissions.len(), again.already_allowed, again.closing.len()), (0, 2, 0));
    assert_eq!(again.denied, []);
    // A new client is let in beside the policy that closes the service, however the service could be named by now.
    let mut labelled = serving("backend-1", "10.0.0.2", "backend");
    labelled.labels.insert("kuma.io/workload".to_owned(), "backend".to_owned());
    let joined = closed.with(labelled).seen("db", "backend:80");
    let more = joined.ask(Some("backend"), None).unwrap();
    let joined = joined.followed(&more);
    assert_eq!(joined.ask(Some("backend"), None).unwrap().already_allowed, 3);
    let closed = joined;
    let error = closed.ask(Some("nothing"), None).unwrap_err();
    assert!(error.contains("nothing in the mesh is called \"nothing\""), "{error}");
}

#[test]
fn permissions_carry_the_labels_that_their_place_needs() {
    let mut world = World::new().seen("web", "backend:80");
    world.labels = Labels::from([("kuma.io/origin".to_owned(), "zone".to_owned())]);
    let suggestions = world.suggestions();
    assert_eq!(suggestions.permissions[0].resource.labels, world.labels);
    assert_eq!(suggestions.closing[0].labels["kuma.io/origin"], "zone");
}

#[test]
fn what_is_called_by_the_name_of_a_service_asks_with_its_server_name() {
    let sni = |value: &str| json!({ "sni": { "type": "Exact", "value": value } });
    let deny = |value: &str| {
        let rules = json!([{ "default": { "deny": [sni(value)] } }]);
        permission("no", json!({ "targetRef": { "kind": "Mesh" }, "rules": rules }))
    };
    let ready = with_status(service("backend"), json!({ "tls": { "status": "Ready" } }));
    let world = World::new().with(ready).seen("web", "backend:80");
    let mesh = world.mesh();
    let topology::ClientTls::Mesh { sni, .. } = &mesh.destinations[&id("backend:80")].tls else { panic!() };
    assert_eq!(world.with(deny(sni)).suggestions().denied.len(), 1);
}
