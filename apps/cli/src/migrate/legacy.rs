//! A policy from before `targetRef`, in either form.

use resources::{format::universal::DEFAULT_MESH, superseded};
use serde_json::Value;

use super::selector::Tags;

/// A policy to be translated.
#[derive(Debug)]
pub struct Legacy<'a> {
    pub kind: &'static str,
    pub name: &'a str,
    pub mesh: &'a str,
    pub kubernetes: bool,
    /// `sources`, `destinations`, `conf`, ….
    pub spec: &'a Value,
}

impl<'a> Legacy<'a> {
    /// `None` for any other resource.
    pub fn of(value: &'a Value) -> Option<Legacy<'a>> {
        let kubernetes = value.get("apiVersion").is_some();
        let text = |value: &'a Value| value.as_str().unwrap_or_default();
        let kind = superseded::by_name(text(&value[if kubernetes { "kind" } else { "type" }]))?.name;
        let name = text(if kubernetes { &value["metadata"]["name"] } else { &value["name"] });
        let mesh = value["mesh"].as_str().filter(|mesh| !mesh.is_empty()).unwrap_or(DEFAULT_MESH);
        let spec = if kubernetes { &value["spec"] } else { value };
        Some(Legacy { kind, name, mesh, kubernetes, spec })
    }

    pub fn conf(&self) -> &'a Value {
        &self.spec["conf"]
    }

    pub fn sources(&self) -> Vec<Tags> {
        self.selectors("sources")
    }

    pub fn destinations(&self) -> Vec<Tags> {
        self.selectors("destinations")
    }

    pub fn selectors(&self, field: &str) -> Vec<Tags> {
        let selectors = self.spec[field].as_array().into_iter().flatten();
        selectors.map(|selector| Tags::of(&selector["match"])).collect()
    }
}

/// Translation of a policy.
#[derive(Debug, Default)]
pub struct Translation {
    /// Specs with the kinds they are of.
    pub policies: Vec<(&'static str, Value)>,
    /// Differences and parts without an equivalent, with reasons.
    pub notes: Vec<String>,
}

impl Translation {
    pub fn nothing(why: impl Into<String>) -> Translation {
        Translation { policies: Vec::new(), notes: vec![why.into()] }
    }

    pub fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    pub fn add(&mut self, kind: &'static str, spec: Value) {
        self.policies.push((kind, spec));
    }
}

/// Copies fields that are given, under other names.
pub fn renamed(from: &Value, fields: &[(&str, &str)]) -> Value {
    let given = fields.iter().filter_map(|(old, new)| {
        let value = from.get(*old).filter(|value| !value.is_null())?;
        Some(((*new).to_owned(), value.clone()))
    });
    Value::Object(given.collect())
}

/// True for an object that says anything.
pub fn says_something(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| !fields.is_empty())
}
