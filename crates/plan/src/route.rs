//! Routes of an outbound's traffic: MeshHTTPRoute and MeshTCPRoute.
//!
//! Requests take the first route that matches; the most specific come first, and the last takes all that
//! is left to the destination itself. Where only a MeshTCPRoute is about a destination, its connections
//! are spread whatever they carry.

use std::{cmp::Reverse, collections::BTreeMap};

use resources::{
    kinds::{
        mesh_http_route::{
            self as http, Filter, FilterType, HeaderModifier, Match, MeshHTTPRoute, PathMatch, PathMatchType,
            RequestRedirect, UrlRewrite,
        },
        mesh_load_balancing_strategy::HashPolicy,
        mesh_tcp_route::MeshTCPRoute,
        target_ref::BackendRef,
    },
    naming::Kri,
};
use topology::{Destination, DestinationId, Protocol};

use crate::{
    Code, Context, Finding, OutboundNames, RequestTimeouts, Retry, backend::Backends,
    effective::EffectiveConf,
};

/// A mirror's share of all requests is counted in millionths; so are percents, of which 100 are all.
const PERCENTS_OF_ALL: i64 = 100;

/// Treatment of an outbound's traffic.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Routing {
    /// Each request takes the first route that matches.
    Requests(Vec<Route>),
    /// Connections are spread by weight.
    Connections(Vec<Share>),
}

/// A part of the traffic, in proportion to all weights beside it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Share {
    pub cluster: String,
    pub weight: u32,
    /// Traffic to it leaves the mesh.
    pub external: bool,
}

/// Treatment of requests that match.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    pub name: String,
    /// The rule it comes from, with section `rule_<index>`; `None` for what is left to the destination.
    pub origin: Option<Kri>,
    /// Always with a path.
    pub matched: Match,
    pub changes: Vec<RouteFilter>,
    pub action: RouteAction,
    pub timeouts: RequestTimeouts,
    /// `None` where a request is tried once.
    pub retry: Option<Retry>,
    /// Hash policies that choose the endpoint of a request.
    pub hashed: Vec<HashPolicy>,
}

/// A step on the way of a request and its response.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RouteFilter {
    RequestHeaders(HeaderModifier),
    ResponseHeaders(HeaderModifier),
    Url(UrlRewrite),
    /// A copy goes to another cluster, of so many requests in a million.
    Mirror {
        cluster: String,
        millionths: u32,
    },
}

/// Final step of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RouteAction {
    Forward(Vec<Share>),
    Redirect(RequestRedirect),
}

/// The protocol is understood request by request.
pub fn is_http(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Http | Protocol::Http2 | Protocol::Grpc)
}

/// Plans the traffic of an outbound to a destination.
pub(crate) fn plan(
    context: &Context<'_>,
    destination: &Destination,
    names: &OutboundNames,
    backends: &mut Backends<'_>,
    findings: &mut Vec<Finding>,
) -> Routing {
    let itself =
        Share { cluster: names.cluster.clone(), weight: 1, external: destination.external.is_some() };
    let mut planner = Planner { context, backends, findings };
    let requests = is_http(destination.protocol);
    let found = if requests { planner.requests(&destination.id) } else { None };
    let Some(EffectiveConf { conf, merged }) = found.filter(|found| !found.conf.rules.is_empty()) else {
        return match planner.connections(&destination.id) {
            Some(shares) if shares.is_empty() => Routing::Connections(vec![itself]),
            Some(shares) => Routing::Connections(shares),
            None => untouched(context, destination, names, itself),
        };
    };
    let default = default_route(context, destination, names, itself.clone());
    let rules = conf.rules.iter().zip(&merged.rules);
    let mut routes: Vec<Route> =
        rules.flat_map(|(rule, origin)| planner.routes(destination, origin, rule, &itself)).collect();
    // Asked of the routes, not of the rules: one that is left out takes nothing.
    if routes.iter().all(|route| route.matched != default.matched) {
        routes.push(default);
    }
    routes.sort_by_key(|route| importance(&route.matched));
    Routing::Requests(routes)
}

