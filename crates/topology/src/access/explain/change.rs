//! The smallest change that would let a client in.
//!
//! Servers of this zone come first, because a permission for them can be written here. An offer selects all
//! of them that no rule is about, or that deny by default, and says what else it opens.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use policy::{ClientMatch, PolicySelector};
use resources::{
    Draft, Key, Kind, Labels, Spec,
    format::universal,
    kinds::{
        entry::Always,
        mesh_traffic_permission::{MeshTrafficPermission, RuleConf},
        target_ref::{Match, MatchType, SniMatch, SniMatchType, SpiffeIdMatch, TargetRef},
    },
    labels,
    naming::{Kri, SpiffeId},
};
use serde_json::Value;

use super::{AskedServer, Call, EnforcementPoint, PermissionObstacle, Requirement, named};
use crate::{
    access::{
        policy_names, rules,
        targets::{self, Choice, InboundSelection, SelectionEffect, member, reference},
    },
    matching::{self, MemberSelector},
};

/// More permissions than this are not offered for one call.
const MAX_PERMISSIONS: usize = 20;

/// Change that would allow the client's calls.
#[derive(Debug, Clone, PartialEq)]
pub enum AccessChange {
    /// These permissions would.
    Write(ProposedPermissions),
    /// Rules deny the client itself: changing them would.
    Edit { denials: Vec<Denial> },
    /// A permission would, and none can be written that is for these servers only.
    NotOffered { why: PermissionObstacle },
}

/// Permissions to write.
#[derive(Debug, Clone, PartialEq)]
pub struct ProposedPermissions {
    /// MeshTrafficPermissions, as they are applied.
    pub permissions: Vec<Value>,
    /// The denies of all clients that nothing else allows, to which the permissions are exceptions.
    pub exceptions: Vec<Kri>,
    /// The zone of the servers, where it is not this one: the permissions are for the global control plane.
    pub zone: Option<Arc<str>>,
    /// Inbounds of other destinations that the permissions open for the client, too.
    pub besides: Vec<Kri>,
    /// Notes for the user to read before applying them.
    pub notes: Vec<String>,
}

/// A rule that denies the client itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Denial {
    pub rule: Kri,
    /// The rule is an entry of `from`, before which any allow in `rules` comes.
    pub in_from: bool,
}

impl AccessChange {
    /// Describes the change in words.
    pub fn text(&self) -> String {
        match self {
            AccessChange::Write(offer) => offer.text(),
            AccessChange::Edit { denials } => {
                let sentences: Vec<String> = denials.iter().map(Denial::text).collect();
                sentences.join("; ")
            }
            AccessChange::NotOffered { why } => why.to_string(),
        }
    }

    /// The permissions that would have to be written.
    pub fn permissions(&self) -> &[Value] {
        match self {
            AccessChange::Write(offer) => &offer.permissions,
            AccessChange::Edit { .. } | AccessChange::NotOffered { .. } => &[],
        }
    }

    /// The rules that would have to change, or that would get an exception.
    pub fn rules(&self) -> Vec<Kri> {
        match self {
            AccessChange::Write(offer) => offer.exceptions.clone(),
            AccessChange::Edit { denials } => denials.iter().map(|denial| denial.rule.clone()).collect(),
            AccessChange::NotOffered { .. } => Vec::new(),
        }
    }

    /// Returns notes for the user to read before applying a permission.
    pub fn notes(&self) -> &[String] {
        match self {
            AccessChange::Write(offer) => &offer.notes,
            AccessChange::Edit { .. } | AccessChange::NotOffered { .. } => &[],
        }
    }
}

