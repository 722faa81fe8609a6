//! Policies in effect for a proxy and its parts, as the plan of the proxy sees them.

use std::{collections::BTreeSet, sync::Arc};

use api::{InspectError, inspect::policies::PoliciesOf};
use contract::policies::{
    EffectivePolicy, EffectiveRoutes, EffectiveRule, PolicyList, PolicyOrigin, RouteList, RouteRule,
};
use plan::effective::{Effective, ports};
use policy::{MergedPolicy, ResourceRule, ResourceRules};
use resources::{
    Kind, Resource,
    kinds::dataplane::{Dataplane, Inbound},
    naming::Kri,
    policy::PolicyPresentation,
};
use serde_json::Value;
use topology::{Destination, DestinationId, MeshSnapshot};

use super::{order::KINDS, rules::from_entries};

/// Presentation of a kind in effect.
fn shown(kind: Kind) -> Option<PolicyPresentation> {
    kind.descriptor().policy.and_then(|traits| traits.effect).map(|effect| effect.shown)
}

/// Sources of the policies in effect.
pub struct Policies<'a> {
    pub mesh: &'a MeshSnapshot,
    pub effective: &'a Effective<'a>,
    pub dataplane: &'a Resource,
}

impl Policies<'_> {
    /// Policies in effect for a part of the proxy.
    pub fn of(&self, part: &PoliciesOf) -> Result<PolicyList, InspectError> {
        let policies = match part {
            PoliciesOf::Proxy => {
                KINDS.into_iter().filter_map(|kind| of_proxy(self.effective, kind)).collect()
            }
            PoliciesOf::Inbound(kri) => {
                let inbound = self.inbound(kri)?;
                KINDS.into_iter().filter_map(|kind| of_inbound(self.effective, kind, inbound)).collect()
            }
            PoliciesOf::Outbound(outbound) => {
                let rule = |kind| self.rules(kind, outbound)?.for_destination(outbound);
                KINDS.into_iter().filter_map(|kind| Some(of_outbound(kind, rule(kind)?))).collect()
            }
            PoliciesOf::Route { outbound, route } => {
                let rule = |kind| self.rules(kind, outbound)?.for_route(route, outbound);
                // A route does not lead to routes.
                let kinds = KINDS
                    .into_iter()
                    .filter(|kind| !matches!(shown(*kind), Some(PolicyPresentation::Routes { .. })));
                kinds.filter_map(|kind| Some(of_outbound(kind, rule(kind)?))).collect()
            }
        };
        Ok(PolicyList { policies })
    }

    /// Routes of traffic to a destination.
    pub fn routes(&self, outbound: &Kri) -> RouteList {
        let of_kind = |kind: Kind| {
            let with_matches = match shown(kind)? {
                PolicyPresentation::Routes { with_matches } => with_matches,
                PolicyPresentation::Confs | PolicyPresentation::Clients => return None,
            };
            let rule = self.rules(kind, outbound)?.for_destination(outbound)?;
            let rules = rule.merged().iter().flat_map(|merged| route_rules(merged, with_matches)).collect();
            Some(EffectiveRoutes { kind: kind.name().into(), origins: origins(rule.origins()), rules })
        };
        RouteList { routes: KINDS.into_iter().filter_map(of_kind).collect() }
    }

    /// The inbound that the section means: by its name, or by its port where none has that name, as `sectionName`
    /// of a policy does. Identifiers in use differ in whether they tell the zone, which mesh and name make up for.
    fn inbound(&self, kri: &Kri) -> Result<&Inbound, InspectError> {
        let of_this_proxy = self
            .dataplane
            .kri("")
            .is_some_and(|own| (own.short, &own.mesh, &own.name) == (kri.short, &kri.mesh, &kri.name));
        let inbounds = self.dataplane.spec.get::<Dataplane>().map_or(&[][..], Dataplane::inbounds);
        let named = inbounds.iter().find(|inbound| inbound.section_name() == kri.section);
        let meant = named.or_else(|| inbounds.iter().find(|inbound| inbound.port.to_string() == kri.section));
        meant.filter(|_| of_this_proxy).ok_or_else(|| {
            let key = &self.dataplane.key;
            InspectError::NotFound(format!("{key} has no inbound {kri}: its _layout lists those it has"))
        })
    }

    /// The confs of a kind, unless they are asked for what the mesh does not have: policies for the whole
    /// mesh are not in effect there either.
    fn rules(&self, kind: Kind, outbound: &Kri) -> Option<&ResourceRules> {
        let is_meant = |port: &Arc<Destination>| match &port.id {
            DestinationId::Port(kri) => outbound.section.is_empty() || kri.section == outbound.section,
            DestinationId::Tags(_) => false,
        };
        let known = ports(self.mesh, outbound).any(is_meant);
        known.then(|| self.effective.outbound(kind))
    }
}

