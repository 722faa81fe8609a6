//! Every rule in effect for a proxy, by kind of policy, as the plan of the proxy sees them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use contract::rules::{
    ClientRule, FromRules, HttpMatch, InboundRules, ProxyRules, ResourceMeta, RuleInbound, RuleOfInbound,
    RuleOfProxy, RuleOfResource, RuleOrigin, RulesOfKind, TagMatcher,
};
use plan::{
    ProxyTraits, ServerTls,
    effective::{Effective, ports},
};
use policy::{ClientMatch, MergedPolicy};
use resources::{
    Kind, Resource,
    kinds::{
        dataplane::{Dataplane, Inbound},
        mesh::{Mesh, MeshServicesMode},
        mesh_http_route::ToEntry,
    },
    labels,
    naming::Kri,
    policy::PolicyPresentation,
};
use serde_json::{Value, json};
use store::Snapshot;
use topology::{DestinationId, MeshSnapshot};

use super::order::KINDS;

/// Stands for a tag where a rule is about requests: what they match, by the name in `httpMatches`.
const RULE_OF_ROUTE: &str = "__rule-matches-hash__";
const IN_ORDER: &str = "fromRules are listed in the order in which they are evaluated, and the first one that \
     matches a client decides; they are not split into rules that exclude each other";
const NO_MTLS: &str = "the mesh has no mTLS, so clients cannot be identified and no permission is enforced";
const NOT_TOLD_APART: &str = "the mesh has no mTLS, so clients cannot be identified and only entries for \
all clients are in effect";

/// Sources of rules.
pub struct RuleSources<'a> {
    pub snapshot: &'a Snapshot,
    pub mesh: &'a MeshSnapshot,
    pub dataplane: &'a Resource,
    pub effective: &'a Effective<'a>,
    /// The services that the proxy knows by tags only.
    pub services: &'a BTreeSet<String>,
}

/// The services that a proxy knows by tags only: none where every service is a resource.
pub fn services_by_tags(mesh: &MeshSnapshot, traits: &ProxyTraits) -> BTreeSet<String> {
    let mode = mesh.mesh.spec.get::<Mesh>().map(Mesh::mesh_services_mode);
    let plan = (mode != Some(MeshServicesMode::Exclusive)).then(|| plan::for_proxy(mesh, traits));
    // A proxy that cannot be planned calls nothing.
    let outbounds = plan.into_iter().flatten().flat_map(|plan| plan.outgoing.outbounds);
    outbounds
        .filter_map(|outbound| match &outbound.destination {
            DestinationId::Tags(tags) => tags.get(labels::SERVICE).cloned(),
            DestinationId::Port(_) => None,
        })
        .collect()
}

