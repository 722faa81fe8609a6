//! `kumactl install` and `kumactl uninstall`: the firewall rules of transparent proxying, and what observes a mesh.

mod flags;
mod observability;

use std::path::Path;

use clap::{Args, Subcommand};
use serde_json::Value;
use transparent_proxy::{Config, Failure as Refusal, Installation, Layers, uninstall};

use crate::{
    bounded,
    failure::{Failure, Result},
    terminal,
};

#[derive(Debug, Subcommand)]
pub enum Install {
    TransparentProxy(Box<InstallTransparentProxy>),
    Observability(Box<observability::InstallObservability>),
}

/// Redirect the traffic of this machine through its proxy with iptables rules
///
/// Needs root, and a user that runs kuma-dp and nothing else: its traffic is not redirected. Rules of an
/// earlier installation are replaced. Settings come from files (`--transparent-proxy-config`), from
/// variables `KUMA_TRANSPARENT_PROXY_…` and from flags; later ones take precedence. Keep SSH access to the
/// machine: `--exclude-inbound-ports 22` leaves it out of the mesh.
#[derive(Debug, Args)]
pub struct InstallTransparentProxy {
    #[command(flatten)]
    sources: Sources,
    #[command(flatten)]
    flags: flags::Flags,
}

#[derive(Debug, Subcommand)]
pub enum Uninstall {
    TransparentProxy(UninstallTransparentProxy),
}

/// Remove the iptables rules of transparent proxying
///
/// Its rules are recognised by their comments and the names of their chains; all others stay.
#[derive(Debug, Args)]
pub struct UninstallTransparentProxy {
    #[command(flatten)]
    sources: Sources,
}

/// Flags of both commands.
#[derive(Debug, Args)]
struct Sources {
    /// File of settings in YAML or JSON, - for stdin; may be given several times or with commas, the last one wins
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    transparent_proxy_config: Vec<String>,
    /// Print what would be done, and do nothing; rules to install are shown without root too
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    dry_run: Option<bool>,
    /// Report every step, and write rules with long option names
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    verbose: Option<bool>,
    /// Programs to use: name:path[,name:path…], all three of a family (iptables, iptables-save, iptables-restore)
    #[arg(long, value_name = "LIST")]
    iptables_executables: Option<String>,
    /// Seconds that iptables-legacy waits for its lock; 0 waits forever
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u32>,
    /// Microseconds that it waits between two attempts to get the lock
    #[arg(long, value_name = "MICROSECONDS")]
    wait_interval: Option<u32>,
    /// Number of attempts after one that failed
    #[arg(long, value_name = "N")]
    max_retries: Option<u32>,
    /// Delay between two attempts
    #[arg(long, value_name = "DURATION")]
    sleep_between_retries: Option<String>,
}

impl Sources {
    /// The layers below the flags of a command.
    fn layers(&self) -> Result<Layers> {
        let mut layers = Layers::default();
        for source in self.transparent_proxy_config.iter().filter(|source| !source.is_empty()) {
            let (name, text) = read(source)?;
            layers.text(&name, &text).map_err(Failure::invalid)?;
        }
        layers.environment(|name| std::env::var(name).ok()).map_err(Failure::invalid)?;
        if let Some(list) = &self.iptables_executables {
            layers.set_text("iptablesExecutables", list).map_err(Failure::invalid)?;
        }
        let given: [(&str, Option<Value>); 6] = [
            ("dryRun", self.dry_run.map(Value::from)),
            ("verbose", self.verbose.map(Value::from)),
            ("wait", self.wait.map(Value::from)),
            ("waitInterval", self.wait_interval.map(Value::from)),
            ("retry.maxRetries", self.max_retries.map(Value::from)),
            ("retry.sleepBetweenRetries", self.sleep_between_retries.clone().map(Value::from)),
        ];
        set(&mut layers, given);
        Ok(layers)
    }
}

fn set(layers: &mut Layers, given: impl IntoIterator<Item = (&'static str, Option<Value>)>) {
    for (path, value) in given {
        if let Some(value) = value {
            layers.set(path, value);
        }
    }
}

/// The text of a file or of stdin, and what to call it.
fn read(source: &str) -> Result<(String, String)> {
    let name = if source == "-" { "stdin" } else { source };
    let read = match source {
        "-" => bounded::all(std::io::stdin().lock(), bounded::MOST_OF_SETTINGS).and_then(bounded::utf8),
        file => bounded::text(Path::new(file), bounded::MOST_OF_SETTINGS),
    };
    let text = read.map_err(|error| {
        Failure::invalid(format!("--transparent-proxy-config: cannot read {name}: {error}"))
    })?;
    Ok((name.to_owned(), text))
}

impl Install {
    pub fn run(&self) -> Result<()> {
        match self {
            Install::TransparentProxy(install) => install.run(),
            Install::Observability(install) => install.run(),
        }
    }
}

impl InstallTransparentProxy {
    fn config(&self) -> Result<Config> {
        let mut layers = self.sources.layers()?;
        set(&mut layers, self.flags.given());
        layers.config().map_err(Failure::invalid)
    }

    fn run(&self) -> Result<()> {
        let config = self.config()?;
        let installation = Installation::prepare(&config).map_err(|refusal| explain(&refusal))?;
        for warning in &installation.warnings {
            terminal::warn(warning);
        }
        if config.dry_run {
            return Ok(terminal::data(&installation.text())?);
        }
        if config.verbose {
            terminal::talk(installation.text().trim_end());
        }
        installation.install(&telling(&config)).map_err(|refusal| explain(&refusal))?;
        terminal::talk(
            "transparent proxy installed; run kuma-dp as the user that was excluded, with --transparent-proxy",
        );
        Ok(())
    }
}

impl Uninstall {
    pub fn run(&self) -> Result<()> {
        let Uninstall::TransparentProxy(UninstallTransparentProxy { sources }) = self;
        let config = sources.layers()?.config().map_err(Failure::invalid)?;
        let found = uninstall(&config, &telling(&config)).map_err(|refusal| explain(&refusal))?;
        match (found, config.dry_run) {
            (true, false) => terminal::talk("transparent proxy removed"),
            (true, true) => {}
            (false, _) => terminal::talk("there are no rules of a transparent proxy"),
        }
        Ok(())
    }
}

/// Steps are reported only with --verbose.
fn telling(config: &Config) -> impl Fn(&str) + use<> {
    let tell = config.verbose || config.dry_run;
    move |text: &str| {
        if tell {
            terminal::talk(text);
        }
    }
}

fn explain(refusal: &Refusal) -> Failure {
    match refusal {
        Refusal::Invalid(_) | Refusal::UnknownUser(_) | Refusal::NoUser => Failure::invalid(refusal),
        _ => Failure::failed(refusal),
    }
}
