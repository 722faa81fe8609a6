//! Packages that have examples in their documentation: only those have something to run.

use std::{fs, path::Path};

use anyhow::Context;

/// The packages whose library has an example that rustdoc would run.
pub fn packages(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut packages = Vec::new();
    for folder in ["crates", "apps"].map(|name| root.join(name)) {
        for entry in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
            let package = entry?.path();
            if package.join("src/lib.rs").is_file() && has_examples(&package.join("src"))? {
                packages.push(name(&package.join("Cargo.toml"))?);
            }
        }
    }
    packages.sort();
    Ok(packages)
}

fn name(manifest: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(manifest).with_context(|| format!("reading {}", manifest.display()))?;
    let name = text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    Ok(name.with_context(|| format!("{} names no package", manifest.display()))?.to_owned())
}

fn has_examples(folder: &Path) -> anyhow::Result<bool> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        let path = entry.path();
        let found = if entry.file_type()?.is_dir() {
            has_examples(&path)?
        } else {
            path.extension().is_some_and(|extension| extension == "rs")
                && has_example(&fs::read_to_string(&path)?)
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// True for a block of code in a doc comment that is Rust, which it is unless it says otherwise.
fn has_example(source: &str) -> bool {
    let mut is_open = false;
    let documented = source.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))
    });
    for language in documented.filter_map(|line| line.trim_start().strip_prefix("```")) {
        is_open = !is_open;
        let runs = ["rust", "no_run", "should_panic", "compile_fail"];
        if is_open && (language.is_empty() || runs.iter().any(|word| language.starts_with(word))) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_is_a_block_of_rust_in_a_doc_comment() {
        assert!(has_example("/// Adds.\n///\n/// ```\n/// assert_eq!(add(1, 2), 3);\n/// ```\n"));
        assert!(has_example("//! ```text\n//! a\n//! ```\n//! ```no_run\n//! b();\n//! ```\n"));
        assert!(!has_example("//! ```text\n//! a ─▶ b\n//! ```\n"));
        assert!(!has_example("// ```\n// not documentation\n// ```\n"));
    }

    #[test]
    fn packages_are_named_as_cargo_names_them() {
        let root = tempfile::tempdir().unwrap();
        for (folder, doc) in
            [("crates/plain", "//! Nothing.\n"), ("apps/shown", "//! ```\n//! f();\n//! ```\n")]
        {
            let folder = root.path().join(folder);
            fs::create_dir_all(folder.join("src")).unwrap();
            fs::write(folder.join("src/lib.rs"), doc).unwrap();
            fs::write(folder.join("Cargo.toml"), "[package]\nname = \"of-example\"\n").unwrap();
        }
        assert_eq!(packages(root.path()).unwrap(), ["of-example"]);
    }
}
