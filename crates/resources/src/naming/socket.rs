//! Files where an agent and its Envoy meet, all in the agent's work directory.
//!
//! The agent and the control plane find them by the same names, each on its own.

use std::path::Path;

/// The longest path of a socket, less the ending.
const LONGEST: usize = 98;

/// The path of a socket, cut because the system has a limit.
pub fn path(work_dir: &str, name: &str) -> String {
    let path = Path::new(work_dir).join(name).display().to_string();
    let whole = |end: &usize| path.is_char_boundary(*end);
    let end = (0..=path.len().min(LONGEST)).rev().find(whole).unwrap_or_default();
    format!("{}.sock", &path[..end])
}

/// The pipe that Envoy writes records for log servers to, and the agent reads. It is named like a socket.
pub fn access_log(work_dir: &str, proxy: &str, mesh: &str) -> String {
    path(work_dir, &format!("kuma-al-{proxy}-{mesh}"))
}

/// Socket on which the agent serves metrics.
pub fn metrics(work_dir: &str, proxy: &str, mesh: &str) -> String {
    path(work_dir, &format!("kuma-mh-{proxy}-{mesh}"))
}

/// Socket on which Envoy serves the control plane's configuration for the agent.
pub fn configuration(work_dir: &str) -> String {
    path(work_dir, "kuma-mesh-metric-config")
}

/// Socket on which Envoy receives the agent's data for an OpenTelemetry collector.
pub fn collector(work_dir: &str, backend: &str) -> String {
    path(work_dir, &format!("kuma-otel-{backend}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_is_cut_before_its_ending() {
        assert_eq!(access_log("/w", "web", "default"), "/w/kuma-al-web-default.sock");
        let long = path("/w", &"é".repeat(90));
        assert!(long.len() <= LONGEST + 5 && long.ends_with("é.sock"), "{long}");
    }
}
