//! A `kuma-cp` of its own for a test: own folder, own ports, killed when the test ends.

use std::{
    collections::BTreeMap,
    fs::File,
    io::PipeReader,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use testkit::postgres::Database;

use crate::{Client, Profile, eventually, own_port, program, show_if_failed};

/// Destination of the program's output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OutputReader {
    /// It is written into a file.
    #[default]
    Kept,
    /// The program that read it has ended.
    ReaderGone,
    /// The program that reads it does not.
    Unread,
    /// The disk it is written to is full.
    DiskFull,
}

impl OutputReader {
    /// Opens stdout and stderr for the program, and the end that the test must keep meanwhile.
    pub fn open(self, path: &Path) -> anyhow::Result<([Stdio; 2], Option<PipeReader>)> {
        Ok(match self {
            OutputReader::Kept => {
                let log = File::options().create(true).append(true).open(path).context("opening the log")?;
                ([log.try_clone()?.into(), log.into()], None)
            }
            OutputReader::DiskFull => {
                let full = File::options().write(true).open("/dev/full")?;
                ([full.try_clone()?.into(), full.into()], None)
            }
            OutputReader::ReaderGone | OutputReader::Unread => {
                let (reader, writer) = std::io::pipe()?;
                (
                    [writer.try_clone()?.into(), writer.into()],
                    (self == OutputReader::Unread).then_some(reader),
                )
            }
        })
    }
}

/// Differences from `kuma-cp run` without configuration.
#[derive(Debug, Clone)]
pub struct Setup {
    pub environment: BTreeMap<String, String>,
    pub profile: Profile,
    /// The size of a disk of its own, for filling it.
    pub disk: Option<String>,
    pub log: OutputReader,
    /// A limit of the system, as `ulimit` spells it, that it cannot raise.
    pub ulimit: Option<&'static str>,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            environment: BTreeMap::new(),
            profile: Profile::Same,
            disk: None,
            log: OutputReader::Kept,
            ulimit: None,
        }
    }
}

impl Setup {
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Setup {
        self.environment.insert(name.to_owned(), value.into());
        self
    }

    /// Puts the work folder on a disk of this size (as `mount` spells it) that no one else sees.
    #[must_use]
    pub fn on_a_disk_of(mut self, size: &str) -> Setup {
        self.disk = Some(size.to_owned());
        self
    }

    /// Uses a PostgreSQL database instead of SQLite.
    #[must_use]
    pub fn on_postgres(self, database: &Database) -> Setup {
        let variable = |name: &str| format!("KUMA_STORE_POSTGRES_{name}");
        self.with("KUMA_STORE_TYPE", "postgres")
            // Several instances of a test run on one machine.
            .with("KUMA_INTER_CP_SERVER_PORT", "0")
            .with(&variable("HOST"), &database.host)
            .with(&variable("PORT"), database.port.to_string())
            .with(&variable("USER"), &database.user)
            .with(&variable("PASSWORD"), &database.password)
            .with(&variable("DB_NAME"), &database.name)
    }
}

/// A running control plane.
#[derive(Debug)]
pub struct ControlPlane {
    setup: Setup,
    work_dir: PathBuf,
    http_port: u16,
    diagnostics_port: u16,
    dp_port: u16,
    monitoring_port: u16,
    child: Child,
    /// Open, so that the log has a reader.
    unread: Option<PipeReader>,
}

impl ControlPlane {
    /// Starts a control plane that keeps its files in `work_dir` and waits until it is ready.
    pub fn start(work_dir: &Path, setup: Setup) -> anyhow::Result<ControlPlane> {
        let (http_port, https_port, diagnostics_port, dp_port) =
            (own_port()?, own_port()?, own_port()?, own_port()?);
        let monitoring_port = own_port()?;
        let mut setup = setup
            .with("KUMA_GENERAL_WORK_DIR", work_dir.display().to_string())
            .with("KUMA_API_SERVER_HTTP_PORT", http_port.to_string())
            .with("KUMA_API_SERVER_HTTPS_PORT", https_port.to_string())
            .with("KUMA_DIAGNOSTICS_SERVER_PORT", diagnostics_port.to_string())
            .with("KUMA_DP_SERVER_PORT", dp_port.to_string())
            .with("KUMA_MONITORING_ASSIGNMENT_SERVER_PORT", monitoring_port.to_string());
        for name in ["KUMA_API_SERVER_HTTP_INTERFACE", "KUMA_API_SERVER_HTTPS_INTERFACE"] {
            setup = setup.with(name, "127.0.0.1");
        }
        let (child, unread) = spawn(&setup, work_dir)?;
        let mut started = ControlPlane {
            setup,
            work_dir: work_dir.to_owned(),
            http_port,
            diagnostics_port,
            dp_port,
            monitoring_port,
            child,
            unread,
        };
        started.wait_until_ready()?;
        Ok(started)
    }

