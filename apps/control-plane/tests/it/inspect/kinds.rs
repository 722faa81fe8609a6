//! Every kind of policy that has an effect is shown by inspection.

use api::{Inspect, inspect::policies::PoliciesOf};
use plan::effective::KINDS;
use resources::{
    Key, Kind, Resource,
    policy::{PolicyPresentation, ProxySide},
};
use serde_json::{Value, json};

use super::{Inspected, layout::exclusive};
use crate::world::{resource, service};

const BACKEND: &str = "kri_msvc_default___backend_80";

fn sample(kind: Kind) -> Resource {
    let backend = json!({ "kind": "MeshService", "name": "backend" });
    let to = |rest: Value| {
        let mut entry = rest;
        entry["targetRef"] = backend.clone();
        json!({ "to": [entry] })
    };
    let spec = match kind {
        Kind::MeshAccessLog => {
            let logs = json!({ "backends": [{ "type": "File", "file": { "path": "/tmp/a.log" } }] });
            let mut spec = to(json!({ "default": logs }));
            spec["rules"] = json!([{ "default": logs }]);
            spec
        }
        Kind::MeshTrace => json!({ "default": { "backends": [
            { "type": "Zipkin", "zipkin": { "url": "http://zipkin:9411/api/v2/spans" } },
        ] } }),
        Kind::MeshCircuitBreaker => {
            let limits = json!({ "connectionLimits": { "maxRetries": 7 } });
            let mut spec = to(json!({ "default": limits }));
            spec["rules"] = json!([{ "default": limits }]);
            spec
        }
        Kind::MeshFaultInjection => {
            let fault = json!({ "http": [{ "abort": { "httpStatus": 500, "percentage": "2.5" } }] });
            json!({ "targetRef": { "kind": "Dataplane" },
                "from": [{ "targetRef": { "kind": "Mesh" }, "default": fault }] })
        }
        Kind::MeshHealthCheck => to(json!({ "default": { "interval": "7s", "tcp": {} } })),
        Kind::MeshHTTPRoute => {
            let matches = json!([{ "path": { "type": "Exact", "value": "/" } }]);
            to(json!({ "rules": [{ "matches": matches, "default": {} }] }))
        }
        Kind::MeshLoadBalancingStrategy => to(json!({ "default": { "loadBalancer": { "type": "Random" } } })),
        Kind::MeshMetric => {
            json!({ "default": { "backends": [{ "type": "Prometheus", "prometheus": { "port": 5670 } }] } })
        }
        Kind::MeshRateLimit => {
            let rate = json!({ "requestRate": { "num": 7, "interval": "1s" } });
            json!({ "targetRef": { "kind": "Dataplane" },
                "rules": [{ "default": { "local": { "http": rate } } }] })
        }
        Kind::MeshPassthrough => json!({ "default": { "passthroughMode": "None" } }),
        Kind::MeshProxyPatch => {
            json!({ "default": { "appendModifications": [{ "cluster": { "operation": "Remove" } }] } })
        }
        Kind::MeshRetry => to(json!({ "default": { "http": { "numRetries": 7 } } })),
        Kind::MeshTCPRoute => to(json!({ "rules": [{ "default": { "backendRefs": [backend] } }] })),
        Kind::MeshTLS => json!({ "rules": [{ "default": { "mode": "Strict" } }] }),
        Kind::MeshTimeout => {
            let mut spec = to(json!({ "default": { "idleTimeout": "7s" } }));
            spec["rules"] = json!([{ "default": { "idleTimeout": "7s" } }]);
            spec
        }
        Kind::MeshTrafficPermission => {
            json!({ "from": [{ "targetRef": { "kind": "Mesh" }, "default": { "action": "Allow" } }] })
        }
        other => panic!("{other} has an effect: add one here, and see that inspection shows it"),
    };
    resource(Key::new(kind, "default", "sample"), &[], spec)
}

#[tokio::test]
async fn every_kind_in_effect_is_shown_where_its_row_says() {
    let inspected = Inspected::new().await;
    let inbound = json!({ "port": 80, "tags": { "kuma.io/service": "web" } });
    let networking = json!({ "address": "127.0.0.2", "inbound": [inbound] });
    let web = Key::new(Kind::Dataplane, "default", "web");
    let own = [
        exclusive("STRICT"),
        service("default", "backend", &[]),
        resource(web.clone(), &[], json!({ "networking": networking })),
    ];
    inspected.world.put(own.into_iter().chain(KINDS.into_iter().map(sample))).await;
    let ask = async |of: PoliciesOf| {
        let found = inspected.proxies.policies(&web, &of).await.unwrap();
        found.policies.into_iter().map(|policy| policy.kind).collect::<Vec<_>>()
    };
    let outbound = || PoliciesOf::Outbound(BACKEND.parse().unwrap());
    let by_side = [
        (ProxySide::Inbound, ask(PoliciesOf::Inbound("kri_dp_default___web_80".parse().unwrap())).await),
        (ProxySide::Outbound, ask(outbound()).await),
        (ProxySide::Proxy, ask(PoliciesOf::Proxy).await),
    ];
    let rules = inspected.proxies.rules(&web).await.unwrap();
    let listed: Vec<&str> = rules.rules.iter().map(|rules| &*rules.r#type).collect();
    let routes = inspected.proxies.routes(&web, &BACKEND.parse().unwrap()).await.unwrap();
    let routes: Vec<&str> = routes.routes.iter().map(|routes| &*routes.kind).collect();
    for kind in KINDS {
        let row = kind.descriptor().policy.unwrap();
        assert!(listed.contains(&kind.name()), "{kind} is not among the rules: {listed:?}");
        for (side, shown) in &by_side {
            assert_eq!(
                shown.iter().any(|shown| *shown == kind.name()),
                row.is_about(*side),
                "{kind}, {side:?}: {shown:?}"
            );
        }
        let leads = matches!(row.effect.unwrap().shown, PolicyPresentation::Routes { .. });
        assert_eq!(routes.contains(&kind.name()), leads, "{kind} among routes: {routes:?}");
    }
}
