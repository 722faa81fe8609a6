//! `apply --set NAME --prune`: resources that belong together, and what is no longer among them.
//!
//! A label says which set a resource is in. Nothing without that label is ever pruned, so a selector that is too wide,
//! or a wrong mesh, cannot delete what other people made.

use std::collections::BTreeSet;

use resources::{Key, Kind, format::kubernetes::SYSTEM_NAMESPACE, labels, naming::dns};
use serde_json::Value;

use super::plan::Planned;
use crate::{
    client::{Client, query_value},
    delete,
    failure::{Failure, Result},
    pages, parallel,
    target::Target,
    terminal,
    types::Type,
};

/// The label that names the set of a resource.
const LABEL: &str = "kumactl.kuma.io/set";

/// What is in the set on the control plane and no longer in the input.
#[derive(Debug, Default)]
pub struct Stale {
    pub keys: Vec<Key>,
    /// What is left alone although it has the label, and why.
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
pub fn join(planned: &mut [Planned], set: &str) {
    planned.iter_mut().for_each(|resource| resource.label_with(LABEL, set));
}

/// Refuses to take resources from another set, which would prune them next.
pub fn check_owners(planned: &[Planned], set: &str, client: &Client) -> Result<()> {
    let owners = parallel::map(planned, |resource| {
        let stored: Value = serde_json::from_str(&client.get(&resource.path())?.body).unwrap_or_default();
        Ok(stored["labels"][LABEL].as_str().filter(|owner| *owner != set).map(str::to_owned))
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
pub fn stale(planned: &[Planned], set: &str, client: &Client) -> Result<Stale> {
    let wanted: BTreeSet<&Key> = planned.iter().map(|resource| &resource.draft.key).collect();
    let filter = format!("&{}={}", query_value(&format!("filter[labels.{LABEL}]")), query_value(set));
    let kinds = writable(client)?;
    let found = parallel::map(&kinds, |kind| members(*kind, &filter, client))?;
    let is_global = mode(client).as_deref() == Some("global");
    let mut stale = Stale::default();
    for (key, resource) in found.into_iter().flatten().filter(|(key, _)| !wanted.contains(key)) {
        match why_kept(&resource["labels"], set, is_global) {
            None => stale.keys.push(key),
            Some(why) => stale.kept.push(format!("{key} is not pruned: {why}")),
        }
    }
    // What is in a mesh would be gone with it.
    stale.keys.sort_by_key(|key| key.kind == Kind::Mesh);
    Ok(stale)
}

/// Deletes; gives what was deleted and the failures.
pub fn prune(keys: Vec<Key>, client: &Client) -> (Vec<Key>, Vec<String>) {
    let (mut pruned, mut failures) = (Vec::new(), Vec::new());
    for key in keys {
        match delete::delete(&Target::from(&key), client) {
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
fn writable(client: &Client) -> Result<Vec<Kind>> {
    let answer = client.get("/_resources")?.json("could not list the types of resources")?;
    let served = answer["resources"].as_array().into_iter().flatten();
    let known = served.filter_map(|served| Kind::by_name(served["name"].as_str()?));
    Ok(known.filter(|kind| !kind.descriptor().read_only && !kind.descriptor().path.is_empty()).collect())
}

/// The resources of a kind that are in the set.
fn members(kind: Kind, filter: &str, client: &Client) -> Result<Vec<(Key, Value)>> {
    let found = match pages::all(client, &Type::of_kind(kind).collection(None), filter) {
        Ok(found) => found.items,
        // Who may not read secrets has not put any into the set.
        Err(failure) if kind.descriptor().administered.covers_reads() => {
            terminal::warn(&format!("no {kind} is pruned: {failure}"));
            Vec::new()
        }
        Err(failure) => return Err(failure),
    };
    let text = |item: &Value, field: &str| item[field].as_str().unwrap_or_default().to_owned();
    let keyed = |item: Value| (Key::new(kind, &text(&item, "mesh"), &text(&item, "name")), item);
    Ok(found.into_iter().map(keyed).collect())
}

/// Whether this is a global control plane or one of a zone, for those who may know.
fn mode(client: &Client) -> Option<String> {
    let config = client.get("/config").ok()?.json("").ok()?;
    config["mode"].as_str().map(str::to_owned)
}

/// Why something with the label is not to be deleted here.
fn why_kept(stored: &Value, set: &str, is_global: bool) -> Option<&'static str> {
    let label = |name: &str| stored[name].as_str();
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
