//! Permission to call an inbound: MeshTrafficPermission, resolved.
//!
//! Policies speak in two ways about clients, and policies of both sorts may apply to one inbound:
//!
//! * `rules`, by the identity in the certificate: whatever the order of the policies, a deny wins over a
//!   shadow deny, which wins over an allow.
//! * `from`, by tags: entries are ordered by precedence, and the last one that matches decides.
//!
//! Neither sort is dropped where both are there, so that a mesh can move from `from` to `rules` one
//! policy at a time. The list is: denies of `rules`, shadow denies of `rules`, allows of `rules`, then
//! `from` from the highest precedence to the lowest. So clients that `rules` deny are denied, other
//! clients that either sort allows are allowed, and a deny in `from`, often the older "deny by default", holds
//! only for clients that no rule in `rules` is about.
//!
//! Unreadable parts refuse: an unknown action denies, a deny of clients that cannot be distinguished denies
//! all clients, an allow of such clients allows none. Validation keeps unknown actions out of the store;
//! labels in `from` get a warning.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use resources::{
    Resource,
    kinds::{
        dataplane::Inbound,
        entry::Entry,
        mesh_traffic_permission::{Action, Conf, MeshTrafficPermission, RuleConf},
        target_ref::Match,
    },
    naming::{Kri, SpiffeId, SpiffePrefix},
};

use crate::{
    order::Precedence,
    select::PolicySelector,
    view::{self, Policy},
};

mod client;
mod near_miss;

pub use client::{Client, Decision};
pub use near_miss::{NearMiss, near_misses};

/// The answer to "may this client call?" as rules in order of importance: the first that matches decides,
/// and clients that match none are denied.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Permissions {
    pub rules: Vec<Rule>,
}

/// Effect on the clients that match, and the policy that causes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    pub client: ClientMatch,
    pub effect: Effect,
    /// The policy, with section `rule_<index>`.
    pub origin: Kri,
}

/// Set of clients.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientMatch {
    Anyone,
    /// Every one of these tags is in the client's certificate (`kuma.io/service` among them, maybe). The
    /// value `*` stands for any value.
    Tags(BTreeMap<String, String>),
    SpiffeExact(SpiffeId),
    SpiffePrefix(SpiffePrefix),
    /// The server name the client asked for; together with an identity when one is given.
    Sni {
        sni: String,
        spiffe: Option<Box<ClientMatch>>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    Allow,
    Deny,
    /// Let through, but counted as what a deny would have refused.
    AllowWithShadowDeny,
}

/// Work of resolving permissions: proves that it grows with the input and no faster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResolutionWork {
    pub policies: usize,
    /// Comparisons of policies that apply.
    pub comparisons: usize,
    /// Visits to an entry or to a match in it.
    pub entries: usize,
}

/// The permissions of one inbound. `policies` are the MeshTrafficPermissions of the mesh, in any order.
pub fn resolve<'p>(
    policies: impl IntoIterator<Item = &'p Arc<Resource>>,
    dataplane: &Resource,
    inbound: &Inbound,
    selector: &PolicySelector<'_>,
) -> Permissions {
    resolve_counting(policies, dataplane, inbound, selector).0
}

/// As [`resolve`], and how much work it was.
pub fn resolve_counting<'p>(
    policies: impl IntoIterator<Item = &'p Arc<Resource>>,
    dataplane: &Resource,
    inbound: &Inbound,
    selector: &PolicySelector<'_>,
) -> (Permissions, ResolutionWork) {
    let mut work = ResolutionWork::default();
    let mut applying: Vec<_> = policies
        .into_iter()
        .inspect(|_| work.policies += 1)
        .filter(|policy| selector.selects_inbound(policy, dataplane, inbound))
        .filter_map(|policy| {
            let spec = policy.spec.get::<MeshTrafficPermission>()?;
            Some((Precedence::of_policy(policy)?, policy.kri("")?, spec))
        })
        .collect();
    applying.sort_by(|(a, ..), (b, ..)| {
        work.comparisons += 1;
        a.cmp(b)
    });
    let mut lists = Lists::default();
    for (_, policy, spec) in &applying {
        lists.add(policy, spec);
    }
    work.entries = lists.visits;
    let rules = pruned(lists.in_order(), &mut work.entries);
    (Permissions { rules }, work)
}

