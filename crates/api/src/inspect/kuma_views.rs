//! The views of proxies and policies that `kumactl` of Kuma still asks for by default. They are made of the
//! same answers as the newer ones.

use axum::response::Response;
use contract::{
    inspect_entries::{
        DataplaneInspectEntries, DataplaneInspectEntry, PolicyAttachment, PolicyInspectEntry, ResourceName,
        RuleInspectEntry,
    },
    pages::Whole,
    rules::{ClientRule, ProxyRules, ResourceMeta, RulesOfKind, TagMatcher},
};
use resources::{
    Kind, Labels, Resource,
    format::universal,
    kinds::dataplane::{Dataplane, InboundState},
    labels,
    naming::legacy,
};
use serde_json::Value;
use store::Snapshot;

use super::{dataplane, inspect, shown};
use crate::{Error, call::Call};

const MISSING: &str = "Could not retrieve a resource";
/// The only kind of proxy there is so far.
const SIDECAR: &str = "SidecarDataplane";
/// Part that policies are attached to: the proxy as a whole.
const ATTACHED: &str = "dataplane";

/// `GET /meshes/{mesh}/dataplanes/{name}/policies`: the policies that select the proxy, by kind.
pub async fn policies(call: Call) -> Result<Response, Error> {
    let inspect = inspect(&call);
    let snapshot = call.snapshot()?;
    let matched = inspect.matched(&dataplane(&call, MISSING)?).await?;
    let mut entry = DataplaneInspectEntry { r#type: ATTACHED.into(), ..DataplaneInspectEntry::default() };
    for policy in &matched {
        let of_kind = entry.matched_policies.entry(policy.kind().name().into()).or_default();
        of_kind.push(metadata(policy));
    }
    let items = if entry.matched_policies.is_empty() { Vec::new() } else { vec![entry] };
    shown(DataplaneInspectEntries { kind: SIDECAR.into(), total: items.len(), items }, &snapshot).await
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
    let inspect = inspect(&call);
    let snapshot = call.snapshot()?;
    let policy = call.key(kind);
    let selected = match snapshot.get(&policy) {
        Some(_) => inspect.selected(&policy).await?,
        None => Vec::new(),
    };
    let items: Vec<PolicyInspectEntry> = selected.iter().map(|proxy| selected_entry(proxy)).collect();
    shown(Whole::from(items), &snapshot).await
}

fn selected_entry(proxy: &Resource) -> PolicyInspectEntry {
    PolicyInspectEntry {
        kind: SIDECAR.into(),
        dataplane: ResourceName { mesh: proxy.mesh().to_owned(), name: proxy.name().to_owned() },
        attachments: vec![PolicyAttachment { r#type: ATTACHED.into() }],
    }
}

/// `GET /meshes/{mesh}/dataplanes/{name}/rules`.
pub async fn rules(call: Call) -> Result<Response, Error> {
    let inspect = inspect(&call);
    let snapshot = call.snapshot()?;
    let key = dataplane(&call, MISSING)?;
    let rules = inspect.rules(&key).await?;
    let spec = stored_spec(&snapshot, &key);
    shown(Whole::from(entries(&rules, spec.as_ref())), &snapshot).await
}

fn stored_spec(snapshot: &Snapshot, key: &resources::Key) -> Option<Dataplane> {
    snapshot.get(key)?.spec.get::<Dataplane>().cloned()
}

/// By name and then by type: what is about the proxy as a whole has no name and comes first.
fn entries(rules: &ProxyRules, spec: Option<&Dataplane>) -> Vec<RuleInspectEntry> {
    let mut entries: Vec<RuleInspectEntry> =
        rules.rules.iter().flat_map(|of_kind| of_kind_entries(of_kind, spec)).collect();
    entries.sort_by(|a, b| (&a.name, &a.r#type).cmp(&(&b.name, &b.r#type)));
    entries
}

fn of_kind_entries(rules: &RulesOfKind, spec: Option<&Dataplane>) -> Vec<RuleInspectEntry> {
    let policy_type = || rules.r#type.clone();
    let mut entries = Vec::new();
    if let Some(rule) = &rules.proxy_rule {
        entries.push(RuleInspectEntry {
            r#type: "SingleItem".into(),
            name: String::new(),
            addresses: Vec::new(),
            service: String::new(),
            tags: Labels::new(),
            policy_type: policy_type(),
            subset: Labels::new(),
            conf: rule.conf.clone(),
            origins: origins(&rule.origin),
        });
    }
    let entry = |r#type: &'static str, tags: &Labels, addresses, rule: &ClientRule| RuleInspectEntry {
        r#type: r#type.into(),
        name: legacy::subset_cluster(tags, &Labels::new()),
        addresses,
        service: tags.get(labels::SERVICE).cloned().unwrap_or_default(),
        tags: tags.clone(),
        policy_type: policy_type(),
        subset: subset(&rule.matchers),
        conf: rule.conf.clone(),
        origins: origins(&rule.origin),
    };
    for of_inbound in &rules.from_rules {
        let tags = &of_inbound.inbound.tags;
        let at = inbound_address(spec, of_inbound.inbound.port);
        entries.extend(of_inbound.rules.iter().map(|rule| entry("ClientSubset", tags, at.clone(), rule)));
    }
    for rule in &rules.to_rules {
        let tags = subset(&rule.matchers);
        let at = outbound_addresses(spec, &tags);
        entries.push(entry("DestinationSubset", &tags, at, rule));
    }
    entries
}

fn origins(metas: &[ResourceMeta]) -> Vec<ResourceName> {
    metas.iter().map(|meta| ResourceName { mesh: meta.mesh.clone(), name: meta.name.clone() }).collect()
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
