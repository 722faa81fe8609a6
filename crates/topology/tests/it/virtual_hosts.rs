//! Hostnames that VirtualOutbounds create: which ones, who wins, and what a change of them costs.

use jiff::Timestamp;
use resources::{Key, Kind, Resource};
use serde_json::{Value, json};
use topology::{
    AllMeshes, MeshSnapshot, ResourceChange,
    virtual_hosts::{LIMIT, vips},
};

use crate::{
    fixtures::{dataplane, destination, endpoints, gone, mesh, present, resource, snapshot, state},
    zones::ingress,
};

fn policy(name: &str, selector: Value, host: &str, port: &str, parameters: &[(&str, &str)]) -> Resource {
    let parameter = |(name, tag): &(&str, &str)| json!({ "name": name, "tagKey": tag });
    let parameters: Vec<Value> = parameters.iter().map(parameter).collect();
    let conf = json!({ "host": host, "port": port, "parameters": parameters });
    let spec = json!({ "selectors": [{ "match": selector }], "conf": conf });
    resource(Kind::VirtualOutbound, name, &[], spec)
}

fn created(second: i64, resource: Resource) -> Resource {
    Resource { created: Timestamp::from_second(second).unwrap(), ..resource }
}

fn serving(name: &str, tags: Value) -> Resource {
    dataplane(name, "10.0.0.1", json!([{ "port": 80, "tags": tags }]))
}

/// Every hostname and port with the policy and the tags.
fn hosts(snapshot: &MeshSnapshot) -> Vec<String> {
    let hosts = snapshot.virtual_hosts.by_name.values();
    let spelled = hosts.flat_map(|host| {
        host.ports.iter().map(|(port, offer)| {
            let tags: Vec<String> =
                offer.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let policy = offer.policy.as_deref().unwrap_or("(mesh)");
            format!("{}:{port} {policy} {}", host.hostname, tags.join(" "))
        })
    });
    spelled.collect()
}

const SRV: (&str, &str) = ("srv", "kuma.io/service");

#[test]
fn one_hostname_for_each_tuple_and_several_ports_for_one_hostname() {
    let guarded = "{{if .port}}{{.port}}{{else}}8080{{end}}";
    let parameters = [SRV, ("instance", "instance"), ("port", "port")];
    let any = json!({ "kuma.io/service": "*", "instance": "*" });
    let dataplanes = [
        serving("1", json!({ "kuma.io/service": "service1", "instance": "a", "port": "9000" })),
        serving("2", json!({ "kuma.io/service": "service1", "instance": "b" })),
        serving("3", json!({ "kuma.io/service": "service1", "instance": "b", "region": "eu" })),
        serving("4", json!({ "kuma.io/service": "service2" })),
    ];
    let with = |policy: Resource| snapshot(dataplanes.clone().into_iter().chain([mesh(""), policy]));
    assert_eq!(
        hosts(&with(policy("p", any.clone(), "{{.srv}}.{{.instance}}.mesh", guarded, &parameters))),
        [
            "service1.a.mesh:9000 p instance=a kuma.io/service=service1 port=9000",
            "service1.b.mesh:8080 p instance=b kuma.io/service=service1",
        ]
    );
    assert_eq!(
        hosts(&with(policy("p", any, "{{.srv}}.mesh", guarded, &parameters))),
        [
            "service1.mesh:8080 p instance=b kuma.io/service=service1",
            "service1.mesh:9000 p instance=a kuma.io/service=service1 port=9000",
        ]
    );
}

#[test]
fn instances_of_other_zones_have_hostnames_too() {
    let brokers = policy(
        "brokers",
        json!({ "kuma.io/service": "*", "instance": "*" }),
        "{{.srv}}.{{.instance}}.mesh",
        "9092",
        &[SRV, ("instance", "instance")],
    );
    let listed = |instance: &str| {
        json!({ "mesh": "default", "instances": 1, "tags": {
            "kuma.io/service": "kafka", "instance": instance, "kuma.io/zone": "west" } })
    };
    let gate = |zone: &str, services: Value| ingress(&format!("gate-{zone}"), zone, "192.168.0.1", services);
    let host = |instance: &str| {
        format!("kafka.{instance}.mesh:9092 brokers instance={instance} kuma.io/service=kafka")
    };
    let own = serving("own", json!({ "kuma.io/service": "kafka", "instance": "0" }));
    let mut foreign = listed("7");
    foreign["mesh"] = json!("other");
    let first = json!([listed("1"), listed("2"), foreign]);
    let changes =
        [gate("west", first), gate("east", json!([listed("8")])), mesh("STRICT"), brokers, own.clone()];
    let mut state = AllMeshes::in_zone("east");
    state.apply(&changes.map(present));
    let shown = |state: &AllMeshes| hosts(state.mesh("default").unwrap());
    assert_eq!(shown(&state), [host("0"), host("1"), host("2")]);

    // They come and go with the ingress that lists them.
    state.apply(&[present(gate("west", json!([listed("2"), listed("0")])))]);
    assert_eq!(shown(&state), [host("0"), host("2")]);
    state.apply(&[gone(&own)]);
    assert_eq!(shown(&state), [host("0"), host("2")], "another zone has it, too");
    state.apply(&[gone(&gate("west", json!([])))]);
    assert_eq!(shown(&state), [""; 0]);
}

