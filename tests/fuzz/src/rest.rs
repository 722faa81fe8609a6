//! Bodies of `PUT`: every kind, with every field, and a few things wrong.

use std::sync::LazyLock;

use anyhow::{Context, ensure};
use rand::{Rng, rngs::StdRng, seq::IndexedRandom};
use resources::{Form, Kind, Scope, format::yaml};
use serde_json::{Map, Value, json};

use crate::{
    mutate,
    server::{Server, fields, is_sound},
};

/// A spec of every kind in which every field occurs; shared with the test that stores lose none.
static EXAMPLES: LazyLock<Value> = LazyLock::new(|| {
    let text = include_str!("../../../crates/resources/tests/it/round_trip/examples.yaml");
    yaml::documents(text).ok().and_then(|mut all| all.pop()).map_or(Value::Null, |first| first.value)
});

/// Sends one body, and looks at what became of it.
pub async fn input(server: &Server, random: &mut StdRng) -> anyhow::Result<()> {
    let kind = *Kind::ALL.choose(random).context("no kinds")?;
    let path = path(kind);
    let body = match random.random_range(0..40) {
        0 => mutate::nested("[", "]"),
        1 => mutate::nested("{\"a\":", "}"),
        _ => mutate::text(&mutate::json(example(kind), random), random),
    };
    let answer = server.api("PUT", &path, body.into()).await?;
    is_sound(&answer)?;
    if !answer.status.is_success() {
        ensure!(fields(&answer).is_ok_and(|it| it["title"].is_string()), "no title: {answer:?}");
        return Ok(());
    }
    comes_back(server, &path).await
}

/// What was accepted can be read, and what was read can be written again.
async fn comes_back(server: &Server, path: &str) -> anyhow::Result<()> {
    let stored = server.api("GET", path, Vec::new().into()).await?;
    ensure!(stored.status.is_success(), "{path} was accepted and is not there: {stored:?}");
    let again = server.api("PUT", path, stored.body.clone()).await?;
    ensure!(again.status.is_success(), "{path} is refused as it was stored: {again:?}, {stored:?}");
    let removed = server.api("DELETE", path, Vec::new().into()).await?;
    is_sound(&removed)
}

fn path(kind: Kind) -> String {
    let table = kind.descriptor();
    match table.scope {
        Scope::Mesh => format!("/meshes/default/{}/fuzzed", table.path),
        Scope::Global => format!("/{}/fuzzed", table.path),
    }
}

/// A whole resource of a kind.
fn example(kind: Kind) -> Value {
    let mut fields =
        Map::from_iter([("type".to_owned(), json!(kind.name())), ("name".to_owned(), json!("fuzzed"))]);
    if kind.descriptor().scope == Scope::Mesh {
        fields.insert("mesh".to_owned(), json!("default"));
    }
    fields.insert("labels".to_owned(), json!({"team": "a"}));
    let spec = EXAMPLES.get(kind.name()).cloned().unwrap_or_else(|| json!({}));
    match (kind.descriptor().form, spec) {
        (Form::Inline, Value::Object(spec)) => fields.extend(spec),
        (_, spec) => drop(fields.insert("spec".to_owned(), spec)),
    }
    Value::Object(fields)
}
