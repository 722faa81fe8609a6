//! Running other programs, and saying what runs.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context, bail};

/// The root of the repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The cargo that runs us.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs a step, printing its name before and its time after; fails when the program does.
#[allow(clippy::print_stderr, reason = "progress for the user")]
pub fn step(name: &str, command: &mut Command) -> anyhow::Result<()> {
    eprintln!("── {name}");
    let started = Instant::now();
    let status = command.status().with_context(|| format!("could not start {:?}", command.get_program()))?;
    if !status.success() {
        bail!("{name} failed ({status}): {command:?}");
    }
    eprintln!("── {name}: {:.0?}", started.elapsed());
    Ok(())
}

/// Standard output of a program that must succeed.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("could not start {:?}", command.get_program()))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}
