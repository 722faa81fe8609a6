//! Which destinations a client may call at all: the permissions of servers, seen from their clients.
//!
//! ```text
//!   MeshTrafficPermissions ──▶ rules of each inbound ──▶ Row of each destination ──▶ destinations of each class
//!   Dataplanes (as servers)     (who may call it)         (any inbound lets in)       Dataplanes (as clients)
//! ```
//!
//! A [`ClientClass`] is what a server can know of a client: its certificate, if it has one. A [`Row`] says which classes a destination
//! lets in: most have no rule that names them and are treated by default. Rows and classes are listed under what rules
//! name ([`names`]), so that either side finds the other without looking at all of them, and no table of pairs is kept.
//! Rows follow changes (`state::reach`); a property test compares them with a state built at once.
//!
//! Invariant: what is allowed is reachable. Of servers that are not known here, such as those of other zones and of
//! services without instances, policies that may select them count with what they allow ([`unseen`]). Where servers ask
//! no one, the destination is reachable for every client and has no row.

pub mod explain;
pub mod graph;
mod mode;
mod names;
mod near_misses;
mod policy_names;
mod row;
mod rules;
pub mod suggest;
mod targets;
mod unseen;

use std::{
    cmp::Ordering,
    collections::BTreeSet,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use imbl::{OrdMap, OrdSet};
use policy::Client;
use resources::Resource;

use crate::{
    DestinationId, Identities, MeshSnapshot, Trusts, identities,
    lists::{add_to, remove_from},
};
use names::Name;

pub use mode::{Inactive, Mode, ModeSource, Trimming, label_of_zone};
pub use near_misses::near_misses;
pub use row::Row;
pub use row::Rules;
pub(crate) use rules::{PolicyLists, RulesetCache, distinct, of_inbounds};
pub(crate) use unseen::Unseen;

/// What a server can know of a client: whether it has a certificate, and what is in it. Cheap to clone and to compare.
#[derive(Clone)]
pub struct ClientClass(Arc<(u64, bool, Client)>);

impl ClientClass {
    /// The class of a proxy.
    pub fn of(mesh: &MeshSnapshot, dataplane: &Resource) -> ClientClass {
        let certified = mesh.mtls.is_some();
        ClientClass::in_mesh(certified, &mesh.identities, &mesh.trusts, &mesh.zone, dataplane)
    }

    /// `certified` says whether the mesh gives proxies a certificate that have no identity.
    pub(crate) fn in_mesh(
        certified: bool,
        identities: &Identities,
        trusts: &Trusts,
        zone: &str,
        dataplane: &Resource,
    ) -> ClientClass {
        match identities::given(identities, trusts, zone, dataplane) {
            Some((_, id)) => ClientClass::from(Client::with_spiffe_id(id)),
            None => ClientClass::new(!certified, Client::of_dataplane(dataplane)),
        }
    }

    fn new(plain: bool, client: Client) -> ClientClass {
        let mut hasher = DefaultHasher::new();
        (plain, &client).hash(&mut hasher);
        ClientClass(Arc::new((hasher.finish(), plain, client)))
    }

    /// What is in the certificate; for a client without one, what a certificate of the mesh would say.
    pub fn client(&self) -> &Client {
        &self.0.2
    }

    /// Whether the client has no certificate: it calls without TLS, and no permission is about it.
    pub fn is_plain(&self) -> bool {
        self.0.1
    }
}

impl From<Client> for ClientClass {
    fn from(client: Client) -> ClientClass {
        ClientClass::new(false, client)
    }
}

impl PartialEq for ClientClass {
    fn eq(&self, other: &ClientClass) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for ClientClass {}

impl PartialOrd for ClientClass {
    fn partial_cmp(&self, other: &ClientClass) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ClientClass {
    /// By hash, which decides nearly always, and then by content.
    fn cmp(&self, other: &ClientClass) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl Hash for ClientClass {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.0.hash(state);
    }
}

impl fmt::Debug for ClientClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client().fmt(f)
    }
}

/// Who may call what in a mesh. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Reachability {
    rows: OrdMap<DestinationId, Row>,
    /// The destinations that let in clients that no rule names, those without a row among them.
    open: OrdSet<DestinationId>,
    /// Who has each row.
    members: OrdMap<Row, OrdSet<DestinationId>>,
    /// The rows by what their rules name.
    naming: OrdMap<Name, OrdSet<Row>>,
    /// The classes, and how many Dataplanes are of each.
    classes: OrdMap<ClientClass, usize>,
    /// The classes by what rules may name of them.
    named: OrdMap<Name, OrdSet<ClientClass>>,
    /// The classes without a certificate.
    plain: OrdSet<ClientClass>,
}

