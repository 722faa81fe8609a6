//! Rows of services.

use contract::hostnames::ServiceHostnames;
use http::Method;
use resources::Kind;

use super::{AccessRule, Answer, Handler, Route, Schema, Tag, document::NAMED_PAGE};
use crate::{hostnames, inspect};

pub fn rows() -> [Route; 3] {
    [
        Route {
            method: Method::GET,
            path: "/meshes/{mesh}/{serviceType}/{name}/_hostnames".into(),
            access: AccessRule::Read(hostnames::KINDS.to_vec()),
            audited: None,
            tag: Tag::Inspect,
            summary: "The hostnames of a service".into(),
            query: Vec::new(),
            body: None,
            answer: Answer::json::<ServiceHostnames>(),
            handler: Handler::at_once(hostnames::list),
        },
        dataplanes("_resources/dataplanes"),
        dataplanes("_dataplanes"),
    ]
}

/// The Dataplanes of a service, which have two paths in Kuma.
fn dataplanes(view: &str) -> Route {
    Route {
        method: Method::GET,
        path: format!("/meshes/{{mesh}}/meshservices/{{name}}/{view}"),
        access: AccessRule::Read(vec![Kind::Dataplane, Kind::MeshService]),
        audited: None,
        tag: Tag::Inspect,
        summary: "The Dataplanes of a MeshService".into(),
        query: NAMED_PAGE.to_vec(),
        body: None,
        answer: Answer::Json(Schema::selection_of(Schema::Object)),
        handler: Handler::waiting(|call| inspect::selected(call, Kind::MeshService)),
    }
}
