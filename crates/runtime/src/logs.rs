//! Logs go to standard error, one line per event, as text or JSON.

mod escape;

use std::{fmt, io, str::FromStr};

use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

pub use self::escape::printable;
use crate::Error;

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Level {
    Off,
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

impl Level {
    pub const NAMES: &'static [&'static str] = &["off", "error", "warn", "info", "debug", "trace"];

    pub fn name(self) -> &'static str {
        Level::NAMES[self as usize]
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let levels = [Level::Off, Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];
        let found = levels.into_iter().find(|level| level.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| format!("{text:?} is not a log level; use one of {}", Level::NAMES.join(", ")))
    }
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    #[default]
    Text,
    Json,
}

impl Format {
    pub const NAMES: &'static [&'static str] = &["text", "json"];

    pub fn name(self) -> &'static str {
        Format::NAMES[self as usize]
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = [Format::Text, Format::Json].into_iter().find(|f| f.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| format!("{text:?} is not a log format; use one of {}", Format::NAMES.join(", ")))
    }
}

/// Starts logging for the whole process; a second call is refused.
pub fn init(level: Level, format: Format) -> Result<(), Error> {
    tracing::subscriber::set_global_default(subscriber(level, format, io::stderr))
        .map_err(|error| Error::Logs(error.to_string()))
}

/// As [`init`], for a process that speaks for another one: events of `target` are heard from `heard` on.
pub fn init_with(level: Level, format: Format, target: &str, heard: Level) -> Result<(), Error> {
    let filter = format!("{},{target}={heard}", directives(level));
    tracing::subscriber::set_global_default(filtered(&filter, format, io::stderr))
        .map_err(|error| Error::Logs(error.to_string()))
}

/// As [`init_with`], written somewhere else than to standard error.
pub fn init_into<W>(level: Level, format: Format, heard: (&str, Level), writer: W) -> Result<(), Error>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (target, heard) = heard;
    let filter = format!("{},{target}={heard}", directives(level));
    tracing::subscriber::set_global_default(filtered(&filter, format, writer))
        .map_err(|error| Error::Logs(error.to_string()))
}

/// The subscriber itself, for whoever wants the lines somewhere else.
pub fn subscriber<W>(level: Level, format: Format, writer: W) -> Box<dyn tracing::Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    filtered(&directives(level), format, writer)
}

/// Libraries below us are heard from when something is wrong, and in full when tracing.
fn directives(level: Level) -> String {
    match level {
        Level::Off => "off".to_owned(),
        Level::Trace => "trace".to_owned(),
        level => format!("{level},hyper=warn,hyper_util=warn,h2=warn,rustls=error,tokio_postgres=warn"),
    }
}

fn filtered<W>(filter: &str, format: Format, writer: W) -> Box<dyn tracing::Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(false)
        .with_writer(escape::Lines(writer));
    match format {
        Format::Text => Box::new(builder.finish()),
        Format::Json => Box::new(builder.json().flatten_event(true).finish()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(level: Level, format: Format, log: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        tracing::subscriber::with_default(subscriber(level, format, move || writer.clone()), log);
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn events_below_the_level_are_not_written() {
        let text = logged(Level::Info, Format::Text, || {
            tracing::debug!("quiet");
            tracing::info!(port = 5681, "listening");
        });
        assert!(text.contains("listening port=5681") && !text.contains("quiet"), "{text}");
        assert_eq!(logged(Level::Off, Format::Text, || tracing::error!("nothing")), "");
    }

    #[test]
    fn json_lines_carry_message_and_fields_at_the_top() {
        let text = logged(Level::Info, Format::Json, || tracing::info!(port = 5681, "listening"));
        assert!(text.starts_with('{') && text.contains(r#""message":"listening""#), "{text}");
        assert!(text.contains(r#""port":5681"#), "{text}");
    }

    #[test]
    fn no_event_commands_a_terminal_or_begins_a_line_of_its_own() {
        let name = "a\u{1b}[2J\u{9b}1m\r\nERROR forged\u{202e}";
        for format in [Format::Text, Format::Json] {
            let text = logged(Level::Info, format, || tracing::info!(%name, "connected {name}"));
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(text.ends_with('\n') && text.contains("\\u009b1m\\r\\nERROR forged\\u202e"), "{text}");
            let commands = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
            assert!(!text.contains(commands), "{text:?}");
        }
    }

    #[test]
    fn an_unknown_level_or_format_names_the_known_ones() {
        assert!("loud".parse::<Level>().unwrap_err().contains("off, error, warn, info, debug, trace"));
        assert!("xml".parse::<Format>().unwrap_err().contains("text, json"));
        assert_eq!("DEBUG".parse(), Ok(Level::Debug));
    }
}
