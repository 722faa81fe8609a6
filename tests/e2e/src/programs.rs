//! Finding the programs under test.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context, ensure};
use tempfile::TempDir;

use crate::ControlPlane;

/// Build of the programs to run.
#[derive(Debug, Clone, Copy)]
pub enum Profile {
    /// The same profile as the running test.
    Same,
    Release,
}

/// The path of a program of this workspace.
pub fn program(name: &str, profile: Profile) -> anyhow::Result<PathBuf> {
    let exe = std::env::current_exe().context("who am I")?;
    // target/<profile>/deps/<test> or target/<profile>/<program>
    let mut dir = exe.parent().context("no folder above the test")?;
    if dir.ends_with("deps") {
        dir = dir.parent().context("no folder above deps")?;
    }
    let dir = match profile {
        Profile::Same => dir.to_path_buf(),
        Profile::Release => dir.parent().context("no target folder")?.join("release"),
    };
    let path = dir.join(name);
    ensure!(
        path.is_file(),
        "{} is missing: run `cargo build --workspace --bins` first, as `cargo xtask test` does",
        path.display()
    );
    Ok(path)
}

/// Runs `kumactl` with nothing of the user's configuration, and waits for it.
pub fn kumactl(home: &Path, arguments: &[&str]) -> anyhow::Result<Output> {
    let output = Command::new(program("kumactl", Profile::Same)?)
        .args(arguments)
        .env("HOME", home)
        .env_remove("KUMACTL_CONFIG")
        .output()
        .context("starting kumactl")?;
    Ok(output)
}

/// A `kumactl` with its own home folder, configured for one control plane.
#[derive(Debug)]
pub struct Kumactl {
    home: TempDir,
}

impl Kumactl {
    pub fn of(control_plane: &ControlPlane) -> anyhow::Result<Kumactl> {
        let kumactl = Kumactl { home: tempfile::tempdir()? };
        let address = control_plane.address();
        kumactl.ok(&["config", "control-planes", "add", "--name", "e2e", "--address", &address])?;
        Ok(kumactl)
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    pub fn run(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        kumactl(self.home.path(), arguments)
    }

    /// Standard output of a command that must succeed.
    pub fn ok(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self.run(arguments)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kumactl {arguments:?}: {} {stderr}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    }
}
