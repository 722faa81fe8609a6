//! Envoy's standard error: passed on with its level, and watched for messages that matter.

use std::borrow::Cow;

use clap::ValueEnum;
use runtime::logs::Level;

/// The target under which Envoy's lines appear in the agent's log.
pub const TARGET: &str = "envoy";

/// The format of Envoy's log lines, which [`parse`] reads.
pub const FORMAT: &str = "[%l][%n] %v";

/// Envoy's log levels, in its own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum EnvoyLevel {
    Trace,
    Debug,
    Info,
    #[value(alias = "warn")]
    Warning,
    Error,
    Critical,
    Off,
}

impl EnvoyLevel {
    const ALL: [(EnvoyLevel, &'static str); 7] = [
        (EnvoyLevel::Trace, "trace"),
        (EnvoyLevel::Debug, "debug"),
        (EnvoyLevel::Info, "info"),
        (EnvoyLevel::Warning, "warning"),
        (EnvoyLevel::Error, "error"),
        (EnvoyLevel::Critical, "critical"),
        (EnvoyLevel::Off, "off"),
    ];

    pub fn name(self) -> &'static str {
        EnvoyLevel::ALL[self as usize].1
    }

    /// As much as the agent itself.
    pub fn like(level: Level) -> EnvoyLevel {
        match level {
            Level::Off => EnvoyLevel::Off,
            Level::Error => EnvoyLevel::Error,
            Level::Warn => EnvoyLevel::Warning,
            Level::Info => EnvoyLevel::Info,
            Level::Debug => EnvoyLevel::Debug,
            Level::Trace => EnvoyLevel::Trace,
        }
    }

    /// The agent's level that lets all of it through.
    pub fn heard_at(self) -> Level {
        match self {
            EnvoyLevel::Trace => Level::Trace,
            EnvoyLevel::Debug => Level::Debug,
            EnvoyLevel::Info => Level::Info,
            EnvoyLevel::Warning => Level::Warn,
            EnvoyLevel::Error | EnvoyLevel::Critical => Level::Error,
            EnvoyLevel::Off => Level::Off,
        }
    }
}

/// A line of Envoy's log.
#[derive(Debug, PartialEq, Eq)]
pub struct LogLine<'a> {
    pub level: EnvoyLevel,
    pub component: &'a str,
    pub message: &'a str,
}

/// Reads a line; one that Envoy's logger did not write counts as a warning.
pub fn parse(text: &str) -> LogLine<'_> {
    structured(text).unwrap_or(LogLine { level: EnvoyLevel::Warning, component: "", message: text })
}

fn structured(text: &str) -> Option<LogLine<'_>> {
    let (level, rest) = text.strip_prefix('[')?.split_once("][")?;
    let (component, message) = rest.split_once("] ")?;
    let mut level = EnvoyLevel::ALL.iter().find(|(_, name)| *name == level)?.0;
    // A hundred indented lines list everything that is compiled into Envoy, at every start.
    if level == EnvoyLevel::Info && component == "main" && message.starts_with("  ") {
        level = EnvoyLevel::Debug;
    }
    Some(LogLine { level, component, message })
}

impl LogLine<'_> {
    /// Writes the line into the agent's log.
    pub fn pass_on(&self) {
        let LogLine { component, .. } = self;
        let message = self.readable();
        match self.level {
            EnvoyLevel::Trace => tracing::trace!(target: TARGET, component, "{message}"),
            EnvoyLevel::Debug => tracing::debug!(target: TARGET, component, "{message}"),
            EnvoyLevel::Info => tracing::info!(target: TARGET, component, "{message}"),
            EnvoyLevel::Warning => tracing::warn!(target: TARGET, component, "{message}"),
            EnvoyLevel::Error => tracing::error!(target: TARGET, component, "{message}"),
            EnvoyLevel::Critical | EnvoyLevel::Off => {
                tracing::error!(target: TARGET, component, critical = true, "{message}");
            }
        }
    }

    /// The message, with the reason of an ended gRPC stream as the control plane wrote it.
    fn readable(&self) -> Cow<'_, str> {
        match self.end_of_stream() {
            Some((_, reason)) if reason.contains(['%', '\\']) => {
                let before = self.message.strip_suffix(reason).unwrap_or_default();
                Cow::Owned(format!("{before}{}", readable(reason)))
            }
            _ => without_escapes(self.message),
        }
    }

    /// Reason of the control plane for refusing the proxy's identity: gRPC status 16 (unauthenticated) or 7
    /// (permission denied), or those words with any status.
    pub fn refused_identity(&self) -> Option<String> {
        let (code, reason) = self.end_of_stream()?;
        let reason = readable(reason);
        (matches!(code, "16" | "7") || reason.contains("authentication failed")).then_some(reason)
    }

    /// With which status and why a stream to the control plane ended, if the line says so.
    fn end_of_stream(&self) -> Option<(&str, &str)> {
        let closed = self.message.split_once("gRPC config stream")?.1;
        let (_, status) = closed.split_once(" closed")?.1.split_once(": ")?;
        let (code, reason) = status.split_once(',')?;
        Some((code.trim(), reason.trim_start()))
    }
}