impl ProposedPermissions {
    fn text(&self) -> String {
        let (these, would) = match self.permissions.len() {
            1 => ("this MeshTrafficPermission".to_owned(), "would be an exception to it"),
            n => (format!("these {n} MeshTrafficPermissions"), "would be exceptions to it"),
        };
        let place = match &self.zone {
            Some(zone) => format!(
                "; the servers are in zone {zone:?}, so apply it on the global control plane, because permissions of this \
                 zone have no effect there"
            ),
            None => String::new(),
        };
        match listed(&self.exceptions) {
            none if none.is_empty() => {
                format!("no rule is about this client; {these} would allow the call{place}")
            }
            rules => format!(
                "{rules} denies all clients that no other rule allows; {these} {would}, so ask the owner of that \
                 rule{place}"
            ),
        }
    }
}

impl Denial {
    fn text(&self) -> String {
        let Denial { rule, in_from } = self;
        if *in_from {
            format!(
                "{rule} denies this client. A MeshTrafficPermission with `rules` would overrule it; none is offered, \
                 because that is for the owner of the policy to decide"
            )
        } else {
            format!(
                "{rule} denies this client, and no other permission can allow it: the call is allowed when that rule no \
                 longer denies it, which is for the owner of the policy to decide"
            )
        }
    }
}

fn listed(rules: &[Kri]) -> String {
    rules.iter().map(Kri::to_string).collect::<Vec<_>>().join(", ")
}

/// Reason why servers refuse.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RefusalReason {
    /// No rule is about the client.
    NoRule,
    /// This entry of `from` denies everyone.
    Everyone(Kri),
    /// This rule denies the client itself.
    Itself(Denial),
}

impl RefusalReason {
    /// `None` where the client is let in.
    fn of(call: &Call<'_>, server: &AskedServer<'_>) -> Option<RefusalReason> {
        let Requirement::Permission(ruleset) = &server.requires else { return None };
        let permissions = call.mesh.access.asked(ruleset, call.client.client());
        let (client, decision) = named(&permissions, call.client.client(), &server.server_names);
        if decision.is_allowed() {
            return None;
        }
        let Some(rule) = permissions.rules.iter().find(|rule| rule.client.matches(&client)) else {
            return Some(RefusalReason::NoRule);
        };
        let itself = |in_from| RefusalReason::Itself(Denial { rule: rule.origin.clone(), in_from });
        Some(match &rule.client {
            ClientMatch::Anyone if is_in_from(call, server.place, &rule.origin) => {
                RefusalReason::Everyone(rule.origin.clone())
            }
            // Of what rules say, only `from` is about tags.
            client => itself(matches!(client, ClientMatch::Tags(_))),
        })
    }
}

/// The deny stands in `from`, where allows of other policies come before it.
fn is_in_from(call: &Call<'_>, place: EnforcementPoint<'_>, rule: &Kri) -> bool {
    let policy = rule.without_section();
    let in_from = |candidate: &resources::Resource| {
        let spec = candidate.spec.get::<MeshTrafficPermission>();
        spec.is_some_and(|spec| spec.rules.is_empty())
    };
    let meant = |it: &&Arc<policy::Policy>| it.view.kri == policy;
    let found = match place {
        EnforcementPoint::Inbound(dataplane, _) => call.mesh.candidates(dataplane).find(meant),
        EnforcementPoint::Egress | EnforcementPoint::Unseen => {
            call.mesh.viewed(Kind::MeshTrafficPermission).find(meant)
        }
    };
    found.is_some_and(|policy| in_from(&policy.resource))
}

/// Servers that refuse for one reason.
#[derive(Debug)]
pub(super) struct RefusingServers<'a, 's> {
    pub servers: Vec<&'s AskedServer<'a>>,
    refusal: RefusalReason,
}

impl<'a, 's> RefusingServers<'a, 's> {
    pub fn of(call: &Call<'_>, servers: Vec<&'s AskedServer<'a>>) -> RefusingServers<'a, 's> {
        let refusal = servers.first().and_then(|server| RefusalReason::of(call, server));
        RefusingServers { servers, refusal: refusal.unwrap_or(RefusalReason::NoRule) }
    }
}

