//! Logs go to standard error, one line per event, as text or JSON.
//!
//! Logging never blocks and never fails: see [`sink`] for what happens when the log is not read.

mod escape;
mod journal;
mod sink;
mod throttle;

use std::{
    fmt,
    io::{self, Write},
    panic,
    str::FromStr,
    sync::OnceLock,
    time::Duration,
};

use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

use self::sink::Sink;
pub use self::{escape::printable, journal::Journal, throttle::Throttle};
use crate::{Error, metrics::Metrics};

/// Time that the end of a process waits for the reader of its log.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The log of this process, once there is one.
static LOG: OnceLock<Sink> = OnceLock::new();

/// Level from which events are logged.
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

/// Format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

impl LogFormat {
    pub const NAMES: &'static [&'static str] = &["text", "json"];

    pub fn name(self) -> &'static str {
        LogFormat::NAMES[self as usize]
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found =
            [LogFormat::Text, LogFormat::Json].into_iter().find(|f| f.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| {
            format!("{text:?} is not a log format; use one of {}", LogFormat::NAMES.join(", "))
        })
    }
}

/// Starts logging for the whole process; a second call is refused.
pub fn init(level: Level, format: LogFormat) -> Result<(), Error> {
    start(&directives(level), format, io::stderr())
}

/// As [`init`], for a process that speaks for another one: events of `target` are heard from `heard` on.
pub fn init_with(level: Level, format: LogFormat, target: &str, heard: Level) -> Result<(), Error> {
    start(&format!("{},{target}={heard}", directives(level)), format, io::stderr())
}

/// As [`init_with`], written somewhere else than to standard error.
pub fn init_into(
    level: Level,
    format: LogFormat,
    heard: (&str, Level),
    out: impl Write + Send + 'static,
) -> Result<(), Error> {
    let (target, heard) = heard;
    start(&format!("{},{target}={heard}", directives(level)), format, out)
}

fn start(filter: &str, format: LogFormat, out: impl Write + Send + 'static) -> Result<(), Error> {
    let refused = |why: String| Error::Logs(why);
    let sink = Sink::start(out).map_err(|error| refused(error.to_string()))?;
    tracing::subscriber::set_global_default(filtered(filter, format, sink.clone()))
        .map_err(|error| refused(error.to_string()))?;
    // The default hook writes to standard error itself, which blocks when that is not read.
    panic::set_hook(Box::new(|panicked| {
        let location = panicked.location().map(tracing::field::display);
        let payload = panicked.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let reason = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("?");
        tracing::error!(location, "a thread panicked: {reason}");
    }));
    // Fails only when there is a log already, and then the line above has.
    let _ = LOG.set(sink);
    Ok(())
}

/// Counts the lines that could not be written, under this name.
pub fn register(metrics: &Metrics, name: &str) {
    let help = "Dropped log lines, by reason: the reader is gone or too slow";
    // Without a log nothing is lost.
    let lost = LOG.get().map(|log| log.lost().clone()).unwrap_or_default();
    metrics.register(name, help, lost);
}

/// Waits until the log is written, or for a second: a reader that does not read must not keep a process
/// that has ended. To be called last.
pub fn flush() {
    if let Some(log) = LOG.get() {
        log.flush(LAST_LINES);
    }
}

/// Says why the process ends, where logs go, and waits as [`flush`] does. Logging need not have started.
pub fn last_words(text: &str) {
    match LOG.get() {
        Some(log) => log.push(format!("{text}\n").as_bytes()),
        None => drop(writeln!(io::stderr(), "{text}")),
    }
    flush();
}

/// The subscriber itself, for lines that go somewhere else.
pub fn subscriber<W>(level: Level, format: LogFormat, writer: W) -> Box<dyn tracing::Subscriber + Send + Sync>
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
        level => {
            // The audit log is complete whatever else is of interest.
            format!("{level},hyper=warn,hyper_util=warn,h2=warn,rustls=error,tokio_postgres=warn,audit=info")
        }
    }
}

fn filtered<W>(filter: &str, format: LogFormat, writer: W) -> Box<dyn tracing::Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(false)
        .with_writer(escape::Lines(writer));
    match format {
        LogFormat::Text => Box::new(builder.finish()),
        LogFormat::Json => Box::new(builder.json().flatten_event(true).finish()),
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

    fn logged(level: Level, format: LogFormat, log: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        tracing::subscriber::with_default(subscriber(level, format, move || writer.clone()), log);
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn events_below_the_level_are_not_written() {
        let text = logged(Level::Info, LogFormat::Text, || {
            tracing::debug!("quiet");
            tracing::info!(port = 5681, "listening");
        });
        assert!(text.contains("listening port=5681") && !text.contains("quiet"), "{text}");
        assert_eq!(logged(Level::Off, LogFormat::Text, || tracing::error!("nothing")), "");
        let audit = logged(Level::Error, LogFormat::Text, || tracing::info!(target: "audit", "write"));
        assert!(audit.contains("write"), "the audit log does not depend on the level: {audit}");
    }

    #[test]
    fn json_lines_carry_message_and_fields_at_the_top() {
        let text = logged(Level::Info, LogFormat::Json, || tracing::info!(port = 5681, "listening"));
        assert!(text.starts_with('{') && text.contains(r#""message":"listening""#), "{text}");
        assert!(text.contains(r#""port":5681"#), "{text}");
    }

    #[test]
    fn no_event_commands_a_terminal_or_begins_a_line_of_its_own() {
        let name = "a\u{1b}[2J\u{9b}1m\r\nERROR forged\u{202e}";
        for format in [LogFormat::Text, LogFormat::Json] {
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
        assert!("xml".parse::<LogFormat>().unwrap_err().contains("text, json"));
        assert_eq!("DEBUG".parse(), Ok(Level::Debug));
    }
}
