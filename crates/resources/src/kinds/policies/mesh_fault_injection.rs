//! Faults made on purpose, to see how clients cope.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kinds::{
    checks,
    directions::Directions,
    entry::{Entry, EntryDescription, InEntry, InRule, Rule},
    int_or_string::{self, IntOrString},
    target_ref::{Allowed, Match, TargetRef},
};
use crate::{
    NoStatus, Path, Schema, Subject, Violations,
    duration::GoDuration,
    policy::{MESH_FAULT_INJECTION, Policy},
};

const KILO: u32 = 1000;

/// Aborts, delays and slows down HTTP requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshFaultInjection {
    /// The proxies that inject faults; all of the mesh by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Faults of incoming requests, by the client's tags; deprecated, use `rules`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<Entry<Conf>>,
    /// Faults of requests through gateways, by destination.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<Entry<Conf>>,
    /// Faults of incoming requests, by client.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule<Conf>>,
}

/// The faults, tried in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Conf {
    /// The faults; each is applied to its percentage of the requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<Vec<Fault>>,
}

/// One fault; its parts are independent of each other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Fault {
    /// Answer with an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort: Option<Abort>,
    /// Wait before the request is sent on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Delay>,
    /// Slow the response down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_bandwidth: Option<ResponseBandwidth>,
}

/// Answers without asking the service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["httpStatus", "percentage"]))]
pub struct Abort {
    /// The status of the answer, such as 503.
    pub http_status: i32,
    /// The percentage of requests that are aborted, such as `10` or `"0.5"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentage: Option<IntOrString>,
}

/// Holds a request back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["value", "percentage"]))]
pub struct Delay {
    /// Delay of a request, such as `5s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<GoDuration>,
    /// The percentage of requests that are delayed, such as `10` or `"0.5"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentage: Option<IntOrString>,
}

/// Sends the response slowly; `limit` is like `50Mbps`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["limit", "percentage"]))]
pub struct ResponseBandwidth {
    /// The most that a response gets: a number with `kbps`, `Mbps` or `Gbps`.
    pub limit: String,
    /// The percentage of responses that are slowed down, such as `10` or `"0.5"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentage: Option<IntOrString>,
}

impl InEntry for Conf {
    const ENTRY: EntryDescription = EntryDescription {
        name: "Entry",
        about: "The faults of requests from or to what a reference names.",
    };
}

impl InRule for Conf {
    const RULE: EntryDescription = EntryDescription {
        name: "Rule",
        about: "The faults of incoming requests, optionally only of certain clients.",
    };
    const REQUIRED: &'static [&'static str] = &["default"];
}

impl Conf {
    fn validate(&self, path: &Path, found: &mut Violations) {
        for (i, fault) in self.http.iter().flatten().enumerate() {
            fault.validate(&path.field("http").index(i), found);
        }
    }
}

impl Fault {
    fn validate(&self, path: &Path, found: &mut Violations) {
        if let Some(Abort { http_status, percentage }) = &self.abort {
            let path = path.field("abort");
            let status = path.field("httpStatus");
            if !(100..600).contains(http_status) {
                found.add(status, "must be in inclusive range [100, 599]");
            } else if *http_status < 200 {
                found.add(status, "must not be informational: no response ends with such a status");
            }
            validate_percentage(percentage.as_ref(), &path, found);
        }
        if let Some(Delay { value, percentage }) = &self.delay {
            let path = path.field("delay");
            found.require(value.is_some(), path.field("value"), checks::MUST_BE_DEFINED);
            checks::not_negative(*value, &path.field("value"), found);
            validate_percentage(percentage.as_ref(), &path, found);
        }
        if let Some(ResponseBandwidth { limit, percentage }) = &self.response_bandwidth {
            let path = path.field("responseBandwidth");
            match Bandwidth::of(limit) {
                _ if limit.is_empty() => found.add(path.field("limit"), checks::MUST_BE_DEFINED),
                Bandwidth::Malformed => found.add(path.field("limit"), "must be in kbps/Mbps/Gbps units"),
                Bandwidth::OutOfRange => {
                    found.add(path.field("limit"), format!("must be between 1kbps and {}kbps", u32::MAX));
                }
                Bandwidth::Kbps(_) => {}
            }
            validate_percentage(percentage.as_ref(), &path, found);
        }
    }
}

fn validate_percentage(percentage: Option<&IntOrString>, parent: &Path, found: &mut Violations) {
    let path = parent.field("percentage");
    match percentage {
        Some(percentage) => int_or_string::validate_percentage(percentage, &path, found),
        None => found.add(path, checks::MUST_BE_DEFINED),
    }
}

/// Reading of a limit like `50Mbps` or `50 Mbps`.
enum Bandwidth {
    Malformed,
    OutOfRange,
    Kbps(u32),
}