/// `None` where nothing refuses the client, and for one that no permission can name.
pub(super) fn of(
    call: &Call<'_>,
    servers: &[AskedServer<'_>],
    refusing: &[RefusingServers<'_, '_>],
) -> Option<AccessChange> {
    let identities = &call.client.client().spiffe_ids;
    // No permission is about a client without a certificate.
    if refusing.is_empty() || call.client.is_plain() || identities.is_empty() {
        return None;
    }
    let mut denials = BTreeSet::new();
    let mut open: Vec<&RefusingServers<'_, '_>> = Vec::new();
    for group in refusing {
        match &group.refusal {
            RefusalReason::Itself(denial) => drop(denials.insert(denial.clone())),
            RefusalReason::NoRule | RefusalReason::Everyone(_) => open.push(group),
        }
    }
    if open.is_empty() {
        return Some(AccessChange::Edit { denials: denials.into_iter().collect() });
    }
    // A service may have a name that no path of a SPIFFE id is.
    let named = identities.iter().find(|id| id.as_str().parse::<SpiffeId>().is_ok());
    let Some(client) = named else {
        return Some(AccessChange::NotOffered { why: PermissionObstacle::UnnamedClient });
    };
    let offering = Offering { call, client, servers, judged: RefCell::default() };
    Some(match offering.for_servers(&open) {
        Ok(mut offer) => {
            offer.notes.extend(denials.iter().map(|denial| {
                format!("{} goes on denying the client at other instances of the destination", denial.rule)
            }));
            AccessChange::Write(offer)
        }
        Err(why) => AccessChange::NotOffered { why },
    })
}

/// Permissions for one client.
struct Offering<'a> {
    call: &'a Call<'a>,
    client: &'a SpiffeId,
    servers: &'a [AskedServer<'a>],
    /// Consequences of selecting other inbounds, each judged once.
    judged: RefCell<BTreeMap<targets::InboundId, SelectionEffect>>,
}

