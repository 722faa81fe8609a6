//! `explain KIND[.FIELD…]`: what a field means, from the schemas that the control plane validates with.

mod schema;

use clap::Args;
use schema::{Field, FieldDescription, Schemas};
use serde::Serialize;
use serde_json::Value;

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
        let about = schemas.describe(&field, self.recursive);
        let about = Explained { r#type: kind.name.clone(), field: way.join("."), about };
        let shown = serde_json::to_value(&about).unwrap_or_default();
        self.output.show(&shown, || text(&about, self.recursive))
    }
}

/// A field of a type.
#[derive(Debug, Serialize)]
struct Explained {
    r#type: String,
    /// The path to it; empty for the resource as a whole.
    field: String,
    #[serde(flatten)]
    about: FieldDescription,
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
fn text(shown: &Explained, recursive: bool) -> String {
    let Explained { r#type, field, about } = shown;
    let mut out = format!("TYPE:   {type}\n");
    if !field.is_empty() {
        out.push_str(&format!("FIELD:  {field} <{}>{}\n", about.value_type, marks(about)));
    }
    if let Some(description) = &about.description {
        out.push_str(&format!("\n{}", wrapped(description, "")));
    }
    for line in limits(about) {
        out.push_str(&format!("\n{}", wrapped(&line, "")));
    }
    if !about.fields.is_empty() {
        out.push_str("\nFIELDS:\n");
        for field in &about.fields {
            if recursive { tree(field, 1, &mut out) } else { paragraph(field, &mut out) }
        }
    }
    out
}

fn head(field: &FieldDescription) -> String {
    format!("{} <{}>{}", field.name.as_deref().unwrap_or_default(), field.value_type, marks(field))
}

fn marks(field: &FieldDescription) -> &'static str {
    if field.required {
        " required"
    } else if field.read_only {
        " set by the control plane"
    } else {
        ""
    }
}

fn paragraph(field: &FieldDescription, out: &mut String) {
    out.push_str(&format!("  {}\n", head(field)));
    if let Some(description) = &field.description {
        out.push_str(&wrapped(description, "    "));
    }
    for line in limits(field) {
        out.push_str(&wrapped(&line, "    "));
    }
}

fn tree(field: &FieldDescription, depth: usize, out: &mut String) {
    out.push_str(&format!("{}{}\n", "  ".repeat(depth), head(field)));
    for below in &field.fields {
        tree(below, depth + 1, out);
    }
}

/// Further facts about a field's value, a line each.
fn limits(field: &FieldDescription) -> Vec<String> {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut lines = Vec::new();
    if let Some(values) = &field.r#enum {
        lines.push(format!("One of: {}", values.iter().map(plain).collect::<Vec<_>>().join(", ")));
    }
    for (label, value) in [
        ("Default", &field.default),
        ("Minimum", &field.minimum),
        ("Maximum", &field.maximum),
        ("Pattern", &field.pattern),
    ] {
        lines.extend(value.iter().map(|value| format!("{label}: {}", plain(value))));
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