/// What a changed row means to clients.
#[derive(Debug, Default)]
pub(crate) struct RowChange {
    /// The classes for which it is different.
    pub classes: Vec<ClientClass>,
    /// Whether it is different for clients that no rule names, or for too many to say which.
    pub default: bool,
    /// Whether anything about it is different.
    pub any: bool,
}

/// A row that names more classes than this is different for all.
const MOST_CLASSES: usize = 1000;

impl Reachability {
    /// Whether a client may call a destination; `true` where that cannot be decided here.
    pub fn reaches(&self, client: &ClientClass, to: &DestinationId) -> bool {
        self.rows.get(to).is_none_or(|row| row.allows(client))
    }

    /// The destinations that a client may call.
    pub fn destinations(&self, client: &ClientClass) -> BTreeSet<&DestinationId> {
        if client.is_plain() {
            return self.open.iter().chain(self.rows.keys()).collect();
        }
        let mut denied: Vec<&OrdSet<DestinationId>> = Vec::new();
        let mut allowed: Vec<&OrdSet<DestinationId>> = Vec::new();
        for row in self.rows_naming(client) {
            match (row.default, row.allows(client)) {
                (true, false) => denied.extend(self.members.get(row)),
                (false, true) => allowed.extend(self.members.get(row)),
                (true, true) | (false, false) => {}
            }
        }
        let mut reachable: BTreeSet<&DestinationId> = self.open.iter().collect();
        for id in denied.into_iter().flatten() {
            reachable.remove(id);
        }
        reachable.extend(allowed.into_iter().flatten());
        reachable
    }

    /// What decides about a destination; `None` where it is reachable for every client.
    pub fn row(&self, to: &DestinationId) -> Option<&Row> {
        self.rows.get(to)
    }

    /// The classes that a row treats otherwise than by default.
    pub fn exceptions(&self, row: &Row) -> BTreeSet<&ClientClass> {
        let classes = self.classes_named(row).chain(&self.plain);
        classes.filter(|class| row.allows(class) != row.default).collect()
    }

    /// The classes of clients, and how many Dataplanes are of each.
    pub fn classes(&self) -> impl Iterator<Item = (&ClientClass, usize)> {
        self.classes.iter().map(|(class, count)| (class, *count))
    }

    /// The class as it is kept, if it is: Dataplanes of one class share it.
    pub(crate) fn shared(&self, class: ClientClass) -> ClientClass {
        let known = self.classes.range(class.clone()..=class.clone()).next();
        known.map_or(class, |(known, _)| known.clone())
    }

    /// Counts a Dataplane in.
    pub(crate) fn count_up(&mut self, class: &ClientClass) {
        let count = self.classes.entry(class.clone()).or_default();
        *count += 1;
        if *count == 1 {
            for name in names::of_client(class.client()) {
                add_to(&mut self.named, name, class.clone());
            }
            if class.is_plain() {
                self.plain.insert(class.clone());
            }
        }
    }

