//! Modifications inside of a listener: filters, and the routes that some of them hold.

use prost_reflect::{DynamicMessage, ReflectMessage, Value};
use resources::kinds::mesh_proxy_patch::{Change, FilterMatch, JsonPatch, Operation, VirtualHostMatch};

use super::{any, canonical, error::ModificationError, json_patch, merge::merge, step::name_of};
use crate::json;

const HTTP: &str = "envoy.filters.network.http_connection_manager";
const CONFIG: &str = "typed_config";

/// Parts of a modification that were ignored.
pub(super) type Ignored = Vec<String>;

/// Changes the network filters of every chain.
pub(super) fn network_filters(
    listener: &mut DynamicMessage,
    change: &Change<FilterMatch>,
    value: Option<&DynamicMessage>,
    ignored: &mut Ignored,
) -> Result<(), ModificationError> {
    each(listener, "filter_chains", &mut |chain| match list(chain, "filters") {
        Some(filters) => in_list(filters, change, value, ignored),
        None => Ok(()),
    })
}

/// Changes the HTTP filters of every chain that has some.
pub(super) fn http_filters(
    listener: &mut DynamicMessage,
    change: &Change<FilterMatch>,
    value: Option<&DynamicMessage>,
    ignored: &mut Ignored,
) -> Result<(), ModificationError> {
    each_manager(listener, &mut |manager| match list(manager, "http_filters") {
        Some(filters) => in_list(filters, change, value, ignored),
        None => Ok(()),
    })
}

/// Changes the virtual hosts of every route configuration.
pub(super) fn virtual_hosts(
    listener: &mut DynamicMessage,
    change: &Change<VirtualHostMatch>,
    value: Option<&DynamicMessage>,
    ignored: &mut Ignored,
) -> Result<(), ModificationError> {
    let given = change.match_.as_ref();
    let in_routes = given.and_then(|given| given.route_configuration_name.as_ref());
    let named = given.and_then(|given| given.name.as_ref());
    let chosen = |host: &Value| named.is_none_or(|name| is_named(host, name));
    each_manager(listener, &mut |manager| {
        if !manager.has_field_by_name("route_config") {
            return Ok(());
        }
        let routes = manager.get_field_by_name_mut("route_config").and_then(Value::as_message_mut);
        let Some(routes) = routes else { return Ok(()) };
        if in_routes.is_some_and(|name| name_of(routes) != *name) {
            return Ok(());
        }
        let Some(hosts) = list(routes, "virtual_hosts") else { return Ok(()) };
        match change.operation {
            Operation::Add => hosts.extend(value.cloned().map(Value::Message)),
            Operation::Remove => hosts.retain(|host| !chosen(host)),
            _ => {
                for host in hosts.iter_mut().filter(|host| chosen(host)).filter_map(Value::as_message_mut) {
                    patched(host, change.json_patches.as_deref(), value, ignored)?;
                }
            }
        }
        Ok(())
    })
}

/// A message with the steps of a JSON patch, or with another message over it.
pub(super) fn patched(
    message: &mut DynamicMessage,
    steps: Option<&[JsonPatch]>,
    value: Option<&DynamicMessage>,
    ignored: &mut Ignored,
) -> Result<(), ModificationError> {
    let steps = steps.unwrap_or_default();
    if steps.is_empty() {
        value.iter().for_each(|value| merge(message, value));
        return Ok(());
    }
    let mut shown = json::show(message)?;
    json_patch::apply(&mut shown, steps)?;
    let (next, unknown) = json::read(message.descriptor().full_name(), &shown)?;
    ignored.extend(unknown);
    *message = next;
    Ok(())
}

