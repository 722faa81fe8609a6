//! Choice between the older and the unified names of a proxy: by a label, or else by the proxy's agent.
//!
//! The label `features.kuma.io/unified-proxy-resources-and-stats-naming` of a Dataplane, ZoneIngress or ZoneEgress counts
//! more than that of the Mesh, and that more than the feature that the agent announces. Values other than `enabled` and
//! `disabled` are ignored.

use serde_json::{Value, json};

use super::{UNIFIED_NAMING, unified_naming};
use crate::{Labels, kinds::proto::Struct, labels};

/// Names of a proxy, and the place that sets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NamingChoice {
    pub unified: bool,
    pub set_by: NamingSource,
}

/// Place that sets the names of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NamingSource {
    /// The label of its own resource.
    Proxy,
    /// The label of its Mesh.
    Mesh,
    /// The feature that its agent announces, or not.
    Agent,
}

impl NamingSource {
    pub const ALL: [NamingSource; 3] = [NamingSource::Proxy, NamingSource::Mesh, NamingSource::Agent];

    pub fn word(self) -> &'static str {
        match self {
            NamingSource::Proxy => "proxy",
            NamingSource::Mesh => "mesh",
            NamingSource::Agent => "agent",
        }
    }

    pub fn from_word(word: &str) -> Option<NamingSource> {
        NamingSource::ALL.into_iter().find(|source| source.word() == word)
    }
}

/// Values of the label, and the names that each stands for.
const VALUES: [(&str, bool); 2] = [("enabled", true), ("disabled", false)];

impl NamingChoice {
    /// Returns the choice of labels: those of the proxy's resource, and of its Mesh where it has one.
    pub fn by_labels(own: &Labels, mesh: Option<&Labels>) -> Option<NamingChoice> {
        let of_proxy = by_label(own).map(|unified| NamingChoice { unified, set_by: NamingSource::Proxy });
        let of_mesh =
            || mesh.and_then(by_label).map(|unified| NamingChoice { unified, set_by: NamingSource::Mesh });
        of_proxy.or_else(of_mesh)
    }

    /// The choice of an agent, for proxies without a label.
    pub fn of_agent(unified: bool) -> NamingChoice {
        NamingChoice { unified, set_by: NamingSource::Agent }
    }
}

fn by_label(labels: &Labels) -> Option<bool> {
    read(labels.get(labels::UNIFIED_NAMING)?)
}

fn read(value: &str) -> Option<bool> {
    VALUES.into_iter().find_map(|(word, unified)| (word == value).then_some(unified))
}

/// Returns the complaint about a value of the label that is ignored.
pub fn unknown_value(labels: &Labels) -> Option<String> {
    let value = labels.get(labels::UNIFIED_NAMING).filter(|value| read(value).is_none())?;
    let known = VALUES.map(|(word, _)| word).join(", ");
    Some(format!("the label {} has the value {value:?}, which is not one of {known}", labels::UNIFIED_NAMING))
}

/// Entry of an insight's metadata about names that labels set.
pub const ENTRY: &str = "naming";
const FEATURES: &str = "features";

/// Names of a proxy on record, and those that its agent announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedNaming {
    pub in_effect: NamingChoice,
    pub agent_unified: bool,
}

impl RecordedNaming {
    /// Reads the metadata of an insight; `None` for a proxy that never announced a feature.
    pub fn read(metadata: &Struct) -> Option<RecordedNaming> {
        let features = features(metadata)?;
        let unified = unified_naming(features.iter().filter_map(Value::as_str));
        let entry = metadata.get(ENTRY);
        let word = |name: &str| entry.and_then(|entry| entry.get(name)).and_then(Value::as_str);
        let set_by = word("setBy").and_then(NamingSource::from_word).unwrap_or(NamingSource::Agent);
        let agent_unified = word("agent").map_or(unified, |agent| agent == scheme(true));
        Some(RecordedNaming { in_effect: NamingChoice { unified, set_by }, agent_unified })
    }

