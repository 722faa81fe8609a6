//! Log levels of a proxy. Envoy's admin interface changes them while the proxy runs.

use std::{fmt, str::FromStr};

use axum::response::Response;

use super::{dataplane, inspect, written};
use crate::{Error, call::Call, resource};

const MISSING: &str = "Could not get dataplane resource";
/// The longest name of a logger that is passed on; Envoy's longest has 27 letters.
const MAX_NAME: usize = 64;

/// Envoy's levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    Trace,
    Debug,
    Info,
    Warning,
    Error,
    Critical,
    Off,
}

impl LogLevel {
    const ALL: [LogLevel; 7] = [
        LogLevel::Trace,
        LogLevel::Debug,
        LogLevel::Info,
        LogLevel::Warning,
        LogLevel::Error,
        LogLevel::Critical,
        LogLevel::Off,
    ];

    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Trace => "trace",
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warning => "warning",
            LogLevel::Error => "error",
            LogLevel::Critical => "critical",
            LogLevel::Off => "off",
        }
    }
}

/// A name that can stand in a query without changing its meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggerName(String);

impl fmt::Display for LoggerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for LoggerName {
    type Err = String;

    fn from_str(text: &str) -> Result<LoggerName, String> {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        // These two are parameters of Envoy's own.
        let taken = matches!(text, "level" | "paths");
        if text.is_empty() || text.len() > MAX_NAME || taken || !text.bytes().all(allowed) {
            return Err(format!(
                "logger {text:?} is no name of a logger: it is one such as `rbac` or `http`"
            ));
        }
        Ok(LoggerName(text.to_owned()))
    }
}

/// Change of log levels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogChange {
    pub level: LogLevel,
    /// All loggers without one.
    pub logger: Option<LoggerName>,
}

/// `GET /meshes/{mesh}/dataplanes/{name}/logging`.
pub async fn get(call: Call) -> Result<Response, Error> {
    let inspect = inspect(&call);
    let proxy = dataplane(&call, MISSING)?;
    written(inspect.logging(&proxy, None).await?).await
}

/// `POST /meshes/{mesh}/dataplanes/{name}/logging?level=debug&logger=rbac`.
pub async fn set(call: Call) -> Result<Response, Error> {
    resource::check_api_writable(&call)?;
    let inspect = inspect(&call);
    let proxy = dataplane(&call, MISSING)?;
    let change = change(&call)?;
    written(inspect.logging(&proxy, Some(&change)).await?).await
}

fn change(call: &Call) -> Result<LogChange, Error> {
    let names = || LogLevel::ALL.map(LogLevel::name).join(", ");
    let given = call
        .query("level")
        .ok_or_else(|| Error::BadRequest(format!("level is missing: it is one of {}", names())))?;
    let level = LogLevel::ALL.into_iter().find(|level| level.name() == given).ok_or_else(|| {
        Error::BadRequest(format!("level {given:?} is not known: it is one of {}", names()))
    })?;
    let logger = call.query("logger").map(str::parse).transpose().map_err(Error::BadRequest)?;
    Ok(LogChange { level, logger })
}
