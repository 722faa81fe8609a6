//! TrafficRoute: where requests and connections go.

use contract::lenient::read_partly;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    callers::{NewHeader, NewHeaders},
    legacy::{
        Legacy, Partly, Translation, given,
        route::{
            HeaderChanges, HttpRoute, LoadBalancer, RequestChanges, RequestMatch, RouteConf, RouteShare,
            TextMatch,
        },
    },
    selector::{Tags, WeightedBackend},
};

const SLASH: &str =
    "a path prefix of a MeshHTTPRoute ends at a slash or at the end of the path: /v1 does not match /v10";
const ORDER: &str = "rules of a MeshHTTPRoute are evaluated from the most to the least specific, not in the order in which they are listed";

pub fn translate(legacy: &Legacy<'_>) -> Translation {
    let mut made = Translation::default();
    let RouteConf { destination, split, http, load_balancer } = legacy.conf();
    let everywhere = legacy.destinations.iter().all(Tags::is_everything);
    let leads_to_itself = destination.is_everything() && split.is_none();
    if everywhere && http.is_empty() && leads_to_itself && load_balancer.is_none() {
        made.note("it sends everything where it is sent anyway, which needs no policy");
        return made;
    }
    let rest = backends(destination, split, &mut made);
    let mut rules: Vec<Value> = http.into_iter().filter_map(|rule| http_rule(rule.0, &mut made)).collect();
    if rules.len() > 1 {
        made.note(ORDER);
    }
    let mut requests = Vec::new();
    let mut connections = Vec::new();
    let mut balanced = Vec::new();
    if let Some(backends) = &rest {
        let everything = json!([{ "path": { "type": "PathPrefix", "value": "/" } }]);
        rules.push(json!({ "matches": everything, "default": { "backendRefs": backends } }));
    }
    let balancer = load_balancer.and_then(new_load_balancer);
    for destination in &legacy.destinations {
        let target = match destination.destination(false) {
            Ok(target) => target,
            Err(why) => {
                made.note(why);
                continue;
            }
        };
        requests.push(json!({ "targetRef": target, "rules": rules }));
        if let Some(backends) = &rest {
            connections
                .push(json!({ "targetRef": target, "rules": [{ "default": { "backendRefs": backends } }] }));
        }
        if let Some(balancer) = &balancer {
            balanced.push(json!({ "targetRef": target, "default": { "loadBalancer": balancer } }));
        }
    }
    let kinds =
        [("MeshHTTPRoute", requests), ("MeshTCPRoute", connections), ("MeshLoadBalancingStrategy", balanced)];
    for source in &legacy.sources {
        let top = match source.reference() {
            Ok(top) => top,
            Err(why) => {
                made.note(why);
                continue;
            }
        };
        for (kind, to) in kinds.iter().filter(|(_, to)| !to.is_empty()) {
            made.add(kind, json!({ "targetRef": top, "to": to }));
        }
    }
    made
}

