//! Rows about all of a mesh, or about calls in it.

use contract::{
    access::Access,
    findings::ProblemList,
    graph::AccessGraph,
    observed::ObservedCalls,
    reachability::{MeshReachability, ProxyReachabilityAnswer},
    signals::SignalList,
    sni::{KnownSni, UsageList},
    suggestions::Suggestions,
    what_if::{WhatIf, WhatIfRequest},
};
use http::Method;
use resources::Kind;

use super::{
    AccessRule, Answer, Handler, Parameter, Route, Schema, Tag,
    document::{PAGE, PAGE_AFTER},
};
use crate::{inspect, sni_usage, snis, what_if};

pub fn rows() -> impl Iterator<Item = Route> {
    calls().into_iter().chain(reachability()).chain(findings()).chain(questions())
}

fn calls() -> [Route; 3] {
    [
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/_access".into(),
            access: AccessRule::Read(vec![Kind::Dataplane]),
            audited: None,
            tag: Tag::Inspect,
            summary: "May one workload call another, and which rule says so".into(),
            query: ["from", "to", "port"].map(Parameter::text).to_vec(),
            body: None,
            answer: Answer::json::<Access>(),
            handler: Handler::waiting(inspect::access),
        },
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/_observed".into(),
            access: AccessRule::Read(vec![Kind::Dataplane]),
            audited: None,
            tag: Tag::Inspect,
            summary: "Who was seen calling what".into(),
            query: [&PAGE[..], &[Parameter::boolean("wouldBeTrimmed")]].concat(),
            body: None,
            answer: Answer::json::<ObservedCalls>(),
            handler: Handler::waiting(inspect::observed::list),
        },
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/_signals".into(),
            access: AccessRule::Read(vec![Kind::Dataplane]),
            audited: None,
            tag: Tag::Inspect,
            summary:
                "Rates, success and latencies of calls, by edge or added up by service, workload or zone"
                    .into(),
            query: [&PAGE[..], &["by", "window", "client", "server", "zone"].map(Parameter::text)].concat(),
            body: None,
            answer: Answer::json::<SignalList>(),
            handler: Handler::waiting(inspect::signals::list),
        },
    ]
}

fn reachability() -> [Route; 3] {
    [
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/dataplanes/{name}/_reachability".into(),
            access: AccessRule::Read(vec![Kind::Dataplane]),
            audited: None,
            tag: Tag::Inspect,
            summary:
                "What a proxy can reach and what is trimmed from it; with to, why it can reach a destination"
                    .into(),
            query: vec![Parameter::text("to")],
            body: None,
            answer: Answer::json::<ProxyReachabilityAnswer>(),
            handler: Handler::waiting(inspect::reachability::of_proxy),
        },
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/_reachability".into(),
            access: AccessRule::Read(vec![Kind::Dataplane]),
            audited: None,
            tag: Tag::Inspect,
            summary: "What trimming by permissions saves each proxy, or would save".into(),
            query: PAGE.to_vec(),
            body: None,
            answer: Answer::json::<MeshReachability>(),
            handler: Handler::waiting(inspect::reachability::of_mesh),
        },
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/_graph".into(),
            access: AccessRule::Read(vec![Kind::Dataplane]),
            audited: None,
            tag: Tag::Inspect,
            summary: "Who may call whom, as a graph of services".into(),
            query: vec![Parameter::text("service")],
            body: None,
            answer: Answer::json::<AccessGraph>(),
            handler: Handler::waiting(inspect::graph::get),
        },
    ]
}

fn findings() -> [Route; 3] {
    [
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/_problems".into(),
            access: AccessRule::Read(vec![Kind::Dataplane]),
            audited: None,
            tag: Tag::Inspect,
            summary: "What may be wrong with the mesh, the worst first".into(),
            query: [&PAGE[..], &["severity", "code", "kri"].map(Parameter::text)].concat(),
            body: None,
            answer: Answer::json::<ProblemList>(),
            handler: Handler::waiting(inspect::findings::list),
        },
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/_sni".into(),
            access: AccessRule::Read(snis::KINDS.to_vec()),
            audited: None,
            tag: Tag::Inspect,
            summary: "Where values of SNI lead to, by value".into(),
            query: [&PAGE_AFTER[..], &[Parameter::text("value")]].concat(),
            body: None,
            answer: Answer::Json(Schema::page_of(Schema::of::<KnownSni>())),
            handler: Handler::aside(snis::list),
        },
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/_sni-usage".into(),
            access: AccessRule::asked(sni_usage::check_access),
            audited: None,
            tag: Tag::Inspect,
            summary: "How many connections zone proxies saw with each value of SNI".into(),
            query: [&PAGE_AFTER[..], &[Parameter::text("value"), Parameter::boolean("dialled")]].concat(),
            body: None,
            answer: Answer::json::<UsageList>(),
            handler: Handler::waiting(sni_usage::list),
        },
    ]
}

fn questions() -> [Route; 2] {
    [
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/_suggestions".into(),
            access: AccessRule::Read(vec![Kind::Dataplane, Kind::MeshTrafficPermission]),
            audited: None,
            tag: Tag::Inspect,
            summary: "The MeshTrafficPermissions that observed calls need".into(),
            query: vec![Parameter::text("service")],
            body: None,
            answer: Answer::json::<Suggestions>(),
            handler: Handler::waiting(inspect::suggestions::list),
        },
        Route {
            method: Method::POST,
            path: "/meshes/{mesh}/_what-if".into(),
            access: AccessRule::asked(what_if::check_access),
            audited: None,
            tag: Tag::Inspect,
            summary: "What writes and deletions would do; nothing is written".into(),
            query: ["diff", "only"].map(Parameter::text).to_vec(),
            body: Some(Schema::of::<WhatIfRequest>()),
            answer: Answer::json::<WhatIf>(),
            handler: Handler::waiting(what_if::ask),
        },
    ]
}
