//! Rows about the control plane as a whole.

use contract::{
    events::Event,
    index::{Index, PolicyTypes, ResourceTypes, User},
    insight::{GlobalInsight, GlobalInsights},
    monitoring::TargetGroup,
};
use http::Method;
use resources::Kind;

use super::{
    AccessRule, Answer, AuditedAction, Handler, Parameter, Route, Schema, Tag, document::PAGE_AFTER,
};
use crate::{access, backup, describe, events, insight, inspect, kri};

pub fn rows() -> impl Iterator<Item = Route> {
    descriptions().into_iter().chain(contents()).chain(lookups())
}

fn descriptions() -> [Route; 3] {
    [
        Route {
            method: Method::GET,
            path: "/".into(),
            access: AccessRule::Anyone,
            audited: None,
            tag: Tag::System,
            summary: "Which control plane this is".into(),
            query: Vec::new(),
            body: None,
            answer: Answer::json::<Index>(),
            handler: Handler::at_once(describe::index),
        },
        Route {
            method: Method::GET,
            path: "/config".into(),
            access: AccessRule::Right(access::CONTROL_PLANE_METADATA),
            audited: None,
            tag: Tag::System,
            summary: "The configuration of the control plane, secrets masked".into(),
            query: Vec::new(),
            body: None,
            answer: Answer::Json(Schema::Object),
            handler: Handler::at_once(describe::config),
        },
        Route {
            method: Method::GET,
            path: "/who-am-i".into(),
            access: AccessRule::Anyone,
            audited: None,
            tag: Tag::System,
            summary: "The user making the request".into(),
            query: Vec::new(),
            body: None,
            answer: Answer::json::<User>(),
            handler: Handler::at_once(describe::caller),
        },
    ]
}

fn contents() -> [Route; 6] {
    [
        Route {
            method: Method::GET,
            path: "/_events".into(),
            access: AccessRule::asked(events::check_access),
            audited: None,
            tag: Tag::System,
            summary: "What happened in the last hour, as pages; or, for callers that accept text/event-stream, as it happens"
                .into(),
            query: [
                &[PAGE_AFTER[0], PAGE_AFTER[2]][..],
                &["mesh", "kind", "type", "name", "since", "changes"].map(Parameter::text),
            ]
            .concat(),
            body: None,
            answer: Answer::Streamable(Schema::page_of(Schema::of::<Event>())),
            handler: Handler::waiting(events::answer),
        },
        Route {
            method: Method::GET,
            path: "/_backup".into(),
            access: AccessRule::Right(access::BACK_UP),
            audited: Some(AuditedAction { verb: "export", kind: "Backup" }),
            tag: Tag::System,
            summary: "Everything that is stored, secrets included, as kuma-cp store import reads it".into(),
            query: Vec::new(),
            body: None,
            answer: Answer::Lines,
            handler: Handler::at_once(backup::export),
        },
        Route {
            method: Method::GET,
            path: "/policies".into(),
            access: AccessRule::Anyone,
            audited: None,
            tag: Tag::System,
            summary: "The policy kinds".into(),
            query: Vec::new(),
            body: None,
            answer: Answer::json::<PolicyTypes>(),
            handler: Handler::at_once(describe::policies),
        },
        Route {
            method: Method::GET,
            path: "/_resources".into(),
            access: AccessRule::Anyone,
            audited: None,
            tag: Tag::System,
            summary: "The kinds of resources".into(),
            query: Vec::new(),
            body: None,
            answer: Answer::json::<ResourceTypes>(),
            handler: Handler::at_once(describe::resource_types),
        },
        Route {
            method: Method::GET,
            path: "/global-insight".into(),
            access: AccessRule::Anyone,
            audited: None,
            tag: Tag::System,
            summary: "Counts over the whole control plane".into(),
            query: Vec::new(),
            body: None,
            answer: Answer::json::<GlobalInsight>(),
            handler: Handler::aside(insight::global_insight),
        },
        Route {
            method: Method::GET,
            path: "/global-insights".into(),
            access: AccessRule::Anyone,
            audited: None,
            tag: Tag::System,
            summary: "How many resources of each global kind there are".into(),
            query: Vec::new(),
            body: None,
            answer: Answer::json::<GlobalInsights>(),
            handler: Handler::at_once(insight::global_insights),
        },
    ]
}

fn lookups() -> [Route; 2] {
    [
        Route {
            method: Method::GET,
            path: "/prometheus/targets".into(),
            access: AccessRule::Read(vec![Kind::Dataplane]),
            audited: None,
            tag: Tag::Inspect,
            summary: "Pages of metrics of proxies, as http_sd_configs of Prometheus reads them".into(),
            query: ["mesh", "clientId"].map(Parameter::text).to_vec(),
            body: None,
            answer: Answer::json::<Vec<TargetGroup>>(),
            handler: Handler::waiting(inspect::targets::list),
        },
        Route {
            method: Method::GET,
            path: "/_kri/{kri}".into(),
            access: AccessRule::asked(kri::check_access),
            audited: None,
            tag: Tag::Kri,
            summary: "A resource by its identifier".into(),
            query: vec![Parameter::text("format")],
            body: None,
            answer: Answer::Versioned(Schema::Object),
            handler: Handler::at_once(kri::get),
        },
    ]
}