    /// Lets the features in an insight's metadata say the names in effect: tools decide by them how to read names. What
    /// the agent announced is kept beside them while it differs in origin.
    pub fn write(in_effect: NamingChoice, metadata: &mut Struct) {
        let agent_unified = RecordedNaming::read(metadata).is_some_and(|recorded| recorded.agent_unified);
        let mut features = features(metadata).cloned().unwrap_or_default();
        let said = unified_naming(features.iter().filter_map(Value::as_str));
        if said && !in_effect.unified {
            features.retain(|feature| !feature.as_str().is_some_and(|name| UNIFIED_NAMING.contains(&name)));
        } else if in_effect.unified && !said {
            features.extend(UNIFIED_NAMING.map(Value::from));
        }
        if said != in_effect.unified {
            metadata.insert(FEATURES.to_owned(), features.into());
        }
        if in_effect.set_by == NamingSource::Agent {
            metadata.remove(ENTRY);
            return;
        }
        let agent = scheme(agent_unified);
        let entry =
            json!({ "scheme": scheme(in_effect.unified), "setBy": in_effect.set_by.word(), "agent": agent });
        metadata.insert(ENTRY.to_owned(), entry);
    }
}

fn features(metadata: &Struct) -> Option<&Vec<Value>> {
    metadata.get(FEATURES).and_then(Value::as_array)
}

/// Word for older or unified names, in metadata, metrics and tables.
pub fn scheme(unified: bool) -> &'static str {
    if unified { "unified" } else { "legacy" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_on_record_say_the_names_in_effect_and_come_back() {
        let metadata = |features: &[&str]| {
            let mut metadata = Struct::new();
            metadata.insert("features".to_owned(), json!(features));
            metadata
        };
        for announced in
            [&["feature-delta-grpc"][..], &["feature-delta-grpc", UNIFIED_NAMING[0], UNIFIED_NAMING[1]]]
        {
            let agent = announced.len() > 1;
            let mut record = metadata(announced);
            for set_by in [NamingSource::Mesh, NamingSource::Proxy] {
                for unified in [true, false, true] {
                    let in_effect = NamingChoice { unified, set_by };
                    RecordedNaming::write(in_effect, &mut record);
                    let features: Vec<&str> =
                        record["features"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
                    assert_eq!(features.contains(&UNIFIED_NAMING[0]), unified, "{record:?}");
                    let read = RecordedNaming::read(&record).unwrap();
                    assert_eq!(read, RecordedNaming { in_effect, agent_unified: agent });
                }
            }
            RecordedNaming::write(NamingChoice::of_agent(agent), &mut record);
            assert_eq!(record, metadata(announced), "without a label the record is that of the agent");
        }
        assert_eq!(RecordedNaming::read(&Struct::new()), None);
    }

    fn labels(value: &str) -> Labels {
        [(labels::UNIFIED_NAMING.to_owned(), value.to_owned())]
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .collect()
    }

    #[test]
    fn the_label_of_a_proxy_counts_more_than_that_of_its_mesh() {
        let by = |own: &str, mesh: &str| {
            let choice = NamingChoice::by_labels(&labels(own), Some(&labels(mesh)))?;
            Some((choice.unified, choice.set_by))
        };
        assert_eq!(by("disabled", "enabled"), Some((false, NamingSource::Proxy)));
        assert_eq!(by("enabled", "disabled"), Some((true, NamingSource::Proxy)));
        assert_eq!(by("", "enabled"), Some((true, NamingSource::Mesh)));
        assert_eq!(by("", "disabled"), Some((false, NamingSource::Mesh)));
        assert_eq!(by("true", "enabled"), Some((true, NamingSource::Mesh)), "unknown values are ignored");
        assert_eq!(by("Enabled", ""), None);
        assert_eq!(NamingChoice::by_labels(&labels(""), None), None);
    }

    #[test]
    fn an_unknown_value_is_complained_about_with_those_that_are_known() {
        assert_eq!(unknown_value(&labels("enabled")), None);
        assert_eq!(unknown_value(&labels("")), None);
        let complaint = unknown_value(&labels("yes")).unwrap();
        assert!(
            complaint.ends_with("has the value \"yes\", which is not one of enabled, disabled"),
            "{complaint}"
        );
    }
}
