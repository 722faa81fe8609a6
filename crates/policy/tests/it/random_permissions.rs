//! The resolver against a reference that shares no code with it.

use std::sync::Arc;

use policy::{PolicySelector, permission};
use rand::{SeedableRng, rngs::StdRng};
use resources::{Kind, Resource};
use serde_json::json;

use crate::{
    reference::{Policy, SERVICES, Server, decide, one, random_client, random_policies, random_tags},
    support::{dataplane, inbound, resource},
};

fn stored(written: &[Policy]) -> Vec<Arc<Resource>> {
    let make = |policy: &Policy| {
        resource(Kind::MeshTrafficPermission, &policy.name, &policy.labels, policy.spec.clone())
    };
    written.iter().map(make).collect()
}

#[test]
fn random_permissions_decide_as_a_naive_reading_does() {
    let mut rng = StdRng::seed_from_u64(20_261_115);
    let mut seen = [0_usize; 3];
    for case in 0..3000 {
        let written = random_policies(&mut rng);
        let policies = stored(&written);
        let mut tags = random_tags(&mut rng, 0.6);
        tags["kuma.io/service"] = json!(one(&mut rng, &SERVICES));
        // A name may look like the port of the other inbound.
        let name = one(&mut rng, &["http", "8081"]);
        let proxy = dataplane(
            "proxy",
            &[("app", "x")],
            json!({"address": "127.0.0.1", "inbound": [
                {"port": 8080, "name": name, "tags": tags}, {"port": 8081, "tags": tags}
            ]}),
        );
        for (index, own, port) in [(0, name, "8080"), (1, "", "8081")] {
            let permissions =
                permission::resolve(&policies, &proxy, inbound(&proxy, index), &PolicySelector::default());
            let server = Server { name: own, port, names: &[name], tags: tags.clone() };
            for _ in 0..5 {
                let client = random_client(&mut rng);
                let expect = decide(&written, &server, &client);
                let decision = permissions.decide(&client);
                assert_eq!(
                    decision.effect, expect,
                    "case {case}: {client:?}\n{own}:{port} {tags}\n{written:#?}"
                );
                seen[expect as usize] += 1;
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 1000), "the cases are too much alike: {seen:?}");
}

#[test]
fn the_order_in_which_policies_arrive_does_not_matter() {
    let mut rng = StdRng::seed_from_u64(7);
    let proxy = dataplane(
        "proxy",
        &[("app", "x")],
        json!({"address": "127.0.0.1", "inbound": [{"port": 8080, "name": "http", "tags": {"kuma.io/service": "web"}}]}),
    );
    let resolve = |policies: &[Arc<Resource>]| {
        permission::resolve(policies, &proxy, inbound(&proxy, 0), &PolicySelector::default())
    };
    for _ in 0..500 {
        let mut policies = stored(&random_policies(&mut rng));
        let first = resolve(&policies);
        policies.reverse();
        assert_eq!(first, resolve(&policies));
    }
}
