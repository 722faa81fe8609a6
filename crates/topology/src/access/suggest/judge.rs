//! Decision of permissions about an observed call, without those that allow everyone.

use std::{collections::BTreeSet, sync::Arc};

use policy::{Client, ClientMatch, Effect, Permissions};
use resources::{
    Resource,
    kinds::tags::ANY_VALUE,
    labels,
    naming::{Kri, SpiffeId},
};

use super::{
    Permission, SuggestionInput,
    callers::{self, Certificates},
    defaults::{self, Defaults},
    everyone,
};
use crate::{
    ClientTls, DestinationId, MeshSnapshot,
    access::targets::{Choice, InboundId},
    matching,
    observed::Caller,
};

/// Consequence of an observed call for suggestions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Judgement {
    Allowed,
    /// No rule is about it but those that refuse everyone.
    Nothing {
        shown: Vec<Kri>,
        /// It is refused now.
        refused: bool,
    },
    Denied {
        policy: Kri,
        /// Some of it is allowed now.
        gets_through: bool,
    },
}

/// The permissions of some inbounds.
pub(super) struct Judge<'a> {
    mesh: &'a MeshSnapshot,
    /// Permissions that someone decided on, at the inbounds that are called.
    serving: Vec<Permissions>,
    /// The same at inbounds that a permission for those would select, too.
    besides: Vec<Permissions>,
    /// Permissions to come at the inbounds that are called.
    closed: Vec<Permissions>,
    /// Permissions there now.
    now: Vec<Permissions>,
}

impl<'a> Judge<'a> {
    pub fn new(
        mesh: &'a MeshSnapshot,
        selector: &policy::PolicySelector<'_>,
        defaults: &Defaults,
        closing: Option<&Arc<Resource>>,
        choice: &Choice,
    ) -> Judge<'a> {
        let decisions = |dataplane: &Resource| defaults.decisions(mesh, dataplane);
        let closed = |dataplane: &Resource| {
            let mut policies = defaults.closed(mesh, dataplane);
            policies.extend(closing);
            policies
        };
        let stored = |dataplane: &Resource| defaults::stored_about(mesh, dataplane).collect();
        Judge {
            mesh,
            serving: permissions(mesh, selector, &choice.serving, decisions),
            besides: permissions(mesh, selector, &choice.besides, decisions),
            closed: permissions(mesh, selector, &choice.serving, closed),
            now: permissions(mesh, selector, &choice.serving, stored),
        }
    }

    /// Decides calls of clients with these certificates to the destination.
    pub fn judge(&self, clients: &Certificates, destination: &DestinationId) -> Judgement {
        let tls = self.mesh.destinations.get(destination).map(|it| &it.tls);
        let sni = match tls {
            Some(ClientTls::Mesh { sni, .. }) => Some(sni.clone()),
            _ => None,
        };
        let asking = |client: &Client| Client { sni: sni.clone(), ..client.clone() };
        let asked: Vec<Client> = clients.reporting.iter().map(asking).collect();
        let lets_in = |client: &Client| self.now.iter().any(|it| it.decide(client).is_allowed());
        let gets_through = tls == Some(&ClientTls::Off) || asked.iter().any(lets_in);
        if let Some(policy) = asked.iter().find_map(|client| refusal(client, &self.serving)) {
            return Judgement::Denied { policy, gets_through };
        }
        let refusing = |of: &[Permissions]| -> Vec<Option<Kri>> {
            let decided = asked.iter().flat_map(|client| of.iter().map(move |it| it.decide(client)));
            decided.filter(|it| !it.is_allowed()).map(|it| it.origin).collect()
        };
        let shown = refusing(&self.closed);
        if shown.is_empty() {
            return Judgement::Allowed;
        }
        match self.would_loosen(clients, &asking) {
            Some(policy) => Judgement::Denied { policy, gets_through },
            None => Judgement::Nothing {
                shown: shown.into_iter().flatten().collect(),
                refused: tls != Some(&ClientTls::Off) && !refusing(&self.now).is_empty(),
            },
        }
    }

    /// The entry that denies a client which a permission for these clients would let in.
    fn would_loosen(&self, clients: &Certificates, asking: &impl Fn(&Client) -> Client) -> Option<Kri> {
        let elsewhere = || clients.reporting.iter().find_map(|it| refusal(&asking(it), &self.besides));
        let of_others =
            |client: Client| refusal(&client, &self.serving).or_else(|| refusal(&client, &self.besides));
        elsewhere().or_else(|| clients.besides.iter().find_map(|it| of_others(asking(it))))
    }

    /// Refusals of clients that no proxy is now, and that the permission would let in.
    pub fn notes(&self, permission: &Permission) -> Vec<String> {
        let mut notes = BTreeSet::new();
        let callers = permission.evidence.iter().filter_map(|evidence| match &evidence.edge.caller {
            Caller::Identity(id) => Some(id),
            Caller::Outside => None,
        });
        for id in callers.collect::<BTreeSet<&SpiffeId>>() {
            let Some(service) = callers::service(self.mesh, id) else { continue };
            for rule in self.serving.iter().chain(&self.besides).flat_map(|it| &it.rules) {
                let ClientMatch::Tags(tags) = &rule.client else { continue };
                let about = tags.get(labels::SERVICE).is_none_or(|it| it == service || it == ANY_VALUE);
                if about && rule.effect == Effect::Deny {
                    notes.insert(format!(
                        "{} denies {}, which no proxy of {service} is now: this permission would let it in",
                        rule.origin, rule.client
                    ));
                }
            }
        }
        notes.into_iter().collect()
    }
}