#[test]
fn a_hostname_leads_to_everything_that_carries_its_tags() {
    let by_version = policy(
        "p",
        json!({ "kuma.io/service": "*", "version": "*" }),
        "{{.v}}.{{.srv}}.mesh",
        "8080",
        &[SRV, ("v", "version")],
    );
    let tagged = |version: &str| json!({ "kuma.io/service": "backend", "version": version });
    let at = |name: &str, address: &str, version: &str| {
        dataplane(name, address, json!([{ "port": 80, "tags": tagged(version) }]))
    };
    let found = snapshot([
        mesh("STRICT"),
        by_version,
        at("1", "10.0.0.1", "v1"),
        at("2", "10.0.0.2", "v2"),
        at("3", "10.0.0.3", "v1"),
    ]);
    assert_eq!(
        found.virtual_hosts.by_name.keys().map(|host| &**host).collect::<Vec<_>>(),
        ["v1.backend.mesh", "v2.backend.mesh"]
    );
    let id = "backend{version=v1}";
    assert_eq!(endpoints(&found, id), ["10.0.0.1:80", "10.0.0.3:80"]);
    assert!(destination(&found, id).exists);
}

#[test]
fn inbounds_that_take_no_traffic_of_the_mesh_have_no_hostnames() {
    let any = policy("p", json!({ "kuma.io/service": "*" }), "{{.srv}}.mesh", "80", &[SRV]);
    let inbounds = json!([
        { "port": 80, "tags": { "kuma.io/service": "ignored" }, "state": "Ignored" },
        { "port": 49151, "tags": { "kuma.io/service": "no-port" } },
        { "port": 81 },
        { "port": 82, "tags": { "kuma.io/service": "down" }, "state": "NotReady" },
    ]);
    let found = snapshot([mesh(""), any, dataplane("1", "10.0.0.1", inbounds)]);
    assert_eq!(hosts(&found), ["down.mesh:80 p kuma.io/service=down"]);
}

#[test]
fn the_more_specific_claim_wins_then_the_newer_then_the_first_by_name() {
    let any = json!({ "kuma.io/service": "*" });
    let both = json!({ "kuma.io/service": "*", "instance": "*" });
    let one = |name: &str, selector: &Value| policy(name, selector.clone(), "one.mesh", "8080", &[SRV]);
    let backend = serving("1", json!({ "kuma.io/service": "backend", "instance": "a" }));
    let wins = |policies: [Resource; 2]| {
        let reversed = policies.clone().into_iter().rev();
        let found = snapshot([mesh(""), backend.clone()].into_iter().chain(policies.clone()));
        assert_eq!(found, snapshot(reversed.chain([backend.clone(), mesh("")])));
        let conflict = found.virtual_hosts.conflicts.get_min().unwrap();
        assert_eq!((&*conflict.hostname, conflict.port), ("one.mesh", 8080));
        assert_eq!(conflict.winner, found.virtual_hosts.by_name["one.mesh"].ports[&8080]);
        (
            conflict.winner.policy.clone().unwrap().to_string(),
            conflict.loser.policy.clone().unwrap().to_string(),
        )
    };
    let said = |winner: &str, loser: &str| (winner.to_owned(), loser.to_owned());
    assert_eq!(
        wins([created(9, one("vob-1", &any)), created(1, one("vob-2", &both))]),
        said("vob-2", "vob-1")
    );
    assert_eq!(
        wins([created(1, one("vob-1", &any)), created(9, one("vob-2", &any))]),
        said("vob-2", "vob-1")
    );
    assert_eq!(wins([one("vob-1", &any), one("vob-2", &any)]), said("vob-1", "vob-2"));
}

