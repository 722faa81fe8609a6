//! Rows about one proxy.

use contract::{
    configuration::ProxyConfiguration,
    hostnames::HostnameList,
    inspect_entries::{DataplaneInspectEntries, RuleInspectEntry},
    layout::{ProxyLayout, ZoneProxyLayout},
    logging::ProxyLogLevels,
    policies::{PolicyList, RouteList},
    rules::ProxyRules,
    stats::StatsSummary,
    sync::ProxySync,
};
use http::Method;
use resources::Kind;

use super::{AccessRule, Answer, AuditedAction, Handler, Parameter, Route, Schema, Tag};
use crate::{
    access,
    inspect::{self, admin, kuma_views},
};

/// Kinds that describe a proxy that can be asked about itself, and their paths.
const PROXIES: [(Kind, &str); 3] = [
    (Kind::Dataplane, "/meshes/{mesh}/dataplanes/{name}"),
    (Kind::ZoneIngress, "/zoneingresses/{name}"),
    (Kind::ZoneEgress, "/zoneegresses/{name}"),
];

pub fn rows() -> impl Iterator<Item = Route> {
    logging().into_iter().chain(sent()).chain(parts()).chain(policies()).chain(outbounds()).chain(older())
}

/// Parts of zone ingresses and egresses.
pub fn zone_rows() -> impl Iterator<Item = Route> {
    let of_zone = PROXIES.into_iter().filter(|(kind, _)| *kind != Kind::Dataplane);
    of_zone.map(|(kind, proxy)| Route {
        method: Method::GET,
        path: format!("{proxy}/_layout"),
        access: AccessRule::Read(vec![kind]),
        audited: None,
        tag: Tag::Inspect,
        summary: "Where a zone proxy leads, and what its parts are called in Envoy".into(),
        query: Vec::new(),
        body: None,
        answer: Answer::json::<ZoneProxyLayout>(),
        handler: Handler::waiting(move |call| inspect::zone_layout(call, kind)),
    })
}

/// Views of Envoy's admin interface.
pub fn admin_rows() -> impl Iterator<Item = Route> {
    PROXIES.into_iter().flat_map(|(kind, proxy)| admin_views(kind, proxy))
}

fn admin_views(kind: Kind, proxy: &str) -> [Route; 3] {
    [
        Route {
            method: Method::GET,
            path: format!("{proxy}/xds"),
            access: AccessRule::asked(admin::check_xds),
            audited: None,
            tag: Tag::Inspect,
            summary: "The configuration a proxy has, as Envoy dumps it, without secrets".into(),
            query: vec![Parameter::boolean("include_eds"), Parameter::text("names")],
            body: None,
            answer: Answer::Json(Schema::Object),
            handler: Handler::waiting(move |call| admin::xds(call, kind)),
        },
        Route {
            method: Method::GET,
            path: format!("{proxy}/stats"),
            access: AccessRule::asked(move |call| admin::check_stats(call, kind)),
            audited: None,
            tag: Tag::Inspect,
            summary: if admin::has_summary(kind) {
                "The statistics of a proxy; with format=summary by the names of its resources".into()
            } else {
                "The statistics of a proxy".into()
            },
            query: vec![Parameter::text("format"), Parameter::boolean("usedonly"), Parameter::text("names")],
            body: None,
            answer: Answer::TextOrJson(if admin::has_summary(kind) {
                Schema::of_or_object::<StatsSummary>()
            } else {
                Schema::Object
            }),
            handler: Handler::waiting(move |call| admin::stats(call, kind)),
        },
        Route {
            method: Method::GET,
            path: format!("{proxy}/clusters"),
            access: AccessRule::asked(admin::check_clusters),
            audited: None,
            tag: Tag::Inspect,
            summary: "The clusters of a proxy and how they are".into(),
            query: ["format", "names"].map(Parameter::text).to_vec(),
            body: None,
            answer: Answer::TextOrJson(Schema::Object),
            handler: Handler::waiting(move |call| admin::clusters(call, kind)),
        },
    ]
}

fn logging() -> [Route; 2] {
    [
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/dataplanes/{name}/logging".into(),
            access: AccessRule::Right(access::VIEW_LOG_LEVELS),
            audited: None,
            tag: Tag::Inspect,
            summary: "How much a proxy logs".into(),
            query: Vec::new(),
            body: None,
            answer: Answer::json::<ProxyLogLevels>(),
            handler: Handler::waiting(inspect::logging::get),
        },
        Route {
            method: Method::POST,
            path: "/meshes/{mesh}/dataplanes/{name}/logging".into(),
            access: AccessRule::Right(access::CHANGE_LOG_LEVELS),
            audited: Some(AuditedAction { verb: "change", kind: "LogLevel" }),
            tag: Tag::Inspect,
            summary: "Change how much a proxy logs, until it restarts".into(),
            query: ["level", "logger"].map(Parameter::text).to_vec(),
            body: None,
            answer: Answer::json::<ProxyLogLevels>(),
            handler: Handler::waiting(inspect::logging::set),
        },
    ]
}