/// Changes the filters of a list.
fn in_list(
    filters: &mut Vec<Value>,
    change: &Change<FilterMatch>,
    value: Option<&DynamicMessage>,
    ignored: &mut Ignored,
) -> Result<(), ModificationError> {
    let named = change.match_.as_ref().and_then(|given| given.name.as_ref());
    let chosen = |filter: &Value| named.is_none_or(|name| is_named(filter, name));
    let beside = |filters: &[Value]| filters.iter().position(|f| named.is_some() && chosen(f));
    let added = value.cloned().map(Value::Message);
    match change.operation {
        Operation::AddFirst => drop(filters.splice(0..0, added)),
        Operation::AddLast => filters.extend(added),
        Operation::AddBefore => {
            if let Some(at) = beside(filters) {
                drop(filters.splice(at..at, added));
            }
        }
        Operation::AddAfter => {
            if let Some(at) = beside(filters) {
                drop(filters.splice(at + 1..at + 1, added));
            }
        }
        Operation::Remove => filters.retain(|filter| !chosen(filter)),
        _ => {
            for filter in filters.iter_mut().filter(|filter| chosen(filter)).filter_map(Value::as_message_mut)
            {
                patch_config(filter, change.json_patches.as_deref(), value, ignored)?;
            }
        }
    }
    Ok(())
}

/// A patch of a filter is one of what is configured in it.
fn patch_config(
    filter: &mut DynamicMessage,
    steps: Option<&[JsonPatch]>,
    value: Option<&DynamicMessage>,
    ignored: &mut Ignored,
) -> Result<(), ModificationError> {
    let given = value.filter(|value| value.has_field_by_name(CONFIG));
    let given = given.and_then(|value| value.get_field_by_name(CONFIG)?.as_message().cloned());
    if steps.is_none_or(<[JsonPatch]>::is_empty) && given.is_none() {
        return Ok(());
    }
    let filter_name = name_of(filter);
    if !filter.has_field_by_name(CONFIG) {
        if let Some(given) = given {
            filter.set_field_by_name(CONFIG, Value::Message(given));
        }
        return Ok(());
    }
    let config = filter.get_field_by_name_mut(CONFIG).and_then(Value::as_message_mut);
    let config = config.ok_or_else(|| ModificationError::NoConfiguration { filter: filter_name.clone() })?;
    if let Some(given) = &given
        && any::type_url(given) != any::type_url(config)
    {
        let is = any::type_url(config);
        let given = any::type_url(given);
        return Err(ModificationError::OtherType { filter: filter_name, is, given });
    }
    let unknown = || ModificationError::UnknownType { filter: filter_name };
    let mut content = any::content(config).ok_or_else(unknown)?;
    let given = given.and_then(|given| any::content(&given));
    patched(&mut content, steps, given.as_ref(), ignored)?;
    any::replace(config, canonical::encode(&content));
    Ok(())
}

/// Does something to every HTTP connection manager of a listener.
fn each_manager(
    listener: &mut DynamicMessage,
    change: &mut dyn FnMut(&mut DynamicMessage) -> Result<(), ModificationError>,
) -> Result<(), ModificationError> {
    each(listener, "filter_chains", &mut |chain| {
        each(chain, "filters", &mut |filter| {
            if name_of(filter) != HTTP || !filter.has_field_by_name(CONFIG) {
                return Ok(());
            }
            let config = filter.get_field_by_name_mut(CONFIG).and_then(Value::as_message_mut);
            let Some(config) = config else { return Ok(()) };
            let Some(before) = any::content(config) else { return Ok(()) };
            let mut manager = before.clone();
            change(&mut manager)?;
            if manager != before {
                any::replace(config, canonical::encode(&manager));
            }
            Ok(())
        })
    })
}

fn each(
    message: &mut DynamicMessage,
    field: &str,
    change: &mut dyn FnMut(&mut DynamicMessage) -> Result<(), ModificationError>,
) -> Result<(), ModificationError> {
    let items = list(message, field).into_iter().flatten().filter_map(Value::as_message_mut);
    items.into_iter().try_for_each(change)
}

fn list<'a>(message: &'a mut DynamicMessage, field: &str) -> Option<&'a mut Vec<Value>> {
    message.get_field_by_name_mut(field).and_then(Value::as_list_mut)
}

fn is_named(message: &Value, name: &str) -> bool {
    message.as_message().is_some_and(|message| name_of(message) == name)
}
