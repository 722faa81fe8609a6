//! Policies that would do nothing.

use contract::what_if::{WhatIfPolicy, WhatIfPolicyReason};
use resources::Kind;
use serde_json::json;
use testkit::resource::timeout;

use super::{ask, ask_without, small};
use crate::world::resource;

fn told(idle: &[WhatIfPolicy]) -> Vec<(&str, WhatIfPolicyReason)> {
    idle.iter().map(|policy| (policy.name.as_str(), policy.reason)).collect()
}

#[tokio::test]
async fn a_policy_that_selects_no_proxy_is_listed() {
    let (world, _proxies) = small().await;
    let nobody = || timeout("nobody", json!({ "kind": "Dataplane", "name": "nobody" }), 7);
    let found = ask(&world, [nobody()]).await.policies;
    assert_eq!(told(&found), [("nobody", WhatIfPolicyReason::MatchesNothing)]);
    assert_eq!(
        (found[0].kri.as_deref(), &*found[0].r#type),
        (Some("kri_mt_default___nobody_"), "MeshTimeout")
    );
    // One that is idle already is no consequence of something else.
    world.put([nobody(), timeout("one", json!({ "kind": "Dataplane", "name": "web-1" }), 7)]).await;
    assert_eq!(ask(&world, [timeout("all", json!({ "kind": "Mesh" }), 5)]).await.policies, []);
    // Its last Dataplane goes.
    let found = ask_without(&world, Kind::Dataplane, "web-1").await.policies;
    assert_eq!(told(&found), [("one", WhatIfPolicyReason::MatchesNothing)]);
    // Another one is left.
    world.put([timeout("some", json!({ "kind": "MeshService", "name": "web" }), 7)]).await;
    let found = ask_without(&world, Kind::Dataplane, "web-2").await.policies;
    assert_eq!(told(&found), []);
}

#[tokio::test]
async fn policies_that_are_or_would_be_overridden_are_reported() {
    let (world, _proxies) = small().await;
    world.put([timeout("wide", json!({ "kind": "MeshService", "name": "web" }), 9)]).await;
    // More specific about the same: the wide one has no proxy left that listens to it.
    let narrow = |i: u32| {
        timeout(&format!("n-{i}"), json!({ "kind": "MeshServiceSubset", "name": "web", "tags": {} }), 7)
    };
    let found = ask(&world, [narrow(1)]).await.policies;
    assert_eq!(told(&found), [("wide", WhatIfPolicyReason::Shadowed)]);
    world.put([narrow(1)]).await;
    let found = ask(&world, [timeout("wider", json!({ "kind": "Mesh" }), 5)]).await.policies;
    assert_eq!(
        told(&found),
        [("wider", WhatIfPolicyReason::Shadowed)],
        "the server calls nothing it could be about"
    );
    let wide = timeout("wide", json!({ "kind": "MeshService", "name": "web" }), 11);
    assert_eq!(told(&ask(&world, [wide]).await.policies), [("wide", WhatIfPolicyReason::Shadowed)]);
    // What goes makes way.
    assert_eq!(told(&ask_without(&world, Kind::MeshTimeout, "n-1").await.policies), []);
}

#[tokio::test]
async fn a_policy_in_shadow_does_what_it_should() {
    let (world, _proxies) = small().await;
    let real = timeout("nobody", json!({ "kind": "Dataplane", "name": "nobody" }), 7);
    let shadow = resource(real.key.clone(), &[("kuma.io/effect", "shadow")], real.spec.to_json());
    assert_eq!(ask(&world, [shadow]).await.policies, []);
}
