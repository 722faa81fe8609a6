//! The web page of the demo: it shows a counter and counts, in the store that `--kv` names.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::State,
    middleware,
    response::{Html, IntoResponse, Response},
    routing::get,
};
use http::{HeaderMap, HeaderName, Method, StatusCode, Uri};
use serde_json::{Value, json};

use crate::{
    client::{self, HttpClient},
    faults, serve,
};

const PAGE: &str = include_str!("web/page.html");
const KEY: &str = "/api/key-value/counter";
/// Longer than the longest delay that can be forced, so that it is the mesh that times out.
const PATIENCE: Duration = Duration::from_secs(310);

/// `x-kv-set-response-…` reaches the store as `x-set-response-…`: a fault behind the mesh.
const FOR_THE_STORE: &str = "x-kv-";

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Address to listen at.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:5050")]
    listen: SocketAddr,
    /// URL of the store, such as http://kv.svc.mesh.local:5050.
    #[arg(long, value_name = "URL", value_parser = client::parse_url)]
    kv: Uri,
    /// The DNS server that knows the store's name, such as that of the agent beside this page; without it the machine's.
    #[arg(long, value_name = "ADDR")]
    dns: Option<SocketAddr>,
    /// Name in answers.
    #[arg(long, default_value = "web")]
    name: String,
}

#[derive(Debug)]
struct Store {
    client: HttpClient,
    counter: Uri,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let counter = client::below(&options.kv, KEY)?;
    let store = Arc::new(Store { client: HttpClient::new(PATIENCE, options.dns), counter });
    let router = Router::new()
        .route("/", get(page))
        .route("/api/counter", get(read).post(increment).delete(reset))
        .with_state(store)
        .layer(middleware::from_fn(faults::obey))
        .merge(serve::about(options.name.clone()));
    serve::http(&options.name, options.listen, router).await
}

async fn page(State(store): State<Arc<Store>>, headers: HeaderMap) -> Html<String> {
    let shown = match store.ask(Method::GET, &headers, None).await {
        Ok(counted) => counted.counter.to_string(),
        Err(_) => "?".to_owned(),
    };
    Html(PAGE.replace("{{counter}}", &shown))
}

async fn read(State(store): State<Arc<Store>>, headers: HeaderMap) -> Response {
    answer(store.ask(Method::GET, &headers, None).await)
}

async fn increment(State(store): State<Arc<Store>>, headers: HeaderMap) -> Response {
    answer(store.ask(Method::POST, &headers, Some(json!({ "add": 1 }))).await)
}

async fn reset(State(store): State<Arc<Store>>, headers: HeaderMap) -> Response {
    answer(store.ask(Method::PUT, &headers, Some(json!({ "value": 0 }))).await)
}

fn answer(asked: Result<StoreAnswer, StoreFailure>) -> Response {
    match asked {
        Ok(StoreAnswer { counter, store: Some(store) }) => {
            Json(json!({ "counter": counter, "store": store })).into_response()
        }
        Ok(StoreAnswer { counter, store: None }) => Json(json!({ "counter": counter })).into_response(),
        Err(trouble) => (trouble.status, Json(json!({ "error": trouble.message }))).into_response(),
    }
}

/// Answer of a store, and its name, if it sends one.
struct StoreAnswer {
    counter: i64,
    store: Option<String>,
}

/// Reason why the store did not answer with a number. The page passes on a status of the store or of the
/// mesh, so that it shows what the mesh does.
#[derive(Debug)]
struct StoreFailure {
    status: StatusCode,
    message: String,
}

impl Store {
    async fn ask(
        &self,
        method: Method,
        headers: &HeaderMap,
        body: Option<Value>,
    ) -> Result<StoreAnswer, StoreFailure> {
        let reading = method == Method::GET;
        let body = body.map(|body| body.to_string());
        let called = self.client.call(method, self.counter.clone(), for_the_store(headers), body).await;
        let (status, text) = called.map_err(|error| {
            tracing::warn!("{error:#}");
            StoreFailure { status: StatusCode::BAD_GATEWAY, message: format!("{error:#}") }
        })?;
        if reading && status == StatusCode::NOT_FOUND && text.starts_with("no value") {
            return Ok(StoreAnswer { counter: 0, store: None });
        }
        if !status.is_success() {
            let message = format!("the store answered {status}: {}", text.trim());
            return Err(StoreFailure { status, message });
        }
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        let counter = value["value"].as_i64().ok_or_else(|| StoreFailure {
            status: StatusCode::BAD_GATEWAY,
            message: format!("the store answered {text:?}, which has no number in it"),
        })?;
        Ok(StoreAnswer { counter, store: value["store"].as_str().map(ToOwned::to_owned) })
    }
}

fn for_the_store(headers: &HeaderMap) -> HeaderMap {
    let chosen = headers.iter().filter_map(|(name, value)| {
        let rest = name.as_str().strip_prefix(FOR_THE_STORE)?;
        let name = HeaderName::try_from(format!("x-{rest}")).ok()?;
        Some((name, value.clone()))
    });
    chosen.collect()
}
