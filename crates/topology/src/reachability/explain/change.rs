//! The smallest change that would let a client in.

use std::collections::BTreeSet;

use policy::PolicySelector;
use resources::{
    Kind, Labels,
    kinds::{mesh_traffic_permission::MeshTrafficPermission, target_ref::TargetRefKind},
    naming::Kri,
};
use serde_json::{Value, json};

use super::{Call, Place, Server};
use crate::{
    matching,
    reachability::targets::{Choice, Wanted},
};

/// What would let the client in.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// No rule is about the client: this MeshTrafficPermission would be.
    Write { resource: Value },
    /// This deny is for all clients that nothing else allows: the permission would be an exception to it.
    Except { rule: Kri, resource: Value },
    /// These rules deny the client, and a permission cannot allow what they deny: only changing them would.
    Edit { rules: Vec<Kri> },
}

impl Change {
    /// What to do, in words.
    pub fn text(&self) -> String {
        match self {
            Change::Write { .. } => {
                "no rule is about this client; a MeshTrafficPermission for it would allow the \
                                     call"
                    .to_owned()
            }
            Change::Except { rule, .. } => format!(
                "{rule} denies all clients that no other rule allows; a MeshTrafficPermission for this client would be an \
                 exception to it, so ask the owner of that rule"
            ),
            Change::Edit { rules } => {
                let rules: Vec<String> = rules.iter().map(Kri::to_string).collect();
                format!(
                    "{} denies this client, and no other permission can allow it: the call is allowed when that rule no \
                     longer denies it, which is for the owner of the policy to decide",
                    rules.join(", ")
                )
            }
        }
    }

    /// The permission that would have to be written.
    pub fn resource(&self) -> Option<&Value> {
        match self {
            Change::Write { resource } | Change::Except { resource, .. } => Some(resource),
            Change::Edit { .. } => None,
        }
    }
}

/// `None` for a client that no permission can name. `refusing` are inbounds that refuse, with the rule that says so.
pub(super) fn of(call: &Call<'_>, refusing: Vec<(Vec<&Server<'_>>, Option<Kri>)>) -> Option<Change> {
    let (mut by_default, mut denies) = (BTreeSet::new(), BTreeSet::new());
    for rule in refusing.iter().filter_map(|(_, rule)| rule.as_ref()) {
        match is_default(call, rule) {
            true => by_default.insert(rule.clone()),
            false => denies.insert(rule.clone()),
        };
    }
    if !denies.is_empty() {
        return Some(Change::Edit { rules: denies.into_iter().collect() });
    }
    let servers: Vec<&Server<'_>> = refusing.into_iter().flat_map(|(servers, _)| servers).collect();
    let resource = permission(call, &servers)?;
    Some(match by_default.into_iter().next() {
        Some(rule) => Change::Except { rule, resource },
        None => Change::Write { resource },
    })
}

/// Whether a deny is for everyone and stands in `from`, where allows of other policies come before it.
fn is_default(call: &Call<'_>, rule: &Kri) -> bool {
    let policy = rule.without_section();
    let mut policies = call.mesh.viewed(Kind::MeshTrafficPermission);
    let Some(policy) = policies.find(|it| it.view.kri == policy) else { return false };
    let Some(spec) = policy.resource.spec.get::<MeshTrafficPermission>() else { return false };
    let at = rule.section.strip_prefix("rule_").and_then(|at| at.parse::<usize>().ok());
    let entry = at.and_then(|at| spec.from.get(at)).filter(|_| spec.rules.is_empty());
    entry.is_some_and(|entry| entry.target_ref.kind == TargetRefKind::Mesh)
}

/// A MeshTrafficPermission that lets the client call these servers.
fn permission(call: &Call<'_>, servers: &[&Server<'_>]) -> Option<Value> {
    // No permission is about a client without a certificate.
    let client = Some(call.client).filter(|client| !client.is_plain())?.client().spiffe_ids.first()?;
    let mut allow = json!({ "spiffeID": { "type": "Exact", "value": client.to_string() } });
    // An egress tells destinations apart by the server name alone.
    if let Some(egress) = servers.iter().find(|server| matches!(server.place, Place::Egress)) {
        allow["sni"] = json!({ "type": "Exact", "value": egress.server_names.first()? });
    }
    let who = client.to_string();
    let who = who.rsplit('/').next().unwrap_or_default();
    Some(json!({
        "type": Kind::MeshTrafficPermission.name(),
        "mesh": &*call.mesh.name,
        "name": name(&[who, "to", call.destination]),
        "spec": { "targetRef": target(call, servers), "rules": [{ "default": { "allow": [allow] } }] },
    }))
}

/// A reference that selects these servers, and no others if there is one; all proxies where no inbound is known.
fn target(call: &Call<'_>, servers: &[&Server<'_>]) -> Value {
    let place = |server: &&Server<'_>| match server.place {
        Place::Inbound(dataplane, inbound) => {
            let at = matching::inbounds(dataplane).iter().position(|it| std::ptr::eq(it, inbound))?;
            Some((dataplane.key.name.clone(), at))
        }
        Place::Egress | Place::Unseen => None,
    };
    let places: BTreeSet<_> = servers.iter().filter_map(place).collect();
    let wanted = Wanted {
        mesh: call.mesh,
        places: &places,
        preferred: Vec::new(),
        selectors: &[],
        destinations: &[],
        labels: &Labels::new(),
    };
    let choice = Choice::of(&wanted, &PolicySelector::default()).into_iter().next();
    choice.map_or_else(|| json!({ "kind": "Mesh" }), |choice| json!(choice.target))
}

/// A name of a resource made of words that may be anything.
fn name(words: &[&str]) -> String {
    let letters = words.join("-").to_lowercase();
    let allowed = letters.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    let name: String = allowed.take(60).collect();
    name.trim_matches('-').to_owned()
}