#[test]
fn a_hostname_claimed_by_many_services_lists_a_few_of_the_losers() {
    let one = policy("p", json!({ "kuma.io/service": "*" }), "one.mesh", "80", &[SRV]);
    let many = (10..60).map(|i| serving(&format!("dp-{i}"), json!({ "kuma.io/service": format!("s{i}") })));
    let found = snapshot([mesh(""), one].into_iter().chain(many));
    assert_eq!(hosts(&found), ["one.mesh:80 p kuma.io/service=s10"]);
    let losers: Vec<&str> =
        found.virtual_hosts.conflicts.iter().map(|conflict| conflict.loser.service()).collect();
    assert_eq!(losers, ["s11", "s12", "s13", "s14", "s15", "s16", "s17", "s18", "s19", "s20"]);
}

#[test]
fn what_cannot_be_rendered_is_counted_with_a_reason() {
    let by_zone = policy(
        "p",
        json!({ "kuma.io/service": "*" }),
        "{{.srv}}.{{.zone}}.mesh",
        "80",
        &[SRV, ("zone", "kuma.io/zone")],
    );
    let without = ["a", "b"].map(|name| serving(name, json!({ "kuma.io/service": name })));
    let mut state = state([mesh(""), by_zone].into_iter().chain(without.clone()));
    let found = state.mesh("default").unwrap();
    let unrendered = &found.virtual_hosts.unrendered["p"];
    assert_eq!((unrendered.tuples, unrendered.tags["kuma.io/service"].as_str()), (2, "a"));
    assert!(unrendered.reason.contains("a.<no value>.mesh"), "{}", unrendered.reason);
    let updates = state.apply(&without.map(|dataplane| gone(&dataplane)));
    assert!(updates[0].affected.virtual_hosts[""].is_empty());
    assert!(state.mesh("default").unwrap().virtual_hosts.unrendered.is_empty());
}

#[test]
fn an_address_is_the_one_that_is_stored() {
    let any = policy("p", json!({ "kuma.io/service": "*" }), "{{.srv}}.mesh", "80", &[SRV]);
    let mut state = state([mesh(""), any, serving("1", json!({ "kuma.io/service": "backend" }))]);
    let vip = |state: &AllMeshes| state.mesh("default").unwrap().virtual_hosts.by_name["backend.mesh"].vip;
    assert_eq!(vip(&state), None);
    let key = Key::global(Kind::Config, &vips::config_name("default", vips::shard_of("backend.mesh")));
    let spec = json!({ "config": "{\"backend.mesh\":{\"address\":\"240.1.2.3\"}}" });
    let stored = Resource { key, ..resource(Kind::Config, "x", &[], spec) };
    let updates = state.apply(&[present(stored.clone())]);
    let named: Vec<&str> = updates[0].affected.virtual_hosts["backend.mesh"].iter().map(|s| &**s).collect();
    assert_eq!((named, vip(&state)), (vec!["backend"], Some("240.1.2.3".parse().unwrap())));
    assert!(state.apply(&[present(stored)]).is_empty());
}

#[test]
fn the_last_hostnames_by_name_are_left_out_whatever_the_order() {
    let any = policy("p", json!({ "kuma.io/service": "*" }), "{{.srv}}.mesh", "80", &[SRV]);
    let service = |i: u32| serving(&format!("dp-{i}"), json!({ "kuma.io/service": format!("s{i}") }));
    let names = |state: &AllMeshes| {
        let hosts = &state.mesh("default").unwrap().virtual_hosts;
        (
            hosts.by_name.keys().map(|host| host.replace(".mesh", "")).collect::<Vec<_>>().join(" "),
            hosts.left_out,
        )
    };
    let mut orders = [vec![5, 3, 9, 1, 7, 2], vec![1, 2, 3, 5, 7, 9], vec![9, 7, 5, 3, 2, 1]].into_iter();
    let mut followed: Vec<AllMeshes> = Vec::new();
    for order in orders.by_ref() {
        let mut state = AllMeshes::default().with_host_limit(3);
        state.apply(&[present(mesh("")), present(any.clone())]);
        for i in order {
            state.apply(&[present(service(i))]);
        }
        assert_eq!(names(&state), ("s1 s2 s3".to_owned(), 3));
        followed.push(state);
    }
    let state = &mut followed[0];
    for (change, expect) in [
        (gone(&service(2)), ("s1 s3 s5", 2)),
        (present(service(4)), ("s1 s3 s4", 3)),
        (gone(&service(9)), ("s1 s3 s4", 2)),
        (gone(&service(1)), ("s3 s4 s5", 1)),
    ] {
        state.apply(&[change]);
        assert_eq!(names(state), (expect.0.to_owned(), expect.1));
    }
    let changes: Vec<ResourceChange> =
        [3, 4, 5].map(|i| gone(&service(i))).into_iter().chain([present(service(6))]).collect();
    state.apply(&changes);
    assert_eq!(names(state), ("s6 s7".to_owned(), 0));
}

