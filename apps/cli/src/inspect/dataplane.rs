//! `inspect dataplane NAME`: what applies to one proxy, what it says about itself, or what it would be
//! sent now.

mod hostnames;
mod policies;
mod reachability;
mod rules;
mod sections;
mod summary;

use clap::{Args, ValueEnum};
use contract::lenient::read_partly;
use resources::Kind;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    cell::line,
    client::{ApiClient, ApiResponse, Proxy, Reply},
    failure::{Failure, Result},
    names::ObjectNames,
    output::{self, TableFormat},
    proxy::{dump::Dump, rows},
    terminal,
    types::{DEFAULT_MESH, Type},
    what_if,
};

/// Show what applies to one proxy and what it runs
///
/// Without -o, policies and summaries are for reading, configuration is JSON, and statistics and clusters
/// are as Envoy writes them. With -o yaml or json, policies are the proxy's layout with what applies to
/// each part; in a mesh whose destinations are not all MeshServices they are its rules.
#[derive(Debug, Args)]
pub struct Dataplane {
    /// Name of the proxy
    name: String,
    /// Mesh of the proxy
    #[arg(short, long, default_value = DEFAULT_MESH)]
    mesh: String,
    /// What to show
    #[arg(long = "type", value_name = "TYPE", default_value = "policies")]
    view: View,
    /// Form of the output
    #[arg(short = 'o', long = "output", value_name = "FORMAT")]
    form: Option<TableFormat>,
    /// Which of Envoy's own forms to show statistics and clusters in, or statistics by resource
    #[arg(long)]
    format: Option<EnvoyFormat>,
    /// Endpoints too, with --type config-dump
    #[arg(long)]
    include_eds: bool,
    /// As if policies with the label kuma.io/effect: shadow had an effect, with --type config
    #[arg(long)]
    shadow: bool,
    /// What else to show, with --type config: the difference to what the proxy would be sent without --shadow
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    include: Vec<Include>,
    /// Only this destination, explained, with --type reachability: its name or identifier
    #[arg(long, value_name = "DESTINATION")]
    to: Option<String>,
    /// Statistics that never changed too, with --type stats
    #[arg(long)]
    include_unused: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum View {
    /// The policies on the proxy, its inbounds and its outbounds, and which resources they come from
    Policies,
    /// What the control plane would send the proxy now, without secrets
    Config,
    /// What the proxy runs
    ConfigDump,
    /// The proxy's statistics
    Stats,
    /// The proxy's clusters and their endpoints
    Clusters,
    /// What the application can call by name, where that leads, and claims that lost
    Hostnames,
    /// Which destinations the proxy may call, what trimming takes from it or would take, and why
    Reachability,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Include {
    /// A JSON patch
    Diff,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EnvoyFormat {
    /// Envoy's text
    Text,
    /// Envoy's JSON
    Json,
    /// Statistics by the name of their listener or cluster, with the resource it stands for
    Summary,
}

impl Dataplane {
    pub fn run(&self, client: &ApiClient) -> Result<()> {
        self.check()?;
        let attempted = attempted(&self.mesh, &self.name);
        let names = || ObjectNames::of_proxy(client, &self.mesh, &self.name);
        let read = self.form.unwrap_or(TableFormat::Table);
        let rendered = match (self.view, self.form) {
            (View::Policies, _) => policies::show(client, &self.proxy(), read)?,
            (View::Config, form) => {
                let diff = !self.include.is_empty();
                let dump = Dump::of_control_plane(client, &self.mesh, &self.name, self.shadow, diff)?;
                match form {
                    Some(TableFormat::Table) if diff => match what_if::patch(dump.difference()) {
                        none if none.is_empty() => "Nothing would change.\n".to_owned(),
                        patch => patch,
                    },
                    form => configuration(&dump, form, names),
                }
            }
            (View::ConfigDump, form) => {
                let dump = Dump::of_proxy(client, &self.mesh, &self.name, self.include_eds)?;
                configuration(&dump, form, names)
            }
            (View::Stats, _) if self.format == Some(EnvoyFormat::Summary) => {
                let reply = client.stats_summary(&self.proxy(), self.include_unused)?;
                let summary = present(&self.proxy(), reply)?.document(&attempted)?;
                read.render(&summary.sent, || summary::table(summary.read))
            }
            (View::Hostnames, _) => {
                let reply = client.hostnames(&self.proxy())?;
                let hostnames = present(&self.proxy(), reply)?.document(&attempted)?;
                read.render(&hostnames.sent, || hostnames::table(&hostnames.read))
            }
            (View::Reachability, _) => self.reachability(client, read)?,
            (_, None) => {
                let format = if self.format == Some(EnvoyFormat::Json) { "json" } else { "" };
                self.ask(client, format)?.accepted(&attempted)?.body
            }
            (View::Stats, Some(TableFormat::Table)) => {
                stats_table(&self.ask(client, "")?.accepted(&attempted)?.body)
            }
            (_, Some(form)) => {
                let value = self.ask(client, "json")?.json(&attempted)?;
                form.render(&value, || clusters_table(&value, &names()))
            }
        };
        Ok(terminal::data(&rendered)?)
    }

    /// A flag that would change nothing is a misunderstanding.
    fn check(&self) -> Result<()> {
        match self.format {
            Some(_) if !matches!(self.view, View::Stats | View::Clusters) => {
                return Err(Failure::invalid(
                    "--format is for --type stats and clusters; the form of everything else is chosen with -o",
                ));
            }
            Some(EnvoyFormat::Summary) if self.view != View::Stats => {
                return Err(Failure::invalid("--format summary is for --type stats"));
            }
            Some(EnvoyFormat::Text | EnvoyFormat::Json) if self.form.is_some() => {
                return Err(Failure::invalid(
                    "--format text and json are Envoy's own forms: leave out -o, or --format",
                ));
            }
            _ => {}
        }
        if self.include_eds && self.view != View::ConfigDump {
            return Err(Failure::invalid("--include-eds is for --type config-dump"));
        }
        if (self.shadow || !self.include.is_empty()) && self.view != View::Config {
            return Err(Failure::invalid("--shadow and --include are for --type config"));
        }
        if self.to.is_some() && self.view != View::Reachability {
            return Err(Failure::invalid("--to is for --type reachability"));
        }
        if self.include_unused && self.view != View::Stats {
            return Err(Failure::invalid("--include-unused is for --type stats"));
        }
        Ok(())
    }

    fn proxy(&self) -> Proxy<'_> {
        Proxy { mesh: &self.mesh, name: &self.name }
    }

    fn reachability(&self, client: &ApiClient, form: TableFormat) -> Result<String> {
        let attempted = attempted(&self.mesh, &self.name);
        if let Some(to) = &self.to {
            // What is missing may be the destination, so the control plane says what it is.
            let answer = client.destination_reachability(&self.proxy(), to)?.document(&attempted)?;
            return Ok(form.render(&answer.sent, || reachability::one(&answer.read)));
        }
        let reply = client.reachability(&self.proxy())?;
        let answer = present(&self.proxy(), reply)?.document(&attempted)?;
        Ok(form.render(&answer.sent, || reachability::all(&answer.read)))
    }

    fn ask(&self, client: &ApiClient, format: &str) -> Result<ApiResponse> {
        let mut query = Vec::new();
        if !format.is_empty() {
            query.push(format!("format={format}"));
        }
        let view = match self.view {
            View::Clusters => "clusters",
            _ => "stats",
        };
        if self.view == View::Stats && self.include_unused {
            query.push("usedonly=false".to_owned());
        }
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        ask(client, &self.mesh, &self.name, &format!("{view}{query}"))
    }
}

/// Asks for one view of a proxy; a proxy that does not exist is said to.
pub fn ask(client: &ApiClient, mesh: &str, name: &str, view: &str) -> Result<ApiResponse> {
    let kind = Type::of_kind(Kind::Dataplane);
    let answer = client.get(&format!("{}/{view}", kind.item(mesh, name)))?;
    if answer.is_missing() {
        return Err(Failure::failed(format!("there is no {}", kind.describe(mesh, name))));
    }
    Ok(answer)
}

/// A reply about a proxy that exists.
pub fn present<T: DeserializeOwned>(proxy: &Proxy<'_>, reply: Reply<T>) -> Result<Reply<T>> {
    if reply.answer.is_missing() { Err(proxy.missing()) } else { Ok(reply) }
}

pub fn attempted(mesh: &str, name: &str) -> String {
    format!("could not inspect {}", Type::of_kind(Kind::Dataplane).describe(mesh, name))
}

fn configuration(dump: &Dump, form: Option<TableFormat>, names: impl FnOnce() -> ObjectNames) -> String {
    form.unwrap_or(TableFormat::Json).render(&dump.document, || {
        let names = names();
        let cells = dump.names().into_iter().map(|(kind, name)| {
            let class = names.class(&name).to_owned();
            let kri = kri_or_dash(&names, &name);
            vec![kind.to_owned(), name, class, kri]
        });
        output::table(&["TYPE", "NAME", "KIND", "KRI"], cells)
    })
}

fn kri_or_dash(names: &ObjectNames, name: &str) -> String {
    names.kri(name).unwrap_or_else(|| "-".to_owned())
}

/// Envoy writes `name: value` on every line.
fn stats_table(body: &str) -> String {
    let lines = body.lines().filter_map(|line| line.split_once(": "));
    output::table(&["NAME", "VALUE"], lines.map(|(name, value)| vec![name.to_owned(), value.to_owned()]))
}

fn clusters_table(value: &Value, names: &ObjectNames) -> String {
    let clusters: EnvoyClusters = read_partly(value);
    let mut cells = Vec::new();
    for cluster in clusters.cluster_statuses {
        let name = line(&cluster.name);
        let class = names.class(&name);
        let kri = kri_or_dash(names, &name);
        if cluster.host_statuses.is_empty() {
            cells.push([&name, class, "-", "-", "-", "-", &kri].map(str::to_owned).to_vec());
        }
        for host in cluster.host_statuses {
            let stat = |wanted: &str| {
                let found = host.stats.iter().find(|stat| stat.name == wanted);
                found.map_or(0, |stat| stat.value).to_string()
            };
            cells.push(vec![
                name.clone(),
                class.to_owned(),
                rows::address(&host.address).to_string(),
                rows::health(&host.health_status),
                stat("rq_total"),
                stat("rq_error"),
                kri.clone(),
            ]);
        }
    }
    output::table(&["CLUSTER", "KIND", "ADDRESS", "HEALTH", "REQUESTS", "ERRORS", "KRI"], cells)
}

/// Envoy's list of clusters, as far as it is shown.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EnvoyClusters {
    cluster_statuses: Vec<EnvoyCluster>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EnvoyCluster {
    name: String,
    host_statuses: Vec<EnvoyHost>,
}

/// An endpoint of a cluster.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EnvoyHost {
    address: Value,
    health_status: Value,
    stats: Vec<EnvoyStat>,
}

/// A number, which Envoy leaves out where it is zero.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EnvoyStat {
    name: String,
    value: u64,
}
