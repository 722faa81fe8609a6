//! A small HTTP client for the REST API.

use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use ureq::{Agent, http::HeaderMap};

/// Talks to one control plane.
#[derive(Debug, Clone)]
pub struct Client {
    agent: Agent,
    base: String,
}

/// A status and what came with it.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Answer {
    /// A header that is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }
}

impl Client {
    pub fn new(base: impl Into<String>) -> Client {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(30)))
            .build();
        Client { agent: config.into(), base: base.into() }
    }

    pub fn get(&self, path: &str) -> anyhow::Result<Answer> {
        let response = self.agent.get(self.url(path)).call();
        answer(path, response)
    }

    pub fn put(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        let request = self.agent.put(self.url(path)).header("content-type", "application/json");
        answer(path, request.send(body.to_string()))
    }

    pub fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        let request = self.agent.post(self.url(path)).header("content-type", "application/json");
        answer(path, request.send(body.to_string()))
    }

    pub fn delete(&self, path: &str) -> anyhow::Result<Answer> {
        answer(path, self.agent.delete(self.url(path)).call())
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
}

fn answer(
    path: &str,
    response: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
) -> anyhow::Result<Answer> {
    let mut response = response.with_context(|| format!("no answer for {path}"))?;
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let body = response.body_mut().with_config().limit(64 << 20).read_to_string();
    Ok(Answer { status, headers, body: body.with_context(|| format!("half an answer for {path}"))? })
}
