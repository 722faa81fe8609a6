//! Routes of requests.

use std::time::Duration;

use config::{
    core::v3::{HeaderValue, HeaderValueOption, header_value_option::HeaderAppendAction},
    route::v3 as route,
};
use envoy_types::pb::envoy::{config, r#type as types};
use plan::{ClientTimeouts, RequestTimeouts, Route, RouteAction, RouteFilter, Share};
use resources::kinds::{
    mesh_http_route::{
        HeaderKeyValue, HeaderMatch, HeaderMatchType, HeaderModifier, Match, PathMatch, PathMatchType,
        PathRewrite, PathRewriteType, QueryParamsMatch, QueryParamsMatchType, RequestRedirect, UrlRewrite,
    },
    mesh_load_balancing_strategy::HashPolicy,
};
use route::{
    header_matcher::HeaderMatchSpecifier,
    query_parameter_matcher::QueryParameterMatchSpecifier,
    redirect_action::{PathRewriteSpecifier, RedirectResponseCode, SchemeRewriteSpecifier},
    route_action::{ClusterSpecifier, HostRewriteSpecifier, RequestMirrorPolicy},
    route_match::PathSpecifier,
};
use types::{
    matcher::v3::{RegexMatchAndSubstitute, RegexMatcher, StringMatcher, string_matcher::MatchPattern},
    v3::{FractionalPercent, fractional_percent::DenominatorType},
};

use crate::{
    balancing, client,
    proto::{bool_value, duration, u32_value},
    retry,
};

/// Envoy changes this header by other means than the others.
const HOST: &str = "host";

/// One virtual host for every domain.
pub(crate) fn configuration(name: &str, host: &str, routes: Vec<route::Route>) -> route::RouteConfiguration {
    route::RouteConfiguration {
        name: name.to_owned(),
        virtual_hosts: vec![route::VirtualHost {
            name: host.to_owned(),
            domains: vec!["*".to_owned()],
            routes,
            ..Default::default()
        }],
        validate_clusters: Some(bool_value(false)),
        ..Default::default()
    }
}

/// Requests whose path starts like this go to that cluster.
pub(crate) fn prefix(prefix: &str, cluster: &str, timeouts: Option<RequestTimeouts>) -> route::Route {
    let action = route::RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster.to_owned())),
        ..waiting(timeouts)
    };
    route::Route {
        r#match: Some(route::RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix(prefix.to_owned())),
            ..Default::default()
        }),
        action: Some(route::route::Action::Route(action)),
        ..Default::default()
    }
}

/// All requests go to that cluster outside of the mesh, whose servers are asked by their own name.
pub(crate) fn to_outside(cluster: &str, hashed: &[HashPolicy]) -> route::Route {
    // How long a request may take is for its client to say.
    let endless = RequestTimeouts { request: Duration::ZERO, stream_idle: Duration::ZERO };
    let mut made = prefix("/", cluster, Some(endless));
    if let Some(route::route::Action::Route(action)) = &mut made.action {
        action.host_rewrite_specifier = Some(HostRewriteSpecifier::AutoHostRewrite(bool_value(true)));
        action.hash_policy = balancing::of_request(hashed);
    }
    made
}

/// Requests whose path starts like this go to that cluster, and keep the beginning of their path.
pub(crate) fn rewritten_prefix(path: &str, cluster: &str) -> route::Route {
    let mut made = prefix(path, cluster, None);
    if let Some(route::route::Action::Route(action)) = &mut made.action {
        action.prefix_rewrite = path.to_owned();
    }
    made
}

/// All requests to one cluster; those of certain clients with times of their own, as long as clients can
/// be distinguished.
pub(crate) fn of_clients(
    cluster: &str,
    others: RequestTimeouts,
    clients: &[ClientTimeouts],
) -> Vec<route::Route> {
    let own = clients.iter().map(|ClientTimeouts { client, request }| {
        let mut made = prefix("/", cluster, Some(*request));
        if let Some(matching) = &mut made.r#match {
            matching.filter_state = client::conditions(client);
        }
        made
    });
    own.chain([prefix("/", cluster, Some(others))]).collect()
}