    /// Starts it again after it was killed, with the same files and ports.
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        (self.child, self.unread) = spawn(&self.setup, &self.work_dir)?;
        self.wait_until_ready()
    }

    /// Starts another one in its place after it has ended: with the same ports, but these files and settings.
    pub fn start_again_in(&mut self, work_dir: &Path, settings: &[(String, String)]) -> anyhow::Result<()> {
        self.work_dir = work_dir.to_owned();
        let home = ("KUMA_GENERAL_WORK_DIR".to_owned(), work_dir.display().to_string());
        self.setup.environment.extend(settings.iter().cloned().chain([home]));
        self.start_again()
    }

    /// Starts it again where no file can be written, as on a full disk, and waits until it answers.
    pub fn start_again_unable_to_write(&mut self) -> anyhow::Result<()> {
        self.setup.ulimit = Some("-f 0");
        (self.child, self.unread) = spawn(&self.setup, &self.work_dir)?;
        let diagnostics = self.diagnostics();
        eventually("kuma-cp to answer", || {
            diagnostics.get("/healthy").is_ok_and(|answer| answer.status == 200)
        })
    }

    /// Ends it the hard way, as a power cut would.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().context("killing kuma-cp")?;
        self.child.wait().context("waiting for kuma-cp")?;
        Ok(())
    }

    /// Asks it to stop and waits for its exit status.
    pub fn stop(&mut self) -> anyhow::Result<std::process::ExitStatus> {
        kill(Pid::from_raw(i32::try_from(self.child.id())?), Signal::SIGTERM)
            .context("asking kuma-cp to stop")?;
        self.child.wait().context("waiting for kuma-cp")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.http_port)
    }

    /// The ports of the API, of the diagnostics and of proxies.
    pub fn ports(&self) -> [u16; 3] {
        [self.http_port, self.diagnostics_port, self.dp_port]
    }

    /// URL that a Prometheus asks for the pages of proxies.
    pub fn monitoring(&self) -> String {
        format!("http://127.0.0.1:{}", self.monitoring_port)
    }

    /// URL that proxies connect to.
    pub fn dp_server(&self) -> String {
        format!("https://localhost:{}", self.dp_port)
    }

    pub fn client(&self) -> Client {
        Client::new(self.address())
    }

    pub fn diagnostics(&self) -> Client {
        Client::new(format!("http://127.0.0.1:{}", self.diagnostics_port))
    }

    pub fn work_dir(&self) -> &Path {
        &self.work_dir
    }

    /// Everything it has said so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(log_path(&self.work_dir)).unwrap_or_default()
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let diagnostics = self.diagnostics();
        let mut exited = None;
        eventually("kuma-cp to be ready", || {
            exited = self.child.try_wait().ok().flatten();
            exited.is_some() || diagnostics.get("/ready").is_ok_and(|answer| answer.status == 200)
        })
        .with_context(|| self.log())?;
        match exited {
            Some(status) => bail!("kuma-cp ended with {status} while starting:\n{}", self.log()),
            None => Ok(()),
        }
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // Both fail when it has ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
        show_if_failed(&format!("kuma-cp ({})", self.address()), &self.log());
    }
}

fn spawn(setup: &Setup, work_dir: &Path) -> anyhow::Result<(Child, Option<PipeReader>)> {
    let ([stdout, stderr], unread) = setup.log.open(&log_path(work_dir))?;
    let kept = std::env::vars_os().filter(|(name, _)| !name.to_string_lossy().starts_with("KUMA_"));
    let program = program("kuma-cp", setup.profile)?;
    let mut command = match (&setup.disk, setup.ulimit) {
        (Some(size), _) => on_own_disk(&program, work_dir, size),
        (None, Some(limit)) => limited(&program, limit),
        (None, None) => Command::new(program),
    };
    let child = command
        .arg("run")
        .env_clear()
        .envs(kept)
        .envs(&setup.environment)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .spawn()
        .context("starting kuma-cp")?;
    Ok((child, unread))
}

/// The program with a limit that it cannot raise.
fn limited(program: &Path, limit: &str) -> Command {
    let mut command = Command::new("sh");
    // A write over the limit of a file's size is to fail, not to end the program.
    let script = "trap '' XFSZ; ulimit $1 && shift && exec \"$@\"";
    command.args(["-c", script, "sh", limit]).arg(program);
    command
}

/// The program in a mount namespace of its own, where its work folder is a small disk in memory.
fn on_own_disk(program: &Path, work_dir: &Path, size: &str) -> Command {
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    let script = "mount -t tmpfs -o size=$1 tmpfs \"$2\" && exec \"$3\" \"$4\"";
    command.args(["--mount", "sh", "-c", script, "sh", size]).arg(work_dir).arg(program);
    command
}

fn log_path(work_dir: &Path) -> PathBuf {
    work_dir.with_extension("log")
}
