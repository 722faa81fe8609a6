//! Files in a folder, for Prometheus, Grafana and Loki that run on a machine.

use std::{fs, io, path::Path};

use super::{
    Component, Plan, configuration,
    embedded::{DASHBOARDS, RULES},
};
use crate::{
    failure::{Failure, Result},
    terminal,
};

/// Folder of Loki's packages for its data.
const LOKI_DATA: &str = "/var/lib/loki";

/// A file below the folder.
struct Written {
    path: String,
    text: String,
}

fn written(path: impl Into<String>, text: impl Into<String>) -> Written {
    Written { path: path.into(), text: text.into() }
}

/// Writes everything, or nothing if a file is there that says something else.
pub fn write(plan: &Plan, folder: &Path, dashboards_only: bool, overwrite: bool) -> Result<()> {
    let cannot = |what: &Path, error: io::Error| {
        Failure::failed(format!(
            "cannot write {}: {error}; choose another folder, or make it writable",
            what.display()
        ))
    };
    fs::create_dir_all(folder).map_err(|error| cannot(folder, error))?;
    // Grafana reads its dashboards from wherever it was started.
    let home = folder.canonicalize().map_err(|error| cannot(folder, error))?;
    let files = all(plan, &home, dashboards_only);
    for file in &files {
        let path = home.join(&file.path);
        let differs = match fs::read_to_string(&path) {
            Ok(text) => text != file.text,
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        };
        if differs && !overwrite {
            return Err(Failure::invalid(format!(
                "{} is there and says something else; nothing was written. Give another folder, or --overwrite",
                path.display()
            )));
        }
    }
    for file in &files {
        let path = home.join(&file.path);
        let parent = path.parent().unwrap_or(&home);
        fs::create_dir_all(parent).map_err(|error| cannot(parent, error))?;
        fs::write(&path, &file.text).map_err(|error| cannot(&path, error))?;
    }
    terminal::talk(&format!("{} files written to {}", files.len(), home.display()));
    if !dashboards_only {
        terminal::talk(&next_steps(plan, &home));
    }
    Ok(())
}

fn all(plan: &Plan, home: &Path, dashboards_only: bool) -> Vec<Written> {
    let mut files = Vec::new();
    if dashboards_only || plan.has(Component::Grafana) {
        files.extend(DASHBOARDS.iter().map(|it| written(format!("grafana/dashboards/{}", it.name), it.text)));
    }
    if dashboards_only {
        return files;
    }
    if plan.has(Component::Prometheus) {
        files.push(written("prometheus/prometheus.yaml", configuration::prometheus(plan)));
        files.extend(RULES.iter().map(|it| written(format!("prometheus/{}", it.name), it.text)));
    }
    if plan.has(Component::Grafana) {
        let provisioning = "grafana/provisioning";
        let dashboards = home.join("grafana/dashboards").display().to_string();
        let provider = configuration::dashboard_provider(&dashboards);
        files
            .push(written(format!("{provisioning}/datasources/kuma.yaml"), configuration::datasources(plan)));
        files.push(written(format!("{provisioning}/dashboards/kuma.yaml"), provider));
    }
    if plan.has(Component::Loki) {
        files.push(written("loki/loki.yaml", configuration::loki(LOKI_DATA)));
    }
    files
}

fn next_steps(plan: &Plan, home: &Path) -> String {
    let home = home.display();
    let mut steps = Vec::new();
    if plan.has(Component::Prometheus) {
        steps.push(format!("prometheus --config.file={home}/prometheus/prometheus.yaml"));
    }
    if plan.has(Component::Grafana) {
        steps.push(format!("GF_PATHS_PROVISIONING={home}/grafana/provisioning grafana server"));
    }
    if plan.has(Component::Loki) {
        steps.push(format!("loki -config.file={home}/loki/loki.yaml"));
    }
    if plan.has(Component::Jaeger) {
        steps.push("jaeger-all-in-one needs no file".to_owned());
    }
    steps.join("\n")
}
