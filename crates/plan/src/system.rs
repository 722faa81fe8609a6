//! Parts of a proxy that do not depend on services: passthrough and its own admin interface.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use resources::{
    kinds::{dataplane::IpFamilyMode, mesh::Mesh},
    naming::{Direction, IpVersion},
};

use crate::{
    Admin, AdminTarget, Finding, NamingScheme, OwnContext, Passthrough, ProxyTraits, ServerTls, ip_of,
    passthrough::{self, AllowedPassthrough},
    port_of,
};

const REDIRECT_INBOUND: u32 = 15006;
const REDIRECT_OUTBOUND: u32 = 15001;

pub(crate) fn passthrough(context: &OwnContext<'_>, findings: &mut Vec<Finding>) -> Vec<Passthrough> {
    let exits = passthrough::exits(context, findings);
    let Some(redirect) = context.redirect() else { return Vec::new() };
    let or = |port: u32, default: u32| if port == 0 { default } else { port };
    let directions = [
        (Direction::Outbound, or(redirect.redirect_port_outbound, REDIRECT_OUTBOUND)),
        (Direction::Inbound, or(redirect.redirect_port_inbound, REDIRECT_INBOUND)),
    ];
    let v6 = context.traits.ipv6 && redirect.ip_family_mode != IpFamilyMode::IPv4;
    let versions = [
        Some((IpVersion::V4, IpAddr::V4(Ipv4Addr::UNSPECIFIED))),
        v6.then_some((IpVersion::V6, IpAddr::V6(Ipv6Addr::UNSPECIFIED))),
    ];
    let lets_out = match &exits {
        Some(exits) => matches!(exits, AllowedPassthrough::All),
        None => context.mesh.is_none_or(Mesh::passthrough),
    };
    let lets_in = lets_in(context);
    let mut planned = Vec::new();
    for (direction, port) in directions {
        let Some(port) = port_of(port, "transparentProxying", findings) else { continue };
        for (version, address) in versions.into_iter().flatten() {
            let allowed = match direction {
                Direction::Inbound => lets_in,
                Direction::Outbound => lets_out,
            };
            let ways = match &exits {
                Some(AllowedPassthrough::Matched(ways)) if direction == Direction::Outbound => {
                    passthrough::of_version(ways, address)
                }
                _ => Arc::default(),
            };
            planned.push(Passthrough {
                names: context.names.passthrough(version, direction),
                address,
                port,
                direction,
                allowed,
                ways,
                reuse_port: (direction == Direction::Inbound).then_some(context.traits.reuse_port),
                logs: match direction {
                    Direction::Outbound => context.logs.of_passthrough(),
                    Direction::Inbound => Vec::new(),
                },
            });
        }
    }
    planned
}

/// Redirected traffic reaches ports without an inbound, where clients need no certificate and no permission.
/// It does while clients need no certificate at any inbound, and at a gateway, which takes clients of its
/// own.
fn lets_in(context: &OwnContext<'_>) -> bool {
    let inbounds = &context.networking.inbound;
    let is_strict = |tls: ServerTls| matches!(tls, ServerTls::Strict | ServerTls::Closed);
    let asks = || {
        if inbounds.is_empty() {
            is_strict(context.effective.server_tls_by_default())
        } else {
            inbounds.iter().any(|inbound| is_strict(context.effective.server_tls(inbound)))
        }
    };
    context.networking.gateway.is_some() || !context.traits.strict_inbound_ports || !asks()
}

/// `address` is that of the proxy.
pub(crate) fn admin(
    address: &str,
    names: NamingScheme,
    traits: &ProxyTraits,
    findings: &mut Vec<Finding>,
) -> Option<Admin> {
    if traits.admin_port == 0 {
        return None;
    }
    let address = ip_of(address, "networking", findings)?;
    // Two listeners cannot have one address: Envoy's own interface is there already, for
    // programs on the proxy's machine.
    if traits.admin_target == AdminTarget::Port(address, traits.admin_port) {
        return None;
    }
    Some(Admin {
        names: names.admin(),
        address,
        port: traits.admin_port,
        target: traits.admin_target.clone(),
        readiness_port: traits.readiness_port,
        readiness_address: traits.readiness_address,
        reuse_port: traits.reuse_port,
        ipv6: traits.ipv6,
        tls: None,
    })
}
