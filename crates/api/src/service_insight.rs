//! Service insights: stored as one resource per mesh, shown as one per service.

use std::collections::HashMap;

use axum::response::Response;
use bytes::Bytes;
use contract::insight::ServiceInsightEntry;
use resources::{
    Key, Kind, Resource, Status,
    kinds::{
        mesh::{Mesh, MeshServicesMode},
        mesh_insight::DataplaneStat,
        mesh_service::MeshService,
        service_insight::{self, Service, ServiceInsight, ServiceType},
        tags::Tags,
        virtual_outbound::{Rendering, VirtualOutbound},
    },
    labels,
    naming::service_hosts::ServiceHosts,
};
use serde_json::Value;
use store::Snapshot;

use crate::{
    Error,
    call::{Call, with_revision},
    json,
    list::{ListItem, Paging, in_scope, origin},
    resource::RETRIEVE,
};

/// Stored insight of one service.
struct OfService<'a> {
    stored: &'a Resource,
    name: &'a str,
    service: &'a Service,
}

impl ListItem for OfService<'_> {
    fn named(&self) -> (&str, &str) {
        (self.stored.mesh(), self.name)
    }
}

/// `GET /service-insights`, `GET /meshes/{mesh}/service-insights`.
pub fn list(call: &Call) -> Result<Response, Error> {
    let snapshot = call.snapshot()?;
    let mesh = call.mesh(&snapshot)?;
    let wanted = wanted_types(call)?;
    let paging = Paging::read(call)?;
    let part = call.query("name").unwrap_or_default();
    let question = question(call, &snapshot, mesh);
    let answers = &call.context.gates.answers;
    if let Some(kept) = answers.get(&question) {
        return Ok(with_revision(json::encoded(kept), &snapshot));
    }
    let stored = in_scope(&snapshot, Kind::ServiceInsight, mesh);
    let services = stored.flat_map(|stored| {
        let insight = stored.spec.get::<ServiceInsight>().into_iter();
        let services = insight.flat_map(|insight| &insight.services);
        services.map(move |(name, service)| OfService { stored, name, service })
    });
    let found = services.filter(|one| {
        one.name.contains(part) && (wanted.is_empty() || wanted.contains(&one.service.service_type))
    });
    let hostnames = Hostnames::of(call, &snapshot, mesh);
    let listing = paging.cut(call, found, |one| render(one, &hostnames));
    let failed = |error: serde_json::Error| Error::Internal { title: RETRIEVE, cause: error.to_string() };
    let answer = Bytes::from(json::pretty(&listing).map_err(failed)?);
    answers.keep(question, answer.clone());
    Ok(with_revision(json::encoded(answer), &snapshot))
}

/// Identifies an answer: the request, the address of the next page, and the versions it is about.
fn question(call: &Call, snapshot: &Snapshot, mesh: Option<&str>) -> String {
    let mut question = format!("{} {}", origin(call), call.parts.uri);
    for stored in in_scope(snapshot, Kind::ServiceInsight, mesh) {
        // The version of one that was deleted and made again starts anew; the times do not.
        question += &format!(" {}@{} {} {}", stored.mesh(), stored.version, stored.created, stored.modified);
        match mode(snapshot, stored.mesh()) {
            MeshServicesMode::Disabled => {}
            // Hostnames are in the MeshServices.
            _ => question += &format!(" {}", snapshot.revision()),
        }
    }
    for policy in in_scope(snapshot, Kind::VirtualOutbound, mesh) {
        let Resource { key, version, created, modified, .. } = &**policy;
        question += &format!(" {}/{}@{version} {created} {modified}", key.mesh, key.name);
    }
    question
}

/// `GET /meshes/{mesh}/service-insights/{name}`.
pub fn get(call: &Call) -> Result<Response, Error> {
    let snapshot = call.snapshot()?;
    let mesh = call.mesh(&snapshot)?.unwrap_or_default();
    let key = Key::new(Kind::ServiceInsight, mesh, &service_insight::resource_name(mesh));
    let stored = snapshot.get(&key).ok_or_else(|| Error::not_found(RETRIEVE))?;
    let service = call.param("name");
    let known = stored.spec.get::<ServiceInsight>().and_then(|insight| insight.services.get(service));
    let known = known.ok_or_else(|| Error::not_found(RETRIEVE))?;
    let one = OfService { stored, name: service, service: known };
    let hostnames = Hostnames::of(call, &snapshot, Some(mesh));
    Ok(with_revision(json::ok(&render(&one, &hostnames)), &snapshot))
}