/// As if there were no routes.
fn untouched(
    context: &Context<'_>,
    destination: &Destination,
    names: &OutboundNames,
    itself: Share,
) -> Routing {
    if is_http(destination.protocol) {
        Routing::Requests(vec![default_route(context, destination, names, itself)])
    } else {
        Routing::Connections(vec![itself])
    }
}

fn default_route(
    context: &Context<'_>,
    destination: &Destination,
    names: &OutboundNames,
    itself: Share,
) -> Route {
    Route {
        name: names.default_route.clone(),
        origin: None,
        matched: Match { path: Some(everything()), ..Match::default() },
        changes: Vec::new(),
        action: RouteAction::Forward(vec![itself]),
        timeouts: context.timeouts.destination(&destination.id).request,
        retry: context.retries.requests(&destination.id, destination.protocol),
        hashed: context.balancing.hashed(&destination.id),
    }
}

fn everything() -> PathMatch {
    PathMatch { value: "/".to_owned(), type_: PathMatchType::PathPrefix }
}

struct Planner<'c, 'b, 'a> {
    context: &'c Context<'c>,
    backends: &'b mut Backends<'a>,
    findings: &'b mut Vec<Finding>,
}

impl Planner<'_, '_, '_> {
    /// The rules for requests to a destination, from the highest precedence to the lowest.
    fn requests(&mut self, destination: &DestinationId) -> Option<EffectiveConf<http::ToEntry>> {
        self.read(self.context.effective.conf::<MeshHTTPRoute>(destination))
    }

    /// Returns the shares of connections to a destination; `None` if no MeshTCPRoute is about it.
    fn connections(&mut self, destination: &DestinationId) -> Option<Vec<Share>> {
        let EffectiveConf { conf, merged } =
            self.read(self.context.effective.conf::<MeshTCPRoute>(destination))?;
        let first = conf.rules.iter().zip(&merged.rules).next();
        let backends = first.and_then(|(rule, origin)| Some((origin, rule.default.backend_refs.as_ref()?)));
        Some(backends.map(|(origin, backends)| self.shares(origin, backends)).unwrap_or_default())
    }

    fn read<C>(&mut self, found: Result<Option<EffectiveConf<C>>, String>) -> Option<EffectiveConf<C>> {
        let unreadable = |text| self.findings.push(Finding::new(Code::UnreadablePolicy, text));
        found.map_err(unreadable).ok().flatten()
    }

    /// One route per match of a rule.
    fn routes(
        &mut self,
        destination: &Destination,
        origin: &Kri,
        rule: &http::Rule,
        itself: &Share,
    ) -> Vec<Route> {
        let filters = rule.default.filters.as_deref().unwrap_or_default();
        let redirect = filters
            .iter()
            .filter(|filter| filter.type_ == FilterType::RequestRedirect)
            .find_map(|filter| filter.request_redirect.clone());
        let action = match (redirect, &rule.default.backend_refs) {
            (Some(redirect), _) => RouteAction::Redirect(redirect),
            (None, None) => RouteAction::Forward(vec![itself.clone()]),
            (None, Some(references)) => RouteAction::Forward(self.shares(origin, references)),
        };
        if action == RouteAction::Forward(Vec::new()) {
            let text = format!("{origin}: none of its backends can be called; the rule is left out");
            self.findings.push(Finding::about(Code::NoUsableBackend, origin.clone(), text));
            return Vec::new();
        }
        let changes: Vec<RouteFilter> =
            filters.iter().filter_map(|filter| self.change(origin, filter)).collect();
        let context = self.context;
        let id = &destination.id;
        let protocol = destination.protocol;
        // An entry about a route is about requests to resources; a policy with a route at the top is about all.
        let (name, timeouts, retry, hashed) = match id {
            DestinationId::Port(kri) => (
                context.names.route(origin),
                context.timeouts.route(origin, kri),
                context.retries.route(origin, kri, protocol),
                context.balancing.route(origin, kri),
            ),
            DestinationId::Tags(tags) => (
                rule.name_by_matches(),
                context.timeouts.rule(tags, rule),
                context.retries.rule(tags, rule, protocol),
                context.balancing.hashed(id),
            ),
        };
        let route = |matched: &Match| Route {
            name: name.clone(),
            origin: Some(origin.clone()),
            matched: Match { path: Some(matched.path.clone().unwrap_or_else(everything)), ..matched.clone() },
            changes: changes.clone(),
            action: action.clone(),
            timeouts,
            retry: retry.clone(),
            hashed: hashed.clone(),
        };
        rule.matches.iter().map(route).collect()
    }

    fn change(&mut self, origin: &Kri, filter: &Filter) -> Option<RouteFilter> {
        match filter.type_ {
            FilterType::RequestHeaderModifier => {
                filter.request_header_modifier.clone().map(RouteFilter::RequestHeaders)
            }
            FilterType::ResponseHeaderModifier => {
                filter.response_header_modifier.clone().map(RouteFilter::ResponseHeaders)
            }
            FilterType::UrlRewrite => filter.url_rewrite.clone().map(RouteFilter::Url),
            FilterType::RequestMirror => {
                let mirror = filter.request_mirror.as_ref()?;
                let share = self.share(origin, &mirror.backend_ref)?;
                let percent = mirror.percentage.as_ref().and_then(|percentage| percentage.millionths());
                let millionths = percent.map_or(1_000_000, |percent| percent / PERCENTS_OF_ALL);
                let millionths = u32::try_from(millionths.clamp(0, 1_000_000)).unwrap_or_default();
                Some(RouteFilter::Mirror { cluster: share.cluster, millionths })
            }
            FilterType::RequestRedirect | FilterType::Other(_) => None,
        }
    }

    /// The backends that get traffic, each once, with weights that add up to a number of 32 bits.
    fn shares(&mut self, origin: &Kri, references: &[BackendRef]) -> Vec<Share> {
        let mut at: BTreeMap<String, usize> = BTreeMap::new();
        let mut shares: Vec<Share> = Vec::new();
        for reference in references.iter().filter(|reference| reference.weight != Some(0)) {
            let Some(share) = self.share(origin, reference) else { continue };
            match at.get(&share.cluster).and_then(|&at| shares.get_mut(at)) {
                Some(same) => same.weight = same.weight.saturating_add(share.weight),
                None => {
                    at.insert(share.cluster.clone(), shares.len());
                    shares.push(share);
                }
            }
        }
        fit(&mut shares);
        shares
    }

    fn share(&mut self, origin: &Kri, reference: &BackendRef) -> Option<Share> {
        match self.backends.referred(origin, reference) {
            Ok(backend) => Some(Share {
                cluster: backend.cluster.clone(),
                weight: reference.weight.unwrap_or(1),
                external: backend.external.is_some(),
            }),
            Err(reason) => {
                let text = format!("{origin}: {reason}");
                self.findings.push(Finding::about(Code::UnknownBackend, origin.clone(), text));
                None
            }
        }
    }
}

