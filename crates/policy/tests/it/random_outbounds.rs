//! Random policies for destinations, against a reference that shares no code with the resolver.

use std::sync::Arc;

use policy::{Policy, PolicySelector, outbound};
use rand::{SeedableRng, rngs::StdRng};
use resources::{Kind, Resource};
use serde_json::json;

use crate::{
    outbound_reference::{EXTERNAL, KINDS, Question, SERVICES, Written, conf, random_policies},
    support::{Known, dataplane, origins, resource},
};

fn stored(written: &Written) -> Arc<Policy> {
    let kind = Kind::by_name(written.kind).unwrap();
    let resource = resource(kind, &written.name, &written.labels, written.spec.clone());
    Arc::new(Policy::of(resource).unwrap())
}

/// The mesh that the policies are written for.
fn known() -> Vec<Arc<Resource>> {
    let ports = json!([{"port": 80, "name": "http", "targetPort": 80}, {"port": 81, "targetPort": 81}]);
    let service = |(name, team): (&str, &str)| {
        resource(Kind::MeshService, name, &[("team", team)], json!({"selector": {}, "ports": ports}))
    };
    let external = json!({"match": {"type": "HostnameGenerator", "port": 80}, "endpoints": []});
    let route = |name: &str| {
        let owner = if name == "near" { "web" } else { "other" };
        resource(Kind::MeshHTTPRoute, name, &[], json!({"targetRef": {"kind": "Dataplane", "name": owner}}))
    };
    let mut known = vec![resource(Kind::Mesh, "default", &[], json!({}))];
    known.extend(SERVICES.map(service));
    known.push(resource(Kind::MeshExternalService, EXTERNAL, &[], external));
    // `far` is for another proxy.
    known.extend(["near", "far"].map(route));
    known
}

fn questions() -> Vec<Question> {
    let ports =
        SERVICES.iter().flat_map(|(name, _)| ["http", "81"].map(|section| ("MeshService", *name, section)));
    let destinations = ports.chain([("MeshExternalService", EXTERNAL, "80")]);
    let asked = destinations.flat_map(|(kind, name, section)| {
        [None, Some("near")].map(|route| Question { route, kind, name, section })
    });
    asked.collect()
}

#[test]
fn random_policies_about_calls_add_up_as_in_a_naive_reading() {
    let known = known();
    let routes: Vec<Arc<Resource>> =
        known.iter().filter(|resource| resource.kind() == Kind::MeshHTTPRoute).cloned().collect();
    let web = dataplane(
        "web",
        &[("app", "x")],
        json!({"address": "127.0.0.1", "inbound": [{"port": 80, "tags": {"kuma.io/service": "web", "version": "v1"}}]}),
    );
    let selector = PolicySelector { routes: &routes, ..PolicySelector::default() };
    let mut rng = StdRng::seed_from_u64(20_261_116);
    let mut something = 0;
    let mut of_several = 0;
    let mut of_routes = 0;
    for case in 0..1500 {
        let written = random_policies(&mut rng);
        let policies: Vec<Arc<Policy>> = written.iter().map(stored).collect();
        for kind in KINDS {
            let of_kind = policies.iter().filter(|policy| policy.resource.kind().name() == kind);
            let applying = selector.for_proxy(of_kind, &web);
            let shape = Kind::by_name(kind).unwrap().descriptor().policy.unwrap().merge;
            let rules =
                outbound::resolve(applying.into_iter().map(|policy| &policy.view), &Known(&known), shape);
            for question in questions() {
                let short = if question.kind == "MeshService" { "msvc" } else { "extsvc" };
                let kri = format!("kri_{short}_default___{}_{}", question.name, question.section);
                let destination = kri.parse().unwrap();
                let rule = match question.route {
                    Some(route) => {
                        let route = format!("kri_mhttpr_default___{route}_rule_0").parse().unwrap();
                        rules.for_route(&route, &destination)
                    }
                    None => rules.for_destination(&destination),
                };
                let found = rule.map(|rule| (rule.merged()[0].conf.clone(), origins(rule.origins())));
                let expected = conf(&written, kind, question);
                assert_eq!(found, expected, "case {case}: {kind} {question:?}\n{written:#?}");
                if let Some((_, origins)) = found {
                    something += 1;
                    of_several += usize::from(origins.len() > 1);
                    of_routes += usize::from(
                        question.route.is_some() && rule.unwrap().target.kind() == Some(Kind::MeshHTTPRoute),
                    );
                }
            }
        }
    }
    let seen = [something, of_several, of_routes];
    assert!(seen.iter().all(|count| *count > 2000), "the cases are too much alike: {seen:?}");
}