/// Configuration that the control plane sends to a proxy.
fn sent() -> [Route; 2] {
    [
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/dataplanes/{name}/_config".into(),
            access: AccessRule::Right(access::VIEW_CONFIG_DUMP),
            audited: None,
            tag: Tag::Inspect,
            summary: "The configuration a proxy would be sent now, without secrets".into(),
            query: vec![Parameter::boolean("shadow"), Parameter::text("include")],
            body: None,
            answer: Answer::json::<ProxyConfiguration>(),
            handler: Handler::waiting(inspect::config),
        },
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/dataplanes/{name}/_sync".into(),
            access: AccessRule::Read(vec![Kind::Dataplane]),
            audited: None,
            tag: Tag::Inspect,
            summary: "Whether a proxy runs what every change made until now comes to".into(),
            query: Vec::new(),
            body: None,
            answer: Answer::json::<ProxySync>(),
            handler: Handler::waiting(inspect::sync::get),
        },
    ]
}

fn parts() -> [Route; 3] {
    [
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/dataplanes/{name}/_layout".into(),
            access: AccessRule::Read(vec![Kind::Dataplane]),
            audited: None,
            tag: Tag::Inspect,
            summary: "What a proxy consists of, and what it is called in Envoy".into(),
            query: vec![Parameter::text("names")],
            body: None,
            answer: Answer::json::<ProxyLayout>(),
            handler: Handler::waiting(inspect::layout),
        },
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/dataplanes/{name}/_hostnames".into(),
            access: AccessRule::Read(vec![Kind::Dataplane]),
            audited: None,
            tag: Tag::Inspect,
            summary: "The hostnames that a proxy offers something under".into(),
            query: Vec::new(),
            body: None,
            answer: Answer::json::<HostnameList>(),
            handler: Handler::waiting(inspect::hostnames::list),
        },
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/dataplanes/{name}/_rules".into(),
            access: AccessRule::Read(vec![Kind::Dataplane]),
            audited: None,
            tag: Tag::Inspect,
            summary: "Every rule in effect for a proxy".into(),
            query: Vec::new(),
            body: None,
            answer: Answer::json::<ProxyRules>(),
            handler: Handler::waiting(inspect::rules),
        },
    ]
}

fn policies() -> [Route; 3] {
    [
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/dataplanes/{name}/_policies".into(),
            access: AccessRule::Read(vec![Kind::Dataplane]),
            audited: None,
            tag: Tag::Inspect,
            summary: "The policies in effect for a proxy as a whole".into(),
            query: Vec::new(),
            body: None,
            answer: Answer::json::<PolicyList>(),
            handler: Handler::waiting(inspect::policies::of_proxy),
        },
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/dataplanes/{name}/_inbounds/{kri}/_policies".into(),
            access: AccessRule::Read(vec![Kind::Dataplane]),
            audited: None,
            tag: Tag::Inspect,
            summary: "The policies in effect for an inbound of a proxy".into(),
            query: Vec::new(),
            body: None,
            answer: Answer::json::<PolicyList>(),
            handler: Handler::waiting(inspect::policies::of_inbound),
        },
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/dataplanes/{name}/_outbounds/{kri}/_policies".into(),
            access: AccessRule::Read(vec![Kind::Dataplane]),
            audited: None,
            tag: Tag::Inspect,
            summary: "The policies in effect for an outbound of a proxy".into(),
            query: Vec::new(),
            body: None,
            answer: Answer::json::<PolicyList>(),
            handler: Handler::waiting(inspect::policies::of_outbound),
        },
    ]
}

fn outbounds() -> [Route; 2] {
    [
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/dataplanes/{name}/_outbounds/{kri}/_routes".into(),
            access: AccessRule::Read(vec![Kind::Dataplane]),
            audited: None,
            tag: Tag::Inspect,
            summary: "The routes of an outbound of a proxy".into(),
            query: Vec::new(),
            body: None,
            answer: Answer::json::<RouteList>(),
            handler: Handler::waiting(inspect::routes),
        },
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/dataplanes/{name}/_outbounds/{kri}/_routes/{route}/_policies".into(),
            access: AccessRule::Read(vec![Kind::Dataplane]),
            audited: None,
            tag: Tag::Inspect,
            summary: "The policies in effect for a route of an outbound".into(),
            query: Vec::new(),
            body: None,
            answer: Answer::json::<PolicyList>(),
            handler: Handler::waiting(inspect::policies::of_route),
        },
    ]
}

/// Views that older clients ask for.
fn older() -> [Route; 2] {
    [
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/dataplanes/{name}/policies".into(),
            access: AccessRule::Read(vec![Kind::Dataplane]),
            audited: None,
            tag: Tag::Inspect,
            summary: "The policies that select a proxy, by kind".into(),
            query: Vec::new(),
            body: None,
            answer: Answer::json::<DataplaneInspectEntries>(),
            handler: Handler::waiting(kuma_views::policies),
        },
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/dataplanes/{name}/rules".into(),
            access: AccessRule::Read(vec![Kind::Dataplane]),
            audited: None,
            tag: Tag::Inspect,
            summary: "Every rule by tags in effect for a proxy".into(),
            query: Vec::new(),
            body: None,
            answer: Answer::Json(Schema::whole_of(Schema::of::<RuleInspectEntry>())),
            handler: Handler::waiting(kuma_views::rules),
        },
    ]
}
