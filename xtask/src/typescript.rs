//! TypeScript types of the REST API, which `openapi-typescript` makes of the OpenAPI document.
//!
//! The head of the file says which document it was made of, so that a change is noticed without Node.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail, ensure};
use sha2::{Digest, Sha256};

use crate::{prerequisites, run};

const DOCUMENT: &str = "docs/reference/openapi.json";
const TYPES: &str = "docs/reference/api.d.ts";
/// Versions that are known to make the same of the same.
const GENERATOR: &str = "openapi-typescript@7.13.0";
const COMPILER: &str = "typescript@5.9.3";
const OLDEST_NODE: u32 = 20;

/// Writes the types, and installs what makes them into `.cache`.
pub fn generate() -> anyhow::Result<()> {
    let node = node()?;
    let generator = install()?;
    let draft = generator.with_file_name("api.d.ts");
    let mut make = Command::new(node);
    make.arg(&generator).arg(DOCUMENT).arg("-o").arg(&draft).current_dir(run::root());
    run::step("TypeScript types", &mut make)?;
    let made = fs::read_to_string(&draft).with_context(|| format!("reading {}", draft.display()))?;
    let path = run::root().join(TYPES);
    fs::write(&path, format!("{}\n{made}", head(&document()?)))
        .with_context(|| format!("writing {}", path.display()))
}

/// Compares the document with the one that the types were made of.
pub fn check() -> anyhow::Result<Vec<String>> {
    let types = fs::read_to_string(run::root().join(TYPES)).unwrap_or_default();
    Ok(outdated(&types, &document()?).into_iter().collect())
}

fn outdated(types: &str, document: &[u8]) -> Option<String> {
    let current = types.lines().next() == Some(head(document).as_str());
    (!current).then(|| format!("{TYPES} was not made of {DOCUMENT} as it is now: run `cargo xtask gen`"))
}

fn document() -> anyhow::Result<Vec<u8>> {
    fs::read(run::root().join(DOCUMENT)).with_context(|| format!("reading {DOCUMENT}"))
}

fn head(document: &[u8]) -> String {
    let mut head = format!("// Made by `cargo xtask gen` with {GENERATOR} of openapi.json, sha256 ");
    for byte in Sha256::digest(document) {
        // Writing to a text cannot fail.
        let _ = write!(head, "{byte:02x}");
    }
    head
}

/// A Node that is new enough, installed first where there is none.
fn node() -> anyhow::Result<PathBuf> {
    if let Some(node) = find_node() {
        return Ok(node);
    }
    let installed = prerequisites::apt_install("nodejs")? && prerequisites::apt_install("npm")?;
    match find_node() {
        Some(node) if installed => Ok(node),
        _ => bail!(
            "the TypeScript types need Node {OLDEST_NODE} or newer with npm: install it (https://nodejs.org) and run the \
             command again"
        ),
    }
}

fn find_node() -> Option<PathBuf> {
    let node = prerequisites::find_in_path("node")?;
    prerequisites::find_in_path("npm")?;
    let said = run::output(Command::new(&node).arg("--version")).ok()?;
    (major(&said)? >= OLDEST_NODE).then_some(node)
}

/// `20` of `v20.20.2`.
fn major(version: &str) -> Option<u32> {
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

/// The generator's program. Its folder appears complete or not at all.
fn install() -> anyhow::Result<PathBuf> {
    let home = run::root().join(".cache").join(GENERATOR);
    let program = Path::new("node_modules/openapi-typescript/bin/cli.js");
    if home.join(program).is_file() {
        return Ok(home.join(program));
    }
    let draft = home.with_file_name(format!(".{GENERATOR}.{}", std::process::id()));
    fs::create_dir_all(&draft).with_context(|| format!("making {}", draft.display()))?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]);
    let installed = prerequisites::announced(GENERATOR, npm.arg(&draft).args([GENERATOR, COMPILER]));
    let moved = installed.and_then(|()| {
        fs::rename(&draft, &home).with_context(|| format!("moving {} to {}", draft.display(), home.display()))
    });
    let _ = fs::remove_dir_all(&draft);
    moved?;
    let program = home.join(program);
    ensure!(program.is_file(), "{GENERATOR} was installed and has no {}", program.display());
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_another_document_are_out_of_date() {
        let types = format!("{}\nexport interface paths {{}}\n", head(b"{}"));
        assert_eq!(outdated(&types, b"{}"), None);
        for (types, document) in
            [(types.as_str(), b"[]"), ("", b"{}"), ("export interface paths {}\n", b"{}")]
        {
            let said = outdated(types, document).unwrap();
            assert!(said.contains(TYPES) && said.contains("cargo xtask gen"), "{said}");
        }
    }

    #[test]
    fn the_version_of_node_is_read() {
        assert_eq!((major("v20.20.2\n"), major("v8.1.0"), major("20")), (Some(20), Some(8), None));
    }
}
