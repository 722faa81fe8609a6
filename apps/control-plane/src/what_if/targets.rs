//! What proxies have, and what they would have.

use std::{
    collections::{BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    net::IpAddr,
    sync::Arc,
};

use api::inspect::what_if::ResourceAction;
use plan::{
    Calls, Class,
    budget::{Budget, Spent},
    problem::Problem,
};
use topology::{MeshSnapshot, State};
use xds::{Encoded, Layer, Target, Type};

use crate::push::{Hypothetical, Push, Watcher, planned};

/// A resource that would be another one.
#[derive(Debug, Clone)]
pub struct Difference {
    pub kind: Type,
    pub name: Arc<str>,
    pub before: Option<Arc<Encoded>>,
    pub after: Option<Arc<Encoded>>,
}

impl Difference {
    pub fn action(&self) -> ResourceAction {
        match (&self.before, &self.after) {
            (None, _) => ResourceAction::Added,
            (_, None) => ResourceAction::Removed,
            _ => ResourceAction::Changed,
        }
    }

    /// How many bytes a response carries for it, before and after.
    pub fn sizes(&self) -> (usize, usize) {
        let size = |resource: &Option<Arc<Encoded>>| resource.as_ref().map_or(0, |resource| resource.size());
        (size(&self.before), size(&self.after))
    }
}

/// What would change for one proxy.
#[derive(Debug, Clone, Default)]
pub struct Compared {
    pub own: Vec<Difference>,
    /// What it would ask for and could not have, and does not ask for now.
    pub problems: Vec<Problem>,
    /// Of what it has in common with others.
    shared: Arc<Shared>,
    /// Names that are the proxy's own, whatever others have by that name.
    hidden: BTreeSet<(Type, Arc<str>)>,
}

/// What would change for all proxies of a class.
#[derive(Debug, Default)]
struct Shared {
    differences: Vec<Difference>,
    /// A hash of them.
    id: u64,
}

impl Shared {
    fn between(before: &Layer, after: &Layer) -> Shared {
        let all = Type::ALL.into_iter().flat_map(|kind| differences(before, after, kind));
        let differences: Vec<Difference> = all.collect();
        let mut hasher = DefaultHasher::new();
        for Difference { kind, name, before, after } in &differences {
            let version = |of: &Option<Arc<Encoded>>| of.as_ref().map(|resource| resource.version);
            (kind, name, version(before), version(after)).hash(&mut hasher);
        }
        Shared { differences, id: hasher.finish() }
    }
}

impl Compared {
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Difference> {
        let seen =
            |difference: &&Difference| !self.hidden.contains(&(difference.kind, difference.name.clone()));
        self.own.iter().chain(self.shared.differences.iter().filter(seen))
    }

    /// The same for proxies of whose shared resources the same change.
    pub fn shared_id(&self) -> u64 {
        self.shared.id
    }
}

/// Computes configurations on both sides of a change.
pub struct Targets<'a> {
    push: &'a Push,
    before: Side<'a>,
    after: Side<'a>,
    /// What a proxy has that nothing is planned for.
    nothing: Has,
    /// By the layers of both sides, which are kept, so that an address stays theirs.
    shared: HashMap<(usize, usize), Arc<Shared>>,
    /// One of its own: looking must not change what is counted and remembered for proxies.
    encoder: envoy::Encoder,
}

/// One side of a change.
struct Side<'a> {
    state: &'a State,
    classes: HashMap<Class, ClassConfig>,
    budget: &'a Budget,
}

/// What a proxy has on one side of a change.
#[derive(Clone, Default)]
struct Has {
    target: Target,
    problems: BTreeSet<Problem>,
}

/// What a class of proxies offers.
#[derive(Clone)]
struct ClassConfig {
    layer: Arc<Layer>,
    problems: Arc<[Problem]>,
    addresses: Arc<BTreeSet<(IpAddr, u16)>>,
    documents: Option<envoy::Documents>,
}

