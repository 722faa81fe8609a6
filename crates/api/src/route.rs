//! The one list of routes.
//!
//! The router, the OpenAPI document and the coverage test are all made from [`all`]; a path that is
//! not in it does not exist.

use http::Method;
use resources::{Kind, Scope};

/// What a route does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Index,
    Config,
    WhoAmI,
    Backup,
    Policies,
    ResourceTypes,
    GlobalInsight,
    GlobalInsights,
    ByKri,
    DataplaneToken,
    ZoneToken,
    UserToken,
    Hostnames,
    ServiceDataplanes,
    ProxyXds(Kind),
    ProxyStats(Kind),
    ProxyClusters(Kind),
    ProxyLogging,
    ProxySetLogging,
    ProxyConfig,
    ProxySync,
    ProxyLayout,
    ProxyHostnames,
    ProxyRules,
    ProxyPolicies,
    InboundPolicies,
    OutboundPolicies,
    OutboundRoutes,
    RoutePolicies,
    PolicyDataplanes(Kind),
    OlderPolicies,
    OlderRules,
    OlderDataplanes(Kind),
    Access,
    Observed,
    ProxyReachability,
    MeshReachability,
    Graph,
    Problems,
    Snis,
    SniUsage,
    Suggestions,
    WhatIf,
    ServiceInsightList,
    ServiceInsight,
    List(Kind),
    Get(Kind),
    Put(Kind),
    Delete(Kind),
    OverviewList(Kind),
    Overview(Kind),
}

/// One method on one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub method: Method,
    /// With parameters in braces: `/meshes/{mesh}/dataplanes/{name}`.
    pub path: String,
    pub operation: Operation,
}

impl Route {
    fn new(method: Method, path: impl Into<String>, operation: Operation) -> Self {
        Route { method, path: path.into(), operation }
    }

    fn get(path: impl Into<String>, operation: Operation) -> Self {
        Route::new(Method::GET, path, operation)
    }
}

/// What describes a proxy that can be asked about itself, and where it is.
const PROXIES: [(Kind, &str); 3] = [
    (Kind::Dataplane, "/meshes/{mesh}/dataplanes/{name}"),
    (Kind::ZoneIngress, "/zoneingresses/{name}"),
    (Kind::ZoneEgress, "/zoneegresses/{name}"),
];

/// Every route of the API.
pub fn all() -> Vec<Route> {
    let mut routes = special();
    for (kind, proxy) in PROXIES {
        routes.push(Route::get(format!("{proxy}/xds"), Operation::ProxyXds(kind)));
        routes.push(Route::get(format!("{proxy}/stats"), Operation::ProxyStats(kind)));
        routes.push(Route::get(format!("{proxy}/clusters"), Operation::ProxyClusters(kind)));
    }
    for &kind in Kind::ALL {
        let descriptor = kind.descriptor();
        for path in [Some(descriptor.path), descriptor.alias].into_iter().flatten().filter(|p| !p.is_empty())
        {
            add_kind(kind, path, &mut routes);
        }
    }
    routes
}

