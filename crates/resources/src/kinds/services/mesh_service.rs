//! A service of one zone: which Dataplanes it consists of, and the ports it is reached by.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kinds::{
    checks,
    int_or_string::IntOrString,
    open_enum::open_enum,
    protocol::Protocol,
    service_status::{Address, HostnameGeneratorStatus, Vip},
};
use crate::{Path, Schema, Subject, Violations, naming::section};

/// A service whose endpoints are Dataplanes of the zone that owns it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshService {
    /// Availability of the service: `Available` with at least one healthy endpoint; set by the control plane.
    #[serde(skip_serializing_if = "State::is_absent")]
    pub state: State,
    /// The Dataplanes that serve it.
    pub selector: ServiceSelector,
    /// The ports at which applications call the service.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// The identities that the service's proxies prove; set by the control plane.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<Identity>,
}

open_enum! {
    /// Availability: needs at least one healthy endpoint; other zones send no traffic to an unavailable
    /// service.
    State { Available = "Available", Unavailable = "Unavailable" }
}

/// Selection of the service's Dataplanes, in at most one of the three ways.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSelector {
    /// Tags that an inbound must have, all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataplane_tags: Option<BTreeMap<String, String>>,
    /// One Dataplane by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataplane_ref: Option<DataplaneRef>,
    /// Dataplanes by label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataplane_labels: Option<LabelSelector>,
}

/// One Dataplane by the name it has in the store.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataplaneRef {
    /// The name of the Dataplane.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// Chooses resources that carry all of these labels.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels that a resource must have, all of them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
}

/// A port the service is reached by.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["port"]))]
pub struct Port {
    /// The name of the port, which policies refer to; its number by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The port at which applications call the service.
    pub port: u32,
    /// The inbound's port by number or name; a port without a target matches no inbound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_port: Option<IntOrString>,
    /// Protocol of this port: `grpc`, `http`, `http2`, `kafka` or `tcp`, which is the default.
    // An empty word is not the same as none. Kuma's schema takes any.
    #[serde(default = "default_protocol")]
    #[schemars(with = "String")]
    pub app_protocol: Protocol,
    /// The server names by which other zones reach this port; clients use the first, servers accept all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub snis: Vec<Sni>,
}

fn default_protocol() -> Protocol {
    Protocol::Tcp
}

/// A server name; an object so that it can grow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["value"]))]
pub struct Sni {
    /// The server name.
    pub value: String,
}

/// An identity the service's proxies prove with their certificate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["type", "value"]))]
pub struct Identity {
    /// Type of the value: a SPIFFE ID or a value of the tag `kuma.io/service`.
    #[serde(rename = "type")]
    pub type_: IdentityType,
    /// The identity.
    pub value: String,
}

open_enum! {
    /// Type of an identity's value.
    IdentityType { ServiceTag = "ServiceTag", SpiffeId = "SpiffeID" }
}

/// Status of a MeshService, set by the control plane.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshServiceStatus {
    /// Hostnames of the service.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    /// Addresses at which proxies offer the service to their applications.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vips: Vec<Vip>,
    /// Readiness of the proxies for mTLS.
    pub tls: Tls,
    /// Result of each HostnameGenerator that selects the service.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hostname_generators: Vec<HostnameGeneratorStatus>,
    /// Number of the service's proxies.
    pub dataplane_proxies: DataplaneProxies,
}

/// Readiness of all proxies of the service to accept mTLS.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Tls {
    /// `Ready` once every proxy of the service accepts mTLS.
    #[serde(skip_serializing_if = "TlsStatus::is_absent")]
    pub status: TlsStatus,
}

open_enum! {
    /// Once ready, a service stays ready while its mesh uses mTLS.
    TlsStatus { Ready = "Ready", NotReady = "NotReady" }
}

/// Number of the service's proxies.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DataplaneProxies {
    /// Proxies that are connected to a control plane.
    #[serde(skip_serializing_if = "is_zero")]
    pub connected: u32,
    /// Proxies with an inbound that gets traffic.
    #[serde(skip_serializing_if = "is_zero")]
    pub healthy: u32,
    /// All proxies.
    #[serde(skip_serializing_if = "is_zero")]
    pub total: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Port {
    /// Name of this port in `sectionName` of references: its name, or else its number.
    pub fn section_name(&self) -> String {
        section::name_or_port(self.name.as_deref(), self.port)
    }

    pub(crate) fn apply_defaults(&mut self) {
        if self.app_protocol.is_absent() {
            self.app_protocol = Protocol::Tcp;
        }
    }

    pub(crate) fn validate(&self, path: &Path, found: &mut Violations) {
        let name = self.name.as_deref().filter(|name| !name.is_empty());
        if let Some(complaint) = name.and_then(section::complaint) {
            found.add(path.field("name"), complaint);
        }
        checks::port(self.port, &path.field("port"), found);
        check_snis(&self.snis, path, found);
    }
}