impl Bandwidth {
    fn of(text: &str) -> Bandwidth {
        let units = [("kbps", 1), ("Mbps", KILO), ("Gbps", KILO * KILO)];
        let parts = units.iter().find_map(|(unit, size)| Some((text.strip_suffix(unit)?, *size)));
        let Some((number, unit)) = parts else { return Bandwidth::Malformed };
        let number = number.strip_suffix(' ').unwrap_or(number);
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
            return Bandwidth::Malformed;
        }
        match number.parse::<u32>().ok().and_then(|number| number.checked_mul(unit)) {
            None | Some(0) => Bandwidth::OutOfRange,
            Some(kbps) => Bandwidth::Kbps(kbps),
        }
    }
}

impl ResponseBandwidth {
    /// The limit in kbps; `None` where none can be read.
    pub fn kbps(&self) -> Option<u32> {
        match Bandwidth::of(&self.limit) {
            Bandwidth::Kbps(kbps) => Some(kbps),
            Bandwidth::Malformed | Bandwidth::OutOfRange => None,
        }
    }
}

impl MeshFaultInjection {
    fn directions(&self) -> Directions<'_, Rule<Conf>, Entry<Conf>> {
        Directions { top: self.target_ref.as_ref(), rules: &self.rules, to: &self.to, from: &self.from }
    }

    fn validate_entries(&self, spec: &Path, found: &mut Violations) {
        let whole_mesh = TargetRef::mesh();
        let gateways = self.target_ref.as_ref().unwrap_or(&whole_mesh).includes_gateways();
        if gateways {
            found.require(self.from.is_empty(), spec.field("from"), checks::FROM_OF_GATEWAYS);
            Entry::validate_all(
                &self.to,
                Allowed::of(MESH_FAULT_INJECTION.to),
                &spec.field("to"),
                Conf::validate,
                found,
            );
        } else {
            Entry::validate_all(
                &self.from,
                Allowed::of(MESH_FAULT_INJECTION.from),
                &spec.field("from"),
                Conf::validate,
                found,
            );
            found.require(self.to.is_empty(), spec.field("to"), checks::MUST_NOT_BE_DEFINED);
        }
        for (i, rule) in self.rules.iter().enumerate() {
            let path = spec.field("rules").index(i);
            let matches = rule.matches.as_deref().unwrap_or_default();
            Match::validate_all(matches, &path.field("matches"), found);
            rule.default.validate(&path.field("default"), found);
        }
    }
}

impl Policy for MeshFaultInjection {
    type To = Conf;

    fn target_ref(&self) -> Option<&TargetRef> {
        self.target_ref.as_ref()
    }
}

impl Schema for MeshFaultInjection {
    type Status = NoStatus;

    fn validate(&self, subject: Subject<'_>, found: &mut Violations) {
        let spec = Path::new("spec");
        self.directions().validate(subject, MESH_FAULT_INJECTION, &spec, found);
        self.validate_entries(&spec, found);
    }

