//! Envoy's log levels, by its own list.

use api::{InspectError, inspect::logging::LogChange};
use contract::logging::ProxyLogLevels;
use resources::Key;

use super::{StoredProxies, client};

impl StoredProxies {
    /// The level of every logger, after the change if one is wanted.
    pub(super) async fn log_levels(
        &self,
        proxy: &Key,
        change: Option<&LogChange>,
    ) -> Result<ProxyLogLevels, InspectError> {
        if self.is_global() {
            return Err(InspectError::Elsewhere(format!(
                "only the control plane that {proxy} is connected to knows its log levels: ask the control plane of its zone"
            )));
        }
        let snapshot = self.snapshot()?;
        let endpoint = self.endpoint(&snapshot, proxy)?;
        // Envoy answers only to POST, even where nothing is to change.
        let answer = client::post(&endpoint, &path(change)).await.map_err(|reason| {
            let which = change.and_then(|change| change.logger.as_ref());
            let hint = which.map(|logger| format!(" (is there a logger {logger}?)")).unwrap_or_default();
            InspectError::Unreachable(format!("{proxy} does not answer at {endpoint}: {reason}{hint}"))
        })?;
        Ok(read(&String::from_utf8_lossy(&answer)))
    }
}

/// Path of Envoy's admin interface for the question, or the change.
fn path(change: Option<&LogChange>) -> String {
    match change {
        None => "/logging".to_owned(),
        Some(LogChange { level, logger: None }) => format!("/logging?level={}", level.name()),
        Some(LogChange { level, logger: Some(logger) }) => format!("/logging?{logger}={}", level.name()),
    }
}

/// Reads `  rbac: info` and the like; other lines are titles.
fn read(text: &str) -> ProxyLogLevels {
    let loggers = text.lines().filter(|line| line.starts_with(' ')).filter_map(|line| {
        let (logger, level) = line.trim().split_once(": ")?;
        Some((logger.to_owned(), level.to_owned()))
    });
    ProxyLogLevels { loggers: loggers.collect() }
}
