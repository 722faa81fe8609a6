//! Proxies that serve a zone.

use resources::{Key, Kind, Spec};
use topology::MeshSnapshot;

use crate::{Admin, Error, Names, Problem, ProxyTraits, system};

/// Everything a proxy must do that serves a zone. What crosses zones through it comes with the zones; its own
/// interface it has in common with every proxy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ZoneProxy {
    pub admin: Option<Admin>,
    pub problems: Vec<Problem>,
}

pub(crate) fn plan(snapshot: &MeshSnapshot, traits: &ProxyTraits, kind: Kind) -> Result<ZoneProxy, Error> {
    let stored = snapshot.globals.get(&Key::global(kind, &traits.name));
    let address = stored.and_then(|stored| match &stored.spec {
        Spec::ZoneIngress(spec) => spec.networking.as_ref().map(|networking| &networking.address),
        Spec::ZoneEgress(spec) => spec.networking.as_ref().map(|networking| &networking.address),
        _ => None,
    });
    let address = address.ok_or_else(|| Error::NoZoneProxy { kind, name: traits.name.clone() })?;
    let mut problems = Vec::new();
    let names = Names::chosen(traits.unified_naming);
    Ok(ZoneProxy { admin: system::admin(address, names, traits, &mut problems), problems })
}
