//! The smallest change that would let a client in.
//!
//! Servers of this zone come first, because a permission for them can be written here. What is offered selects all of
//! them that no rule is about, or that deny by default, and says what else it opens.

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

use super::{Call, Place, Requirement, Server, named};
use crate::{
    matching::{self, MemberSelector},
    reachability::{
        policy_names, rules,
        targets::{self, Beside, Choice, InboundSelection, member, reference},
    },
};

/// More permissions than this are not offered for one call.
const MAX_PERMISSIONS: usize = 20;

/// What would let the client in.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// These permissions would.
    Write(Offer),
    /// Rules deny the client itself: changing them would.
    Edit { denials: Vec<Denial> },
    /// A permission would, and none can be written that is for these servers only.
    NotOffered { why: String },
}

/// Permissions to write.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// MeshTrafficPermissions, as they are applied.
    pub permissions: Vec<Value>,
    /// The denies of all clients that nothing else allows, to which the permissions are exceptions.
    pub exceptions: Vec<Kri>,
    /// The zone of the servers, where it is not this one: the permissions are for the global control plane.
    pub zone: Option<Arc<str>>,
    /// Inbounds of other destinations that the permissions open for the client, too.
    pub besides: Vec<Kri>,
    /// What to know before they are applied.
    pub notes: Vec<String>,
}

/// A rule that denies the client itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Denial {
    pub rule: Kri,
    /// Whether it is an entry of `from`, before which any allow in `rules` comes.
    pub in_from: bool,
}

impl Change {
    /// What to do, in words.
    pub fn text(&self) -> String {
        match self {
            Change::Write(offer) => offer.text(),
            Change::Edit { denials } => {
                let sentences: Vec<String> = denials.iter().map(Denial::text).collect();
                sentences.join("; ")
            }
            Change::NotOffered { why } => why.clone(),
        }
    }

    /// The permissions that would have to be written.
    pub fn permissions(&self) -> &[Value] {
        match self {
            Change::Write(offer) => &offer.permissions,
            Change::Edit { .. } | Change::NotOffered { .. } => &[],
        }
    }

    /// The rules that would have to change, or that would get an exception.
    pub fn rules(&self) -> Vec<Kri> {
        match self {
            Change::Write(offer) => offer.exceptions.clone(),
            Change::Edit { denials } => denials.iter().map(|denial| denial.rule.clone()).collect(),
            Change::NotOffered { .. } => Vec::new(),
        }
    }

    /// What to know before a permission is applied.
    pub fn notes(&self) -> &[String] {
        match self {
            Change::Write(offer) => &offer.notes,
            Change::Edit { .. } | Change::NotOffered { .. } => &[],
        }
    }
}

impl Offer {
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
        match in_from {
            true => format!(
                "{rule} denies this client. A MeshTrafficPermission with `rules` would overrule it; none is offered, \
                 because that is for the owner of the policy to decide"
            ),
            false => format!(
                "{rule} denies this client, and no other permission can allow it: the call is allowed when that rule no \
                 longer denies it, which is for the owner of the policy to decide"
            ),
        }
    }
}

fn listed(rules: &[Kri]) -> String {
    rules.iter().map(Kri::to_string).collect::<Vec<_>>().join(", ")
}

/// Why servers refuse.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Refusal {
    /// No rule is about the client.
    NoRule,
    /// This entry of `from` denies everyone.
    Everyone(Kri),
    /// This rule denies the client itself.
    Itself(Denial),
}

impl Refusal {
    /// `None` where the client is let in.
    fn of(call: &Call<'_>, server: &Server<'_>) -> Option<Refusal> {
        let Requirement::Permission(ruleset) = &server.requires else { return None };
        let permissions = call.mesh.reachability.asked(ruleset, call.client.client());
        let (client, decision) = named(&permissions, call.client.client(), &server.server_names);
        if decision.is_allowed() {
            return None;
        }
        let Some(rule) = permissions.rules.iter().find(|rule| rule.client.matches(&client)) else {
            return Some(Refusal::NoRule);
        };
        let itself = |in_from| Refusal::Itself(Denial { rule: rule.origin.clone(), in_from });
        Some(match &rule.client {
            ClientMatch::Anyone if is_in_from(call, server.place, &rule.origin) => {
                Refusal::Everyone(rule.origin.clone())
            }
            // Of what rules say, only `from` is about tags.
            client => itself(matches!(client, ClientMatch::Tags(_))),
        })
    }
}