impl<'a> Targets<'a> {
    pub fn new(push: &'a Push, would: &'a Hypothetical, budget: &'a Budget) -> Targets<'a> {
        let side = |state| Side { state, classes: HashMap::new(), budget };
        Targets {
            push,
            before: side(&would.before),
            after: side(&would.after),
            nothing: Has::default(),
            shared: HashMap::new(),
            encoder: envoy::Encoder::default(),
        }
    }

    /// What would change for a proxy. One without a mesh or a Dataplane has nothing; it keeps what it has when these
    /// go, so nothing changes for it then.
    pub fn compare(&mut self, watcher: &Watcher) -> Result<Compared, Spent> {
        let after = self.after.target(self.push, &self.encoder, watcher)?;
        let Some(Has { target: after, problems }) = after else { return Ok(Compared::default()) };
        let before = self.before.target(self.push, &self.encoder, watcher)?;
        let before = before.unwrap_or_else(|| self.nothing.clone());
        let problems = problems.difference(&before.problems).cloned().collect();
        let (before, mut compared) = (before.target, Compared { problems, ..Compared::default() });
        for kind in Type::ALL {
            let own = before.own.iter(kind).chain(after.own.iter(kind));
            let names: BTreeSet<Arc<str>> = own.map(|resource| resource.name.clone()).collect();
            for name in names {
                let (old, new) = (before.of(kind).get(&name).cloned(), after.of(kind).get(&name).cloned());
                compared.hidden.insert((kind, name.clone()));
                if old != new {
                    compared.own.push(Difference { kind, name, before: old, after: new });
                }
            }
        }
        let layers = (address(&before.shared), address(&after.shared));
        let shared = self.shared.entry(layers);
        let shared = shared.or_insert_with(|| Arc::new(Shared::between(&before.shared, &after.shared)));
        compared.shared = shared.clone();
        Ok(compared)
    }
}

impl Side<'_> {
    /// As [`crate::push::Connected::compute`], on this side of the change.
    fn target(
        &mut self,
        push: &Push,
        encoder: &envoy::Encoder,
        watcher: &Watcher,
    ) -> Result<Option<Has>, Spent> {
        let Some(mesh) = self.state.mesh(&watcher.traits.mesh).cloned() else { return Ok(None) };
        let dataplane = mesh.dataplanes.get(&watcher.traits.name);
        self.budget.spend(1 + dataplane.map_or(0, |dataplane| mesh.candidates(dataplane).count()))?;
        let Ok((mut own, mut class, _)) = planned(&mesh, &watcher.traits, Calls::of) else { return Ok(None) };
        push.give_admin_tls(watcher, own.admin.as_mut());
        let answers_at: Vec<(IpAddr, u16)> =
            own.inbounds.iter().map(|inbound| (inbound.address, inbound.port)).collect();
        loop {
            let offered = self.offered(&mesh, &class, encoder)?;
            let clash = answers_at.iter().filter(|address| offered.addresses.contains(address));
            let clash: Vec<_> = clash.copied().collect();
            if clash.is_empty() {
                let (mut resources, unpatched) = encoder.lower_own(&own);
                encoder.put_documents(&mut resources, own.agent.as_ref(), offered.documents.as_ref());
                let encoded = Type::ALL.into_iter().flat_map(|kind| resources.iter(kind));
                self.budget.spend(encoded.map(|resource| steps_of(resource)).sum())?;
                let target = Target { own: resources, shared: offered.layer };
                let problems =
                    own.problems.iter().chain(&unpatched).chain(&*offered.problems).cloned().collect();
                return Ok(Some(Has { target, problems }));
            }
            class.taken.extend(clash);
        }
    }

    fn offered(
        &mut self,
        mesh: &MeshSnapshot,
        class: &Class,
        encoder: &envoy::Encoder,
    ) -> Result<ClassConfig, Spent> {
        if let Some(offered) = self.classes.get(class) {
            return Ok(offered.clone());
        }
        let plan = plan::outgoing(mesh, class);
        let (layer, unpatched) = encoder.lower_outgoing(&plan);
        let encoded = Type::ALL.into_iter().flat_map(|kind| layer.of(kind));
        self.budget.spend(encoded.map(|resource| steps_of(resource)).sum())?;
        let addresses = Arc::new(plan.addresses().collect());
        let documents = plan.records.as_ref().map(envoy::Documents::of);
        let problems = plan.problems.into_iter().chain(unpatched).collect();
        let offered = ClassConfig { layer: Arc::new(layer), addresses, problems, documents };
        self.classes.insert(class.clone(), offered.clone());
        Ok(offered)
    }
}

/// A resource that is planned is a step, and so is every half kilobyte of it, because it is kept for the answer.
fn steps_of(resource: &Encoded) -> usize {
    1 + resource.size() / 512
}

fn address(layer: &Arc<Layer>) -> usize {
    Arc::as_ptr(layer).addr()
}

/// What of a type is in only one of two layers, or in both with other content, by name.
fn differences(before: &Layer, after: &Layer, kind: Type) -> Vec<Difference> {
    let difference = |name: &Arc<str>, before: Option<&Arc<Encoded>>, after: Option<&Arc<Encoded>>| {
        Difference { kind, name: name.clone(), before: before.cloned(), after: after.cloned() }
    };
    let mut found = Vec::new();
    for old in before.of(kind) {
        let new = after.get(kind, &old.name);
        if new != Some(old) {
            found.push(difference(&old.name, Some(old), new));
        }
    }
    let fresh = after.of(kind).filter(|new| before.get(kind, &new.name).is_none());
    found.extend(fresh.map(|new| difference(&new.name, None, Some(new))));
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}
