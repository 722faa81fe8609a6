//! Reasons why a client may call a destination or not, and the change that would allow the call.

mod random;

use std::{collections::BTreeSet, sync::Arc};

use resources::{Kind, Resource, format};
use serde_json::{Value, json};
use topology::{
    ClientClass, MeshSnapshot,
    access::explain::{
        AccessChange, AskedServer, Call, EnforcementPoint, Explanation, ReachabilityVerdict, Requirement,
        Serving, explain,
    },
    matching::{self, MemberSelector},
};

use crate::fixtures::{dataplane, mesh, resource, service, serving, snapshot};

fn permission(name: &str, spec: Value) -> Resource {
    resource(Kind::MeshTrafficPermission, name, &[], spec)
}

fn from(name: &str, target: Value, from: &[(Value, &str)]) -> Resource {
    let entry = |(who, action): &(Value, &str)| json!({ "targetRef": who, "default": { "action": action } });
    let from: Vec<Value> = from.iter().map(entry).collect();
    permission(name, json!({ "targetRef": target, "from": from }))
}

fn of_service(name: &str) -> Value {
    json!({ "kind": "MeshService", "name": name })
}

fn anyone() -> Value {
    json!({ "kind": "Mesh" })
}

fn world(permissions: impl IntoIterator<Item = Resource>) -> Vec<Resource> {
    let version = |name: &str, address: &str, version: &str| {
        let tags = json!({ "kuma.io/service": "backend", "version": version });
        dataplane(name, address, json!([{ "port": 80, "tags": tags }]))
    };
    let all = [
        mesh("STRICT"),
        serving("web-1", "10.0.0.1", "web"),
        serving("batch-1", "10.0.0.2", "batch"),
        version("backend-1", "10.0.0.3", "1"),
        version("backend-2", "10.0.0.4", "2"),
        service("backend"),
    ];
    all.into_iter().chain(permissions).collect()
}

/// Explains a call to the Dataplanes whose names begin so, as their inbounds decide it.
fn asked(mesh: &MeshSnapshot, client: &str, to: &str, trims: bool, plain: bool) -> Explanation {
    let client = ClientClass::of(mesh, &mesh.dataplanes[client]);
    let serving = mesh.dataplanes.values().filter(|dataplane| dataplane.name().starts_with(to));
    let servers: Vec<AskedServer<'_>> = serving
        .flat_map(|dataplane| matching::inbounds(dataplane).iter().map(move |inbound| (dataplane, inbound)))
        .map(|(dataplane, inbound)| {
            let policies = mesh.policies_of(Kind::MeshTrafficPermission);
            let selector = policy::PolicySelector::default();
            let asked = policy::permission::resolve(policies, dataplane, inbound, &selector);
            let requires = if plain { Requirement::Nothing } else { Requirement::Permission(asked.into()) };
            let place = EnforcementPoint::Inbound(dataplane, inbound);
            AskedServer { place, requires, permissive: false, server_names: Arc::default() }
        })
        .collect();
    explain(&call(mesh, &client, "backend", trims), &servers)
}

/// A call to something of which it is not known how it is chosen.
fn call<'a>(mesh: &'a MeshSnapshot, client: &'a ClientClass, destination: &'a str, trims: bool) -> Call<'a> {
    Call { mesh, client, destination, destinations: &[], serving: &[], trims }
}

fn of(resources: Vec<Resource>) -> Arc<MeshSnapshot> {
    snapshot(resources)
}

fn rules(explanation: &Explanation) -> Vec<String> {
    explanation.decided_by.iter().map(ToString::to_string).collect()
}

#[test]
fn an_allowed_call_is_reachable_and_names_the_rule() {
    let allow = from("web", anyone(), &[(of_service("other"), "Allow"), (of_service("web"), "Allow")]);
    let found = asked(&of(world([allow])), "web-1", "backend", true, false);
    assert_eq!((found.verdict, found.change.clone()), (ReachabilityVerdict::Reachable, None));
    assert_eq!(rules(&found), ["kri_mtp_default___web_rule_1"]);
    assert_eq!((found.answers.len(), found.answers[0].servers, found.refusing_total), (1, 2, 0));
}

