//! Parts of a zone ingress or egress, read off the plans that its configuration is made from.

use std::{collections::BTreeMap, sync::Arc};

use api::InspectError;
use contract::layout::{
    ProxyResourceStats, ProxyResources, ZoneProxyLayout, ZoneProxyLayoutDestination, ZoneProxyLayoutListener,
};
use plan::{
    FilterChain, NamingScheme, ProxyTraits, ZoneBackend, ZoneClass, ZoneListener, ZonePlan, ZoneProxy,
    ZoneProxyKind, address_stats, is_http, merged,
};
use resources::{
    Key, Kind, Resource,
    naming::{Kri, choice},
};
use synchronisation::views::ComputedView;
use topology::{DestinationId, MeshSnapshot};

use super::StoredProxies;

impl StoredProxies {
    /// The layout of a zone ingress or egress, connected or not.
    pub(super) async fn layout_of_zone_proxy(&self, proxy: &Key) -> Result<ZoneProxyLayout, InspectError> {
        if let Some(seen) = self.seen_from_zone::<ZoneProxyLayout>(proxy, ComputedView::ZoneLayout).await? {
            return self.own_zone_layout(proxy, seen);
        }
        let snapshot = self.snapshot()?;
        self.caught_up().await?;
        let kind = match proxy.kind {
            Kind::ZoneIngress => ZoneProxyKind::Ingress,
            Kind::ZoneEgress => ZoneProxyKind::Egress,
            _ => return Err(InspectError::Unsupported(format!("{proxy} is no zone proxy"))),
        };
        let stored = snapshot.get(proxy).ok_or_else(|| InspectError::Missing(proxy.clone()))?.clone();
        let push = self.push.clone();
        let traits = self.last_known(&snapshot, proxy);
        self.computed(move || {
            let layout = of(&stored, kind, push.zone(), &traits, &push.all_meshes());
            layout.map_err(|error| InspectError::Unsupported(error.to_string()))
        })
        .await
    }
}

/// The layout of the proxy that `stored` describes.
fn of(
    stored: &Resource,
    kind: ZoneProxyKind,
    zone: &str,
    traits: &ProxyTraits,
    meshes: &[Arc<MeshSnapshot>],
) -> Result<ZoneProxyLayout, plan::Error> {
    let own = ZoneProxy::plan(stored, zone, traits)?;
    let class = ZoneClass::of(kind, stored, traits);
    let plans: Vec<(&MeshSnapshot, ZonePlan)> =
        meshes.iter().map(|mesh| (&**mesh, class.plan(mesh))).collect();
    let listener = own.listener.as_ref().map(listener);
    let chains = merged(plans.iter().flat_map(|(_, plan)| &plan.filter_chains));
    let by_cluster: BTreeMap<&str, &FilterChain> =
        chains.iter().map(|chain| (chain.cluster.as_str(), chain)).collect();
    let named = listener.clone().unwrap_or_default();
    let of_mesh = |(mesh, plan): &(&MeshSnapshot, ZonePlan)| -> Vec<ZoneProxyLayoutDestination> {
        let lead_there =
            plan.backends.iter().filter_map(|backend| Some((backend, *by_cluster.get(&*backend.cluster)?)));
        lead_there.map(|(backend, chain)| destination(mesh, backend, chain, &named)).collect()
    };
    let mut destinations: Vec<_> = plans.iter().flat_map(of_mesh).collect();
    destinations.sort_by(|a, b| {
        let place = |it: &ZoneProxyLayoutDestination| {
            (it.mesh.clone(), it.kri.clone(), it.proxy_resource_name.clone())
        };
        place(a).cmp(&place(b))
    });
    let findings = own.findings.iter().chain(plans.iter().flat_map(|(_, plan)| &plan.findings));
    Ok(ZoneProxyLayout {
        kri: stored.kri("").map(|kri| kri.to_string()).unwrap_or_default(),
        labels: stored.labels.clone(),
        naming: choice::scheme(NamingScheme::choice_of_zone_proxy(stored, traits).unified).into(),
        listener,
        destinations,
        problems: findings.map(ToString::to_string).collect(),
    })
}

fn listener(listener: &ZoneListener) -> ZoneProxyLayoutListener {
    let ZoneListener { names, address, port, .. } = listener;
    ZoneProxyLayoutListener {
        address: address.to_string(),
        port: *port,
        proxy_resource_name: names.listener.clone(),
        stats: names.listener_stats.clone().unwrap_or_else(|| address_stats(*address, *port)),
    }
}

fn destination(
    mesh: &MeshSnapshot,
    backend: &ZoneBackend,
    chain: &FilterChain,
    listener: &ZoneProxyLayoutListener,
) -> ZoneProxyLayoutDestination {
    let ZoneBackend { destination, cluster, cluster_stats, protocol, .. } = backend;
    let kri = match destination {
        DestinationId::Port(kri) => Kri::to_string(kri),
        DestinationId::Tags(_) => String::new(),
    };
    let ends_here = chain.tls.as_ref();
    let routed = ends_here.filter(|termination| is_http(termination.protocol));
    let limited = ends_here.filter(|termination| termination.permissions.is_some());
    ZoneProxyLayoutDestination {
        mesh: mesh.name.to_string(),
        kri,
        protocol: protocol.word().into(),
        server_names: chain.server_names.clone(),
        proxy_resource_name: cluster.clone(),
        proxy_resources: ProxyResources {
            listener: listener.proxy_resource_name.clone(),
            cluster: cluster.clone(),
            route_configuration: routed.map(|termination| termination.name.clone()),
            virtual_host: routed.map(|termination| termination.name.clone()),
            stats: ProxyResourceStats {
                listener: listener.stats.clone(),
                cluster: cluster_stats.as_ref().unwrap_or(cluster).clone(),
                filter: chain.stats.clone(),
                permissions: limited.map(|_| chain.stats.clone()),
            },
        },
    }
}