/// Checks the server names of the port at `path`.
pub(crate) fn check_snis(snis: &[Sni], path: &Path, found: &mut Violations) {
    for (i, sni) in snis.iter().enumerate() {
        let path = path.field("snis").index(i).field("value");
        checks::rfc1123_subdomain(&sni.value, &path, found);
        found.require(!snis[..i].contains(sni), path, format!("{:?} is listed twice", sni.value));
    }
}

/// Checks that no two ports have one section name, because they would have one KRI. Two ports without a
/// name may have the same number, as in Kuma.
pub(crate) fn check_names(ports: &[Port], path: &Path, found: &mut Violations) {
    let parts = ports.iter().map(|port| (port.name.as_deref().unwrap_or_default(), port.port));
    for (i, other) in section::clashes(parts) {
        let name = ports[i].section_name();
        let other_port = &ports[other];
        let is_named = other_port.name.as_deref().is_some_and(|name| !name.is_empty());
        let why = if is_named { "" } else { ", which has no name and is called by its number" };
        let port = other_port.port;
        let message = format!(
            "name {name:?} is already used by {}, port {port}{why}: both would have the same KRI",
            path.index(other)
        );
        found.add(path.index(i).field("name"), message);
    }
}

impl Schema for MeshService {
    type Status = MeshServiceStatus;

    fn apply_defaults(&mut self) {
        if self.state.is_absent() {
            self.state = State::Unavailable;
        }
        self.ports.iter_mut().for_each(Port::apply_defaults);
    }

