//! Finding Envoy, as `cargo xtask` does; a missing one fails the test.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

/// Path of the Envoy that `cargo xtask envoy` installs if the machine has none.
const CACHED: &str = "../../.cache/envoy-1.40.0/envoy";

/// `ENVOY_BIN`, or `envoy` on `PATH`, or the one that `cargo xtask envoy` installed.
pub fn envoy() -> anyhow::Result<PathBuf> {
    if let Some(chosen) = std::env::var_os("ENVOY_BIN").filter(|path| !path.is_empty()) {
        let chosen = PathBuf::from(chosen);
        ensure!(chosen.is_file(), "ENVOY_BIN is {}, and there is no such file", chosen.display());
        return Ok(chosen);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("envoy"));
    let cached = Path::new(env!("CARGO_MANIFEST_DIR")).join(CACHED);
    on_path
        .chain([cached])
        .find(|candidate| candidate.is_file())
        .context("there is no Envoy: run `cargo xtask envoy` first, as `cargo xtask test` does")
}
