//! Finding the programs under test.

use std::{
    path::PathBuf,
    process::{Command, Output},
};

use anyhow::{Context, ensure};

/// Which build of the programs to run.
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
pub fn kumactl(home: &std::path::Path, arguments: &[&str]) -> anyhow::Result<Output> {
    let output = Command::new(program("kumactl", Profile::Same)?)
        .args(arguments)
        .env("HOME", home)
        .env_remove("KUMACTL_CONFIG")
        .output()
        .context("starting kumactl")?;
    Ok(output)
}