/// Backends of traffic; `None` for whatever was called.
fn backends(
    destination: Tags,
    split: Option<Partly<Vec<Partly<RouteShare>>>>,
    made: &mut Translation,
) -> Option<Vec<WeightedBackend>> {
    let split = split.into_iter().flat_map(|split| split.0);
    let mut shares: Vec<_> = split.map(|Partly(share)| (share.destination, Some(share.weight))).collect();
    if shares.is_empty() {
        shares.push((destination, None));
    }
    if let [(only, _)] = &shares[..]
        && only.is_everything()
    {
        return None;
    }
    let mut backends = Vec::new();
    for (tags, weight) in shares {
        match tags.backend(weight) {
            Ok(backend) => backends.push(backend),
            Err(why) => made.note(why),
        }
    }
    Some(backends).filter(|backends| !backends.is_empty())
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RuleDefault {
    filters: Option<Vec<Value>>,
    backend_refs: Option<Vec<WeightedBackend>>,
}

fn http_rule(rule: HttpRoute, made: &mut Translation) -> Option<Value> {
    let HttpRoute { matched, modify, destination, split } = rule;
    let matched = match new_match(matched, made) {
        Ok(matched) => matched,
        Err(why) => {
            made.note(format!("a rule for requests is left out: {why}"));
            return None;
        }
    };
    let filters = filters(modify, made);
    let default = RuleDefault {
        filters: Some(filters).filter(|filters| !filters.is_empty()),
        backend_refs: backends(destination, split, made),
    };
    Some(json!({ "matches": [given(&matched)], "default": given(&default) }))
}

#[derive(Debug, Serialize)]
struct NewMatch {
    path: Option<Value>,
    method: Option<String>,
    headers: Option<Vec<Value>>,
}

/// The match of a rule. The error says what cannot be matched.
fn new_match(old: RequestMatch, made: &mut Translation) -> Result<NewMatch, String> {
    let path = new_path(old.path, made);
    let method = match old.method {
        None => None,
        Some(Partly(method)) => match method.exact {
            Some(Value::String(method)) => Some(method),
            _ => return Err("a method is matched exactly or not at all".to_owned()),
        },
    };
    let mut headers = Vec::new();
    for (name, condition) in &old.headers {
        let TextMatch { exact, prefix, regex } = read_partly(condition);
        let kinds = [("Exact", exact), ("Prefix", prefix), ("RegularExpression", regex)];
        let found = kinds.into_iter().find_map(|(kind, value)| Some((kind, value?)));
        let (kind, value) = found.ok_or_else(|| format!("the condition on header {name:?} is unknown"))?;
        headers.push(json!({ "type": kind, "name": name.to_lowercase(), "value": value }));
    }
    let headers = Some(headers).filter(|headers| !headers.is_empty());
    Ok(NewMatch { path, method, headers })
}

fn new_path(old: TextMatch, made: &mut Translation) -> Option<Value> {
    if let Some(Value::String(prefix)) = old.prefix {
        if prefix != "/" {
            made.note(SLASH);
        }
        let whole = prefix.trim_end_matches('/');
        return Some(json!({ "type": "PathPrefix", "value": if whole.is_empty() { "/" } else { whole } }));
    }
    let exact = old.exact.map(|exact| json!({ "type": "Exact", "value": exact }));
    exact.or_else(|| old.regex.map(|regex| json!({ "type": "RegularExpression", "value": regex })))
}

#[derive(Debug, Serialize)]
struct UrlRewrite {
    path: Option<Value>,
    hostname: Option<Value>,
}

fn filters(modify: RequestChanges, made: &mut Translation) -> Vec<Value> {
    let RequestChanges { path, host, request_headers, response_headers } = modify;
    let mut filters = Vec::new();
    if path.regex.is_some() || host.from_path.is_some() {
        made.note("paths and hosts cannot be rewritten by a regular expression: that part is left out");
    }
    let prefix = path.rewrite_prefix;
    let url = given(&UrlRewrite {
        path: prefix.map(|prefix| json!({ "type": "ReplacePrefixMatch", "replacePrefixMatch": prefix })),
        hostname: host.value,
    });
    if !url.is_empty() {
        filters.push(json!({ "type": "URLRewrite", "urlRewrite": url }));
    }
    for (kind, field, changes) in [
        ("RequestHeaderModifier", "requestHeaderModifier", request_headers),
        ("ResponseHeaderModifier", "responseHeaderModifier", response_headers),
    ] {
        let modifier = header_modifier(changes);
        if !modifier.is_empty() {
            filters.push(json!({ "type": kind, field: modifier }));
        }
    }
    filters
}

#[derive(Debug, Serialize)]
struct HeaderModifier {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    set: Vec<NewHeader>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    add: Vec<NewHeader>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    remove: Vec<Value>,
}

fn header_modifier(changes: HeaderChanges) -> Map<String, Value> {
    let NewHeaders { set, add } = NewHeaders::of(&changes.add);
    let remove = changes.remove.into_iter().map(|header| header.0.name).collect();
    given(&HeaderModifier { set, add, remove })
}

/// `None` for taking turns, which is what happens without a policy.
fn new_load_balancer(old: LoadBalancer) -> Option<Value> {
    if let Some(least) = &old.least_request {
        return Some(json!({ "type": "LeastRequest", "leastRequest": least }));
    }
    if let Some(Partly(mut ring)) = old.ring_hash {
        ring.hash_function = ring.hash_function.as_deref().and_then(new_hash_function).map(str::to_owned);
        return Some(json!({ "type": "RingHash", "ringHash": given(&ring) }));
    }
    let random = old.random.map(|_| json!({ "type": "Random" }));
    random.or_else(|| old.maglev.map(|_| json!({ "type": "Maglev" })))
}

fn new_hash_function(old: &str) -> Option<&'static str> {
    match old {
        "XX_HASH" => Some("XXHash"),
        "MURMUR_HASH_2" => Some("MurmurHash2"),
        _ => None,
    }
}
