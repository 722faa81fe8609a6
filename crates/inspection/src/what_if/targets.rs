//! Configuration that proxies have, and that they would have.

use std::{
    collections::{BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    net::IpAddr,
    sync::Arc,
};

use contract::what_if::WhatIfResourceAction;
use plan::{
    Calls, Class, Finding, OwnPlan, SharedPlan,
    budget::{Budget, Spent},
};
use serving::push::{Hypothetical, Push, Watcher, planned};
use topology::{AllMeshes, MeshSnapshot};
use xds::{Encoded, Layer, Target, Type};

/// A resource that would be another one.
#[derive(Debug, Clone)]
pub struct Difference {
    pub kind: Type,
    pub name: Arc<str>,
    pub before: Option<Arc<Encoded>>,
    pub after: Option<Arc<Encoded>>,
}

impl Difference {
    pub fn action(&self) -> WhatIfResourceAction {
        match (&self.before, &self.after) {
            (None, _) => WhatIfResourceAction::Added,
            (_, None) => WhatIfResourceAction::Removed,
            _ => WhatIfResourceAction::Changed,
        }
    }

    /// Bytes that a response carries for it, before and after.
    pub fn sizes(&self) -> (usize, usize) {
        let size = |resource: &Option<Arc<Encoded>>| resource.as_ref().map_or(0, |resource| resource.size());
        (size(&self.before), size(&self.after))
    }
}

/// Difference for one proxy.
#[derive(Debug, Clone, Default)]
pub struct ProxyDifference {
    pub own: Vec<Difference>,
    /// Problems with resources that it would ask for and could not have, and does not ask for now.
    pub findings: Vec<Finding>,
    /// Of what it has in common with others.
    shared: Arc<ClassDifference>,
    /// Names that are the proxy's own, whatever others have by that name.
    hidden: BTreeSet<(Type, Arc<str>)>,
}

/// Difference for all proxies of a class.
#[derive(Debug, Default)]
struct ClassDifference {
    differences: Vec<Difference>,
    /// A hash of them.
    id: u64,
}

impl ClassDifference {
    fn between(before: &Layer, after: &Layer) -> ClassDifference {
        let all = Type::ALL.into_iter().flat_map(|kind| differences(before, after, kind));
        let differences: Vec<Difference> = all.collect();
        let mut hasher = DefaultHasher::new();
        for Difference { kind, name, before, after } in &differences {
            let version = |of: &Option<Arc<Encoded>>| of.as_ref().map(|resource| resource.version);
            (kind, name, version(before), version(after)).hash(&mut hasher);
        }
        ClassDifference { differences, id: hasher.finish() }
    }
}

impl ProxyDifference {
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
    before: ChangeSide<'a>,
    after: ChangeSide<'a>,
    /// Configuration of a proxy that nothing is planned for.
    nothing: PlannedTarget,
    /// By the layers of both sides, which are kept, so that an address stays theirs.
    shared: HashMap<(usize, usize), Arc<ClassDifference>>,
    /// One of its own: looking must not change what is counted and remembered for proxies.
    encoder: envoy::Encoder,
}

/// One side of a change.
struct ChangeSide<'a> {
    state: &'a AllMeshes,
    classes: HashMap<Class, ClassConfig>,
    budget: &'a Budget,
}

/// Configuration of a proxy on one side of a change.
#[derive(Clone, Default)]
struct PlannedTarget {
    target: Target,
    findings: BTreeSet<Finding>,
}

/// Configuration shared by a class of proxies.
#[derive(Clone)]
struct ClassConfig {
    layer: Arc<Layer>,
    findings: Arc<[Finding]>,
    addresses: Arc<BTreeSet<(IpAddr, u16)>>,
    part: envoy::ClassPart,
}

