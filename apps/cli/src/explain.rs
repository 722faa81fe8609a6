//! `explain KIND[.FIELD…]`: what a field means, from the schemas that the control plane validates with.

mod schema;

use clap::Args;
use schema::{Field, Schemas};
use serde_json::{Value, json};

use crate::{
    client::ApiClient,
    failure::{Failure, Result},
    output::PlainOutput,
    types::Type,
};

const EXAMPLES: &str = "\
Examples:
  kumactl explain meshtimeout
  kumactl explain meshtimeout.spec.to.default.http
  kumactl explain mesh --recursive";

/// Columns of text; longer descriptions are wrapped.
const WIDTH: usize = 100;

/// Show the fields of a type of resource: their types, defaults and meaning
///
/// Reads the schemas this client was built with. The control plane is asked only about a type that this client does not
/// know. Paths skip lists: meshtimeout.spec.to.default is a field of the entries of `to`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Explain {
    /// Type of the resource, and the path to one of its fields
    #[arg(value_name = "TYPE[.FIELD...]")]
    path: String,
    /// Show the fields below, at any depth, as a tree
    #[arg(short = 'R', long)]
    recursive: bool,
    #[command(flatten)]
    output: PlainOutput,
}

impl Explain {
    pub fn run(&self, client: &ApiClient) -> Result<()> {
        let mut steps = self.path.split('.').map(|step| step.trim_end_matches("[]"));
        let kind = Type::resolve(steps.next().unwrap_or_default(), client)?;
        let known = kind.kind.ok_or_else(|| {
            Failure::invalid(format!(
                "this client has no schema of {}: use one of a newer version",
                kind.name
            ))
        })?;
        let mut schemas = Schemas::new();
        let mut field = schemas.root(known);
        let mut way: Vec<String> = Vec::new();
        for step in steps {
            let below = schemas.below(&field);
            let spec = below.iter().find(|field| way.is_empty() && field.name == "spec");
            let found = match below.iter().find(|field| field.name == step) {
                Some(found) => Some(found.clone()),
                // Everything a user writes is in there, so it may be left out.
                None => spec.and_then(|spec| {
                    let inside = schemas.below(spec).into_iter().find(|field| field.name == step)?;
                    way.push("spec".to_owned());
                    Some(inside)
                }),
            };
            field = found.ok_or_else(|| unknown(&kind.name, &way, step, &below))?;
            way.push(step.to_owned());
        }
        let value = schemas.describe(&field, self.recursive);
        let mut shown = json!({ "type": kind.name, "field": way.join(".") });
        if let (Some(all), Value::Object(fields)) = (shown.as_object_mut(), value) {
            all.extend(fields.into_iter().filter(|(key, _)| key != "name"));
        }
        self.output.show(&shown, || text(&shown, self.recursive))
    }
}

fn unknown(kind: &str, way: &[String], step: &str, below: &[Field]) -> Failure {
    let place = std::iter::once(kind.to_owned()).chain(way.iter().cloned()).collect::<Vec<_>>().join(".");
    if below.is_empty() {
        return Failure::invalid(format!("{place} has no fields, so it has no field {step:?}"));
    }
    let names: Vec<&str> = below.iter().map(|field| field.name.as_str()).collect();
    Failure::invalid(format!("{place} has no field {step:?}; its fields are {}", names.join(", ")))
}

/// The way people read it.
fn text(shown: &Value, recursive: bool) -> String {
    let word = |field: &str| shown[field].as_str().unwrap_or_default();
    let mut out = format!("TYPE:   {}\n", word("type"));
    if !word("field").is_empty() {
        out.push_str(&format!("FIELD:  {} <{}>{}\n", word("field"), word("valueType"), marks(shown)));
    }
    let description = word("description");
    if !description.is_empty() {
        out.push_str(&format!("\n{}", wrapped(description, "")));
    }
    for line in limits(shown) {
        out.push_str(&format!("\n{}", wrapped(&line, "")));
    }
    let fields = shown["fields"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !fields.is_empty() {
        out.push_str("\nFIELDS:\n");
        for field in fields {
            if recursive { tree(field, 1, &mut out) } else { paragraph(field, &mut out) }
        }
    }
    out
}

fn head(field: &Value) -> String {
    let word = |key: &str| field[key].as_str().unwrap_or_default();
    format!("{} <{}>{}", word("name"), word("valueType"), marks(field))
}

fn marks(field: &Value) -> &'static str {
    match (field["required"] == true, field["readOnly"] == true) {
        (true, _) => " required",
        (_, true) => " set by the control plane",
        _ => "",
    }
}

fn paragraph(field: &Value, out: &mut String) {
    out.push_str(&format!("  {}\n", head(field)));
    if let Some(description) = field["description"].as_str() {
        out.push_str(&wrapped(description, "    "));
    }
    for line in limits(field) {
        out.push_str(&wrapped(&line, "    "));
    }
}

fn tree(field: &Value, depth: usize, out: &mut String) {
    out.push_str(&format!("{}{}\n", "  ".repeat(depth), head(field)));
    for below in field["fields"].as_array().into_iter().flatten() {
        tree(below, depth + 1, out);
    }
}

/// Further facts about a field's value, a line each.
fn limits(field: &Value) -> Vec<String> {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut lines = Vec::new();
    if let Some(values) = field["enum"].as_array() {
        lines.push(format!("One of: {}", values.iter().map(plain).collect::<Vec<_>>().join(", ")));
    }
    for (key, label) in
        [("default", "Default"), ("minimum", "Minimum"), ("maximum", "Maximum"), ("pattern", "Pattern")]
    {
        if let Some(value) = field.get(key) {
            lines.push(format!("{label}: {}", plain(value)));
        }
    }
    lines
}

/// Lines of at most [`WIDTH`] columns, each indented.
fn wrapped(text: &str, indent: &str) -> String {
    let mut out = String::new();
    // Lines of a doc comment end where the source is full; only an empty one ends a paragraph.
    for paragraph in text.split("\n\n") {
        let mut length = 0;
        out.push_str(indent);
        for word in paragraph.split_whitespace() {
            if length > 0 && indent.len() + length + 1 + word.chars().count() > WIDTH {
                out.push_str(&format!("\n{indent}"));
                length = 0;
            }
            if length > 0 {
                out.push(' ');
                length += 1;
            }
            out.push_str(word);
            length += word.chars().count();
        }
        out.push('\n');
    }
    out
}
