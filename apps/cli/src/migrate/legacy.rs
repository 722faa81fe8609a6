//! A policy from before `targetRef`, in either form.
//!
//! Values that are only passed on stay as they were written: reading the policy made of them names what is wrong.

pub mod callers;
pub mod calls;
pub mod observability;
pub mod route;
pub mod services;

use std::{collections::BTreeMap, fmt::Display};

use contract::lenient::read_partly;
use resources::{format::universal::DEFAULT_MESH, superseded};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::selector::Tags;
use crate::document::DocumentHeader;

/// A policy to be translated.
#[derive(Debug)]
pub struct Legacy<'a> {
    pub kind: &'static str,
    pub name: String,
    pub mesh: String,
    pub kubernetes: bool,
    pub sources: Vec<Tags>,
    pub destinations: Vec<Tags>,
    /// Proxies of a policy that is not about calls.
    pub selectors: Vec<Tags>,
    spec: &'a Value,
}

impl<'a> Legacy<'a> {
    /// `None` for any other resource.
    pub fn of(document: &'a Value) -> Option<Legacy<'a>> {
        let LegacyDocument { kubernetes, kind, mesh, name, spec } = LegacyDocument::of(document);
        let kind = superseded::by_name(&kind)?.name;
        let Selectors { sources, destinations, selectors } = read_partly(spec);
        let name = name.unwrap_or_default();
        let tags = |selectors: Vec<Partly<Selector>>| -> Vec<Tags> {
            selectors.into_iter().map(|selector| selector.0.matched).collect()
        };
        Some(Legacy {
            kind,
            name,
            mesh,
            kubernetes,
            sources: tags(sources),
            destinations: tags(destinations),
            selectors: tags(selectors),
            spec,
        })
    }

    /// The fields beside `conf`.
    pub fn spec<T: DeserializeOwned + Default>(&self) -> T {
        read_partly(self.spec)
    }

    pub fn conf<T: DeserializeOwned + Default>(&self) -> T {
        self.spec::<WithConf<T>>().conf
    }
}

/// Type, name and spec of a resource in either form.
#[derive(Debug)]
pub struct LegacyDocument<'a> {
    pub kubernetes: bool,
    pub kind: String,
    pub mesh: String,
    pub name: Option<String>,
    pub spec: &'a Value,
}

impl<'a> LegacyDocument<'a> {
    pub fn of(document: &'a Value) -> LegacyDocument<'a> {
        let header = DocumentHeader::of(document);
        let kubernetes = header.is_kubernetes();
        let kind = header.kind().to_owned();
        let DocumentHeader { mesh, name, metadata, .. } = header;
        LegacyDocument {
            kubernetes,
            kind,
            mesh: if mesh.is_empty() { DEFAULT_MESH.to_owned() } else { mesh },
            name: if kubernetes { metadata.name } else { name },
            spec: if kubernetes { document.get("spec").unwrap_or(&Value::Null) } else { document },
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Selectors {
    sources: Vec<Partly<Selector>>,
    destinations: Vec<Partly<Selector>>,
    selectors: Vec<Partly<Selector>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Selector {
    #[serde(rename = "match")]
    matched: Tags,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WithConf<T> {
    conf: T,
}

/// A part that counts as empty, not as absent, if it is not what it should be.
#[derive(Debug, Default)]
pub struct Partly<T>(pub T);

impl<'de, T: DeserializeOwned + Default> Deserialize<'de> for Partly<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Partly(read_partly(&Value::deserialize(deserializer)?)))
    }
}

impl<T: Serialize> Serialize for Partly<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        given(&self.0).serialize(serializer)
    }
}

/// Tags by name.
pub type TagValues = BTreeMap<String, String>;

/// The fields of a part that are given, under the names of its successor.
pub fn given<T: Serialize>(part: &T) -> Map<String, Value> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(part) else { return Map::new() };
    fields.retain(|_, value| !value.is_null());
    fields
}

/// Reads a part that says anything: an object with fields, whatever they are. Any other part counts as absent.
fn said<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let part = Value::deserialize(deserializer)?;
    let says_anything = part.as_object().is_some_and(|fields| !fields.is_empty());
    Ok(says_anything.then(|| read_partly(&part)))
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
    pub fn nothing(why: impl Display) -> Translation {
        Translation { policies: Vec::new(), notes: vec![why.to_string()] }
    }

    pub fn note(&mut self, note: impl Display) {
        let note = note.to_string();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    pub fn add(&mut self, kind: &'static str, spec: Value) {
        self.policies.push((kind, spec));
    }
}