/// Makes weights add up to a number of 32 bits, in the same proportions.
fn fit(shares: &mut [Share]) {
    let (total, most) =
        (shares.iter().map(|share| u64::from(share.weight)).sum::<u64>(), u64::from(u32::MAX));
    if total <= most {
        return;
    }
    // Less than what fits, because no share above zero is rounded down to zero.
    let divisor = total / most.saturating_sub(shares.len() as u64).max(1) + 1;
    for share in shares {
        share.weight = u32::try_from(u64::from(share.weight) / divisor).unwrap_or(u32::MAX).max(1);
    }
}

/// Orders matches: the lesser of two is asked first.
fn importance(matched: &Match) -> impl Ord + use<> {
    let (kind, length) = match &matched.path {
        Some(PathMatch { type_: PathMatchType::Exact, .. }) => (0, 0),
        Some(PathMatch { type_: PathMatchType::PathPrefix, value }) if value != "/" => (1, value.len()),
        Some(PathMatch { type_: PathMatchType::RegularExpression, value }) => (2, value.len()),
        // Every path begins like this, so nothing behind it would ever be asked.
        _ => (3, 0),
    };
    let headers = matched.headers.as_ref().map_or(0, Vec::len);
    let parameters = matched.query_params.as_ref().map_or(0, Vec::len);
    (kind, Reverse(length), matched.method.is_none(), Reverse(headers), Reverse(parameters))
}
