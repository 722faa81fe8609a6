//! TrafficRoute: where requests and connections go.

use serde_json::{Value, json};

use super::{
    legacy::{Legacy, Translation, renamed, says_something},
    permission::headers,
    selector::Tags,
};

const SLASH: &str =
    "a path prefix of a MeshHTTPRoute ends at a slash or at the end of the path: /v1 does not match /v10";
const ORDER: &str = "rules of a MeshHTTPRoute are evaluated from the most to the least specific, not in the order in which they are listed";

pub fn translate(legacy: &Legacy<'_>) -> Translation {
    let mut made = Translation::default();
    let conf = legacy.conf();
    let http = conf["http"].as_array().map_or(&[][..], Vec::as_slice);
    let everywhere = legacy.destinations().iter().all(Tags::is_everything);
    if everywhere && http.is_empty() && leads_to_itself(conf) && !says_something(&conf["loadBalancer"]) {
        made.note("it sends everything where it is sent anyway, which needs no policy");
        return made;
    }
    let rest = backends(conf, &mut made);
    let mut rules: Vec<Value> = http.iter().filter_map(|rule| http_rule(rule, &mut made)).collect();
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
    for destination in legacy.destinations() {
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
        if let Some(balancer) = load_balancer(&conf["loadBalancer"]) {
            balanced.push(json!({ "targetRef": target, "default": { "loadBalancer": balancer } }));
        }
    }
    let kinds =
        [("MeshHTTPRoute", requests), ("MeshTCPRoute", connections), ("MeshLoadBalancingStrategy", balanced)];
    for source in legacy.sources() {
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

/// True for traffic to whatever was called.
fn leads_to_itself(conf: &Value) -> bool {
    Tags::of(&conf["destination"]).is_everything() && conf["split"].is_null()
}

/// Backends of traffic; `None` for whatever was called.
fn backends(conf: &Value, made: &mut Translation) -> Option<Vec<Value>> {
    let split = conf["split"].as_array().into_iter().flatten();
    let mut shares: Vec<_> =
        split.map(|share| (Tags::of(&share["destination"]), Some(&share["weight"]))).collect();
    if shares.is_empty() {
        shares.push((Tags::of(&conf["destination"]), None));
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

fn http_rule(rule: &Value, made: &mut Translation) -> Option<Value> {
    let matched = match matched(&rule["match"], made) {
        Ok(matched) => matched,
        Err(why) => {
            made.note(format!("a rule for requests is left out: {why}"));
            return None;
        }
    };
    let mut default = json!({});
    let filters = filters(&rule["modify"], made);
    if !filters.is_empty() {
        default["filters"] = Value::Array(filters);
    }
    if let Some(backends) = backends(rule, made) {
        default["backendRefs"] = Value::Array(backends);
    }
    Some(json!({ "matches": [matched], "default": default }))
}

fn matched(old: &Value, made: &mut Translation) -> Result<Value, String> {
    let mut new = json!({});
    let path = &old["path"];
    if let Some(prefix) = path["prefix"].as_str() {
        let whole = prefix.trim_end_matches('/');
        new["path"] = json!({ "type": "PathPrefix", "value": if whole.is_empty() { "/" } else { whole } });
        if prefix != "/" {
            made.note(SLASH);
        }
    } else if let Some(exact) = path.get("exact") {
        new["path"] = json!({ "type": "Exact", "value": exact });
    } else if let Some(regex) = path.get("regex") {
        new["path"] = json!({ "type": "RegularExpression", "value": regex });
    }
    match &old["method"] {
        Value::Null => {}
        method => match method["exact"].as_str() {
            Some(method) => new["method"] = json!(method),
            None => return Err("a method is matched exactly or not at all".to_owned()),
        },
    }
    let mut conditions = Vec::new();
    for (name, condition) in old["headers"].as_object().into_iter().flatten() {
        let kinds = [("exact", "Exact"), ("prefix", "Prefix"), ("regex", "RegularExpression")];
        let found = kinds.iter().find_map(|(old, new)| Some((*new, condition.get(*old)?)));
        let (kind, value) = found.ok_or_else(|| format!("the condition on header {name:?} is unknown"))?;
        conditions.push(json!({ "type": kind, "name": name.to_lowercase(), "value": value }));
    }
    if !conditions.is_empty() {
        new["headers"] = Value::Array(conditions);
    }
    Ok(new)
}

fn filters(modify: &Value, made: &mut Translation) -> Vec<Value> {
    let mut filters = Vec::new();
    let mut url = json!({});
    if let Some(prefix) = modify["path"].get("rewritePrefix") {
        url["path"] = json!({ "type": "ReplacePrefixMatch", "replacePrefixMatch": prefix });
    }
    if let Some(host) = modify["host"].get("value") {
        url["hostname"] = host.clone();
    }
    if !modify["path"]["regex"].is_null() || !modify["host"]["fromPath"].is_null() {
        made.note("paths and hosts cannot be rewritten by a regular expression: that part is left out");
    }
    if says_something(&url) {
        filters.push(json!({ "type": "URLRewrite", "urlRewrite": url }));
    }
    for (old, kind, field) in [
        ("requestHeaders", "RequestHeaderModifier", "requestHeaderModifier"),
        ("responseHeaders", "ResponseHeaderModifier", "responseHeaderModifier"),
    ] {
        let (set, add) = headers(&modify[old]["add"]);
        let removed = modify[old]["remove"].as_array().into_iter().flatten();
        let remove: Vec<Value> = removed.map(|header| header["name"].clone()).collect();
        let lists = [("set", set), ("add", add), ("remove", remove)];
        let given = lists.into_iter().filter(|(_, list)| !list.is_empty());
        let modifier: serde_json::Map<String, Value> =
            given.map(|(name, list)| (name.to_owned(), Value::Array(list))).collect();
        if !modifier.is_empty() {
            filters.push(json!({ "type": kind, field: modifier }));
        }
    }
    filters
}

/// `None` for taking turns, which is what happens without a policy.
fn load_balancer(old: &Value) -> Option<Value> {
    let old_kind =
        ["leastRequest", "ringHash", "random", "maglev"].into_iter().find(|kind| !old[*kind].is_null())?;
    let given = &old[old_kind];
    Some(match old_kind {
        "leastRequest" => {
            json!({ "type": "LeastRequest", "leastRequest": renamed(given, &[("choiceCount", "choiceCount")]) })
        }
        "ringHash" => {
            let mut ring = renamed(given, &[("minRingSize", "minRingSize"), ("maxRingSize", "maxRingSize")]);
            match given["hashFunction"].as_str() {
                Some("XX_HASH") => ring["hashFunction"] = json!("XXHash"),
                Some("MURMUR_HASH_2") => ring["hashFunction"] = json!("MurmurHash2"),
                _ => {}
            }
            json!({ "type": "RingHash", "ringHash": ring })
        }
        "random" => json!({ "type": "Random" }),
        _ => json!({ "type": "Maglev" }),
    })
}
