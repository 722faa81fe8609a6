//! Packages for users: an archive, a Debian package and their checksums.
//!
//! Everything that is shipped is first put into one folder, `target/packages/stage`, as it is in the archive. The Debian
//! package is made from the same folder (`[package.metadata.deb]` of `apps/control-plane/Cargo.toml`), so that no file
//! can be in one of them and missing in the other.

mod stage;
mod sums;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, ensure};

use self::stage::Stage;
use crate::{
    prerequisites::{self, Install},
    run,
};

/// Programs in the packages; `kuma-demo` is for `cargo xtask demo`.
const PROGRAMS: [&str; 3] = ["kuma-cp", "kuma-dp", "kumactl"];
/// Makes Debian packages; one version, so that the same commit gives the same package.
const CARGO_DEB: &str = "3.8.0";

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Profile of the build: `dist` is optimised and stripped, `dev` is quick to make.
    #[arg(long, default_value = "dist")]
    profile: String,
    /// Folder of the packages.
    #[arg(long, value_name = "DIR", default_value = "target/packages")]
    out: PathBuf,
    /// Fail instead of installing cargo-deb into target/tools where it is missing.
    #[arg(long)]
    no_install: bool,
    /// The programs are built already, by the test that runs this.
    #[arg(long, hide = true)]
    built: bool,
}

#[allow(clippy::print_stdout, reason = "what was made, and where")]
pub fn run(options: &Options) -> anyhow::Result<()> {
    let root = run::root();
    let out = root.join(&options.out);
    fs::create_dir_all(&out).with_context(|| format!("making {}", out.display()))?;
    // Fail because of a missing program before minutes of building, not after.
    let cargo_deb = cargo_deb(Install::unless(options.no_install))?;
    if !options.built {
        build(&options.profile)?;
    }
    let programs = root.join("target").join(folder(&options.profile));
    let name = format!("kuma-rs-{}-{}", env!("CARGO_PKG_VERSION"), target()?);
    let stage = Stage::make(&root, &root.join("target/packages/stage"), &programs)?;
    let archive = out.join(format!("{name}.tar.gz"));
    // Programs without optimisation are large, and packages of them are for tests.
    let is_quick = options.profile == "dev";
    stage.archive(&name, &archive, is_quick)?;
    let package = debian_package(&cargo_deb, &out, is_quick)?;
    let sums = sums::write(&out, &[archive.clone(), package.clone()])?;
    for (program, size) in stage.sizes()? {
        println!("{program} {} MB", size.div_ceil(1_000_000));
    }
    for file in [&archive, &package, &sums] {
        println!("{}", file.display());
    }
    Ok(())
}

/// Cargo's folder for the programs of a profile.
fn folder(profile: &str) -> &str {
    if profile == "dev" { "debug" } else { profile }
}

fn build(profile: &str) -> anyhow::Result<()> {
    let packages = PROGRAMS.iter().flat_map(|package| ["--package", package]);
    let mut build = run::cargo();
    build.args(["build", "--locked", "--bins", "--profile", profile]).args(packages);
    if let Some(commit) = commit() {
        build.env("KUMA_RS_COMMIT", commit);
    }
    run::step(&format!("programs (profile {profile})"), &mut build)
}

/// The commit for `--version`, marked where files differ from it; `None` outside of a checkout.
fn commit() -> Option<String> {
    if std::env::var_os("KUMA_RS_COMMIT").is_some() {
        return None;
    }
    let git =
        |arguments: &[&str]| run::output(Command::new("git").arg("-C").arg(run::root()).args(arguments)).ok();
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?.trim().to_owned();
    let is_changed = git(&["status", "--porcelain", "--untracked-files=no"])?.trim() != "";
    Some(if is_changed { format!("{commit}-changed") } else { commit })
}

/// The platform that programs are built for.
fn target() -> anyhow::Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = run::output(Command::new(rustc).arg("-vV"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

/// The program that makes Debian packages, installed where only this project uses it.
pub fn cargo_deb(install: Install) -> anyhow::Result<PathBuf> {
    if let Some(program) = find_cargo_deb() {
        return Ok(program);
    }
    ensure!(install == Install::Allowed, "missing: {}", cargo_deb_missing());
    prerequisites::announced("installing cargo-deb into target/tools", &mut install_cargo_deb())?;
    Ok(tools().join("bin/cargo-deb"))
}

pub fn find_cargo_deb() -> Option<PathBuf> {
    let found = [prerequisites::find_in_path("cargo-deb"), Some(tools().join("bin/cargo-deb"))];
    found.into_iter().flatten().find(|program| program.is_file())
}

/// Command for a user who installs by hand.
pub fn cargo_deb_missing() -> String {
    format!("cargo-deb: `{}`", run::shown(&install_cargo_deb()))
}

fn tools() -> PathBuf {
    run::root().join("target/tools")
}

fn install_cargo_deb() -> Command {
    let mut command = run::cargo();
    // Without optimisation: it is built faster, and makes one package.
    command
        .args(["install", "cargo-deb", "--version", CARGO_DEB, "--locked", "--debug", "--root"])
        .arg(tools());
    command
}

/// Makes the Debian package from the folder of the archive.
fn debian_package(cargo_deb: &Path, out: &Path, is_quick: bool) -> anyhow::Result<PathBuf> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let package = out.join(format!("kuma-rs_{}_{architecture}.deb", env!("CARGO_PKG_VERSION")));
    let mut command = Command::new(cargo_deb);
    command.current_dir(run::root()).args(["--package", "kuma-cp", "--no-build", "--no-strip"]);
    if is_quick {
        command.arg("--fast");
    }
    // It prints the path of the package, as this command does in the end.
    command.args(["--quiet", "--output"]).arg(&package).stdout(Stdio::null());
    run::step("Debian package", &mut command)?;
    Ok(package)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_a_profile_are_where_cargo_puts_them() {
        assert_eq!([folder("dev"), folder("dist"), folder("release")], ["debug", "dist", "release"]);
    }
}