impl Offering<'_> {
    /// The permissions for servers of this zone; for others where there are none. The error says why there are none.
    fn for_servers(
        &self,
        open: &[&RefusingServers<'_, '_>],
    ) -> Result<ProposedPermissions, PermissionObstacle> {
        let has = |group: &RefusingServers<'_, '_>, is: fn(&EnforcementPoint<'_>) -> bool| {
            group.servers.iter().any(|server| is(&server.place))
        };
        let (here, elsewhere): (Vec<_>, Vec<_>) = open
            .iter()
            .copied()
            .partition(|group| has(group, |place| matches!(place, EnforcementPoint::Inbound(..))));
        let at_egress =
            elsewhere.iter().any(|group| has(group, |place| matches!(place, EnforcementPoint::Egress)));
        let (chosen, mut offer) = match (here.is_empty(), at_egress) {
            (false, _) => (&here, self.for_inbounds(&here)?),
            (true, true) => (&elsewhere, self.for_egress(&elsewhere)?),
            (true, false) => (&elsewhere, self.for_unseen()?),
        };
        let rules: BTreeSet<&Kri> = chosen
            .iter()
            .filter_map(|group| match &group.refusal {
                RefusalReason::Everyone(rule) => Some(rule),
                RefusalReason::NoRule | RefusalReason::Itself(_) => None,
            })
            .collect();
        offer.exceptions = rules.into_iter().cloned().collect();
        if !here.is_empty() && !elsewhere.is_empty() {
            offer.notes.push("servers in other zones go on refusing the client".to_owned());
        }
        Ok(offer)
    }

    fn for_inbounds(
        &self,
        groups: &[&RefusingServers<'_, '_>],
    ) -> Result<ProposedPermissions, PermissionObstacle> {
        let places: BTreeSet<targets::InboundId> =
            groups.iter().flat_map(|group| &group.servers).filter_map(|server| place(server)).collect();
        let selectors: Vec<MemberSelector> = self.call.serving.iter().map(|it| it.selector.clone()).collect();
        let labels = of_this_zone();
        let wanted = InboundSelection {
            mesh: self.call.mesh,
            places: &places,
            preferred: Vec::new(),
            selectors: &selectors,
            destinations: self.call.destinations,
            labels: &labels,
            besides: &|place| self.beside(place),
        };
        let choices = Choice::of(&wanted, &PolicySelector::default());
        let served: BTreeSet<&targets::InboundId> =
            choices.iter().flat_map(|choice| &choice.serving).collect();
        if served.len() < places.len() || choices.len() > MAX_PERMISSIONS {
            return Err(PermissionObstacle::NoTargetRef { inbounds: places.len() });
        }
        let mut offer = ProposedPermissions::empty(None);
        let mut names = BTreeSet::new();
        for choice in &choices {
            offer.notes.extend(choice.notes());
            let besides = choice.besides.iter().filter_map(|place| member(self.call.mesh, place));
            offer.besides.extend(besides.filter_map(|(it, inbound)| it.kri(&inbound.section_name())));
            let name = policy_names::free(self.call.mesh, &mut names, &self.name());
            offer.permissions.push(self.permission(&name, &labels, &choice.target, &[]));
        }
        Ok(offer)
    }

    /// An egress tells destinations apart by the server name alone.
    fn for_egress(
        &self,
        groups: &[&RefusingServers<'_, '_>],
    ) -> Result<ProposedPermissions, PermissionObstacle> {
        let servers = groups.iter().flat_map(|group| &group.servers);
        let names: BTreeSet<&String> = servers.filter_map(|server| server.server_names.first()).collect();
        if names.is_empty() {
            return Err(PermissionObstacle::NoServerName);
        }
        let names: Vec<&String> = names.into_iter().collect();
        let name = policy_names::free(self.call.mesh, &mut BTreeSet::new(), &self.name());
        let permission = self.permission(&name, &of_this_zone(), &TargetRef::mesh(), &names);
        Ok(ProposedPermissions { permissions: vec![permission], ..ProposedPermissions::empty(None) })
    }

    /// Servers that are not known here are named by what chooses them.
    fn for_unseen(&self) -> Result<ProposedPermissions, PermissionObstacle> {
        let zone = self.call.serving.iter().find_map(|serving| serving.zone.clone());
        let chosen = self.call.serving.iter().filter(|serving| serving.zone == zone);
        let mut references: Vec<TargetRef> = Vec::new();
        for serving in chosen {
            let Some(reference) = reference(serving) else {
                return Err(PermissionObstacle::UnseenServers { zone });
            };
            if !references.contains(&reference) {
                references.push(reference);
            }
        }
        if references.is_empty() || references.len() > MAX_PERMISSIONS {
            return Err(PermissionObstacle::UnseenServers { zone });
        }
        let labels = if zone.is_none() { of_this_zone() } else { Labels::new() };
        let mut offer = ProposedPermissions::empty(zone.clone());
        let mut names = self.names_elsewhere(&zone);
        for target in references {
            let wanted = InboundSelection {
                mesh: self.call.mesh,
                places: &BTreeSet::new(),
                preferred: Vec::new(),
                selectors: &[],
                destinations: self.call.destinations,
                labels: &labels,
                besides: &|place| self.beside(place),
            };
            let choice = Choice::selecting(&wanted, &PolicySelector::default(), target);
            let choice = choice.ok_or_else(|| PermissionObstacle::UnseenServers { zone: zone.clone() })?;
            offer.notes.extend(choice.notes());
            let besides = choice.besides.iter().filter_map(|place| member(self.call.mesh, place));
            offer.besides.extend(besides.filter_map(|(it, inbound)| it.kri(&inbound.section_name())));
            if zone.is_some() && choice.target.tags.is_some() {
                let note = "it selects these tags in every zone";
                offer.notes.push(note.to_owned());
            }
            let name = policy_names::free(self.call.mesh, &mut names, &self.name());
            offer.permissions.push(self.permission(&name, &labels, &choice.target, &[]));
        }
        Ok(offer)
    }

    /// Returns the names of permissions at the control plane where this one is to be written: those of the
    /// global control plane came from there.
    fn names_elsewhere(&self, zone: &Option<Arc<str>>) -> BTreeSet<String> {
        let policies = self.call.mesh.viewed(Kind::MeshTrafficPermission).filter(|_| zone.is_some());
        policies.map(|policy| policy.resource.display_name().to_owned()).collect()
    }

    /// Judges the consequence of a client's permission that selects another inbound as well.
    fn beside(&self, place: &targets::InboundId) -> SelectionEffect {
        if let Some(known) = self.judged.borrow().get(place) {
            return *known;
        }
        let judged = self.judge(place);
        self.judged.borrow_mut().insert(place.clone(), judged);
        judged
    }

    fn judge(&self, place: &targets::InboundId) -> SelectionEffect {
        let mesh = self.call.mesh;
        let Some((dataplane, inbound)) = member(mesh, place) else { return SelectionEffect::Harmless };
        let own = self.servers.iter().find(|server| self::place(server).as_ref() == Some(place));
        let permissions = || rules::at_inbound(mesh, dataplane, place.1);
        let (requires, server_names) = match own {
            Some(own) => (own.requires.clone(), own.server_names.clone()),
            None => match permissions() {
                Some(permissions) => (Requirement::Permission(permissions.into()), Arc::default()),
                None => return SelectionEffect::Harmless,
            },
        };
        let place = EnforcementPoint::Inbound(dataplane, inbound);
        let server = AskedServer { place, requires, permissive: false, server_names };
        match RefusalReason::of(self.call, &server) {
            None | Some(RefusalReason::Itself(Denial { in_from: false, .. })) => SelectionEffect::Harmless,
            Some(RefusalReason::Itself(Denial { in_from: true, .. })) => SelectionEffect::Forbidden,
            Some(RefusalReason::NoRule | RefusalReason::Everyone(_)) => SelectionEffect::Opened,
        }
    }

    fn name(&self) -> String {
        let who = self.client.as_str().rsplit('/').next().unwrap_or_default();
        policy_names::of_words(&[who, "to", self.call.destination])
    }

    /// A permission for the client, under any server name where none is given.
    fn permission(&self, name: &str, labels: &Labels, target: &TargetRef, server_names: &[&String]) -> Value {
        let spiffe = SpiffeIdMatch { type_: MatchType::Exact, value: self.client.to_string() };
        let matching = |sni: Option<&&String>| Match {
            spiffe_id: Some(spiffe.clone()),
            sni: sni.map(|sni| SniMatch { type_: SniMatchType::Exact, value: (*sni).clone() }),
        };
        let allow = if server_names.is_empty() {
            vec![matching(None)]
        } else {
            server_names.iter().map(|sni| matching(Some(sni))).collect()
        };
        let spec = MeshTrafficPermission {
            target_ref: Some(target.clone()),
            rules: vec![Always { default: RuleConf { allow: Some(allow), ..RuleConf::default() } }],
            from: Vec::new(),
        };
        let key = Key::new(Kind::MeshTrafficPermission, &self.call.mesh.name, name);
        let draft = Draft::new(key, Spec::MeshTrafficPermission(Arc::new(spec)));
        universal::render_draft(&Draft { labels: labels.clone(), ..draft })
    }
}

impl ProposedPermissions {
    fn empty(zone: Option<Arc<str>>) -> ProposedPermissions {
        ProposedPermissions {
            permissions: Vec::new(),
            exceptions: Vec::new(),
            zone,
            besides: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// A federated zone takes only what says that it is the zone's; another one takes it as well.
fn of_this_zone() -> Labels {
    Labels::from([(labels::ORIGIN.to_owned(), labels::ORIGIN_ZONE.to_owned())])
}

fn place(server: &AskedServer<'_>) -> Option<targets::InboundId> {
    let EnforcementPoint::Inbound(dataplane, inbound) = server.place else { return None };
    let at = matching::inbounds(dataplane).iter().position(|it| std::ptr::eq(it, inbound))?;
    Some((dataplane.key.name.clone(), at))
}
