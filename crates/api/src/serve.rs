//! The router, made from the table of routes.

use std::sync::Arc;

use axum::{
    Router,
    extract::Request,
    middleware,
    response::{IntoResponse, Response},
    routing::{MethodFilter, on},
};
use http::{HeaderValue, StatusCode, Uri, header::CONTENT_TYPE, uri::PathAndQuery};
use tower::{Layer, util::MapRequestLayer};

use crate::{
    Context, Error, audit,
    call::Call,
    layers, resource,
    route::{self, Route},
    superseded,
};

/// The REST API as a service. Requests are expected to carry a [`runtime::listen::Peer`].
pub fn router(context: Context) -> Router {
    let context = Arc::new(context);
    let mut router = Router::new();
    for route in route::all() {
        let Ok(filter) = MethodFilter::try_from(route.method.clone()) else { continue };
        let path = route.path.clone();
        let context = context.clone();
        let route = Arc::new(route);
        let handler = move |request: Request| answer(context.clone(), route.clone(), request);
        router = router.route(&path, on(filter, handler));
    }
    let base_path = context.settings.base_path.trim_end_matches('/').to_owned();
    let mut router = if base_path.is_empty() { router } else { Router::new().nest(&base_path, router) };
    router = router
        .fallback(move |request: Request| async move {
            let missing = || plain(StatusCode::NOT_FOUND, "404: Page Not Found");
            superseded::answer(&base_path, &request).unwrap_or_else(missing)
        })
        .method_not_allowed_fallback(|| async {
            plain(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed")
        })
        .layer(middleware::from_fn_with_state(context.clone(), layers::authenticate))
        .layer(middleware::from_fn_with_state(context.clone(), layers::mark_stale))
        .layer(middleware::from_fn_with_state(context.clone(), layers::cors))
        .layer(middleware::from_fn_with_state(context, layers::observe));
    Router::new().fallback_service(MapRequestLayer::new(without_trailing_slash).layer(router))
}

/// Plain text about a request that matches no route: not a document, as in Kuma.
fn plain(status: StatusCode, text: &'static str) -> Response {
    let mut response = (status, text).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

/// Like Kuma, `/meshes/` means `/meshes`.
fn without_trailing_slash(mut request: Request) -> Request {
    let path = request.uri().path();
    let trimmed = path.trim_end_matches('/');
    if trimmed.len() == path.len() || trimmed.is_empty() {
        return request;
    }
    let path_and_query = match request.uri().query() {
        Some(query) => format!("{trimmed}?{query}"),
        None => trimmed.to_owned(),
    };
    let mut parts = request.uri().clone().into_parts();
    if let Ok(path_and_query) = PathAndQuery::try_from(path_and_query) {
        parts.path_and_query = Some(path_and_query);
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    request
}

/// Answers a request. A write is made and recorded also when its client closes the connection, which drops this future:
/// otherwise it could be stored without a line in the audit log.
async fn answer(context: Arc<Context>, route: Arc<Route>, request: Request) -> Response {
    if route.audited.is_none() {
        return serve(context, route, request).await;
    }
    let gates = context.clone();
    let served = gates.gates.run_to_its_end(serve(context, route, request)).await;
    served.unwrap_or_else(|error| {
        Error::Internal { title: resource::PROCESS, cause: error.to_string() }.into_response()
    })
}

async fn serve(context: Arc<Context>, route: Arc<Route>, request: Request) -> Response {
    let limit = context.settings.timeout;
    let settings = context.clone();
    let mut entry = None;
    let served = tokio::time::timeout(limit, async {
        let call = Call::new(context.clone(), route, request).await?;
        entry = audit::AuditEntry::of(&call);
        let _writing = entry.is_some().then(|| context.gates.write()).transpose()?;
        let route = call.route.clone();
        route.answer(call).await
    });
    let response = match served.await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => error.into_response(),
        Err(_) => Error::Timeout(limit).into_response(),
    };
    if let Some(entry) = entry {
        entry.record(&settings.settings.audit, &settings.events, &response);
    }
    response
}