/// The permissions that policies add up to which all select one inbound. They come lowest precedence first.
pub fn of_selected<'p>(policies: impl IntoIterator<Item = &'p Arc<Policy>>) -> Permissions {
    at_most(policies.into_iter().map(|policy| (policy, true))).permissions
}

/// Upper bound of the clients that an inbound accepts, while it is partly unknown which policies select it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AtMost {
    pub permissions: Permissions,
    /// Number of rules at the front that are denies of `rules`: they hold whatever other policies allow.
    pub denies: usize,
}

/// As [`of_selected`], where only some policies (`true`) surely select the inbound. Denies of the others do not count:
/// a client that may be let in is not refused.
pub fn at_most<'p>(policies: impl IntoIterator<Item = (&'p Arc<Policy>, bool)>) -> AtMost {
    let mut lists = Lists::default();
    for (policy, sure) in policies {
        let of = Lists::of_policy(policy);
        lists.append(if sure { of } else { of.without_denies() });
    }
    let denies = reachable(&lists.deny, &mut 0).iter().filter(|kept| **kept).count();
    AtMost { permissions: Permissions { rules: pruned(lists.in_order(), &mut 0) }, denies }
}

/// The rules of a policy that let clients in, the most important first.
pub fn allowing(policy: &Policy) -> Vec<Rule> {
    Lists::of_policy(policy).without_denies().in_order()
}

/// The permissions of what a proxy leads to under these server names, where it stands for the whole mesh: rules that
/// match one of the names hold for all of them, and no other ones are about it. Clients that match none are allowed by
/// `otherwise`, or denied without it. `policies` come lowest precedence first; `None` where no client is denied.
pub fn behind_names<'p>(
    policies: impl IntoIterator<Item = &'p Arc<Resource>>,
    server_names: &[String],
    otherwise: Option<Kri>,
) -> Option<Permissions> {
    let mut lists = Lists::default();
    for policy in policies {
        let (Some(spec), Some(kri)) = (policy.spec.get::<MeshTrafficPermission>(), policy.kri("")) else {
            continue;
        };
        for (i, rule) in spec.rules.iter().enumerate() {
            lists.add_rule_of_names(&view::origin(&kri, i), &rule.default, server_names);
        }
    }
    let mut rules = lists.in_order();
    if rules.is_empty() && otherwise.is_some() {
        return None;
    }
    rules.extend(otherwise.map(|origin| Rule { client: ClientMatch::Anyone, effect: Effect::Allow, origin }));
    Some(Permissions { rules: pruned(rules, &mut 0) })
}

/// Rules by what they are, each list in the order of the policies.
#[derive(Default)]
struct Lists {
    deny: Vec<Rule>,
    shadow: Vec<Rule>,
    allow: Vec<Rule>,
    from: Vec<Rule>,
    visits: usize,
}

impl Lists {
    fn of_policy(policy: &Policy) -> Lists {
        let mut lists = Lists::default();
        let spec = policy.resource.spec.get::<MeshTrafficPermission>();
        if let (Some(spec), Some(kri)) = (spec, policy.resource.kri("")) {
            lists.add(&kri, spec);
        }
        lists
    }

    /// Adds those of a policy of higher precedence.
    fn append(&mut self, of: Lists) {
        self.deny.extend(of.deny);
        self.shadow.extend(of.shadow);
        self.allow.extend(of.allow);
        self.from.extend(of.from);
        self.visits += of.visits;
    }