#[test]
fn a_refused_call_is_trimmed_where_the_proxy_is_and_denied_elsewhere() {
    let deny = from("web", anyone(), &[(anyone(), "Allow"), (of_service("web"), "Deny")]);
    let mesh = of(world([deny]));
    for (trims, verdict) in [(true, ReachabilityVerdict::Trimmed), (false, ReachabilityVerdict::Denied)] {
        let found = asked(&mesh, "web-1", "backend", trims, false);
        assert_eq!(
            (found.verdict, rules(&found)),
            (verdict, vec!["kri_mtp_default___web_rule_1".to_owned()])
        );
    }
    assert_eq!(asked(&mesh, "batch-1", "backend", true, false).verdict, ReachabilityVerdict::Reachable);
}

#[test]
fn without_servers_access_is_unknown_without_certificates_it_is_open() {
    let mesh = of(world([from("deny", anyone(), &[(anyone(), "Deny")])]));
    let found = asked(&mesh, "web-1", "nothing", true, false);
    assert_eq!((found.verdict, found.change), (ReachabilityVerdict::Unknown, None));
    assert!(found.reason.contains("no instance"), "{}", found.reason);
    assert_eq!(asked(&mesh, "web-1", "backend", true, true).verdict, ReachabilityVerdict::Reachable);
}

#[test]
fn one_server_decides_for_the_destination_and_the_others_are_named() {
    let some = json!({ "kind": "MeshSubset", "tags": { "version": "2" } });
    let mesh = of(world([from("some", some, &[(of_service("web"), "Allow")])]));
    let found = asked(&mesh, "web-1", "backend", true, false);
    assert_eq!((found.verdict, found.refusing_total), (ReachabilityVerdict::Reachable, 1));
    let refusing = found.answers.iter().find(|answer| !answer.allowed).unwrap();
    assert_eq!(refusing.server, "kri_dp_default___backend-1_80");
    assert!(found.reason.contains("1 of 2 inbounds let the client in"), "{}", found.reason);
}

#[test]
fn a_rule_that_denies_the_client_is_the_only_thing_to_change() {
    let id = |value: &str| json!([{ "spiffeID": { "type": "Exact", "value": value } }]);
    let by_id = permission(
        "by-id",
        json!({ "rules": [{ "default": { "deny": id("spiffe://default/web"), "allow": id("spiffe://default/batch") } }] }),
    );
    let by_tag = from("by-tag", anyone(), &[(anyone(), "Allow"), (of_service("web"), "Deny")]);
    for (deny, rule, says) in [
        (by_id, "kri_mtp_default___by-id_rule_0", "no other permission can allow it"),
        // An allow in `rules` comes before every entry of `from`.
        (by_tag, "kri_mtp_default___by-tag_rule_1", "a MeshTrafficPermission with `rules` would overrule it"),
    ] {
        let found = asked(&of(world([deny])), "web-1", "backend", false, false);
        let change = found.change.unwrap();
        assert!(matches!(change, AccessChange::Edit { .. }), "{change:?}");
        assert_eq!(change.rules().iter().map(ToString::to_string).collect::<Vec<_>>(), [rule]);
        let text = change.text().to_lowercase();
        assert!(change.permissions().is_empty() && text.contains(&says.to_lowercase()), "{text}");
    }
}

