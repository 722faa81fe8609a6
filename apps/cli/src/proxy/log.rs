//! `proxy log NAME`: how much a proxy logs, and changing it while it runs.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use contract::logging::ProxyLogLevels;

use crate::{
    client::{ApiClient, Proxy},
    failure::Result,
    inspect::dataplane::present,
    output::{self, TableFormat},
    terminal,
    types::DEFAULT_MESH,
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
pub struct ProxyLog {
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

impl ProxyLog {
    pub fn run(&self, client: &ApiClient) -> Result<()> {
        let proxy = Proxy { mesh: &self.mesh, name: &self.proxy };
        let what = proxy.describe();
        let reply = match self.level {
            None => client.log_levels(&proxy)?,
            Some(level) => client.set_log_level(&proxy, level.name(), self.logger.as_deref())?,
        };
        let reply = present(&proxy, reply)?;
        let attempted = match self.level {
            None => format!("could not read the log levels of {what}"),
            Some(_) => format!("could not change the log level of {what}"),
        };
        let levels = reply.document(&attempted)?;
        let rendered = self.format.render(&levels.sent, || table(&levels.read));
        Ok(terminal::data(&rendered)?)
    }
}

/// One row for each level that is in use: there are about a hundred loggers.
fn table(levels: &ProxyLogLevels) -> String {
    let mut by_level: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (logger, level) in &levels.loggers {
        by_level.entry(level).or_default().push(logger);
    }
    let most = by_level.iter().max_by_key(|(_, loggers)| loggers.len()).map(|(level, _)| *level);
    let rows = by_level.iter().map(|(level, loggers)| {
        let shown =
            if Some(*level) == most { format!("{} loggers", loggers.len()) } else { loggers.join(",") };
        vec![(*level).to_owned(), shown]
    });
    output::table(&["LEVEL", "LOGGERS"], rows)
}