impl RuleSources<'_> {
    pub fn list(&self) -> ProxyRules {
        ProxyRules {
            http_matches: self.http_matches(),
            resource: ResourceMeta::of(self.dataplane),
            rules: KINDS.into_iter().filter_map(|kind| self.of_kind(kind)).collect(),
        }
    }

    /// `None` where no policy of the kind says anything.
    fn of_kind(&self, kind: Kind) -> Option<RulesOfKind> {
        let policies: BTreeMap<Kri, &Resource> = self
            .effective
            .policies(kind)
            .iter()
            .map(|policy| (policy.view.kri.clone(), &*policy.resource))
            .collect();
        let origins = Origins(&policies);
        let (from_rules, warnings) = match kind.descriptor().policy?.effect?.shown {
            PolicyPresentation::Clients => self.rules_by_tags(kind, &origins),
            PolicyPresentation::Confs | PolicyPresentation::Routes { .. } => Default::default(),
        };
        let rules = RulesOfKind {
            from_rules,
            inbound_rules: self.inbound_rules(kind, &origins),
            proxy_rule: self.effective.proxy(kind).map(|merged| RuleOfProxy {
                conf: merged.conf.clone(),
                origin: origins.policies(&merged.origins),
            }),
            to_resource_rules: self.resource_rules(kind, &origins),
            to_rules: self.service_rules(kind, &origins),
            r#type: kind.name().into(),
            warnings,
        };
        let silent = rules.from_rules.is_empty()
            && rules.inbound_rules.is_empty()
            && rules.proxy_rule.is_none()
            && rules.to_resource_rules.is_empty()
            && rules.to_rules.is_empty()
            && rules.warnings.is_empty();
        (!silent).then_some(rules)
    }

    /// The inbounds that are there, by port.
    fn inbounds(&self) -> Vec<&Inbound> {
        let all = self.dataplane.spec.get::<Dataplane>().map_or(&[][..], Dataplane::inbounds);
        let mut inbounds: Vec<_> = all.iter().collect();
        inbounds.sort_by_key(|inbound| inbound.port);
        inbounds
    }

    fn inbound_rules(&self, kind: Kind, origins: &Origins<'_>) -> Vec<InboundRules> {
        let shown = |rule: policy::InboundRule| RuleOfInbound {
            conf: vec![rule.conf.value.clone()],
            r#match: rule.client.and_then(|client| serde_json::to_value(client).ok()),
            origin: origins.entry(&rule.conf.origin).into_iter().collect(),
        };
        let of_inbound = |inbound: &Inbound| InboundRules {
            inbound: reference(inbound),
            rules: self.effective.inbound_rules(kind, inbound).into_iter().map(shown).collect(),
        };
        let all = self.inbounds().into_iter().map(of_inbound);
        all.filter(|of_inbound| !of_inbound.rules.is_empty()).collect()
    }

    /// Rules for clients by tags. What holds for them by identity is among the rules of inbounds.
    fn rules_by_tags(&self, kind: Kind, origins: &Origins<'_>) -> (Vec<FromRules>, Vec<String>) {
        let mut warnings = Vec::new();
        if self.effective.server_tls_by_default() == ServerTls::Off && !origins.0.is_empty() {
            warnings
                .push(if kind == Kind::MeshTrafficPermission { NO_MTLS } else { NOT_TOLD_APART }.to_owned());
        }
        let shown = |entry: FromEntry| ClientRule {
            conf: entry.conf,
            matchers: entry.matchers,
            origin: origins.policies(std::slice::from_ref(&entry.origin)),
        };
        let of_inbound = |inbound: &Inbound| FromRules {
            inbound: reference(inbound),
            rules: from_entries(self.effective, kind, inbound).into_iter().map(shown).collect(),
        };
        let all = self.inbounds().into_iter().map(of_inbound);
        let rules: Vec<FromRules> = all.filter(|of_inbound| !of_inbound.rules.is_empty()).collect();
        if rules.iter().any(|of_inbound| of_inbound.rules.len() > 1) {
            warnings.push(IN_ORDER.to_owned());
        }
        (rules, warnings)
    }

    fn resource_rules(&self, kind: Kind, origins: &Origins<'_>) -> Vec<RuleOfResource> {
        let shown = |rule: &policy::ResourceRule| {
            Some(RuleOfResource {
                conf: rule.merged().iter().map(|merged| merged.conf.clone()).collect(),
                origin: rule.origins().into_iter().filter_map(|origin| origins.entry(origin)).collect(),
                resource_meta: ResourceMeta::of(self.resource(&rule.target)?),
                resource_section_name: rule.target.section.clone(),
            })
        };
        let mut rules: Vec<_> = self.effective.outbound(kind).all().filter_map(shown).collect();
        rules.sort_by(|a, b| a.resource_meta.name.cmp(&b.resource_meta.name));
        rules
    }

    /// The confs of destinations that the proxy knows by tags only.
    fn service_rules(&self, kind: Kind, origins: &Origins<'_>) -> Vec<ClientRule> {
        let matcher =
            |key: &str, value: &str| TagMatcher { key: key.to_owned(), not: false, value: value.to_owned() };
        let shown = |merged: &MergedPolicy, matchers: Vec<TagMatcher>| ClientRule {
            origin: origins.policies(&merged.origins),
            conf: merged.conf.clone(),
            matchers,
        };
        let of_service = |service: &String| {
            let all = matcher(labels::SERVICE, service);
            let rules = self.effective.for_rules_of_service(kind, service);
            let rules: Vec<ClientRule> = rules
                .iter()
                .map(|(name, merged)| shown(merged, vec![matcher(RULE_OF_ROUTE, name), all.clone()]))
                .collect();
            let merged = self.effective.for_service(kind, service);
            rules.into_iter().chain(merged.map(|merged| shown(&merged, vec![all])))
        };
        self.services.iter().flat_map(of_service).collect()
    }

    /// Matches of the proxy's routes, by the name that is made of each.
    fn http_matches(&self) -> Vec<HttpMatch> {
        let rules = self.effective.outbound(Kind::MeshHTTPRoute).rules.values();
        let by_tags = self.services.iter();
        let by_tags = by_tags.filter_map(|service| self.effective.for_service(Kind::MeshHTTPRoute, service));
        let merged = rules.flat_map(|rule| rule.merged()).cloned().chain(by_tags);
        let confs = merged.filter_map(|merged| merged.typed::<ToEntry>().ok());
        let named: BTreeMap<String, Value> = confs
            .flat_map(|conf| conf.rules.clone())
            .filter_map(|rule| Some((rule.name_by_matches(), serde_json::to_value(&rule.matches).ok()?)))
            .collect();
        named.into_iter().map(|(hash, r#match)| HttpMatch { hash, r#match }).collect()
    }

    /// The resource that a rule is about.
    fn resource(&self, target: &Kri) -> Option<&Arc<Resource>> {
        match target.kind()? {
            Kind::Mesh => Some(&self.mesh.mesh),
            Kind::MeshHTTPRoute => self.effective.route(&target.without_section()),
            _ => self.snapshot.get(ports(self.mesh, target).next()?.service.as_ref()?),
        }
    }
}

/// Policies of one kind, by which rules say where they are from.
struct Origins<'a>(&'a BTreeMap<Kri, &'a Resource>);

impl Origins<'_> {
    fn policy(&self, entry: &Kri) -> Option<&Resource> {
        self.0.get(&entry.without_section()).copied()
    }

    fn entry(&self, entry: &Kri) -> Option<RuleOrigin> {
        let index = entry.section.strip_prefix("rule_").and_then(|index| index.parse().ok());
        Some(RuleOrigin {
            resource_meta: ResourceMeta::of(self.policy(entry)?),
            rule_index: index.unwrap_or_default(),
        })
    }

    /// The policies of entries, each once.
    fn policies(&self, entries: &[Kri]) -> Vec<ResourceMeta> {
        let mut seen = BTreeSet::new();
        let first = entries.iter().filter(|entry| seen.insert(entry.without_section()));
        first.filter_map(|entry| Some(ResourceMeta::of(self.policy(entry)?))).collect()
    }
}

