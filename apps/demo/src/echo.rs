//! Servers that say who answered, in the protocols the mesh knows.
//!
//! `http` and `http2` answer with the name and the request as JSON, `tcp` returns every line with the
//! name before it, `grpc` returns the message of any unary method. `http2` and `grpc` refuse
//! HTTP/1.1, so a proxy that speaks the wrong protocol to its application is found out.

mod grpc;
mod tcp;

use std::{collections::BTreeMap, net::SocketAddr};

use axum::{
    Json, Router,
    body::Bytes,
    extract::Request,
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, Method, StatusCode, Uri, Version};
use serde_json::{Value, json};

use crate::{faults, serve};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Address to listen at.
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    #[arg(long, value_enum, default_value = "http")]
    protocol: Protocol,
    /// Name in answers.
    #[arg(long, default_value = "echo")]
    name: String,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Protocol {
    Http,
    Http2,
    Grpc,
    Tcp,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let Options { listen, protocol, name } = options;
    let only_http2 = middleware::from_fn(only_http2);
    let router = match protocol {
        Protocol::Tcp => return tcp::run(name, listen).await,
        Protocol::Http => mirror(name.clone()),
        Protocol::Http2 => mirror(name.clone()).layer(only_http2),
        Protocol::Grpc => grpc::echo(name.clone()).layer(only_http2),
    };
    serve::http(&name, listen, router).await
}

/// Answers any path with the name and the request.
fn mirror(name: String) -> Router {
    let describe =
        async move |method: Method, uri: Uri, version: Version, headers: HeaderMap, body: Bytes| {
            Json(json!({
                "name": name,
                "method": method.as_str(),
                "path": uri.path_and_query().map_or("/", |path| path.as_str()),
                "version": format!("{version:?}"),
                "headers": described(&headers),
                "body": String::from_utf8_lossy(&body),
            }))
        };
    Router::new().fallback(describe).layer(middleware::from_fn(faults::obey))
}

/// Header names with their values; one that came several times has them joined, as HTTP allows.
fn described(headers: &HeaderMap) -> Value {
    let mut all: BTreeMap<&str, String> = BTreeMap::new();
    for (name, value) in headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        all.entry(name.as_str())
            .and_modify(|known| {
                known.push_str(", ");
                known.push_str(&value);
            })
            .or_insert_with(|| value.into_owned());
    }
    json!(all)
}

async fn only_http2(request: Request, next: Next) -> Response {
    if request.version() != Version::HTTP_2 {
        let message = format!("this server speaks HTTP/2 only and was asked in {:?}\n", request.version());
        return (StatusCode::HTTP_VERSION_NOT_SUPPORTED, message).into_response();
    }
    next.run(request).await
}
