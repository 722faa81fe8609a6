//! Rows of a kind, by what its descriptor says.

use contract::{insight::ServiceInsightEntry, inspect_entries::PolicyInspectEntry, rules::ResourceMeta};
use http::Method;
use resources::{Kind, Scope};

use super::{
    AccessRule, Answer, AuditedAction, Handler, Parameter, Route, Schema, Tag, document::NAMED_PAGE,
};
use crate::{inspect, inspect::kuma_views, list, overview, resource, service_insight};

/// Rows of a kind at one of its paths.
pub fn rows(kind: Kind, path: &str) -> Vec<Route> {
    let descriptor = kind.descriptor();
    let mut rows = Vec::new();
    let collection = match descriptor.scope {
        Scope::Global => format!("/{path}"),
        Scope::Mesh => {
            rows.extend(lists(kind, path, &format!("/{path}")));
            format!("/meshes/{{mesh}}/{path}")
        }
    };
    rows.extend(lists(kind, path, &collection));
    let one = format!("{collection}/{{name}}");
    rows.push(if kind == Kind::ServiceInsight { service_insight(&one) } else { get(kind, &one) });
    rows.push(put(kind, &one));
    rows.push(delete(kind, &one));
    if descriptor.policy.is_some_and(|policy| policy.top.is_some()) {
        // kumactl of Kuma asks for the second.
        for resources in ["_resources", "-resources"] {
            rows.push(dataplanes(kind, &format!("{one}/{resources}/dataplanes")));
        }
        rows.push(older_dataplanes(kind, &format!("{one}/dataplanes")));
    }
    if descriptor.insight.is_some() {
        rows.push(overview(kind, &format!("{one}/_overview")));
        if let Some(older) = older_overview_path(kind, path) {
            let collection = replace_last(&collection, path, older);
            rows.push(overview(kind, &format!("{collection}/{{name}}")));
        }
    }
    rows
}

/// The list of a collection and, where there are insights, the list of overviews under both its names.
fn lists(kind: Kind, path: &str, collection: &str) -> Vec<Route> {
    let mut rows = vec![if kind == Kind::ServiceInsight {
        service_insights(collection)
    } else {
        resources(kind, collection)
    }];
    if kind.descriptor().insight.is_some() {
        rows.push(overviews(kind, &format!("{collection}/_overview")));
        if let Some(older) = older_overview_path(kind, path) {
            rows.push(overviews(kind, &replace_last(collection, path, older)));
        }
    }
    rows
}

/// Path of overviews before every collection had `_overview`. Only the main path has one.
fn older_overview_path(kind: Kind, path: &str) -> Option<&'static str> {
    if path != kind.descriptor().path {
        return None;
    }
    match kind {
        Kind::Dataplane => Some("dataplanes+insights"),
        Kind::Zone => Some("zones+insights"),
        Kind::ZoneIngress => Some("zoneingresses+insights"),
        Kind::ZoneEgress => Some("zoneegressoverviews"),
        _ => None,
    }
}

fn replace_last(collection: &str, path: &str, by: &str) -> String {
    collection.strip_suffix(path).map_or_else(|| collection.to_owned(), |stem| format!("{stem}{by}"))
}

/// Parameters of a list that select resources of the kind.
fn selecting(kind: Kind) -> Vec<Parameter> {
    let mut parameters = NAMED_PAGE.to_vec();
    if kind == Kind::Dataplane {
        parameters.extend(["tag", "gateway"].map(Parameter::text));
    }
    parameters
}

fn resources(kind: Kind, path: &str) -> Route {
    Route {
        method: Method::GET,
        path: path.to_owned(),
        access: AccessRule::Read(vec![kind]),
        audited: None,
        tag: Tag::Kind(kind),
        summary: format!("List {}", kind.descriptor().plural_display_name()),
        query: [selecting(kind), vec![Parameter::boolean("watch"), Parameter::integer("revision")]].concat(),
        body: None,
        answer: Answer::Watchable(Schema::page_of(Schema::Resource(kind))),
        handler: Handler::aside(move |call| list::list(call, kind)),
    }
}

fn get(kind: Kind, path: &str) -> Route {
    Route {
        method: Method::GET,
        path: path.to_owned(),
        access: AccessRule::Read(vec![kind]),
        audited: None,
        tag: Tag::Kind(kind),
        summary: format!("Get a {}", kind.name()),
        query: ["format", "namespace"].map(Parameter::text).to_vec(),
        body: None,
        answer: Answer::Versioned(Schema::Resource(kind)),
        handler: Handler::at_once(move |call| resource::get(call, kind)),
    }
}