#[test]
fn a_permission_is_offered_for_the_instances_that_do_not_deny() {
    let first = json!({ "kind": "MeshSubset", "tags": { "version": "1" } });
    for deny in [
        from("by-tag", first.clone(), &[(of_service("web"), "Deny")]),
        permission(
            "by-id",
            json!({ "targetRef": first.clone(), "rules": [{ "default": { "deny": [
                { "spiffeID": { "type": "Exact", "value": "spiffe://default/web" } }
            ] } }] }),
        ),
    ] {
        let resources = world([deny]);
        let found = asked(&of(resources.clone()), "web-1", "backend", false, false);
        let change = found.change.unwrap();
        let AccessChange::Write(offer) = &change else { panic!("{change:?}") };
        assert!(offer.notes.iter().any(|note| note.contains("goes on denying")), "{offer:?}");
        let written = of(resources.into_iter().chain(offered(&change)).collect());
        let found = asked(&written, "web-1", "backend", false, false);
        let refusing: Vec<String> = found.refusing.iter().map(ToString::to_string).collect();
        assert_eq!(
            (found.verdict, refusing),
            (ReachabilityVerdict::Reachable, vec!["kri_dp_default___backend-1_80".to_owned()])
        );
    }
}

/// The permissions that an explanation offers, as a federated zone would store them.
fn offered(change: &AccessChange) -> Vec<Resource> {
    let stored = |value: &Value| {
        let draft = format::parse(value.clone()).unwrap().draft;
        assert_eq!(draft.validate().into_vec(), []);
        assert_eq!(draft.labels.get("kuma.io/origin").map(String::as_str), Some("zone"));
        Resource { key: draft.key, labels: draft.labels, spec: draft.spec, ..permission("x", json!({})) }
    };
    change.permissions().iter().map(stored).collect()
}

#[test]
fn what_is_offered_replaces_no_permission_that_is_there() {
    let other = from("web-to-backend", of_service("batch"), &[(of_service("web"), "Allow")]);
    let found = asked(&of(world([other])), "web-1", "backend", false, false);
    assert_eq!(found.change.unwrap().permissions()[0]["name"], "web-to-backend-2");
}

#[test]
fn all_instances_are_opened_and_what_is_opened_besides_is_said() {
    // Nothing tells the instances apart from `batch-1`, and each has a label of its own.
    let same = |name: &str, address: &str| dataplane(name, address, json!([{ "port": 80 }]));
    let mut resources =
        vec![mesh("STRICT"), serving("web-1", "10.0.0.1", "web"), same("backend-1", "10.0.0.3")];
    resources.push(same("backend-2", "10.0.0.4"));
    let found = asked(&of(resources.clone()), "web-1", "backend", false, false);
    let change = found.change.unwrap();
    assert_eq!(change.permissions().len(), 2, "one for each Dataplane: {change:?}");
    let written = of(resources.clone().into_iter().chain(offered(&change)).collect());
    assert_eq!(asked(&written, "web-1", "backend", false, false).refusing_total, 0);

    let labelled = |mut it: Resource| {
        it.labels.insert("app".to_owned(), "shared".to_owned());
        it
    };
    resources.push(same("other-1", "10.0.0.5"));
    let resources: Vec<Resource> = resources.into_iter().map(labelled).collect();
    let change = asked(&of(resources), "web-1", "backend", false, false).change.unwrap();
    let AccessChange::Write(offer) = &change else { panic!("{change:?}") };
    let besides: Vec<String> = offer.besides.iter().map(ToString::to_string).collect();
    assert_eq!(besides, ["kri_dp_default___other-1_80", "kri_dp_default___web-1_80"]);
    assert!(offer.notes[0].contains("other-1, web-1"), "{:?}", offer.notes);
}

/// Servers that are not known here, and refuse because no rule is about the client.
fn unseen(mesh: &MeshSnapshot, serving: &[Serving]) -> Explanation {
    let client = ClientClass::of(mesh, &mesh.dataplanes["web-1"]);
    let call = Call { serving, ..call(mesh, &client, "backend", false) };
    let requires = Requirement::Permission(policy::Permissions::default().into());
    explain(
        &call,
        &[AskedServer {
            place: EnforcementPoint::Unseen,
            requires,
            permissive: false,
            server_names: Arc::default(),
        }],
    )
}