/// The conf of a kind for the proxy as a whole.
fn of_proxy(effective: &Effective<'_>, kind: Kind) -> Option<EffectivePolicy> {
    let merged = effective.proxy(kind)?;
    Some(EffectivePolicy {
        conf: Some(merged.conf.clone()),
        kind: kind.name().into(),
        origins: origins(&merged.origins),
        rules: None,
    })
}

fn of_inbound(effective: &Effective<'_>, kind: Kind, inbound: &Inbound) -> Option<EffectivePolicy> {
    let mut entries: Vec<Kri> = Vec::new();
    let mut rules: Vec<EffectiveRule> = Vec::new();
    for rule in effective.inbound_rules(kind, inbound) {
        let kri = rule.conf.origin.without_section();
        rules.push(EffectiveRule {
            conf: rule.conf.value.clone(),
            kri: kri.to_string(),
            matchers: Vec::new(),
        });
        entries.push(kri);
    }
    // What is said by tags counts as much as what is said by identity.
    if shown(kind) == Some(PolicyPresentation::Clients) {
        for entry in from_entries(effective, kind, inbound) {
            let kri = entry.origin.without_section();
            rules.push(EffectiveRule { conf: entry.conf, kri: kri.to_string(), matchers: entry.matchers });
            entries.push(kri);
        }
    }
    (!rules.is_empty()).then(|| EffectivePolicy {
        conf: None,
        kind: kind.name().into(),
        origins: origins(&entries),
        rules: Some(rules),
    })
}

fn of_outbound(kind: Kind, rule: &ResourceRule) -> EffectivePolicy {
    let confs = rule.merged().iter().map(|merged| merged.conf.clone()).collect();
    EffectivePolicy {
        conf: Some(Value::Array(confs)),
        kind: kind.name().into(),
        origins: origins(rule.origins()),
        rules: None,
    }
}

/// The policies that entries are from, each once.
fn origins<'a>(entries: impl IntoIterator<Item = &'a Kri>) -> Vec<PolicyOrigin> {
    let mut seen = BTreeSet::new();
    let policies = entries.into_iter().map(Kri::without_section);
    policies.filter(|kri| seen.insert(kri.clone())).map(|kri| PolicyOrigin { kri: kri.to_string() }).collect()
}

fn route_rules(merged: &MergedPolicy, with_matches: bool) -> impl Iterator<Item = RouteRule> {
    let rules = merged.conf.get("rules").and_then(Value::as_array).into_iter().flatten();
    rules.zip(&merged.rules).map(move |(rule, origin)| {
        let matches = || rule.get("matches").and_then(Value::as_array).cloned().unwrap_or_default();
        RouteRule {
            conf: rule.get("default").cloned().unwrap_or_default(),
            // Policies with the same matches share a rule; the last of them gave it its name.
            kri: if with_matches { origin.without_section().to_string() } else { String::new() },
            matches: with_matches.then(matches),
        }
    })
}
