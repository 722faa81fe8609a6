//! The store of the demo: keys and values in memory, over HTTP.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Path, State},
    middleware,
    response::{IntoResponse, Response},
    routing::get,
};
use http::StatusCode;
use serde_json::{Value, json};

use crate::{faults, serve};

/// A demo that runs for weeks must not fill the memory.
const MOST_KEYS: usize = 10_000;
const LONGEST_BODY: usize = 64 * 1024;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Address to listen at.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:5051")]
    listen: SocketAddr,
    /// Name in answers.
    #[arg(long, default_value = "kv")]
    name: String,
}

#[derive(Debug, Clone)]
struct Values {
    by_key: Arc<Mutex<BTreeMap<String, Value>>>,
    /// Name of the store in answers, where there are several.
    store: Arc<str>,
}

impl Values {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Value>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shown(&self, status: StatusCode, value: &Value) -> Response {
        (status, Json(json!({ "value": value, "store": &*self.store }))).into_response()
    }
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let values = Values { by_key: Arc::default(), store: options.name.as_str().into() };
    let router = Router::new()
        .route("/api/key-value", get(list))
        .route("/api/key-value/{key}", get(read).put(replace).post(add).delete(remove))
        .with_state(values)
        .layer(DefaultBodyLimit::max(LONGEST_BODY))
        .layer(middleware::from_fn(faults::obey))
        .merge(serve::about(options.name.clone()));
    serve::http(&options.name, options.listen, router).await
}

async fn list(State(values): State<Values>) -> Json<Value> {
    Json(json!({ "keys": values.lock().keys().collect::<Vec<_>>() }))
}

async fn read(State(values): State<Values>, Path(key): Path<String>) -> Response {
    match values.lock().get(&key) {
        Some(value) => values.shown(StatusCode::OK, value),
        None => unknown(&key),
    }
}

/// `PUT {"value": …}` sets a key whatever it was.
async fn replace(State(values): State<Values>, Path(key): Path<String>, Json(body): Json<Value>) -> Response {
    let Some(value) = body.get("value") else { return without("value") };
    let mut by_key = values.lock();
    let full = by_key.len() >= MOST_KEYS;
    match by_key.entry(key) {
        Entry::Occupied(mut known) => {
            known.insert(value.clone());
            values.shown(StatusCode::OK, value)
        }
        Entry::Vacant(_) if full => refused(),
        Entry::Vacant(room) => values.shown(StatusCode::CREATED, room.insert(value.clone())),
    }
}

/// `POST {"add": n}` adds to a number in one step, so that no two callers count the same visit.
async fn add(State(values): State<Values>, Path(key): Path<String>, Json(body): Json<Value>) -> Response {
    let Some(step) = body.get("add").and_then(Value::as_i64) else { return without("add") };
    let mut by_key = values.lock();
    let full = by_key.len() >= MOST_KEYS;
    let number = match by_key.entry(key) {
        Entry::Vacant(_) if full => return refused(),
        entry => entry.or_insert(json!(0)),
    };
    match number.as_i64().and_then(|before| before.checked_add(step)) {
        Some(sum) => {
            *number = json!(sum);
            values.shown(StatusCode::OK, number)
        }
        None => (StatusCode::CONFLICT, format!("cannot add {step} to {number}\n")).into_response(),
    }
}

async fn remove(State(values): State<Values>, Path(key): Path<String>) -> Response {
    match values.lock().remove(&key) {
        Some(value) => values.shown(StatusCode::OK, &value),
        None => unknown(&key),
    }
}

fn unknown(key: &str) -> Response {
    (StatusCode::NOT_FOUND, format!("no value for {key:?}\n")).into_response()
}

fn without(field: &str) -> Response {
    (StatusCode::BAD_REQUEST, format!("the body must be a JSON object with {field:?}\n")).into_response()
}

fn refused() -> Response {
    let message = format!("there are {MOST_KEYS} keys already\n");
    (StatusCode::INSUFFICIENT_STORAGE, message).into_response()
}
