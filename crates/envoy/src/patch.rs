//! Changes that users make to the finished configuration, which no other policy offers: the last of all.
//!
//! ```text
//!   part ──encode──▶ body ──▶ modifications that choose it, in order ──▶ body, the same each time
//!                             one that cannot be made is left out ──▶ finding
//! ```
//!
//! A resource that no modification chooses is the one that all proxies share. The results for others are
//! remembered by the part and by the modifications, so that proxies with the same patches share them.
//!
//! Keys are out of reach: secrets are no part of it, and what a part seals is joined to the outcome.

mod any;
mod canonical;
mod error;
mod json_patch;
mod merge;
mod nested;
mod step;

use std::collections::{BTreeMap, HashSet};

use plan::{Code, Finding, Patches};
use prost_reflect::{DynamicMessage, MapKey, Value};
use resources::{
    Draft, Path, Violations,
    kinds::mesh_proxy_patch::{Change, MeshProxyPatch, Operation},
};
use xds::Type;

use crate::{json, part::origin};
use error::ModificationError;
use nested::Ignored;
use step::{PatchStep, PatchTarget, name_of};

pub(crate) use step::PatchedResource;

/// Key of the metadata where a listener has its tags.
const TAGS: &str = "io.kuma.tags";
/// The number of `EDS` among the ways a cluster finds its endpoints.
const DISCOVERS: i32 = 3;

/// Note about a modification: its number, and the text.
pub(crate) type Note = (usize, Code, String);

/// Result of patching a resource.
pub(crate) struct PatchResult {
    /// `None` for one that was removed.
    pub body: Option<Vec<u8>>,
    /// The resource is unchanged.
    pub same: bool,
    /// The resource is a cluster whose endpoints are asked for by its name.
    pub discovers: bool,
    pub notes: Vec<Note>,
}

/// The modifications of one proxy at work.
pub(crate) struct Patching<'a> {
    pub patches: &'a Patches,
    steps: Vec<PatchStep<'a>>,
    /// Clusters that do not ask for endpoints.
    without_endpoints: HashSet<String>,
    /// Notes about modifications, each with the first resource it was seen at, and the number of others.
    notes: BTreeMap<Note, (String, usize)>,
}