fn wanted_types(call: &Call) -> Result<Vec<ServiceType>, Error> {
    let given = call.query("type").unwrap_or_default().split(',').map(|t| t.trim().to_lowercase());
    let wanted = given.filter(|t| !t.is_empty()).map(|name| serde_json::from_value(Value::from(name)));
    wanted.collect::<Result<_, _>>().map_err(|_| Error::BadRequest("unsupported service type".into()))
}

/// The metadata of the stored resource, the service's name and numbers, and what need not be stored: the total, and the
/// address of an internal service.
fn render(one: &OfService<'_>, hostnames: &Hostnames<'_>) -> ServiceInsightEntry {
    let OfService { stored, name, service } = *one;
    let Service { status, dataplanes, issued_backends, service_type, address_port, zones } = service;
    let mut labels = stored.labels.clone();
    labels.remove(labels::DISPLAY_NAME);
    let computed =
        if *service_type == ServiceType::Internal { hostnames.address(stored.mesh(), name) } else { None };
    ServiceInsightEntry {
        r#type: stored.kind().name().into(),
        mesh: stored.mesh().to_owned(),
        name: name.to_owned(),
        creation_time: stored.created.to_string(),
        modification_time: stored.modified.to_string(),
        labels,
        kri: stored.kri("").map(|kri| kri.to_string()),
        status: *status,
        dataplanes: dataplanes.map(with_total),
        issued_backends: issued_backends.clone(),
        service_type: *service_type,
        zones: zones.clone(),
        address_port: computed.unwrap_or_else(|| address_port.clone()),
    }
}

fn with_total(counted: DataplaneStat) -> DataplaneStat {
    let total = counted.online + counted.offline;
    DataplaneStat { total: if total > 0 { total } else { counted.total }, ..counted }
}

/// Sources of the hostnames of services.
struct Hostnames<'a> {
    snapshot: &'a Snapshot,
    /// Hostnames by which meshes themselves call services that have tags only.
    of_meshes: Option<&'a ServiceHosts>,
    /// VirtualOutbounds by mesh, with their templates read once for all services.
    policies: HashMap<&'a str, Vec<(&'a VirtualOutbound, Rendering)>>,
}

impl<'a> Hostnames<'a> {
    fn of(call: &'a Call, snapshot: &'a Snapshot, mesh: Option<&'a str>) -> Hostnames<'a> {
        let mut policies: HashMap<&str, Vec<(&VirtualOutbound, Rendering)>> = HashMap::new();
        for stored in in_scope(snapshot, Kind::VirtualOutbound, mesh) {
            let policy = stored.spec.get::<VirtualOutbound>();
            let rendering = policy.and_then(|policy| Some((policy, policy.templates()?.rendering().ok()?)));
            policies.entry(stored.mesh()).or_default().extend(rendering);
        }
        Hostnames { snapshot, of_meshes: call.context.settings.service_hosts.as_ref(), policies }
    }

    /// Address at which applications reach a service: as a VirtualOutbound says that looks at nothing but its name, at
    /// Kuma's `<service>.mesh:80`, or at the hostname of its MeshService. A mesh that has MeshServices only has no
    /// other hostnames. `None` where nothing names the service.
    fn address(&self, mesh: &str, service: &str) -> Option<String> {
        let by_tags = || {
            let tags = Tags::from([(labels::SERVICE.to_owned(), service.to_owned())]);
            let policies = self.policies.get(mesh).into_iter().flatten();
            let selecting = policies.filter(|(policy, _)| policy.rank(&tags).is_some());
            let mut named = selecting.filter_map(|(_, rendering)| {
                Some(format!("{}:{}", rendering.host(&tags).ok()?, rendering.port(&tags).ok()?))
            });
            named.next().or_else(|| self.of_meshes?.address_of(service))
        };
        match mode(self.snapshot, mesh) {
            MeshServicesMode::Disabled => by_tags(),
            MeshServicesMode::Exclusive => self.of_mesh_service(mesh, service),
            _ => by_tags().or_else(|| self.of_mesh_service(mesh, service)),
        }
    }

    fn of_mesh_service(&self, mesh: &str, service: &str) -> Option<String> {
        let found = self.snapshot.get(&Key::new(Kind::MeshService, mesh, service))?;
        let port = found.spec.get::<MeshService>()?.ports.first()?.port;
        match &found.status {
            Some(Status::MeshService(status)) => {
                status.addresses.first().map(|address| format!("{}:{port}", address.hostname))
            }
            _ => None,
        }
    }
}

fn mode(snapshot: &Snapshot, mesh: &str) -> MeshServicesMode {
    let stored = snapshot.get(&Key::global(Kind::Mesh, mesh));
    stored
        .and_then(|mesh| mesh.spec.get::<Mesh>())
        .map_or(MeshServicesMode::Disabled, Mesh::mesh_services_mode)
}