#[test]
fn a_change_costs_what_it_renders_whatever_else_there_is() {
    let any = policy("p", json!({ "kuma.io/service": "*" }), "{{.srv}}.mesh", "80", &[SRV]);
    let many = (0..200).map(|i| serving(&format!("dp-{i}"), json!({ "kuma.io/service": format!("s{i}") })));
    let mut state = state([mesh(""), any].into_iter().chain(many));
    let before = state.hosts_rendered();
    state.apply(&[present(serving("another", json!({ "kuma.io/service": "s7" })))]);
    assert_eq!(state.hosts_rendered() - before, 0, "the tags are known");
    state.apply(&[present(serving("new", json!({ "kuma.io/service": "new" })))]);
    assert_eq!(state.hosts_rendered() - before, 1);
    let one = policy("q", json!({ "kuma.io/service": "s8" }), "eight.mesh", "80", &[SRV]);
    state.apply(&[present(one)]);
    assert_eq!(state.hosts_rendered() - before, 2);
}

/// Dataplanes of ten inbounds each, whose services are called by these numbers.
fn crowd(numbers: std::ops::Range<usize>) -> Vec<Resource> {
    let numbers: Vec<usize> = numbers.collect();
    let dataplane = |some: &[usize]| {
        let inbound = |(i, number): (usize, &usize)| json!({ "port": 8000 + i, "tags": { "kuma.io/service": format!("s{number:06}") } });
        let inbounds: Vec<Value> = some.iter().enumerate().map(inbound).collect();
        dataplane(&format!("dp-{}", some[0]), "10.0.0.1", json!(inbounds))
    };
    numbers.chunks(10).map(dataplane).collect()
}

/// Policies that each make a hostname for every service. They lead to few destinations, which keeps the test quick.
#[test]
fn hostnames_beyond_a_hundred_thousand_are_counted_and_not_kept() {
    let any = json!({ "kuma.io/service": "*" });
    let policies = (0..1030).map(|i| {
        policy(&format!("p{i:04}"), any.clone(), &format!("{{{{.srv}}}}.p{i:04}.mesh"), "80", &[SRV])
    });
    let mut state = state([mesh("")].into_iter().chain(crowd(0..100)).chain(policies));
    let hosts = |state: &AllMeshes| state.mesh("default").unwrap().virtual_hosts.clone();
    assert_eq!((hosts(&state).by_name.len(), hosts(&state).left_out), (LIMIT, 3000));
    let kept = state.host_claims_kept();
    assert!((LIMIT..LIMIT + 2000).contains(&kept), "{kept}");
    let said = hosts(&state).too_many().unwrap();
    assert!(said.contains("more than 100000 hostnames") && said.contains("3000 sets of tags"), "{said}");

    let rendered = state.hosts_rendered();
    let updates = state.apply(&[present(serving("last", json!({ "kuma.io/service": "s999999" })))]);
    assert_eq!((state.hosts_rendered() - rendered, state.host_claims_kept()), (1030, kept));
    assert_eq!(updates[0].affected.virtual_hosts.keys().map(|host| &**host).collect::<Vec<_>>(), [""]);
    assert_eq!(hosts(&state).left_out, 4030);
}

