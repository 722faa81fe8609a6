//! `inspect dataplane NAME`: what one proxy says about itself, or what it would be told now.

use clap::{Args, ValueEnum};
use resources::Kind;
use serde_json::Value;

use crate::{
    cell::{number, text},
    client::{Answer, Client},
    failure::{Failure, Result},
    output,
    proxy::{dump::Dump, rows},
    terminal,
    types::{DEFAULT_MESH, Type},
};

/// Show what one proxy runs
///
/// Without -o, configuration is JSON, and statistics and clusters are as Envoy writes them.
#[derive(Debug, Args)]
pub struct Dataplane {
    /// Name of the proxy
    name: String,
    /// Mesh of the proxy
    #[arg(short, long, default_value = DEFAULT_MESH)]
    mesh: String,
    /// What to show
    #[arg(long = "type", value_name = "TYPE")]
    view: View,
    /// Form of the output
    #[arg(short = 'o', long = "output", value_name = "FORMAT")]
    form: Option<Form>,
    /// Which of Envoy's own forms to show statistics and clusters in
    #[arg(long, conflicts_with = "form")]
    format: Option<EnvoyFormat>,
    /// Endpoints too, with --type config-dump
    #[arg(long)]
    include_eds: bool,
    /// Statistics that never changed too, with --type stats
    #[arg(long)]
    include_unused: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum View {
    /// What the control plane would send the proxy now, without secrets
    Config,
    /// What the proxy runs
    ConfigDump,
    /// The proxy's statistics
    Stats,
    /// The proxy's clusters and their endpoints
    Clusters,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Columns for people
    Table,
    /// YAML
    Yaml,
    /// JSON
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EnvoyFormat {
    Text,
    Json,
}

impl Dataplane {
    pub fn run(&self, client: &Client) -> Result<()> {
        self.check()?;
        let rendered = match (self.view, self.form) {
            (View::Config, form) => {
                configuration(&Dump::of_control_plane(client, &self.mesh, &self.name)?, form)
            }
            (View::ConfigDump, form) => {
                let dump = Dump::of_proxy(client, &self.mesh, &self.name, self.include_eds)?;
                configuration(&dump, form)
            }
            (_, None) => {
                let json = self.format == Some(EnvoyFormat::Json);
                self.ask(client, json)?.accepted(&attempted(&self.mesh, &self.name))?.body
            }
            (View::Stats, Some(Form::Table)) => {
                let answer = self.ask(client, false)?.accepted(&attempted(&self.mesh, &self.name))?;
                stats_table(&answer.body)
            }
            (_, Some(form)) => {
                let value = self.ask(client, true)?.json(&attempted(&self.mesh, &self.name))?;
                match form {
                    Form::Json => output::json(&value),
                    Form::Yaml => output::yaml(&value),
                    Form::Table => clusters_table(&value),
                }
            }
        };
        Ok(terminal::data(&rendered)?)
    }

    /// A flag that would change nothing is a misunderstanding.
    fn check(&self) -> Result<()> {
        let of_config = matches!(self.view, View::Config | View::ConfigDump);
        if self.format.is_some() && of_config {
            return Err(Failure::invalid(
                "--format is for --type stats and clusters; configuration is always JSON, or YAML with -o yaml",
            ));
        }
        if self.include_eds && self.view != View::ConfigDump {
            return Err(Failure::invalid("--include-eds is for --type config-dump"));
        }
        if self.include_unused && self.view != View::Stats {
            return Err(Failure::invalid("--include-unused is for --type stats"));
        }
        Ok(())
    }

    fn ask(&self, client: &Client, json: bool) -> Result<Answer> {
        let mut query = Vec::new();
        if json {
            query.push("format=json");
        }
        let view = match self.view {
            View::Clusters => "clusters",
            _ => "stats",
        };
        if self.view == View::Stats && self.include_unused {
            query.push("usedonly=false");
        }
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        ask(client, &self.mesh, &self.name, &format!("{view}{query}"))
    }
}

/// Asks for one view of a proxy; a proxy that does not exist is said to.
pub fn ask(client: &Client, mesh: &str, name: &str, view: &str) -> Result<Answer> {
    let kind = Type::of_kind(Kind::Dataplane);
    let answer = client.get(&format!("{}/{view}", kind.item(mesh, name)))?;
    if answer.is_missing() {
        return Err(Failure::failed(format!("there is no {}", kind.describe(mesh, name))));
    }
    Ok(answer)
}

pub fn attempted(mesh: &str, name: &str) -> String {
    format!("could not inspect {}", Type::of_kind(Kind::Dataplane).describe(mesh, name))
}

fn configuration(dump: &Dump, form: Option<Form>) -> String {
    match form {
        None | Some(Form::Json) => output::json(&dump.document),
        Some(Form::Yaml) => output::yaml(&dump.document),
        Some(Form::Table) => {
            let cells = dump.names().into_iter().map(|(kind, name)| {
                let class = rows::class(&name).to_owned();
                vec![kind.to_owned(), name, class]
            });
            output::table(&["TYPE", "NAME", "KIND"], cells)
        }
    }
}

/// Envoy writes `name: value` on every line.
fn stats_table(body: &str) -> String {
    let lines = body.lines().filter_map(|line| line.split_once(": "));
    output::table(&["NAME", "VALUE"], lines.map(|(name, value)| vec![name.to_owned(), value.to_owned()]))
}

fn clusters_table(value: &Value) -> String {
    let mut cells = Vec::new();
    for cluster in value["cluster_statuses"].as_array().into_iter().flatten() {
        let name = text(&cluster["name"]);
        let class = rows::class(&name);
        let hosts: Vec<&Value> = cluster["host_statuses"].as_array().into_iter().flatten().collect();
        if hosts.is_empty() {
            cells.push([&name, class, "-", "-", "-", "-"].map(str::to_owned).to_vec());
        }
        for host in hosts {
            let stat = |wanted: &str| {
                let mut stats = host["stats"].as_array().into_iter().flatten();
                stats.find(|stat| stat["name"] == wanted).map_or(0, |stat| number(&stat["value"])).to_string()
            };
            cells.push(vec![
                name.clone(),
                class.to_owned(),
                rows::address(&host["address"]).to_string(),
                rows::health(host),
                stat("rq_total"),
                stat("rq_error"),
            ]);
        }
    }
    output::table(&["CLUSTER", "KIND", "ADDRESS", "HEALTH", "REQUESTS", "ERRORS"], cells)
}
