//! One HTTP request and its whole answer.

mod names;

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, anyhow};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{
    client::legacy::{Client as Pool, connect::HttpConnector},
    rt::TokioExecutor,
};

use self::names::NameResolver;

/// No answer of the demo is longer.
const LONGEST_BODY: usize = 1024 * 1024;

/// A client that keeps its connections; clones share them.
#[derive(Debug, Clone)]
pub struct HttpClient {
    pool: Pool<HttpConnector<NameResolver>, Full<Bytes>>,
    patience: Duration,
}

impl HttpClient {
    /// Names are asked for at `dns`, or at the machine's resolvers.
    pub fn new(patience: Duration, dns: Option<SocketAddr>) -> HttpClient {
        let connector = HttpConnector::new_with_resolver(NameResolver::at(dns));
        HttpClient { pool: Pool::builder(TokioExecutor::new()).build(connector), patience }
    }

    /// A JSON body goes with the request if there is one.
    pub async fn call(
        &self,
        method: Method,
        uri: Uri,
        headers: HeaderMap,
        body: Option<String>,
    ) -> anyhow::Result<(StatusCode, String)> {
        let mut request = Request::builder().method(method).uri(uri.clone());
        if body.is_some() {
            request = request.header(http::header::CONTENT_TYPE, "application/json");
        }
        let mut request = request.body(Full::from(body.unwrap_or_default()))?;
        request.headers_mut().extend(headers);
        let exchange = async {
            let response = self.pool.request(request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), LONGEST_BODY).collect().await;
            let body = body.map_err(|error| anyhow!(error))?.to_bytes();
            anyhow::Ok((status, String::from_utf8_lossy(&body).into_owned()))
        };
        let answer = tokio::time::timeout(self.patience, exchange).await;
        answer
            .with_context(|| format!("no answer from {uri} within {:?}", self.patience))?
            .with_context(|| format!("no answer from {uri}"))
    }
}

/// The address of a path below a service.
pub fn below(base: &Uri, path: &str) -> anyhow::Result<Uri> {
    let base = base.to_string();
    format!("{}{path}", base.trim_end_matches('/')).parse().with_context(|| format!("{base}{path}"))
}

/// Parses the URL of a service from the command line.
pub fn parse_url(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
    if uri.scheme_str() != Some("http") || uri.host().is_none() {
        return Err("use http://host:port; the mesh adds TLS".to_owned());
    }
    Ok(uri)
}
