//! Base of every demo: files in a folder, processes, and an end by Ctrl-C.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use nix::unistd::{Gid, Uid, chown};

use super::{
    DemoEnd,
    interrupt::Interrupt,
    network,
    processes::{self, Processes},
    report::{self, say},
};
use crate::run;

/// Time for anything to start.
const PATIENCE: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// The traffic ends by itself, should the demo be forgotten.
const TRAFFIC: [&str; 4] = ["--rps", "5", "--duration", "1h"];

/// Settings of an agent.
pub struct Agent<'a> {
    /// Of the control plane.
    pub address: String,
    /// The file of the control plane's authority.
    pub authority: &'a str,
    /// The port at which it says whether it is ready.
    pub readiness: u16,
    pub unified_names: bool,
}

pub struct Stage {
    pub home: PathBuf,
    /// Folder of our programs, as cargo built them.
    pub programs: PathBuf,
    pub envoy: PathBuf,
    pub processes: Processes,
    interrupt: Interrupt,
}

impl Stage {
    /// An empty folder for the demo; nothing is removed that an earlier demo has not made.
    pub fn prepare(home: &Path, envoy: PathBuf, interrupt: Interrupt) -> anyhow::Result<Stage> {
        network::remove_recorded(home)?;
        if home.join("mesh.yaml").exists() || processes::is_recorded(home) {
            fs::remove_dir_all(home).with_context(|| format!("emptying {}", home.display()))?;
        }
        fs::create_dir_all(home).with_context(|| format!("making {}", home.display()))?;
        let exe = std::env::current_exe().context("where am I")?;
        let programs = exe.parent().context("no folder above this program")?.to_owned();
        let processes = Processes::record_in(home)?;
        Ok(Stage { home: home.to_owned(), programs, envoy, processes, interrupt })
    }

    /// Counts at a page, a few times a second.
    pub fn start_traffic(&mut self, url: &str) -> anyhow::Result<()> {
        let mut load = self.program("kuma-demo");
        load.args(["load", "--method", "POST", "--url", url]).args(TRAFFIC);
        self.processes.start("load", load)
    }

    /// Says when one of the processes ends by itself; comes back at Ctrl-C or after `demo down`.
    pub fn watch(&mut self) -> anyhow::Result<DemoEnd> {
        loop {
            if self.interrupt.wanted() {
                say("ending");
                return Ok(DemoEnd::End);
            }
            if !processes::is_recorded(&self.home) {
                say("ended by `cargo xtask demo down`");
                return Ok(DemoEnd::End);
            }
            for (name, status) in self.processes.ended()? {
                say(&format!("{name} ended ({status}); its log is {}", self.file(&format!("{name}.log"))));
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }

    /// A process that ends while something is waited for is the reason why it will not happen.
    pub fn wait_for(&mut self, what: &str, happened: impl Fn() -> bool) -> anyhow::Result<()> {
        say(&format!("waiting for the {what}"));
        let deadline = Instant::now() + PATIENCE;
        while !happened() {
            ensure!(!self.interrupt.wanted(), "interrupted while waiting for the {what}");
            if let Some((name, status)) = self.processes.ended()?.first() {
                let log = self.file(&format!("{name}.log"));
                bail!("{name} ended ({status}):\n{}\nthe whole log is {log}", report::tail(Path::new(&log)));
            }
            ensure!(
                Instant::now() < deadline,
                "waited {PATIENCE:?} for the {what}; the logs are in {}",
                self.home.display()
            );
            std::thread::sleep(BETWEEN_LOOKS);
        }
        Ok(())
    }

    pub fn kumactl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut kumactl = self.program("kumactl");
        kumactl.args(["--config-file", &self.file("kumactl.yaml")]).args(arguments);
        run::output(&mut kumactl)
    }

    /// Settings of the user's own control plane must not leak into the demo's.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("KUMA") {
                command.env_remove(variable);
            }
        }
        command
    }

    /// Makes another user the owner of the work directory of a proxy.
    pub fn give_away(&self, proxy: &str, user: u32) -> anyhow::Result<()> {
        let work_dir = self.work_dir(proxy);
        chown(work_dir.as_str(), Some(Uid::from_raw(user)), Some(Gid::from_raw(user)))
            .with_context(|| format!("making user {user} the owner of {work_dir}"))
    }

    fn work_dir(&self, proxy: &str) -> String {
        self.file(&format!("{proxy}-proxy.d"))
    }

    /// An agent with a work directory and a token of its own.
    pub fn agent(&self, proxy: &str, token: &str, settings: &Agent<'_>) -> anyhow::Result<Command> {
        let token_file = self.file(&format!("{proxy}.token"));
        private_file(&token_file)?.write_all(token.trim().as_bytes())?;
        let work_dir = self.work_dir(proxy);
        fs::create_dir(&work_dir)?;
        let mut agent = self.program("kuma-dp");
        agent
            .args(["run", "--cp-address", &settings.address])
            .args(["--ca-cert-file", settings.authority])
            .args(["--dataplane-file", &self.file(&format!("{proxy}.yaml"))])
            .args(["--dataplane-token-file", &token_file])
            .args(["--work-dir", &work_dir, "--drain-time", "1s", "--concurrency", "1"])
            .env("KUMA_READINESS_PORT", settings.readiness.to_string())
            .env("ENVOY_BIN", &self.envoy);
        if settings.unified_names {
            agent.env("KUMA_DATAPLANE_RUNTIME_UNIFIED_PROXY_RESOURCES_AND_STATS_NAMING_ENABLED", "true");
        }
        Ok(agent)
    }

    pub fn file(&self, name: &str) -> String {
        self.home.join(name).display().to_string()
    }
}

/// Tokens are for their owner alone. A file that is there already, of a demo before, may have another mode.
fn private_file(path: &str) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn tokens_of_the_demo_are_for_their_owner_alone() {
        let path = std::env::temp_dir().join(format!("kuma-demo-token-{}", std::process::id()));
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        private_file(path.to_str().unwrap()).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        fs::remove_file(&path).unwrap();
        assert_eq!(mode & 0o777, 0o600);
    }
}