/// A planned route: two where a prefix must end at a slash or at the end of the path.
pub(crate) fn of(planned: &Route) -> Vec<route::Route> {
    paths(planned.matched.path.as_ref()).into_iter().map(|path| one(planned, path)).collect()
}

/// A path as Envoy compares it.
enum Path<'a> {
    Exact(&'a str),
    /// Everything that begins like this, up to and with a slash.
    Prefix(String),
    /// The path that is such a prefix itself, without its slash.
    WholePrefix(&'a str),
    Regex(&'a str),
}

fn paths(path: Option<&PathMatch>) -> Vec<Path<'_>> {
    match path {
        None => vec![Path::Prefix("/".to_owned())],
        Some(PathMatch { value, type_ }) => match type_ {
            PathMatchType::PathPrefix if value == "/" => vec![Path::Prefix("/".to_owned())],
            PathMatchType::PathPrefix => {
                let value = value.trim_end_matches('/');
                vec![Path::WholePrefix(value), Path::Prefix(format!("{value}/"))]
            }
            PathMatchType::RegularExpression => vec![Path::Regex(value)],
            PathMatchType::Exact | PathMatchType::Other(_) => vec![Path::Exact(value)],
        },
    }
}

fn one(planned: &Route, path: Path<'_>) -> route::Route {
    let mut made = route::Route {
        name: planned.name.clone(),
        r#match: Some(matching(&planned.matched, &path)),
        ..Default::default()
    };
    match &planned.action {
        RouteAction::Redirect(to) => made.action = Some(route::route::Action::Redirect(redirect(to, &path))),
        RouteAction::Forward(shares) => {
            // Who is outside the mesh does not know the name it has in the mesh.
            let leaves = shares.iter().any(|share| share.external);
            let mut action = route::RouteAction {
                cluster_specifier: Some(spread(shares)),
                host_rewrite_specifier: leaves
                    .then(|| HostRewriteSpecifier::AutoHostRewrite(bool_value(true))),
                retry_policy: planned.retry.as_ref().map(retry::policy),
                hash_policy: balancing::of_request(&planned.hashed),
                ..waiting(Some(planned.timeouts))
            };
            for change in &planned.changes {
                forward(&mut action, change, &path);
            }
            made.action = Some(route::route::Action::Route(action));
        }
    }
    for change in &planned.changes {
        match change {
            RouteFilter::RequestHeaders(change) => {
                made.request_headers_to_add.extend(added(change));
                made.request_headers_to_remove.extend(removed(change));
            }
            RouteFilter::ResponseHeaders(change) => {
                made.response_headers_to_add.extend(added(change));
                made.response_headers_to_remove.extend(removed(change));
            }
            RouteFilter::Url(_) | RouteFilter::Mirror { .. } => {}
        }
    }
    made
}

fn waiting(timeouts: Option<RequestTimeouts>) -> route::RouteAction {
    route::RouteAction {
        timeout: timeouts.map(|timeouts| duration(timeouts.request)),
        idle_timeout: timeouts.map(|timeouts| duration(timeouts.stream_idle)),
        ..Default::default()
    }
}

fn spread(shares: &[Share]) -> ClusterSpecifier {
    if let [only] = shares {
        return ClusterSpecifier::Cluster(only.cluster.clone());
    }
    let clusters = shares.iter().map(|share| route::weighted_cluster::ClusterWeight {
        name: share.cluster.clone(),
        weight: Some(u32_value(share.weight)),
        ..Default::default()
    });
    ClusterSpecifier::WeightedClusters(route::WeightedCluster {
        clusters: clusters.collect(),
        ..Default::default()
    })
}

fn forward(action: &mut route::RouteAction, change: &RouteFilter, path: &Path<'_>) {
    match change {
        RouteFilter::Url(UrlRewrite { hostname, path: rewrite, .. }) => {
            if let Some(host) = hostname {
                action.host_rewrite_specifier = Some(HostRewriteSpecifier::HostRewriteLiteral(host.clone()));
            }
            // Envoy takes one of the two only, so the last rewrite counts.
            match rewrite.as_ref().and_then(|rewrite| rewritten(rewrite, path)) {
                Some(RewrittenPath::Whole(to)) => {
                    (action.regex_rewrite, action.prefix_rewrite) = (Some(whole_path(&to)), String::new());
                }
                Some(RewrittenPath::Matched(to)) => {
                    (action.regex_rewrite, action.prefix_rewrite) = (None, to);
                }
                None => {}
            }
        }
        RouteFilter::RequestHeaders(HeaderModifier { set, .. }) => {
            if let Some(host) = set.iter().flatten().find(|header| header.name == HOST) {
                let literal = HostRewriteSpecifier::HostRewriteLiteral(host.value.clone());
                action.host_rewrite_specifier = Some(literal);
            }
        }
        RouteFilter::Mirror { cluster, millionths } => {
            action.request_mirror_policies.push(RequestMirrorPolicy {
                cluster: cluster.clone(),
                runtime_fraction: Some(config::core::v3::RuntimeFractionalPercent {
                    default_value: Some(FractionalPercent {
                        numerator: *millionths,
                        denominator: DenominatorType::Million.into(),
                    }),
                    ..Default::default()
                }),
                ..Default::default()
            })
        }
        RouteFilter::ResponseHeaders(_) => {}
    }
}

/// Result of rewriting a path.
enum RewrittenPath {
    Whole(String),
    Matched(String),
}

/// `None` for what validation keeps out: a part of the path replaced that no prefix names.
fn rewritten(rewrite: &PathRewrite, path: &Path<'_>) -> Option<RewrittenPath> {
    match rewrite.type_ {
        PathRewriteType::ReplaceFullPath => {
            rewrite.replace_full_path.as_deref().map(|to| RewrittenPath::Whole(absolute(to)))
        }
        PathRewriteType::ReplacePrefixMatch => {
            let to = rewrite.replace_prefix_match.as_deref()?;
            match path {
                Path::WholePrefix(_) => Some(RewrittenPath::Matched(absolute(to))),
                // The slash was matched, so it is put back.
                Path::Prefix(_) => {
                    Some(RewrittenPath::Matched(absolute(&format!("{}/", to.trim_end_matches('/')))))
                }
                Path::Exact(_) | Path::Regex(_) => None,
            }
        }
        PathRewriteType::Other(_) => None,
    }
}

/// No server understands a request whose path does not begin with a slash.
fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

fn whole_path(to: &str) -> RegexMatchAndSubstitute {
    RegexMatchAndSubstitute {
        pattern: Some(regex(".*")),
        // Only a backslash means something in a substitution.
        substitution: to.replace('\\', r"\\"),
    }
}

fn redirect(to: &RequestRedirect, path: &Path<'_>) -> route::RedirectAction {
    let code = match to.status_code {
        Some(301) => RedirectResponseCode::MovedPermanently,
        Some(303) => RedirectResponseCode::SeeOther,
        Some(307) => RedirectResponseCode::TemporaryRedirect,
        Some(308) => RedirectResponseCode::PermanentRedirect,
        _ => RedirectResponseCode::Found,
    };
    let rewrite = to.path.as_ref().and_then(|rewrite| rewritten(rewrite, path));
    route::RedirectAction {
        scheme_rewrite_specifier: to
            .scheme
            .as_ref()
            .map(|scheme| SchemeRewriteSpecifier::SchemeRedirect(scheme.as_str().to_owned())),
        host_redirect: to.hostname.clone().unwrap_or_default(),
        port_redirect: to.port.unwrap_or_default(),
        response_code: code.into(),
        path_rewrite_specifier: rewrite.map(|rewrite| match rewrite {
            RewrittenPath::Whole(to) => PathRewriteSpecifier::RegexRewrite(whole_path(&to)),
            RewrittenPath::Matched(to) => PathRewriteSpecifier::PrefixRewrite(to),
        }),
        ..Default::default()
    }
}

fn matching(matched: &Match, path: &Path<'_>) -> route::RouteMatch {
    let method = matched.method.as_ref().map(|name| method(name.as_str()));
    route::RouteMatch {
        path_specifier: Some(match path {
            Path::Exact(path) | Path::WholePrefix(path) => PathSpecifier::Path((*path).to_owned()),
            Path::Prefix(prefix) => PathSpecifier::Prefix(prefix.clone()),
            Path::Regex(expression) => PathSpecifier::SafeRegex(regex(expression)),
        }),
        headers: method.into_iter().chain(matched.headers.iter().flatten().map(header)).collect(),
        query_parameters: matched.query_params.iter().flatten().map(parameter).collect(),
        ..Default::default()
    }
}

/// Requests with this method.
pub(crate) fn method(name: &str) -> route::HeaderMatcher {
    route::HeaderMatcher {
        name: ":method".to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(text(MatchPattern::Exact(
            name.to_owned(),
        )))),
        ..Default::default()
    }
}