#[test]
fn what_was_only_counted_is_found_again_when_there_is_room() {
    let any = policy("p", json!({ "kuma.io/service": "*" }), "{{.srv}}.mesh", "80", &[SRV]);
    let twice = policy("q", json!({ "kuma.io/service": "*" }), "{{.srv}}.mesh", "81", &[SRV]);
    let fresh = || AllMeshes::default().with_host_limit(20);
    let mut state = fresh();
    let all = crowd(0..2000);
    let first: Vec<ResourceChange> = [mesh(""), any, twice].into_iter().map(present).collect();
    state.apply(&first);
    // From the last to the first: each takes the place of another one.
    for some in all.chunks(50).rev() {
        state.apply(&some.iter().cloned().map(present).collect::<Vec<_>>());
    }
    let dropped = state.host_claims_kept();
    assert!(dropped < 2 * 1100, "{dropped} of 4000 claims are kept");
    for (gone_until, step) in (1..=all.len()).step_by(3).zip(1..) {
        let start = gone_until.saturating_sub(3);
        state.apply(&all[start..gone_until].iter().map(gone).collect::<Vec<_>>());
        if step % 10 != 0 && gone_until + 12 < all.len() {
            continue;
        }
        let mut rebuilt = fresh();
        let rest = all[gone_until..].iter().cloned().map(present);
        rebuilt.apply(&first.iter().cloned().chain(rest).collect::<Vec<_>>());
        assert_eq!(state.mesh("default"), rebuilt.mesh("default"), "without the first {gone_until}");
        let left = 10 * (all.len() - gone_until);
        let hosts = &state.mesh("default").unwrap().virtual_hosts;
        assert_eq!((hosts.by_name.len(), hosts.left_out), (left.min(20), 2 * left.saturating_sub(20)));
    }
}

#[test]
fn a_port_taken_by_a_virtual_outbound_is_known_in_either_order() {
    let any = policy("p", json!({ "kuma.io/service": "*" }), "{{.srv}}.mesh", "80", &[SRV]);
    let backend = serving("1", json!({ "kuma.io/service": "backend" }));
    let service = |hostname: &str, port: u16| {
        let spec = json!({
            "selector": { "dataplaneTags": { "kuma.io/service": "backend" } },
            "ports": [{ "port": port, "targetPort": 80 }, { "port": 9000, "targetPort": 80 }],
        });
        let status = json!({ "addresses": [{ "hostname": hostname, "status": "Available" }] });
        let status = Some(resources::Status::from_json(Kind::MeshService, status).unwrap());
        Resource { status, ..resource(Kind::MeshService, "backend", &[], spec) }
    };
    let taken = |state: &AllMeshes| -> Vec<String> {
        let taken = &state.mesh("default").unwrap().virtual_hosts.taken_over;
        let said = |lost: &topology::TakenOver| {
            format!(
                "{}:{} of {} by {}",
                lost.hostname,
                lost.port,
                lost.service.name,
                lost.winner.policy.as_deref().unwrap()
            )
        };
        taken.values().flatten().map(said).collect()
    };
    let expected = ["backend.mesh:80 of backend by p"];
    let all = [any.clone(), backend.clone(), service("backend.mesh", 80)];
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut state = state([mesh("")]);
        for i in order {
            state.apply(&[present(all[i].clone())]);
        }
        assert_eq!(taken(&state), expected, "{order:?}");
    }
    let mut state = state([mesh("")].into_iter().chain(all.clone()));
    for (change, left) in [
        (present(service("backend.mesh", 81)), 0),
        (present(service("backend.mesh", 80)), 1),
        (present(service("backend.svc", 80)), 0),
        (present(service("Backend.mesh", 80)), 1),
        (gone(&all[1]), 0),
        (present(backend), 1),
        (gone(&any), 0),
        (present(any.clone()), 1),
        (gone(&all[2]), 0),
    ] {
        state.apply(std::slice::from_ref(&change));
        assert_eq!(taken(&state), expected[..left], "{:?}", change.0);
    }
}

#[test]
fn hostnames_are_found_by_the_services_that_they_lead_to() {
    let any = policy("p", json!({ "kuma.io/service": "*" }), "{{.srv}}.mesh", "80", &[SRV]);
    let one = policy("q", json!({ "kuma.io/service": "s000007" }), "seven.mesh", "80", &[SRV]);
    let mut state = state([mesh(""), any, one.clone()].into_iter().chain(crowd(0..100)));
    let found = |state: &AllMeshes, services: &[&str]| -> Vec<String> {
        let hosts = &state.mesh("default").unwrap().virtual_hosts;
        hosts
            .of_services(&services.iter().copied().collect())
            .iter()
            .map(|h| h.hostname.to_string())
            .collect()
    };
    assert_eq!(
        found(&state, &["s000007", "s000003", "none"]),
        ["s000003.mesh", "s000007.mesh", "seven.mesh"]
    );
    state.apply(&[gone(&one)]);
    assert_eq!(found(&state, &["s000007"]), ["s000007.mesh"]);
    state.apply(&[gone(&crowd(0..10)[0])]);
    assert_eq!(found(&state, &["s000007"]), [""; 0]);
}