fn put(kind: Kind, path: &str) -> Route {
    Route {
        method: Method::PUT,
        path: path.to_owned(),
        access: AccessRule::Write(kind),
        audited: Some(AuditedAction { verb: "put", kind: kind.name() }),
        tag: Tag::Kind(kind),
        summary: format!("Create or replace a {}", kind.name()),
        query: Vec::new(),
        body: Some(Schema::Resource(kind)),
        answer: Answer::Stored,
        handler: Handler::waiting(move |call| resource::put(call, kind)),
    }
}

fn delete(kind: Kind, path: &str) -> Route {
    Route {
        method: Method::DELETE,
        path: path.to_owned(),
        access: AccessRule::Write(kind),
        audited: Some(AuditedAction { verb: "delete", kind: kind.name() }),
        tag: Tag::Kind(kind),
        summary: format!("Delete a {}", kind.name()),
        query: Vec::new(),
        body: None,
        answer: Answer::Deleted,
        handler: Handler::waiting(move |call| resource::delete(call, kind)),
    }
}

fn overviews(kind: Kind, path: &str) -> Route {
    Route {
        method: Method::GET,
        path: path.to_owned(),
        access: AccessRule::Read(vec![kind]),
        audited: None,
        tag: Tag::Kind(kind),
        summary: format!("List {} with their insights", kind.descriptor().plural_display_name()),
        query: selecting(kind),
        body: None,
        answer: Answer::Json(Schema::page_of(Schema::Object)),
        handler: Handler::aside(move |call| overview::list(call, kind)),
    }
}

fn overview(kind: Kind, path: &str) -> Route {
    Route {
        method: Method::GET,
        path: path.to_owned(),
        access: AccessRule::Read(vec![kind]),
        audited: None,
        tag: Tag::Kind(kind),
        summary: format!("Get a {} with its insight", kind.name()),
        query: Vec::new(),
        body: None,
        answer: Answer::Json(Schema::Object),
        handler: Handler::waiting(move |call| overview::get(call, kind)),
    }
}

/// The Dataplanes that a policy selects.
fn dataplanes(kind: Kind, path: &str) -> Route {
    Route {
        method: Method::GET,
        path: path.to_owned(),
        access: AccessRule::Read(vec![Kind::Dataplane, kind]),
        audited: None,
        tag: Tag::Inspect,
        summary: format!("The Dataplanes that a {} selects", kind.name()),
        query: NAMED_PAGE.to_vec(),
        body: None,
        answer: Answer::Json(Schema::selection_of(Schema::of::<ResourceMeta>())),
        handler: Handler::waiting(move |call| inspect::selected(call, kind)),
    }
}

fn older_dataplanes(kind: Kind, path: &str) -> Route {
    Route {
        method: Method::GET,
        path: path.to_owned(),
        access: AccessRule::Read(vec![Kind::Dataplane, kind]),
        audited: None,
        tag: Tag::Inspect,
        summary: format!("The Dataplanes that a {} selects, for older clients", kind.name()),
        query: Vec::new(),
        body: None,
        answer: Answer::Json(Schema::whole_of(Schema::of::<PolicyInspectEntry>())),
        handler: Handler::waiting(move |call| kuma_views::dataplanes(call, kind)),
    }
}

fn service_insights(path: &str) -> Route {
    Route {
        method: Method::GET,
        path: path.to_owned(),
        access: AccessRule::Read(vec![Kind::ServiceInsight]),
        audited: None,
        tag: Tag::Kind(Kind::ServiceInsight),
        summary: "What is known about services".into(),
        query: [&NAMED_PAGE[..], &[Parameter::text("type")]].concat(),
        body: None,
        answer: Answer::Json(Schema::page_of(Schema::of::<ServiceInsightEntry>())),
        handler: Handler::aside(service_insight::list),
    }
}

fn service_insight(path: &str) -> Route {
    Route {
        method: Method::GET,
        path: path.to_owned(),
        access: AccessRule::Read(vec![Kind::ServiceInsight]),
        audited: None,
        tag: Tag::Kind(Kind::ServiceInsight),
        summary: "What is known about a service".into(),
        query: Vec::new(),
        body: None,
        answer: Answer::json::<ServiceInsightEntry>(),
        handler: Handler::at_once(service_insight::get),
    }
}
