//! Recorded results of Go's text/template (1.26): the text, or an error of parsing or executing.

use std::sync::Arc;

use gotmpl::{Template, Value};
use serde::Deserialize;

use super::{compile, render};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    template: String,
    text: Option<String>,
    parse: Option<String>,
    execute: Option<String>,
}

const DATA: [(&str, &str); 5] =
    [("empty", ""), ("port", "8080"), ("service", "backend"), ("version", "v1"), ("zone", "east")];

fn data() -> Value {
    let values = DATA.map(|(name, value)| (Arc::from(name), Value::String(value.into())));
    Value::Map(Arc::new(values.into_iter().collect()))
}

/// Result of a template.
#[derive(Debug, PartialEq)]
enum TemplateResult {
    Text(String),
    /// Nothing can be rendered, and the line where that is seen.
    NotParsed(String),
    NotRendered,
}

fn ours(template: &str) -> TemplateResult {
    match compile(Template::new(""), template, &[]) {
        Err(error) => TemplateResult::NotParsed(line(&error.message)),
        Ok(compiled) => render(&compiled, &data()).map_or(TemplateResult::NotRendered, TemplateResult::Text),
    }
}

/// `template: :2: …` is about line 2. The rest is often said in other words.
fn line(message: &str) -> String {
    message.split(':').nth(2).unwrap_or_default().to_owned()
}

#[test]
fn templates_come_out_as_in_go() {
    let vectors: Vec<Vector> = serde_json::from_str(include_str!("vectors.json")).unwrap();
    let mut wrong = Vec::new();
    for Vector { template, text, parse, execute } in vectors {
        let go = match (text, parse, execute) {
            (Some(text), None, None) => TemplateResult::Text(text),
            (None, Some(error), None) => TemplateResult::NotParsed(line(&error)),
            (None, None, Some(_)) => TemplateResult::NotRendered,
            other => panic!("{template}: {other:?}"),
        };
        let ours = ours(&template);
        if ours != go {
            wrong.push(format!("{template:?}: {go:?} in Go, {ours:?} here"));
        }
    }
    assert_eq!(wrong, KNOWN, "{}", wrong.join("\n"));
}

/// Known differences: templates without meaning that Go accepts, and errors that it notices later.
const KNOWN: [&str; 2] = [
    r#""{{$x = 1}}": NotRendered in Go, NotParsed("1") here"#,
    r#""{{. | }}": Text("map[empty: port:8080 service:backend version:v1 zone:east]") in Go, NotParsed("1") here"#,
];
