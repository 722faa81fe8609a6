//! Permissions that let in clients which no rule names, in whatever way they say it.

use serde_json::{Value, json};
use topology::{access::suggest::Suggestions, observed::destination_text};

use super::{World, everyone, permission, shown, universal};

fn prefix(value: &str) -> Value {
    json!([{ "spiffeID": { "type": "Prefix", "value": value } }])
}

fn entry(client: Value, action: &str) -> Value {
    json!({ "targetRef": client, "default": { "action": action } })
}

fn tagged(service: &str) -> Value {
    json!({ "kind": "MeshSubset", "tags": { "kuma.io/service": service } })
}

/// Returns the entries that will let everyone in, each with its destinations.
fn open(suggestions: &Suggestions) -> Vec<(String, Vec<String>)> {
    let texts = |ids: &Vec<_>| ids.iter().map(destination_text).collect();
    suggestions.open.iter().map(|(entry, ids)| (entry.to_string(), texts(ids))).collect()
}

#[test]
fn however_everyone_is_allowed_everywhere_it_counts_for_nothing() {
    let allow = entry(json!({ "kind": "Mesh" }), "Allow");
    for (case, spec) in [
        (
            "all Dataplanes, by identity",
            json!({ "targetRef": { "kind": "Dataplane" }, "rules": [{ "default": { "allow": prefix("spiffe://default/") } }] }),
        ),
        ("all Dataplanes, by label", {
            let labels = json!({ "kuma.io/mesh": "default" });
            json!({ "targetRef": { "kind": "Dataplane", "labels": labels }, "rules": [{ "default": { "allow": prefix("spiffe://default") } }] })
        }),
        ("a subset without tags", json!({ "targetRef": { "kind": "MeshSubset" }, "from": [allow] })),
        ("no reference", json!({ "from": [allow] })),
        ("any service", json!({ "targetRef": tagged("*"), "from": [entry(tagged("*"), "Allow")] })),
        (
            "a subset of clients without tags",
            json!({ "targetRef": { "kind": "Mesh" }, "from": [entry(json!({ "kind": "MeshSubset" }), "AllowWithShadowDeny")] }),
        ),
    ] {
        let world = World::new().with(permission("all", spec)).seen("web", "backend:80");
        let suggestions = world.suggestions();
        assert_eq!((suggestions.permissions.len(), suggestions.allow_all.len()), (1, 1), "{case}");
        assert_eq!((&suggestions.allow_all[0].rest, open(&suggestions)), (&None, vec![]), "{case}");
        let after = world.followed(&suggestions).closed(&suggestions).seen("db", "backend:80").suggestions();
        assert_eq!((after.allow_all.len(), after.already_allowed), (0, 1), "{case}");
        assert!(after.permissions[0].evidence[0].refused, "{case}: a client that is not named is refused");
    }
}

#[test]
fn what_else_a_permission_for_everyone_says_is_kept() {
    let db = json!([{ "spiffeID": { "type": "Exact", "value": "spiffe://default/db" } }]);
    let from = json!([entry(json!({ "kind": "Mesh" }), "Allow"), entry(tagged("db"), "Deny")]);
    let rules =
        json!([{ "default": { "allow": prefix("spiffe://default/") } }, { "default": { "deny": db } }]);
    for (spec, rest) in [
        (json!({ "targetRef": { "kind": "Mesh" }, "from": from }), json!({ "from": [from[1]] })),
        (json!({ "targetRef": { "kind": "Mesh" }, "rules": rules }), json!({ "rules": [rules[1]] })),
    ] {
        let world =
            World::new().with(permission("all", spec)).seen("web", "backend:80").seen("db", "backend:80");
        let suggestions = world.suggestions();
        let [all] = &suggestions.allow_all[..] else { panic!("{suggestions:#?}") };
        let mut written = universal::render_draft(all.rest.as_ref().unwrap())["spec"].clone();
        written.as_object_mut().unwrap().remove("targetRef");
        assert_eq!(written, rest);
        assert_eq!(shown(&suggestions).len(), 1, "for web");
        assert_eq!(suggestions.denied[0].policy.to_string(), "kri_mtp_default___all_rule_1");
        let after = world.followed(&suggestions).closed(&suggestions).suggestions();
        assert_eq!((after.denied.len(), after.already_allowed, after.allow_all.len()), (1, 1, 0));
    }
}

#[test]
fn what_lets_everyone_in_at_one_service_is_named() {
    let from = json!([entry(json!({ "kind": "Mesh" }), "Allow")]);
    let public = permission("public", json!({ "targetRef": tagged("backend"), "from": from }));
    let suggestions = World::new().with(public).seen("web", "db:80").suggestions();
    assert_eq!(suggestions.allow_all, []);
    let backend = || vec!["kri_msvc_default___backend_80".to_owned()];
    assert_eq!(open(&suggestions), [("kri_mtp_default___public_rule_0".to_owned(), backend())]);
    // A service that is closed on its own stays open to what is allowed by identity, which no `from` takes back.
    let asked = |world: World| open(&world.seen("web", "backend:80").ask(Some("backend"), None).unwrap());
    assert_eq!(asked(World::new().with(everyone("all", "Allow"))), []);
    let rules = json!([{ "default": { "allow": prefix("spiffe://default/") } }]);
    let by_identity = permission("all", json!({ "targetRef": { "kind": "Mesh" }, "rules": rules }));
    assert_eq!(
        asked(World::new().with(by_identity)),
        [("kri_mtp_default___all_rule_0".to_owned(), backend())]
    );
}
