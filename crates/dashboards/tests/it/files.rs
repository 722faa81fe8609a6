//! Committed files, compared with the specification.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../observability")
}

/// The generated files: their paths below `observability`, and their text.
fn generated() -> Vec<(PathBuf, String)> {
    let dashboards = dashboards::all();
    let mut files: Vec<(PathBuf, String)> =
        dashboards.iter().map(|it| (Path::new("grafana").join(it.file_name()), it.text())).collect();
    files.push(("prometheus/traffic.yaml".into(), dashboards::traffic_rules()));
    files
}

#[test]
fn dashboards_and_rules_are_up_to_date() {
    for (path, text) in generated() {
        let path = folder().join(path);
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == text, "{} is outdated: run `cargo xtask gen`", path.display());
    }
}

#[test]
fn no_dashboard_is_there_that_the_specification_does_not_know() {
    let files = fs::read_dir(folder().join("grafana")).unwrap();
    let files: BTreeSet<String> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    let known: BTreeSet<String> = dashboards::all().iter().map(dashboards::Dashboard::file_name).collect();
    assert_eq!(files, known);
}
