//! Which policies are in effect for a proxy and its parts, as the plan of the proxy sees them.

use std::collections::BTreeSet;

use api::{
    InspectError,
    inspect::policies::{
        EffectivePolicy, EffectiveRoutes, EffectiveRule, PoliciesOf, PolicyList, PolicyOrigin, RouteList,
        RouteRule,
    },
};
use plan::effective::{Effective, KINDS};
use policy::{Merged, ResourceRule};
use resources::{
    Kind, Resource,
    kinds::dataplane::{Dataplane, Inbound},
    naming::Kri,
};
use serde_json::Value;

/// Kinds that say where traffic goes, not what happens to it on the way.
const ROUTES: [Kind; 2] = [Kind::MeshHTTPRoute, Kind::MeshTCPRoute];

/// What is in effect for a part of the proxy.
pub fn of(
    effective: &Effective<'_>,
    dataplane: &Resource,
    part: &PoliciesOf,
) -> Result<PolicyList, InspectError> {
    let policies = match part {
        // Every kind in effect is about inbounds or outbounds; none configures a proxy as a whole.
        PoliciesOf::Proxy => Vec::new(),
        PoliciesOf::Inbound(kri) => {
            let inbound = inbound(dataplane, &kri.section)?;
            KINDS.into_iter().filter_map(|kind| of_inbound(effective, kind, inbound)).collect()
        }
        PoliciesOf::Outbound(outbound) => {
            let rule = |kind| effective.outbound(kind).for_destination(outbound);
            KINDS.into_iter().filter_map(|kind| Some(of_outbound(kind, rule(kind)?))).collect()
        }
        PoliciesOf::Route { outbound, route } => {
            let rule = |kind| effective.outbound(kind).for_route(route, outbound);
            let kinds = KINDS.into_iter().filter(|kind| !ROUTES.contains(kind));
            kinds.filter_map(|kind| Some(of_outbound(kind, rule(kind)?))).collect()
        }
    };
    Ok(PolicyList { policies })
}

fn inbound<'a>(dataplane: &'a Resource, section: &str) -> Result<&'a Inbound, InspectError> {
    let mut inbounds = dataplane.spec.get::<Dataplane>().into_iter().flat_map(Dataplane::inbounds);
    inbounds.find(|inbound| inbound.section_name() == section).ok_or_else(|| {
        InspectError::NotFound(format!("{} has no inbound of the name or port {section:?}", dataplane.key))
    })
}

fn of_inbound(effective: &Effective<'_>, kind: Kind, inbound: &Inbound) -> Option<EffectivePolicy> {
    let rules = effective.inbound_rules(kind, inbound);
    if rules.is_empty() {
        return None;
    }
    Some(EffectivePolicy {
        conf: None,
        kind: kind.name(),
        origins: origins(rules.iter().map(|rule| &rule.origin)),
        rules: Some(
            rules
                .into_iter()
                .map(|rule| EffectiveRule { kri: rule.origin.without_section(), conf: rule.conf })
                .collect(),
        ),
    })
}

fn of_outbound(kind: Kind, rule: &ResourceRule) -> EffectivePolicy {
    let confs = rule.merged.iter().map(|merged| merged.conf.clone()).collect();
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

/// Where traffic to a destination goes.
pub fn routes(effective: &Effective<'_>, outbound: &Kri) -> RouteList {
    let of_kind = |kind: Kind| {
        let rule = effective.outbound(kind).for_destination(outbound)?;
        let rules = match kind {
            Kind::MeshHTTPRoute => rule.merged.iter().flat_map(http_rules).collect(),
            _ => rule.merged.iter().flat_map(tcp_rules).collect(),
        };
        Some(EffectiveRoutes { kind: kind.name(), origins: origins(rule.origins()), rules })
    };
    RouteList { routes: ROUTES.into_iter().filter_map(of_kind).collect() }
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
