//! The committed reference page says what the program says.

use std::{fs, path::Path};

use crate::agent::{Home, envoy};

#[test]
fn generated_reference_page_is_up_to_date() {
    let made = Home::new().command(&["reference"]).output().unwrap();
    let made = String::from_utf8(made.stdout).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/kuma-dp.md");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == made, "docs/reference/kuma-dp.md is out of date; run the tests with UPDATE=1");
}

#[test]
fn version_names_the_agent_and_on_demand_envoy() {
    let home = Home::new();
    let brief = home.command(&["version"]).output().unwrap();
    let brief = String::from_utf8(brief.stdout).unwrap();
    assert!(brief.starts_with(concat!("kuma-dp ", env!("CARGO_PKG_VERSION"), " (")), "{brief}");
    assert_eq!(brief.lines().count(), 1);
    let detailed = home.command(&["version", "-a"]).env("ENVOY_BIN", envoy()).output().unwrap();
    assert!(String::from_utf8(detailed.stdout).unwrap().contains("\nenvoy 1."));
}
