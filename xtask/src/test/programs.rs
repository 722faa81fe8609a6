//! Builds all test programs in one run of cargo, with clippy as the compiler, and lists them.
//!
//! Linting, building the programs and building the tests one after the other compiled the same crates three times.
//! `clippy-driver` is rustc with more lints: cargo calls it for the crates of the workspace, as `cargo clippy` does,
//! and it generates code as rustc does.

use std::{
    fmt,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::run;

/// `-D warnings` as `cargo clippy` passes it to `clippy-driver`.
const CLIPPY_ARGUMENTS: &str = "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__";

/// A compiled test program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub package: String,
    pub target: CargoTarget,
    pub executable: PathBuf,
    /// Tests run in the folder of their package.
    pub folder: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CargoTarget {
    Library,
    Binary(String),
    Test(String),
}

impl Program {
    /// Arguments of `cargo test` that run this program.
    pub fn rerun(&self) -> String {
        let package = &self.package;
        match &self.target {
            CargoTarget::Library => format!("-p {package} --lib"),
            CargoTarget::Binary(name) => format!("-p {package} --bin {name}"),
            CargoTarget::Test(name) => format!("-p {package} --test {name}"),
        }
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder);
        command.env("CARGO_MANIFEST_DIR", &self.folder).env("CARGO_PKG_NAME", &self.package);
        command
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let package = &self.package;
        match &self.target {
            CargoTarget::Library => write!(f, "{package}"),
            CargoTarget::Binary(name) | CargoTarget::Test(name) => write!(f, "{package}::{name}"),
        }
    }
}

/// Lints and builds the whole workspace, and returns its test programs. Programs that tests start are built with them,
/// because their packages have tests of their own.
#[allow(clippy::print_stderr, reason = "progress for the user")]
pub fn build() -> anyhow::Result<Vec<Program>> {
    eprintln!("── lints, programs and tests");
    let started = Instant::now();
    let mut cargo = run::cargo();
    cargo.args(["test", "--no-run", "--workspace", "--all-targets", "--locked"]);
    cargo.arg("--message-format=json-render-diagnostics");
    cargo.env("RUSTC_WORKSPACE_WRAPPER", clippy_driver()).env("CLIPPY_ARGS", CLIPPY_ARGUMENTS);
    let mut child = cargo.stdout(Stdio::piped()).spawn().context("could not start cargo")?;
    let messages = BufReader::new(child.stdout.take().context("cargo has no output")?);
    let mut programs = Vec::new();
    for line in messages.lines() {
        programs.extend(program(&line.context("reading what cargo built")?));
    }
    let status = child.wait().context("waiting for cargo")?;
    if !status.success() {
        bail!("lints, programs and tests failed ({status}): cargo test --no-run");
    }
    eprintln!("── lints, programs and tests: {:.0?}", started.elapsed());
    Ok(programs)
}

/// `clippy-driver` beside the cargo that runs us, or the one on `PATH`.
fn clippy_driver() -> PathBuf {
    let beside = std::env::var_os("CARGO").map(|cargo| Path::new(&cargo).with_file_name("clippy-driver"));
    beside.filter(|driver| driver.is_file()).unwrap_or_else(|| "clippy-driver".into())
}

/// Reads the test program from a message of cargo, if the message is about one. Benchmarks are compiled and not run.
fn program(message: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let executable = message["executable"].as_str().filter(|_| is_test)?;
    let target = &message["target"];
    let name = target["name"].as_str()?.to_owned();
    let target = match target["kind"][0].as_str()? {
        "bin" => CargoTarget::Binary(name),
        "test" => CargoTarget::Test(name),
        "bench" | "example" => return None,
        _ => CargoTarget::Library,
    };
    let manifest = Path::new(message["manifest_path"].as_str()?);
    Some(Program {
        package: package(message["package_id"].as_str()?)?,
        target,
        executable: executable.into(),
        folder: manifest.parent()?.to_path_buf(),
    })
}

/// The name in `path+file:///folder/api#0.1.0` or `path+file:///folder/control-plane#kuma-cp@0.1.0`.
fn package(id: &str) -> Option<String> {
    let (path, version) = id.rsplit_once('#')?;
    let name = version.split_once('@').map_or_else(|| path.rsplit('/').next(), |(name, _)| Some(name))?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: &str, name: &str, is_test: bool) -> String {
        serde_json::json!({
            "reason": "compiler-artifact",
            "package_id": "path+file:///src/apps/control-plane#kuma-cp@0.1.0",
            "manifest_path": "/src/apps/control-plane/Cargo.toml",
            "target": { "kind": [kind], "name": name },
            "profile": { "test": is_test },
            "executable": format!("/target/{name}-1f"),
        })
        .to_string()
    }

    #[test]
    fn test_programs_are_read_from_what_cargo_built() {
        let test = program(&message("test", "it", true)).unwrap();
        assert_eq!(test.rerun(), "-p kuma-cp --test it");
        assert_eq!(
            (test.executable, test.folder),
            ("/target/it-1f".into(), "/src/apps/control-plane".into())
        );
        assert_eq!(program(&message("lib", "kuma_cp", true)).unwrap().rerun(), "-p kuma-cp --lib");
        assert_eq!(program(&message("bin", "kuma-cp", true)).unwrap().rerun(), "-p kuma-cp --bin kuma-cp");
        for message in
            [message("bin", "kuma-cp", false), message("bench", "reads", true), "no JSON".to_owned()]
        {
            assert_eq!(program(&message), None, "{message}");
        }
    }

    #[test]
    fn a_package_is_named_as_its_folder_unless_cargo_says_otherwise() {
        assert_eq!(package("path+file:///src/crates/api#0.1.0").as_deref(), Some("api"));
        assert_eq!(package("path+file:///src/apps/cli#kumactl@0.1.0").as_deref(), Some("kumactl"));
    }
}
