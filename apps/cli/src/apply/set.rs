//! `apply --set NAME --prune`: resources that belong together, and what is no longer among them.
//!
//! A label says which set a resource is in. Nothing without that label is ever pruned, so a selector that is too wide,
//! or a wrong mesh, cannot delete what other people made.

use std::collections::BTreeSet;

use contract::{lenient::read_partly, resource::Metadata};
use resources::{Key, Kind, Labels, format::kubernetes::SYSTEM_NAMESPACE, labels, naming::dns};
use serde_json::Value;

use super::plan::PlannedResource;
use crate::{
    client::{ApiClient, query_value},
    delete,
    failure::{Failure, Result},
    pages, parallel,
    target::NamedResource,
    terminal,
    types::Type,
};

/// The label that names the set of a resource.
const LABEL: &str = "kumactl.kuma.io/set";

/// Resources that are in the set on the control plane and no longer in the input.
#[derive(Debug, Default)]
pub struct StaleResources {
    pub keys: Vec<Key>,
    /// Resources that are left alone although they have the label, and why.
    pub kept: Vec<String>,
}

/// Reads the name of a set, which has to be the value of a label.
pub fn parse(name: &str) -> std::result::Result<String, String> {
    match dns::label_value_errors(name).into_iter().next() {
        Some(wrong) => Err(wrong),
        None if name.is_empty() => Err("cannot be empty".to_owned()),
        None => Ok(name.to_owned()),
    }
}

/// Puts everything into the set.
pub fn join(planned: &mut [PlannedResource], set: &str) {
    planned.iter_mut().for_each(|resource| resource.label_with(LABEL, set));
}

/// Refuses to take resources from another set, which would prune them next.
pub fn check_owners(planned: &[PlannedResource], set: &str, client: &ApiClient) -> Result<()> {
    let owners = parallel::map(planned, |resource| {
        let stored: Value = serde_json::from_str(&client.get(&resource.path())?.body).unwrap_or_default();
        let mut stored: Metadata = read_partly(&stored);
        Ok(stored.labels.remove(LABEL).filter(|owner| owner != set))
    })?;
    let taken: Vec<String> = planned
        .iter()
        .zip(owners)
        .filter_map(|(resource, owner)| Some(format!("{} is in set {:?}", resource.label(), owner?)))
        .collect();
    if taken.is_empty() {
        return Ok(());
    }
    let hint =
        "a resource belongs to one set: apply it without --set to remove it from its set, or name that set";
    Err(Failure::invalid(format!("nothing was sent\n{}\nhint: {hint}", taken.join("\n"))))
}

/// Finds what to prune.
pub fn stale(planned: &[PlannedResource], set: &str, client: &ApiClient) -> Result<StaleResources> {
    let wanted: BTreeSet<&Key> = planned.iter().map(|resource| &resource.draft.key).collect();
    let filter = format!("&{}={}", query_value(&format!("filter[labels.{LABEL}]")), query_value(set));
    let kinds = writable(client)?;
    let found = parallel::map(&kinds, |kind| members(*kind, &filter, client))?;
    let is_global = is_global(client);
    let mut stale = StaleResources::default();
    for (key, labels) in found.into_iter().flatten().filter(|(key, _)| !wanted.contains(key)) {
        match why_kept(&labels, set, is_global) {
            None => stale.keys.push(key),
            Some(why) => stale.kept.push(format!("{key} is not pruned: {why}")),
        }
    }
    // What is in a mesh would be gone with it.
    stale.keys.sort_by_key(|key| key.kind == Kind::Mesh);
    Ok(stale)
}

/// Deletes; gives what was deleted and the failures.
pub fn prune(keys: Vec<Key>, client: &ApiClient) -> (Vec<Key>, Vec<String>) {
    let mut pruned = Vec::new();
    let mut failures = Vec::new();
    for key in keys {
        match delete::delete(&NamedResource::from(&key), client) {
            Ok(_) => {
                terminal::talk(&format!("{key} pruned"));
                pruned.push(key);
            }
            Err(failure) => failures.push(failure.to_string()),
        }
    }
    (pruned, failures)
}

/// The kinds that users write and the control plane serves.
fn writable(client: &ApiClient) -> Result<Vec<Kind>> {
    let served = client.resource_types()?.read("could not list the types of resources")?;
    let known = served.resources.iter().filter_map(|served| Kind::by_name(&served.name));
    Ok(known.filter(|kind| !kind.descriptor().read_only && !kind.descriptor().path.is_empty()).collect())
}

/// The resources of a kind that are in the set, with their labels.
fn members(kind: Kind, filter: &str, client: &ApiClient) -> Result<Vec<(Key, Labels)>> {
    let found = match pages::all(client, &Type::of_kind(kind).collection(None), filter) {
        Ok(found) => found.items,
        // Who may not read secrets has not put any into the set.
        Err(failure) if kind.descriptor().administered.covers_reads() => {
            terminal::warn(&format!("no {kind} is pruned: {failure}"));
            Vec::new()
        }
        Err(failure) => return Err(failure),
    };
    let read = found.iter().map(read_partly::<Metadata>);
    Ok(read.map(|item| (Key::new(kind, &item.mesh, &item.name), item.labels)).collect())
}

/// True for a global control plane, for users who may know.
fn is_global(client: &ApiClient) -> bool {
    let configuration = client.configuration().and_then(|reply| reply.read("reading its mode"));
    configuration.is_ok_and(|configuration| configuration.mode == "global")
}

/// Reason why something with the label is not to be deleted here.
fn why_kept(stored: &Labels, set: &str, is_global: bool) -> Option<&'static str> {
    let label = |name: &str| stored.get(name).map(String::as_str);
    if label(LABEL) != Some(set) {
        // An older control plane may not filter.
        return Some("it is not in the set");
    }
    if label(labels::MANAGED_BY).is_some() {
        return Some("a control plane generates it");
    }
    match label(labels::ORIGIN) {
        Some(labels::ORIGIN_GLOBAL) if !is_global => {
            return Some("it comes from the global control plane; prune it there");
        }
        Some(labels::ORIGIN_ZONE) if is_global => return Some("it comes from a zone; prune it there"),
        _ => {}
    }
    let is_system = label(labels::POLICY_ROLE) == Some("system")
        || label(labels::K8S_NAMESPACE) == Some(SYSTEM_NAMESPACE);
    is_system.then_some("it belongs to the system; delete it by name")
}