fn special() -> Vec<Route> {
    let post = |path: &str, operation| Route::new(Method::POST, path, operation);
    vec![
        Route::get("/", Operation::Index),
        Route::get("/config", Operation::Config),
        Route::get("/who-am-i", Operation::WhoAmI),
        Route::get("/_backup", Operation::Backup),
        Route::get("/policies", Operation::Policies),
        Route::get("/_resources", Operation::ResourceTypes),
        Route::get("/global-insight", Operation::GlobalInsight),
        Route::get("/global-insights", Operation::GlobalInsights),
        Route::get("/_kri/{kri}", Operation::ByKri),
        post("/tokens/dataplane", Operation::DataplaneToken),
        post("/tokens/zone", Operation::ZoneToken),
        post("/tokens/user", Operation::UserToken),
        Route::get("/meshes/{mesh}/{serviceType}/{name}/_hostnames", Operation::Hostnames),
        Route::get("/meshes/{mesh}/meshservices/{name}/_resources/dataplanes", Operation::ServiceDataplanes),
        Route::get("/meshes/{mesh}/meshservices/{name}/_dataplanes", Operation::ServiceDataplanes),
        Route::get("/meshes/{mesh}/dataplanes/{name}/logging", Operation::ProxyLogging),
        post("/meshes/{mesh}/dataplanes/{name}/logging", Operation::ProxySetLogging),
        Route::get("/meshes/{mesh}/dataplanes/{name}/_config", Operation::ProxyConfig),
        Route::get("/meshes/{mesh}/dataplanes/{name}/_sync", Operation::ProxySync),
        Route::get("/meshes/{mesh}/dataplanes/{name}/_layout", Operation::ProxyLayout),
        Route::get("/meshes/{mesh}/dataplanes/{name}/_hostnames", Operation::ProxyHostnames),
        Route::get("/meshes/{mesh}/dataplanes/{name}/_rules", Operation::ProxyRules),
        Route::get("/meshes/{mesh}/dataplanes/{name}/_policies", Operation::ProxyPolicies),
        Route::get("/meshes/{mesh}/dataplanes/{name}/_inbounds/{kri}/_policies", Operation::InboundPolicies),
        Route::get(
            "/meshes/{mesh}/dataplanes/{name}/_outbounds/{kri}/_policies",
            Operation::OutboundPolicies,
        ),
        Route::get("/meshes/{mesh}/dataplanes/{name}/_outbounds/{kri}/_routes", Operation::OutboundRoutes),
        Route::get(
            "/meshes/{mesh}/dataplanes/{name}/_outbounds/{kri}/_routes/{route}/_policies",
            Operation::RoutePolicies,
        ),
        Route::get("/meshes/{mesh}/dataplanes/{name}/policies", Operation::OlderPolicies),
        Route::get("/meshes/{mesh}/dataplanes/{name}/rules", Operation::OlderRules),
        Route::get("/meshes/{mesh}/_access", Operation::Access),
        Route::get("/meshes/{mesh}/_observed", Operation::Observed),
        Route::get("/meshes/{mesh}/dataplanes/{name}/_reachability", Operation::ProxyReachability),
        Route::get("/meshes/{mesh}/_reachability", Operation::MeshReachability),
        Route::get("/meshes/{mesh}/_graph", Operation::Graph),
        Route::get("/meshes/{mesh}/_problems", Operation::Problems),
        Route::get("/meshes/{mesh}/_sni", Operation::Snis),
        Route::get("/meshes/{mesh}/_sni-usage", Operation::SniUsage),
        Route::get("/meshes/{mesh}/_suggestions", Operation::Suggestions),
        post("/meshes/{mesh}/_what-if", Operation::WhatIf),
    ]
}

fn add_kind(kind: Kind, path: &str, routes: &mut Vec<Route>) {
    let collection = match kind.descriptor().scope {
        Scope::Global => format!("/{path}"),
        Scope::Mesh => {
            routes.extend(lists(kind, path, &format!("/{path}")));
            format!("/meshes/{{mesh}}/{path}")
        }
    };
    routes.extend(lists(kind, path, &collection));
    let one = format!("{collection}/{{name}}");
    let get = if kind == Kind::ServiceInsight { Operation::ServiceInsight } else { Operation::Get(kind) };
    routes.push(Route::get(&one, get));
    routes.push(Route::new(Method::PUT, &one, Operation::Put(kind)));
    routes.push(Route::new(Method::DELETE, &one, Operation::Delete(kind)));
    if kind.descriptor().policy.is_some_and(|policy| policy.top.is_some()) {
        // kumactl of Kuma asks for the second.
        for resources in ["_resources", "-resources"] {
            routes
                .push(Route::get(format!("{one}/{resources}/dataplanes"), Operation::PolicyDataplanes(kind)));
        }
        routes.push(Route::get(format!("{one}/dataplanes"), Operation::OlderDataplanes(kind)));
    }
    if kind.descriptor().insight.is_some() {
        routes.push(Route::get(format!("{one}/_overview"), Operation::Overview(kind)));
        if let Some(older) = older_overview_path(kind, path) {
            let one = format!("{}/{{name}}", replace_last(&collection, path, older));
            routes.push(Route::get(one, Operation::Overview(kind)));
        }
    }
}

/// The list of a collection and, where there are insights, the list of overviews under both its names.
fn lists(kind: Kind, path: &str, collection: &str) -> Vec<Route> {
    let list =
        if kind == Kind::ServiceInsight { Operation::ServiceInsightList } else { Operation::List(kind) };
    let mut routes = vec![Route::get(collection, list)];
    if kind.descriptor().insight.is_some() {
        routes.push(Route::get(format!("{collection}/_overview"), Operation::OverviewList(kind)));
        if let Some(older) = older_overview_path(kind, path) {
            routes.push(Route::get(replace_last(collection, path, older), Operation::OverviewList(kind)));
        }
    }
    routes
}

/// Where overviews were before every collection had `_overview`. Only the main path has one.
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
