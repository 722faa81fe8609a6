//! Services of the same name in several zones, addressed as one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kinds::{
    checks,
    mesh_service::{self, LabelSelector, Port},
    open_enum::OpenEnum,
    protocol::Protocol,
    service_status::{Address, Condition, HostnameGeneratorStatus, Vip},
};
use crate::{Path, Schema, Subject, Violations};

/// All MeshServices with certain labels, reached by one name and one address.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["selector"]))]
pub struct MeshMultiZoneService {
    /// The MeshServices that belong together.
    pub selector: MultiZoneSelector,
    /// The ports at which applications call the service.
    #[schemars(length(min = 1))]
    pub ports: Vec<Port>,
}

/// Selection of the MeshServices that belong together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["meshService"]))]
pub struct MultiZoneSelector {
    /// The MeshServices, by label.
    #[schemars(extend("required" = ["matchLabels"]))]
    pub mesh_service: LabelSelector,
}

/// Status of a MeshMultiZoneService, set by the control plane.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshMultiZoneServiceStatus {
    /// Hostnames of the service.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    /// Addresses at which proxies offer the service to their applications.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vips: Vec<Vip>,
    /// The MeshServices that the selector matches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mesh_services: Vec<MatchedMeshService>,
    /// Result of each HostnameGenerator that selects the service.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hostname_generators: Vec<HostnameGeneratorStatus>,
    /// Conditions reported by the control plane, one entry per fact.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A MeshService the selector matched, by the parts of its KRI.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MatchedMeshService {
    /// The name of the MeshService.
    pub name: String,
    /// Its Kubernetes namespace.
    pub namespace: String,
    /// Its zone.
    pub zone: String,
    /// Its mesh.
    pub mesh: String,
}

impl Schema for MeshMultiZoneService {
    type Status = MeshMultiZoneServiceStatus;

    fn validate(&self, _subject: Subject<'_>, found: &mut Violations) {
        let spec = Path::new("spec");
        found.require(
            !self.selector.mesh_service.match_labels.is_empty(),
            spec.field("selector").field("meshService").field("matchLabels"),
            "cannot be empty",
        );
        found.require(!self.ports.is_empty(), spec.field("ports"), "cannot be empty");
        for (i, port) in self.ports.iter().enumerate() {
            let path = spec.field("ports").index(i);
            found.require(port.name.as_deref() != Some(""), path.field("name"), checks::MUST_NOT_BE_EMPTY);
            port.validate(&path, found);
            if !port.app_protocol.is_known() {
                let message = format!("appProtocol must be one of: {}", Protocol::WORDS.join(", "));
                found.add(path.field("appProtocol"), message);
            }
        }
        mesh_service::check_names(&self.ports, &spec.field("ports"), found);
    }

    /// The services that are selected say themselves where their instances listen.
    fn warnings(&self) -> Vec<String> {
        let given = self.ports.iter().enumerate().filter(|(_, port)| port.target_port.is_some());
        let warning = |(i, port): (usize, &Port)| {
            format!(
                "spec.ports[{i}].targetPort is kept and has no effect: port {0} leads to port {0} of each MeshService \
                 that is selected",
                port.port
            )
        };
        given.map(warning).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{
        Kind,
        kinds::testing::{check, resource, round_trips, valid},
    };

    fn violations(spec: Value, expect: &[(&str, &str)]) {
        check(Kind::MeshMultiZoneService, resource(spec), expect);
    }

    #[test]
    fn an_example_with_target_port_and_snis_survives_a_round_trip() {
        let spec = json!({
            "selector": {"meshService": {"matchLabels": {
                "k8s.kuma.io/namespace": "mzmsconnectivity", "kuma.io/display-name": "test-server"}}},
            "ports": [{"name": "main", "port": 80, "targetPort": 8080, "appProtocol": "http",
                       "snis": [{"value": "ae10a8071b8a8eeb8.backend.80.demo.mzms"}]}]
        });
        valid(Kind::MeshMultiZoneService, resource(spec.clone()));
        round_trips(Kind::MeshMultiZoneService, spec);
    }

    #[test]
    fn a_target_port_means_nothing_and_the_user_is_warned() {
        let spec = json!({
            "selector": {"meshService": {"matchLabels": {"app": "x"}}},
            "ports": [{"port": 80}, {"port": 81, "targetPort": 8080}]
        });
        let spec = crate::Spec::from_json(Kind::MeshMultiZoneService, spec, &mut Vec::new()).unwrap();
        let expected = "spec.ports[1].targetPort is kept and has no effect: port 81 leads to port 81 of each \
                        MeshService that is selected";
        assert_eq!(spec.warnings(), [expected]);
    }

    #[test]
    fn the_selector_and_the_ports_are_required() {
        violations(
            json!({}),
            &[
                ("spec.selector.meshService.matchLabels", "cannot be empty"),
                ("spec.ports", "cannot be empty"),
            ],
        );
    }

    #[test]
    fn every_violation_of_a_port_is_reported() {
        violations(
            json!({
                "selector": {"meshService": {"matchLabels": {"app": "x"}}},
                "ports": [
                    {"name": "", "port": 80},
                    {"port": 70000},
                    {"port": 82, "appProtocol": "not_supported"},
                    {"port": 83, "appProtocol": ""}
                ]
            }),
            &[
                ("spec.ports[0].name", "must not be empty"),
                ("spec.ports[1].port", "port must be a valid (1-65535)"),
                ("spec.ports[2].appProtocol", "appProtocol must be one of: grpc, http, http2, kafka, tcp"),
                ("spec.ports[3].appProtocol", "appProtocol must be one of: grpc, http, http2, kafka, tcp"),
            ],
        );
    }
}
