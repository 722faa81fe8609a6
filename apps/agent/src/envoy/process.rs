//! One running Envoy.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::Context;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::{Child, Command},
    sync::mpsc,
    task::JoinHandle,
};

use super::{
    Envoy, Number,
    logs::{self, EnvoyLevel},
};
use crate::{bootstrap::drain_seconds, exec::ExecEnvoy, settings::Settings};

/// Time for an Envoy that was asked to end.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// From here on Envoy counts the processors it may use by itself, and warns who tells it to.
const CPUSET_BY_DEFAULT: Number = Number(1, 40, 0);

/// Command line and files that Envoy is started with.
#[derive(Debug)]
pub struct Recipe {
    pub envoy: Envoy,
    pub config: PathBuf,
    pub drain_time: Duration,
    pub concurrency: u32,
    pub level: EnvoyLevel,
    pub component_levels: String,
}

impl Recipe {
    pub fn new(settings: &Settings, envoy: Envoy, config: &Path) -> Recipe {
        Recipe {
            envoy,
            config: config.to_owned(),
            drain_time: settings.proxy.drain_time,
            concurrency: settings.envoy.concurrency,
            level: level(settings),
            component_levels: settings.envoy.envoy_component_log_level.clone().unwrap_or_default(),
        }
    }

    fn command(&self) -> Vec<OsString> {
        // Envoy drains over this time, so zero would never end; one second is its shortest.
        let drain = drain_seconds(self.drain_time);
        let mut command: Vec<OsString> = vec![self.envoy.path.clone().into()];
        command.extend(["--config-path".into(), self.config.clone().into()]);
        command.extend(["--drain-time-s".into(), drain.to_string().into()]);
        // Without this, two Envoys on one machine fight over shared memory.
        command.push("--disable-hot-restart".into());
        command.extend(["--log-level", self.level.name(), "--log-format", logs::FORMAT].map(OsString::from));
        command.push("--log-format-escaped".into());
        let components = self.component_levels();
        if !components.is_empty() {
            command.extend(["--component-log-level".into(), components.into()]);
        }
        if self.concurrency > 0 {
            command.extend(["--concurrency".into(), self.concurrency.to_string().into()]);
        } else if self.envoy.version.number < CPUSET_BY_DEFAULT {
            command.push("--cpuset-threads".into());
        }
        command
    }

    /// The agent must hear why the control plane closed the stream, however quiet Envoy shall be.
    fn component_levels(&self) -> String {
        let wanted = &self.component_levels;
        match (self.overhears(), wanted.is_empty()) {
            (false, _) => wanted.clone(),
            (true, true) => "config:warning".to_owned(),
            (true, false) => format!("{wanted},config:warning"),
        }
    }

    /// True if Envoy logs more than the user asked for, for the agent's ears only.
    fn overhears(&self) -> bool {
        self.level > EnvoyLevel::Warning && !self.component_levels.contains("config:")
    }
}

/// Envoy's log level: the user's, or else the agent's own.
pub fn level(settings: &Settings) -> EnvoyLevel {
    settings.envoy.envoy_log_level.unwrap_or_else(|| EnvoyLevel::like(settings.logs.log_level))
}

/// An Envoy and the task that reads what it says.
#[derive(Debug)]
pub struct Process {
    child: Child,
    reader: Option<JoinHandle<()>>,
}

/// Every refusal of the proxy's identity, in the control plane's words.
pub type Refusals = mpsc::Receiver<String>;

impl Process {
    pub fn start(recipe: &Recipe) -> anyhow::Result<(Process, Refusals)> {
        let arguments = ExecEnvoy::arguments(std::process::id(), recipe.command());
        let mut child = Command::new("/proc/self/exe")
            .args(arguments)
            // A Ctrl-C in the terminal is for the agent, which drains Envoy before ending it.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start Envoy")?;
        let (sender, refusals) = mpsc::channel(16);
        let overheard = recipe.overhears().then_some(recipe.level);
        let reader = child.stderr.take().map(|stderr| tokio::spawn(listen(stderr, overheard, sender)));
        Ok((Process { child, reader }, refusals))
    }

    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until Envoy has ended. Giving up waiting loses nothing.
    pub async fn child_ended(&mut self) -> anyhow::Result<ExitStatus> {
        self.child.wait().await.context("cannot wait for Envoy")
    }

    /// Waits until everything an ended Envoy said is passed on.
    pub async fn hear_out(&mut self) {
        if let Some(reader) = self.reader.take() {
            let _ = tokio::time::timeout(LAST_WORDS, reader).await;
        }
    }

    /// Asks Envoy to end, and ends it when it does not.
    pub async fn stop(mut self) {
        let pid = self.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = pid {
            // An error only says that it has ended already.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        if tokio::time::timeout(LAST_WORDS, self.child_ended()).await.is_err() {
            tracing::warn!("Envoy did not exit in time; killing it");
            let _ = self.child.kill().await;
        }
        self.hear_out().await;
    }
}

/// Passes every line on, except those about configuration below the level of `overheard`.
async fn listen(
    stderr: impl AsyncRead + Unpin,
    overheard: Option<EnvoyLevel>,
    refusals: mpsc::Sender<String>,
) {
    let mut reader = BufReader::new(stderr);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        match reader.read_until(b'\n', &mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&bytes);
        let line = logs::parse(text.trim_end());
        if !(line.component == "config" && overheard.is_some_and(|wanted| line.level < wanted)) {
            line.pass_on();
        }
        if let Some(reason) = line.refused_identity() {
            // When the agent is behind in hearing refusals it has heard enough of them.
            let _ = refusals.try_send(reason);
        }
    }
}