/// Quotes and backslashes as they were before Envoy wrote the line (`--log-format-escaped`). Control characters stay
/// escaped.
fn without_escapes(message: &str) -> Cow<'_, str> {
    if !message.contains('\\') {
        return Cow::Borrowed(message);
    }
    let mut plain = String::with_capacity(message.len());
    let mut letters = message.chars().peekable();
    while let Some(letter) = letters.next() {
        let escaped = letters.next_if(|next| letter == '\\' && matches!(next, '\'' | '"' | '\\'));
        plain.push(escaped.unwrap_or(letter));
    }
    Cow::Owned(plain)
}

/// A gRPC message as its author wrote it: Envoy logs it as it travels, with escapes of its own, and
/// appends how it came by it in braces.
fn readable(message: &str) -> String {
    let message = message.trim_end();
    let message = match message.rsplit_once('{') {
        Some((said, detail)) if detail.ends_with('}') => said,
        _ => message,
    };
    let mut bytes = Vec::with_capacity(message.len());
    let mut rest = message.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        rest = match (first, hex, tail.first()) {
            (b'%', Some(byte), _) => {
                bytes.push(byte);
                &tail[2..]
            }
            (b'\\', _, Some(quote @ (b'\'' | b'"' | b'\\'))) => {
                bytes.push(*quote);
                &tail[1..]
            }
            _ => {
                bytes.push(*first);
                tail
            }
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_keeps_its_level_and_component_and_a_strange_line_is_a_warning() {
        let check = |text: &str, level, component, message| {
            assert_eq!(parse(text), LogLine { level, component, message });
        };
        check(
            "[info][main] starting main dispatch loop",
            EnvoyLevel::Info,
            "main",
            "starting main dispatch loop",
        );
        check("[critical][backtrace] Caught [x] y", EnvoyLevel::Critical, "backtrace", "Caught [x] y");
        check(
            "[info][main]   envoy.tls_handshakers: x",
            EnvoyLevel::Debug,
            "main",
            "  envoy.tls_handshakers: x",
        );
        for strange in ["Segmentation fault", "[loud][x] y", "[info] y", "[", ""] {
            check(strange, EnvoyLevel::Warning, "", strange);
        }
    }

    #[test]
    fn only_a_refusal_of_the_identity_is_taken_for_one() {
        let check = |message: &str, expect: Option<&str>| {
            let line = LogLine { level: EnvoyLevel::Warning, component: "config", message };
            assert_eq!(line.refused_identity().as_deref(), expect, "{message}");
        };
        let stream = "DeltaAggregatedResources gRPC config stream to ads_cluster";
        check(&format!("{stream} closed: 16, token expired"), Some("token expired"));
        check(&format!("{stream} closed since 12s ago: 7, not yours: x"), Some("not yours: x"));
        check(
            &format!("{stream} closed: 2, authentication failed: nope"),
            Some("authentication failed: nope"),
        );
        let travelled = r"closed: 16, the%20token\'s%20key%3A 100% {sic}{via_upstream}";
        check(&format!("{stream} {travelled}"), Some("the token's key: 100% {sic}"));
        check(&format!("{stream} closed: 14, upstream connect error: 16, x"), None);
        check("gRPC config for type.googleapis.com/x rejected: 16, x", None);
    }

    #[test]
    fn the_reason_of_an_ended_stream_is_shown_as_it_was_written() {
        let check = |message: &str, expect: &str| {
            let line = LogLine { level: EnvoyLevel::Warning, component: "config", message };
            assert_eq!(line.readable(), expect);
        };
        let stream = "DeltaAggregatedResources gRPC config stream to ads_cluster closed since 3s ago: 3, ";
        check(&format!("{stream}no%20such%20mesh%3A %22shop%22"), &format!("{stream}no such mesh: \"shop\""));
        check(&format!("{stream}as it was {{sic}}"), &format!("{stream}as it was {{sic}}"));
        check("a path /a%20b is not decoded", "a path /a%20b is not decoded");
        check(r#"unknown field \'bogus\' in \"x\\y\" \n"#, r#"unknown field 'bogus' in "x\y" \n"#);
    }
}
