//! Policies that match calls by an SNI that clients do not dial.
//!
//! Which values lead where is asked of the store when findings are listed; here it is followed which policies name any.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use findings::{Code, Finding};
use resources::{
    Key, Kind, Resource, labels,
    naming::{
        Kri,
        sni::{self, AcceptedSni},
    },
};
use serde_json::Value;
use store::Snapshot;

/// The policies of a mesh that name SNIs; most name none.
#[derive(Debug, Default)]
pub(super) struct SniMatchers(BTreeMap<Key, Matcher>);

#[derive(Debug, PartialEq, Eq)]
struct Matcher {
    policy: Kri,
    values: BTreeSet<String>,
}

/// True if policies of this kind can name SNIs.
pub(super) fn may_match(kind: Kind) -> bool {
    kind.descriptor().policy.is_some_and(|policy| policy.rules.is_some())
}

impl SniMatchers {
    pub(super) fn apply(&mut self, key: &Key, policy: Option<&Arc<Resource>>) {
        match policy.and_then(|policy| Matcher::of(policy)) {
            Some(matcher) => self.0.insert(key.clone(), matcher),
            None => self.0.remove(key),
        };
    }

    pub(super) fn findings(&self, mesh: &str, stored: &Snapshot) -> Vec<Finding> {
        let one = |matcher: &Matcher, value: &String| -> Vec<Finding> {
            let about = |text| Finding::about(Code::SniNotDialled, matcher.policy.clone(), text);
            matcher.findings(mesh, value, stored).into_iter().map(about).collect()
        };
        let all =
            self.0.values().flat_map(|matcher| matcher.values.iter().map(move |value| (matcher, value)));
        all.flat_map(|(matcher, value)| one(matcher, value)).collect()
    }
}

impl Matcher {
    fn of(policy: &Resource) -> Option<Matcher> {
        // It only pretends to be there.
        if policy.label(labels::EFFECT) == Some("shadow") {
            return None;
        }
        let mut values = BTreeSet::new();
        collect(&policy.spec.to_json()["rules"], &mut values);
        (!values.is_empty()).then_some(Matcher { policy: policy.kri("")?, values })
    }

    /// Problems of a value that the policy names.
    fn findings(&self, mesh: &str, value: &str, stored: &Snapshot) -> Vec<String> {
        let accepting = stored.accepting(value).into_iter();
        let accepting: Vec<&Arc<Resource>> = accepting.filter(|it| it.mesh() == mesh).collect();
        if accepting.is_empty() {
            return vec![format!("the SNI {value:?} leads to no destination of mesh {mesh:?}")];
        }
        let mut findings = BTreeSet::new();
        for destination in accepting {
            let all = sni::accepted(destination);
            let ports: BTreeSet<usize> =
                all.iter().filter(|it| it.value == value).map(|it| it.port_index).collect();
            let dialled = all.iter().filter(|it| it.dialled && ports.contains(&it.port_index));
            for AcceptedSni { value: dialled, section, .. } in
                dialled.filter(|it| !self.values.contains(&it.value))
            {
                let port = destination.kri(section).map(|kri| kri.to_string()).unwrap_or_default();
                findings.insert(format!("clients of {port} dial the SNI {dialled:?} and not {value:?}"));
            }
        }
        findings.into_iter().collect()
    }
}

/// Every value of `sni: {type, value}` in there.
fn collect(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(fields) => {
            found.extend(fields.get("sni").and_then(|sni| sni["value"].as_str()).map(str::to_owned));
            fields.values().for_each(|field| collect(field, found));
        }
        _ => {}
    }
}
