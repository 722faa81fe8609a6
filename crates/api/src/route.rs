//! The one table of routes, a row each.
//!
//! A row has no defaults, so the compiler names what a new endpoint has to say, its access rule above all. The router,
//! authorization, the audit log, the OpenAPI document and the coverage test read the table; a path that is not in it
//! does not exist.

mod document;
mod handler;
mod kinds;
mod meshes;
mod proxies;
mod services;
mod system;
mod tokens;

use axum::response::Response;
use http::Method;
use resources::Kind;

pub use self::{
    document::{Answer, Parameter, Schema, Tag},
    handler::{Handler, aside},
};
use crate::{Error, call::Call};
pub use crate::{access::AccessRule, audit::AuditedAction};

/// One method on one path.
pub struct Route {
    pub method: Method,
    /// With parameters in braces: `/meshes/{mesh}/dataplanes/{name}`.
    pub path: String,
    /// Callers that the handler answers. Any other never reaches it.
    pub access: AccessRule,
    /// Action in the audit log; `None` for a route that only reads.
    pub audited: Option<AuditedAction>,
    pub tag: Tag,
    /// One sentence, without its full stop.
    pub summary: String,
    pub query: Vec<Parameter>,
    pub body: Option<Schema>,
    pub answer: Answer,
    // Private: only `answer` calls it, after the access rule.
    handler: Handler,
}

impl Route {
    /// Answers a call whose user may make it.
    pub(crate) async fn answer(&self, call: Call) -> Result<Response, Error> {
        self.access.check(&call)?;
        self.handler.answer(call).await
    }
}

/// Every route of the API.
pub fn all() -> Vec<Route> {
    let mut routes = Vec::new();
    routes.extend(system::rows());
    routes.extend(tokens::rows());
    routes.extend(services::rows());
    routes.extend(proxies::rows());
    routes.extend(meshes::rows());
    routes.extend(proxies::admin_rows());
    routes.extend(proxies::zone_rows());
    for &kind in Kind::ALL {
        let descriptor = kind.descriptor();
        let paths = [Some(descriptor.path), descriptor.alias].into_iter().flatten();
        routes.extend(paths.filter(|path| !path.is_empty()).flat_map(|path| kinds::rows(kind, path)));
    }
    routes
}
