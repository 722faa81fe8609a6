//! `proxy log NAME`: how much a proxy logs, and changing it while it runs.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use resources::Kind;
use serde_json::{Value, json};

use crate::{
    client::{Client, query_value},
    failure::{Failure, Result},
    output::{self, TableFormat},
    terminal,
    types::{DEFAULT_MESH, Type},
};

const EXAMPLES: &str = "\
Examples:
  kumactl proxy log web-1
  kumactl proxy log web-1 --level debug
  kumactl proxy log web-1 --level debug --logger rbac
  kumactl proxy log web-1 --level info

The level lasts until the proxy restarts. Changing it needs the rights of an administrator.";

/// Show or change how much a proxy logs
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Log {
    /// Name of the proxy
    #[arg(value_name = "NAME")]
    proxy: String,
    /// Log from this level on
    #[arg(long, value_name = "LEVEL")]
    level: Option<Level>,
    /// Change only this logger, such as rbac, http or upstream [default: all]
    #[arg(long, value_name = "LOGGER", requires = "level")]
    logger: Option<String>,
    /// Mesh of the proxy
    #[arg(short, long, default_value = DEFAULT_MESH)]
    mesh: String,
    /// Form of the output
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
    format: TableFormat,
}

/// Envoy's levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Level {
    Trace,
    Debug,
    Info,
    #[value(alias = "warn")]
    Warning,
    Error,
    Critical,
    Off,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Trace => "trace",
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warning => "warning",
            Level::Error => "error",
            Level::Critical => "critical",
            Level::Off => "off",
        }
    }
}

impl Log {
    pub fn run(&self, client: &Client) -> Result<()> {
        let kind = Type::of_kind(Kind::Dataplane);
        let what = kind.describe(&self.mesh, &self.proxy);
        let mut path = format!("{}/logging", kind.item(&self.mesh, &self.proxy));
        let answer = match self.level {
            None => client.get(&path)?,
            Some(level) => {
                path.push_str(&format!("?level={}", level.name()));
                if let Some(logger) = &self.logger {
                    path.push_str(&format!("&logger={}", query_value(logger)));
                }
                client.post(&path, &json!({}))?
            }
        };
        if answer.is_missing() {
            return Err(Failure::failed(format!("there is no {what}")));
        }
        let attempted = match self.level {
            None => format!("could not read the log levels of {what}"),
            Some(_) => format!("could not change the log level of {what}"),
        };
        let levels = answer.json(&attempted)?;
        let rendered = self.format.render(&levels, || table(&levels));
        Ok(terminal::data(&rendered)?)
    }
}

/// One row for each level that is in use: there are about a hundred loggers.
fn table(levels: &Value) -> String {
    let mut by_level: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (logger, level) in levels["loggers"].as_object().into_iter().flatten() {
        by_level.entry(level.as_str().unwrap_or_default()).or_default().push(logger);
    }
    let most = by_level.iter().max_by_key(|(_, loggers)| loggers.len()).map(|(level, _)| *level);
    let rows = by_level.iter().map(|(level, loggers)| {
        let shown = match Some(*level) == most {
            true => format!("{} loggers", loggers.len()),
            false => loggers.join(","),
        };
        vec![(*level).to_owned(), shown]
    });
    output::table(&["LEVEL", "LOGGERS"], rows)
}