impl<'a> Targets<'a> {
    pub fn new(push: &'a Push, would: &'a Hypothetical, budget: &'a Budget) -> Targets<'a> {
        let side = |state| ChangeSide { state, classes: HashMap::new(), budget };
        Targets {
            push,
            before: side(&would.before),
            after: side(&would.after),
            nothing: PlannedTarget::default(),
            shared: HashMap::new(),
            encoder: envoy::Encoder::default(),
        }
    }

    /// Compares a proxy before and after the change. One without a mesh or a Dataplane has nothing; it keeps what it
    /// has when these go, so nothing changes for it then.
    pub fn compare(&mut self, watcher: &Watcher) -> Result<ProxyDifference, Spent> {
        let after = self.after.target(self.push, &self.encoder, watcher)?;
        let Some(PlannedTarget { target: after, findings }) = after else {
            return Ok(ProxyDifference::default());
        };
        let before = self.before.target(self.push, &self.encoder, watcher)?;
        let before = before.unwrap_or_else(|| self.nothing.clone());
        let findings = findings.difference(&before.findings).cloned().collect();
        let before = before.target;
        let mut compared = ProxyDifference { findings, ..ProxyDifference::default() };
        for kind in Type::ALL {
            let own = before.own.iter(kind).chain(after.own.iter(kind));
            let names: BTreeSet<Arc<str>> = own.map(|resource| resource.name.clone()).collect();
            for name in names {
                let old = before.of(kind).get(&name).cloned();
                let new = after.of(kind).get(&name).cloned();
                compared.hidden.insert((kind, name.clone()));
                if old != new {
                    compared.own.push(Difference { kind, name, before: old, after: new });
                }
            }
        }
        let layers = (address(&before.shared), address(&after.shared));
        let shared = self.shared.entry(layers);
        let shared =
            shared.or_insert_with(|| Arc::new(ClassDifference::between(&before.shared, &after.shared)));
        compared.shared = shared.clone();
        Ok(compared)
    }
}

impl ChangeSide<'_> {
    /// As [`serving::push::Connected::compute`], on this side of the change.
    fn target(
        &mut self,
        push: &Push,
        encoder: &envoy::Encoder,
        watcher: &Watcher,
    ) -> Result<Option<PlannedTarget>, Spent> {
        let Some(mesh) = self.state.mesh(&watcher.traits.mesh).cloned() else { return Ok(None) };
        let dataplane = mesh.dataplanes.get(&watcher.traits.name);
        self.budget.spend(1 + dataplane.map_or(0, |dataplane| mesh.candidates(dataplane).count()))?;
        let Ok((own, mut class, _)) = planned(&mesh, &watcher.traits, Calls::of) else { return Ok(None) };
        let mut own = OwnPlan::Sidecar(Box::new(own));
        push.give_admin_tls(watcher, own.admin_mut());
        let answers_at = own.addresses();
        loop {
            let offered = self.offered(&mesh, &class, encoder)?;
            let clash = answers_at.iter().filter(|address| offered.addresses.contains(address));
            let clash: Vec<_> = clash.copied().collect();
            if clash.is_empty() {
                let (mut resources, unpatched) = encoder.own(&own);
                if let Some(joint) = own.joint() {
                    encoder.put_joint(&mut resources, &joint, &offered.part);
                }
                let encoded = Type::ALL.into_iter().flat_map(|kind| resources.iter(kind));
                self.budget.spend(encoded.map(|resource| steps_of(resource)).sum())?;
                let target = Target { own: resources, shared: offered.layer };
                let findings =
                    own.findings().iter().chain(&unpatched).chain(&*offered.findings).cloned().collect();
                return Ok(Some(PlannedTarget { target, findings }));
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
        let addresses = Arc::new(plan.addresses().collect());
        let plan = SharedPlan::Sidecar(Box::new(plan));
        let (layer, unpatched) = encoder.shared(&plan);
        let encoded = Type::ALL.into_iter().flat_map(|kind| layer.of(kind));
        self.budget.spend(encoded.map(|resource| steps_of(resource)).sum())?;
        let part = envoy::ClassPart::of(&plan);
        let findings = plan.findings().iter().cloned().chain(unpatched).collect();
        let offered = ClassConfig { layer: Arc::new(layer), addresses, findings, part };
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

/// Resources of a type that are in only one of two layers, or in both with other content, by name.
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