    /// Counts a Dataplane out.
    pub(crate) fn count_down(&mut self, class: &ClientClass) {
        let Some(count) = self.classes.get_mut(class) else { return };
        *count -= 1;
        if *count == 0 {
            self.classes.remove(class);
            self.plain.remove(class);
            for name in names::of_client(class.client()) {
                remove_from(&mut self.named, &name, class);
            }
        }
    }

    /// Takes in the row of a destination that is there; says what is different.
    pub(crate) fn replace(&mut self, id: &DestinationId, row: Option<Row>) -> RowChange {
        let old = self.rows.get(id).cloned();
        let known = old.is_some() || self.open.contains(id);
        if known && old == row {
            return RowChange::default();
        }
        let is_open = |row: Option<&Row>| row.is_none_or(|row| row.default);
        let change = self.difference(known.then_some(old.as_ref()), Some(row.as_ref()));
        if let Some(old) = &old {
            self.unlist(id, old);
        }
        match is_open(row.as_ref()) {
            true => self.open.insert(id.clone()),
            false => self.open.remove(id),
        };
        match row {
            Some(row) => self.list(id, row),
            None => drop(self.rows.remove(id)),
        }
        change
    }

    /// Forgets a destination that is gone; says what is different.
    pub(crate) fn remove(&mut self, id: &DestinationId) -> RowChange {
        let old = self.rows.remove(id);
        if old.is_none() && !self.open.contains(id) {
            return RowChange::default();
        }
        let change = self.difference(Some(old.as_ref()), None);
        self.open.remove(id);
        if let Some(old) = &old {
            self.unlist(id, old);
        }
        change
    }

    /// What is different between two rows of a destination; there is none where the destination is not there.
    fn difference(&self, old: Option<Option<&Row>>, new: Option<Option<&Row>>) -> RowChange {
        let default = |row: Option<Option<&Row>>| row.is_some_and(|row| row.is_none_or(|row| row.default));
        let allows = |row: Option<Option<&Row>>, class: &ClientClass| {
            row.is_some_and(|row| row.is_none_or(|row| row.allows(class)))
        };
        let mut change = RowChange { default: default(old) != default(new), any: true, classes: Vec::new() };
        if change.default {
            return change;
        }
        let named = || [old, new].into_iter().flatten().flatten().flat_map(|row| self.classes_named(row));
        if named().nth(MOST_CLASSES).is_some() {
            change.default = true;
            return change;
        }
        let named: BTreeSet<&ClientClass> = named().collect();
        let different = named.into_iter().filter(|class| allows(old, class) != allows(new, class));
        change.classes = different.cloned().collect();
        change
    }

    fn list(&mut self, id: &DestinationId, row: Row) {
        if !self.members.contains_key(&row) {
            for name in row.names() {
                add_to(&mut self.naming, name, row.clone());
            }
        }
        add_to(&mut self.members, row.clone(), id.clone());
        self.rows.insert(id.clone(), row);
    }

    fn unlist(&mut self, id: &DestinationId, row: &Row) {
        remove_from(&mut self.members, row, id);
        if !self.members.contains_key(row) {
            for name in row.names() {
                remove_from(&mut self.naming, &name, row);
            }
        }
    }

    /// The classes that a rule of the row names; some of them more than once.
    fn classes_named<'a>(&'a self, row: &Row) -> impl Iterator<Item = &'a ClientClass> + use<'a> {
        let names: Vec<Name> = row.names().into_iter().collect();
        names.into_iter().flat_map(move |name| names::found(&self.named, &name)).flatten()
    }

    /// The rows of which a rule names the client.
    fn rows_naming(&self, client: &ClientClass) -> BTreeSet<&Row> {
        let names = names::of_client(client.client()).into_iter();
        let prefixes = names::prefixes_of(client.client());
        names.chain(prefixes).filter_map(|name| self.naming.get(&name)).flatten().collect()
    }
}

impl PartialEq for Reachability {
    /// Everything else is made of these.
    fn eq(&self, other: &Reachability) -> bool {
        self.rows == other.rows && self.open == other.open && self.classes == other.classes
    }
}