pub(crate) fn header(HeaderMatch { type_, name, value }: &HeaderMatch) -> route::HeaderMatcher {
    let by_text = |pattern| HeaderMatchSpecifier::StringMatch(text(pattern));
    let specifier = match type_ {
        HeaderMatchType::Exact | HeaderMatchType::Other(_) => by_text(MatchPattern::Exact(value.clone())),
        // Every value begins with nothing, which Envoy does not take for a prefix.
        HeaderMatchType::Prefix if value.is_empty() => HeaderMatchSpecifier::PresentMatch(true),
        HeaderMatchType::Prefix => by_text(MatchPattern::Prefix(value.clone())),
        HeaderMatchType::RegularExpression => by_text(expression(value)),
        HeaderMatchType::Present => HeaderMatchSpecifier::PresentMatch(true),
        HeaderMatchType::Absent => HeaderMatchSpecifier::PresentMatch(false),
    };
    route::HeaderMatcher { name: name.clone(), header_match_specifier: Some(specifier), ..Default::default() }
}

fn parameter(QueryParamsMatch { type_, name, value }: &QueryParamsMatch) -> route::QueryParameterMatcher {
    let pattern = match type_ {
        QueryParamsMatchType::RegularExpression => expression(value),
        QueryParamsMatchType::Exact | QueryParamsMatchType::Other(_) => MatchPattern::Exact(value.clone()),
    };
    route::QueryParameterMatcher {
        name: name.clone(),
        query_parameter_match_specifier: Some(QueryParameterMatchSpecifier::StringMatch(text(pattern))),
    }
}