#[test]
fn unknown_servers_are_selected_by_the_service_or_not_at_all() {
    let mesh = of(world([]));
    let labels = MemberSelector::Labels([("app".to_owned(), "backend".to_owned())].into());
    let tags = MemberSelector::Tags(Arc::new([("kuma.io/service".to_owned(), "gone".to_owned())].into()));
    let serving = |selector: &MemberSelector, zone: Option<&str>| {
        [Serving { selector: selector.clone(), zone: zone.map(Into::into) }]
    };
    for (selector, zone, target) in [
        (&labels, None, json!({ "kind": "Dataplane", "labels": { "app": "backend" } })),
        (
            &labels,
            Some("west"),
            json!({ "kind": "Dataplane", "labels": { "app": "backend", "kuma.io/zone": "west" } }),
        ),
        (&tags, None, json!({ "kind": "MeshSubset", "tags": { "kuma.io/service": "gone" } })),
    ] {
        let change = unseen(&mesh, &serving(selector, zone)).change.unwrap();
        let [resource] = change.permissions() else { panic!("{change:?}") };
        assert_eq!(resource["spec"]["targetRef"], target);
        // A global control plane takes no permission of a zone, and permissions of this zone select no one elsewhere.
        assert_eq!(resource["labels"]["kuma.io/origin"] == "zone", zone.is_none(), "{resource}");
        assert_eq!(change.text().contains("apply it on the global control plane"), zone.is_some());
    }
    let name = MemberSelector::Name("backend-9".to_owned());
    for serving in
        [vec![], serving(&MemberSelector::Nothing, None).to_vec(), serving(&name, Some("west")).to_vec()]
    {
        let change = unseen(&mesh, &serving).change.unwrap();
        assert!(matches!(change, AccessChange::NotOffered { .. }), "{change:?}");
        assert!(
            change.permissions().is_empty() && change.text().contains("none is offered"),
            "{}",
            change.text()
        );
    }
}

#[test]
fn what_is_offered_lets_the_client_in_and_no_other_one() {
    let nothing = Vec::new();
    let other = vec![from("other", anyone(), &[(of_service("other"), "Allow")])];
    let by_default = vec![from("nobody", anyone(), &[(anyone(), "Deny")])];
    let labelled = |resources: Vec<Resource>| {
        let label = |mut it: Resource| {
            if it.name().starts_with("backend-") {
                it.labels.insert("app".to_owned(), "backend".to_owned());
            }
            it
        };
        resources.into_iter().map(label).collect::<Vec<_>>()
    };
    for (permissions, is_exception) in [(nothing, false), (other, false), (by_default, true)] {
        for with_labels in [false, true] {
            let mut resources = world(permissions.clone());
            if with_labels {
                resources = labelled(resources);
            }
            let found = asked(&of(resources.clone()), "web-1", "backend", true, false);
            let change = found.change.unwrap();
            assert_eq!(change.rules().is_empty(), !is_exception, "{change:?}");
            let kind = if with_labels { "Dataplane" } else { "MeshSubset" };
            assert_eq!(change.permissions()[0]["spec"]["targetRef"]["kind"], kind);
            assert_eq!(change.permissions()[0]["name"], "web-to-backend");
            let written = of(resources.into_iter().chain(offered(&change)).collect());
            assert_eq!(
                asked(&written, "web-1", "backend", true, false).verdict,
                ReachabilityVerdict::Reachable
            );
            assert_eq!(
                asked(&written, "batch-1", "backend", true, false).verdict,
                ReachabilityVerdict::Trimmed
            );
            assert_eq!(asked(&written, "web-1", "batch", true, false).verdict, ReachabilityVerdict::Trimmed);
        }
    }
}

