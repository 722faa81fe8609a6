//! SNIs in the resource: the values by which other zones reach the ports of a destination.
//!
//! The control plane that owns the resource writes them. Clients dial the first, servers accept all, so a
//! change of the format is a list that grows and shrinks: `[old]`, `[old, new]`, `[new, old]`, `[new]`. In a zone among
//! others a value comes to the front only when the zone proxies accept it ([`Owner::switched`]). A peer that does not
//! know the list computes values by itself; servers accept those as well ([`accepted`]).

use std::{collections::BTreeMap, sync::Arc};

use super::{DecodedSni, decode, from_kri, hashed, sni_name};
use crate::{
    Environment, Kind, Resource, Spec,
    kinds::mesh_service::{Port, Sni},
    labels,
    naming::Kri,
};

/// A form that owners write SNIs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `a<hash>.<name>.<port>.<mesh>.<type>`
    Hashed,
    /// `sni.<type>.<mesh>.<zone>.<name>.<section>`
    Kri,
}

impl Form {
    pub const ALL: [Form; 2] = [Form::Hashed, Form::Kri];

    pub fn name(self) -> &'static str {
        match self {
            Form::Hashed => "hashed",
            Form::Kri => "kri",
        }
    }
}

/// The forms an owner writes, the one to dial first. There is at least one, and none twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Formats(Vec<Form>);

impl Default for Formats {
    fn default() -> Formats {
        Formats(vec![Form::Hashed])
    }
}

/// Reason that names are no formats of SNIs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SniFormatError {
    #[error("{0:?} is no format of SNIs")]
    Unknown(String),
    #[error("{0:?} is listed twice")]
    Twice(String),
    #[error("at least one format is needed")]
    None,
}

impl Formats {
    /// Formats by their names.
    pub fn named<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<Formats, SniFormatError> {
        let mut forms = Vec::new();
        for name in names {
            let form = Form::ALL.into_iter().find(|form| form.name() == name);
            let form = form.ok_or_else(|| SniFormatError::Unknown(name.to_owned()))?;
            if forms.contains(&form) {
                return Err(SniFormatError::Twice(name.to_owned()));
            }
            forms.push(form);
        }
        if forms.is_empty() { Err(SniFormatError::None) } else { Ok(Formats(forms)) }
    }

    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|form| form.name())
    }
}

/// Location of an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerLocation {
    Global,
    /// `federated` when other zones may have services of the same name.
    Zone {
        name: Arc<str>,
        federated: bool,
    },
}

/// A control plane that writes the SNIs of its resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub place: OwnerLocation,
    pub formats: Formats,
    pub environment: Environment,
}

/// A value that leads to a port of a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedSni {
    pub value: String,
    pub port: u32,
    /// The section of the port in the KRI of the destination.
    pub section: String,
    /// Index of the port.
    pub port_index: usize,
    /// Its place in the list of the port; `None` for what is accepted because peers may compute it.
    pub index: Option<usize>,
    /// Clients dial this value.
    pub dialled: bool,
}

/// First value of a list that follows the formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Front {
    /// The value that clients dial already, where other zones may dial at all.
    Dialled,
    /// The value that the formats put there.
    Preferred,
}

/// A port of a destination.
struct PortOf<'a> {
    port: u32,
    section: String,
    snis: &'a [Sni],
}

impl Owner {
    /// True if this control plane writes the SNIs of the resource. Synchronised resources have their owner
    /// elsewhere.
    pub fn owns(&self, resource: &Resource) -> bool {
        let origin = resource.label(labels::ORIGIN);
        match &self.place {
            OwnerLocation::Global => origin != Some(labels::ORIGIN_ZONE),
            OwnerLocation::Zone { federated: true, .. } => origin != Some(labels::ORIGIN_GLOBAL),
            // A zone that stands alone owns what only a global control plane makes elsewhere.
            OwnerLocation::Zone { .. } => {
                resource.kind() != Kind::MeshService || origin != Some(labels::ORIGIN_GLOBAL)
            }
        }
    }

    /// Writes the SNIs of every port. A port without a list has that of the port with its number in
    /// `before`, so an update cannot drop it. A list with a value that no owner makes is its author's and
    /// stays as it is; all others follow the formats, behind the value that clients dial until now.
    pub fn fill(&self, resource: &mut Resource, before: Option<&Resource>) {
        if self.owns(resource) {
            set_all(resource, self.lists(resource, before, Front::Dialled));
        }
    }

