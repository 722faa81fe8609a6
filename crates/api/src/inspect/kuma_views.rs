//! The views of proxies and policies that `kumactl` of Kuma still asks for by default. They are made of the
//! same answers as the newer ones.

use axum::response::Response;
use resources::{
    Kind, Labels, Resource,
    format::universal,
    kinds::dataplane::{Dataplane, InboundState},
    labels,
    naming::legacy,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use store::Snapshot;

use super::{
    dataplane, inspect, readable,
    rules::{ClientRule, KindRules, Meta, RuleList, TagMatcher},
    shown,
};
use crate::{Error, call::Call};

const MISSING: &str = "Could not retrieve a resource";
/// The only kind of proxy there is so far.
const SIDECAR: &str = "SidecarDataplane";

/// A list that is not paged.
#[derive(Debug, Serialize)]
struct Whole<T> {
    total: usize,
    items: Vec<T>,
}

impl<T> From<Vec<T>> for Whole<T> {
    fn from(items: Vec<T>) -> Self {
        Whole { total: items.len(), items }
    }
}

/// `GET /meshes/{mesh}/dataplanes/{name}/policies`: the policies that select the proxy, by kind.
pub async fn policies(call: Call) -> Result<Response, Error> {
    let (inspect, snapshot) = (inspect(&call), readable(&call)?);
    let matched = inspect.matched(&dataplane(&call, MISSING)?).await?;
    let mut by_kind: Map<String, Value> = Map::new();
    for policy in &matched {
        let of_kind = by_kind.entry(policy.kind().name()).or_insert_with(|| json!([]));
        of_kind.as_array_mut().into_iter().for_each(|list| list.push(metadata(policy)));
    }
    by_kind.sort_keys();
    let items = if by_kind.is_empty() {
        Vec::new()
    } else {
        vec![json!({ "type": "dataplane", "matchedPolicies": by_kind })]
    };
    shown(json!({ "kind": SIDECAR, "total": items.len(), "items": items }), &snapshot).await
}

/// A resource without what it says.
fn metadata(resource: &Resource) -> Value {
    let Value::Object(mut fields) = universal::render(resource) else { return Value::Null };
    fields.retain(|field, _| !matches!(field.as_str(), "spec" | "status" | "snis"));
    Value::Object(fields)
}

/// `GET /meshes/{mesh}/{policies}/{name}/dataplanes`: the Dataplanes a policy selects. One that does not exist
/// selects none.
pub async fn dataplanes(call: Call, kind: Kind) -> Result<Response, Error> {
    let (inspect, snapshot) = (inspect(&call), readable(&call)?);
    call.check_access(kind)?;
    let policy = call.key(kind);
    let selected = match snapshot.get(&policy) {
        Some(_) => inspect.selected(&policy).await?,
        None => Vec::new(),
    };
    let item = |proxy: &Resource| {
        json!({
            "kind": SIDECAR,
            "dataplane": { "mesh": proxy.mesh(), "name": proxy.name() },
            "attachments": [{ "type": "dataplane" }],
        })
    };
    let items: Vec<Value> = selected.iter().map(|proxy| item(proxy)).collect();
    shown(Whole::from(items), &snapshot).await
}

/// `GET /meshes/{mesh}/dataplanes/{name}/rules`.
pub async fn rules(call: Call) -> Result<Response, Error> {
    let (inspect, snapshot) = (inspect(&call), readable(&call)?);
    let key = dataplane(&call, MISSING)?;
    let rules = inspect.rules(&key).await?;
    let spec = stored_spec(&snapshot, &key);
    shown(Whole::from(entries(&rules, spec.as_ref())), &snapshot).await
}

fn stored_spec(snapshot: &Snapshot, key: &resources::Key) -> Option<Dataplane> {
    snapshot.get(key)?.spec.get::<Dataplane>().cloned()
}

/// A rule as older clients see it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "OlderRule")]
struct Entry {
    r#type: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    service: String,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    tags: Labels,
    policy_type: &'static str,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    subset: Labels,
    conf: Value,
    origins: Vec<Origin>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
struct Origin {
    mesh: String,
    name: String,
}

/// By name and then by type: what is about the proxy as a whole has no name and comes first.
fn entries(rules: &RuleList, spec: Option<&Dataplane>) -> Vec<Entry> {
    let mut entries: Vec<Entry> =
        rules.rules.iter().flat_map(|of_kind| of_kind_entries(of_kind, spec)).collect();
    entries.sort_by(|a, b| (&a.name, a.r#type).cmp(&(&b.name, b.r#type)));
    entries
}

fn of_kind_entries(rules: &KindRules, spec: Option<&Dataplane>) -> Vec<Entry> {
    let policy_type = rules.r#type;
    let mut entries = Vec::new();
    if let Some(rule) = &rules.proxy_rule {
        entries.push(Entry {
            r#type: "SingleItem",
            name: String::new(),
            addresses: Vec::new(),
            service: String::new(),
            tags: Labels::new(),
            policy_type,
            subset: Labels::new(),
            conf: rule.conf.clone(),
            origins: origins(&rule.origin),
        });
    }
    let entry = |r#type, tags: &Labels, addresses, rule: &ClientRule| Entry {
        r#type,
        name: legacy::subset_cluster(tags, &Labels::new()),
        addresses,
        service: tags.get(labels::SERVICE).cloned().unwrap_or_default(),
        tags: tags.clone(),
        policy_type,
        subset: subset(&rule.matchers),
        conf: rule.conf.clone(),
        origins: origins(&rule.origin),
    };
    for of_inbound in &rules.from_rules {
        let (tags, at) = (&of_inbound.inbound.tags, inbound_address(spec, of_inbound.inbound.port));
        entries.extend(of_inbound.rules.iter().map(|rule| entry("ClientSubset", tags, at.clone(), rule)));
    }
    for rule in &rules.to_rules {
        let tags = subset(&rule.matchers);
        let at = outbound_addresses(spec, &tags);
        entries.push(entry("DestinationSubset", &tags, at, rule));
    }
    entries
}

fn origins(metas: &[Meta]) -> Vec<Origin> {
    metas.iter().map(|meta| Origin { mesh: meta.mesh.clone(), name: meta.name.clone() }).collect()
}

fn subset(matchers: &[TagMatcher]) -> Labels {
    let value = |matcher: &TagMatcher| format!("{}{}", if matcher.not { "!" } else { "" }, matcher.value);
    matchers.iter().map(|matcher| (matcher.key.clone(), value(matcher))).collect()
}

fn inbound_address(spec: Option<&Dataplane>, port: u32) -> Vec<String> {
    let networking = spec.and_then(|spec| spec.networking.as_ref());
    let inbounds = spec.map_or(&[][..], Dataplane::inbounds).iter();
    let there = inbounds.filter(|inbound| inbound.port == port && inbound.state != InboundState::Ignored);
    there
        .zip(networking)
        .map(|(inbound, networking)| format!("{}:{port}", inbound.address_in(networking)))
        .collect()
}

fn outbound_addresses(spec: Option<&Dataplane>, tags: &Labels) -> Vec<String> {
    let networking = spec.and_then(|spec| spec.networking.as_ref());
    let outbounds = networking.into_iter().flat_map(|networking| &networking.outbound);
    let service = tags.get(labels::SERVICE);
    let there = outbounds.filter(|outbound| outbound.tags.get(labels::SERVICE) == service);
    there.map(|outbound| format!("{}:{}", outbound.address(), outbound.port)).collect()
}