/// A rule allows a client at one of the inbounds.
pub(super) fn allows_someone(
    mesh: &MeshSnapshot,
    selector: &policy::PolicySelector<'_>,
    defaults: &Defaults,
    places: &BTreeSet<InboundId>,
) -> bool {
    let resolved = permissions(mesh, selector, places, |dataplane| defaults.closed(mesh, dataplane));
    resolved.iter().flat_map(|it| &it.rules).any(|rule| rule.effect != Effect::Deny)
}

/// The entries that will let in clients which no rule names, at some inbounds.
pub(super) fn opened(
    question: &SuggestionInput<'_>,
    selector: &policy::PolicySelector<'_>,
    defaults: &Defaults,
    closing: &[Arc<Resource>],
    places: &BTreeSet<InboundId>,
) -> BTreeSet<Kri> {
    let mesh = question.mesh;
    let resolved = permissions(mesh, selector, places, |dataplane| match question.service {
        None => defaults.closed(mesh, dataplane),
        Some(_) => defaults::stored_about(mesh, dataplane).chain(closing).collect(),
    });
    resolved.iter().filter_map(everyone::opened_by).cloned().collect()
}

fn is_denied(permissions: &Permissions, client: &Client) -> bool {
    let decision = permissions.decide(client);
    decision.effect == Effect::Deny && decision.origin.is_some()
}

/// The first entry that denies a client.
fn refusal(client: &Client, of: &[Permissions]) -> Option<Kri> {
    of.iter().find(|permissions| is_denied(permissions, client))?.decide(client).origin
}

/// The distinct permissions of the inbounds, from the policies that count for their Dataplanes.
fn permissions<'p>(
    mesh: &MeshSnapshot,
    selector: &policy::PolicySelector<'_>,
    places: &BTreeSet<InboundId>,
    policies: impl Fn(&Resource) -> Vec<&'p Arc<Resource>>,
) -> Vec<Permissions> {
    let mut distinct: Vec<Permissions> = Vec::new();
    for (name, i) in places {
        let Some(dataplane) = mesh.dataplanes.get(name) else { continue };
        let Some(inbound) = matching::inbounds(dataplane).get(*i) else { continue };
        let resolved = policy::permission::resolve(policies(dataplane), dataplane, inbound, selector);
        if !distinct.contains(&resolved) {
            distinct.push(resolved);
        }
    }
    distinct
}
