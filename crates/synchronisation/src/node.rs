//! The node with which a control plane identifies itself.

use kds::wire;
use prost_types::{ListValue, Struct, Value, value::Kind};
use resources::kinds::zone_insight::{KumaCpVersion, ZoneVersion};

/// Features of this implementation.
const FEATURES: [&str; 6] = [
    "zone-token",
    "hash-suffix",
    "hg-mz-selector",
    PRODUCER_POLICIES,
    "optional-top-level-target-ref",
    PARTS,
];
const PRODUCER_POLICIES: &str = "producer-policy-flow";
/// Takes a complete set in parts. Kuma does not know it, and ignores it.
const PARTS: &str = "complete-sets-in-parts";

const VERSION: &str = "version";
const KUMA_CP: &str = "kumaCp";
const CONFIG: &str = "config";
const INSTANCE: &str = "control-plane-id";
const FEATURE_LIST: &str = "features";

/// Bytes that are kept of each text of a peer about itself: it is stored with every connection.
const LONGEST_TEXT: usize = 256;
const LONGEST_CONFIG: usize = 256 << 10;

/// Introduction of a peer, in its own words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Introduction {
    pub version: ZoneVersion,
    /// JSON, from zones only.
    pub config: String,
    pub instance_id: String,
    pub producer_policies: bool,
    /// True if it takes a complete set in parts.
    pub parts: bool,
}

/// The project that a control plane is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Implementation {
    Kuma,
    KumaRs,
}

impl Introduction {
    /// Both call their versions alike; only kuma-rs takes complete sets in parts.
    pub fn implementation(&self) -> Implementation {
        if self.parts { Implementation::KumaRs } else { Implementation::Kuma }
    }
}

/// The node of this control plane in the streams of a zone.
pub fn ours(zone: &str, instance_id: &str, version: &str, config: String) -> wire::Node {
    let version = fields([
        ("version", text(version)),
        ("gitTag", text("")),
        ("gitCommit", text("")),
        ("buildDate", text("")),
    ]);
    let features = ListValue { values: FEATURES.into_iter().map(text).collect() };
    let metadata = Struct {
        fields: [
            (VERSION, fields([(KUMA_CP, version)])),
            (CONFIG, text(config)),
            (INSTANCE, text(instance_id)),
            (FEATURE_LIST, Value { kind: Some(Kind::ListValue(features)) }),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into(),
    };
    wire::Node { id: zone.to_owned(), cluster: String::new(), metadata: Some(metadata) }
}

pub fn read(node: &wire::Node) -> Introduction {
    let none = Struct::default();
    let metadata = node.metadata.as_ref().unwrap_or(&none);
    let kuma_cp = below(metadata, VERSION).and_then(|version| below(version, KUMA_CP));
    let kuma_cp = kuma_cp.map(|version| KumaCpVersion {
        version: string(version, "version"),
        git_tag: string(version, "gitTag"),
        git_commit: string(version, "gitCommit"),
        build_date: string(version, "buildDate"),
        kuma_cp_global_compatible: true,
    });
    let features = match metadata.fields.get(FEATURE_LIST).and_then(|value| value.kind.as_ref()) {
        Some(Kind::ListValue(list)) => list.values.as_slice(),
        _ => &[],
    };
    let has = |name: &str| {
        features
            .iter()
            .any(|feature| matches!(&feature.kind, Some(Kind::StringValue(known)) if known == name))
    };
    Introduction {
        version: ZoneVersion { kuma_cp },
        config: bounded(metadata, CONFIG, LONGEST_CONFIG),
        instance_id: string(metadata, INSTANCE),
        producer_policies: has(PRODUCER_POLICIES),
        parts: has(PARTS),
    }
}

fn text(text: impl Into<String>) -> Value {
    Value { kind: Some(Kind::StringValue(text.into())) }
}

fn fields<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let fields = fields.map(|(name, value)| (name.to_owned(), value)).into();
    Value { kind: Some(Kind::StructValue(Struct { fields })) }
}

fn below<'a>(within: &'a Struct, name: &str) -> Option<&'a Struct> {
    match within.fields.get(name)?.kind.as_ref()? {
        Kind::StructValue(found) => Some(found),
        _ => None,
    }
}

fn string(within: &Struct, name: &str) -> String {
    bounded(within, name, LONGEST_TEXT)
}

/// Nothing where there is too much: half a JSON is of no use.
fn bounded(within: &Struct, name: &str, longest: usize) -> String {
    match within.fields.get(name).and_then(|value| value.kind.as_ref()) {
        Some(Kind::StringValue(text)) if text.len() <= longest => text.clone(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_control_plane_says_about_itself_is_read_as_it_was_said() {
        let said = read(&ours("east", "east-1", "2.14.3", "{}".to_owned()));
        assert_eq!(said.implementation(), Implementation::KumaRs);
        assert_eq!(said.version.kuma_cp.unwrap().version, "2.14.3");
        assert_eq!((said.config.as_str(), said.instance_id.as_str()), ("{}", "east-1"));
        assert!(said.producer_policies && said.parts);
    }

    #[test]
    fn a_peer_that_says_too_much_is_not_quoted() {
        let said = read(&ours("east", &"a".repeat(1 << 20), "2.14.3", "b".repeat(1 << 20)));
        assert_eq!(said.version.kuma_cp.unwrap().version, "2.14.3");
        assert_eq!((said.config.as_str(), said.instance_id.as_str()), ("", ""));
    }

    #[test]
    fn a_peer_that_says_nothing_is_read_as_that() {
        assert_eq!(read(&wire::Node::default()), Introduction::default());
        assert_eq!(Introduction::default().implementation(), Implementation::Kuma);
    }
}
