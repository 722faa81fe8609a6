//! The router, made from the list of routes.

use std::sync::Arc;

use axum::{
    Router,
    extract::Request,
    middleware,
    response::{IntoResponse, Response},
    routing::{MethodFilter, on},
};
use http::{HeaderValue, StatusCode, Uri, header::CONTENT_TYPE, uri::PathAndQuery};
use resources::Kind;
use serde_json::json;
use tower::{Layer, util::MapRequestLayer};

use crate::{
    Context, Error, access, audit, backup,
    call::Call,
    describe, hostnames, insight, inspect, json, kri, layers, list, overview, resource,
    route::{self, Operation, Route},
    service_insight, sni_usage, snis, superseded, token, what_if,
};

/// The REST API as a service. Requests are expected to carry a [`runtime::listen::Peer`].
pub fn router(context: Context) -> Router {
    let context = Arc::new(context);
    let mut router = Router::new();
    for route in route::all() {
        let Ok(filter) = MethodFilter::try_from(route.method.clone()) else { continue };
        let path = route.path.clone();
        let (context, route) = (context.clone(), Arc::new(route));
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

/// What is not about any route is not a document either, as in Kuma.
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
    if audit::recorded(route.operation).is_none() {
        return serve(context, route, request).await;
    }
    let gates = context.clone();
    let served = gates.gates.run_to_its_end(serve(context, route, request)).await;
    served.unwrap_or_else(|error| {
        Error::Internal { title: resource::PROCESS, cause: error.to_string() }.into_response()
    })
}

async fn serve(context: Arc<Context>, route: Arc<Route>, request: Request) -> Response {
    let (limit, settings) = (context.settings.timeout, context.clone());
    let mut entry = None;
    let served = tokio::time::timeout(limit, async {
        let call = Call::new(context.clone(), route, request).await?;
        entry = audit::Entry::of(&call);
        let _writing = entry.is_some().then(|| context.gates.write()).transpose()?;
        dispatch(call).await
    });
    let response = match served.await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => error.into_response(),
        Err(_) => Error::Timeout(limit).into_response(),
    };
    if let Some(entry) = entry {
        entry.record(&settings.settings.audit, &response);
    }
    response
}

async fn dispatch(call: Call) -> Result<Response, Error> {
    match call.route.operation {
        Operation::Index => Ok(describe::index(&call)),
        Operation::Config => config(&call),
        Operation::WhoAmI => Ok(json::ok(&call.user)),
        Operation::Backup => backup::export(&call),
        Operation::Policies => Ok(describe::policies(&call)),
        Operation::ResourceTypes => Ok(describe::resource_types(&call)),
        Operation::GlobalInsight => aside(call, insight::global_insight).await,
        Operation::GlobalInsights => insight::global_insights(&call),
        Operation::ByKri => kri::get(&call),
        Operation::DataplaneToken => token::dataplane(call).await,
        Operation::ZoneToken => token::zone(call).await,
        Operation::UserToken => token::user(call).await,
        Operation::Hostnames => hostnames::list(&call),
        Operation::ServiceDataplanes => inspect::selected(call, Kind::MeshService).await,
        Operation::ProxyXds(kind) | Operation::ProxyStats(kind) | Operation::ProxyClusters(kind) => {
            inspect::admin(call, kind).await
        }
        Operation::ProxyLogging => inspect::logging::get(call).await,
        Operation::ProxySetLogging => inspect::logging::set(call).await,
        Operation::ProxyConfig => inspect::config(call).await,
        Operation::ProxyLayout => inspect::layout(call).await,
        Operation::ProxyHostnames => inspect::hostnames::list(call).await,
        Operation::ProxyRules => inspect::rules(call).await,
        Operation::ProxyPolicies
        | Operation::InboundPolicies
        | Operation::OutboundPolicies
        | Operation::RoutePolicies => inspect::policies(call).await,
        Operation::OutboundRoutes => inspect::routes(call).await,
        Operation::PolicyDataplanes(kind) => inspect::selected(call, kind).await,
        Operation::OlderPolicies => inspect::kuma_views::policies(call).await,
        Operation::OlderRules => inspect::kuma_views::rules(call).await,
        Operation::OlderDataplanes(kind) => inspect::kuma_views::dataplanes(call, kind).await,
        Operation::Access => inspect::reach(call).await,
        Operation::Observed => inspect::observed::list(call).await,
        Operation::ProxyReachability => inspect::reachability::of_proxy(call).await,
        Operation::MeshReachability => inspect::reachability::of_mesh(call).await,
        Operation::Graph => inspect::graph::get(call).await,
        Operation::Problems => inspect::problems::list(call).await,
        Operation::Snis => aside(call, snis::list).await,
        Operation::SniUsage => {
            let seen = sni_usage::ask(&call)?.await;
            aside(call, move |call| sni_usage::list(call, seen)).await
        }
        Operation::ProxySync => inspect::sync::get(call).await,
        Operation::Suggestions => inspect::suggestions::list(call).await,
        Operation::WhatIf => what_if::ask(call).await,
        Operation::ServiceInsightList => aside(call, service_insight::list).await,
        Operation::ServiceInsight => service_insight::get(&call),
        Operation::List(kind) => aside(call, move |call| list::list(call, kind)).await,
        Operation::Get(kind) => resource::get(&call, kind),
        Operation::Put(kind) => resource::put(call, kind).await,
        Operation::Delete(kind) => resource::delete(call, kind).await,
        Operation::OverviewList(kind) => aside(call, move |call| overview::list(call, kind)).await,
        Operation::Overview(kind) => overview::get(call, kind).await,
    }
}

/// Makes an answer that may be long, or take looking through everything, where other requests do not wait
/// for it, and when it is its turn.
async fn aside(
    call: Call,
    answer: impl FnOnce(&Call) -> Result<Response, Error> + Send + 'static,
) -> Result<Response, Error> {
    let context = call.context.clone();
    let turn = context.gates.turn().await;
    let answered = tokio::task::spawn_blocking(move || {
        let answer = answer(&call);
        // A client that gives up does not end the work, so the turn ends with the work.
        drop(turn);
        answer
    });
    answered.await.map_err(|error| Error::Internal { title: list::TITLE, cause: error.to_string() })?
}

fn config(call: &Call) -> Result<Response, Error> {
    let settings = &call.context.settings;
    access::check_action(
        &call.user,
        &settings.access.control_plane_metadata,
        "access the control plane config",
    )?;
    let config = if settings.config.is_null() { &json!({}) } else { &settings.config };
    Ok(json::ok(config))
}
