//! The rows of policies agree with the specs they are about.

use resources::{Kind, Spec, policy::ConfAt};
use schemars::SchemaGenerator;
use serde_json::{Value, json};

/// The fields of a kind's spec.
fn fields(kind: Kind) -> Value {
    let mut generator = SchemaGenerator::default();
    let reference = kind.json_schema(&mut generator).to_value();
    let name = reference["$ref"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    generator.take_definitions(true)[&name]["properties"].clone()
}

#[test]
fn a_row_names_the_lists_that_the_spec_has() {
    for &kind in Kind::POLICIES {
        let row = kind.descriptor().policy.unwrap();
        let said = [
            ("targetRef", row.top.is_some()),
            ("to", row.to.is_some()),
            ("from", row.from.is_some()),
            ("rules", row.rules.is_some()),
            ("default", row.default),
        ];
        for (field, said) in said {
            assert_eq!(fields(kind).get(field).is_some(), said, "{kind}.{field}");
        }
    }
}

#[test]
fn a_row_says_where_entries_keep_their_conf() {
    for &kind in Kind::POLICIES {
        let row = kind.descriptor().policy.unwrap();
        for (list, entries) in [("to", row.to), ("from", row.from)] {
            let Some(entries) = entries else { continue };
            let mut unknown = Vec::new();
            let spec = json!({ list: [{ "targetRef": { "kind": "Mesh" }, "default": {} }] });
            Spec::from_json(kind, spec, &mut unknown).unwrap();
            assert_eq!(unknown.is_empty(), entries.conf == ConfAt::Default, "{kind}.{list}: {unknown:?}");
        }
    }
}

#[test]
fn every_kind_with_a_target_ref_is_among_the_policies() {
    for &kind in Kind::ALL {
        let row = kind.descriptor().policy;
        assert_eq!(Kind::POLICIES.contains(&kind), row.is_some_and(|row| row.top.is_some()), "{kind}");
        let spec = Spec::from_json(kind, json!({}), &mut Vec::new());
        let has_reference = spec.is_ok_and(|spec| spec.target_ref().is_some());
        assert_eq!(has_reference, Kind::POLICIES.contains(&kind), "{kind}");
        if let Some(effect) = row.and_then(|row| row.effect) {
            assert!(!effect.sides.is_empty(), "{kind} has an effect on nothing");
        }
    }
}