#[test]
fn a_client_without_an_identity_is_refused_and_no_permission_can_name_it() {
    let mut resources = world([from("all", anyone(), &[(anyone(), "Allow")])]);
    resources.push(dataplane("stranger", "10.0.0.9", json!([{ "port": 80 }])));
    let found = asked(&of(resources), "stranger", "backend", false, false);
    assert_eq!((found.verdict, found.change), (ReachabilityVerdict::Denied, None));
    assert!(found.reason.contains("names no service"), "{}", found.reason);
}

#[test]
fn the_server_name_that_is_let_in_counts() {
    let sni = |value: &str| json!([{ "sni": { "type": "Exact", "value": value } }]);
    let by_name = permission("by-name", json!({ "rules": [{ "default": { "allow": sni("new") } }] }));
    let mesh = of(world([by_name]));
    let dataplane = &mesh.dataplanes["backend-1"];
    let inbound = &matching::inbounds(dataplane)[0];
    let policies = mesh.policies_of(Kind::MeshTrafficPermission);
    let asked = policy::permission::resolve(policies, dataplane, inbound, &policy::PolicySelector::default());
    let client = ClientClass::of(&mesh, &mesh.dataplanes["web-1"]);
    let verdicts: BTreeSet<ReachabilityVerdict> = [vec!["new"], vec!["old", "new"]]
        .into_iter()
        .map(|names| {
            let server_names: Arc<[String]> = names.into_iter().map(str::to_owned).collect();
            let call = call(&mesh, &client, "b", false);
            let place = EnforcementPoint::Inbound(dataplane, inbound);
            let requires = Requirement::Permission(asked.clone().into());
            explain(&call, &[AskedServer { place, requires, permissive: false, server_names }]).verdict
        })
        .collect();
    assert_eq!(verdicts, BTreeSet::from([ReachabilityVerdict::Reachable]));
}

#[test]
fn an_unknown_server_may_let_in_clients_it_does_not_surely_refuse() {
    let mesh = of(world([from("web", anyone(), &[(of_service("web"), "Allow")])]));
    let backend = &mesh.dataplanes["backend-1"];
    let policies = mesh.policies_of(Kind::MeshTrafficPermission);
    let inbound = &matching::inbounds(backend)[0];
    let requires =
        policy::permission::resolve(policies, backend, inbound, &policy::PolicySelector::default());
    for (client, verdict) in
        [("web-1", ReachabilityVerdict::Unknown), ("batch-1", ReachabilityVerdict::Trimmed)]
    {
        let client = ClientClass::of(&mesh, &mesh.dataplanes[client]);
        let call = call(&mesh, &client, "b", true);
        let requires = Requirement::Permission(requires.clone().into());
        let server = AskedServer {
            place: EnforcementPoint::Unseen,
            requires,
            permissive: false,
            server_names: Arc::default(),
        };
        let found = explain(&call, &[server]);
        assert_eq!((found.verdict, found.answers[0].server.as_str()), (verdict, "not known here"));
    }
}

#[test]
fn an_egress_is_asked_by_server_name_and_so_is_what_is_offered() {
    let mesh = of(world([]));
    let client = ClientClass::of(&mesh, &mesh.dataplanes["web-1"]);
    let names: Arc<[String]> = Arc::new(["the-name".to_owned()]);
    let call = call(&mesh, &client, "outside", false);
    let server = |requires: policy::Permissions| AskedServer {
        place: EnforcementPoint::Egress,
        requires: Requirement::Permission(requires.into()),
        permissive: false,
        server_names: names.clone(),
    };
    let found = explain(&call, &[server(policy::Permissions::default())]);
    assert_eq!((found.verdict, found.answers[0].server.as_str()), (ReachabilityVerdict::Denied, "egress"));
    let permission = Arc::new(offered(&found.change.unwrap()).remove(0));
    let then = policy::permission::behind_names([&permission], &names, None).unwrap();
    assert_eq!(explain(&call, &[server(then)]).verdict, ReachabilityVerdict::Reachable);
}
