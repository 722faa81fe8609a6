//! Which policies are in effect for a proxy and its parts, as the plan of the proxy sees them.

use std::{collections::BTreeSet, sync::Arc};

use api::{
    InspectError,
    inspect::policies::{
        EffectivePolicy, EffectiveRoutes, EffectiveRule, PoliciesOf, PolicyList, PolicyOrigin, RouteList,
        RouteRule,
    },
};
use plan::effective::{Effective, KINDS, ports};
use policy::{Merged, ResourceRule, ResourceRules};
use resources::{
    Kind, Resource,
    kinds::dataplane::{Dataplane, Inbound, InboundState},
    naming::Kri,
};
use serde_json::Value;
use topology::{Destination, DestinationId, MeshSnapshot};

use super::rules::{conf_of, from_entries, matchers_of};

/// Kinds that say where traffic goes, not what happens to it on the way.
const ROUTES: [Kind; 2] = [Kind::MeshHTTPRoute, Kind::MeshTCPRoute];

/// What policies in effect are read from.
pub struct Policies<'a> {
    pub mesh: &'a MeshSnapshot,
    pub effective: &'a Effective<'a>,
    pub dataplane: &'a Resource,
}

impl Policies<'_> {
    /// What is in effect for a part of the proxy.
    pub fn of(&self, part: &PoliciesOf) -> Result<PolicyList, InspectError> {
        let policies = match part {
            // Every kind in effect is about inbounds or outbounds; none configures a proxy as a whole.
            PoliciesOf::Proxy => Vec::new(),
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
                let kinds = KINDS.into_iter().filter(|kind| !ROUTES.contains(kind));
                kinds.filter_map(|kind| Some(of_outbound(kind, rule(kind)?))).collect()
            }
        };
        Ok(PolicyList { policies })
    }

    /// Where traffic to a destination goes.
    pub fn routes(&self, outbound: &Kri) -> RouteList {
        let of_kind = |kind: Kind| {
            let rule = self.rules(kind, outbound)?.for_destination(outbound)?;
            let rules = match kind {
                Kind::MeshHTTPRoute => rule.merged().iter().flat_map(http_rules).collect(),
                _ => rule.merged().iter().flat_map(tcp_rules).collect(),
            };
            Some(EffectiveRoutes { kind: kind.name(), origins: origins(rule.origins()), rules })
        };
        RouteList { routes: ROUTES.into_iter().filter_map(of_kind).collect() }
    }

    /// The inbound that the section names. Identifiers in use differ in whether they tell the zone, which
    /// mesh and name make up for.
    fn inbound(&self, kri: &Kri) -> Result<&Inbound, InspectError> {
        let of_this_proxy = self
            .dataplane
            .kri("")
            .is_some_and(|own| (own.short, &own.mesh, &own.name) == (kri.short, &kri.mesh, &kri.name));
        let mut inbounds = self.dataplane.spec.get::<Dataplane>().into_iter().flat_map(Dataplane::inbounds);
        let named = |inbound: &&Inbound| {
            inbound.state != InboundState::Ignored && inbound.section_name() == kri.section
        };
        inbounds.find(named).filter(|_| of_this_proxy).ok_or_else(|| {
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

fn of_inbound(effective: &Effective<'_>, kind: Kind, inbound: &Inbound) -> Option<EffectivePolicy> {
    let rules = effective.inbound_rules(kind, inbound).into_iter().map(|rule| EffectiveRule {
        conf: rule.conf,
        kri: rule.origin.without_section(),
        matchers: Vec::new(),
    });
    // Who may call by tags counts as much as who may by identity.
    let from = (kind == Kind::MeshTrafficPermission).then(|| from_entries(effective, inbound));
    let from = from.into_iter().flatten().map(|entry| EffectiveRule {
        conf: conf_of(&entry),
        kri: entry.origin.without_section(),
        matchers: matchers_of(&entry),
    });
    let rules: Vec<EffectiveRule> = rules.chain(from).collect();
    let origins = origins(rules.iter().map(|rule| &rule.kri));
    (!rules.is_empty()).then(|| EffectivePolicy {
        conf: None,
        kind: kind.name(),
        origins,
        rules: Some(rules),
    })
}

fn of_outbound(kind: Kind, rule: &ResourceRule) -> EffectivePolicy {
    let confs = rule.merged().iter().map(|merged| merged.conf.clone()).collect();
    EffectivePolicy {
        conf: Some(Value::Array(confs)),
        kind: kind.name(),
        origins: origins(rule.origins()),
        rules: None,
    }
}

/// The policies that entries are from, each once.
fn origins<'a>(entries: impl IntoIterator<Item = &'a Kri>) -> Vec<PolicyOrigin> {
    let mut seen = BTreeSet::new();
    let policies = entries.into_iter().map(Kri::without_section);
    policies.filter(|kri| seen.insert(kri.clone())).map(|kri| PolicyOrigin { kri }).collect()
}

fn rules(merged: &Merged) -> &[Value] {
    merged.conf.get("rules").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn http_rules(merged: &Merged) -> impl Iterator<Item = RouteRule> {
    rules(merged).iter().enumerate().map(|(i, rule)| {
        // Policies with the same matches share a rule; the last of them gave it its name.
        let origin = merged.origin_of(&format!("/rules/{i}/matches"));
        let matches = rule.get("matches").and_then(Value::as_array).cloned();
        RouteRule {
            conf: rule.get("default").cloned().unwrap_or_default(),
            kri: origin.map(|origin| origin.without_section().to_string()).unwrap_or_default(),
            matches: Some(matches.unwrap_or_default()),
        }
    })
}

fn tcp_rules(merged: &Merged) -> impl Iterator<Item = RouteRule> {
    rules(merged).iter().map(|rule| RouteRule {
        conf: rule.get("default").cloned().unwrap_or_default(),
        kri: String::new(),
        matches: None,
    })
}