impl<'a> Patching<'a> {
    pub(crate) fn of(patches: &'a Patches) -> Patching<'a> {
        let all = patches.modifications().iter().enumerate();
        let steps = all.filter_map(|(at, modification)| PatchStep::of(at, modification)).collect();
        Patching { patches, steps, without_endpoints: HashSet::new(), notes: BTreeMap::new() }
    }

    /// A modification may change the resource.
    pub(crate) fn chooses(&self, subject: &PatchedResource<'_>) -> bool {
        self.steps.iter().any(|step| step.chooses(subject))
    }

    /// Applies the modifications to the resource.
    pub(crate) fn apply(&self, subject: &PatchedResource<'_>, body: Vec<u8>) -> PatchResult {
        self.apply_from(0, subject, body)
    }

    /// The resources that modifications add, with their kinds and names.
    pub(crate) fn additions(&mut self) -> Vec<(Type, String, Vec<u8>)> {
        let mut all = Vec::new();
        let mut said = Vec::new();
        for (place, step) in self.steps.iter().enumerate().filter(|(_, step)| step.adds()) {
            let (message, ignored) = match step.value() {
                Some(Ok((message, ignored))) => (message, ignored),
                Some(Err(reason)) => {
                    let reason = ModificationError::Value(reason.clone()).to_string();
                    said.push((step.field().to_owned(), (step.at, Code::PatchNotApplied, reason)));
                    continue;
                }
                None => continue,
            };
            let Some((kind, name)) = step.added() else { continue };
            let subject = PatchedResource { kind, origin: origin::PATCH, name: &name, tags: Vec::new() };
            let applied = self.apply_from(place + 1, &subject, canonical::encode(message));
            let ignored = ignored.as_ref().map(|what| (step.at, Code::PatchFieldUnknown, what.clone()));
            said.extend(applied.notes.into_iter().chain(ignored).map(|note| (name.clone(), note)));
            all.extend(applied.body.map(|body| (kind, name, body)));
        }
        said.into_iter().for_each(|(resource, note)| self.note(&resource, [note]));
        all
    }

    fn apply_from(&self, from: usize, subject: &PatchedResource<'_>, body: Vec<u8>) -> PatchResult {
        let mut notes = Vec::new();
        let before = match json::decode(subject.kind.url(), &body) {
            Ok(message) => message,
            Err(error) => {
                let at = self.steps.get(from).map_or(from, |step| step.at);
                notes.push((at, Code::PatchNotApplied, error.to_string()));
                return PatchResult { body: Some(body), same: true, discovers: true, notes };
            }
        };
        let mut message = before.clone();
        for step in self.steps.iter().skip(from) {
            let tags = if subject.kind == Type::Listener { tags_of(&message) } else { BTreeMap::new() };
            let tags = tags.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            if !step.chooses(&PatchedResource { tags, ..subject.clone() }) {
                continue;
            }
            let mut ignored = Ignored::new();
            let mut next = message.clone();
            match change(step, subject, &mut next, &mut ignored) {
                Ok(true) => message = next,
                Ok(false) => return PatchResult { body: None, same: false, discovers: false, notes },
                Err(reason) => notes.push((step.at, Code::PatchNotApplied, reason.to_string())),
            }
            notes.extend(ignored.into_iter().map(|what| (step.at, Code::PatchFieldUnknown, what)));
        }
        let same = message == before;
        let body = if same { body } else { canonical::encode(&message) };
        let discovers = subject.kind == Type::Cluster && discovers(&message);
        PatchResult { body: Some(body), same, discovers, notes }
    }

    /// A cluster that finds its endpoints in another way, or is not there any more, does not ask for them.
    pub(crate) fn forgo_endpoints(&mut self, cluster: &str) {
        self.without_endpoints.insert(cluster.to_owned());
    }

    pub(crate) fn asks_for_endpoints(&self, cluster: &str) -> bool {
        !self.without_endpoints.contains(cluster)
    }

    pub(crate) fn note(&mut self, resource: &str, notes: impl IntoIterator<Item = Note>) {
        for note in notes {
            let seen = self.notes.entry(note).or_insert_with(|| (resource.to_owned(), 0));
            seen.1 += 1;
        }
    }

    /// Reports what cannot be done, once for each modification and reason.
    pub(crate) fn findings(self) -> Vec<Finding> {
        let Patching { patches, steps, notes, .. } = self;
        let finding = |((at, code, reason), (resource, times)): (Note, (String, usize))| {
            let field = steps.iter().find(|step| step.at == at).map_or("modification", PatchStep::field);
            let more = match times {
                1 => String::new(),
                times => format!(" and {} more", times - 1),
            };
            let (policy, place) = patches.origin(at);
            let text = format!("appendModifications[{place}].{field}, on {resource}{more}: {reason}");
            match policy {
                Some(policy) => Finding::about(code, policy.clone(), text),
                None => Finding::new(code, text),
            }
        };
        notes.into_iter().map(finding).collect()
    }
}

/// Makes one change; `false` where the resource is not there afterwards.
fn change(
    step: &PatchStep<'_>,
    subject: &PatchedResource<'_>,
    message: &mut DynamicMessage,
    ignored: &mut Ignored,
) -> Result<bool, ModificationError> {
    if step.added().is_some() {
        // Another one takes its place.
        return Ok(false);
    }
    let value = match step.value() {
        Some(Ok((value, unknown))) => {
            ignored.extend(unknown.clone());
            Some(value)
        }
        Some(Err(reason)) => return Err(ModificationError::Value(reason.clone())),
        None => None,
    };
    match step.what {
        PatchTarget::Cluster(Change { operation: Operation::Remove, .. })
        | PatchTarget::Listener(Change { operation: Operation::Remove, .. }) => return Ok(false),
        PatchTarget::Cluster(change) => {
            nested::patched(message, change.json_patches.as_deref(), value, ignored)?;
        }
        PatchTarget::Listener(change) => {
            nested::patched(message, change.json_patches.as_deref(), value, ignored)?;
        }
        PatchTarget::NetworkFilter(change) => nested::network_filters(message, change, value, ignored)?,
        PatchTarget::HttpFilter(change) => nested::http_filters(message, change, value, ignored)?,
        PatchTarget::VirtualHost(change) => nested::virtual_hosts(message, change, value, ignored)?,
    }
    // It is known by its name, to Envoy and to what refers to it.
    match name_of(message) {
        name if name == subject.name => Ok(true),
        name => Err(ModificationError::Renamed(name)),
    }
}

/// The endpoints of a cluster are asked for by the name of the cluster.
fn discovers(cluster: &DynamicMessage) -> bool {
    let found = cluster.get_field_by_name("type").and_then(|found| found.as_enum_number());
    let config = cluster.get_field_by_name("eds_cluster_config");
    let service = config.as_ref().and_then(|config| config.as_message()?.get_field_by_name("service_name"));
    let renamed = service.is_some_and(|service| service.as_str().is_some_and(|name| !name.is_empty()));
    found == Some(DISCOVERS) && !renamed
}

/// The tags in a listener's metadata.
fn tags_of(listener: &DynamicMessage) -> BTreeMap<String, String> {
    let metadata = listener.get_field_by_name("metadata");
    let by_namespace = metadata.as_ref().and_then(|m| m.as_message()?.get_field_by_name("filter_metadata"));
    let tags = by_namespace.as_ref().and_then(|by| by.as_map()?.get(&MapKey::String(TAGS.to_owned())));
    let fields = tags.and_then(|tags| tags.as_message()?.get_field_by_name("fields"));
    let text = |value: &Value| {
        let text = value.as_message()?.get_field_by_name("string_value")?;
        text.as_str().map(str::to_owned)
    };
    let fields = fields.as_ref().and_then(|fields| fields.as_map());
    let named = |(name, value): (&MapKey, &Value)| Some((name.as_str()?.to_owned(), text(value)?));
    fields.into_iter().flatten().filter_map(named).collect()
}

/// Returns the patches of a plan that cannot be applied, and the parts of them that are ignored.
pub fn findings(plan: &plan::ProxyPlan) -> Vec<Finding> {
    match &plan.own.patches {
        Some(_) => crate::Encoder::default().lower_told(plan).1,
        None => Vec::new(),
    }
}

/// Checks what only Envoy's types tell about a resource that is to be stored: whether the values of a patch are
/// messages of the types they stand for. Fields that a type does not have are reported as warnings.
pub fn check(draft: &Draft, found: &mut Violations, warnings: &mut Vec<String>) {
    let Some(patch) = draft.spec.get::<MeshProxyPatch>() else { return };
    let all = Path::new("spec").field("default").field("appendModifications");
    for (at, modification) in patch.default.append_modifications.iter().flatten().enumerate() {
        let Some(step) = PatchStep::of(at, modification) else { continue };
        let path = all.index(at).field(step.field()).field("value");
        match step.value() {
            // The check of the syntax has reported it.
            Some(Err(_)) if found.iter().any(|violation| violation.field == path.to_string()) => {}
            Some(Err(reason)) => found.add(&path, format!("native Envoy resource is not valid: {reason}")),
            Some(Ok((_, Some(unknown)))) => warnings.push(format!("{path}: {unknown}; it is ignored")),
            Some(Ok((_, None))) | None => {}
        }
    }
}
