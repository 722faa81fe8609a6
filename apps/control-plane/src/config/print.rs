//! Writes the configuration: as JSON, as the commented file of defaults, as the reference page.

use serde_json::{Map, Value};
use settings::{Entry, Leaf, Section};

use super::{Config, without_effect};

const MASK: &str = "*****";

/// The configuration as the file would spell it, with secrets masked.
pub fn masked_json(config: &Config) -> Value {
    let mut config = config.clone();
    let mut entries = Vec::new();
    config.entries("", &mut entries);
    let mut root = Value::Object(Map::new());
    for entry in entries {
        let Entry::Setting(leaf) = entry else { continue };
        let mut at = &mut root;
        for key in leaf.path.split('.') {
            at = &mut at[key];
        }
        *at = if leaf.value.secret() { MASK.into() } else { leaf.value.to_json() };
    }
    root
}

/// Every key with its default, what it means and its environment variable.
pub fn defaults_yaml() -> String {
    let mut config = Config::default();
    let mut entries = Vec::new();
    config.entries("", &mut entries);
    let mut yaml = String::from(
        "# Every setting of kuma-cp with its default. Give a file with the ones to change: kuma-cp run -c FILE\n",
    );
    for entry in entries {
        let (path, doc) = match &entry {
            Entry::Section { path, doc } => (path, *doc),
            Entry::Setting(leaf) => (&leaf.path, leaf.doc),
        };
        let indent = "  ".repeat(path.matches('.').count());
        let key = path.rsplit('.').next().unwrap_or(path);
        if indent.is_empty() {
            yaml.push('\n');
        }
        for line in doc.lines() {
            yaml.push_str(&format!("{indent}#{line}\n"));
        }
        match &entry {
            Entry::Section { .. } => yaml.push_str(&format!("{indent}{key}:\n")),
            Entry::Setting(leaf) => {
                yaml.push_str(&format!("{indent}{key}: {} # ENV: {}\n", leaf.value.to_json(), leaf.env));
            }
        }
    }
    yaml
}

/// The reference page of the documentation.
pub fn reference_markdown() -> String {
    let mut config = Config::default();
    let mut entries = Vec::new();
    config.entries("", &mut entries);
    let mut page = String::from(INTRODUCTION);
    page.push_str(TABLE);
    for entry in entries {
        match entry {
            // A section that only holds sections has no table of its own.
            Entry::Section { path, doc } => {
                while page.ends_with(TABLE) {
                    page.truncate(page.len() - TABLE.len());
                }
                page.push_str(&format!("\n## {path}\n\n{}\n{TABLE}", text(doc)));
            }
            Entry::Setting(leaf) => page.push_str(&row(&leaf)),
        }
    }
    page.push_str(UNSUPPORTED);
    for (key, variable, default) in without_effect::ROWS {
        let default = if default.is_empty() { "\"\"" } else { default };
        page.push_str(&format!("| `{key}` | `{variable}` | `{default}` |\n"));
    }
    page
}

const INTRODUCTION: &str = "\
# Configuration of kuma-cp

<!-- Generated from the declaration of the settings: `cargo xtask gen`. -->

`kuma-cp run -c FILE` reads a YAML file; environment variables take precedence. Keys and variables are Kuma's.
The control plane does not start with a misspelled key or an invalid value. Settings that Kuma has and this control plane does
not support yet are named in one warning, unless they have Kuma's default. [kuma-cp.defaults.yaml](kuma-cp.defaults.yaml)
is the same as a file, and `kuma-cp config defaults` prints it.
";

const TABLE: &str = "\n| key | environment variable | default | meaning |\n|---|---|---|---|\n";

const UNSUPPORTED: &str = "
## Without effect

These settings of Kuma are accepted and have no effect. One with another value than Kuma's default is named in the
warning; so is a key that resembles none of them, which may belong to another version of Kuma. Everything
below `runtime.kubernetes` and `store.kubernetes` is ignored, as in Kuma on Universal.

| key | environment variable | default in Kuma |
|---|---|---|
";

fn row(leaf: &Leaf<'_>) -> String {
    let default = leaf.value.to_json();
    format!(
        "| `{}` | `{}` | `{default}` | {} ({}) |\n",
        leaf.path,
        leaf.env,
        text(leaf.doc),
        leaf.value.accepts()
    )
}

fn text(doc: &str) -> String {
    doc.lines().map(str::trim).collect::<Vec<_>>().join(" ").trim().to_owned()
}