    fn warnings(&self) -> Vec<String> {
        self.directions().warnings()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{
        Kind,
        kinds::testing::{check, draft, resource, round_trips, valid},
    };

    fn violations(spec: Value, expect: &[(&str, &str)]) {
        check(Kind::MeshFaultInjection, resource(spec), expect);
    }

    #[test]
    fn full_examples_are_valid_and_survive_a_round_trip() {
        let faults = json!({"http": [
            {"abort": {"httpStatus": 500, "percentage": 50},
             "delay": {"value": "5s", "percentage": "50.5"},
             "responseBandwidth": {"limit": "50 Mbps", "percentage": "0"}},
            {"responseBandwidth": {"limit": "1Gbps", "percentage": 100}}
        ]});
        for spec in [
            json!({"targetRef": {"kind": "MeshSubset", "proxyTypes": ["Sidecar"]},
                   "from": [{"targetRef": {"kind": "MeshServiceSubset", "name": "a"}, "default": faults}]}),
            json!({"targetRef": {"kind": "MeshGateway", "name": "edge", "tags": {"name": "l"}},
                   "to": [{"targetRef": {"kind": "Mesh"}, "default": faults}]}),
            json!({"targetRef": {"kind": "Dataplane", "labels": {"app": "backend"}, "sectionName": "backend-port"},
                   "rules": [{"matches": [{"spiffeID": {"type": "Prefix", "value": "spiffe://default/"}}],
                              "default": faults},
                             {"default": {"http": []}}]}),
        ] {
            valid(Kind::MeshFaultInjection, resource(spec.clone()));
            round_trips(Kind::MeshFaultInjection, spec);
        }
    }

    #[test]
    fn from_is_for_sidecars_and_to_is_for_gateways() {
        let entry = json!([{"targetRef": {"kind": "Mesh"}, "default": {}}]);
        violations(json!({"from": entry}), &[("spec.from", super::checks::FROM_OF_GATEWAYS)]);
        violations(
            json!({"targetRef": {"kind": "Mesh", "proxyTypes": ["Sidecar"]}, "to": entry}),
            &[("spec.to", "must not be defined")],
        );
        violations(json!({"targetRef": {"kind": "Mesh", "proxyTypes": ["Sidecar"]}, "from": entry}), &[]);
        violations(json!({"to": entry}), &[]);
        violations(
            json!({"targetRef": {"kind": "Dataplane"}, "from": entry, "rules": [{"default": {}}]}),
            &[("spec", "fields 'to' and 'from' must be empty when 'rules' is defined")],
        );
    }

    #[test]
    fn kinds_are_checked_per_place() {
        violations(
            json!({"targetRef": {"kind": "MeshExternalService", "name": "x"},
                   "from": [{"targetRef": {"kind": "Dataplane"}, "default": {}}]}),
            &[
                ("spec.targetRef.kind", "value 'MeshExternalService' is not supported"),
                ("spec.from[0].targetRef.kind", "value 'Dataplane' is not supported"),
            ],
        );
        violations(
            json!({"to": [{"targetRef": {"kind": "MeshService", "name": "x"}, "default": {}}]}),
            &[("spec.to[0].targetRef.kind", "value 'MeshService' is not supported")],
        );
        let mut owned = resource(json!({"targetRef": {"kind": "MeshGateway", "name": "x"}}));
        owned["labels"] = json!({"kuma.io/policy-role": "workload-owner"});
        check(
            Kind::MeshFaultInjection,
            owned,
            &[("spec.targetRef.kind", "value 'MeshGateway' is not supported")],
        );
    }

    #[test]
    fn every_violation_of_a_fault_is_reported() {
        violations(
            json!({"rules": [{"matches": [{}], "default": {"http": [
                {"abort": {"httpStatus": 600, "percentage": 101}, "delay": {"value": "-1s", "percentage": "x"},
                 "responseBandwidth": {"limit": "1000", "percentage": "-0.1"}},
                {"abort": {}, "delay": {}, "responseBandwidth": {}}
            ]}}]}),
            &[
                ("spec.rules[0].matches[0]", "must specify at least one of 'spiffeID' or 'sni'"),
                ("spec.rules[0].default.http[0].abort.httpStatus", "must be in inclusive range [100, 599]"),
                ("spec.rules[0].default.http[0].abort.percentage", "must be in inclusive range [0.0, 100.0]"),
                ("spec.rules[0].default.http[0].delay.value", "must not be negative when defined"),
                ("spec.rules[0].default.http[0].delay.percentage", "string must be a valid number"),
                ("spec.rules[0].default.http[0].responseBandwidth.limit", "must be in kbps/Mbps/Gbps units"),
                (
                    "spec.rules[0].default.http[0].responseBandwidth.percentage",
                    "must be in inclusive range [0.0, 100.0]",
                ),
                ("spec.rules[0].default.http[1].abort.httpStatus", "must be in inclusive range [100, 599]"),
                ("spec.rules[0].default.http[1].abort.percentage", "must be defined"),
                ("spec.rules[0].default.http[1].delay.value", "must be defined"),
                ("spec.rules[0].default.http[1].delay.percentage", "must be defined"),
                ("spec.rules[0].default.http[1].responseBandwidth.limit", "must be defined"),
                ("spec.rules[0].default.http[1].responseBandwidth.percentage", "must be defined"),
            ],
        );
    }

    #[test]
    fn what_no_proxy_can_do_is_refused() {
        let fault = |fault: Value| json!({"rules": [{"default": {"http": [fault]}}]});
        let abort = |status: i32| fault(json!({"abort": {"httpStatus": status, "percentage": 1}}));
        let status = "spec.rules[0].default.http[0].abort.httpStatus";
        violations(abort(199), &[(status, "must not be informational: no response ends with such a status")]);
        violations(abort(200), &[]);
        let limit = |limit: &str| fault(json!({"responseBandwidth": {"limit": limit, "percentage": 1}}));
        let field = "spec.rules[0].default.http[0].responseBandwidth.limit";
        for out_of_range in ["0kbps", "0 Gbps", "4295Gbps", "99999999999999999999kbps"] {
            violations(limit(out_of_range), &[(field, "must be between 1kbps and 4294967295kbps")]);
        }
        violations(limit("4294967295kbps"), &[]);
    }

    #[test]
    fn from_is_warned_about() {
        let spec = json!({"targetRef": {"kind": "Dataplane"},
                          "from": [{"targetRef": {"kind": "Mesh"}, "default": {}}]});
        let warnings = draft(Kind::MeshFaultInjection, resource(spec)).spec.warnings();
        assert_eq!(warnings, ["'from' field is deprecated, use 'rules' instead"]);
    }
}
