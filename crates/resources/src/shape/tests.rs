use super::node::{Node, Pattern};
use crate::Kind;

/// Finds patterns that no [`Pattern`] stands for: they would not be checked.
fn unknown_patterns(schema: &serde_json::Value, unknown: &mut Vec<String>) {
    match schema {
        serde_json::Value::Object(fields) => {
            if let Some(pattern) = fields.get("pattern").and_then(|pattern| pattern.as_str())
                && Pattern::by_text(pattern).is_none()
            {
                unknown.push(pattern.to_owned());
            }
            fields.values().for_each(|inner| unknown_patterns(inner, unknown));
        }
        serde_json::Value::Array(items) => items.iter().for_each(|inner| unknown_patterns(inner, unknown)),
        _ => {}
    }
}

#[test]
fn every_pattern_in_a_schema_is_checked() {
    for &kind in Kind::ALL {
        let mut generator = schemars::SchemaGenerator::default();
        kind.json_schema(&mut generator);
        let mut unknown = Vec::new();
        for definition in generator.take_definitions(true).values() {
            unknown_patterns(definition, &mut unknown);
        }
        assert_eq!(unknown, Vec::<String>::new(), "{kind}");
    }
}

#[test]
fn patterns_match_what_their_regular_expressions_do() {
    for (pattern, value, expect) in [
        (Pattern::Hostname, "a", true),
        (Pattern::Hostname, "a-b.c0", true),
        (Pattern::Hostname, "", false),
        (Pattern::Hostname, "A", false),
        (Pattern::Hostname, "a..b", false),
        (Pattern::Hostname, "-a", false),
        (Pattern::Hostname, "a_b", false),
        (Pattern::HeaderName, "x-`!#", true),
        (Pattern::HeaderName, "", false),
        (Pattern::HeaderName, "X", false),
        (Pattern::HeaderName, "a b", false),
        (Pattern::AttributeName, "a.b_c0", true),
        (Pattern::AttributeName, "", false),
        (Pattern::AttributeName, "0a", false),
        (Pattern::AttributeName, "a._b", false),
        (Pattern::AttributeName, "a.", false),
        (Pattern::AttributeName, "a-b", false),
    ] {
        assert_eq!(pattern.matches(value), expect, "{pattern:?} {value:?}");
    }
}

#[test]
fn every_required_field_is_one_the_kind_has() {
    fn check(node: &Node, path: &str) {
        for field in &node.required {
            assert!(node.fields.contains_key(field), "{path}.{field}");
        }
        node.fields.iter().for_each(|(field, inner)| check(inner, &format!("{path}.{field}")));
        node.items.iter().chain(&node.values).for_each(|inner| check(inner, path));
    }
    for &kind in Kind::ALL {
        check(&Node::of(kind), kind.name());
    }
}