    fn without_denies(mut self) -> Lists {
        self.deny.clear();
        self.from.retain(|rule| rule.effect != Effect::Deny);
        self
    }

    fn add(&mut self, policy: &Kri, spec: &MeshTrafficPermission) {
        for (i, rule) in spec.rules.iter().enumerate() {
            self.add_rule(&view::origin(policy, i), &rule.default);
        }
        for (i, entry) in spec.from.iter().enumerate() {
            self.visits += 1;
            let effect = effect(entry);
            self.from.extend(rule(
                ClientMatch::of_target(&entry.target_ref),
                effect,
                view::origin(policy, i),
            ));
        }
    }

    fn add_rule(&mut self, origin: &Kri, conf: &RuleConf) {
        self.add_matches(origin, conf, |client| Some(ClientMatch::of(client)));
    }

    /// Only calls that match one of the names; which client calls is still to be decided.
    fn add_rule_of_names(&mut self, origin: &Kri, conf: &RuleConf, names: &[String]) {
        self.add_matches(origin, conf, |client| {
            let asked = &client.sni.as_ref()?.value;
            let named = names.iter().any(|name| name.eq_ignore_ascii_case(asked));
            let who = || match &client.spiffe_id {
                None => Some(ClientMatch::Anyone),
                Some(_) => ClientMatch::of(&Match { sni: None, ..client.clone() }),
            };
            named.then(who)
        });
    }

    /// `told` returns the client that a match means; `None` where the match is about something else.
    fn add_matches(
        &mut self,
        origin: &Kri,
        conf: &RuleConf,
        told: impl Fn(&Match) -> Option<Option<ClientMatch>>,
    ) {
        let lists = [
            (&conf.deny, Effect::Deny, &mut self.deny),
            (&conf.allow_with_shadow_deny, Effect::AllowWithShadowDeny, &mut self.shadow),
            (&conf.allow, Effect::Allow, &mut self.allow),
        ];
        for (matches, effect, list) in lists {
            let matches = matches.as_deref().unwrap_or_default();
            self.visits += matches.len();
            let about = matches.iter().filter_map(&told);
            list.extend(about.filter_map(|client| rule(client, effect, origin.clone())));
        }
    }

    fn in_order(self) -> Vec<Rule> {
        let Lists { deny, shadow, allow, from, .. } = self;
        deny.into_iter().chain(shadow).chain(allow).chain(from.into_iter().rev()).collect()
    }
}

/// `client` is `None` for clients that cannot be distinguished.
fn rule(client: Option<ClientMatch>, effect: Effect, origin: Kri) -> Option<Rule> {
    let client = match effect {
        Effect::Deny => client.unwrap_or(ClientMatch::Anyone),
        Effect::Allow | Effect::AllowWithShadowDeny => client?,
    };
    Some(Rule { client, effect, origin })
}

fn effect(entry: &Entry<Conf>) -> Effect {
    match entry.default.action {
        Some(Action::Allow) => Effect::Allow,
        Some(Action::AllowWithShadowDeny) => Effect::AllowWithShadowDeny,
        Some(Action::Deny | Action::Other(_)) | None => Effect::Deny,
    }
}

/// Without the rules that can never decide: the fewer rules a proxy has, the less it does per connection.
fn pruned(rules: Vec<Rule>, visits: &mut usize) -> Vec<Rule> {
    let kept = reachable(&rules, visits);
    rules.into_iter().zip(kept).filter(|(_, kept)| *kept).map(|(rule, _)| rule).collect()
}

/// Marks the rules that may decide, because no rule before them matches the same clients; ends after the
/// first rule that matches every client.
fn reachable(rules: &[Rule], visits: &mut usize) -> Vec<bool> {
    let mut seen = HashSet::new();
    let mut kept = Vec::with_capacity(rules.len());
    for rule in rules {
        *visits += 1;
        kept.push(seen.insert(&rule.client));
        if rule.client == ClientMatch::Anyone {
            break;
        }
    }
    kept
}
