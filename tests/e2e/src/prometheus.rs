//! A Prometheus of its own for a test: Debian's program, which scrapes what the test tells it to.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Client, eventually, proxy::own_address};

const PORT: u16 = 9090;

/// A running Prometheus.
#[derive(Debug)]
pub struct Prometheus {
    address: Ipv4Addr,
    child: Child,
    folder: TempDir,
}

impl Prometheus {
    /// Scrapes `/metrics` of each address every second; the name becomes the label `proxy`.
    pub fn start(targets: &[(&str, SocketAddr)]) -> anyhow::Result<Prometheus> {
        let target =
            |(name, at): &(&str, SocketAddr)| json!({"targets": [at.to_string()], "labels": {"proxy": name}});
        let job =
            json!({"job_name": "proxies", "static_configs": targets.iter().map(target).collect::<Vec<_>>()});
        Prometheus::configured(json!({"scrape_configs": [job]}))
    }

    /// Scrapes control planes every second, and evaluates a file of rules as often.
    pub fn of_control_planes(targets: &[SocketAddr], rules: &Path) -> anyhow::Result<Prometheus> {
        let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
        let job = json!({"job_name": "kuma-cp", "static_configs": [{"targets": targets}]});
        Prometheus::configured(json!({"scrape_configs": [job], "rule_files": [rules]}))
    }

    /// Scrapes and evaluates what a configuration says, every second.
    pub fn configured(mut config: Value) -> anyhow::Result<Prometheus> {
        // A document in JSON is one in YAML.
        config["global"] = json!({"scrape_interval": "1s", "evaluation_interval": "1s"});
        Prometheus::with_file(&config.to_string())
    }

    /// Runs with a configuration file of this text.
    pub fn with_file(text: &str) -> anyhow::Result<Prometheus> {
        let address = own_address();
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("prometheus.yml");
        fs::write(&file, text)?;
        let log = fs::File::create(folder.path().join("log"))?;
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}:{PORT}"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context(
                "there is no Prometheus: `cargo xtask test` installs Debian's, or says what is missing",
            )?;
        let mut started = Prometheus { address, child, folder };
        started.wait_until_ready()?;
        Ok(started)
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let client = self.client();
        let mut ended = None;
        eventually("Prometheus to be ready", || {
            ended = self.child.try_wait().ok().flatten();
            ended.is_some() || client.get("/-/ready").is_ok_and(|answer| answer.status == 200)
        })?;
        ensure!(ended.is_none(), "Prometheus ended with {ended:?}:\n{}", self.log());
        Ok(())
    }

    fn client(&self) -> Client {
        Client::new(format!("http://{}:{PORT}", self.address))
    }

    /// Everything it has said so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// The targets that it scrapes, each with its labels and health.
    pub fn active_targets(&self) -> anyhow::Result<Vec<Value>> {
        let document = self.client().get("/api/v1/targets?state=active")?.json();
        document["data"]["activeTargets"].as_array().cloned().context("no list of targets")
    }

    /// The rules it evaluates, each with what became of it.
    pub fn rules(&self) -> anyhow::Result<Vec<Value>> {
        let document = self.client().get("/api/v1/rules")?.json();
        let groups = document["data"]["groups"].as_array().context("no groups of rules")?;
        Ok(groups.iter().filter_map(|group| group["rules"].as_array()).flatten().cloned().collect())
    }

    /// Evaluates a query now: labels and value of each series.
    pub fn query(&self, query: &str) -> anyhow::Result<Vec<(Value, f64)>> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = self.client().get(&format!("/api/v1/query?query={encoded}"))?;
        let document = answer.json();
        ensure!(document["status"] == "success", "{query}: {}", answer.body);
        let found = document["data"]["result"].as_array().context("no list")?.iter().map(|series| {
            let value = series["value"][1].as_str().and_then(|value| value.parse().ok());
            Ok((series["metric"].clone(), value.with_context(|| format!("no value in {series}"))?))
        });
        found.collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Both fail when it has ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