/// Whether a deny stands in `from`, where allows of other policies come before it.
fn is_in_from(call: &Call<'_>, place: Place<'_>, rule: &Kri) -> bool {
    let policy = rule.without_section();
    let in_from = |candidate: &resources::Resource| {
        let spec = candidate.spec.get::<MeshTrafficPermission>();
        spec.is_some_and(|spec| spec.rules.is_empty())
    };
    let meant = |it: &&Arc<policy::Policy>| it.view.kri == policy;
    let found = match place {
        Place::Inbound(dataplane, _) => call.mesh.candidates(dataplane).find(meant),
        Place::Egress | Place::Unseen => call.mesh.viewed(Kind::MeshTrafficPermission).find(meant),
    };
    found.is_some_and(|policy| in_from(&policy.resource))
}

/// Servers that refuse for one reason.
#[derive(Debug)]
pub(super) struct Refusing<'a, 's> {
    pub servers: Vec<&'s Server<'a>>,
    refusal: Refusal,
}

impl<'a, 's> Refusing<'a, 's> {
    pub fn of(call: &Call<'_>, servers: Vec<&'s Server<'a>>) -> Refusing<'a, 's> {
        let refusal = servers.first().and_then(|server| Refusal::of(call, server));
        Refusing { servers, refusal: refusal.unwrap_or(Refusal::NoRule) }
    }
}

/// `None` where nothing refuses the client, and for one that no permission can name.
pub(super) fn of(call: &Call<'_>, servers: &[Server<'_>], refusing: &[Refusing<'_, '_>]) -> Option<Change> {
    let identities = &call.client.client().spiffe_ids;
    // No permission is about a client without a certificate.
    if refusing.is_empty() || call.client.is_plain() || identities.is_empty() {
        return None;
    }
    let mut denials = BTreeSet::new();
    let mut open: Vec<&Refusing<'_, '_>> = Vec::new();
    for group in refusing {
        match &group.refusal {
            Refusal::Itself(denial) => drop(denials.insert(denial.clone())),
            Refusal::NoRule | Refusal::Everyone(_) => open.push(group),
        }
    }
    if open.is_empty() {
        return Some(Change::Edit { denials: denials.into_iter().collect() });
    }
    // A service may have a name that no path of a SPIFFE id is.
    let named = identities.iter().find(|id| id.as_str().parse::<SpiffeId>().is_ok());
    let Some(client) = named else {
        let why = "no rule is about this client, and no permission can name it by its identity: allow it by its tags";
        return Some(Change::NotOffered { why: why.to_owned() });
    };
    let offering = Offering { call, client, servers, judged: RefCell::default() };
    Some(match offering.for_servers(&open) {
        Ok(mut offer) => {
            offer.notes.extend(denials.iter().map(|denial| {
                format!("{} goes on denying the client at other instances of the destination", denial.rule)
            }));
            Change::Write(offer)
        }
        Err(why) => Change::NotOffered { why },
    })
}

/// Permissions for one client.
struct Offering<'a> {
    call: &'a Call<'a>,
    client: &'a SpiffeId,
    servers: &'a [Server<'a>],
    /// What it means to select other inbounds, each judged once.
    judged: RefCell<BTreeMap<targets::Place, Beside>>,
}