    /// The resource as it should be, if that differs from what it is.
    pub fn refilled(&self, resource: &Resource) -> Option<Resource> {
        self.with_front(resource, Front::Dialled)
    }

    /// The resource as it should be once zone proxies accept every value of its lists, if that differs from what it is.
    pub fn switched(&self, resource: &Resource) -> Option<Resource> {
        self.with_front(resource, Front::Preferred)
    }

    /// True if new values wait for zone proxies: other zones dial the first value as soon as they receive it.
    pub fn is_among_others(&self) -> bool {
        matches!(self.place, OwnerLocation::Zone { federated: true, .. })
    }

    fn with_front(&self, resource: &Resource, front: Front) -> Option<Resource> {
        let current = ports(&resource.spec);
        if current.is_empty() || !self.owns(resource) {
            return None;
        }
        let wanted = self.lists(resource, Some(resource), front);
        if current.iter().zip(&wanted).all(|(port, list)| port.snis == list) {
            return None;
        }
        let mut changed = resource.clone();
        set_all(&mut changed, wanted);
        Some(changed)
    }

    /// The list of every port.
    fn lists(&self, resource: &Resource, before: Option<&Resource>, front: Front) -> Vec<Vec<Sni>> {
        let destination = Destination::of(resource, self.environment.system_namespace());
        let stored = before.map(|before| ports(&before.spec)).unwrap_or_default();
        let list = |port: PortOf<'_>| {
            let known = stored.iter().find(|other| other.port == port.port).map(|other| other.snis);
            let given = if port.snis.is_empty() { known.unwrap_or_default() } else { port.snis };
            // What no owner makes is the author's.
            if given.iter().any(|sni| !self.makes(&destination, &sni.value)) {
                return given.to_vec();
            }
            let mut values = self.preferred(&destination, &port);
            if front == Front::Dialled && self.is_among_others() {
                let dialled = self.dialled(&destination, port.port, known.unwrap_or(given));
                values.retain(|value| Some(value) != dialled.as_ref());
                values.splice(0..0, dialled);
            }
            values.into_iter().map(|value| Sni { value }).collect()
        };
        ports(&resource.spec).into_iter().map(list).collect()
    }

    /// The values of a port as the formats say.
    fn preferred(&self, destination: &Destination, port: &PortOf<'_>) -> Vec<String> {
        let values = |form: &Form| match form {
            Form::Hashed => self.hashes(destination, port.port),
            Form::Kri => destination.by_kri(&port.section).into_iter().collect(),
        };
        let values: Vec<String> = self.formats.0.iter().flat_map(values).collect();
        // The KRI of this port is no host name, and nothing else was asked for.
        if values.is_empty() { self.hashes(destination, port.port) } else { values }
    }

    /// Value that clients dial for a port with this list: without a list, the hash that every peer computes.
    fn dialled(&self, destination: &Destination, port: u32, list: &[Sni]) -> Option<String> {
        let leads_here = |value: &&String| match decode(value) {
            DecodedSni::Hashed(read) => read.port == port,
            _ => true,
        };
        let first = list.first().map(|sni| &sni.value);
        let first = first.filter(|value| self.makes(destination, value)).filter(leads_here);
        first.cloned().or_else(|| destination.hashed(port, None))
    }

    /// The hashed SNIs of a port. Services of one name in several zones have one hash, so a zone among others
    /// comes first with one of its own; its peers may only know the other.
    fn hashes(&self, destination: &Destination, port: u32) -> Vec<String> {
        let zone = match &self.place {
            OwnerLocation::Zone { name, federated: true } => destination.hashed(port, Some(name)),
            _ => None,
        };
        zone.into_iter().chain(destination.hashed(port, None)).collect()
    }

    /// True if owners at this place make this value for some port of the destination, in one form or another.
    fn makes(&self, destination: &Destination, value: &str) -> bool {
        match decode(value) {
            DecodedSni::Kri(kri) => destination.by_kri(&kri.section).as_deref() == Some(value),
            DecodedSni::Hashed(read) => {
                let zone = match &self.place {
                    OwnerLocation::Zone { name, .. } => destination.hashed(read.port, Some(name)),
                    OwnerLocation::Global => None,
                };
                zone.as_deref() == Some(value)
                    || destination.hashed(read.port, None).as_deref() == Some(value)
            }
            _ => false,
        }
    }
}