fn text(pattern: MatchPattern) -> StringMatcher {
    StringMatcher { match_pattern: Some(pattern), ..Default::default() }
}

/// Values that match an expression as a whole; Envoy takes none that is empty.
fn expression(value: &str) -> MatchPattern {
    match value {
        "" => MatchPattern::Exact(String::new()),
        expression => MatchPattern::SafeRegex(regex(expression)),
    }
}

fn regex(expression: &str) -> RegexMatcher {
    RegexMatcher { regex: expression.to_owned(), ..Default::default() }
}

fn added(change: &HeaderModifier) -> impl Iterator<Item = HeaderValueOption> {
    let option = |action: HeaderAppendAction| {
        move |HeaderKeyValue { name, value }: &HeaderKeyValue| HeaderValueOption {
            header: Some(HeaderValue { key: name.clone(), value: value.clone(), ..Default::default() }),
            append_action: action.into(),
            ..Default::default()
        }
    };
    let usual = |header: &&HeaderKeyValue| header.name != HOST;
    let set = change.set.iter().flatten().filter(usual);
    let add = change.add.iter().flatten().filter(usual);
    set.map(option(HeaderAppendAction::OverwriteIfExistsOrAdd))
        .chain(add.map(option(HeaderAppendAction::AppendIfExistsOrAdd)))
}

fn removed(change: &HeaderModifier) -> impl Iterator<Item = String> {
    change.remove.iter().flatten().filter(|name| *name != HOST).cloned()
}