impl Offering<'_> {
    /// The permissions for servers of this zone; for others where there are none. The error says why there are none.
    fn for_servers(&self, open: &[&Refusing<'_, '_>]) -> Result<Offer, String> {
        let has = |group: &Refusing<'_, '_>, is: fn(&Place<'_>) -> bool| {
            group.servers.iter().any(|server| is(&server.place))
        };
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            open.iter().copied().partition(|group| has(group, |place| matches!(place, Place::Inbound(..))));
        let at_egress = elsewhere.iter().any(|group| has(group, |place| matches!(place, Place::Egress)));
        let (chosen, mut offer) = match (here.is_empty(), at_egress) {
            (false, _) => (&here, self.for_inbounds(&here)?),
            (true, true) => (&elsewhere, self.for_egress(&elsewhere)?),
            (true, false) => (&elsewhere, self.for_unseen()?),
        };
        let rules: BTreeSet<&Kri> = chosen
            .iter()
            .filter_map(|group| match &group.refusal {
                Refusal::Everyone(rule) => Some(rule),
                Refusal::NoRule | Refusal::Itself(_) => None,
            })
            .collect();
        offer.exceptions = rules.into_iter().cloned().collect();
        if !here.is_empty() && !elsewhere.is_empty() {
            offer.notes.push("servers in other zones go on refusing the client".to_owned());
        }
        Ok(offer)
    }

    fn for_inbounds(&self, groups: &[&Refusing<'_, '_>]) -> Result<Offer, String> {
        let places: BTreeSet<targets::Place> =
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
        let served: BTreeSet<&targets::Place> = choices.iter().flat_map(|choice| &choice.serving).collect();
        if served.len() < places.len() || choices.len() > MAX_PERMISSIONS {
            return Err(format!(
                "a MeshTrafficPermission for this client would allow the call, and none is offered, because no targetRef \
                 selects the {} inbounds that refuse it without others: give their Dataplanes a label of their own, such \
                 as {}",
                places.len(),
                labels::WORKLOAD
            ));
        }
        let mut offer = Offer::empty(None);
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
    fn for_egress(&self, groups: &[&Refusing<'_, '_>]) -> Result<Offer, String> {
        let servers = groups.iter().flat_map(|group| &group.servers);
        let names: BTreeSet<&String> = servers.filter_map(|server| server.server_names.first()).collect();
        if names.is_empty() {
            return Err("the destination has no server name by which a permission could name it".to_owned());
        }
        let names: Vec<&String> = names.into_iter().collect();
        let name = policy_names::free(self.call.mesh, &mut BTreeSet::new(), &self.name());
        let permission = self.permission(&name, &of_this_zone(), &TargetRef::mesh(), &names);
        Ok(Offer { permissions: vec![permission], ..Offer::empty(None) })
    }

    /// Servers that are not known here are named by what chooses them.
    fn for_unseen(&self) -> Result<Offer, String> {
        let zone = self.call.serving.iter().find_map(|serving| serving.zone.clone());
        let chosen = self.call.serving.iter().filter(|serving| serving.zone == zone);
        let mut references: Vec<TargetRef> = Vec::new();
        for serving in chosen {
            let Some(reference) = reference(serving) else {
                return Err(unnamed(&zone));
            };
            if !references.contains(&reference) {
                references.push(reference);
            }
        }
        if references.is_empty() || references.len() > MAX_PERMISSIONS {
            return Err(unnamed(&zone));
        }
        let labels = if zone.is_none() { of_this_zone() } else { Labels::new() };
        let mut offer = Offer::empty(zone.clone());
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
            let choice = choice.ok_or_else(|| unnamed(&zone))?;
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

    /// What permissions are called where this one is to be written: those of the global control plane came from there.
    fn names_elsewhere(&self, zone: &Option<Arc<str>>) -> BTreeSet<String> {
        let policies = self.call.mesh.viewed(Kind::MeshTrafficPermission).filter(|_| zone.is_some());
        policies.map(|policy| policy.resource.display_name().to_owned()).collect()
    }

    /// What it means that a permission for the client selects an inbound as well.
    fn beside(&self, place: &targets::Place) -> Beside {
        if let Some(known) = self.judged.borrow().get(place) {
            return *known;
        }
        let judged = self.judge(place);
        self.judged.borrow_mut().insert(place.clone(), judged);
        judged
    }

    fn judge(&self, place: &targets::Place) -> Beside {
        let mesh = self.call.mesh;
        let Some((dataplane, inbound)) = member(mesh, place) else { return Beside::Harmless };
        let own = self.servers.iter().find(|server| self::place(server).as_ref() == Some(place));
        let permissions = || rules::at_inbound(mesh, dataplane, place.1);
        let (requires, server_names) = match own {
            Some(own) => (own.requires.clone(), own.server_names.clone()),
            None => match permissions() {
                Some(permissions) => (Requirement::Permission(permissions.into()), Arc::default()),
                None => return Beside::Harmless,
            },
        };
        let place = Place::Inbound(dataplane, inbound);
        let server = Server { place, requires, permissive: false, server_names };
        match Refusal::of(self.call, &server) {
            None | Some(Refusal::Itself(Denial { in_from: false, .. })) => Beside::Harmless,
            Some(Refusal::Itself(Denial { in_from: true, .. })) => Beside::Forbidden,
            Some(Refusal::NoRule | Refusal::Everyone(_)) => Beside::Opened,
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
        let allow = match server_names.is_empty() {
            true => vec![matching(None)],
            false => server_names.iter().map(|sni| matching(Some(sni))).collect(),
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

impl Offer {
    fn empty(zone: Option<Arc<str>>) -> Offer {
        Offer {
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

fn unnamed(zone: &Option<Arc<str>>) -> String {
    let place = match zone {
        Some(zone) => format!("they are in zone {zone:?}"),
        None => "none of them is there yet".to_owned(),
    };
    format!(
        "a MeshTrafficPermission for this client would allow the call, and none is offered, because it is not known here \
         how to select the servers and nothing else: {place}"
    )
}

fn place(server: &Server<'_>) -> Option<targets::Place> {
    let Place::Inbound(dataplane, inbound) = server.place else { return None };
    let at = matching::inbounds(dataplane).iter().position(|it| std::ptr::eq(it, inbound))?;
    Some((dataplane.key.name.clone(), at))
}