/// Every value that leads to a port of the destination: those of its list, then those that peers compute
/// (the hash without a zone, and the KRI form that the REST API shows). None for other kinds.
pub fn accepted(resource: &Resource) -> Vec<AcceptedSni> {
    let all = ports(&resource.spec);
    if all.is_empty() {
        return Vec::new();
    }
    // Peers outside Kubernetes compute values; those inside read the list.
    let destination = Destination::of(resource, "");
    let mut found = Vec::new();
    for (port_index, PortOf { port, section, snis }) in all.into_iter().enumerate() {
        let listed = snis.iter().enumerate().map(|(at, sni)| (sni.value.clone(), Some(at)));
        let implied = [destination.hashed(port, None), destination.by_kri(&section)];
        let is_listed = |value: &String| snis.iter().any(|sni| sni.value == *value);
        let implied = implied.into_iter().flatten().filter(|value| !is_listed(value));
        for (value, index) in listed.chain(implied.map(|value| (value, None))) {
            let first = found.last().is_none_or(|last: &AcceptedSni| last.port_index != port_index);
            let section = section.clone();
            found.push(AcceptedSni { value, port, section, port_index, index, dialled: first });
        }
    }
    found
}

/// A MeshService of a zone, as other zones know it.
#[derive(Debug, Clone, Copy)]
pub struct OfZone<'a> {
    pub mesh: &'a str,
    pub zone: &'a str,
    /// The display name.
    pub name: &'a str,
    /// Empty outside Kubernetes.
    pub namespace: &'a str,
}

impl OfZone<'_> {
    /// True for values that owners make for a destination of another zone, or for another destination. Values
    /// that no owner makes are their author's.
    pub fn is_of_another(&self, value: &str) -> bool {
        match decode(value) {
            DecodedSni::Kri(kri) => kri.zone != self.zone,
            DecodedSni::Hashed(read) => !self.hashes(read.port).any(|own| own == value),
            _ => false,
        }
    }

    fn hashes(&self, port: u32) -> impl Iterator<Item = String> {
        let OfZone { mesh, zone, name, namespace } = *self;
        let zones = [BTreeMap::new(), BTreeMap::from([(labels::ZONE.to_owned(), zone.to_owned())])];
        let names = [name.to_owned(), format!("{name}.{namespace}")];
        names.into_iter().flat_map(move |name| {
            let made = |zone: &BTreeMap<_, _>| hashed(&name, mesh, Kind::MeshService, port, zone).ok();
            zones.iter().filter_map(made).collect::<Vec<_>>()
        })
    }
}

/// Inputs of the SNIs of a destination.
struct Destination {
    kind: Kind,
    mesh: Arc<str>,
    /// In hashed SNIs.
    name: String,
    kri: Option<Kri>,
}

impl Destination {
    fn of(resource: &Resource, system_namespace: &str) -> Destination {
        Destination {
            kind: resource.kind(),
            mesh: resource.key.mesh.clone(),
            name: sni_name(resource, system_namespace).into_owned(),
            kri: Kri::of(resource, ""),
        }
    }

    fn hashed(&self, port: u32, zone: Option<&str>) -> Option<String> {
        let data: BTreeMap<String, String> =
            zone.into_iter().map(|zone| (labels::ZONE.to_owned(), zone.to_owned())).collect();
        hashed(&self.name, &self.mesh, self.kind, port, &data).ok()
    }

    fn by_kri(&self, section: &str) -> Option<String> {
        from_kri(&self.kri.as_ref()?.with_section(section)).ok()
    }
}

fn ports(spec: &Spec) -> Vec<PortOf<'_>> {
    let all = match spec {
        Spec::MeshService(service) => &service.ports,
        Spec::MeshMultiZoneService(service) => &service.ports,
        Spec::MeshExternalService(service) => {
            let port = service.match_.port;
            return vec![PortOf { port, section: port.to_string(), snis: &service.match_.snis }];
        }
        _ => return Vec::new(),
    };
    all.iter()
        .map(|port| PortOf { port: port.port, section: port.section_name(), snis: &port.snis })
        .collect()
}

fn set_all(resource: &mut Resource, lists: Vec<Vec<Sni>>) {
    match &mut resource.spec {
        Spec::MeshService(service) => set(&mut Arc::make_mut(service).ports, lists),
        Spec::MeshMultiZoneService(service) => set(&mut Arc::make_mut(service).ports, lists),
        Spec::MeshExternalService(service) => {
            Arc::make_mut(service).match_.snis = lists.into_iter().next().unwrap_or_default();
        }
        _ => {}
    }
}

fn set(ports: &mut [Port], lists: Vec<Vec<Sni>>) {
    for (port, list) in ports.iter_mut().zip(lists) {
        port.snis = list;
    }
}