fn reference(inbound: &Inbound) -> RuleInbound {
    RuleInbound { name: inbound.name.clone(), port: inbound.port, tags: inbound.tags.clone() }
}

/// An entry of `from` in effect.
pub struct FromEntry {
    pub conf: Value,
    /// The clients it is about; all of them without one.
    pub matchers: Vec<TagMatcher>,
    pub origin: Kri,
}

/// The entries of `from` that decide about an inbound, in the order of evaluation.
pub fn from_entries(effective: &Effective<'_>, kind: Kind, inbound: &Inbound) -> Vec<FromEntry> {
    if kind == Kind::MeshTrafficPermission {
        return permissions(effective, inbound);
    }
    let entries = effective.inbound_from(kind, inbound).into_iter();
    // Nothing is in effect for clients that cannot be distinguished.
    let entry = |rule: policy::FromRule| {
        Some(FromEntry {
            matchers: matchers_of(&rule.client?),
            conf: rule.conf.value.clone(),
            origin: rule.conf.origin.clone(),
        })
    };
    entries.filter_map(entry).collect()
}

fn permissions(effective: &Effective<'_>, inbound: &Inbound) -> Vec<FromEntry> {
    let permissions = effective.permissions(inbound).unwrap_or_default();
    let policies = effective.policies(Kind::MeshTrafficPermission).iter();
    let saying_from: BTreeSet<Kri> = policies
        .filter(|policy| !policy.view.from.is_empty())
        .map(|policy| policy.view.kri.clone())
        .collect();
    let from = |rule: &policy::Rule| saying_from.contains(&rule.origin.without_section());
    let entry = |rule: policy::Rule| FromEntry {
        conf: json!({ "action": rule.effect.to_string() }),
        matchers: matchers_of(&rule.client),
        origin: rule.origin,
    };
    permissions.rules.into_iter().filter(from).map(entry).collect()
}

fn matchers_of(client: &ClientMatch) -> Vec<TagMatcher> {
    let ClientMatch::Tags(tags) = client else { return Vec::new() };
    let matcher =
        |(key, value): (&String, &String)| TagMatcher { key: key.clone(), not: false, value: value.clone() };
    tags.iter().map(matcher).collect()
}