    fn validate(&self, subject: Subject<'_>, found: &mut Violations) {
        checks::service_name(subject, found);
        let spec = Path::new("spec");
        if !self.state.is_absent() {
            checks::known(&self.state, &spec, "state", found);
        }
        let ServiceSelector { dataplane_tags, dataplane_ref, dataplane_labels } = &self.selector;
        let ways = [dataplane_tags.is_some(), dataplane_ref.is_some(), dataplane_labels.is_some()];
        found.require(
            ways.iter().filter(|given| **given).count() <= 1,
            spec.field("selector"),
            "must specify only one of: dataplaneTags, dataplaneRef, or dataplaneLabels",
        );
        for (i, port) in self.ports.iter().enumerate() {
            port.validate(&spec.field("ports").index(i), found);
        }
        check_names(&self.ports, &spec.field("ports"), found);
        for (i, identity) in self.identities.iter().enumerate() {
            checks::known(&identity.type_, &spec.field("identities").index(i), "type", found);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        Kind, Spec,
        kinds::testing::{check, round_trips, valid},
    };

    fn violations(spec: serde_json::Value, expect: &[(&str, &str)]) {
        check(
            Kind::MeshService,
            json!({"type": "MeshService", "mesh": "default", "name": "backend", "spec": spec}),
            expect,
        );
    }

    #[test]
    fn an_empty_spec_is_valid() {
        valid(
            Kind::MeshService,
            json!({"type": "MeshService", "mesh": "default", "name": "backend", "spec": {}}),
        );
    }

    #[test]
    fn a_full_service_survives_a_round_trip() {
        round_trips(
            Kind::MeshService,
            json!({
                "state": "Available",
                "selector": {"dataplaneTags": {"app": "redis", "k8s.kuma.io/namespace": "kuma-demo"}},
                "ports": [
                    {"name": "main", "port": 80, "targetPort": 8080, "appProtocol": "http",
                     "snis": [{"value": "ae10a8071b8a8eeb8.backend.8080.demo.ms"}]},
                    {"port": 6379, "targetPort": "redis", "appProtocol": "tcp"}
                ],
                "identities": [{"type": "ServiceTag", "value": "redis"}, {"type": "SpiffeID", "value": "spiffe://x/y"}]
            }),
        );
        round_trips(Kind::MeshService, json!({"selector": {"dataplaneRef": {"name": "redis-01"}}}));
        round_trips(
            Kind::MeshService,
            json!({"selector": {"dataplaneLabels": {"matchLabels": {"app": "redis"}}}}),
        );
    }

    #[test]
    fn state_and_protocol_have_defaults() {
        let mut service =
            MeshService { ports: vec![Port { port: 80, ..Port::default() }], ..MeshService::default() };
        service.apply_defaults();
        assert_eq!(
            Spec::from(service).to_json(),
            json!({"state": "Unavailable", "selector": {}, "ports": [{"port": 80, "appProtocol": "tcp"}]})
        );
    }

    #[test]
    fn every_violation_is_reported() {
        violations(
            json!({
                "state": "Sleeping",
                "selector": {"dataplaneTags": {}, "dataplaneRef": {"name": "a"}},
                "ports": [{"port": 0}, {"port": 80, "snis": [{"value": "a.ms"}, {"value": "a_b"}]}],
                "identities": [{"type": "Name", "value": "x"}]
            }),
            &[
                ("spec.state", r#""state" must be one of ["Available", "Unavailable"]"#),
                (
                    "spec.selector",
                    "must specify only one of: dataplaneTags, dataplaneRef, or dataplaneLabels",
                ),
                ("spec.ports[0].port", "port must be a valid (1-65535)"),
                (
                    "spec.ports[1].snis[1].value",
                    crate::naming::dns::rfc1123_subdomain_errors("a_b")[0].as_ref(),
                ),
                ("spec.identities[0].type", r#""type" must be one of ["ServiceTag", "SpiffeID"]"#),
            ],
        );
    }

    #[test]
    fn names_of_ports_are_section_names() {
        for name in ["", "1", "65535", "a", "backend-kumahq.com", &"a".repeat(63)] {
            violations(json!({"ports": [{"name": name, "port": 80}]}), &[]);
        }
        for (name, rule) in [
            ("65536", "a port number must be in the range 1 to 65535"),
            ("080", "a port number must not have leading zeros"),
            ("HTTP", "a port name may contain only lower case letters, digits, '-' and '.'"),
            ("a--b", "a port name must not contain consecutive hyphens"),
            (&"a".repeat(64), "a port name must be no more than 63 characters"),
        ] {
            let message = section::complaint(name).unwrap_or_default();
            assert!(message.contains(rule), "{message}");
            let ports = json!([{"port": 80}, {"name": name, "port": 81}]);
            violations(json!({"ports": ports}), &[("spec.ports[1].name", &message)]);
            // The same ports make up services of several zones.
            check(
                Kind::MeshMultiZoneService,
                json!({"mesh": "default", "name": "all", "spec": {
                    "selector": {"meshService": {"matchLabels": {"app": "x"}}}, "ports": ports}}),
                &[("spec.ports[1].name", &message)],
            );
        }
    }

    #[test]
    fn ports_of_one_service_have_different_names() {
        let by_name = r#"name "a" is already used by spec.ports[0], port 80: both would have the same KRI"#;
        let by_number = |index: usize| {
            format!(
                "name \"8080\" is already used by spec.ports[{index}], port 8080, which has no name and is called by \
                 its number: both would have the same KRI"
            )
        };
        for (ports, expect) in [
            (json!([{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]), vec![(1, by_name.to_owned())]),
            (
                json!([{"port": 80, "name": "a"}, {"port": 80, "name": "a"}, {"port": 82, "name": "a"}]),
                vec![(1, by_name.to_owned()), (2, by_name.to_owned())],
            ),
            (json!([{"port": 8080}, {"port": 9090, "name": "8080"}]), vec![(1, by_number(0))]),
            (json!([{"port": 9090, "name": "8080"}, {"port": 8080}]), vec![(0, by_number(1))]),
            (json!([{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]), vec![]),
            (json!([{"port": 8080, "name": "8080"}, {"port": 8081}]), vec![]),
            // Kuma accepts two ports with one number.
            (json!([{"port": 80, "appProtocol": "http"}, {"port": 80, "appProtocol": "tcp"}]), vec![]),
        ] {
            let expect: Vec<(String, String)> = expect
                .into_iter()
                .map(|(index, message): (usize, String)| (format!("spec.ports[{index}].name"), message))
                .collect();
            let expect: Vec<(&str, &str)> =
                expect.iter().map(|(field, message)| (field.as_str(), message.as_str())).collect();
            violations(json!({"ports": ports}), &expect);
            check(
                Kind::MeshMultiZoneService,
                json!({"mesh": "default", "name": "all", "spec": {
                    "selector": {"meshService": {"matchLabels": {"app": "x"}}}, "ports": ports}}),
                &expect,
            );
        }
    }

    #[test]
    fn a_name_has_at_most_63_characters_before_synchronisation_renamed_it() {
        let name = "a".repeat(64);
        let service = json!({"type": "MeshService", "mesh": "default", "name": name, "spec": {}});
        check(Kind::MeshService, service, &[("name", "must not be longer than 63 characters")]);
        valid(
            Kind::MeshService,
            json!({"type": "MeshService", "mesh": "default", "name": name,
                   "labels": {"kuma.io/display-name": "a"}, "spec": {}}),
        );
    }

    #[test]
    fn the_section_name_is_the_name_else_the_number() {
        let port = |name: Option<&str>| Port { name: name.map(str::to_owned), port: 80, ..Port::default() };
        assert_eq!(port(Some("http")).section_name(), "http");
        assert_eq!(port(Some("")).section_name(), "80");
        assert_eq!(port(None).section_name(), "80");
    }
}
