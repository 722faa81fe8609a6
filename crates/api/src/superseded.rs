//! The collections of Kuma's kinds that have successors. They are empty, so that Kuma's own clients can read
//! them, and writing into them is refused with the name of the successor.
//!
//! They are no routes of this API and not in its document: nothing can be done with them.

use axum::{
    extract::Request,
    response::{IntoResponse, Response},
};
use contract::pages::Listing;
use http::Method;
use resources::superseded::{self, Superseded};

use crate::{Error, json};

/// The answer to a request for such a collection or for one of its resources; `None` for any other request.
pub fn answer(base_path: &str, request: &Request) -> Option<Response> {
    let path = request.uri().path();
    let segments: Vec<&str> = path.strip_prefix(base_path).unwrap_or(path).split('/').skip(1).collect();
    let (kind, is_list) = match segments[..] {
        [path] | ["meshes", _, path] => (superseded::by_path(path)?, true),
        ["meshes", _, path, _] => (superseded::by_path(path)?, false),
        _ => return None,
    };
    Some(match (request.method(), is_list) {
        (&Method::GET, true) => json::ok(&Listing::<()> { total: 0, items: Vec::new(), next: None }),
        (&Method::GET | &Method::DELETE, false) => Error::not_found(kind.refusal()).into_response(),
        _ => refusal(kind),
    })
}

fn refusal(kind: &Superseded) -> Response {
    Error::MethodNotAllowed(kind.refusal()).into_response()
}
